//! Engines and clients that go away, at every phase: who executes how often, and what the client is told.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::json;
use std::thread;
use std::time::Duration;
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::faults::{Faults, Stall};

on_both_drivers!(
    a_refused_connection_goes_to_another_engine,
    nobody_reachable_is_said_so,
    a_connection_closed_while_idle_costs_nothing,
    a_close_at_once_on_a_used_connection_is_replayed_once,
    a_late_close_on_a_used_connection_is_not_replayed,
    a_crash_during_prefill_executes_once,
    a_request_that_crashes_engines_reaches_one,
    a_request_that_crashes_engines_reaches_two_where_the_rule_allows,
    half_a_head_is_no_answer,
    two_lengths_are_no_answer,
    a_reset_before_the_answer_is_told,
    a_silent_engine_is_given_up,
    an_engine_error_is_relayed_as_it_is,
    a_client_that_leaves_frees_its_engine,
    a_client_that_leaves_a_stream_frees_its_engine,
    an_engine_that_answers_unasked_is_not_reused,
    an_engine_that_dies_under_a_large_body_is_told,
    a_client_that_leaves_within_its_body_executes_nothing,
    the_idle_limit_of_an_engine_is_learned,
);

fn ask(gateway: &Gateway, id: &str, text: &str) -> Reply {
    gateway.client().ask(&post("/v1/chat/completions", &[&format!("X-Request-Id: {id}")], &chat(text)))
}

fn executions(engine: &Handle, id: &str) -> u64 {
    engine.stats().executions.by_request_id.get(id).copied().unwrap_or(0)
}

fn a_refused_connection_goes_to_another_engine(driver: Driver) {
    let (gone, alive) = (engine_with(|c| c.faults.refuse = true), engine());
    let gateway = Gateway::start(driver, &[rule(free_address(), &[gone.addr, alive.addr])]);
    for turn in 0..12 {
        assert_eq!(ask(&gateway, &format!("r{turn}"), "x").status, 200);
    }
    let stats = alive.stats();
    assert_eq!((stats.finished, stats.executions.total), (12, 12));
    assert!(gateway.count("failovers") >= 3);
    assert_eq!(gateway.count("ejections"), 1);
}

fn nobody_reachable_is_said_so(driver: Driver) {
    let gone = [free_address(), free_address()];
    let gateway = Gateway::start(driver, &[rule(free_address(), &gone)]);
    let mut client = gateway.client();
    let request = post("/v1/chat/completions", &[], &chat("x"));
    let mut codes = Vec::new();
    for _ in 0..6 {
        let reply = client.ask(&request);
        assert_eq!(reply.header("connection"), None, "the request was whole: its connection lives on");
        codes.push((reply.status, reply.error_code()));
    }
    let unreachable = (502, "backend_unreachable".to_owned());
    let unhealthy = (503, "no_healthy_backend".to_owned());
    assert_eq!(codes[0], unreachable);
    assert_eq!(codes[5], unhealthy, "after three failures each both are left alone: {codes:?}");
}

fn a_connection_closed_while_idle_costs_nothing(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    for turn in 0..20 {
        client.send(&post("/v1/x", &[], b"{}"));
        let mut engine = origin.accept();
        engine.request();
        engine.answer(&format!("first {turn}"));
        client.reply();
        // While the gateway sleeps, the engine closes and the next request comes: it finds both at once.
        gateway.signal(Signal::STOP);
        drop(engine);
        client.send(&post("/v1/x", &[], b"{}"));
        gateway.signal(Signal::CONT);
        let mut engine = origin.accept();
        engine.request();
        engine.answer(&format!("second {turn}"));
        assert_eq!(client.reply().body, format!("second {turn}").as_bytes());
        // Nothing else reached the engine, and this connection ends too, for the next turn.
        assert!(origin.try_accept().is_none());
        drop(engine);
        wait_until("the pool is empty", || gateway.sum("upstreams") == 0);
    }
}

fn a_close_at_once_on_a_used_connection_is_replayed_once(driver: Driver) {
    let origin = Origin::start();
    let other = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/v1/x", &[], b"{}"));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("first");
    client.reply();
    client.send(&post("/v1/x", &["X-Request-Id: again"], &[b'x'; 100_000]));
    drop(engine);
    let mut engine = origin.accept();
    let request = engine.request();
    assert_eq!((request.all("x-request-id"), request.body.len()), (vec!["again"], 100_000));
    drop(engine);
    let reply = client.reply();
    assert_eq!((reply.status, reply.error_code().as_str()), (502, "backend_died"));
    assert!(origin.try_accept().is_none(), "replayed a second time");
    assert_eq!((gateway.count("replays"), other.stats().accepted), (1, 0));
}

fn a_late_close_on_a_used_connection_is_not_replayed(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&post("/v1/x", &[], b"{}"));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("first");
    client.reply();
    client.send(&post("/v1/x", &[], b"{}"));
    engine.request();
    thread::sleep(Duration::from_millis(500));
    drop(engine);
    let reply = client.reply();
    assert_eq!((reply.status, reply.error_code().as_str()), (502, "backend_died"));
    assert!(origin.try_accept().is_none());
    assert_eq!(gateway.count("replays"), 0);
}

fn a_crash_during_prefill_executes_once(driver: Driver) {
    let crashing = Faults { close_before_response: true, ..Faults::default() };
    for rst in [false, true] {
        let engines = [(); 2].map(|()| engine_with(|c| c.faults = Faults { rst, ..crashing.clone() }));
        let addrs = engines.each_ref().map(|e| e.addr);
        let gateway = Gateway::start(driver, &[rule(free_address(), &addrs)]);
        for turn in 0..10 {
            let id = format!("crash-{turn}");
            let reply = ask(&gateway, &id, "x");
            assert_eq!((reply.status, reply.error_code().as_str()), (502, "backend_died"));
            assert_eq!(engines.iter().map(|e| executions(e, &id)).sum::<u64>(), 1);
        }
        assert_eq!((gateway.count("replays"), gateway.count("failovers")), (0, 0));
    }
}

fn crashing_pair() -> [Handle; 2] {
    [(); 2].map(|()| engine_with(|c| c.faults.crash_on_marker = Some("boom".into())))
}

fn a_request_that_crashes_engines_reaches_one(driver: Driver) {
    let engines = crashing_pair();
    let addrs = engines.each_ref().map(|e| e.addr);
    let gateway = Gateway::start(driver, &[rule(free_address(), &addrs)]);
    for turn in 0..10 {
        let id = format!("boom-{turn}");
        assert_eq!(ask(&gateway, &id, "boom").status, 502);
        let reached = engines.iter().filter(|e| executions(e, &id) > 0).count();
        assert_eq!(reached, 1, "{id}");
        assert_eq!(ask(&gateway, "fine", "fine").status, 200);
    }
}

fn a_request_that_crashes_engines_reaches_two_where_the_rule_allows(driver: Driver) {
    let engines = [(); 3].map(|()| engine_with(|c| c.faults.crash_on_marker = Some("boom".into())));
    let addrs = engines.each_ref().map(|e| e.addr);
    let service = json!({"retry_before_first_byte": 1});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &addrs, service)]);
    for turn in 0..6 {
        let id = format!("boom-{turn}");
        assert_eq!(ask(&gateway, &id, "boom").status, 502);
        let each = engines.each_ref().map(|e| executions(e, &id));
        assert_eq!((each.iter().sum::<u64>(), each.iter().max()), (2, Some(&1)), "{id}: {each:?}");
    }
    engines[0].set_faults(Faults::default());
    engines[1].set_faults(Faults::default());
    for turn in 0..6 {
        assert_eq!(ask(&gateway, &format!("saved-{turn}"), "boom").status, 200);
    }
}

fn expect_bad_answer(driver: Driver, faults: Faults, code: &str) {
    let engine = engine_with(|c| c.faults = faults);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut client = gateway.client();
    for turn in 0..3 {
        let id = format!("X-Request-Id: bad-{turn}");
        let reply = client.ask(&post("/v1/chat/completions", &[&id], &chat("x")));
        assert_eq!((reply.status, reply.error_code().as_str()), (502, code));
        assert_eq!(executions(&engine, &format!("bad-{turn}")), 1);
    }
    engine.set_faults(Faults::default());
    assert_eq!(client.ask(&post("/v1/chat/completions", &[], &chat("x"))).status, 200);
}

fn half_a_head_is_no_answer(driver: Driver) {
    expect_bad_answer(driver, Faults { half_head: true, ..Faults::default() }, "backend_died");
}

fn two_lengths_are_no_answer(driver: Driver) {
    expect_bad_answer(driver, Faults { bad_framing: true, ..Faults::default() }, "bad_answer");
}

fn a_reset_before_the_answer_is_told(driver: Driver) {
    let engine = engine_with(|c| c.faults.rst = true);
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    for _ in 0..5 {
        let reply = ask(&gateway, "reset", "x");
        assert_eq!((reply.status, reply.error_code().as_str()), (502, "backend_died"));
    }
    assert_eq!(engine.stats().accepted, 5);
}

fn a_silent_engine_is_given_up(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::BeforeHead));
    let service = json!({"first_byte_timeout_ms": 200, "retry_before_first_byte": 1});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &[engine.addr], service)]);
    let reply = ask(&gateway, "silent", "x");
    assert_eq!((reply.status, reply.error_code().as_str()), (504, "first_byte_timeout"));
    wait_until("the engine sees the abort", || engine.stats().aborted == 1);
    assert_eq!(executions(&engine, "silent"), 1);
}

fn an_engine_error_is_relayed_as_it_is(driver: Driver) {
    let engines = [engine_with(|c| c.faults.fail_next = Some(1)), engine()];
    let addrs = engines.each_ref().map(|e| e.addr);
    let service = json!({"retry_before_first_byte": 1});
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &addrs, service)]);
    let replies = [ask(&gateway, "a", "x"), ask(&gateway, "b", "x"), ask(&gateway, "c", "x")];
    let mut statuses = replies.each_ref().map(|r| r.status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 500]);
    let failed = replies.iter().find(|r| r.status == 500).unwrap();
    assert_eq!(failed.header("server"), Some("uvicorn"), "the engine's own answer: {}", failed.head);
}

/// Clients leave, by FIN and by reset, and the balance of least connections holds afterwards.
fn leave(driver: Driver, body: &[u8], stall: Stall, read_head: bool) {
    let engines = [(); 2].map(|()| engine_with(|c| c.faults.stall = Some(stall)));
    let addrs = engines.each_ref().map(|e| e.addr);
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &addrs, json!({"sel": 4}))]);
    let running = || engines.iter().map(|e| e.stats().running).sum::<u64>();
    for round in 0..3 {
        let mut clients: Vec<_> = (0..4).map(|_| gateway.client()).collect();
        for client in &mut clients {
            client.send(&post("/v1/chat/completions", &[], body));
            if read_head {
                assert_eq!(client.try_head().unwrap().status, 200);
            }
        }
        wait_until("all run", || running() == 4);
        assert_eq!(engines.each_ref().map(|e| e.stats().running), [2, 2], "round {round}");
        for (i, client) in clients.into_iter().enumerate() {
            if i % 2 == 0 { client.reset() } else { drop(client) }
        }
        wait_until("the engines see them leave", || running() == 0);
    }
    assert_eq!(engines.iter().map(|e| e.stats().aborted).sum::<u64>(), 12);
    assert_eq!(gateway.count("clients_left"), 12);
    wait_until("nothing runs", || gateway.sum("active") == 0 && gateway.sum("clients") == 0);
    engines.iter().for_each(|e| e.set_faults(Faults::default()));
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "after", "x").status, 200);
    }
    assert_eq!(engines.each_ref().map(|e| e.stats().finished), [5, 5], "loads were not settled");
}

fn a_client_that_leaves_frees_its_engine(driver: Driver) {
    leave(driver, &chat("x"), Stall::BeforeHead, false);
}

fn a_client_that_leaves_a_stream_frees_its_engine(driver: Driver) {
    leave(driver, &chat_stream("x", 100), Stall::MidStream, true);
}

fn an_engine_that_answers_unasked_is_not_reused(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    // The second answer must never become that of another request.
    engine.say(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    assert_eq!(client.reply().body, b"ok");
    engine.expect_end();
    client.send(&get("/", &[]));
    let mut engine = origin.accept();
    engine.request();
    engine.answer("clean");
    assert_eq!(client.reply().body, b"clean");
}

fn an_engine_that_dies_under_a_large_body_is_told(driver: Driver) {
    let (origin, other) = (Origin::start(), engine());
    let service = json!({"retry_before_first_byte": 1});
    let endpoints = [origin.addr, other.addr];
    let gateway = Gateway::start(driver, &[rule_with(free_address(), &endpoints, service)]);
    let mut client = gateway.client();
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n");
    client.send(&body_of(1 << 20));
    let mut engine = origin.accept();
    engine.head().unwrap();
    engine.wire.reset();
    // What went on as it came cannot be sent again.
    let reply = client.reply();
    assert_eq!((reply.status, reply.error_code().as_str()), (502, "backend_died"));
    assert_eq!(reply.header("connection"), Some("close"));
    client.expect_end();
    assert_eq!(other.stats().accepted, 0);
}

fn a_client_that_leaves_within_its_body_executes_nothing(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    for (length, reset) in [(1_000, false), (1_000, true), (60_000_000, false), (60_000_000, true)] {
        let mut client = gateway.client();
        let head = format!("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.send(&[head.as_bytes(), &body_of(500)].concat());
        if length > 1_000 {
            wait_until("it goes on as it comes", || engine.stats().open == 1);
        }
        if reset {
            client.reset()
        } else {
            drop(client)
        }
        wait_until("all is closed", || engine.stats().open == 0 && gateway.sum("clients") == 0);
    }
    let stats = engine.stats();
    assert_eq!((stats.executions.total, stats.malformed, gateway.sum("upstreams")), (0, 0, 0));
}

fn the_idle_limit_of_an_engine_is_learned(driver: Driver) {
    let engine = engine_with(|c| c.keep_alive.idle = Duration::from_millis(400));
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    assert_eq!(ask(&gateway, "first", "x").status, 200);
    wait_until("the engine closes it", || gateway.count("idle_closed") == 1);
    // From now on the gateway is first: a request never meets a connection that is about to close.
    for round in 1..=3 {
        assert_eq!(ask(&gateway, "next", "x").status, 200);
        wait_until("the gateway closes it", || gateway.sum("upstreams") == 0);
        assert_eq!((gateway.count("retired"), gateway.count("idle_closed")), (round, 1));
    }
    assert_eq!((engine.stats().finished, gateway.count("replays")), (4, 0));
}
