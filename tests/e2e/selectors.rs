//! How a pool is spread over: in turn, by weight, by load, by the prompt's beginning; and its health.

use crate::harness::*;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::SocketAddr;
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::faults::{Faults, Health, Stall};

on_both_drivers!(
    in_turn_is_even,
    weights_are_shares,
    a_weight_of_zero_gets_nothing,
    backups_serve_only_when_nobody_else_does,
    least_connections_counts_what_runs,
    one_beginning_goes_to_one_engine,
    a_crowded_beginning_spills_over,
    a_probe_takes_an_engine_out_and_brings_it_back,
    probes_never_take_the_last_engine,
);

fn engines<const N: usize>() -> [Handle; N] {
    [(); N].map(|()| engine())
}

fn addrs<const N: usize>(engines: &[Handle; N]) -> [SocketAddr; N] {
    engines.each_ref().map(|e| e.addr)
}

fn served<const N: usize>(engines: &[Handle; N]) -> [u64; N] {
    engines.each_ref().map(|e| e.stats().executions.total)
}

fn ask_many(gateway: &Gateway, count: usize, text: &str) {
    let mut client = gateway.client();
    for _ in 0..count {
        let reply = client.ask(&post("/v1/chat/completions", &[], &chat(text)));
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }
}

fn in_turn_is_even(driver: Driver) {
    let engines = engines::<3>();
    let gateway = Gateway::start(driver, &[rule(free_address(), &addrs(&engines))]);
    ask_many(&gateway, 30, "x");
    assert_eq!(served(&engines), [10; 3]);
    let receipts = gateway.admin("GET", "/netlox/v1/receipts", "").json();
    assert_eq!(receipts["receipts"][7]["reason"], "round_robin");
}

fn weights_are_shares(driver: Driver) {
    let engines = engines::<3>();
    let [a, b, c] = addrs(&engines);
    let body = weighted_rule(free_address(), &[(a, 5), (b, 3), (c, 2)], json!({"sel": 2}));
    let gateway = Gateway::start(driver, &[body]);
    ask_many(&gateway, 40, "x");
    assert_eq!(served(&engines), [20, 12, 8]);
}

fn a_weight_of_zero_gets_nothing(driver: Driver) {
    for sel in [0, 2, 4] {
        let engines = engines::<2>();
        let [a, b] = addrs(&engines);
        let body = weighted_rule(free_address(), &[(a, 0), (b, 1)], json!({"sel": sel}));
        let gateway = Gateway::start(driver, &[body]);
        ask_many(&gateway, 6, "x");
        assert_eq!(served(&engines), [0, 6], "sel {sel}");
    }
}

fn backups_serve_only_when_nobody_else_does(driver: Driver) {
    let engines = engines::<2>();
    let mut body = rule(free_address(), &addrs(&engines));
    body["endpoints"][1]["backup"] = json!(true);
    let gateway = Gateway::start(driver, &[body]);
    ask_many(&gateway, 6, "x");
    assert_eq!(served(&engines), [6, 0]);
    engines[0].set_faults(Faults { refuse: true, keepalive_close_after: Some(1), ..Faults::default() });
    wait_until("nobody listens", || std::net::TcpStream::connect(engines[0].addr).is_err());
    ask_many(&gateway, 6, "x");
    // One more may have gone over the connection that was open.
    let [first, backup] = served(&engines);
    assert!(first <= 7 && backup >= 5 && first + backup == 12, "{first} and {backup}");
}

fn least_connections_counts_what_runs(driver: Driver) {
    let engines = [(); 3].map(|()| engine_with(|c| c.faults.stall = Some(Stall::BeforeHead)));
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &addrs(&engines), json!({"sel": 4}))]);
    let mut waiting = Vec::new();
    let hold = |text: &str| {
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", &[], &chat(text)));
        client
    };
    let running = || engines.each_ref().map(|e| e.stats().running);
    for count in 1..=9 {
        waiting.push(hold("x"));
        wait_until("it runs", || running().iter().sum::<u64>() == count);
        let loads = running();
        assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
    }
    // One engine finishes its three: the next three are its.
    engines[1].set_faults(Faults::default());
    wait_until("it is free", || running() == [3, 0, 3]);
    engines[1].set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    wait_until("their charges are settled", || gateway.sum("active") == 6);
    for count in 1..=3 {
        waiting.push(hold("y"));
        wait_until("it runs", || running() == [3, count, 3]);
    }
}

fn hashing(engines: &[SocketAddr], more: Value) -> Value {
    let mut service = json!({"sel": 8});
    for (name, value) in more.as_object().unwrap() {
        service[name] = value.clone();
    }
    rule_with(free_address(), engines, service)
}

fn one_beginning_goes_to_one_engine(driver: Driver) {
    let engines = engines::<4>();
    let gateway = Gateway::start(driver, &[hashing(&addrs(&engines), json!({}))]);
    let mut homes = HashSet::new();
    for conversation in 0..24 {
        let before = served(&engines);
        let text = format!("conversation {conversation} {}", "with a long beginning ".repeat(20));
        for turn in 0..3 {
            ask_many(&gateway, 1, &format!("{text} turn {turn}"));
        }
        let after = served(&engines);
        let home: Vec<_> = (0..4).filter(|i| after[*i] > before[*i]).collect();
        assert_eq!(home.len(), 1, "conversation {conversation} went to {home:?}");
        homes.insert(home[0]);
    }
    assert!(homes.len() >= 3, "24 conversations on engines {homes:?}");
}

fn a_crowded_beginning_spills_over(driver: Driver) {
    let engines = [(); 3].map(|()| engine_with(|c| c.faults.stall = Some(Stall::BeforeHead)));
    let service = json!({"chwbl_mean_load_factor": 125});
    let gateway = Gateway::start(driver, &[hashing(&addrs(&engines), service)]);
    let running = || engines.each_ref().map(|e| e.stats().running);
    let mut waiting = Vec::new();
    for count in 1..=12 {
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", &[], &chat("the same beginning for all")));
        waiting.push(client);
        wait_until("it runs", || running().iter().sum::<u64>() == count);
        let bound = (count as f64 * 1.25 / 3.0).ceil() as u64;
        assert!(running().iter().all(|load| *load <= bound.max(1)), "{:?}, bound {bound}", running());
    }
    assert!(running().iter().all(|load| *load > 0));
}

fn probed(engines: &[SocketAddr]) -> Value {
    let service = json!({
        "monitor": true, "probetype": "http", "probereq": "/health", "probeTimeout": 1, "probeRetries": 1
    });
    rule_with(free_address(), engines, service)
}

fn states(gateway: &Gateway) -> Vec<String> {
    let list = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    let endpoints = list["lbAttr"][0]["endpoints"].as_array().unwrap().clone();
    endpoints.iter().map(|e| e["state"].as_str().unwrap().to_owned()).collect()
}

fn a_probe_takes_an_engine_out_and_brings_it_back(driver: Driver) {
    let engines = engines::<2>();
    let gateway = Gateway::start(driver, &[probed(&addrs(&engines))]);
    ask_many(&gateway, 4, "x");
    assert_eq!(served(&engines), [2, 2]);
    engines[0].set_faults(Faults { health: Health::Fail, ..Faults::default() });
    wait_until("it is out", || states(&gateway) == ["inactive", "active"]);
    ask_many(&gateway, 6, "x");
    assert_eq!(served(&engines), [2, 8]);
    engines[0].set_faults(Faults::default());
    wait_until("it is back", || states(&gateway) == ["active", "active"]);
    ask_many(&gateway, 4, "x");
    assert_eq!(served(&engines), [4, 10]);
}

fn probes_never_take_the_last_engine(driver: Driver) {
    let engines = engines::<2>();
    let gateway = Gateway::start(driver, &[probed(&addrs(&engines))]);
    engines.iter().for_each(|e| e.set_faults(Faults { health: Health::Fail, ..Faults::default() }));
    wait_until("both are down", || states(&gateway) == ["inactive", "inactive"]);
    ask_many(&gateway, 6, "x");
    assert_eq!(served(&engines), [3, 3]);
    let ready = gateway.admin("GET", "/netlox/v1/status/ready", "").json();
    assert_ne!(ready["warnings"], json!([]), "{ready}");
}
