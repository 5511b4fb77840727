//! The list of scrapers over tables, what answers come to, and questions to a real socket.

use super::*;
use crate::fake::body;
use serde_json::json;
use warmpath_core::engine::telemetry::Load;
use warmpath_core::environment::Environment;
use warmpath_core::rule::Rule;
use warmpath_core::rule::body::parse;
use warmpath_core::shared::LOAD_STALE;
use warmpath_core::trust::{Answer, Class, Finding};

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
    let asked = scrapers.question(fresh[0], 0, 9).expect("a question");
    assert_eq!((asked.state.address(), asked.telemetry.path), (([127, 0, 0, 1], 8000).into(), "/metrics"));
    assert!(scrapers.question(fresh[0], 8, 18).is_none(), "not due");
    assert_eq!(scrapers.rest(fresh[0], 8), Some(1));
    assert!(scrapers.question(fresh[0], 9, 18).is_some());
    let fewer = table(vec![rule("b", 2, 9)], &one);
    assert_eq!(scrapers.follow(&fewer), Vec::<u64>::new(), "the scraper goes on");
    let none = table(vec![rule("b", 2, 0)], &fewer);
    assert_eq!(scrapers.follow(&none), Vec::<u64>::new());
    assert!(scrapers.rest(fresh[0], 0).is_none(), "no rule needs it");
    let again = table(vec![rule("b", 2, 9)], &none);
    assert_ne!(scrapers.follow(&again), fresh);
}

#[test]
fn samples_are_written_and_all_else_is_counted() {
    let mut scrapers = Scrapers::default();
    let table = table(vec![rule("a", 1, 9)], &Table::default());
    let number = scrapers.follow(&table)[0];
    let asked = scrapers.question(number, 0, 9).expect("a question");
    let state = asked.state.clone();
    for answer in [Some((200, PAGE)), None, Some((404, PAGE)), Some((200, b"<html>".as_slice())), None] {
        scrapers.took(number, &asked, answer, 1_000);
    }
    assert_eq!(scrapers.counts().map(|(_, count)| count), [1, 2, 1, 1]);
    let load = Load { running: 3, waiting: 4, ..Load::default() };
    assert_eq!(state.load().told(1_000, LOAD_STALE), Some(load), "a failure takes nothing back");
    scrapers.took(number + 1, &asked, None, 1_000);
    assert_eq!(scrapers.counts().map(|(_, count)| count), [1, 2, 1, 1], "nobody asked that");
}

/// An exact rule and one that needs the load, over one endpoint: one page for both.
#[test]
fn one_page_tells_load_and_judges_a_window() {
    let mut scrapers = Scrapers::default();
    let mut by_load = body("load", 9101);
    by_load["serviceArguments"]["sel"] = json!(9);
    by_load["endpoints"][0]["targetPort"] = json!(8001);
    let by_load = parse(&by_load, &Environment::default(), || "load".into()).expect("a rule");
    let mut exact = body("exact", 9100);
    let arguments = exact["serviceArguments"].as_object_mut().expect("arguments");
    let terms = [("model_name", json!("m")), ("kvExactMode", json!(3)), ("kvHashAlgo", json!("tokens"))];
    arguments.extend(terms.map(|(name, value)| (name.to_owned(), value)));
    exact["endpoints"][0]["targetPort"] = json!(8001);
    let exact = parse(&exact, &Environment::default(), || "exact".into()).expect("a rule");
    let table = table(vec![exact, by_load], &Table::default());
    let number = scrapers.follow(&table)[0];
    let service = table.services().find(|service| service.exact.is_some()).expect("a service");
    let trust = service.exact.as_ref().expect("exact").trust[0].clone();
    let state = service.endpoints[0].clone();
    let page = |queries: u64, hits: u64| {
        format!(
            "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n\
             vllm:prefix_cache_queries_total {queries}\nvllm:prefix_cache_hits_total {hits}\n"
        )
    };
    let untold = |count: u64| {
        let predicted = Answer {
            predicted: 64,
            reach: 64,
            promised: 64,
            unit: 16,
            is_all_known: true,
            ..Answer::default()
        };
        (0..count).for_each(|_| trust.was_untold(Class::default(), 100, &predicted));
    };
    let mut ask = |now: Nanos, page: String| {
        let asked = scrapers.question(number, now, now + 100)?;
        scrapers.took(number, &asked, Some((200, page.as_bytes())), now);
        Some(asked.of_load)
    };
    assert_eq!(ask(0, page(1_000, 0)), Some(true), "the load is due");
    assert!(state.load().told(0, LOAD_STALE).is_some());
    assert_eq!(ask(1, page(0, 0)), None, "nothing is");
    untold(1);
    assert_eq!(ask(2, page(1_100, 64)), Some(false), "news for the counters");
    assert_eq!(trust.windows().0, 1, "one window");
    untold(2);
    assert_eq!(ask(100, page(1_300, 192)), Some(true), "both at once");
    assert_eq!((trust.windows().0, trust.symptoms().count(|_: Class| true, Finding::Agrees)), (2, 2));
    untold(1);
    assert!(state.reserve(9));
    assert_eq!(ask(150, page(1_400, 256)), None, "a request is in flight");
    assert_eq!(scrapers.counts()[0].1, 3, "three questions in all");
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
