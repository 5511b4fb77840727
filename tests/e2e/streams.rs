//! Event streams: each event at once, and an end that the client can tell from a whole answer.

use crate::harness::*;
use serde_json::{Value, json};
use warmpath_perf::engine::faults::{Faults, Stall};

on_both_drivers!(
    each_event_arrives_before_the_next_is_sent,
    a_stream_without_framing_flows_too,
    an_engine_that_dies_between_events_ends_the_stream_with_an_error,
    an_engine_that_dies_within_an_event_leaves_it_cut,
    broken_framing_never_looks_like_a_whole_stream,
    a_whole_answer_cut_short_stays_short,
    a_silent_engine_ends_the_stream_with_an_error,
    a_stream_ends_when_its_time_is_over,
    a_silent_stream_may_last_in_sse_mode,
);

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn code_of(event: &str) -> Value {
    let json: Value = serde_json::from_str(event).unwrap();
    assert!(json["error"]["message"].is_string() && json["error"]["type"].is_string(), "{json}");
    json["error"]["code"].clone()
}

fn each_event_arrives_before_the_next_is_sent(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
    let mut engine = origin.accept();
    engine.request();
    engine.say(format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n"));
    let head = client.try_head().unwrap();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    for event in 0..50 {
        let data = format!("data: {{\"event\":{event}}}\n\n");
        engine.say(chunk(&data));
        assert_eq!(client.chunk().unwrap().unwrap().0, data.as_bytes());
    }
    engine.say("0\r\n\r\n");
    assert_eq!(client.chunk().unwrap().unwrap().0, b"");
    client.send(&get("/", &[]));
    engine.request();
    engine.answer("next");
    assert_eq!(client.reply().body, b"next");
}

fn a_stream_without_framing_flows_too(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
    let mut engine = origin.accept();
    engine.request();
    engine.say(format!("{HEAD}\r\n"));
    assert_eq!(client.try_head().unwrap().header("transfer-encoding"), Some("chunked"));
    for event in 0..20 {
        let data = format!("data: {event}\n\n");
        engine.say(&data);
        assert_eq!(client.chunk().unwrap().unwrap().0, data.as_bytes());
    }
    drop(engine);
    assert_eq!(client.chunk().unwrap().unwrap().0, b"");
}

fn an_engine_that_dies_between_events_ends_the_stream_with_an_error(driver: Driver) {
    for rst in [false, true] {
        let faults = Faults { close_mid_stream_after: Some(3), rst, ..Faults::default() };
        let engine = engine_with(|c| c.faults = faults);
        let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
        let mut client = gateway.client();
        let reply = client.ask(&post("/v1/chat/completions", &[], &chat_stream("x", 50)));
        let events = reply.events();
        assert!(reply.status == 200 && reply.whole, "rst {rst}: {events:?}");
        // A reset may overtake events that the gateway had not read yet; what came is in order.
        assert!(if rst { events.len() <= 4 } else { events.len() == 4 }, "rst {rst}: {events:?}");
        assert_eq!(code_of(events.last().unwrap()), "stream_died");
        assert_eq!(engine.stats().executions.total, 1);
        // The stream ended as HTTP ends one: the connection serves the next request.
        engine.set_faults(Faults::default());
        let reply = client.ask(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
        assert_eq!(reply.events().last().unwrap(), "[DONE]");
    }
}

/// Whole events, then part of one: within a chunk, in chunks of its own, without framing.
fn an_engine_that_dies_within_an_event_leaves_it_cut(driver: Driver) {
    let whole = chunk("data: 1\n\n");
    let in_chunks = "Transfer-Encoding: chunked\r\n";
    let parts = [
        (in_chunks, "10\r\ndata: 2".to_owned(), ""),
        (in_chunks, chunk("data: 2"), "data: 2"),
        (in_chunks, chunk("data: 2\n"), "data: 2\n"),
        (in_chunks, chunk("data: 2\r") + &chunk("\n"), "data: 2\r\n"),
        ("", "data: 2\n".into(), "data: 2\n"),
        ("Content-Length: 99\r\n", "data: 2\n".into(), "data: 2\n"),
    ];
    for (framing, part, seen) in parts {
        let origin = Origin::start();
        let rule = rule_with(free_address(), &[origin.addr], json!({"timeoutMemberData": 300}));
        let gateway = Gateway::start(driver, &[rule]);
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
        let mut engine = origin.accept();
        engine.request();
        let first = if framing == in_chunks { whole.as_str() } else { "data: 1\n\n" };
        engine.say(format!("{HEAD}{framing}\r\n{first}"));
        engine.say(&part);
        // A stream that only closing ends is whole then: there its silence is what breaks it.
        let silent = framing.is_empty().then_some(engine);
        let reply = client.reply();
        assert!(!reply.whole, "{part:?}: {:?}", String::from_utf8_lossy(&reply.body));
        assert_eq!(String::from_utf8_lossy(&reply.body), format!("data: 1\n\n{seen}"), "{part:?}");
        client.ahead.clear();
        client.expect_end();
        drop(silent);
    }
}

fn broken_framing_never_looks_like_a_whole_stream(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    let event = chunk("data: 1\n\n");
    for version in ["1.1", "1.0"] {
        let ask = format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
        // With the head: no answer was begun, so that it can be refused as a whole.
        let mut client = gateway.client();
        client.send(ask.as_bytes());
        let mut engine = origin.accept();
        engine.request();
        engine.say(format!("{head}{event}zz\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.error_code().as_str()), (502, "bad_answer"));
        // Later: the stream cannot be taken back.
        let mut client = gateway.client();
        client.send(ask.as_bytes());
        let mut engine = origin.accept();
        engine.request();
        engine.say(format!("{head}{event}"));
        assert_eq!(client.try_head().unwrap().status, 200);
        while !client.ahead.windows(9).any(|w| w == b"data: 1\n\n") {
            assert!(client.more().unwrap());
        }
        engine.say("zz\r\ndata: 2\n\n\r\n");
        while !client.ahead.ends_with(b"0\r\n\r\n") && client.more().unwrap() {}
        let text = String::from_utf8(std::mem::take(&mut client.ahead)).unwrap();
        let told = text.contains("\"code\":\"stream_died\"");
        assert!(!text.contains("data: 2") && (told || !text.contains("\r\n0\r\n")), "{text:?}");
        engine.expect_end();
    }
}

fn a_whole_answer_cut_short_stays_short(driver: Driver) {
    let engine = engine_with(|c| c.faults.close_mid_stream_after = Some(0));
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let reply = client.ask(&post("/v1/chat/completions", &[], &chat("x")));
    assert!(reply.status == 200 && !reply.whole, "{}", reply.head);
    assert_eq!(client.ahead.len(), 0);
    let receipts = gateway.admin("GET", "/netlox/v1/receipts", "").json();
    assert_eq!(receipts["receipts"][0]["outcome"], "stream_died");
}

fn a_silent_engine_ends_the_stream_with_an_error(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::MidStream));
    let quick = rule_with(free_address(), &[engine.addr], json!({"timeoutMemberData": 200}));
    let gateway = Gateway::start(driver, &[quick]);
    let mut client = gateway.client();
    let reply = client.ask(&post("/v1/chat/completions", &[], &chat_stream("x", 50)));
    let events = reply.events();
    assert!(reply.status == 200 && reply.whole && events.len() == 2, "{events:?}");
    assert_eq!(code_of(&events[1]), "stream_timeout");
    wait_until("the engine sees the abort", || engine.stats().aborted == 1);
}

fn a_stream_ends_when_its_time_is_over(driver: Driver) {
    let engine = engine_with(|c| c.timing.itl = std::time::Duration::from_millis(20));
    let service = json!({"max_stream_duration_sec": 1, "sse_mode": true});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &[engine.addr], service)]);
    let mut client = gateway.client();
    let reply = client.ask(&post("/v1/chat/completions", &[], &chat_stream("x", 100_000)));
    let events = reply.events();
    assert!(reply.status == 200 && reply.whole && events.len() >= 2, "{events:?}");
    assert_eq!(code_of(events.last().unwrap()), "max_stream_duration_exceeded");
    wait_until("the engine sees the abort", || engine.stats().aborted == 1);
    assert_eq!(engine.stats().finished, 0);
}

fn a_silent_stream_may_last_in_sse_mode(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::MidStream));
    let service = json!({"inactiveTimeOut": 1, "sse_mode": true});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &[engine.addr], service)]);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
    client.try_head().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    engine.set_faults(Faults::default());
    let mut all = Vec::new();
    while let Some((data, _)) = client.chunk().unwrap()
        && !data.is_empty()
    {
        all.extend(data);
    }
    assert!(all.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&all));
}
