//! Rules and engines that come and go, and where events are found. Owns what an operator changes while requests
//! are routed by blocks.

use super::pool::{
    NO_SEEDING, SEED, SMALL_INDEX, Told, all_connected, complete, config, engine, engine_with, exact_rule,
    exact_rule_at, fixed_port, gateway, gateway_with, in_step, known, known_of, live_port, replay_port,
    tokens, vllm_version, wait_known, warm,
};
use crate::harness::{Client, Driver, Gateway, free_address, on_both_drivers, post, wait_until};
use serde_json::{Value, json};
use warmpath_perf::engine::Kind::{Sglang, Trtllm, Vllm};
use warmpath_perf::engine::{Config, start};

on_both_drivers!(engines_and_rules_come_and_go);

fn engines_and_rules_come_and_go(driver: Driver) {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let vip = free_address();
    let rule =
        |engines: &[&warmpath_perf::engine::Handle]| exact_rule_at(vip, "pool", Vllm, engines, json!({}));
    let gateway = gateway(driver, &[rule(&[&a])]);
    let prompt = tokens(1, 96);
    warm(&gateway, "pool", &a, &prompt[..32]);
    complete(b.addr, &prompt);
    let batches = |gateway: &Gateway| known_of(gateway, "pool", &a)["ranks"][0]["batches"].clone();
    let before = batches(&gateway);
    gateway.post_rule(&rule(&[&a, &b]));
    in_step(&gateway, "pool", &b);
    complete(vip, &prompt).assert_exact(&b, 6);
    assert_eq!(batches(&gateway), before, "what is followed already is not followed anew");
    gateway.post_rule(&rule(&[&a]));
    let told = complete(vip, &prompt);
    assert!(told.went_to(&a), "{}", told.reply.head);
    assert_eq!(known(&gateway).len(), 1);
    gateway.delete_rule(vip, "");
    wait_until("nobody is followed", || known(&gateway).is_empty());
    let index =
        || gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "").json()["index"]["blocks"].clone();
    wait_until("nothing is kept", || index() == 0);
    gateway.post_rule(&rule(&[&b, &a]));
    in_step(&gateway, "pool", &a);
    in_step(&gateway, "pool", &b);
    let told = complete(vip, &prompt);
    assert_eq!((told.word("tier"), told.word("overlap_blocks")), ("tier15", "6"), "{}", told.reply.head);
}

/// The gateway was there first.
#[test]
fn an_engine_that_starts_late_is_found() {
    let late = Config { port: fixed_port(), ..config(Vllm) };
    let there = engine(Vllm);
    let placeholder = start(late.clone()).unwrap();
    let rule = exact_rule("pool", Vllm, &[&placeholder, &there], json!({}));
    placeholder.stop();
    let gateway = Gateway::start_in(Driver::Epoll, &[rule], &SMALL_INDEX, &[SEED, NO_SEEDING]);
    wait_until("one engine is known", || {
        known(&gateway).iter().any(|row| row["ranks"][0]["connected"] == true)
    });
    let told = complete(gateway.vip, &tokens(1, 64));
    assert_eq!((told.reply.status, told.went_to(&there)), (200, true), "{}", told.reply.head);
    let late = start(late).unwrap();
    all_connected(&gateway);
    warm(&gateway, "pool", &late, &tokens(2, 64));
    complete(gateway.vip, &tokens(2, 70)).assert_exact(&late, 4);
}

/// A stream is published to whoever asks; only TensorRT-LLM's has one reader.
#[test]
fn two_gateways_follow_the_same_engines() {
    let engines = [engine(Vllm), engine(Sglang)];
    let gateways = [(); 2].map(|()| {
        let rules = [("vllm", Vllm, &engines[0]), ("sglang", Sglang, &engines[1])]
            .map(|(name, kind, engine)| exact_rule(name, kind, &[engine], json!({})));
        gateway(Driver::Epoll, &rules)
    });
    for seed in 1..4 {
        engines.iter().for_each(|engine| drop(complete(engine.addr, &tokens(seed, 64))));
    }
    for gateway in &gateways {
        in_step(gateway, "vllm", &engines[0]);
        in_step(gateway, "sglang", &engines[1]);
        complete(gateway.vip, &tokens(2, 70)).assert_exact(&engines[0], 4);
    }
}

/// Old releases do not tell where they publish; newer ones do, and their word holds.
#[test]
fn events_are_found_by_the_rule_by_an_offset_or_by_the_engines_word() {
    let old = engine_with(Vllm, |c| c.version = vllm_version("0.23.0"));
    let sglang = engine_with(Sglang, |c| c.version = vllm_version("0.5.18"));
    let new = engine(Vllm);
    for (engine, seed) in [(&old, 1), (&sglang, 2), (&new, 3)] {
        complete(engine.addr, &tokens(seed, 64));
    }
    let by_offset = exact_rule("old", Vllm, &[&old], json!({"kvReplayPort": 0}));
    let sglang_rule = exact_rule("sglang", Sglang, &[&sglang], json!({"kvReplayPort": 0}));
    let wrong = exact_rule("new", Vllm, &[&new], json!({"kvZmqPort": live_port() + 7, "kvReplayPort": 0}));
    let offset = (replay_port() - live_port()).to_string();
    let variables = [SEED, NO_SEEDING, ("LLB_KV_REPLAY_PORT_OFFSET", offset.as_str())];
    let plain = gateway(Driver::Epoll, &[wrong]);
    in_step(&plain, "new", &new);
    let findings = known_of(&plain, "new", &new)["findings"].to_string();
    assert!(findings.contains("kvZmqPort says"), "{findings}");
    let gateway = gateway_with(Driver::Epoll, &[by_offset, sglang_rule], &["--shards", "1"], &variables);
    for (rule, engine) in [("old", &old), ("sglang", &sglang)] {
        in_step(&gateway, rule, engine);
        assert_eq!(known_of(&gateway, rule, engine)["ranks"][0]["standing"], "complete", "{rule}");
    }
}

/// Without a replay of any kind a gateway that starts later knows what comes from then on.
#[test]
fn an_old_engine_without_replay_counts_from_now_on() {
    for version in ["0.5.18", "0.5.23"] {
        let s = engine_with(Sglang, |c| {
            c.version = vllm_version(version);
            c.events.replay = None;
        });
        complete(s.addr, &tokens(1, 64));
        let gateway =
            gateway(Driver::Epoll, &[exact_rule("pool", Sglang, &[&s], json!({"kvReplayPort": 0}))]);
        let mut seed = 100;
        wait_until("events come", || {
            seed += 1;
            complete(s.addr, &tokens(seed, 32));
            known_of(&gateway, "pool", &s)["ranks"][0]["blocks"]["gpu"].as_u64() > Some(0)
        });
        let row = known_of(&gateway, "pool", &s);
        assert_eq!(row["ranks"][0]["standing"], "since", "{row}");
        complete(gateway.vip, &tokens(1, 70)).assert_missed("no_worker");
        complete(s.addr, &tokens(2, 64));
        wait_known(&gateway, "pool", &s, "the next is known", |row| {
            row["ranks"][0]["blocks"]["gpu"].as_u64() >= Some(6)
        });
        complete(gateway.vip, &tokens(2, 70)).assert_exact(&s, 4);
    }
}

/// Bodies over 16 MiB are not looked into: the selector has them.
#[test]
fn a_body_that_is_too_large_to_look_into_is_served() {
    let a = engine_with(Trtllm, |c| c.sink_over = 1 << 20);
    let gateway = gateway(Driver::Uring, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
    let body = json!({"prompt": tokens(1, 64), "note": "x".repeat(17 << 20)}).to_string();
    let told = Told::new(gateway.client().ask(&post("/v1/completions", &[], body.as_bytes())));
    assert_eq!((told.reply.status, told.word("tier")), (200, "tier2"), "{}", told.reply.head);
}

/// A receipt's id is the request's own, and the list of receipts knows it.
#[test]
fn receipts_are_found_by_the_id_of_the_answer() {
    let a = engine(Vllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    let mut client = Client::connect(gateway.vip);
    let body = super::pool::body(&tokens(1, 70), json!({}));
    let told = Told::new(client.ask(&post("/v1/completions", &["X-Request-Id: of-mine"], &body)));
    told.assert_exact(&a, 4);
    assert_eq!(told.word("id"), "of-mine");
    let mut found = Value::Null;
    wait_until("the receipt is listed", || {
        let list = gateway.admin("GET", "/netlox/v1/receipts?last=10", "").json();
        let receipts = list["receipts"].as_array().unwrap();
        found = receipts.iter().find(|r| r["id"] == "of-mine").cloned().unwrap_or_default();
        !found.is_null()
    });
    assert_eq!(
        (&found["endpoint"], &found["reason"]),
        (&json!(a.addr.to_string()), &json!("exact")),
        "{found}"
    );
    let why = gateway.admin("GET", "/netlox/v1/config/ai/explain?id=of-mine", "");
    let text = String::from_utf8(why.body).unwrap();
    assert!(why.status == 200 && text.contains("of-mine") && text.contains(&a.addr.to_string()), "{text}");
    let mut quiet = exact_rule("quiet", Vllm, &[&a], json!({"explain_header": "id"}));
    gateway.post_rule(&quiet);
    let brief = complete(super::pool::vip_of(&quiet), &tokens(1, 70));
    assert!(brief.reply.header("x-warmpath-receipt").is_some_and(|line| line.starts_with("id=")));
    assert_eq!(brief.word("endpoint"), "", "only its id");
    quiet["serviceArguments"]["explain_header"] = "off".into();
    gateway.post_rule(&quiet);
    let silent = complete(super::pool::vip_of(&quiet), &tokens(1, 70));
    assert_eq!(silent.reply.header("x-warmpath-receipt"), None);
}
