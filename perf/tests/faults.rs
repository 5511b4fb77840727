//! Every fault switch of the simulated engine, seen from the other end of a real loopback socket.

mod peer;

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use peer::{Peer, chat, post, until};
use serde_json::json;
use warmpath_perf::engine::faults::{Faults, Health, Stall};
use warmpath_perf::engine::{self, Config, Handle};

const CHAT: &str = "/v1/chat/completions";

fn engine(faults: Faults) -> Handle {
    engine::start(Config { faults, ..Config::default() }).expect("a free port")
}

fn ask(peer: &mut Peer, more: &str) {
    peer.send(post(CHAT, "", &chat("a question", more)).as_bytes());
}

#[test]
fn refuse_closes_the_listener_and_open_connections_can_lift_it() {
    let engine = engine(Faults::default());
    let mut open = Peer::connect(engine.addr);
    assert_eq!(open.post("/sim/faults", r#"{"refuse":true}"#).status, 200);
    let refused = || TcpStream::connect(engine.addr).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
    until("connections are refused", refused);
    assert_eq!(open.get("/health").status, 200, "open connections live on");
    assert_eq!(open.post("/sim/faults", "{}").status, 200);
    until("it listens again", || TcpStream::connect(engine.addr).is_ok());
}

#[test]
fn refuse_for_a_while_ends_by_itself() {
    let engine = engine(Faults { refuse: true, refuse_ms: Some(20), ..Faults::default() });
    until("it listens again", || TcpStream::connect(engine.addr).is_ok());
    assert!(!Peer::connect(engine.addr).get("/sim/faults").json()["refuse"].as_bool().unwrap());
}

#[test]
fn close_mid_stream_cuts_after_the_chosen_event_by_fin_or_reset() {
    for rst in [false, true] {
        let engine = engine(Faults { close_mid_stream_after: Some(3), rst, ..Faults::default() });
        let mut peer = Peer::connect(engine.addr);
        ask(&mut peer, r#","stream":true"#);
        if rst {
            let end = std::iter::repeat_with(|| peer.fill()).find_map(Result::err);
            assert_eq!(end.as_deref(), Some("reset"));
        } else {
            assert_eq!(peer.head().unwrap().0, 200);
            let body = String::from_utf8(peer.rest()).unwrap();
            assert_eq!(body.matches("data: ").count(), 3);
            assert!(!body.contains("[DONE]") && !body.ends_with("0\r\n\r\n"));
        }
        until("it is counted", || engine.stats().faulted == 1);
    }
}

#[test]
fn close_mid_stream_cuts_a_whole_answer_in_its_body() {
    let engine = engine(Faults { close_mid_stream_after: Some(0), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    ask(&mut peer, "");
    assert_eq!(peer.response().unwrap_err(), "closed");
    assert_eq!(engine.stats().faulted, 1);
}

#[test]
fn close_before_response_executes_and_says_nothing() {
    let engine = engine(Faults { close_before_response: true, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    ask(&mut peer, "");
    assert_eq!(peer.rest(), b"");
    let stats = engine.stats();
    assert_eq!((stats.executions.total, stats.faulted, stats.finished), (1, 1, 0));
}

#[test]
fn a_marker_crashes_only_its_own_requests() {
    let engine = engine(Faults { crash_on_marker: Some("boom".into()), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    assert_eq!(peer.post(CHAT, &chat("fine", "")).status, 200);
    peer.send(post(CHAT, "", &chat("boom", "")).as_bytes());
    assert_eq!(peer.rest(), b"");
    assert_eq!(engine.stats().executions.total, 2);
}

#[test]
fn a_stall_before_the_head_ends_when_lifted_or_when_the_client_leaves() {
    let engine = engine(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let mut leaver = Peer::connect(engine.addr);
    ask(&mut leaver, "");
    until("it runs", || engine.stats().running == 1);
    drop(leaver);
    until("it is aborted", || engine.stats().aborted == 1);
    let mut stayer = Peer::connect(engine.addr);
    ask(&mut stayer, "");
    until("it runs", || engine.stats().running == 1);
    stayer.stream.set_nonblocking(true).unwrap();
    assert!(stayer.head().is_err(), "not a byte while stalled");
    stayer.stream.set_nonblocking(false).unwrap();
    engine.set_faults(Faults::default());
    assert_eq!(stayer.response().unwrap().status, 200);
}

#[test]
fn a_stall_mid_stream_shows_one_event_and_goes_on_when_lifted() {
    for more in [r#","stream":true"#, ""] {
        let engine = engine(Faults { stall: Some(Stall::MidStream), ..Faults::default() });
        let mut peer = Peer::connect(engine.addr);
        ask(&mut peer, more);
        let (_, head) = peer.head().unwrap();
        assert_eq!(engine.stats().running, 1, "the answer has begun and has not ended");
        engine.set_faults(Faults::default());
        assert!(head.contains(if more.is_empty() { "content-length" } else { "chunked" }));
        until("it finishes", || engine.stats().finished == 1);
    }
}

#[test]
fn status_fails_every_request_and_fail_next_only_some() {
    let engine = engine(Faults { status: Some(500), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    let statuses = |peer: &mut Peer| [0; 3].map(|_| peer.post(CHAT, &chat("a", "")).status);
    assert_eq!(statuses(&mut peer), [500; 3]);
    assert_eq!(peer.get("/v1/models").status, 200, "only inference fails");
    peer.post("/sim/faults", r#"{"fail_next":2,"status":503}"#);
    assert_eq!(statuses(&mut peer), [503, 503, 200]);
    assert_eq!(peer.get("/sim/faults").json()["fail_next"], 0);
    let stats = engine.stats();
    assert_eq!((stats.executions.total, stats.faulted, stats.finished), (6, 5, 1));
}

#[test]
fn half_a_head_then_the_end() {
    let engine = engine(Faults { half_head: true, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    ask(&mut peer, r#","stream":true"#);
    let bytes = String::from_utf8(peer.rest()).unwrap();
    assert!(bytes.starts_with("HTTP/1.1 200 OK\r\n") && !bytes.contains("\r\n\r\n"), "{bytes:?}");
}

#[test]
fn bad_framing_in_a_stream_and_in_a_whole_answer() {
    let engine = engine(Faults { bad_framing: true, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    ask(&mut peer, r#","stream":true"#);
    assert_eq!(peer.response().unwrap_err(), "chunk size is not a hexadecimal number");
    let mut peer = Peer::connect(engine.addr);
    ask(&mut peer, "");
    let (_, head) = peer.head().unwrap();
    assert_eq!(head.to_lowercase().matches("content-length: ").count(), 2);
    until("both are counted", || engine.stats().faulted == 2);
}

#[test]
fn keep_alive_close_comes_without_notice() {
    let engine = engine(Faults { keepalive_close_after: Some(2), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    for _ in 0..2 {
        let response = peer.post(CHAT, &chat("a", ""));
        assert_eq!((response.status, response.header("connection")), (200, None));
    }
    assert_eq!(peer.fill(), Err("closed".into()));
}

#[test]
fn an_early_response_comes_before_the_body_and_arrives_whole() {
    let engine = engine(Faults { early_response: true, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    peer.send(format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n").as_bytes());
    peer.send(&[b'x'; 1000]);
    let response = peer.response().unwrap();
    assert_eq!((response.status, response.header("connection")), (400, Some("close")));
    assert_eq!(engine.stats().executions.total, 0);
}

#[test]
fn rst_alone_resets_each_request_but_not_the_admin_paths() {
    let engine = engine(Faults { rst: true, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    assert_eq!(peer.get("/sim/faults").json()["rst"], true);
    ask(&mut peer, "");
    assert_eq!(peer.fill(), Err("reset".into()));
    assert_eq!(engine.stats().executions.total, 0);
}

#[test]
fn slow_read_holds_a_large_body_back() {
    let engine = engine(Faults { slow_read: Some(1000), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    peer.stream.set_nonblocking(true).unwrap();
    peer.send(format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n").as_bytes());
    let part = [b'x'; 65536];
    let blocked =
        (0..2000).any(|_| peer.stream.write(&part).is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
    assert!(blocked, "the socket's buffers fill up");
    assert_eq!(engine.stats().executions.total, 0);
}

#[test]
fn slow_read_still_reads_the_whole_body() {
    let engine = engine(Faults { slow_read: Some(20_000), ..Faults::default() });
    assert_eq!(Peer::connect(engine.addr).post(CHAT, &chat(&"a".repeat(1000), "")).status, 200);
}

#[test]
fn health_fails_stalls_and_recovers() {
    let engine = engine(Faults { health: Health::Fail, ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    assert_eq!(peer.get("/health").status, 503);
    assert_eq!(peer.post(CHAT, &chat("a", "")).status, 200, "only health is concerned");
    engine.set_faults(Faults { health: Health::Stall, ..Faults::default() });
    peer.send(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it was seen", || engine.stats().by_path.get("GET /health") == Some(&2));
    engine.set_faults(Faults::default());
    assert_eq!(peer.response().unwrap().status, 200);
}

#[test]
fn a_wrong_switch_is_refused_and_changes_nothing() {
    let engine = engine(Faults { status: Some(500), ..Faults::default() });
    let mut peer = Peer::connect(engine.addr);
    let refusal = peer.post("/sim/faults", r#"{"stal":"before_head"}"#);
    assert_eq!(refusal.status, 400);
    assert!(refusal.json()["error"].as_str().unwrap().contains("stal"));
    assert_eq!(peer.get("/sim/faults").json()["status"], 500);
    assert_eq!(peer.post("/sim/reset", "").json(), json!({}));
    assert_eq!(peer.post(CHAT, &chat("a", "")).status, 200);
}
