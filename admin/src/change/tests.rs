//! A change against disks that fail and shards that refuse.

use super::*;
use crate::fake::disk::MemoryDisk;
use crate::fake::kv::FakeKv;
use crate::fake::{FakePlane, body, outside_with, post};
use crate::store::Found;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use warmpath_core::environment::Environment;

struct Bench {
    plane: Arc<FakePlane>,
    kv: Arc<FakeKv>,
    disk: MemoryDisk,
    gateway: Shared,
}

fn bench() -> Bench {
    let (plane, kv, disk) = (FakePlane::new(), Arc::new(FakeKv::default()), MemoryDisk::default());
    let outside = outside_with(&plane, kv.clone());
    let gateway = Gateway::new(outside, Store::on(Box::new(disk.clone())), 0);
    let gateway = Rc::new(RefCell::new(gateway));
    post(&gateway, &body("a", 9001)).unwrap();
    Bench { plane, kv, disk, gateway }
}

impl Bench {
    fn post(&self, body: &Value) -> Result<(), Refusal> {
        post(&self.gateway, body)
    }

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
        self.gateway.borrow().rules.rules().into_iter().map(|r| r.name).collect()
    }
}

#[test]
fn a_change_that_can_not_be_kept_is_507_and_changes_nothing() {
    for step in 0..5 {
        let bench = bench();
        bench.disk.fail_once_at(step);
        let refusal = bench.post(&body("b", 9002)).unwrap_err();
        assert_eq!((refusal.status(), refusal.code()), (507, "disk_full"), "step {step}");
        assert_eq!(
            (bench.plane.names(), bench.stored()),
            (vec!["a".into()], vec!["a".into()]),
            "step {step}"
        );
        assert_eq!(bench.wanted(), ["a"]);
        assert!(bench.gateway.borrow().persist_fault.is_some());
        bench.post(&body("b", 9002)).unwrap();
        assert_eq!((bench.plane.names(), bench.stored()), (bench.wanted(), bench.wanted()));
        assert_eq!(bench.gateway.borrow().persist_fault, None);
    }
}

#[test]
fn a_busy_port_is_409_and_changes_nothing() {
    let bench = bench();
    *bench.plane.busy.lock().unwrap() = Some(([127, 0, 0, 1], 9002).into());
    let refusal = bench.post(&body("b", 9002)).unwrap_err();
    assert_eq!((refusal.status(), refusal.code()), (409, "address_unavailable"));
    assert_eq!((bench.plane.names(), bench.stored()), (vec!["a".into()], vec!["a".into()]));
    assert_eq!(bench.disk.names(), ["snapshot.json"]);
}

#[test]
fn a_kill_at_any_step_keeps_what_was_acknowledged() {
    for steps in 0..6 {
        let bench = bench();
        bench.disk.stop_after(steps);
        let acknowledged = bench.post(&body("b", 9002)).is_ok();
        bench.disk.restart("everything");
        let stored = bench.stored();
        assert!(stored == ["a", "b"] || (!acknowledged && stored == ["a"]), "{steps}: {stored:?}");
    }
}

#[test]
fn ids_are_made_kept_and_not_shared() {
    let bench = bench();
    let id = bench.gateway.borrow().rules.entries()[0].rule.id.clone();
    assert_eq!((id.len(), &id[14..15]), (36, "4"));
    assert!("89ab".contains(&id[19..20]), "{id}");
    let mut other = body("b", 9002);
    other["serviceArguments"]["id"] = id.as_str().into();
    assert_eq!(bench.post(&other).unwrap_err().code(), "id_taken");
    bench.post(&body("renamed", 9001)).unwrap();
    assert_eq!(bench.gateway.borrow().rules.by_id(&id).unwrap(), 0);
    assert_eq!(bench.gateway.borrow().rules.by_name("renamed").unwrap(), 0);
}

#[test]
fn what_get_shows_may_be_posted_again_and_is_no_change() {
    let bench = bench();
    let entry = bench.gateway.borrow().rules.entries()[0].clone();
    let shown = warmpath_core::rule::body::readback(&entry.rule, &entry.body);
    assert!(matches!(bench.post(&shown), Err(Refusal::Exists)));
}

#[test]
fn endpoints_that_stay_keep_their_order_and_new_ones_follow() {
    let bench = bench();
    let at = |ports: &[u16]| {
        let mut rule = body("a", 9001);
        let endpoint = |p: &u16| serde_json::json!({"endpointIP": "127.0.0.1", "targetPort": p, "weight": 1});
        rule["endpoints"] = ports.iter().map(endpoint).collect();
        rule
    };
    bench.post(&at(&[3, 1])).unwrap();
    bench.post(&at(&[1, 2, 3])).unwrap();
    let ports: Vec<_> =
        bench.gateway.borrow().rules.rules()[0].endpoints.iter().map(|e| e.address.port()).collect();
    assert_eq!(ports, [3, 1, 2]);
}

#[test]
fn the_event_core_follows_every_table_that_the_shards_took_and_no_other() {
    let bench = bench();
    let installed = |bench: &Bench| -> Vec<u64> {
        bench.plane.tables.lock().unwrap().iter().map(|t| t.generation).collect()
    };
    *bench.plane.busy.lock().unwrap() = Some(([127, 0, 0, 1], 9002).into());
    bench.post(&body("b", 9002)).unwrap_err();
    assert_eq!(*bench.kv.followed.lock().unwrap(), [1]);
    bench.post(&body("c", 9003)).unwrap();
    let rules = bench.gateway.borrow().rules.clone();
    bench.gateway.borrow_mut().install(rules).unwrap();
    let before = installed(&bench).len();
    bench.disk.fail_once_at(3);
    bench.post(&body("d", 9004)).unwrap_err();
    assert_eq!(installed(&bench).len(), before + 2, "the refused one and the one before it again");
    assert_eq!(*bench.kv.followed.lock().unwrap(), installed(&bench));
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
    let bench = bench();
    bench.post(&exact("sglang")).unwrap();
    for other in ["trtllm", "vllm", ""] {
        let mut plain = exact(other);
        plain["serviceArguments"]["kvExactMode"] = 0.into();
        let refusal = bench.post(&plain).unwrap_err();
        assert_eq!((refusal.status(), refusal.code()), (409, "engine_type_fixed"));
        let sentence = refusal.to_string();
        assert!(sentence.starts_with("cant modify rule kv engine type (delete and recreate)"), "{sentence}");
        assert!(sentence.contains("127.0.0.1:9003 is for sglang"), "{sentence}");
        assert_eq!(refusal.details()["member"], "serviceArguments.kvEngineType");
    }
    let mut longer = exact("sglang");
    longer["serviceArguments"]["kvBlockSize"] = 64.into();
    bench.post(&longer).unwrap();
    let mut vllm = body("a", 9001);
    for same in ["", "vllm"] {
        vllm["serviceArguments"]["kvEngineType"] = same.into();
        vllm["serviceArguments"]["name"] = format!("a{same}").into();
        bench.post(&vllm).unwrap();
    }
    assert_eq!(bench.stored(), ["avllm", "exact"]);
}

#[test]
fn exact_routing_without_the_seed_is_412_and_changes_nothing() {
    let bench = bench();
    let refusal = bench.post(&exact("vllm")).unwrap_err();
    assert_eq!((refusal.status(), refusal.code()), (412, "KV_EXACT_SEED_UNSET"));
    assert_eq!(refusal.details()["member"], "serviceArguments.kvExactMode");
    assert_eq!((bench.plane.names(), bench.stored()), (vec!["a".into()], vec!["a".into()]));
    let seeded = Environment { none_hash_seed: Some("0".into()), ..Environment::default() };
    bench.gateway.borrow_mut().outside.environment = Arc::new(seeded);
    bench.post(&exact("vllm")).unwrap();
    assert!(matches!(bench.post(&exact("vllm")), Err(Refusal::Exists)));
    let mut spelled = exact("");
    spelled["serviceArguments"]["kvHashAlgo"] = "sha256_cbor".into();
    assert!(matches!(bench.post(&spelled), Err(Refusal::Exists)), "a default that is said");
}
