//! Which pool serves a request: by model, host and path; and what those are told that none serves.

use crate::harness::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use warmpath_perf::engine::Handle;

on_both_drivers!(
    models_choose_pools,
    models_are_matched_to_the_letter,
    a_pool_of_every_model_takes_the_rest,
    hosts_and_paths_choose_pools,
    bodies_that_are_no_json_go_by_host_and_path,
    where_only_models_choose_a_broken_body_is_told,
    two_addresses_are_two_worlds,
);

fn named(vip: SocketAddr, engine: &Handle, more: Value) -> Value {
    rule_with(vip, &[engine.addr], more)
}

fn model(name: &str) -> Vec<u8> {
    json!({"messages": [{"role": "user", "content": "x"}], "model": name}).to_string().into_bytes()
}

/// An engine that serves any model: it answers under the name it is asked for.
fn any_model() -> Handle {
    engine_with(|c| c.kind = warmpath_perf::engine::Kind::Llamacpp)
}

fn served(engine: &Handle) -> u64 {
    engine.stats().executions.total
}

fn models_choose_pools(driver: Driver) {
    let engines = [any_model(), any_model()];
    let vip = free_address();
    let rules = [
        named(vip, &engines[0], json!({"model_name": "a"})),
        named(vip, &engines[1], json!({"model_name": "org/b-1"})),
    ];
    let gateway = Gateway::start(driver, &rules);
    let mut client = gateway.client();
    let mut ask = |headers: &[&str], body: &[u8]| client.ask(&post("/v1/chat/completions", headers, body));
    assert_eq!(ask(&[], &model("a")).status, 200);
    assert_eq!((served(&engines[0]), served(&engines[1])), (1, 0));
    assert_eq!(ask(&[], &model("org/b-1")).status, 200);
    assert_eq!((served(&engines[0]), served(&engines[1])), (1, 1));
    // Escapes mean the same model, the last of two wins, a name within another member is none.
    let escaped =
        br#"{"messages":[{"role":"user","content":"\"model\":\"a\""}],"model":"a","model":"org\/b\u002d1"}"#;
    assert_eq!(ask(&[], escaped).status, 200);
    assert_eq!((served(&engines[0]), served(&engines[1])), (1, 2));
    // The header stands before the body.
    assert_eq!(ask(&["X-Model: a"], &model("org/b-1")).status, 200);
    assert_eq!((served(&engines[0]), served(&engines[1])), (2, 2));
    let refused = ask(&[], &model("c"));
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "model_unavailable"));
    assert_eq!(refused.json()["model"], "c");
    assert_eq!(refused.json()["error"]["type"], "invalid_request_error");
    let refused = ask(&[], br#"{"messages":[]}"#);
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "no_route"));
    assert_eq!((served(&engines[0]), served(&engines[1])), (2, 2));
}

fn models_are_matched_to_the_letter(driver: Driver) {
    let engine = any_model();
    let gateway = Gateway::start(driver, &[named(free_address(), &engine, json!({"model_name": "Qwen/Q3"}))]);
    let mut client = gateway.client();
    for other in ["qwen/q3", "Qwen/Q3 ", "Qwen", "Q3", "Qwen/Q3/x", "Qwen//Q3"] {
        let reply = client.ask(&post("/v1/chat/completions", &[], &model(other)));
        assert_eq!((reply.status, reply.error_code().as_str()), (503, "model_unavailable"), "{other}");
    }
    assert_eq!(client.ask(&post("/v1/chat/completions", &[], &model("Qwen/Q3"))).status, 200);
    assert_eq!(served(&engine), 1);
}

fn a_pool_of_every_model_takes_the_rest(driver: Driver) {
    let engines = [any_model(), any_model()];
    let vip = free_address();
    let rules = [named(vip, &engines[0], json!({})), named(vip, &engines[1], json!({"model_name": "own"}))];
    let gateway = Gateway::start(driver, &rules);
    let mut client = gateway.client();
    for (name, want) in [("own", 1), ("else", 0), ("OWN", 0), ("", 0)] {
        let before = served(&engines[want]);
        assert_eq!(client.ask(&post("/v1/chat/completions", &[], &model(name))).status, 200);
        assert_eq!(served(&engines[want]), before + 1, "{name:?}");
    }
    // Without a body there is no model.
    assert_eq!(client.ask(&get("/health", &[])).status, 200);
    assert_eq!(engines[0].stats().by_path["GET /health"], 1);
}

fn hosts_and_paths_choose_pools(driver: Driver) {
    let engines = [engine(), engine(), engine(), engine()];
    let vip = free_address();
    let rules = [
        named(vip, &engines[0], json!({"host": "one.test", "path_prefix": "/v1"})),
        named(vip, &engines[1], json!({"host": "one.test", "path_prefix": "/v1/embeddings"})),
        named(vip, &engines[2], json!({"path_prefix": "/exact", "path_match_mode": "exact"})),
        named(vip, &engines[3], json!({"host": "two.test"})),
    ];
    let gateway = Gateway::start(driver, &rules);
    let mut client = gateway.client();
    let cases: [(&str, &str, Option<usize>); 14] = [
        ("one.test", "/v1/x", Some(0)),
        ("ONE.test:8080", "/v1", Some(0)),
        ("one.test.", "/v1/?q=/v1/embeddings", Some(0)),
        ("one.test", "/v1/embeddings", Some(1)),
        ("one.test", "/v1/embeddings/deep", Some(1)),
        ("one.test", "/v1/embeddingsx", Some(0)),
        ("one.test", "/v12", None),
        ("one.test", "/V1/x", None),
        ("three.test", "/v1/x", None),
        ("three.test", "/exact", Some(2)),
        ("three.test", "/exact?x", Some(2)),
        ("three.test", "/exact/x", None),
        ("two.test", "/anything", Some(3)),
        ("two.test", "/exact", Some(3)),
    ];
    for (host, path, want) in cases {
        let before = engines.each_ref().map(|e| e.stats().by_path.values().sum::<u64>());
        let reply = client.ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let after = engines.each_ref().map(|e| e.stats().by_path.values().sum::<u64>());
        let found = (0..4).find(|i| after[*i] > before[*i]);
        assert_eq!(found, want, "{host}{path}");
        if want.is_none() {
            assert_eq!((reply.status, reply.error_code().as_str()), (503, "no_route"), "{host}{path}");
        }
    }
}

fn bodies_that_are_no_json_go_by_host_and_path(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    let mut engine = None;
    for body in [&b"{\"model\": "[..], b"\xff\xfe\0", b"[1]", b"model=a", b" "] {
        client.send(&post("/any", &[], body));
        let engine = engine.get_or_insert_with(|| origin.accept());
        assert_eq!(engine.request().body, body);
        engine.answer("{}");
        assert_eq!(client.reply().status, 200);
    }
}

fn where_only_models_choose_a_broken_body_is_told(driver: Driver) {
    let engine = any_model();
    let gateway = Gateway::start(driver, &[named(free_address(), &engine, json!({"model_name": "a"}))]);
    let reply = gateway.client().ask(&post("/v1/completions", &[], b"{\"model\": \"a\", oops}"));
    assert_eq!((reply.status, reply.error_code().as_str()), (400, "invalid_json"));
    assert_eq!(served(&engine), 0);
}

fn two_addresses_are_two_worlds(driver: Driver) {
    let engines = [engine(), engine()];
    let vips = [free_address(), free_address()];
    let rules = [named(vips[0], &engines[0], json!({})), named(vips[1], &engines[1], json!({}))];
    let gateway = Gateway::start(driver, &rules);
    for (vip, engine) in vips.into_iter().zip(&engines) {
        let reply = Client::connect(vip).ask(&post("/v1/chat/completions", &[], &chat("x")));
        assert_eq!((reply.status, served(engine)), (200, 1));
    }
    gateway.delete_rule(vips[0], "");
    assert_eq!(Client::connect(vips[1]).ask(&get("/health", &[])).status, 200);
}
