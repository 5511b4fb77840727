//! TensorRT-LLM, whose events are given to one reader once. Owns the drain seen from outside: what it proves, what
//! fences it, what lifts the fence.

use super::pool::{
    complete, complete_with, counts_in_step, engine, engine_with, exact_rule, followed, gateway, inventory,
    known_of, metric, tokens, wait_known,
};
use crate::harness::{Client, Driver, on_both_drivers, post, wait_until};
use serde_json::{Value, json};
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::Kind::Trtllm;
use warmpath_perf::engine::faults::Faults;

on_both_drivers!(drained_events_route_exactly);

fn drained_events_route_exactly(driver: Driver) {
    let (a, b) = (engine(Trtllm), engine(Trtllm));
    let gateway = gateway(driver, &[exact_rule("pool", Trtllm, &[&a, &b], json!({}))]);
    let prompt = tokens(1, 400);
    complete(a.addr, &prompt[..129]);
    complete(b.addr, &prompt[..70]);
    followed(&gateway, "pool", &a);
    followed(&gateway, "pool", &b);
    let row = known_of(&gateway, "pool", &a);
    assert_eq!(row["transport"], "drain");
    assert_eq!(row["ranks"][0]["standing"], "complete", "{row}");
    assert_eq!(row["capacity"], 262_144 / 32, "`created` told its room");
    let told = complete(gateway.vip, &prompt[..200]);
    told.assert_exact(&a, 4);
    told.assert_as_predicted();
    complete(b.addr, &prompt[..321]);
    followed(&gateway, "pool", &b);
    let told = complete(gateway.vip, &prompt[..330]);
    told.assert_exact(&b, 10);
    told.assert_as_predicted();
}

/// Events of one engine are drained once for all rules over it.
#[test]
fn rules_over_one_engine_share_its_drain() {
    let a = engine(Trtllm);
    let one = exact_rule("one", Trtllm, &[&a], json!({}));
    let two = exact_rule("two", Trtllm, &[&a], json!({"kvWarmupSec": 1}));
    let (one_at, two_at) = (super::pool::vip_of(&one), super::pool::vip_of(&two));
    let gateway = gateway(Driver::Epoll, &[one, two]);
    for seed in 1..20 {
        complete(a.addr, &tokens(seed, 65));
    }
    for rule in ["one", "two"] {
        followed(&gateway, rule, &a);
        let row = known_of(&gateway, rule, &a);
        assert_eq!((&row["fence"], &row["ranks"][0]["standing"]), (&Value::Null, &json!("complete")));
        assert_eq!(inventory(&gateway, &row, "gpu", 100).len(), 38, "two whole blocks of each prompt");
    }
    let sources = ["one", "two"].map(|rule| known_of(&gateway, rule, &a)["source"].clone());
    assert_eq!(sources[0], sources[1]);
    complete(one_at, &tokens(7, 65)).assert_exact(&a, 2);
    wait_until("the second rule is warm", || {
        let told = complete(two_at, &tokens(9, 65));
        told.word("reason") == "exact" && told.number("overlap_blocks") == 2
    });
}

#[test]
fn a_new_process_is_followed_from_its_beginning() {
    let a = engine(Trtllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
    complete(a.addr, &tokens(1, 129));
    followed(&gateway, "pool", &a);
    a.restart(true);
    complete(a.addr, &tokens(2, 65));
    wait_known(&gateway, "pool", &a, "only the new process's blocks are known", |row| {
        row["ranks"][0]["blocks"]["gpu"] == 2
    });
    followed(&gateway, "pool", &a);
    let row = known_of(&gateway, "pool", &a);
    assert_eq!((&row["fence"], &row["ranks"][0]["standing"]), (&Value::Null, &json!("complete")), "{row}");
    complete(gateway.vip, &tokens(1, 129)).assert_missed("no_worker");
    complete(gateway.vip, &tokens(2, 70)).assert_exact(&a, 2);
}

fn assert_fenced(gateway: &crate::harness::Gateway, engine: &Handle, why: &str) {
    wait_known(gateway, "pool", engine, "it is fenced", |row| row["fence"] == "ownership");
    let row = known_of(gateway, "pool", engine);
    assert_eq!(row["ranks"][0]["reason"], why, "{row}");
    assert!(row["findings"].to_string().contains("reacquire"), "{row}");
    assert_eq!(row["ranks"][0]["blocks"]["gpu"], 0, "{row}");
}

/// Lost events: nothing is claimed until the engine starts anew.
#[test]
fn a_gap_fences_until_the_engine_starts_anew() {
    let (a, b) = (engine(Trtllm), engine(Trtllm));
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a, &b], json!({}))]);
    complete(a.addr, &tokens(1, 129));
    complete(b.addr, &tokens(1, 65));
    followed(&gateway, "pool", &a);
    followed(&gateway, "pool", &b);
    a.set_faults(Faults { kv_lose_next: Some(1), ..Faults::default() });
    complete(a.addr, &tokens(2, 65));
    complete(a.addr, &tokens(3, 65));
    assert_fenced(&gateway, &a, "drain_sequence_gap");
    assert_eq!(metric(&gateway, "warmpath_kv_fenced", &[("fence", "ownership")]), Some(1.0));
    let told = complete(gateway.vip, &tokens(1, 129));
    told.assert_exact(&b, 2);
    a.restart(true);
    complete(a.addr, &tokens(1, 289));
    wait_known(&gateway, "pool", &a, "it is let in", |row| row["fence"].is_null());
    followed(&gateway, "pool", &a);
    complete(gateway.vip, &tokens(1, 300)).assert_exact(&a, 9);
}

/// Another reader steals events; the operator ends it and takes the stream over.
#[test]
fn a_second_reader_is_found_out_and_the_stream_taken_over() {
    let a = engine(Trtllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
    followed(&gateway, "pool", &a);
    let mut thief = Client::connect(a.addr);
    wait_until("the thief gets something before the gateway does", || {
        complete(a.addr, &tokens(1, 65));
        a.clear_caches();
        let stolen = thief.ask(&post("/kv_cache_events", &[], b""));
        stolen.body.len() > 2
    });
    complete(a.addr, &tokens(3, 65));
    assert_fenced(&gateway, &a, "drain_sequence_gap");
    complete(gateway.vip, &tokens(1, 65)).assert_missed("fenced");
    let row = known_of(&gateway, "pool", &a);
    let path = format!(
        "/netlox/v1/config/ai/kv/reacquire?service_id={}&ep_idx={}",
        row["service_id"], row["ep_idx"]
    );
    assert_eq!(gateway.admin("POST", &path, "").status, 200);
    wait_known(&gateway, "pool", &a, "it is let in", |row| row["fence"].is_null());
    complete(a.addr, &tokens(4, 97));
    followed(&gateway, "pool", &a);
    assert_eq!(known_of(&gateway, "pool", &a)["ranks"][0]["standing"], "since");
    complete(gateway.vip, &tokens(4, 97)).assert_exact(&a, 3);
}

/// Under eviction, with moves to the host's memory and back. No prompt leaves a part of a block, which the engine
/// keeps and exact routing does not count.
#[test]
fn eviction_and_moves_to_the_host_are_followed() {
    for host_blocks in [0, 6] {
        let a = engine_with(Trtllm, |c| (c.cache_blocks, c.host_blocks) = (12, host_blocks));
        let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
        for round in 0..12u32 {
            let seed = [1, 2, 1, 3, 4, 2, 5, 1, 6, 2, 7, 1][round as usize];
            let prompt = tokens(seed, 32 * (1 + seed % 4) + 1);
            let more = json!({"max_tokens": 32, "ignore_eos": true});
            let told = complete_with(gateway.vip, &prompt, &[], more);
            let predicted = told.word("predicted_tokens").parse().unwrap_or(0);
            match host_blocks {
                0 => assert_eq!(told.cached(), predicted, "round {round}: {}", told.reply.head),
                _ => assert!(told.cached() >= predicted, "round {round}: {}", told.reply.head),
            }
            followed(&gateway, "pool", &a);
            counts_in_step(&gateway, "pool", &a);
        }
        let held = super::pool::held(&a, &["gpu", "host"]).len();
        let row = known_of(&gateway, "pool", &a);
        assert_eq!(inventory(&gateway, &row, "host", 5).len(), held, "{row}");
        assert_eq!(row["findings"], json!([]), "{row}");
    }
}
