//! The way of a request and its answer: connections, framing, versions, ends.

use crate::harness::*;
use serde_json::json;

on_both_drivers!(
    connections_live_on_at_both_sides,
    pipelined_requests_are_answered_in_order,
    a_chunked_request_arrives_with_its_length,
    a_chunked_answer_is_relayed_byte_for_byte,
    an_old_client_gets_chunks_without_framing,
    an_old_client_may_keep_its_connection,
    an_answer_until_close_goes_out_in_chunks,
    head_gets_a_head_only,
    answers_without_body_leave_the_connection_usable,
    a_body_is_asked_for_when_the_client_waits,
    interim_answers_of_engines_end_here,
    ipv6_on_both_sides,
    an_early_answer_comes_through,
    a_half_closed_client_counts_as_gone,
    a_half_closed_client_is_served_where_the_rule_says_so,
    any_split_of_a_request_is_understood,
    four_shards_serve,
);

fn connections_live_on_at_both_sides(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    for turn in 0..20 {
        let reply = client.ask(&post("/v1/chat/completions", &[], &chat(&format!("turn {turn}"))));
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("connection"), None);
    }
    let stats = engine.stats();
    assert_eq!((stats.accepted, stats.finished), (1, 20));
    assert_eq!(gateway.count("accepted"), 1);
}

fn pipelined_requests_are_answered_in_order(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let request = |i: usize| {
        let body = if i.is_multiple_of(3) { chat_stream("many", 5) } else { chat(&"long ".repeat(i * 100)) };
        post("/v1/chat/completions", &[&format!("X-Request-Id: in-order-{i}")], &body)
    };
    client.send(&(0..30).flat_map(request).collect::<Vec<u8>>());
    for i in 0..30 {
        let reply = client.reply();
        assert!(reply.status == 200 && reply.whole);
        let id = format!("\"chatcmpl-in-order-{i}\"");
        assert!(String::from_utf8(reply.body).unwrap().contains(&id), "answer {i}");
    }
    assert_eq!(engine.stats().finished, 30);
}

fn a_chunked_request_arrives_with_its_length(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-After: 1\r\n\r\n\
          4;name=value\r\n{\"pr\r\n0a\r\nompt\":\"ab\"\r\n",
    );
    client.send(b"1\r\n}\r\n0\r\nX-Trailer: dropped\r\n\r\n");
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!(String::from_utf8(request.body.clone()).unwrap(), "{\"prompt\":\"ab\"}");
    assert_eq!(request.all("content-length"), ["15"]);
    assert!(request.all("transfer-encoding").is_empty() && request.all("x-trailer").is_empty());
    engine.answer("{}");
    assert_eq!(client.reply().body, b"{}");
    // The connection goes on behind the trailers, and a short body still is one.
    client.send(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let request = engine.request();
    assert_eq!((request.all("content-length"), request.body.len()), (vec!["0"], 0));
    engine.answer("second");
    assert_eq!(client.reply().body, b"second");
}

fn a_chunked_answer_is_relayed_byte_for_byte(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    let head = "HTTP/1.1 200 Fine\r\nsErVeR: x\r\ntransfer-encoding: chunked\r\nB: 2\r\nA: 1\r\n\r\n";
    let body = "5\r\nhello\r\n001;ext=\"a;b\"\r\n \r\nA\r\n0123456789\r\n0\r\nX-Trailer: kept\r\n\r\n";
    for _ in 0..2 {
        client.send(&get("/", &[]));
    }
    let mut engine = origin.accept();
    engine.request();
    engine.say([head, body].concat());
    engine.request();
    for piece in [head, body].concat().as_bytes().chunks(7) {
        engine.say(piece);
    }
    for pieced in [false, true] {
        let reply = client.reply();
        // A head that came in pieces is written anew: its framing line then stands at the end.
        let pieced_head = head.replace("transfer-encoding: chunked\r\n", "");
        let pieced_head = pieced_head.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(reply.head == head || (pieced && reply.head == pieced_head), "{}", reply.head);
        assert_eq!(String::from_utf8(reply.framed).unwrap(), body);
        assert_eq!(reply.body, b"hello 0123456789");
    }
}

fn an_old_client_gets_chunks_without_framing(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let mut engine = origin.accept();
    assert!(engine.request().lines[0].ends_with(" HTTP/1.1"));
    engine.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n3\r\nabc\r\n");
    let head = client.try_head().unwrap();
    assert_eq!((head.header("transfer-encoding"), head.header("content-length")), (None, None));
    assert_eq!((head.header("connection"), head.header("a")), (Some("close"), Some("1")));
    engine.say("2\r\nde\r\n0\r\n\r\n");
    while client.more().unwrap() {}
    assert_eq!(client.ahead, b"abcde");
}

fn an_old_client_may_keep_its_connection(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let body = chat("old");
    let head = |connection: &str| {
        format!("POST /v1/chat/completions HTTP/1.0\r\n{connection}Content-Length: {}\r\n\r\n", body.len())
    };
    let request = [head("Connection: Keep-Alive\r\n").as_bytes(), &body].concat();
    for _ in 0..2 {
        let reply = client.ask(&request);
        assert_eq!((reply.status, reply.header("connection")), (200, Some("keep-alive")));
    }
    let reply = client.ask(&[head("").as_bytes(), &body].concat());
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    client.expect_end();
    assert_eq!(engine.stats().accepted, 1);
}

fn an_answer_until_close_goes_out_in_chunks(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.say("HTTP/1.1 200 OK\r\n\r\nall ");
    engine.say("of it");
    drop(engine);
    // Cut short, it would lack its last chunk; whole, it costs the client no connection.
    let reply = client.reply();
    assert_eq!((reply.header("transfer-encoding"), reply.header("connection")), (Some("chunked"), None));
    assert!(reply.whole && reply.body == b"all of it", "{:?}", reply.body);
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("next");
    assert_eq!(client.reply().body, b"next");
}

fn head_gets_a_head_only(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(b"HEAD /big HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut engine = origin.accept();
    assert_eq!(engine.request().lines[0], "HEAD /big HTTP/1.1");
    engine.say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    let reply = client.reply_to_head();
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("1000")));
    client.send(b"HEAD /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
    engine.request();
    engine.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.reply_to_head().header("transfer-encoding"), Some("chunked"));
    client.send(&get("/", &[]));
    engine.request();
    engine.answer("after");
    assert_eq!(client.reply().body, b"after");
    // A refusal of HEAD has a length and no body either.
    gateway.delete_rule(gateway.vip, "");
    client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let refused = client.reply_to_head();
    assert_eq!(refused.status, 503);
    assert!(refused.header("content-length").unwrap().parse::<usize>().unwrap() > 0);
    assert!(client.ahead.is_empty());
}

fn answers_without_body_leave_the_connection_usable(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.say("HTTP/1.1 204 No Content\r\nA: 1\r\n\r\n");
    assert_eq!(client.reply().status, 204);
    client.send(&get("/", &["If-None-Match: \"x\""]));
    assert_eq!(engine.request().all("if-none-match"), ["\"x\""]);
    engine.say("HTTP/1.1 304 Not Modified\r\nContent-Length: 70\r\nETag: \"x\"\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("content-length")), (304, Some("70")));
    client.send(&get("/", &[]));
    engine.request();
    engine.answer("after");
    assert_eq!(client.reply().body, b"after");
}

fn a_body_is_asked_for_when_the_client_waits(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    for length in [5usize, 20 << 20] {
        let mut client = gateway.client();
        let head = format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send(head.as_bytes());
        let interim = client.reply();
        assert_eq!((interim.status, interim.headers.len()), (100, 0));
        let body = body_of(length);
        let sent = body.clone();
        let mut writer = Client::of(client.stream.try_clone().unwrap());
        let sending = std::thread::spawn(move || writer.send(&sent));
        let mut engine = origin.accept();
        let request = engine.request();
        assert!(request.all("expect").is_empty());
        assert!(request.body == body, "{length} bytes");
        engine.answer("done");
        sending.join().unwrap();
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.as_slice()), (200, &b"done"[..]));
    }
    // With the body already there, or none to come, nobody has to be told.
    let mut client = gateway.client();
    client.send(&post("/x", &["Expect: 100-continue"], b"here"));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("whole");
    let mut reply = client.reply();
    if reply.status == 100 {
        reply = client.reply();
    }
    assert_eq!(reply.body, b"whole");
}

fn interim_answers_of_engines_end_here(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/x", &[], b"{}"));
    let mut engine = origin.accept();
    engine.request();
    engine.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    engine.answer("final");
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"final"[..]));
}

fn ipv6_on_both_sides(driver: Driver) {
    let Some(vip) = free_address_v6() else { return println!("not_run: no IPv6 loopback here") };
    let origin = Origin::at("[::1]:0".parse().unwrap());
    let gateway = Gateway::start(driver, &[rule(vip, &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!(request.all("x-forwarded-for"), ["::1"]);
    engine.answer("six");
    assert_eq!(client.reply().body, b"six");
}

fn an_early_answer_comes_through(driver: Driver) {
    let engine = engine_with(|c| c.faults.early_response = true);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let length = 200 << 20;
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(head.as_bytes());
    client.send(&body_of(1 << 20));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection"), reply.whole), (400, Some("close"), true));
    assert!(String::from_utf8(reply.body).unwrap().contains("simulated early response"));
    client.expect_end();
    assert_eq!(engine.stats().executions.total, 0);
}

fn a_half_closed_client_counts_as_gone(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/x", &[], b"{}"));
    let mut engine = origin.accept();
    engine.request();
    client.finish();
    engine.expect_end();
    client.expect_end();
    wait_until("nothing runs", || gateway.sum("active") == 0);
}

fn a_half_closed_client_is_served_where_the_rule_says_so(driver: Driver) {
    let origin = Origin::start();
    let serve = rule_with(free_address(), &[origin.addr], json!({"half_close": "serve"}));
    let gateway = Gateway::start(driver, &[serve]);
    let mut client = gateway.client();
    client.send(&post("/x", &[], b"{}"));
    client.finish();
    let mut engine = origin.accept();
    engine.request();
    wait_until("the end of the client's data is seen", || gateway.sum("active") == 1);
    engine.say(format!("{SEPARATE_HEAD}Content-Length: 8\r\n\r\nserv"));
    engine.say("ed s");
    let reply = client.reply();
    assert_eq!((reply.status, reply.whole, reply.body.as_slice()), (200, true, &b"served s"[..]));
    client.expect_end();
}

fn any_split_of_a_request_is_understood(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    let request = post("/v1/chat/completions", &[], &chat("piece by piece"));
    for piece in 1..request.len() {
        client.send(&request[..piece]);
        client.send(&request[piece..]);
        assert_eq!(client.reply().status, 200, "cut at {piece}");
    }
    for byte in &request {
        client.send(&[*byte]);
    }
    assert_eq!(client.reply().status, 200);
}

fn four_shards_serve(driver: Driver) {
    let engine = engine();
    let flags = ["--shards", "4"];
    let gateway = Gateway::start_with(driver, &[rule(free_address(), &[engine.addr])], &flags);
    for turn in 0..40 {
        let mut client = gateway.client();
        for _ in 0..3 {
            let reply = client.ask(&post("/v1/chat/completions", &[], &chat(&format!("turn {turn}"))));
            assert_eq!(reply.status, 200);
        }
    }
    let shards = gateway.shards();
    let busy = shards.iter().filter(|s| s["counts"]["requests"].as_u64() > Some(0)).count();
    assert_eq!(shards.len(), 4);
    assert!(busy >= 2, "40 connections on {busy} shard");
    assert_eq!((gateway.count("requests"), engine.stats().finished), (120, 120));
}
