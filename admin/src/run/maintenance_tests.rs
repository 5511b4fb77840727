//! Maintenance and drained hosts over real sockets, with shards that only remember.

use crate::ctl::tests::ctl;
use crate::fake::{FakePlane, Running, body};
use serde_json::{Value, json};
use std::sync::Arc;
use warmpath_core::control::ShardReport;
use warmpath_core::table::Service;

const LB: &str = "/netlox/v1/config/loadbalancer";
const MAINTENANCE: &str = "/netlox/v1/maintenance";
const HOST_STATE: &str = "/netlox/v1/config/endpointhoststate";

fn service(plane: &FakePlane) -> Arc<Service> {
    plane.tables.lock().unwrap().last().unwrap().vips[0].services[0].clone()
}

fn gated(name: &str, port: u16, mode: &str) -> String {
    let mut rule = body(name, port);
    rule["serviceArguments"]["fc_mode"] = json!(mode);
    rule["serviceArguments"]["fc_max_outstanding"] = json!(4);
    rule.to_string()
}

fn ready(gateway: &Running) -> (u16, Value) {
    gateway.tcp("GET", "/netlox/v1/status/ready", "")
}

#[test]
fn maintenance_refuses_changes_and_gates_close_until_it_is_over() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    assert_eq!(gateway.tcp("POST", LB, &gated("a", 9001, "enforce")).0, 200);
    plane.reports.lock().unwrap()[0] = ShardReport { active: 3, ..ShardReport::default() };
    let begin = json!({"enabled": true, "drain_timeout_seconds": 60}).to_string();
    assert_eq!(gateway.tcp("PUT", MAINTENANCE, &begin), (200, json!({"result": "Success"})));
    assert!(service(&plane).is_closed());
    let (status, error) = gateway.tcp("POST", LB, &gated("b", 9002, "enforce"));
    assert_eq!((status, &error["reason_code"]), (503, &json!("maintenance")));
    assert_eq!(gateway.tcp("DELETE", &format!("{LB}/all"), "").0, 503);
    assert_eq!(plane.names(), ["a"]);
    let shown = gateway.tcp("GET", MAINTENANCE, "").1;
    let expected = json!({
        "maintenance_state": "maintenance", "refusing_new_inference": true, "in_flight_requests": 3,
        "drain_timeout_seconds": 60, "drain_deadline_exceeded": false,
    });
    assert_eq!(shown, expected);
    let (status, shown) = ready(&gateway);
    assert_eq!(
        (status, &shown["ready"], &shown["maintenance_state"]),
        (503, &json!(false), &json!("maintenance"))
    );
    assert!(shown["reasons"][0].as_str().unwrap().starts_with("maintenance: "), "{shown}");
    let page = gateway.tcp("GET", "/netlox/v1/metrics", "").1;
    assert!(page.as_str().unwrap().contains("warmpath_maintenance 1\n"));
    // A snapshot may be restored meanwhile; the rules that come of it obey too.
    let mut snapshot = gateway.tcp("GET", "/netlox/v1/config/snapshot", "").1;
    let text = snapshot.to_string().replace("\"a\"", "\"restored\"");
    snapshot = serde_json::from_str(&text).unwrap();
    let restored = gateway.tcp("POST", "/netlox/v1/config/restore?mode=commit", &snapshot.to_string());
    assert_eq!((restored.0, plane.names()), (200, vec!["restored".to_string()]), "{restored:?}");
    assert!(service(&plane).is_closed());

    assert_eq!(gateway.tcp("PUT", MAINTENANCE, r#"{"enabled": false}"#).0, 200);
    assert!(!service(&plane).is_closed());
    assert_eq!((ready(&gateway).0, gateway.tcp("POST", LB, &gated("b", 9002, "enforce")).0), (200, 200));
}

#[test]
fn a_gate_that_only_observes_stays_open_in_maintenance() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    gateway.tcp("POST", LB, &gated("a", 9001, "observe"));
    gateway.tcp("PUT", MAINTENANCE, r#"{"enabled": true}"#);
    assert!(!service(&plane).is_closed());
    assert_eq!(gateway.tcp("GET", MAINTENANCE, "").1["refusing_new_inference"], json!(false));
}

#[test]
fn a_host_is_drained_in_both_vocabularies_and_stays_so_over_changes() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    gateway.tcp("POST", LB, &gated("a", 9001, "enforce"));
    let set = |host: &str, state: &str| {
        gateway.tcp("POST", HOST_STATE, &json!({"hostName": host, "state": state}).to_string()).0
    };
    let drained = || service(&plane).endpoints[0].is_drained();
    for (host, down, up) in [("127.0.0.1", "red", "green"), ("127.0.0.1:8000", "draining", "active")] {
        assert_eq!((set(host, down), drained()), (200, true));
        gateway.tcp("POST", LB, &gated("another name", 9001, "off"));
        assert!(drained(), "the rule was replaced");
        gateway.tcp("DELETE", &format!("{LB}/all"), "");
        gateway.tcp("POST", LB, &gated("a", 9001, "enforce"));
        assert!(drained(), "the rule is a new one");
        service(&plane).endpoints[0].reserve(9);
        let shown = gateway.tcp("GET", HOST_STATE, "").1;
        assert_eq!(
            (&shown["hosts"][0]["hostName"], &shown["hosts"][0]["in_flight_requests"]),
            (&json!(host), &json!(1))
        );
        let warnings = ready(&gateway).1["warnings"].to_string();
        assert!(warnings.contains(&format!("host {host} is out of service: 1 requests")), "{warnings}");
        let rule = gateway.tcp("GET", &format!("{LB}/all"), "").1;
        assert_eq!(rule["lbAttr"][0]["endpoints"][0]["state"], "draining");
        let page = gateway.tcp("GET", "/netlox/v1/metrics", "").1;
        assert!(
            page.as_str().unwrap().contains("warmpath_endpoint_drained{endpoint=\"127.0.0.1:8000\"} 1\n")
        );
        service(&plane).endpoints[0].settle();
        assert_eq!((set(host, up), drained()), (200, false));
    }
    assert_eq!(gateway.tcp("GET", HOST_STATE, "").1, json!({"hosts": []}));
}

#[test]
fn what_has_no_meaning_is_refused_by_name_and_changes_nothing() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    gateway.tcp("POST", LB, &gated("a", 9001, "enforce"));
    for (method, path, body, status, member) in [
        ("PUT", MAINTENANCE, r#"{"enable": true}"#, 400, "enable"),
        ("PUT", MAINTENANCE, r#"{"enabled": "yes"}"#, 400, "enabled"),
        ("PUT", MAINTENANCE, "{}", 400, "enabled"),
        (
            "PUT",
            MAINTENANCE,
            r#"{"enabled": true, "drain_timeout_seconds": -1}"#,
            400,
            "drain_timeout_seconds",
        ),
        ("POST", HOST_STATE, r#"{"hostName": "engine", "state": "red"}"#, 400, "hostName"),
        ("POST", HOST_STATE, r#"{"hostName": "127.0.0.1", "state": "blue"}"#, 400, "state"),
        ("POST", HOST_STATE, r#"{"hostName": "127.0.0.1"}"#, 400, "state"),
        ("POST", HOST_STATE, r#"{"hostName": "10.9.9.9", "state": "red"}"#, 404, "hostName"),
    ] {
        let (got, error) = gateway.tcp(method, path, body);
        assert_eq!((got, &error["member"]), (status, &json!(member)), "{body}: {error}");
    }
    assert_eq!(gateway.tcp("PUT", MAINTENANCE, "[]").0, 400);
    assert!(!service(&plane).is_closed() && !service(&plane).endpoints[0].is_drained());
}

#[test]
fn ctl_has_verbs_for_both() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    gateway.tcp("POST", LB, &gated("a", 9001, "enforce"));
    assert_eq!(ctl(&gateway, &["maintenance"]).unwrap(), "active: new requests are taken, 0 run\n");
    assert_eq!(
        ctl(&gateway, &["maintenance", "on", "--drain-timeout", "5"]).unwrap(),
        "maintenance begins\n"
    );
    assert_eq!(ctl(&gateway, &["maintenance"]).unwrap(), "maintenance: new requests are refused, 0 run\n");
    assert_eq!(ctl(&gateway, &["ready"]).unwrap_err(), "the gateway is not ready");
    assert_eq!(ctl(&gateway, &["maintenance", "off"]).unwrap(), "maintenance is over\n");
    let drain = ["endpoint", "state", "127.0.0.1:8000", "draining"];
    assert_eq!(ctl(&gateway, &drain).unwrap(), "127.0.0.1:8000 is draining\n");
    assert_eq!(ctl(&gateway, &["endpoint", "state"]).unwrap(), "127.0.0.1:8000: draining, 0 run\n");
    assert!(service(&plane).endpoints[0].is_drained());
    assert_eq!(
        ctl(&gateway, &["endpoint", "state", "127.0.0.1:8000", "active"]).unwrap(),
        "127.0.0.1:8000 is active\n"
    );
    assert_eq!(ctl(&gateway, &["endpoint", "state"]).unwrap(), "all hosts are in service\n");
    assert!(ctl(&gateway, &["endpoint", "state", "10.9.9.9", "draining"]).unwrap_err().contains("10.9.9.9"));
}
