//! A change against disks that fail and shards that refuse.

use super::*;
use crate::fake::disk::MemoryDisk;
use crate::fake::{FakePlane, body, outside};
use crate::store::Found;

struct Bench {
    plane: Arc<FakePlane>,
    disk: MemoryDisk,
    gateway: Gateway,
}

fn bench() -> Bench {
    let (plane, disk) = (FakePlane::new(), MemoryDisk::default());
    let mut gateway = Gateway::new(outside(&plane), Store::on(Box::new(disk.clone())), 0);
    gateway.post(&body("a", 9001)).unwrap();
    Bench { plane, disk, gateway }
}

impl Bench {
    /// Names of the rules that a restart would find.
    fn stored(&self) -> Vec<String> {
        let (Found::Current(snapshot) | Found::Interrupted(snapshot)) =
            Store::on(Box::new(self.disk.clone())).load().unwrap()
        else {
            panic!("no snapshot");
        };
        let name = |b: &Value| b["serviceArguments"]["name"].as_str().unwrap().to_string();
        snapshot.rules.iter().map(name).collect()
    }

    fn wanted(&self) -> Vec<String> {
        self.gateway.rules.rules().into_iter().map(|r| r.name).collect()
    }
}

#[test]
fn a_change_that_can_not_be_kept_is_507_and_changes_nothing() {
    for step in 0..5 {
        let mut bench = bench();
        bench.disk.fail_once_at(step);
        let refusal = bench.gateway.post(&body("b", 9002)).unwrap_err();
        assert_eq!((refusal.status(), refusal.code()), (507, "disk_full"), "step {step}");
        assert_eq!(
            (bench.plane.names(), bench.stored()),
            (vec!["a".into()], vec!["a".into()]),
            "step {step}"
        );
        assert_eq!(bench.wanted(), ["a"]);
        assert!(bench.gateway.persist_fault.is_some());
        bench.gateway.post(&body("b", 9002)).unwrap();
        assert_eq!((bench.plane.names(), bench.stored()), (bench.wanted(), bench.wanted()));
        assert_eq!(bench.gateway.persist_fault, None);
    }
}

#[test]
fn a_busy_port_is_409_and_changes_nothing() {
    let mut bench = bench();
    *bench.plane.busy.lock().unwrap() = Some(([127, 0, 0, 1], 9002).into());
    let refusal = bench.gateway.post(&body("b", 9002)).unwrap_err();
    assert_eq!((refusal.status(), refusal.code()), (409, "address_unavailable"));
    assert_eq!((bench.plane.names(), bench.stored()), (vec!["a".into()], vec!["a".into()]));
    assert_eq!(bench.disk.names(), ["snapshot.json"]);
}

#[test]
fn a_kill_at_any_step_keeps_what_was_acknowledged() {
    for steps in 0..6 {
        let mut bench = bench();
        bench.disk.stop_after(steps);
        let acknowledged = bench.gateway.post(&body("b", 9002)).is_ok();
        bench.disk.restart("everything");
        let stored = bench.stored();
        assert!(stored == ["a", "b"] || (!acknowledged && stored == ["a"]), "{steps}: {stored:?}");
    }
}

#[test]
fn ids_are_made_kept_and_not_shared() {
    let mut bench = bench();
    let id = bench.gateway.rules.entries()[0].rule.id.clone();
    assert_eq!((id.len(), &id[14..15]), (36, "4"));
    assert!("89ab".contains(&id[19..20]), "{id}");
    let mut other = body("b", 9002);
    other["serviceArguments"]["id"] = id.as_str().into();
    assert_eq!(bench.gateway.post(&other).unwrap_err().code(), "id_taken");
    bench.gateway.post(&body("renamed", 9001)).unwrap();
    assert_eq!(bench.gateway.rules.by_id(&id).unwrap(), 0);
    assert_eq!(bench.gateway.rules.by_name("renamed").unwrap(), 0);
}

#[test]
fn what_get_shows_may_be_posted_again_and_is_no_change() {
    let mut bench = bench();
    let entry = bench.gateway.rules.entries()[0].clone();
    let shown = warmpath_core::rule::body::readback(&entry.rule, &entry.body);
    assert!(matches!(bench.gateway.post(&shown), Err(Refusal::Exists)));
}

#[test]
fn endpoints_that_stay_keep_their_order_and_new_ones_follow() {
    let mut bench = bench();
    let at = |ports: &[u16]| {
        let mut rule = body("a", 9001);
        let endpoint = |p: &u16| serde_json::json!({"endpointIP": "127.0.0.1", "targetPort": p, "weight": 1});
        rule["endpoints"] = ports.iter().map(endpoint).collect();
        rule
    };
    bench.gateway.post(&at(&[3, 1])).unwrap();
    bench.gateway.post(&at(&[1, 2, 3])).unwrap();
    let ports: Vec<_> = bench.gateway.rules.rules()[0].endpoints.iter().map(|e| e.address.port()).collect();
    assert_eq!(ports, [3, 1, 2]);
}

/// A rule that asks for exact routing by blocks of this kind of engine.
fn exact(engine: &str) -> Value {
    let mut rule = body("exact", 9003);
    rule["serviceArguments"]["kvExactMode"] = 3.into();
    rule["serviceArguments"]["kvEngineType"] = engine.into();
    rule
}

#[test]
fn the_kind_of_engine_stays_as_long_as_the_rule() {
    let mut bench = bench();
    bench.gateway.post(&exact("sglang")).unwrap();
    for other in ["trtllm", "vllm", ""] {
        let mut plain = exact(other);
        plain["serviceArguments"]["kvExactMode"] = 0.into();
        let refusal = bench.gateway.post(&plain).unwrap_err();
        assert_eq!((refusal.status(), refusal.code()), (409, "engine_type_fixed"));
        let sentence = refusal.to_string();
        assert!(sentence.starts_with("cant modify rule kv engine type (delete and recreate)"), "{sentence}");
        assert!(sentence.contains("127.0.0.1:9003 is for sglang"), "{sentence}");
        assert_eq!(refusal.details()["member"], "serviceArguments.kvEngineType");
    }
    let mut longer = exact("sglang");
    longer["serviceArguments"]["kvBlockSize"] = 64.into();
    bench.gateway.post(&longer).unwrap();
    let mut vllm = body("a", 9001);
    for same in ["", "vllm"] {
        vllm["serviceArguments"]["kvEngineType"] = same.into();
        vllm["serviceArguments"]["name"] = format!("a{same}").into();
        bench.gateway.post(&vllm).unwrap();
    }
    assert_eq!(bench.stored(), ["avllm", "exact"]);
}

#[test]
fn exact_routing_without_the_seed_is_412_and_changes_nothing() {
    let mut bench = bench();
    let refusal = bench.gateway.post(&exact("vllm")).unwrap_err();
    assert_eq!((refusal.status(), refusal.code()), (412, "KV_EXACT_SEED_UNSET"));
    assert_eq!(refusal.details()["member"], "serviceArguments.kvExactMode");
    assert_eq!((bench.plane.names(), bench.stored()), (vec!["a".into()], vec!["a".into()]));
    let seeded = Environment { none_hash_seed: Some("0".into()), ..Environment::default() };
    bench.gateway.outside.environment = Arc::new(seeded);
    bench.gateway.post(&exact("vllm")).unwrap();
    assert!(matches!(bench.gateway.post(&exact("vllm")), Err(Refusal::Exists)));
    let mut spelled = exact("");
    spelled["serviceArguments"]["kvHashAlgo"] = "sha256_cbor".into();
    assert!(matches!(bench.gateway.post(&spelled), Err(Refusal::Exists)), "a default that is said");
}
