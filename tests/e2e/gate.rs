//! The capacity gate with real sockets: who waits, who goes first, who is refused, and what is told of it.

use crate::harness::*;
use serde_json::{Value, json};
use std::net::SocketAddr;

on_both_drivers!(
    those_who_wait_are_served_in_the_order_they_came_over_four_shards,
    with_no_place_to_wait_the_next_is_refused,
    a_turn_that_does_not_come_is_told,
    one_who_leaves_the_queue_costs_no_turn,
    a_raised_ceiling_lets_those_in_who_wait,
    a_rule_that_goes_sends_those_home_who_wait,
    one_tenant_leaves_room_for_others,
    an_endpoint_has_no_more_than_its_share,
    observed_only_nobody_is_refused,
    the_older_variables_hold_pairs_back,
    maintenance_and_drained_hosts_cut_nothing,
);

const ONE: usize = 1;

/// An answer behind which the connection ends: shards have connections of their own, so each request shows as a new one.
const LAST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

fn gated(vip: SocketAddr, engine: SocketAddr, more: Value) -> Value {
    let mut members = json!({"fc_mode": "enforce", "fc_max_outstanding": ONE, "fc_expose_headers": "on"});
    members.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rule_with(vip, &[engine], members)
}

fn ask(id: &str) -> Vec<u8> {
    post("/v1/completions", &[&format!("X-Request-Id: {id}")], b"{}")
}

/// Sends a request and waits until the gate shows so many waiting.
fn sends(gateway: &Gateway, id: &str, waiting: u64) -> Client {
    let mut client = gateway.client();
    client.send(&ask(id));
    wait_until("it waits", || effective(gateway, "queued") == waiting);
    client
}

fn effective(gateway: &Gateway, member: &str) -> u64 {
    let rules = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    rules["lbAttr"][0]["fc_effective"][member].as_u64().unwrap_or(u64::MAX)
}

fn metric(gateway: &Gateway, sample: &str) -> u64 {
    let page = gateway.admin("GET", "/netlox/v1/metrics", "");
    let page = String::from_utf8(page.body).unwrap();
    let line = page.lines().find(|line| line.starts_with("loxilb_ai_admission") && line.contains(sample));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {sample}"))
}

/// The next request that the engine gets; its id.
fn next(engine: &mut OriginConn) -> String {
    engine.request().all("x-request-id")[0].to_owned()
}

fn those_who_wait_are_served_in_the_order_they_came_over_four_shards(driver: Driver) {
    let origin = Origin::start();
    let vip = free_address();
    let rules = [gated(vip, origin.addr, json!({"fc_max_queue_depth": 9, "fc_max_queue_wait_ms": 60_000}))];
    let gateway = Gateway::start_with(driver, &rules, &["--shards", "4"]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    assert_eq!(next(&mut engine), "r0");
    let mut waiting: Vec<Client> = (1..=6).map(|turn| sends(&gateway, &format!("r{turn}"), turn)).collect();
    assert_eq!((effective(&gateway, "inflight"), effective(&gateway, "effective_limit")), (1, 1));
    engine.say(LAST);
    assert_eq!(first.reply().status, 200);
    for (turn, client) in waiting.iter_mut().enumerate() {
        let mut engine = origin.accept();
        assert_eq!(next(&mut engine), format!("r{}", turn + 1));
        assert!(origin.try_accept().is_none(), "one at a time");
        engine.say(LAST);
        assert_eq!(client.reply().status, 200);
    }
    gateway.settle();
    assert_eq!((effective(&gateway, "inflight"), effective(&gateway, "queued")), (0, 0));
    assert_eq!(metric(&gateway, "reason=\"admitted_after_wait\""), 6);
}

fn with_no_place_to_wait_the_next_is_refused(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[gated(free_address(), origin.addr, json!({}))]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    engine.request();
    let mut client = gateway.client();
    let refused = client.ask(&ask("r1"));
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "admission_capacity"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    for (name, value) in [("inflight", "1"), ("queued", "0"), ("limit", "1")] {
        assert_eq!(refused.header(&format!("x-loxilb-admission-{name}")), Some(value));
    }
    assert_eq!((&refused.json()["retry_after"], &refused.json()["queued_ms"]), (&json!(1), &json!(0)));
    client.send(&get("/health", &[]));
    let mut other = origin.accept();
    other.request();
    other.say(LAST);
    assert_eq!(client.reply().status, 200, "only what an engine computes is held back");
    engine.say(LAST);
    assert_eq!(first.reply().status, 200);
    gateway.settle();
    client.send(&ask("r2"));
    let mut engine = origin.accept();
    assert_eq!(next(&mut engine), "r2");
    engine.answer("done");
    assert_eq!(client.reply().status, 200);
}

fn a_turn_that_does_not_come_is_told(driver: Driver) {
    let origin = Origin::start();
    let wait = json!({"fc_max_queue_depth": 2, "fc_max_queue_wait_ms": 30});
    let gateway = Gateway::start(driver, &[gated(free_address(), origin.addr, wait)]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    engine.request();
    let late = gateway.client().ask(&ask("r1"));
    assert_eq!((late.status, late.error_code().as_str()), (504, "admission_queue_timeout"));
    assert!(late.json()["queued_ms"].as_u64().unwrap() >= 30);
    assert_eq!(metric(&gateway, "reason=\"admission_queue_timeout\""), 1);
    engine.answer("done");
    assert_eq!(first.reply().status, 200);
}

fn one_who_leaves_the_queue_costs_no_turn(driver: Driver) {
    let origin = Origin::start();
    let wait = json!({"fc_max_queue_depth": 2, "fc_max_queue_wait_ms": 60_000});
    let gateway = Gateway::start(driver, &[gated(free_address(), origin.addr, wait)]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    engine.request();
    let gone = sends(&gateway, "gone", 1);
    let mut stays = sends(&gateway, "stays", 2);
    gone.reset();
    wait_until("it left", || effective(&gateway, "queued") == 1);
    engine.answer("done");
    assert_eq!(first.reply().status, 200);
    assert_eq!(next(&mut engine), "stays");
    engine.answer("done");
    assert_eq!(stays.reply().status, 200);
    gateway.settle();
    assert_eq!(effective(&gateway, "inflight"), 0);
}

fn a_raised_ceiling_lets_those_in_who_wait(driver: Driver) {
    let origin = Origin::start();
    let vip = free_address();
    let wait = json!({"fc_max_queue_depth": 2, "fc_max_queue_wait_ms": 60_000});
    let gateway = Gateway::start(driver, &[gated(vip, origin.addr, wait.clone())]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    engine.request();
    let mut second = sends(&gateway, "r1", 1);
    let mut more = gated(vip, origin.addr, wait);
    more["serviceArguments"]["fc_max_outstanding"] = json!(2);
    gateway.post_rule(&more);
    let mut other = origin.accept();
    assert_eq!(next(&mut other), "r1");
    other.answer("done");
    engine.answer("done");
    assert_eq!((first.reply().status, second.reply().status), (200, 200));
}

fn a_rule_that_goes_sends_those_home_who_wait(driver: Driver) {
    let origin = Origin::start();
    let vip = free_address();
    let wait = json!({"fc_max_queue_depth": 2, "fc_max_queue_wait_ms": 60_000});
    let gateway = Gateway::start(driver, &[gated(vip, origin.addr, wait)]);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = origin.accept();
    engine.request();
    let mut waits = sends(&gateway, "r1", 1);
    gateway.delete_rule(vip, "");
    let drained = waits.reply();
    assert_eq!((drained.status, drained.error_code().as_str()), (503, "admission_drained"));
    engine.answer("done");
    assert_eq!(first.reply().status, 200, "what was let in goes on");
}

fn one_tenant_leaves_room_for_others(driver: Driver) {
    let origin = Origin::start();
    let share = json!({"fc_max_outstanding": 4, "fc_tenant_max_share_pct": 50});
    let gateway = Gateway::start(driver, &[gated(free_address(), origin.addr, share)]);
    let asked_by = |key: &str| post("/v1/completions", &[&format!("X-Api-Key: {key}")], b"{}");
    let mut clients = Vec::new();
    let mut engines = Vec::new();
    for key in ["one", "one", "two"] {
        let mut client = gateway.client();
        client.send(&asked_by(key));
        let mut engine = origin.accept();
        engine.request();
        clients.push(client);
        engines.push(engine);
    }
    let refused = gateway.client().ask(&asked_by("one"));
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "admission_tenant_share"));
    assert_eq!(effective(&gateway, "tenants_active"), 2);
    for (client, engine) in clients.iter_mut().zip(&mut engines) {
        engine.answer("done");
        assert_eq!(client.reply().status, 200);
    }
    gateway.settle();
    assert_eq!(effective(&gateway, "tenants_active"), 0);
}

fn an_endpoint_has_no_more_than_its_share(driver: Driver) {
    let (small, other) = (Origin::start(), Origin::start());
    let vip = free_address();
    let members = json!({"fc_mode": "enforce", "fc_ep_max_inflight": 1});
    let gateway = Gateway::start(driver, &[rule_with(vip, &[small.addr, other.addr], members)]);
    let mut clients: Vec<Client> = (0..2).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| client.send(&ask("r")));
    let mut engines = [small.accept(), other.accept()];
    engines.iter_mut().for_each(|engine| drop(engine.request()));
    let refused = gateway.client().ask(&ask("more"));
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "admission_capacity"));
    for (client, engine) in clients.iter_mut().zip(&mut engines) {
        engine.answer("done");
        assert_eq!(client.reply().status, 200);
    }
}

fn observed_only_nobody_is_refused(driver: Driver) {
    let origin = Origin::start();
    let gateway =
        Gateway::start(driver, &[gated(free_address(), origin.addr, json!({"fc_mode": "observe"}))]);
    let mut clients: Vec<Client> = (0..3).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| client.send(&ask("r")));
    let mut engines: Vec<OriginConn> = (0..3).map(|_| origin.accept()).collect();
    engines.iter_mut().for_each(|engine| drop(engine.request()));
    assert_eq!(effective(&gateway, "inflight"), 3);
    assert_eq!(metric(&gateway, "reason=\"admission_capacity\""), 2, "it tells what it would have refused");
    for (client, engine) in clients.iter_mut().zip(&mut engines) {
        engine.answer("done");
        assert_eq!(client.reply().status, 200);
    }
}

/// An answer that is half out when maintenance begins, and ends in it; then an engine of two is taken out of service.
fn maintenance_and_drained_hosts_cut_nothing(driver: Driver) {
    let (one, other) = (Origin::start(), Origin::start());
    let members = json!({"fc_mode": "enforce", "fc_max_outstanding": 8, "sel": 0});
    let gateway = Gateway::start_with(
        driver,
        &[rule_with(free_address(), &[one.addr, other.addr], members)],
        &["--shards", "1"],
    );
    let mut runs = gateway.client();
    runs.send(&ask("r0"));
    let mut engine = one.accept();
    engine.request();
    engine.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
    let told = |method, path: &str, body: Value| {
        gateway.admin(method, &format!("/netlox/v1/{path}"), &body.to_string()).status
    };
    assert_eq!(told("PUT", "maintenance", json!({"enabled": true})), 200);
    let refused = gateway.client().ask(&ask("r1"));
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "gateway_draining"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(told("POST", "config/loadbalancer", json!({})), 503, "rules stay as they are");
    let ready = gateway.admin("GET", "/netlox/v1/status/ready", "");
    assert_eq!((ready.status, &ready.json()["in_flight_requests"]), (503, &json!(1)));
    engine.say("k");
    assert_eq!(runs.reply().status, 200, "what ran ends");
    assert_eq!(told("PUT", "maintenance", json!({"enabled": false})), 200);

    let host = json!({"hostName": one.addr.to_string(), "state": "red"});
    assert_eq!(told("POST", "config/endpointhoststate", host), 200);
    for _ in 0..3 {
        let mut client = gateway.client();
        client.send(&ask("r2"));
        let mut engine = other.accept();
        engine.request();
        engine.say(LAST);
        assert_eq!(client.reply().status, 200);
    }
    assert!(one.try_accept().is_none(), "it gets nothing");
}

/// One prefill engine that may have one request, one place to wait, for a second.
fn the_older_variables_hold_pairs_back(driver: Driver) {
    let (prefill, decode) = (Origin::start(), Origin::start());
    let mut rule = rule_with(
        free_address(),
        &[prefill.addr, decode.addr],
        json!({"pd_disagg_mode": true, "explain_header": "off"}),
    );
    rule["endpoints"][0]["ep_role"] = 1.into();
    rule["endpoints"][1]["ep_role"] = 2.into();
    let variables = [
        ("LLB_PD_MAX_INFLIGHT_PER_EP", "1"),
        ("LLB_PD_QUEUE_DEPTH_PER_EP", "1"),
        ("LLB_PD_MAX_PARK_SEC", "1"),
    ];
    let gateway = Gateway::start_in(driver, &[rule], &["--shards", "1"], &variables);
    let mut first = gateway.client();
    first.send(&ask("r0"));
    let mut engine = prefill.accept();
    engine.request();
    let mut waits = sends(&gateway, "r1", 1);
    let overloaded = gateway.client().ask(&ask("r2"));
    assert_eq!((overloaded.status, overloaded.error_code().as_str()), (429, "pd_overloaded"));
    assert_eq!(overloaded.header("retry-after"), Some("1"));
    let late = waits.reply();
    assert_eq!((late.status, late.error_code().as_str()), (504, "pd_admission_park_timeout"));
    // Engines are asked for their load all the while.
    for mut heard in [prefill, decode].iter().flat_map(Origin::try_accept) {
        let request = heard.try_request();
        assert!(request.is_none_or(|request| request.lines[0].starts_with("GET /metrics")));
    }
}
