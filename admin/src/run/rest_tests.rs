//! The paths of the API over real sockets: what they change, what they answer, and what they refuse.

use crate::fake::{FakePlane, Running, body};
use serde_json::{Value, json};

const LB: &str = "/netlox/v1/config/loadbalancer";
const HOSTS: &str = "/netlox/v1/config/endpoint";

fn at(port: u16) -> String {
    format!("{LB}/externalipaddress/127.0.0.1/port/{port}/protocol/tcp")
}

fn service(gateway: &Running, port: u16) -> Value {
    gateway.tcp("GET", &at(port), "").1["serviceArguments"].clone()
}

#[test]
fn a_patch_changes_what_may_change_one_by_one_and_nothing_else() {
    let gateway = Running::start(&FakePlane::new());
    let patch =
        |members: Value| gateway.tcp("PATCH", &at(9001), &json!({"serviceArguments": members}).to_string());
    assert_eq!(patch(json!({"sel": 4})).0, 404, "a patch creates nothing");
    assert_eq!(gateway.tcp("POST", LB, &body("a", 9001).to_string()).0, 200);
    assert_eq!(patch(json!({"sel": 4, "name": "b"})), (200, json!({"result": "Success"})));
    assert_eq!((&service(&gateway, 9001)["sel"], &service(&gateway, 9001)["name"]), (&json!(4), &json!("b")));
    assert_eq!(patch(json!({"sel": null})).0, 200, "null takes a member away");
    assert_eq!(service(&gateway, 9001)["sel"], 0);
    let (status, error) = patch(json!({"sel": 2, "model_name": "m"}));
    assert_eq!((status, &error["reason_code"]), (400, &json!("not_patchable")));
    assert_eq!(error["member"], "serviceArguments.model_name");
    assert_eq!(patch(json!({"sel": 11})).1["member"], "serviceArguments.sel");
    assert_eq!(service(&gateway, 9001)["sel"], 0, "a refused patch changes nothing");
    let whole = json!({"endpoints": []}).to_string();
    assert_eq!(gateway.tcp("PATCH", &at(9001), &whole).1["member"], "endpoints");
}

#[test]
fn a_rule_is_found_by_the_forms_with_portmax_and_host() {
    let gateway = Running::start(&FakePlane::new());
    let mut rule = body("a", 9001);
    rule["serviceArguments"]["host"] = json!("a.example");
    rule["serviceArguments"]["model_name"] = json!("m");
    assert_eq!(gateway.tcp("POST", LB, &rule.to_string()).0, 200);
    let host = |host: &str, end: u16| {
        let place = "externalipaddress/127.0.0.1/port/9001";
        format!("{LB}/hosturl/{host}/{place}/portmax/{end}/protocol/tcp?model_name=m")
    };
    assert_eq!(gateway.tcp("GET", &host("A.example", 9001), "").0, 200);
    assert_eq!(gateway.tcp("DELETE", &host("b.example", 9001), "").0, 404);
    let (status, error) = gateway.tcp("DELETE", &host("a.example", 9002), "");
    assert_eq!((status, &error["reason_code"]), (404, &json!("no_such_rule")));
    let range = format!("{LB}/externalipaddress/127.0.0.1/port/9001/portmax/0/protocol/tcp?bgp=false");
    assert_eq!(gateway.tcp("DELETE", &range, ""), (200, json!({"result": "Success"})));
    assert_eq!(gateway.tcp("GET", &at(9001), "").0, 404);
}

#[test]
fn endpoints_are_attached_and_detached_and_the_last_takes_the_rule_with_it() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    let with = |oper: u8, ports: &[u16]| {
        let mut rule = body("", 9001);
        rule["serviceArguments"]["oper"] = json!(oper);
        let end = |port: &u16| json!({"endpointIP": "127.0.0.1", "targetPort": port, "weight": 1});
        rule["endpoints"] = ports.iter().map(end).collect();
        gateway.tcp("POST", LB, &rule.to_string())
    };
    let (status, error) = with(2, &[8001]);
    assert_eq!((status, &error["reason_code"]), (404, &json!("no_such_rule")));
    assert!(error["result"].as_str().unwrap().contains("not-exists"), "{error}");
    assert_eq!(gateway.tcp("POST", LB, &body("a", 9001).to_string()).0, 200);
    assert_eq!(with(1, &[8001, 8002]).0, 200);
    let ports = || {
        let rule = gateway.tcp("GET", &at(9001), "").1;
        assert_eq!(
            (&rule["serviceArguments"]["name"], &rule["serviceArguments"]["oper"]),
            (&json!("a"), &json!(null))
        );
        rule["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["targetPort"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(), [8000, 8001, 8002]);
    assert_eq!(with(1, &[8001]).0, 409, "it is there already, with the same content");
    assert_eq!(with(2, &[8000, 8009]).1["reason_code"], "no_such_endpoint");
    assert_eq!(ports(), [8000, 8001, 8002]);
    assert_eq!(with(2, &[8000]).0, 200);
    assert_eq!(ports(), [8001, 8002]);
    assert_eq!(with(2, &[8002, 8001]).0, 200);
    assert!(plane.names().is_empty());
}

#[test]
fn what_is_fixed_of_a_rule_can_not_be_replaced() {
    let gateway = Running::start(&FakePlane::new());
    let mut rule = body("a", 9001);
    let set = |rule: &mut Value, members: Value| {
        rule["serviceArguments"].as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    };
    set(&mut rule, json!({"kvExactMode": 3, "kvHashAlgo": "tokens", "kvExactApiMode": "completions"}));
    let post = |rule: &Value| gateway.tcp("POST", LB, &rule.to_string());
    assert_eq!(post(&rule).0, 200);
    set(&mut rule, json!({"kvExactApiMode": ""}));
    let (status, error) = post(&rule);
    assert_eq!((status, &error["reason_code"]), (409, &json!("api_mode_fixed")));
    assert_eq!((&error["value"], &error["allowed"]), (&json!(""), &json!("completions")));
    assert!(error["result"].as_str().unwrap().contains("cant modify rule kv exact api mode"), "{error}");
    set(&mut rule, json!({"kvExactMode": 0}));
    assert_eq!(post(&rule).0, 200, "without exact routing nothing is fixed");
    set(&mut rule, json!({"kvExactMode": 3}));
    assert_eq!(post(&rule).0, 200);
}

#[test]
fn thresholds_of_0_keep_what_the_rule_has() {
    let gateway = Running::start(&FakePlane::new());
    let rule = |threshold: u8| {
        let mut rule = body("a", 9001);
        let members =
            json!({"pd_disagg_mode": true, "pd_cache_aware_mode": true, "pd_cache_threshold": threshold});
        rule["serviceArguments"].as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let end = |port: u16| json!({"endpointIP": "127.0.0.1", "targetPort": port, "ep_role": port - 8000});
        rule["endpoints"] = json!([end(8001), end(8002)]);
        gateway.tcp("POST", LB, &rule.to_string()).0
    };
    assert_eq!((rule(55), rule(0)), (200, 409), "55 is kept, so that nothing changes");
    assert_eq!(service(&gateway, 9001)["pd_cache_threshold"], 55);
}

#[test]
fn a_probed_host_counts_for_every_rule_that_names_it_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let plane = FakePlane::new();
    let gateway = Running::with(crate::fake::options(folder.path()), &plane);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = json!({"hostName": "127.0.0.1", "name": "h", "probeType": "tcp", "probePort": free,
        "probeDuration": 1, "inactiveReTries": 1});
    assert_eq!(gateway.tcp("POST", LB, &body("a", 9001).to_string()).0, 200);
    assert_eq!(gateway.tcp("POST", HOSTS, &host.to_string()), (200, json!({"result": "Success"})));
    let state = plane.tables.lock().unwrap().last().unwrap().vips[0].services[0].endpoints[0].clone();
    let begun = std::time::Instant::now();
    while !state.probed_down() {
        assert!(begun.elapsed() < crate::fake::PATIENCE, "nobody listens there, and no probe says so");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let list = |gateway: &Running| gateway.tcp("GET", &format!("{HOSTS}/all"), "").1["Attr"].clone();
    assert_eq!(list(&gateway)[0]["currState"], "nok");
    let (status, error) = gateway.tcp("POST", HOSTS, &json!({"hostName": "h"}).to_string());
    assert_eq!((status, &error["member"]), (400, &json!("hostName")));
    drop(gateway);
    let gateway = Running::with(crate::fake::options(folder.path()), &FakePlane::new());
    assert_eq!((&list(&gateway)[0]["name"], &list(&gateway)[0]["probePort"]), (&json!("h"), &json!(free)));
    let gone = format!("{HOSTS}/epipaddress/127.0.0.1?name=h&probe_type=tcp&probe_port={free}");
    assert_eq!(gateway.tcp("DELETE", &gone, "").0, 200);
    assert_eq!(gateway.tcp("DELETE", &gone, "").1["reason_code"], "no_such_host");
    assert_eq!(list(&gateway), json!([]));
}

#[test]
fn switches_are_switched() {
    let gateway = Running::start(&FakePlane::new());
    let (params, metrics) = ("/netlox/v1/config/params", "/netlox/v1/config/metrics");
    assert_eq!(gateway.tcp("GET", params, ""), (200, json!({"logLevel": "info"})));
    assert_eq!(gateway.tcp("POST", params, "{\"logLevel\": \"info\"}").0, 200);
    assert_eq!(gateway.tcp("POST", params, "{\"logLevel\": \"debug\"}").1["member"], "logLevel");
    let served = || gateway.tcp("GET", "/netlox/v1/metrics", "").0;
    assert_eq!((served(), gateway.tcp("DELETE", metrics, "").0, served()), (200, 200, 503));
    assert_eq!((gateway.tcp("POST", metrics, "").0, served()), (200, 200));
    assert_eq!(gateway.tcp("POST", LB, &body("a", 9001).to_string()).0, 200);
    let reset = |port| gateway.tcp("POST", &format!("{}/sockmapreset", at(port)), "");
    assert_eq!(reset(9001), (200, json!({"droppedConnections": 0})));
    assert_eq!(reset(9002).0, 404);
}

/// Paths of the loxilb AI gateway for rules and the gateway itself, and why those that are not served are not.
const DOCUMENTED: &[(&str, &str, &str)] = &[
    ("POST", "config/loadbalancer", ""),
    ("GET", "config/loadbalancer/all", ""),
    ("DELETE", "config/loadbalancer/all", ""),
    ("GET", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp", ""),
    ("PATCH", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp", ""),
    ("DELETE", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp", ""),
    ("DELETE", "config/loadbalancer/externalipaddress/1/port/1/portmax/1/protocol/tcp", ""),
    ("DELETE", "config/loadbalancer/hosturl/1/externalipaddress/1/port/1/protocol/tcp", ""),
    ("DELETE", "config/loadbalancer/hosturl/1/externalipaddress/1/port/1/portmax/1/protocol/tcp", ""),
    ("DELETE", "config/loadbalancer/name/1", ""),
    ("GET", "config/loadbalancer/id/1", ""),
    ("GET", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp/status", ""),
    ("GET", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp/stats", ""),
    ("POST", "config/loadbalancer/externalipaddress/1/port/1/protocol/tcp/sockmapreset", ""),
    ("GET", "config/ai/kv/inventory", ""),
    ("GET", "status/ready", ""),
    ("GET", "status/capabilities", ""),
    ("GET", "diagnostics", ""),
    ("GET", "metrics", ""),
    ("POST", "config/metrics", ""),
    ("DELETE", "config/metrics", ""),
    ("GET", "config/snapshot", ""),
    ("POST", "config/restore", ""),
    ("POST", "config/persist", ""),
    ("GET", "config/params", ""),
    ("POST", "config/params", ""),
    ("POST", "config/endpoint", ""),
    ("GET", "config/endpoint/all", ""),
    ("DELETE", "config/endpoint/epipaddress/1", ""),
    ("POST", "config/gpu/enable", "engines are asked for their load whenever a rule needs it"),
    ("POST", "config/gpu/disable", "likewise"),
    ("GET", "config/gpu/status", "likewise"),
    ("POST", "config/gpu/conversations/cleanup", "sessions lapse by themselves"),
    ("GET", "config/worker/metrics", "load is asked for, not pushed"),
    ("POST", "config/worker/metrics", "likewise"),
];

#[test]
fn every_documented_path_is_served_or_left_out_for_a_reason() {
    for (method, path, reason) in DOCUMENTED {
        let found = crate::routes::find(method, &format!("/netlox/v1/{path}")).is_ok();
        assert_eq!(found, reason.is_empty(), "{method} {path} {reason}");
    }
}
