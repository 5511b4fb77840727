//! The load generator against simulated engines over real loopback sockets: zero failures where the
//! engine is well, every fault counted under its name where it is not.

mod peer;

use std::net::SocketAddr;
use std::time::Duration;

use peer::until;
use warmpath_perf::engine::faults::{Faults, Stall};
use warmpath_perf::engine::{self, Config, Handle, KeepAlive, Kind};
use warmpath_perf::load::bodies::{Bodies, Body, Shape};
use warmpath_perf::load::{Pace, Plan, Report, run};

const LONG: Duration = Duration::from_secs(600);

fn plan(target: SocketAddr, pace: Pace, requests: u64, stream: bool) -> Plan {
    let shape =
        Shape { chat: true, model: "sim".into(), size: 2000, turns: 4, max_tokens: Some(8), stream, seed: 3 };
    Plan {
        target,
        path: "/v1/chat/completions".into(),
        pace,
        duration: LONG,
        requests: Some(requests),
        bodies: Bodies::Generated(shape),
        timeout: LONG,
        id_prefix: "t-".into(),
        progress: false,
    }
}

fn engine(faults: Faults) -> Handle {
    engine::start(Config { faults, ..Config::default() }).expect("a free port")
}

fn closed(target: SocketAddr, requests: u64, stream: bool) -> Report {
    run(plan(target, Pace::Closed { connections: 4 }, requests, stream)).expect("the engine is there")
}

#[test]
fn two_hundred_requests_without_a_failure_for_every_kind_and_pace() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm, Kind::Llamacpp] {
        for pace in [Pace::Closed { connections: 4 }, Pace::Open { rate: 2000.0 }] {
            for stream in [false, true] {
                let engine = engine::start(Config::of(kind)).unwrap();
                let report = run(plan(engine.addr, pace, 200, stream)).unwrap();
                assert_eq!((report.good, report.failed), (200, 0), "{kind:?} {pace:?} {:?}", report.failures);
                let stats = engine.stats();
                assert_eq!((stats.finished, stats.executions.total, stats.aborted), (200, 200, 0));
                assert!(stats.executions.by_request_id.values().all(|&count| count == 1));
                assert_eq!(stats.executions.by_request_id.len(), 200);
                assert!(stats.tokens.cached > 0, "later turns hit the prefix cache");
                let gaps = report.inter_token_ms.count;
                assert!(if stream { gaps >= 200 * 7 } else { gaps == 0 }, "{gaps}");
            }
        }
    }
}

#[test]
fn closed_connections_are_reused_and_an_announced_close_is_no_failure() {
    let alive = engine(Faults::default());
    assert_eq!(closed(alive.addr, 100, true).failed, 0);
    assert_eq!(alive.stats().accepted, 5, "four connections and the first look");
    let keep_alive = KeepAlive { requests: 3, idle: LONG };
    let limited = engine::start(Config { keep_alive, ..Config::default() }).unwrap();
    assert_eq!(closed(limited.addr, 100, false).failed, 0);
    assert!(limited.stats().accepted >= 33);
}

#[test]
fn failures_are_counted_under_their_names() {
    let cases = [
        (Faults { status: Some(503), ..Faults::default() }, "status 503"),
        (Faults { close_before_response: true, ..Faults::default() }, "closed without an answer"),
        (Faults { half_head: true, ..Faults::default() }, "answer cut"),
        (Faults { close_mid_stream_after: Some(2), ..Faults::default() }, "answer cut"),
        (Faults { rst: true, ..Faults::default() }, "closed without an answer"),
    ];
    for (faults, name) in cases {
        for stream in [false, true] {
            let engine = engine(faults.clone());
            let report = closed(engine.addr, 20, stream);
            assert_eq!(report.good, 0);
            assert_eq!(report.failures.get(name), Some(&20), "{faults:?} {:?}", report.failures);
        }
    }
}

#[test]
fn broken_framing_is_seen_in_both_forms() {
    for (stream, name) in
        [(true, "chunk size is not a hexadecimal number"), (false, "two different Content-Lengths")]
    {
        let engine = engine(Faults { bad_framing: true, ..Faults::default() });
        let report = closed(engine.addr, 5, stream);
        assert_eq!(report.failures.get(&format!("framing: {name}")), Some(&5), "{:?}", report.failures);
    }
}

#[test]
fn some_failures_leave_the_other_answers_good() {
    let engine = engine(Faults { fail_next: Some(3), ..Faults::default() });
    let report = closed(engine.addr, 50, true);
    assert_eq!((report.good, report.failures.get("status 500")), (47, Some(&3)));
}

#[test]
fn a_stalled_request_times_out_and_is_aborted() {
    let engine = engine(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let mut plan = plan(engine.addr, Pace::Closed { connections: 2 }, 2, false);
    plan.timeout = Duration::from_millis(30);
    let report = run(plan).unwrap();
    assert_eq!(report.failures.get("timeout"), Some(&2));
    assert!(report.longest_failure_ms["timeout"] >= 1.0, "{:?}", report.longest_failure_ms);
    until("both are aborted", || engine.stats().aborted == 2);
}

#[test]
fn the_open_loop_sends_on_while_nothing_is_answered() {
    let engine = engine(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let plan = plan(engine.addr, Pace::Open { rate: 500.0 }, 20, false);
    let load = std::thread::spawn(move || run(plan));
    until("all twenty run at once", || engine.stats().running == 20);
    engine.set_faults(Faults::default());
    let report = load.join().unwrap().unwrap();
    assert_eq!((report.good, report.failed), (20, 0));
    assert_eq!(report.generator_late_ms.count, 20);
}

#[test]
fn given_bodies_are_sent_as_they_are() {
    let engine = engine(Faults { crash_on_marker: Some("marked".into()), ..Faults::default() });
    let mut plan = plan(engine.addr, Pace::Closed { connections: 1 }, 10, false);
    let body = |content: &str, stream| Body {
        text: peer::chat(content, if stream { r#","stream":true"# } else { "" }),
        stream,
    };
    plan.bodies = Bodies::Given(vec![body("plain", false), body("marked", true)].into());
    let report = run(plan).unwrap();
    assert_eq!((report.good, report.failed), (5, 5));
}

#[test]
fn the_wire_outside_this_machine_is_refused() {
    let outside: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let told = run(plan(outside, Pace::Closed { connections: 1 }, 1, false)).unwrap_err().to_string();
    assert!(told.contains("192.0.2.1") && told.contains("loopback"), "{told}");
}

#[test]
fn an_absent_server_is_told_before_any_load() {
    let engine = engine(Faults::default());
    let addr = engine.addr;
    engine.stop();
    let told = run(plan(addr, Pace::Closed { connections: 1 }, 1, false)).unwrap_err().to_string();
    assert!(told.contains(&addr.to_string()) && told.contains("--url"), "{told}");
}

#[test]
fn a_report_shows_its_figures_as_table_and_json() {
    let engine = engine(Faults { fail_next: Some(1), ..Faults::default() });
    let report = closed(engine.addr, 10, true);
    let table = report.to_string();
    assert!(table.contains("9 good answers") && table.contains("1 status 500"), "{table}");
    assert!(table.contains("between tokens"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["failures"]["status 500"], 1);
    assert_eq!(json["end_to_end_ms"]["count"], 9);
}
