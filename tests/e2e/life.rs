//! Start and end of the gateway: drain, kill, restart, and what cannot start.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use warmpath_perf::engine::faults::{Faults, Stall};

on_both_drivers!(
    connections_go_on_through_a_handover,
    connections_go_on_through_a_handover_of_four_shards,
    running_streams_end_well_before_the_gateway,
    a_lame_gateway_says_so_and_serves,
    a_second_signal_cuts,
    a_drain_ends_in_time,
    no_acknowledged_rule_is_lost,
    two_gateways_never_share_a_state,
    a_taken_address_is_said_at_start,
);

fn new_connections(vip: std::net::SocketAddr, stop: &AtomicBool) -> usize {
    let mut due = Instant::now();
    let mut done = 0;
    while !stop.load(Relaxed) {
        let mut client = Client::connect(vip);
        let reply = client
            .try_reply_to(&post("/v1/chat/completions", &[], &chat("x")))
            .unwrap_or_else(|e| panic!("connection {done} failed: {e}"));
        assert!(reply.status == 200 && reply.whole, "{}", reply.head);
        done += 1;
        due += Duration::from_millis(20);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    done
}

/// Four threads make 50 connections a second each; the first gateway goes down while a second one listens.
fn hand_over(driver: Driver, shards: &str) {
    let engine = engine();
    let rules = [rule(free_address(), &[engine.addr])];
    let flags = ["--shards", shards, "--lame-duck", "0.3", "--drain-timeout", "20"];
    let mut old = Gateway::start_with(driver, &rules, &flags);
    let stop = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        let makers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| new_connections(rules_vip(&rules), &stop))).collect();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            thread::sleep(Duration::from_millis(500));
            let new = Gateway::start_with(driver, &rules, &flags);
            new.settle();
            thread::sleep(Duration::from_millis(500));
            old.signal(Signal::TERM);
            assert!(old.ended().success());
            thread::sleep(Duration::from_millis(500));
            new
        }));
        stop.store(true, Relaxed);
        let made: usize = makers.into_iter().map(|m| m.join().expect("no connection fails")).sum();
        let new = done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        assert!(new.count("requests") > 0);
        made
    });
    assert_eq!(engine.stats().finished, made as u64);
}

fn rules_vip(rules: &[Value]) -> std::net::SocketAddr {
    let port = rules[0]["serviceArguments"]["port"].as_u64().unwrap();
    ([127, 0, 0, 1], u16::try_from(port).unwrap()).into()
}

fn connections_go_on_through_a_handover(driver: Driver) {
    hand_over(driver, "1");
}

fn connections_go_on_through_a_handover_of_four_shards(driver: Driver) {
    hand_over(driver, "4");
}

fn running_streams_end_well_before_the_gateway(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::MidStream));
    let flags = ["--shards", "1", "--lame-duck", "0.1"];
    let mut gateway = Gateway::start_with(driver, &[rule(free_address(), &[engine.addr])], &flags);
    let mut idle = gateway.client();
    idle.send(&get("/health", &[]));
    assert_eq!(idle.reply().status, 200);
    let mut streams: Vec<_> = (0..8).map(|_| gateway.client()).collect();
    for client in &mut streams {
        client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 200)));
        assert_eq!(client.try_head().unwrap().status, 200);
    }
    gateway.signal(Signal::TERM);
    wait_until("new connections are refused", || std::net::TcpStream::connect(gateway.vip).is_err());
    idle.expect_end();
    engine.set_faults(Faults::default());
    for client in &mut streams {
        let mut all = Vec::new();
        while let Some((data, _)) = client.chunk().unwrap()
            && !data.is_empty()
        {
            all.extend(data);
        }
        assert!(all.ends_with(b"data: [DONE]\n\n"));
        client.expect_end();
    }
    assert!(gateway.ended().success());
    assert_eq!((engine.stats().finished, engine.stats().aborted), (8, 0));
}

fn a_lame_gateway_says_so_and_serves(driver: Driver) {
    let engine = engine();
    let flags = ["--shards", "1", "--lame-duck", "600"];
    let gateway = Gateway::start_with(driver, &[rule(free_address(), &[engine.addr])], &flags);
    let mut kept = gateway.client();
    kept.send(&get("/health", &[]));
    assert_eq!(kept.reply().header("connection"), None);
    gateway.signal(Signal::TERM);
    wait_until("readiness is off", || gateway.ready_status() == Some(503));
    let body = gateway.admin("GET", "/netlox/v1/status/ready", "").json();
    assert_eq!(
        (body["ready"].as_bool(), body["reasons"][0].as_str()),
        (Some(false), Some("the gateway is going down"))
    );
    for mut client in [kept, gateway.client()] {
        let reply = client.ask(&get("/health", &[]));
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        client.expect_end();
    }
    let change = rule(free_address(), &[engine.addr]).to_string();
    assert_eq!(gateway.admin("POST", "/netlox/v1/config/loadbalancer", &change).status, 503);
}

fn a_second_signal_cuts(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::BeforeHead));
    let flags = ["--shards", "1", "--lame-duck", "0"];
    let mut gateway = Gateway::start_with(driver, &[rule(free_address(), &[engine.addr])], &flags);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat("x")));
    wait_until("it runs", || engine.stats().running == 1);
    gateway.signal(Signal::TERM);
    wait_until("new connections are refused", || std::net::TcpStream::connect(gateway.vip).is_err());
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    client.expect_end();
    wait_until("the engine sees it leave", || engine.stats().aborted == 1);
}

fn a_drain_ends_in_time(driver: Driver) {
    let engine = engine_with(|c| c.faults.stall = Some(Stall::MidStream));
    let flags = ["--shards", "1", "--lame-duck", "0", "--drain-timeout", "0.3"];
    let mut gateway = Gateway::start_with(driver, &[rule(free_address(), &[engine.addr])], &flags);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &[], &chat_stream("x", 5)));
    assert_eq!(client.try_head().unwrap().status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    while client.more().unwrap() {}
    assert!(!client.ahead.ends_with(b"0\r\n\r\n"), "a cut stream looks whole");
    wait_until("the engine sees it leave", || engine.stats().aborted == 1);
}

/// Names of the rules that a gateway lists.
fn names(gateway: &Gateway) -> Vec<String> {
    let list = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    let name = |r: &Value| r["serviceArguments"]["model_name"].as_str().unwrap_or_default().to_owned();
    list["lbAttr"].as_array().unwrap().iter().map(name).collect()
}

fn no_acknowledged_rule_is_lost(driver: Driver) {
    let engine = engine();
    let vip = free_address();
    let flags = ["--shards", "1"];
    let mut gateway = Gateway::start(driver, &[rule(vip, &[engine.addr])]);
    let mut acknowledged = 0;
    for round in 0..20 {
        let admin = gateway.admin;
        // Rules are posted one after the other until the gateway is killed under them.
        let poster = thread::spawn(move || {
            let mut count = acknowledged;
            loop {
                let body = rule_with(vip, &[engine_addr()], json!({"model_name": format!("m{count}")}));
                let Ok(stream) = std::net::TcpStream::connect(admin) else { return count };
                match Client::of(stream).try_admin(
                    "POST",
                    "/netlox/v1/config/loadbalancer",
                    &body.to_string(),
                ) {
                    Some(200) => count += 1,
                    None => return count,
                    Some(other) => panic!("{other}"),
                }
            }
        });
        thread::sleep(Duration::from_millis(5 + 3 * round));
        let folder = gateway.kill();
        acknowledged = poster.join().unwrap();
        gateway = Gateway::spawn(driver, folder, false, &flags);
        gateway.vip = vip;
        let kept = names(&gateway);
        let lost: Vec<_> = (0..acknowledged).filter(|i| !kept.contains(&format!("m{i}"))).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {acknowledged}");
        // One that was not acknowledged may have been kept: it is known from now on.
        acknowledged = kept.len() - 1;
        // The kernel takes down the ring of a killed process in its own time, and its listener with it.
        wait_until("the new gateway has the address to itself", || {
            let reply = gateway.client().try_reply_to(&get("/health", &[]));
            reply.is_ok_and(|reply| reply.status == 200)
        });
    }
    assert!(acknowledged > 20);
}

/// Where nobody listens; the rules that are only kept need no engine.
fn engine_addr() -> std::net::SocketAddr {
    ([127, 0, 0, 1], 9).into()
}

/// Runs `serve` to its end, which must come by itself.
fn ends(driver: Driver, folder: &Path, flags: &[&str]) -> Output {
    let mut command = Gateway::command(driver, folder, free_address());
    finished(command.args(flags))
}

/// What a command leaves that must end by itself.
fn finished(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The one sentence that a failed start leaves behind.
fn sentence(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text.trim_end().to_owned()
}

fn two_gateways_never_share_a_state(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let refused = sentence(&ends(driver, &gateway.folder, &["--socket", "other.sock"]), 1);
    assert!(refused.contains("state") && refused.contains("another gateway"), "{refused}");
    let refused = sentence(&ends(driver, &gateway.folder, &[]), 1);
    assert!(refused.contains("ctl.sock") || refused.contains("another gateway"), "{refused}");
    assert_eq!(gateway.client().ask(&get("/health", &[])).status, 200);
}

fn a_taken_address_is_said_at_start(driver: Driver) {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let vip = taken.local_addr().unwrap();
    let folder = Gateway::folder();
    fs::write(folder.join("rules.json"), json!([rule(vip, &[vip])]).to_string()).unwrap();
    let refused = sentence(&ends(driver, &folder, &["--rules", "rules.json"]), 1);
    assert!(
        refused.contains(&vip.to_string()) && refused.contains("stop it or choose another port"),
        "{refused}"
    );
    fs::remove_dir_all(folder).unwrap();
}

fn run(args: &[&str], folder: &Path) -> Output {
    finished(binary().args(args).current_dir(folder).stdin(Stdio::null()))
}

#[test]
fn wrong_rule_files_are_refused_with_line_and_column() {
    let folder = Gateway::folder();
    let good = rule(free_address(), &[engine_addr()]);
    let mut misspelled = good.clone();
    misspelled["serviceArguments"]["model_nme"] = json!("x");
    let cases = [
        ("broken.json", "[\n  {\"serviceArguments\": }]".to_owned(), vec!["broken.json:2:24"]),
        ("member.json", json!([good, misspelled]).to_string(), vec!["rule 2", "model_nme", "model_name"]),
        ("broken.toml", "[[rule]]\nx = = 1\n".into(), vec!["broken.toml:2:5"]),
        ("kind.toml", "rules = 1\n".into(), vec!["rule"]),
    ];
    for (name, text, hints) in cases {
        fs::write(folder.join(name), text).unwrap();
        let admin = free_address().to_string();
        let refused = sentence(
            &run(
                &["serve", "--driver", "epoll", "--admin", &admin, "--state-dir", "s", "--rules", name],
                &folder,
            ),
            1,
        );
        for hint in hints.iter().chain(&[name]) {
            assert!(refused.contains(hint), "{hint:?} is not in {refused:?}");
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn exit_codes_tell_wrong_use_from_failure() {
    let folder = Gateway::folder();
    for args in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        assert_eq!(run(args, &folder).status.code(), Some(0), "{args:?}");
    }
    for args in [&["serve", "--drivr", "epoll"][..], &["serve", "--driver", "iocp"], &["nothing"], &[]] {
        let output = run(args, &folder);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
    for (flag, value) in [("--rules", "missing.json"), ("--admin", "192.0.2.1:1"), ("--memory", "1M")] {
        let refused =
            sentence(&run(&["serve", "--driver", "epoll", "--state-dir", "s", flag, value], &folder), 1);
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    fs::remove_dir_all(folder).unwrap();
}
