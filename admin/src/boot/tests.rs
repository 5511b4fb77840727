//! Starts from files as they are found on a disk.

use super::*;
use crate::disk::RealDisk;
use crate::fake::{FakePlane, block_on, body, options, outside, post};
use serde_json::json;
use std::sync::Arc;
use warmpath_core::environment::Environment;

struct Place {
    folder: tempfile::TempDir,
    options: Options,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    Place { folder, options }
}

impl Place {
    fn start(&self) -> Result<(Arc<FakePlane>, Shared), String> {
        let plane = FakePlane::new();
        self.start_on(&plane).map(|gateway| (plane, gateway))
    }

    fn start_on(&self, plane: &Arc<FakePlane>) -> Result<Shared, String> {
        block_on(boot(&self.options, outside(plane), Box::new(RealDisk)))
    }

    /// With this seed of the vLLM engines.
    fn start_seeded(&self, seed: Option<&str>) -> Result<(Arc<FakePlane>, Shared), String> {
        let plane = FakePlane::new();
        let environment = Environment { none_hash_seed: seed.map(str::to_string), ..Environment::default() };
        let outside = Outside { environment: Arc::new(environment), ..outside(&plane) };
        block_on(boot(&self.options, outside, Box::new(RealDisk))).map(|gateway| (plane, gateway))
    }

    fn rules_file(&mut self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        self.options.rules_file = Some(path);
    }

    fn state(&self) -> std::path::PathBuf {
        self.options.state_dir.join("snapshot.json")
    }
}

fn start_fault(place: &Place) -> String {
    place.start().err().expect("it started")
}

#[test]
fn a_rules_file_is_laid_over_the_state() {
    let mut place = place();
    place.rules_file("rules.json", &json!([body("a", 9001), body("b", 9002)]).to_string());
    assert_eq!(place.start().unwrap().0.names(), ["a", "b"]);
    let toml = "[[rule]]\n[rule.serviceArguments]\nexternalIP = \"127.0.0.1\"\nport = 9002\nprotocol = \"tcp\"\nmode = 4\nname = \"b2\"\n[[rule.endpoints]]\nendpointIP = \"127.0.0.1\"\ntargetPort = 8000\nweight = 1\n";
    place.rules_file("rules.toml", toml);
    let (plane, gateway) = place.start().unwrap();
    assert_eq!(plane.names(), ["a", "b2"]);
    drop(gateway);
    place.options.rules_file = None;
    assert_eq!(place.start().unwrap().0.names(), ["a", "b2"], "it was made durable");
}

#[test]
fn a_bad_rules_file_is_named_with_line_column_and_member_and_nothing_is_applied() {
    let mut place = place();
    let mut bad = body("b", 9002);
    bad["endpoints"][0]["weight"] = json!("heavy");
    let text = format!("[{},\n{}]", body("a", 9001), bad);
    place.rules_file("rules.json", &text);
    let column = text.lines().nth(1).unwrap().find("\"heavy\"").unwrap() + 1;
    let sentence = start_fault(&place);
    assert!(sentence.contains(&format!("rules.json:2:{column}: rule 2: endpoints[0].weight")), "{sentence}");
    assert!(!place.state().exists());
    place.rules_file("rules.json", &format!("[{},\n{}]", body("a", 9001), body("b", 9001)));
    let sentence = start_fault(&place);
    assert!(sentence.contains("rules.json:2:21: rule 2 has the address"), "{sentence}");
    place.options.rules_file = Some("nowhere.json".into());
    assert!(start_fault(&place).starts_with("nowhere.json: can't be read"));
}

#[test]
fn a_damaged_state_file_is_put_aside_only_for_something_better() {
    let mut place = place();
    place.rules_file("rules.json", &json!([body("a", 9001)]).to_string());
    drop(place.start().unwrap());
    std::fs::write(place.state(), "{").unwrap();
    let file = place.options.rules_file.take();
    assert!(start_fault(&place).contains("no previous copy"));
    assert!(place.state().exists(), "the next start must not find nothing");
    place.options.rules_file = file;
    let (plane, gateway) = place.start().unwrap();
    assert_eq!(plane.names(), ["a"]);
    assert!(gateway.borrow().boot.notes[0].contains("started from the rules file alone"));
    let aside = gateway.borrow().boot.quarantine_path.clone().unwrap();
    assert_eq!(std::fs::read(aside).unwrap(), b"{");
    drop(gateway);
    assert_eq!(
        place.start().unwrap().1.borrow().boot.quarantine_path,
        None,
        "a whole state file was written"
    );
}

#[test]
fn the_previous_copy_stands_in_for_a_damaged_state_file() {
    let place = place();
    let (_, gateway) = place.start().unwrap();
    post(&gateway, &body("a", 9001)).unwrap();
    post(&gateway, &body("b", 9002)).unwrap();
    drop(gateway);
    std::fs::write(place.state(), "not JSON").unwrap();
    let (plane, gateway) = place.start().unwrap();
    assert_eq!(plane.names(), ["a"]);
    assert!(gateway.borrow().boot.notes[0].contains("started from its previous copy"));
}

#[test]
fn a_state_file_with_a_rule_that_is_not_understood_is_refused_by_name() {
    let place = place();
    std::fs::create_dir_all(&place.options.state_dir).unwrap();
    let rule = json!({"serviceArguments": {}, "endpoints": []});
    let text = json!({"kind": "warmpath-snapshot", "schema": "1.0", "generation": 1, "rules": [rule]});
    std::fs::write(place.state(), text.to_string()).unwrap();
    let sentence = start_fault(&place);
    assert!(sentence.contains("snapshot.json: rule 1: serviceArguments."), "{sentence}");
}

#[test]
fn a_busy_port_at_start_is_the_shards_own_sentence() {
    let mut place = place();
    place.rules_file("rules.json", &json!([body("a", 9001)]).to_string());
    let plane = FakePlane::new();
    *plane.busy.lock().unwrap() = Some(([127, 0, 0, 1], 9001).into());
    let sentence = place.start_on(&plane).err().unwrap();
    assert_eq!(sentence, "127.0.0.1:9001 is in use; choose another port");
}

/// Which rules in force are routed by blocks.
fn exact_names(plane: &FakePlane) -> Vec<String> {
    let tables = plane.tables.lock().unwrap();
    let services = tables.last().into_iter().flat_map(|t| &t.vips).flat_map(|v| &v.services);
    services.filter(|s| s.exact.is_some()).map(|s| s.rule.name.clone()).collect()
}

#[test]
fn a_stored_rule_whose_seed_is_gone_is_served_without_exact_routing_and_keeps_its_wish() {
    let place = place();
    let mut exact = body("exact", 9002);
    exact["serviceArguments"]["kvExactMode"] = json!(3);
    let (plane, gateway) = place.start_seeded(Some("0")).unwrap();
    post(&gateway, &exact).unwrap();
    assert_eq!((exact_names(&plane), gateway.borrow().rules.warnings().count()), (vec!["exact".into()], 0));
    drop(gateway);

    let (plane, gateway) = place.start_seeded(None).unwrap();
    assert_eq!((plane.names(), exact_names(&plane)), (vec!["exact".into()], vec![]));
    let warnings: Vec<String> = gateway.borrow().rules.warnings().collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("127.0.0.1:9002 is served without exact routing"), "{warnings:?}");
    assert!(warnings[0].contains("LLB_KV_NONE_HASH_SEED"), "{warnings:?}");
    post(&gateway, &body("b", 9003)).unwrap();
    assert_eq!(gateway.borrow().rules.warnings().count(), 1, "another rule's change is not its cure");
    assert_eq!(post(&gateway, &exact).unwrap_err().status(), 412);
    drop(gateway);

    let (plane, gateway) = place.start_seeded(Some("0")).unwrap();
    assert_eq!((exact_names(&plane), gateway.borrow().rules.warnings().count()), (vec!["exact".into()], 0));
}

#[test]
fn a_rules_file_is_refused_at_its_exact_rule_where_the_seed_is_missing() {
    let mut place = place();
    let mut exact = body("exact", 9002);
    exact["serviceArguments"]["kvExactMode"] = json!(3);
    place.rules_file("rules.json", &json!([body("a", 9001), exact]).to_string());
    let sentence = place.start_seeded(None).err().expect("it started");
    assert!(sentence.contains("rules.json:1:"), "{sentence}");
    assert!(sentence.contains("rule 2: serviceArguments.kvExactMode is 3"), "{sentence}");
    assert!(sentence.contains("LLB_KV_NONE_HASH_SEED"), "{sentence}");
    assert!(place.start_seeded(Some("0")).is_ok());
}
