//! Breakers of real endpoints: opened by what requests meet, seen in status, metrics and log.

use crate::harness::*;
use serde_json::json;
use warmpath_perf::engine::faults::Faults;

on_both_drivers!(an_engine_that_fails_is_left_alone, nobody_waits_for_the_only_engine_that_fails);

fn breaker_of(gateway: &Gateway, endpoint: usize) -> String {
    let port = gateway.vip.port();
    let path =
        format!("/netlox/v1/config/loadbalancer/externalipaddress/127.0.0.1/port/{port}/protocol/tcp/status");
    let status = gateway.admin("GET", &path, "").json();
    status["endpoints"][endpoint]["breaker"].as_str().unwrap_or("none").to_owned()
}

fn metrics(gateway: &Gateway) -> String {
    String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap()
}

fn an_engine_that_fails_is_left_alone(driver: Driver) {
    let engines = [(); 2].map(|()| engine());
    let addrs = engines.each_ref().map(|e| e.addr);
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &addrs, json!({"cb_enable": true}))]);
    assert_eq!([0, 1].map(|i| breaker_of(&gateway, i)), ["closed", "closed"]);
    engines[0].set_faults(Faults { status: Some(503), ..Faults::default() });
    let mut client = gateway.client();
    let mut ask = || client.ask(&post("/v1/chat/completions", &[], &chat("x"))).status;
    let mut statuses: Vec<u16> = (0..20).map(|_| ask()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[..17], [200; 17], "three found out, the others did not");
    assert_eq!(statuses[17..], [503; 3], "an engine's answer is relayed whatever it says");
    assert_eq!([0, 1].map(|i| breaker_of(&gateway, i)), ["open", "closed"]);
    let page = metrics(&gateway);
    for line in [
        "loxilb_pd_cb_flips_total 1\n".to_owned(),
        "loxilb_pd_cb_proactive_heal_total 0\n".to_owned(),
        format!("warmpath_endpoint_breaker{{endpoint=\"{}\",state=\"open\"}} 1\n", addrs[0]),
        format!("warmpath_endpoint_available{{endpoint=\"{}\"}} 0\n", addrs[0]),
    ] {
        assert!(page.contains(&line), "{line} is not in {page}");
    }
    let told = format!("[CB_ORIGIN] the breaker of endpoint {} ", addrs[0]);
    wait_until("the operator is told", || gateway.log().contains(&told));
}

fn nobody_waits_for_the_only_engine_that_fails(driver: Driver) {
    let engine = engine();
    let body = rule_with(free_address(), &[engine.addr], json!({"cb_enable": true}));
    let gateway =
        Gateway::start_in(driver, &[body], &["--shards", "1"], &[("LLB_PD_ORIGIN_ERR_THRESHOLD", "1")]);
    engine.set_faults(Faults { status: Some(500), ..Faults::default() });
    let mut client = gateway.client();
    assert_eq!(client.ask(&post("/v1/chat/completions", &[], &chat("x"))).status, 500);
    let refused = client.ask(&post("/v1/chat/completions", &[], &chat("x")));
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("no_healthy_backend")));
}
