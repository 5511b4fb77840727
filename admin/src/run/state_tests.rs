//! History and rollback, snapshot and restore, over real sockets.

use crate::fake::{FakePlane, Running, body, options};
use serde_json::{Value, json};

const LB: &str = "/netlox/v1/config/loadbalancer";

fn weighted(name: &str, port: u16, weight: u16) -> String {
    let mut rule = body(name, port);
    rule["serviceArguments"]["id"] = json!(name);
    rule["endpoints"][0]["weight"] = json!(weight);
    // As a person writes it, so that the letters are told from what a program would write.
    format!("{rule:#}\n ")
}

fn weight(gateway: &Running, name: &str) -> Value {
    gateway.tcp("GET", &format!("{LB}/id/{name}"), "").1["endpoints"][0]["weight"].clone()
}

#[test]
fn the_last_ten_bodies_are_kept_to_the_letter_and_can_be_applied_again() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Running::with(options(folder.path()), &FakePlane::new());
    for weight in 1..=12 {
        assert_eq!(gateway.tcp("POST", LB, &weighted("a", 9001, weight)).0, 200);
    }
    assert_eq!(gateway.tcp("POST", LB, &weighted("a", 9001, 12)).0, 409, "no change, no entry");
    let list = format!("[ {} ]", weighted("b", 9002, 1).trim());
    assert_eq!(gateway.tcp("POST", "/netlox/v1/rules", &list).0, 200);
    drop(gateway);
    let gateway = Running::with(options(folder.path()), &FakePlane::new());
    let (status, history) = gateway.tcp("GET", &format!("{LB}/id/a/history"), "");
    let changes = history["changes"].as_array().unwrap();
    assert_eq!((status, changes.len(), &changes[0]["number"]), (200, 10, &json!(3)));
    assert_eq!(changes[0]["body"], weighted("a", 9001, 3));
    let of_list = gateway.tcp("GET", &format!("{LB}/id/b/history"), "").1;
    assert_eq!(of_list["changes"][0]["body"], weighted("b", 9002, 1).trim());

    let rollback = |query: &str| gateway.tcp("POST", &format!("{LB}/id/a/rollback?{query}"), "");
    let (status, report) = rollback("number=3");
    assert_eq!((status, &report["mode"]), (200, &json!("dry-run")));
    assert_eq!(report["differences"][0]["member"], "endpoints");
    assert_eq!(weight(&gateway, "a"), 12, "a dry run changes nothing");
    assert_eq!(rollback("number=3&mode=commit").1["mode"], "commit");
    assert_eq!(weight(&gateway, "a"), 3);
    let newest = gateway.tcp("GET", &format!("{LB}/id/a/history"), "").1["changes"][9].clone();
    assert_eq!((&newest["number"], newest["body"].as_str()), (&json!(13), Some(&*weighted("a", 9001, 3))));
    assert_eq!(rollback("number=2").1["reason_code"], "no_such_change");
    assert_eq!(rollback("mode=commit").1["reason_code"], "missing_argument");
    assert_eq!(rollback("number=4&mode=now").1["member"], "mode");
}

#[test]
fn a_snapshot_is_restored_whole_or_not_at_all() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let restore = |document: &Value, query: &str| {
        gateway.tcp("POST", &format!("/netlox/v1/config/restore{query}"), &document.to_string())
    };
    for (name, port) in [("a", 9001), ("b", 9002)] {
        assert_eq!(gateway.tcp("POST", LB, &weighted(name, port, 1)).0, 200);
    }
    let (_, snapshot) = gateway.tcp("GET", "/netlox/v1/config/snapshot", "");
    assert_eq!(
        (&snapshot["kind"], snapshot["rules"].as_array().unwrap().len()),
        (&json!("warmpath-snapshot"), 2)
    );
    assert_eq!(gateway.tcp("DELETE", &format!("{LB}/id/b"), "").0, 200);
    assert_eq!(gateway.tcp("POST", LB, &weighted("a", 9001, 7)).0, 200);
    assert_eq!(gateway.tcp("POST", LB, &weighted("c", 9003, 1)).0, 200);

    let (status, report) = restore(&snapshot, "");
    let names =
        |list: &str| report[list].as_array().unwrap().iter().map(|r| r["name"].clone()).collect::<Vec<_>>();
    assert_eq!((status, &report["mode"]), (200, &json!("dry-run")));
    assert_eq!(
        (names("created"), names("replaced"), names("deleted")),
        (vec![json!("b")], vec![json!("a")], vec![json!("c")])
    );
    assert_eq!(plane.names(), ["a", "c"], "a dry run changes nothing");

    let mut bad = snapshot.clone();
    bad["rules"][1]["serviceArguments"]["sell"] = json!(1);
    let (status, error) = restore(&bad, "?mode=commit");
    assert_eq!((status, &error["member"], &error["rule"]), (400, &json!("serviceArguments.sell"), &json!(1)));
    bad["kind"] = json!("loxilb-snapshot");
    assert_eq!(restore(&bad, "?mode=commit").1["reason_code"], "no_snapshot");
    *plane.busy.lock().unwrap() = Some(([127, 0, 0, 1], 9002).into());
    assert_eq!(restore(&snapshot, "?mode=commit").1["reason_code"], "address_unavailable");
    assert_eq!(
        (plane.names(), weight(&gateway, "a")),
        (vec!["a".into(), "c".into()], json!(7)),
        "rolled back"
    );
    let ready = gateway.tcp("GET", "/netlox/v1/status/ready", "").1;
    assert_eq!(ready["last_restore"], json!(null));

    *plane.busy.lock().unwrap() = None;
    assert_eq!(restore(&snapshot, "?mode=commit").0, 200);
    assert_eq!((plane.names(), weight(&gateway, "a")), (vec!["a".into(), "b".into()], json!(1)));
    let history = gateway.tcp("GET", &format!("{LB}/id/a/history"), "").1;
    assert_eq!(history["changes"].as_array().unwrap().len(), 3, "the restore is a change of it");
    assert_eq!(gateway.tcp("GET", "/netlox/v1/status/ready", "").1["last_restore"]["succeeded"], true);
    assert_eq!(restore(&snapshot, "").1["unchanged"], 2);
    assert_eq!(gateway.tcp("POST", "/netlox/v1/config/persist", "").0, 200);
}

#[test]
fn diagnostics_and_readiness_tell_the_state() {
    let gateway = Running::start(&FakePlane::new());
    assert_eq!(gateway.tcp("POST", LB, &weighted("a", 9001, 1)).0, 200);
    let (status, told) = gateway.tcp("GET", "/netlox/v1/diagnostics", "");
    assert_eq!(
        (status, &told["rules"], &told["environment"]["none_hash_seed"]),
        (200, &json!(1), &json!("unset"))
    );
    assert_eq!(told["shards"].as_array().unwrap().len(), 1);
    let (_, ready) = gateway.tcp("GET", "/netlox/v1/status/ready", "");
    assert_eq!((&ready["boot"]["profile"], &ready["auto_persist"]), (&json!("strict"), &json!(true)));
    assert_eq!(ready["boot"]["snapshot_found"], false);
    let list = gateway.tcp("GET", "/netlox/v1/status/capabilities", "").1["capabilities"].clone();
    let vllm = list.as_array().unwrap().iter().find(|c| c["name"] == "kv_exact_vllm").unwrap();
    assert_eq!((&vllm["ready"], &vllm["reason_code"]), (&json!(false), &json!("KV_EXACT_SEED_UNSET")));
}
