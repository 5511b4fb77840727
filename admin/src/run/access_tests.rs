//! Who is let in over TCP, and that nothing secret comes out again.

use crate::access::fresh;
use crate::disk::RealDisk;
use crate::fake::{FakePlane, Running, body, exchange, options, outside, request};
use crate::routes::routes;
use serde_json::json;
use std::net::TcpStream;
use std::sync::Arc;
use warmpath_core::environment::Environment;

#[test]
fn an_address_that_others_reach_is_served_to_those_with_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let (token, line) = fresh("ops").unwrap();
    let mut options = options(folder.path());
    options.admin = ([0, 0, 0, 0], 0).into();
    options.admin_tokens = Some(folder.path().join("tokens"));
    std::fs::write(folder.path().join("tokens"), line).unwrap();
    let gateway = Running::with(options, &FakePlane::new());
    let ask = |headers: &str| {
        let to = std::net::SocketAddr::new([127, 0, 0, 1].into(), gateway.address.port());
        let plain = request("GET", "/netlox/v1/config/loadbalancer/all", "gateway.example", "");
        let request = plain.replacen("Connection", &format!("{headers}Connection"), 1);
        exchange(TcpStream::connect(to).unwrap(), &request)
    };
    let refused = ask("");
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Bearer"),
        "{refused}"
    );
    assert!(refused.contains("\"reason_code\":\"invalid_token\""), "{refused}");
    assert!(ask("Authorization: Bearer wpt_0\r\n").starts_with("HTTP/1.1 401 "));
    assert!(ask(&format!("Authorization: Bearer {token}\r\n")).starts_with("HTTP/1.1 200 "));
    assert_eq!(gateway.unix("GET", "/netlox/v1", "").0, 200, "the socket asks for none");
}

/// Words that stand for secrets.
const CANARIES: [&str; 4] = ["canary-seed-0123", "canary-key-4567", "canary-unknown-89", "canary-token-ab"];

#[test]
fn no_secret_comes_out_of_any_path() {
    let folder = tempfile::tempdir().unwrap();
    let [seed, key, unknown, token] = CANARIES;
    let mut outside = outside(&FakePlane::new());
    outside.environment =
        Arc::new(Environment { none_hash_seed: Some(seed.into()), ..Environment::default() });
    let gateway = Running::outside(Box::new(RealDisk), options(folder.path()), outside);
    let lb = "/netlox/v1/config/loadbalancer";
    let mut rule = body("a", 9001);
    rule["serviceArguments"]["id"] = json!("a");
    rule["serviceArguments"]["kvExactMode"] = json!(3);
    assert_eq!(gateway.tcp("POST", lb, &rule.to_string()).0, 200);
    let mut told = String::new();
    for (member, value) in [
        ("mtls_backend", json!({"client_key_data": key})),
        ("mtls_frontend", json!(key)),
        ("api_token", json!(unknown)),
    ] {
        let mut wrong = body("b", 9002);
        wrong["serviceArguments"][member] = value;
        let (status, error) = gateway.tcp("POST", lb, &wrong.to_string());
        assert!((400..500).contains(&status), "{error}");
        told += &error.to_string();
    }
    let values =
        [("{ip}", "127.0.0.1"), ("{port}", "9001"), ("{protocol}", "tcp"), ("{id}", "a"), ("{name}", "a")];
    let mut asked = 0;
    for route in routes().filter(|route| route.method == "GET") {
        let path =
            values.iter().fold(route.path.to_string(), |path, (name, value)| path.replace(name, value));
        let ask = request("GET", &path, "127.0.0.1", "");
        let ask = ask.replacen("Connection", &format!("Authorization: Bearer {token}\r\nConnection"), 1);
        told += &exchange(TcpStream::connect(gateway.address).unwrap(), &ask);
        asked += 1;
    }
    assert!(asked > 20 && told.contains("sha256_cbor"), "the exact rule is read back");
    for canary in CANARIES {
        assert!(!told.contains(canary), "{canary} came out");
    }
}
