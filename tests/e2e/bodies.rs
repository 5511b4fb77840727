//! Large bodies both ways: every byte, bounded memory, the bound on their size.

use crate::harness::*;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use warmpath_perf::engine::text::Digest;

on_both_drivers!(
    a_large_body_is_streamed_up,
    a_large_chunked_body_is_streamed_up,
    a_large_body_waits_for_a_slow_engine,
    a_large_answer_waits_for_a_slow_reader,
    a_body_over_the_bound_is_refused_by_its_length,
    a_body_over_the_bound_is_refused_as_it_is_counted,
);

const LARGE: usize = 64 << 20;

fn a_large_body_is_streamed_up(driver: Driver) {
    let engine = engine_with(|c| c.sink_over = 1 << 20);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let body = body_of(LARGE);
    let before = gateway.resident();
    for (id, length) in [("past", LARGE), ("held", 16 << 20), ("just past", (16 << 20) + 1)] {
        let body = &body[..length];
        let request = post("/v1/completions", &[&format!("X-Request-Id: {id}")], body);
        assert_eq!(client.ask(&request).status, 200);
        let seen = engine.stats().bodies[id];
        assert_eq!((seen.length, seen.digest), (length as u64, Digest::of(body)), "{id}");
    }
    let grown = gateway.resident_peak().saturating_sub(before);
    assert!(grown < LARGE as u64, "{} MiB more were resident", grown >> 20);
}

fn a_large_chunked_body_is_streamed_up(driver: Driver) {
    let engine = engine_with(|c| c.sink_over = 1 << 20);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let body = body_of(24 << 20);
    let mut sizes = [1usize, 7, 4096, 70_000, 300_000].into_iter().cycle();
    let mut request =
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: c\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    let mut rest = &body[..];
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(sizes.next().unwrap().min(rest.len()));
        request.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
        rest = after;
    }
    request.extend_from_slice(b"0\r\n\r\n");
    // A second request right behind must begin where the first ends.
    request.extend_from_slice(&post("/v1/chat/completions", &["X-Request-Id: d"], &chat("behind")));
    assert_eq!(client.ask(&request).status, 200);
    let seen = engine.stats().bodies["c"];
    assert_eq!((seen.length, seen.digest), (body.len() as u64, Digest::of(&body)));
    assert_eq!(client.reply().status, 200);
    assert_eq!(engine.stats().bodies["d"].length, chat("behind").len() as u64);
}

fn a_large_answer_waits_for_a_slow_reader(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let body = body_of(LARGE);
    let want = Digest::of(&body);
    let before = gateway.resident();
    let (sent, whole) = mpsc::channel();
    let engine = thread::spawn(move || {
        let mut engine = origin.accept();
        engine.request();
        engine.say(format!("{SEPARATE_HEAD}Content-Length: {}\r\n\r\n", body.len()));
        for part in body.chunks(1 << 20) {
            engine.say(part);
        }
        sent.send(()).unwrap();
        engine
    });
    // Until the client reads, the gateway has to push back on the engine.
    wait_until("the engine is held back", || gateway.count("backpressure") > 0);
    assert!(whole.recv_timeout(Duration::from_millis(300)).is_err(), "64 MiB vanished into the gateway");
    let reply = client.reply();
    assert!(reply.whole && reply.body.len() == LARGE);
    assert_eq!(Digest::of(&reply.body), want);
    let grown = gateway.resident_peak().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB more were resident", grown >> 20);
    engine.join().unwrap();
}

fn a_body_over_the_bound_is_refused_by_its_length(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 268435457\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.error_code().as_str()), (413, "body_too_large"));
    assert_eq!(reply.header("connection"), Some("close"));
    client.expect_end();
    assert_eq!(engine.stats().accepted, 0);
}

fn a_body_over_the_bound_is_refused_as_it_is_counted(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    let engine = thread::spawn(move || {
        let mut engine = origin.accept();
        assert_eq!(engine.head().unwrap().all("transfer-encoding"), ["chunked"]);
        let mut bytes = engine.wire.ahead.len() as u64;
        engine.wire.ahead.clear();
        while engine.wire.more().unwrap() {
            bytes += engine.wire.ahead.len() as u64;
            let ended = engine.wire.ahead.ends_with(b"\r\n0\r\n\r\n");
            assert!(!ended, "the body was ended as if it were whole");
            engine.wire.ahead.clear();
        }
        bytes
    });
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut chunk = b"100000\r\n".to_vec();
    chunk.extend_from_slice(&vec![b'x'; 1 << 20]);
    chunk.extend_from_slice(b"\r\n");
    for _ in 0..256 {
        client.send(&chunk);
    }
    client.send(b"1\r\nx\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.error_code().as_str()), (413, "body_too_large"));
    client.expect_end();
    assert!(engine.join().unwrap() <= (256 << 20) + (2 << 20));
    let grown = gateway.resident_peak();
    assert!(grown < 512 << 20, "{} MiB were resident", grown >> 20);
}

fn a_large_body_waits_for_a_slow_engine(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    let before = gateway.resident();
    let body = body_of(LARGE);
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n").as_bytes());
    let mut engine = origin.accept();
    engine.head().unwrap();
    client.stream.set_nonblocking(true).unwrap();
    let (mut sent, mut idle) = (0, 0);
    while idle < 100 && sent < LARGE {
        match client.stream.write(&body[sent..]) {
            Ok(wrote) => (sent, idle) = (sent + wrote, 0),
            Err(_) => {
                idle += 1;
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
    assert!(sent < LARGE, "the whole body vanished into the gateway");
    let grown = gateway.resident_peak().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB more were resident", grown >> 20);
    client.stream.set_nonblocking(false).unwrap();
    let mut digest = Digest::default();
    thread::scope(|scope| {
        let (wire, body) = (&client.stream, &body);
        scope.spawn(move || (&*wire).write_all(&body[sent..]).unwrap());
        let mut left = LARGE;
        loop {
            digest.update(&engine.wire.ahead);
            left -= engine.wire.ahead.len();
            engine.wire.ahead.clear();
            if left == 0 || !engine.wire.more().unwrap() {
                return;
            }
        }
    });
    assert_eq!(digest.value(), Digest::of(&body));
    engine.answer("got it");
    assert_eq!(client.reply().body, b"got it");
}
