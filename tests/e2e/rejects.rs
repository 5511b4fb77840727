//! Requests that a proxy must not pass on: each gets its status and the end of its connection, and no engine
//! sees any of it. One case at least for each family of RFC 9112's ways to be misunderstood.

use crate::harness::*;

on_both_drivers!(each_gets_its_status_and_the_end, bad_chunks_are_refused, oversized_heads_are_refused);

const H: &str = "Host: a\r\n";

fn refused(gateway: &Gateway, status: u16, request: &[u8]) {
    let shown = String::from_utf8_lossy(&request[..request.len().min(120)]).into_owned();
    let mut client = gateway.client();
    client.send(request);
    let reply = client.try_reply(false).unwrap_or_else(|e| panic!("{e}: {shown:?}"));
    assert_eq!(reply.status, status, "{shown:?}: {}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.error_code(), "bad_request", "{shown:?}");
    assert_eq!(reply.header("connection"), Some("close"), "{shown:?}");
    client.expect_end();
}

fn each_gets_its_status_and_the_end(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let cases: &[(u16, String)] = &[
        (400, format!("GET / HTTP/1.1\n{H}\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A: b\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A: b\rc\r\n\r\n")),
        (400, format!("\r\n\r\nGET / HTTP/1.1\r\n{H}\r\n")),
        (400, format!("G(T / HTTP/1.1\r\n{H}\r\n")),
        (501, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".into()),
        (501, format!("TRACE / HTTP/1.1\r\n{H}\r\n")),
        (501, format!("{} / HTTP/1.1\r\n{H}\r\n", "M".repeat(100))),
        (400, format!("GET  / HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET /\u{1} HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET /\u{e9} HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET /a#b HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET a HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET http://u@a/ HTTP/1.1\r\n{H}\r\n")),
        (400, format!("GET / HTTX/1.1\r\n{H}\r\n")),
        (505, format!("GET / HTTP/1.2\r\n{H}\r\n")),
        (505, format!("GET / HTTP/2.0\r\n{H}\r\n")),
        (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        (400, format!("GET / HTTP/1.1\r\n {H}\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A B: c\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}: c\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A : c\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A: b\r\n c\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}A: b\0c\r\n\r\n")),
        (400, "GET / HTTP/1.1\r\nA: b\r\n\r\n".into()),
        (400, format!("GET / HTTP/1.1\r\n{H}{H}\r\n")),
        (400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost:\r\n\r\n".into()),
        (400, format!("POST / HTTP/1.1\r\n{H}Content-Length: +1\r\n\r\na")),
        (400, format!("POST / HTTP/1.1\r\n{H}Content-Length: 1, 1\r\n\r\na")),
        (400, format!("POST / HTTP/1.1\r\n{H}Content-Length: 99999999999999999999\r\n\r\na")),
        (400, format!("POST / HTTP/1.1\r\n{H}Content-Length: 1\r\nContent-Length: 1\r\n\r\na")),
        (400, format!("POST / HTTP/1.1\r\n{H}Content-Length: 1\r\ncontent-length: 2\r\n\r\na")),
        (
            400,
            format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
        ),
        (
            400,
            format!("POST / HTTP/1.1\r\n{H}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        (400, format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n")),
        (501, format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n")),
        (400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into()),
        (400, format!("GET / HTTP/1.1\r\n{H}Connection: a b\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}Connection: Host\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{H}Connection: content-length\r\n\r\n")),
        (417, format!("POST / HTTP/1.1\r\n{H}Expect: 200-ok\r\nContent-Length: 1\r\n\r\n")),
    ];
    for (status, request) in cases {
        refused(&gateway, *status, request.as_bytes());
    }
    let stats = engine.stats();
    assert_eq!((stats.accepted, stats.malformed, stats.by_path.len()), (0, 0, 0));
    assert_eq!(gateway.count("malformed"), cases.len() as u64);
    // What came before a bad request on the same connection is served, what comes behind is not.
    let mut client = gateway.client();
    let good = post("/v1/chat/completions", &[], &chat("good"));
    client.send(&[&good[..], b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", &good[..]].concat());
    assert_eq!((client.reply().status, client.reply().status), (200, 400));
    client.expect_end();
    assert_eq!(engine.stats().executions.total, 1);
}

fn bad_chunks_are_refused(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let long = "x".repeat(5000);
    let trailers = format!("0\r\nA: {}\r\n\r\n", "x".repeat(20_000));
    let cases = [
        (400, "\r\n0\r\n\r\n".to_owned()),
        (400, "+1\r\na\r\n0\r\n\r\n".into()),
        (400, " 1\r\na\r\n0\r\n\r\n".into()),
        (400, "0x1\r\na\r\n0\r\n\r\n".into()),
        (400, "1 \r\na\r\n0\r\n\r\n".into()),
        (400, "1g\r\na\r\n0\r\n\r\n".into()),
        (400, "00000000000000001\r\na\r\n0\r\n\r\n".into()),
        (400, "1\na\r\n0\r\n\r\n".into()),
        (400, "1\r\nab\r\n0\r\n\r\n".into()),
        (400, "1\r\na\n0\r\n\r\n".into()),
        (400, format!("1;{long}\r\na\r\n0\r\n\r\n")),
        (400, "1;a=\u{1}\r\na\r\n0\r\n\r\n".into()),
        (400, "0\r\nContent-Length: 5\r\n\r\n".into()),
        (400, "0\r\nHost: b\r\n\r\n".into()),
        (400, "0\r\n folded: b\r\n\r\n".into()),
        (431, trailers),
    ];
    for (status, body) in cases {
        let head = format!("POST /v1/completions HTTP/1.1\r\n{H}Transfer-Encoding: chunked\r\n\r\n");
        refused(&gateway, status, (head + &body).as_bytes());
    }
    assert_eq!(engine.stats().accepted, 0);
}

fn oversized_heads_are_refused(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    refused(&gateway, 414, format!("GET /{} HTTP/1.1\r\n{H}\r\n", "a".repeat(17 << 10)).as_bytes());
    refused(&gateway, 431, format!("GET / HTTP/1.1\r\n{H}A: {}\r\n\r\n", "a".repeat(65 << 10)).as_bytes());
    refused(&gateway, 431, format!("GET / HTTP/1.1\r\n{H}{}\r\n", "A: b\r\n".repeat(101)).as_bytes());
    let mut client = gateway.client();
    let most = format!("GET /health HTTP/1.1\r\n{H}{}\r\n", "A: b\r\n".repeat(90));
    assert_eq!(client.ask(most.as_bytes()).status, 200);
}
