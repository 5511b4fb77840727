//! Many large bodies at once against a bound of memory; shared with the long ring.

use crate::harness::*;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// Reads each request to its end and tells its length.
fn sink(stop: Arc<AtomicBool>) -> (SocketAddr, thread::JoinHandle<()>) {
    let origin = Origin::start();
    let addr = origin.addr;
    let serve = move || {
        thread::scope(|scope| {
            while !stop.load(Relaxed) {
                match origin.try_accept() {
                    Some(mut engine) => drop(scope.spawn(move || {
                        while let Some(request) = engine.try_request() {
                            engine.answer(&request.body.len().to_string());
                        }
                    })),
                    None => thread::sleep(std::time::Duration::from_millis(1)),
                }
            }
        });
    };
    (addr, thread::spawn(serve))
}

/// `count` clients send 16 MiB each at once against `--memory memory`.
pub fn crowd_of_bodies(driver: Driver, count: usize, memory: &str, bytes: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let (addr, serving) = sink(stop.clone());
    let flags = ["--shards", "1", "--memory", memory];
    let gateway = Gateway::start_with(driver, &[rule(free_address(), &[addr])], &flags);
    let request = post("/v1/completions", &["Connection: close"], &body_of(16 << 20));
    let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let ask = || {
        let mut client = gateway.client();
        // A refusal may come, and the connection end, before all is written.
        let mut reader = Client::of(client.stream.try_clone().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| drop(client.stream.write_all(&request)));
            let reply = reader.try_reply(false).expect("an answer");
            match reply.status {
                200 => assert_eq!(reply.body, (16 << 20).to_string().as_bytes()),
                503 => assert_eq!(reply.error_code(), "memory_pressure"),
                other => panic!("{other}"),
            }
            let count = if reply.status == 200 { &served } else { &refused };
            count.fetch_add(1, Relaxed);
        });
    };
    thread::scope(|scope| {
        for _ in 0..count {
            thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, ask).unwrap();
        }
    });
    assert_eq!(served.load(Relaxed) + refused.load(Relaxed), count as u64);
    assert!(served.load(Relaxed) > 0);
    let resident = gateway.resident_peak();
    assert!(resident <= bytes, "{} MiB were resident", resident >> 20);
    assert_eq!(gateway.client().ask(&post("/v1/completions", &["Connection: close"], b"{}")).body, b"2");
    drop(gateway);
    stop.store(true, Relaxed);
    serving.join().unwrap();
}
