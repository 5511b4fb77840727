//! Clients that mean ill, or are just slow: they must cost nobody else anything.

use crate::harness::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use warmpath_perf::engine::Timing;

on_both_drivers!(
    clients_that_read_nothing_harm_nobody,
    bodies_share_the_memory_there_is,
    a_slow_head_is_cut_and_harms_nobody,
    a_flood_of_pipelined_requests_is_held_back,
);

/// Raises the limit of open files; how many clients fit under it, up to `wanted`.
fn clients_that_fit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Each has up to two descriptors in this process and two in the gateway; tests run side by side.
    let fit = wanted.min(now.saturating_sub(2_000) / 6);
    if fit < wanted {
        println!("not_run: {fit} clients instead of {wanted}, since only {now} files may be open");
    }
    fit
}

/// Answers each connection with events until the gateway takes no more, and keeps it open.
fn firehose(stop: Arc<AtomicBool>) -> (SocketAddr, Arc<AtomicU64>, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let stuck = Arc::new(AtomicU64::new(0));
    let count = stuck.clone();
    let pour = move || {
        let event = format!("data: {}\n\n", "x".repeat(16_000));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len()).repeat(4);
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut open: Vec<(TcpStream, bool)> = Vec::new();
        while !stop.load(Relaxed) {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.set_nodelay(true).unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                stream.write_all(head).unwrap();
                stream.set_nonblocking(true).unwrap();
                open.push((stream, false));
            }
            for (stream, full) in open.iter_mut().filter(|(_, full)| !full) {
                // A short write is fine: nobody reads this far.
                if stream.write(chunk.as_bytes()).is_err() {
                    *full = true;
                    count.fetch_add(1, Relaxed);
                }
            }
            thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    (addr, stuck, thread::spawn(pour))
}

fn clients_that_read_nothing_harm_nobody(driver: Driver) {
    let silent = clients_that_fit(2_000);
    let healthy = silent / 4;
    let stop = Arc::new(AtomicBool::new(false));
    let (hose, stuck, pouring) = firehose(stop.clone());
    let itl = std::time::Duration::from_millis(30);
    let engine = engine_with(|c| c.timing = Timing { itl, ..c.timing });
    let vip = free_address();
    // Listeners of the standard library queue 128 connections: beyond, a handshake takes a second.
    let patient = json!({"timeoutMemberConnect": 30_000});
    let poured = json!({"timeoutMemberConnect": 30_000, "path_prefix": "/hose"});
    let rules = [rule_with(vip, &[engine.addr], patient), rule_with(vip, &[hose], poured)];
    let gateway = Gateway::start(driver, &rules);
    let mut kept = Vec::new();
    for _ in 0..silent {
        let mut client = gateway.client();
        rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 4096).unwrap();
        client.send(&get("/hose", &[]));
        kept.push(client);
    }
    let ask = || {
        let mut client = gateway.client();
        let reply = client.ask(&post("/v1/chat/completions", &[], &chat_stream("healthy", 20)));
        assert!(
            reply.status == 200 && reply.whole,
            "{} {:?}",
            reply.head,
            String::from_utf8_lossy(&reply.body)
        );
        assert_eq!(reply.events().last().unwrap(), "[DONE]");
    };
    let many = || {
        thread::scope(|scope| {
            for _ in 0..healthy {
                thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, ask).unwrap();
            }
        });
    };
    many();
    wait_until("all who read nothing are held back", || stuck.load(Relaxed) == silent);
    many();
    assert_eq!(engine.stats().finished, 2 * healthy);
    let resident = gateway.resident_peak();
    assert!(resident < 1 << 30, "{} MiB were resident, beyond the default of --memory", resident >> 20);
    drop(kept);
    wait_until("they are forgotten", || gateway.sum("active") == 0);
    stop.store(true, Relaxed);
    pouring.join().unwrap();
}

fn bodies_share_the_memory_there_is(driver: Driver) {
    crate::crowd::crowd_of_bodies(driver, 48, "320M", 320 << 20);
}

fn a_slow_head_is_cut_and_harms_nobody(driver: Driver) {
    let engine = engine();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[engine.addr])]);
    let mut slow: Vec<_> = (0..50).map(|_| gateway.client()).collect();
    slow.iter_mut().for_each(|client| client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHo"));
    // A byte now and then does not buy more time.
    while gateway.count("slow_clients") == 0 {
        for client in &mut slow {
            let _ = client.stream.write_all(b"s");
        }
        let reply = gateway.client().ask(&post("/v1/chat/completions", &[], &chat("x")));
        assert_eq!(reply.status, 200);
        thread::sleep(std::time::Duration::from_millis(500));
    }
    for client in &mut slow {
        let reply = client.reply();
        assert_eq!((reply.status, reply.error_code().as_str()), (408, "head_timeout"));
        client.expect_end();
    }
    assert_eq!(gateway.count("slow_clients"), 50);
}

fn a_flood_of_pipelined_requests_is_held_back(driver: Driver) {
    let origin = Origin::start();
    let gateway = Gateway::start(driver, &[rule(free_address(), &[origin.addr])]);
    let mut client = gateway.client();
    client.send(&get("/first", &[]));
    let mut engine = origin.accept();
    engine.request();
    // While the first is not answered, what is sent ahead piles up at the client, not in the gateway.
    let before = gateway.resident();
    client.stream.set_nonblocking(true).unwrap();
    let flood = get("/more", &[]).repeat(1_000);
    let (mut sent, mut idle) = (0u64, 0);
    while idle < 50 && sent < 256 << 20 {
        match client.stream.write(&flood) {
            Ok(wrote) => (sent, idle) = (sent + wrote as u64, 0),
            Err(_) => {
                idle += 1;
                thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
    assert!(sent < 64 << 20, "{} MiB were taken", sent >> 20);
    assert!(gateway.resident() < before + (16 << 20));
    client.stream.set_nonblocking(false).unwrap();
    engine.answer("one");
    assert_eq!(client.reply().body, b"one");
    assert!(engine.request().lines[0].starts_with("GET /more "));
    engine.answer("two");
    assert_eq!(client.reply().body, b"two");
}
