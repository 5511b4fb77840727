//! Rules that change while requests run: who notices, who must not, and what is refused.

use crate::harness::*;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use warmpath_perf::engine::faults::{Faults, Stall};

on_both_drivers!(
    changes_under_load_fail_no_request,
    changes_under_load_fail_no_request_on_four_shards,
    a_deleted_rule_serves_no_new_request,
    a_request_outlives_its_rule,
    an_address_comes_and_goes,
    rules_are_read_back_as_they_were_given,
    wrong_rules_are_refused_by_name,
    a_rule_switched_off_is_as_if_absent,
);

/// Four clients ask on one connection each while `change` runs; every answer must be whole and right.
fn under_load(gateway: &Gateway, change: impl FnOnce(&AtomicU64)) {
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (stop, answers) = (&stop, &answers);
            scope.spawn(move || {
                let mut client = gateway.client();
                let mut turn = 0;
                while !stop.load(Relaxed) {
                    turn += 1;
                    let id = format!("load-{number}-{turn}");
                    let body = if turn % 2 == 0 { chat(&id) } else { chat_stream(&id, 3) };
                    let reply =
                        client.ask(&post("/v1/chat/completions", &[&format!("X-Request-Id: {id}")], &body));
                    let text = String::from_utf8(reply.body).unwrap();
                    assert!(reply.status == 200 && reply.whole, "{} {text}", reply.status);
                    assert!(text.contains(&format!("\"chatcmpl-{id}\"")), "{id} got {text}");
                    answers.fetch_add(1, Relaxed);
                }
            });
        }
        // Also when `change` fails, the clients have to end.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&answers)));
        stop.store(true, Relaxed);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
}

fn change_under_load(driver: Driver, shards: &str) {
    let engines = [engine(), engine(), engine()];
    let [a, b, c] = engines.each_ref().map(|e| e.addr);
    let vip = free_address();
    let gateway = Gateway::start_with(driver, &[rule(vip, &[a, b])], &["--shards", shards]);
    under_load(&gateway, |answers| {
        for round in 0..12 {
            let before = answers.load(Relaxed);
            // The same rule with other engines, another rule of the address, another address.
            gateway.post_rule(&rule(vip, &[[b, c], [c, a], [a, b]][round % 3]));
            gateway.post_rule(&rule_with(vip, &[c], json!({"model_name": "other"})));
            let other = free_address();
            gateway.post_rule(&rule(other, &[a]));
            assert_eq!(Client::connect(other).ask(&get("/health", &[])).status, 200);
            gateway.delete_rule(other, "");
            gateway.delete_rule(vip, "?model_name=other");
            gateway.post_rule(&rule_with(vip, &[b], json!({"sel": 4})));
            wait_until("requests went on", || answers.load(Relaxed) >= before + 20);
        }
    });
    let finished: u64 = engines.iter().map(|e| e.stats().finished).sum();
    assert!(engines.iter().all(|e| e.stats().finished > 0));
    assert_eq!(engines.iter().map(|e| e.stats().executions.total).sum::<u64>(), finished);
    assert_eq!(engines.iter().map(|e| e.stats().aborted + e.stats().faulted).sum::<u64>(), 0);
}

fn changes_under_load_fail_no_request(driver: Driver) {
    change_under_load(driver, "1");
}

fn changes_under_load_fail_no_request_on_four_shards(driver: Driver) {
    change_under_load(driver, "4");
}

fn a_deleted_rule_serves_no_new_request(driver: Driver) {
    let engine = engine();
    let vip = free_address();
    let rules = [
        rule_with(vip, &[engine.addr], json!({"path_prefix": "/a"})),
        rule_with(vip, &[engine.addr], json!({"path_prefix": "/b"})),
    ];
    let gateway = Gateway::start(driver, &rules);
    let mut client = gateway.client();
    assert_eq!(client.ask(&get("/a/x", &[])).status, 404);
    gateway.delete_rule(vip, "?path_prefix=/a");
    let reply = client.ask(&get("/a/x", &[]));
    assert_eq!((reply.status, reply.error_code().as_str()), (503, "no_route"));
    assert_eq!(client.ask(&get("/b/x", &[])).status, 404);
    gateway.delete_rule(vip, "?path_prefix=/b");
    // The connection is still there; the address is not.
    let reply = client.ask(&get("/b/x", &[]));
    assert_eq!((reply.status, reply.error_code().as_str()), (503, "no_rules"));
    wait_until("nobody listens", || std::net::TcpStream::connect(vip).is_err());
}

fn a_request_outlives_its_rule(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::MidStream));
    let vip = free_address();
    let gateway = Gateway::start(driver, &[rule(vip, &[engine.addr])]);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 10)));
    assert_eq!(client.try_head().unwrap().status, 200);
    gateway.delete_rule(vip, "");
    engine.set_faults(Faults::default());
    let mut all = Vec::new();
    while let Some((data, _)) = client.chunk().unwrap()
        && !data.is_empty()
    {
        all.extend(data);
    }
    assert!(all.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(engine.stats().finished, 1);
    wait_until("its connection is not kept", || engine.stats().open == 0);
}

fn an_address_comes_and_goes(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let vip = free_address();
    for _ in 0..10 {
        gateway.post_rule(&rule(vip, &[engine.addr]));
        let mut client = Client::connect(vip);
        assert_eq!(client.ask(&get("/health", &[])).status, 200);
        gateway.delete_rule(vip, "");
        assert_eq!(client.ask(&get("/health", &[])).error_code(), "no_rules");
        wait_until("nobody listens", || std::net::TcpStream::connect(vip).is_err());
    }
    // An address taken by another program is refused as a whole.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = rule(taken.local_addr().unwrap(), &[engine.addr]);
    let reply = gateway.admin("POST", "/netlox/v1/config/loadbalancer", &refused.to_string());
    let text = String::from_utf8(reply.body.clone()).unwrap();
    assert_eq!((reply.status, reply.json()["reason_code"].as_str()), (409, Some("address_unavailable")));
    assert!(text.contains("another program listens there"), "{text}");
    assert_eq!(gateway.client().ask(&get("/health", &[])).status, 200);
    let list = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    assert_eq!(list["lbAttr"].as_array().unwrap().len(), 1);
}

fn rules_are_read_back_as_they_were_given(driver: Driver) {
    let engine = engine();
    let vip = free_address();
    let body = rule_with(vip, &[engine.addr], json!({"sel": 4, "name": "mine", "model_name": "Org/M"}));
    let gateway = Gateway::start(driver, std::slice::from_ref(&body));
    for list in [
        gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json(),
        gateway.admin_unix("GET", "/netlox/v1/config/loadbalancer/all", "").1,
    ] {
        let service = &list["lbAttr"][0]["serviceArguments"];
        for (name, value) in body["serviceArguments"].as_object().unwrap() {
            assert_eq!(&service[name], value, "{name}");
        }
    }
    let (status, _) = gateway.admin_unix("DELETE", "/netlox/v1/config/loadbalancer/name/mine", "");
    assert_eq!(status, 200);
    let mode = std::fs::metadata(gateway.folder.join("state/ctl.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn wrong_rules_are_refused_by_name(driver: Driver) {
    let engine = engine();
    let vip = free_address();
    let gateway = Gateway::start(driver, &[rule(vip, &[engine.addr])]);
    let cases: [(Value, &str, &str); 6] = [
        (json!({"model_nam": "x"}), "serviceArguments.model_nam", "model_name"),
        (json!({"Sel": 0}), "serviceArguments.Sel", "sel"),
        (json!({"sel": 5}), "serviceArguments.sel", "0, 1, 2, 3, 4, 8, 9, 10"),
        (json!({"port": 0}), "serviceArguments.port", "1 to 65535"),
        (json!({"mode": 2}), "serviceArguments.mode", "4"),
        (json!({"backend_protocol": "http2"}), "serviceArguments.backend_protocol", "not in this build"),
    ];
    for (change, member, hint) in cases {
        let body = rule_with(vip, &[engine.addr], change).to_string();
        let rest = gateway.admin("POST", "/netlox/v1/config/loadbalancer", &body);
        let unix = gateway.admin_unix("POST", "/netlox/v1/config/loadbalancer", &body);
        for (status, answer) in [(rest.status, rest.json()), unix] {
            assert!((400..500).contains(&status) || status == 501, "{status} {answer}");
            let sentence = answer["result"].as_str().unwrap();
            let name = member.split('.').next_back().unwrap();
            assert!(sentence.contains(name) && sentence.contains(hint), "{member}: {sentence}");
        }
    }
    let list = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    assert_eq!(list["lbAttr"].as_array().unwrap().len(), 1);
}

fn a_rule_switched_off_is_as_if_absent(driver: Driver) {
    let engine = engine();
    let vip = free_address();
    let gateway = Gateway::start(driver, &[rule(vip, &[engine.addr])]);
    let mut client = gateway.client();
    assert_eq!(client.ask(&get("/health", &[])).status, 200);
    gateway.post_rule(&rule_with(vip, &[engine.addr], json!({"adminStateUp": false})));
    assert_eq!(client.ask(&get("/health", &[])).error_code(), "no_rules");
    gateway.post_rule(&rule(vip, &[engine.addr]));
    assert_eq!(client.ask(&get("/health", &[])).status, 200);
}
