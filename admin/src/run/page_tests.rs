//! The page and its figures as a client without a browser meets them; in a browser: `tests/browser/run`.

use crate::fake::{FakePlane, Running, body, exchange, request};
use serde_json::json;
use std::net::TcpStream;
use warmpath_core::control::{AnswerCount, Count, ShardReport};

#[test]
fn the_page_and_what_it_asks_for_are_served() {
    let gateway = Running::start(&FakePlane::new());
    let get = |path: &str| {
        exchange(TcpStream::connect(gateway.address).unwrap(), &request("GET", path, "127.0.0.1", ""))
    };
    let page = get("/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("content-type: text/html"), "{page}");
    let linked: Vec<&str> =
        ["href=\"", "src=\""].into_iter().flat_map(|link| page.split(link).skip(1)).collect();
    let linked =
        linked.iter().filter_map(|rest| rest.split('"').next()).filter(|to| !to.starts_with("data:"));
    let linked: Vec<&str> = linked.collect();
    assert_eq!(linked.len(), 2, "a style and a script, and nothing from elsewhere: {linked:?}");
    for path in linked {
        assert!(get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
}

#[test]
fn an_overview_has_the_sums_of_the_shards_and_every_endpoint() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    assert_eq!(gateway.tcp("POST", "/netlox/v1/config/loadbalancer", &body("a", 9001).to_string()).0, 200);
    let number = plane.tables.lock().unwrap().last().unwrap().services().next().unwrap().number;
    let report = |shard: usize, endpoint: u16| ShardReport {
        shard,
        clients: 2,
        counts: vec![(Count::Requests, 7)],
        answers: vec![AnswerCount { service: number, endpoint, class: 2, count: 5 }],
        ..ShardReport::default()
    };
    *plane.reports.lock().unwrap() = vec![report(0, 0), report(1, 0), report(2, u16::MAX)];
    let (status, now) = gateway.tcp("GET", "/netlox/v1/status/overview", "");
    assert_eq!(
        (status, &now["requests"], &now["clients"], &now["shards"]),
        (200, &json!(21), &json!(6), &json!(3))
    );
    let rule = &now["rules"][0];
    assert_eq!((&rule["name"], &rule["port"], &rule["gate"]), (&json!("a"), &json!(9001), &json!(null)));
    assert_eq!(rule["own_answers"], json!({"2xx": 5}));
    let endpoint = &rule["endpoints"][0];
    assert_eq!((&endpoint["endpoint"], &endpoint["available"]), (&json!("127.0.0.1:8000"), &json!(true)));
    assert_eq!((&endpoint["answers"], &endpoint["load"]), (&json!({"2xx": 10}), &json!(null)));
}
