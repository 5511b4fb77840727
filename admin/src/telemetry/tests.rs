//! The list of scrapers over tables, what answers come to, and questions to a real socket.

use super::*;
use crate::fake::body;
use serde_json::json;
use warmpath_core::engine::telemetry::Load;
use warmpath_core::environment::Environment;
use warmpath_core::rule::Rule;
use warmpath_core::rule::body::parse;
use warmpath_core::shared::LOAD_STALE;

fn rule(name: &str, port: u16, selector: u64) -> Rule {
    let mut given = body(name, port);
    given["serviceArguments"]["sel"] = json!(selector);
    parse(&given, &Environment::default(), || name.into()).expect("a rule")
}

fn table(rules: Vec<Rule>, before: &Table) -> Table {
    Table::next(before, rules, &mut 0, 0)
}

const PAGE: &[u8] = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 4\n";

#[test]
fn an_endpoint_is_asked_once_however_many_rules_need_it() {
    let mut scrapers = Scrapers::default();
    let one = table(vec![rule("a", 1, 9), rule("b", 2, 9), rule("c", 3, 0)], &Table::default());
    let fresh = scrapers.follow(&one);
    assert_eq!(fresh.len(), 1);
    let (state, telemetry) = scrapers.work(fresh[0]).expect("work");
    assert_eq!((state.address(), telemetry.path), (([127, 0, 0, 1], 8000).into(), "/metrics"));
    let fewer = table(vec![rule("b", 2, 9)], &one);
    assert_eq!(scrapers.follow(&fewer), Vec::<u64>::new(), "the scraper goes on");
    let none = table(vec![rule("b", 2, 0)], &fewer);
    assert_eq!(scrapers.follow(&none), Vec::<u64>::new());
    assert!(scrapers.work(fresh[0]).is_none(), "no rule needs it");
    let again = table(vec![rule("b", 2, 9)], &none);
    assert_ne!(scrapers.follow(&again), fresh);
}

#[test]
fn samples_are_written_and_all_else_is_counted() {
    let mut scrapers = Scrapers::default();
    let table = table(vec![rule("a", 1, 9)], &Table::default());
    let number = scrapers.follow(&table)[0];
    let state = scrapers.work(number).expect("work").0;
    for answer in [Some((200, PAGE)), None, Some((404, PAGE)), Some((200, b"<html>".as_slice())), None] {
        scrapers.took(number, answer, 1_000);
    }
    assert_eq!(scrapers.counts().map(|(_, count)| count), [1, 2, 1, 1]);
    let load = Load { running: 3, waiting: 4, ..Load::default() };
    assert_eq!(state.load().told(1_000, LOAD_STALE), Some(load), "a failure takes nothing back");
    scrapers.took(number + 1, None, 1_000);
    assert_eq!(scrapers.counts().map(|(_, count)| count), [1, 2, 1, 1], "nobody asked that");
}

/// A page over a real socket, again and again, until the rule is gone.
#[test]
fn endpoints_are_asked_over_http() {
    use crate::fake::{FakePlane, outside};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::rc::Rc;
    use tokio::sync::watch;

    let engine = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = engine.local_addr().expect("an address").port();
    let served = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for stream in engine.incoming().take(2) {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 1024];
            let length = stream.read(&mut head).expect("a request");
            heads.push(String::from_utf8_lossy(&head[..length]).into_owned());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PAGE.len());
            stream.write_all(&[head.as_bytes(), PAGE].concat()).expect("an answer");
        }
        heads
    });
    let mut given = body("a", 1);
    given["serviceArguments"]["sel"] = json!(9);
    given["endpoints"][0]["targetPort"] = json!(port);
    let rule = parse(&given, &Environment::default(), || "a".into()).expect("a rule");
    let first = Arc::new(table(vec![rule], &Table::default()));
    let state = first.services().next().expect("a service").endpoints[0].clone();
    let scrapers = run::SharedScrapers::default();
    let tasks = tokio::task::LocalSet::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let heads = tasks.block_on(&runtime, async {
        let tables = watch::Sender::new(first);
        let outside = outside(&FakePlane::new());
        tokio::task::spawn_local(run::follow(tables.subscribe(), Rc::clone(&scrapers), outside, 1_000_000));
        tokio::task::spawn_blocking(|| served.join().expect("two questions")).await.expect("its end")
    });
    assert!(heads.iter().all(|head| head.starts_with("GET /metrics HTTP/1.1\r\n")), "{heads:?}");
    assert!(state.load().told(0, u64::MAX).is_some_and(|load| load.waiting == 4));
}
