//! The verdict over rows of results, the list of probers over tables, and probes of real sockets.

use super::*;
use crate::fake::body;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::parse;

fn rule(name: &str, port: u16, probe: Value) -> warmpath_core::rule::Rule {
    let mut given = body(name, port);
    let arguments = given["serviceArguments"].as_object_mut().unwrap();
    arguments.extend(probe.as_object().unwrap().clone());
    parse(&given, &Environment::default(), || name.into()).unwrap()
}

fn table(rules: Vec<warmpath_core::rule::Rule>, before: &Table) -> Table {
    Table::next(before, rules, &mut 0, 0)
}

fn tcp(retries: u32) -> Value {
    json!({"monitor": true, "probetype": "tcp", "probeTimeout": 2, "probeRetries": retries})
}

/// A row of results and the verdict after each: `+` healthy, `-` not.
fn verdicts(row: &str, retries: u32) -> String {
    let mut verdict = Verdict::default();
    let mut word = |healthy| {
        verdict.take(healthy, retries);
        if verdict.down { 'd' } else { 'u' }
    };
    row.chars().map(|c| word(c == '+')).collect()
}

#[test]
fn a_row_of_failures_brings_down_and_two_successes_bring_back() {
    assert_eq!(verdicts("---++", 3), "uuddu");
    assert_eq!(verdicts("--+--+---", 3), "uuuuuuuud");
    assert_eq!(verdicts("--+-+-++", 2), "udddddd".to_string() + "u");
    assert_eq!(verdicts("-", 0), "d");
}

#[test]
fn rules_that_probe_alike_share_a_prober_at_the_keenest_pace() {
    let mut probers = Probers::default();
    let slow = json!({"monitor": true, "probetype": "tcp", "probeTimeout": 9, "probeRetries": 7});
    let both = table(vec![rule("a", 1, tcp(3)), rule("b", 2, slow)], &Table::default());
    let fresh = probers.follow(&both);
    assert_eq!(fresh.len(), 1);
    let (target, pace) = probers.work(fresh[0]).unwrap();
    assert_eq!(
        (target.at, pace),
        (([127, 0, 0, 1], 8000).into(), Pace { timeout: 2_000_000_000, retries: 3 })
    );
    let same = table(vec![rule("a", 1, tcp(3))], &both);
    assert_eq!(probers.follow(&same), Vec::<u64>::new());
}

#[test]
fn an_endpoint_is_down_while_any_of_its_probers_says_so_and_up_without_probers() {
    let mut probers = Probers::default();
    let http = json!({"monitor": true, "probetype": "http", "probereq": "/health", "probeRetries": 1, "probeTimeout": 1});
    let first = table(vec![rule("a", 1, tcp(1)), rule("b", 2, http)], &Table::default());
    let fresh = probers.follow(&first);
    let state = first.vips[0].services[0].endpoints[0].clone();
    assert!(probers.took(fresh[1], Err("500".into()), 7));
    assert!(!probers.took(fresh[0], Ok(()), 7));
    assert!(state.probed_down());
    assert!(disbelieved(&first.vips[0].services[0]));
    assert_eq!(warnings(&first).len(), 2);
    let second = table(vec![rule("a", 1, tcp(1))], &first);
    probers.follow(&second);
    assert!(!state.probed_down(), "the prober that found it down is gone");
    probers.took(fresh[0], Err("refused".into()), 7);
    assert!(state.probed_down());
    probers.follow(&table(vec![], &second));
    assert!(!state.probed_down());
    assert!(probers.work(fresh[0]).is_none());
    assert!(!probers.took(fresh[0], Ok(()), 7), "a late result of a prober that is gone");
}

/// Asks a server that sends `answer` to whoever connects, closes after it and is then gone.
fn asked(kind: ProbeKind, answer: &'static str) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        let read = stream.read(&mut head).unwrap_or(0);
        let _ = stream.write_all(answer.as_bytes());
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    let result = ask_now(&Target { endpoint: at, at, kind: kind.clone() });
    let head = server.join().unwrap();
    if let ProbeKind::Http { path, .. } = kind {
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
    }
    result
}

fn ask_now(target: &Target) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(probe::once(target, 30_000_000_000))
}

fn http(contains: &str) -> ProbeKind {
    ProbeKind::Http { path: "/health?x".into(), codes: vec![(200, 204)], contains: contains.into() }
}

#[test]
fn probes_of_real_sockets_tell_healthy_from_not() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready";
    assert_eq!(asked(ProbeKind::Tcp, ""), Ok(()));
    assert_eq!(asked(http(""), ok), Ok(()));
    assert_eq!(asked(http("read"), ok), Ok(()));
    assert!(asked(http("busy"), ok).unwrap_err().contains("without the expected text"));
    let sick = "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(asked(http(""), sick).unwrap_err(), "/health?x answers 503");
    assert!(asked(http(""), "").unwrap_err().starts_with("no HTTP answer"));
}

#[test]
fn a_closed_port_is_not_healthy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let fault = ask_now(&Target { endpoint: at, at, kind: ProbeKind::Tcp }).unwrap_err();
    assert!(fault.starts_with("can't connect"), "{fault}");
}
