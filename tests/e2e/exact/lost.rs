//! Events that are lost, links that break, processes that die: what the gateway claims afterwards is what the
//! engine has. Owns gaps, reconnects, restarts and partitions of published streams.

use super::pool::{
    NO_SEEDING, SEED, SMALL_INDEX, Told, all_connected, body, complete, config, engine, engine_with,
    exact_rule, fixed_port, gateway, held, in_step, inventory, known_of, metric, tokens, wait_known, warm,
};
use crate::harness::{Client, Driver, Gateway, on_both_drivers, post, wait_until};
use serde_json::{Value, json};
use warmpath_perf::engine::Kind::{self, Sglang, Vllm};
use warmpath_perf::engine::faults::{Faults, Replay};
use warmpath_perf::engine::{Config, Handle, start};

on_both_drivers!(a_killed_publisher_is_found_again, a_restarted_gateway_asks_for_everything_again);

fn pool(engines: &[&Handle], more: Value) -> Value {
    exact_rule("pool", Vllm, engines, more)
}

fn rank(gateway: &Gateway, engine: &Handle) -> Value {
    known_of(gateway, "pool", engine)["ranks"][0].clone()
}

/// An engine at a port of its own, so that another process can take its place.
fn fixed(kind: Kind) -> Config {
    Config { port: fixed_port(), ..config(kind) }
}

#[test]
fn lost_batches_are_replayed() {
    for kind in [Vllm, Sglang] {
        let a = engine(kind);
        let gateway = gateway(Driver::Epoll, &[exact_rule("pool", kind, &[&a], json!({}))]);
        warm(&gateway, "pool", &a, &tokens(1, 64));
        a.set_faults(Faults { kv_lose_next: Some(2), ..Faults::default() });
        complete(a.addr, &tokens(2, 64));
        complete(a.addr, &tokens(3, 64));
        complete(a.addr, &tokens(4, 64));
        in_step(&gateway, "pool", &a);
        let row = rank(&gateway, &a);
        assert_eq!((&row["standing"], &row["cleared"]), (&json!("complete"), &json!(0)), "{row}");
        assert!(row["replays"].as_u64() >= Some(2), "one at the beginning, one for the gap: {row}");
        complete(gateway.vip, &tokens(2, 70)).assert_exact(&a, 4);
    }
}

#[test]
fn batches_sent_twice_count_once() {
    let a = engine_with(Vllm, |c| c.cache_blocks = 8);
    let gateway = gateway(Driver::Epoll, &[pool(&[&a], json!({}))]);
    a.set_faults(Faults { kv_double_next: Some(100), ..Faults::default() });
    for seed in 1..6 {
        warm(&gateway, "pool", &a, &tokens(seed, 64));
    }
    assert_eq!(rank(&gateway, &a)["cleared"], 0);
}

/// Nothing can be asked again: what was known is forgotten, and what comes afterwards is true.
#[test]
fn a_gap_without_replay_clears() {
    let a = engine_with(Vllm, |c| c.events.replay = None);
    let gateway = gateway(Driver::Epoll, &[pool(&[&a], json!({"kvReplayPort": 0}))]);
    // The first batch may come before the engine knows of the subscription.
    wait_until("events come", || {
        complete(a.addr, &tokens(1, 16));
        rank(&gateway, &a)["batches"].as_u64() > Some(0)
    });
    complete(a.addr, &tokens(2, 64));
    wait_known(&gateway, "pool", &a, "four more blocks are known", |row| {
        row["ranks"][0]["blocks"]["gpu"].as_u64() >= Some(4)
    });
    complete(gateway.vip, &tokens(2, 70)).assert_exact(&a, 4);
    a.set_faults(Faults { kv_lose_next: Some(1), ..Faults::default() });
    complete(a.addr, &tokens(3, 64));
    complete(a.addr, &tokens(4, 64));
    wait_known(&gateway, "pool", &a, "the gap is seen", |row| {
        row["ranks"][0]["reason"] == "gap" && row["ranks"][0]["blocks"]["gpu"] == 4
    });
    let row = known_of(&gateway, "pool", &a);
    assert_eq!(row["ranks"][0]["standing"], "since");
    let known = inventory(&gateway, &row, "gpu", 3);
    assert!(known.is_subset(&held(&a, &["gpu"])), "a true part of what is held");
    complete(gateway.vip, &tokens(3, 70)).assert_missed("no_worker");
    complete(gateway.vip, &tokens(4, 70)).assert_exact(&a, 4);
}

/// A replay that fails falls back to what comes live, and says so.
#[test]
fn a_replay_that_fails_leaves_what_comes_live() {
    let a = engine(Vllm);
    complete(a.addr, &tokens(1, 64));
    a.set_faults(Faults { kv_replay: Some(Replay::Refuse), ..Faults::default() });
    let gateway = gateway(Driver::Epoll, &[pool(&[&a], json!({}))]);
    wait_until("live events count", || {
        complete(a.addr, &tokens(2, 16));
        rank(&gateway, &a)["blocks"]["gpu"].as_u64() > Some(0)
    });
    let row = known_of(&gateway, "pool", &a);
    assert!(inventory(&gateway, &row, "gpu", 100).is_subset(&held(&a, &["gpu"])));
    assert_eq!(row["ranks"][0]["standing"], "since", "{row}");
}

#[test]
fn a_link_that_breaks_is_made_again_and_nothing_is_forgotten() {
    let a = engine(Vllm);
    let gateway = gateway(Driver::Epoll, &[pool(&[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    a.close_links();
    complete(a.addr, &tokens(2, 64));
    wait_known(&gateway, "pool", &a, "the link is up again", |row| {
        let rank = &row["ranks"][0];
        rank["reconnects"].as_u64() >= Some(1) && rank["connected"] == true && rank["standing"] == "complete"
    });
    in_step(&gateway, "pool", &a);
    let row = rank(&gateway, &a);
    assert_eq!((&row["cleared"], &row["standing"]), (&json!(0), &json!("complete")), "{row}");
    assert!(row["reconnects"].as_u64() >= Some(1), "{row}");
    let reconnects = metric(&gateway, "loxilb_kv_subscriber_reconnect_total", &[]);
    assert!(reconnects >= row["reconnects"].as_f64(), "{reconnects:?}");
    complete(gateway.vip, &tokens(1, 70)).assert_exact(&a, 4);
    complete(gateway.vip, &tokens(2, 70)).assert_exact(&a, 4);
}

fn a_killed_publisher_is_found_again(driver: Driver) {
    let config = fixed(Vllm);
    let (a, b) = (start(config.clone()).unwrap(), engine(Vllm));
    let gateway = gateway(driver, &[pool(&[&a, &b], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 160));
    warm(&gateway, "pool", &b, &tokens(1, 48));
    a.stop();
    let told = complete(gateway.vip, &tokens(1, 160));
    assert_eq!((told.reply.status, told.went_to(&b)), (200, true), "{}", told.reply.head);
    let a = start(config).unwrap();
    // The new process has told more than the old one when the gateway comes back to it.
    for seed in 2..7 {
        complete(a.addr, &tokens(seed, 64));
    }
    in_step(&gateway, "pool", &a);
    let row = rank(&gateway, &a);
    assert!(row["cleared"].as_u64() >= Some(1), "{row}");
    assert_eq!((&row["standing"], &row["reason"]), (&json!("complete"), &json!("restarted")), "{row}");
    in_step(&gateway, "pool", &b);
    let told = complete(gateway.vip, &tokens(1, 160));
    assert!(told.went_to(&b), "the old process's blocks don't count: {}", told.reply.head);
    let told = complete(gateway.vip, &tokens(6, 70));
    told.assert_exact(&a, 4);
    told.assert_as_predicted();
}

/// Silence without a restart: what was not sent is replayed once something comes.
#[test]
fn a_partition_that_ends_is_a_gap() {
    let a = engine_with(Vllm, |c| c.cache_blocks = 12);
    let gateway = gateway(Driver::Epoll, &[pool(&[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    a.set_faults(Faults { kv_silence: true, ..Faults::default() });
    for seed in 2..6 {
        complete(a.addr, &tokens(seed, 64));
    }
    complete(gateway.vip, &tokens(1, 70)).assert_exact(&a, 4);
    a.set_faults(Faults::default());
    complete(a.addr, &tokens(6, 64));
    in_step(&gateway, "pool", &a);
    assert_eq!(rank(&gateway, &a)["cleared"], 0);
    complete(gateway.vip, &tokens(6, 70)).assert_exact(&a, 4);
}

/// Silence: connections stay, nothing comes. The engine starts anew behind it and overtakes.
#[test]
fn a_partition_with_a_restart_behind_it_ends_in_the_new_process() {
    for kind in [Vllm, Sglang] {
        let a = engine(kind);
        let gateway = gateway(Driver::Epoll, &[exact_rule("pool", kind, &[&a], json!({}))]);
        warm(&gateway, "pool", &a, &tokens(1, 64));
        warm(&gateway, "pool", &a, &tokens(2, 64));
        a.set_faults(Faults { kv_silence: true, ..Faults::default() });
        complete(a.addr, &tokens(3, 64));
        a.restart(true);
        for seed in 4..8 {
            complete(a.addr, &tokens(seed, 64));
        }
        a.set_faults(Faults::default());
        complete(a.addr, &tokens(8, 64));
        in_step(&gateway, "pool", &a);
        assert!(rank(&gateway, &a)["cleared"].as_u64() >= Some(1));
        complete(gateway.vip, &tokens(1, 70)).assert_missed("no_worker");
        let told = complete(gateway.vip, &tokens(7, 70));
        told.assert_exact(&a, 4);
        told.assert_as_predicted();
    }
}

fn a_restarted_gateway_asks_for_everything_again(driver: Driver) {
    let (a, b) = (engine(Vllm), engine_with(Vllm, |c| c.cache_blocks = 8));
    let gateway = gateway(driver, &[pool(&[&a, &b], json!({}))]);
    let vip = gateway.vip;
    for seed in 1..5 {
        warm(&gateway, "pool", &a, &tokens(seed, 64));
        warm(&gateway, "pool", &b, &tokens(seed + 10, 96));
    }
    let folder = gateway.kill();
    let gateway = Gateway::spawn_in(driver, folder, false, &SMALL_INDEX, &[SEED, NO_SEEDING]);
    all_connected(&gateway);
    in_step(&gateway, "pool", &a);
    in_step(&gateway, "pool", &b);
    // The kernel takes down the ring of a killed process in its own time, and its listener with it.
    let request = post("/v1/completions", &[], &body(&tokens(3, 70), json!({})));
    let mut reply = None;
    wait_until("the new gateway has the address to itself", || {
        reply = Client::connect(vip).try_reply_to(&request).ok();
        reply.is_some()
    });
    let told = Told::new(reply.unwrap());
    told.assert_exact(&a, 4);
    told.assert_as_predicted();
    assert_eq!(rank(&gateway, &a)["standing"], "complete");
}
