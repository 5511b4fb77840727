//! Heads as they go out on either side: what is removed, added, and left as it came.

use crate::harness::*;

on_both_drivers!(
    lines_keep_their_order_and_case,
    fields_of_one_hop_end_here,
    answers_lose_fields_of_one_hop_only,
    forwarding_fields_are_the_gateways_own,
    a_request_id_is_made_or_kept,
    an_absolute_target_is_made_relative,
);

fn lines_keep_their_order_and_case(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    let lines = [
        "POST /v1/x?a=%20b&c HTTP/1.1",
        "zZ-Last: first",
        "hOsT: Gateway.Test:81",
        "Authorization: Bearer  two spaces ",
        "X-Request-Id: mine",
        "accept: a",
        "Accept: b",
        "Content-Length: 2",
        "X-Empty:",
    ];
    client.send(format!("{}\r\n\r\n{{}}", lines.join("\r\n")).as_bytes());
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!(request.lines[..lines.len()], lines);
    let added: Vec<_> = request.lines[lines.len()..].iter().map(|l| l.split(':').next().unwrap()).collect();
    assert!(added.iter().all(|name| name.starts_with("X-Forwarded-")), "{added:?}");
    let head = "HTTP/1.1 201 Made It\r\nzZ: 1\r\ndate: now\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 0\r\n\r\n";
    engine.say(head);
    assert_eq!(client.reply().head, head);
}

fn fields_of_one_hop_end_here(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get(
        "/",
        &[
            "Before: 1",
            "Connection: keep-alive, X-Hop , x-HOP-two",
            "X-Hop: 1",
            "Between: 2",
            "X-Hop-Two: 2",
            "Keep-Alive: timeout=5",
            "Proxy-Connection: keep-alive",
            "TE: trailers",
            "Upgrade: websocket",
            "Proxy-Authorization: Basic x",
            "After: 3",
        ],
    ));
    let mut engine = origin.accept();
    let request = engine.request();
    for gone in ["Connection", "X-Hop", "X-Hop-Two", "Keep-Alive", "Proxy-Connection", "TE", "Upgrade"] {
        assert!(request.all(gone).is_empty(), "{gone}: {:?}", request.lines);
    }
    for kept in ["Before", "Between", "After"] {
        assert_eq!(request.all(kept).len(), 1, "{kept}: {:?}", request.lines);
    }
    engine.answer("{}");
    assert_eq!(client.reply().status, 200);
}

fn answers_lose_fields_of_one_hop_only(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.say(
        "HTTP/1.1 200 OK\r\nA: 1\r\nConnection: X-Private, close\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n\
         Content-Length: 2\r\nB: 2\r\n\r\nok",
    );
    let reply = client.reply();
    assert_eq!(reply.head, "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 2\r\nB: 2\r\n\r\n");
    // The engine's close is its own; the client's connection goes on, on another one.
    drop(engine);
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("{}");
    assert_eq!(client.reply().body, b"{}");
}

fn forwarding_fields_are_the_gateways_own(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get(
        "/",
        &[
            "X-Forwarded-For: 6.6.6.6",
            "x-forwarded-proto: https",
            "X-FORWARDED-HOST: evil.test",
            "X-Forwarded-Port: 666",
        ],
    ));
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["gateway.test"]);
    assert_eq!(request.all("x-forwarded-port"), [gateway.vip.port().to_string()]);
}

fn a_request_id_is_made_or_kept(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &["x-request-ID: Given/1"]));
    let mut engine = origin.accept();
    assert_eq!(engine.request().all("x-request-id"), ["Given/1"]);
    engine.answer("{}");
    client.reply();
    let mut made = Vec::new();
    for _ in 0..3 {
        client.send(&get("/", &[]));
        let request = engine.request();
        let ids = request.all("x-request-id");
        assert!(ids.len() == 1 && ids[0].len() == 32, "{ids:?}");
        assert!(ids[0].bytes().all(|b| b.is_ascii_hexdigit()));
        made.push(ids[0].to_owned());
        engine.answer("{}");
        client.reply();
    }
    made.dedup();
    assert_eq!(made.len(), 3);
    let receipts = gateway.admin("GET", "/netlox/v1/receipts", "").json();
    let ids: Vec<_> = receipts["receipts"].as_array().unwrap().iter().map(|r| r["id"].clone()).collect();
    assert_eq!(ids, ["Given/1", &made[0], &made[1], &made[2]]);
}

fn an_absolute_target_is_made_relative(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(b"GET http://real.test:8080/p/q?x=1 HTTP/1.1\r\nHost: other.test\r\nA: 1\r\n\r\n");
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!(request.lines[0], "GET /p/q?x=1 HTTP/1.1");
    assert_eq!(request.all("host"), ["real.test:8080"]);
    assert_eq!(request.all("x-forwarded-host"), ["real.test:8080"]);
    engine.answer("{}");
    assert_eq!(client.reply().status, 200);
}
