//! Sessions over real sockets: each turn on a connection of its own, to one shard or four.

use crate::harness::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use warmpath_perf::engine::Handle;

on_both_drivers!(turns_of_a_conversation_meet_one_engine, a_client_without_a_name_is_known_by_its_address);

fn served(engines: &[Handle]) -> Vec<u64> {
    engines.iter().map(|e| e.stats().executions.total).collect()
}

/// Asks on a new connection, and tells which engine served it.
fn engine_of(gateway: &Gateway, engines: &[Handle], lines: &[&str], body: &[u8]) -> usize {
    let before = served(engines);
    let reply = gateway.client().ask(&post("/v1/chat/completions", lines, body));
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let after = served(engines);
    (0..engines.len()).find(|i| after[*i] > before[*i]).unwrap()
}

fn turn_of(user: &str) -> Vec<u8> {
    let body = json!({"model": "sim", "user": user, "messages": [{"role": "user", "content": "hello"}]});
    body.to_string().into_bytes()
}

fn start(driver: Driver, engines: &[Handle], shards: &str, members: Value) -> Gateway {
    let addrs: Vec<SocketAddr> = engines.iter().map(|e| e.addr).collect();
    Gateway::start_with(driver, &[rule_with(free_address(), &addrs, members)], &["--shards", shards])
}

fn turns_of_a_conversation_meet_one_engine(driver: Driver) {
    for shards in ["1", "4"] {
        let engines: Vec<Handle> = (0..3).map(|_| engine()).collect();
        let gateway = start(driver, &engines, shards, json!({"session_header_name": "X-Thread"}));
        let mut homes = Vec::new();
        for round in 0..4 {
            for conversation in 0..7 {
                let header = format!("X-Thread: c{conversation}");
                let by_header = conversation % 2 == 0;
                let lines: &[&str] = if by_header { &[&header] } else { &["X-Request-Id: r"] };
                let user = if by_header { "all" } else { &header };
                let engine = engine_of(&gateway, &engines, lines, &turn_of(user));
                match homes.get(conversation) {
                    None => homes.push(engine),
                    Some(home) => {
                        assert_eq!(engine, *home, "turn {round} of {conversation}, {shards} shards")
                    }
                }
            }
        }
        let receipts = gateway.admin("GET", "/netlox/v1/receipts", "").json();
        let reasons: Vec<&str> =
            receipts["receipts"].as_array().unwrap().iter().filter_map(|r| r["reason"].as_str()).collect();
        assert_eq!(reasons.iter().filter(|reason| **reason == "session").count(), 21, "{reasons:?}");
        let page = String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap();
        for line in [
            "loxilb_pd_sessions_active 7\n",
            "loxilb_ai_normal_session_hits_total{model=\"\"} 21\n",
            "loxilb_ai_pd_tier_selected_total{tier=\"tier0\",model=\"\"} 21\n",
            "loxilb_ai_pd_tier_selected_total{tier=\"tier2\",model=\"\"} 7\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}

fn a_client_without_a_name_is_known_by_its_address(driver: Driver) {
    let engines: Vec<Handle> = (0..3).map(|_| engine()).collect();
    let gateway = start(driver, &engines, "4", json!({"sel": 3}));
    let home = engine_of(&gateway, &engines, &[], &turn_of("a"));
    for user in ["b", "c", "d", "e"] {
        assert_eq!(engine_of(&gateway, &engines, &[], &turn_of(user)), home);
    }
}
