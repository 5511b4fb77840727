//! Slow clients against the deadlines of a body and of an unread answer.

use crate::harness::*;
use std::io::Write;
use std::thread;
use std::time::Duration;

/// Bodies that trickle in are cut, at the least rate that the gateway asks for.
fn a_slow_body(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
    let mut whole = gateway.client();
    whole.send(&[&head[..], b"Content-Length: 1000000\r\n\r\n{"].concat());
    let mut chunked = gateway.client();
    chunked.send(&[&head[..], b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"].concat());
    let mut streamed = gateway.client();
    streamed.send(&[&head[..], b"Content-Length: 100000000\r\n\r\n{"].concat());
    while gateway.count("slow_clients") < 2 {
        let _ = whole.stream.write_all(b" ");
        let _ = chunked.stream.write_all(b"1\r\n \r\n");
        thread::sleep(Duration::from_millis(500));
    }
    for client in [&mut whole, &mut chunked, &mut streamed] {
        let reply = client.reply();
        assert_eq!((reply.status, reply.error_code().as_str()), (408, "body_timeout"));
        client.expect_end();
    }
    assert_eq!(engine.stats().executions.total, 0);
    assert_eq!(gateway.client().ask(&get("/health", &[])).status, 200);
}

/// An answer that nobody reads is given up, and its engine is freed.
fn an_unread_answer(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.say(format!("{SEPARATE_HEAD}Content-Length: {}\r\n\r\n", 1 << 30));
    engine.wire.stream.set_write_timeout(Some(Duration::from_secs(600))).unwrap();
    let block = vec![b'x'; 1 << 20];
    while engine.wire.stream.write_all(&block).is_ok() {}
    assert_eq!(gateway.count("slow_clients"), 1);
    wait_until("nothing runs", || gateway.sum("active") == 0 && gateway.sum("clients") == 0);
}

#[test]
#[ignore = "waits for deadlines of half a minute"]
fn slow_bodies_are_cut() {
    for driver in [Driver::Uring, Driver::Epoll] {
        driver.run(a_slow_body);
    }
}

#[test]
#[ignore = "waits for a deadline of a minute or more"]
fn unread_answers_are_given_up() {
    for driver in [Driver::Uring, Driver::Epoll] {
        driver.run(an_unread_answer);
    }
}
