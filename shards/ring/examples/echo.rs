//! CPU of one echo round trip, two drivers side by side: 64 connections, 1,024 bytes, interleaved runs,
//! medians.
//!
//! `cargo run --release -p warmpath-ring --example echo -- [SECONDS_PER_RUN [DRIVER [DRIVER]]]`, a driver
//! being `uring` or `epoll`, also with sizes: `uring,completions=8,buffers=32`.
//!
//! The server has one core to itself and the clients (an epoll driver on a thread) another, so the figure
//! is the server thread's CPU time, kernel and user, over the round trips. Only the ratio travels to other
//! machines. Read kernel-notes/0001-defer-taskrun.md for what was found here.
#![allow(clippy::unwrap_used)] // a bench may stop at the first fault

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use warmpath_ring::{Body, Epoll, Event, Payload, Ring, Sizes, Uring, clock, sock, why_not_uring};

const CONNECTIONS: usize = 64;
const BYTES: usize = 1024;
const ROUNDS: usize = 5;

/// What one run measured.
struct Run {
    cpu_ns: f64,
    trips_per_second: f64,
    /// Enters, re-arms, overflows and starvations for each round trip.
    rare: [f64; 4],
}

/// A driver and its sizes, as written on the command line.
fn parse(text: &str) -> (bool, Sizes) {
    let (name, options) = text.split_once(',').unwrap_or((text, ""));
    let mut sizes = Sizes::default();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (member, value) = option.split_once('=').unwrap();
        match member {
            "submissions" => sizes.submissions = value.parse().unwrap(),
            "completions" => sizes.completions = value.parse().unwrap(),
            "buffers" => sizes.buffers = value.parse().unwrap(),
            "buffer_bytes" => sizes.buffer_bytes = value.parse().unwrap(),
            _ => panic!("{member}: submissions, completions, buffers or buffer_bytes"),
        }
    }
    assert!(["uring", "epoll"].contains(&name), "{name}: uring or epoll");
    (name == "uring", sizes)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.first().map_or(1.0, |text| text.parse().unwrap());
    let names =
        [arguments.get(1).map_or("uring", String::as_str), arguments.get(2).map_or("epoll", String::as_str)];
    let length = Duration::from_secs_f64(seconds);
    if let Some((fault, cure)) = why_not_uring() {
        return println!("not_run: {fault}. {cure}");
    }
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (name, runs) in names.iter().zip(&mut runs) {
            let (uring, sizes) = parse(name);
            runs.push(match uring {
                true => run(|| Uring::new(sizes).unwrap(), length),
                false => run(|| Epoll::new(sizes).unwrap(), length),
            });
        }
    }
    let [first, second] = runs;
    let (first, second) = (report(names[0], first), report(names[1], second));
    println!("{} / {}: {:.3}", names[0], names[1], first / second);
}

fn report(name: &str, mut runs: Vec<Run>) -> f64 {
    runs.sort_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns));
    let median = &runs[runs.len() / 2];
    let [enters, rearmed, overflowed, starved] = median.rare;
    println!(
        "{name}: {:.0} ns CPU a round trip [{:.0} to {:.0}], {:.0} trips/s; for each trip {enters:.3} enters, \
         {rearmed:.5} re-arms, {overflowed:.5} overflows, {starved:.5} starved",
        median.cpu_ns,
        runs[0].cpu_ns,
        runs[runs.len() - 1].cpu_ns,
        median.trips_per_second,
    );
    median.cpu_ns
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // One core only: then both share it, and the ratio still means something.
    let _ = sched_setaffinity(None, &cores);
}

fn run<R: Ring>(make: impl FnOnce() -> R + Send, length: Duration) -> Run {
    let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = sock::local_address(&socket).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let trips = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| clients(address, &stop, &trips));
        let server = scope.spawn(|| {
            pin(0);
            let mut ring = make();
            ring.listen(socket).unwrap();
            serve(&mut ring, &trips, length)
        });
        let run = server.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        run
    })
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Echoes until `length` is over, counted from the moment when all connections are warm.
fn serve<R: Ring>(ring: &mut R, trips: &AtomicU64, length: Duration) -> Run {
    while trips.load(Ordering::Relaxed) < 10 * CONNECTIONS as u64 {
        turn(ring);
    }
    let (cpu, count, before) = (cpu_ns(), trips.load(Ordering::Relaxed), ring.counters());
    let end = clock::now() + length.as_nanos() as u64;
    while clock::now() < end {
        turn(ring);
    }
    let count = (trips.load(Ordering::Relaxed) - count) as f64;
    let after = ring.counters();
    let rare = [
        after.enters - before.enters,
        after.rearmed - before.rearmed,
        after.overflowed - before.overflowed,
        after.starved - before.starved,
    ];
    Run {
        cpu_ns: (cpu_ns() - cpu) as f64 / count,
        trips_per_second: count / length.as_secs_f64(),
        rare: rare.map(|n| n as f64 / count),
    }
}

fn turn<R: Ring>(ring: &mut R) {
    let mut events = Vec::with_capacity(256);
    ring.wait(Some(Duration::from_millis(100)), &mut events).unwrap();
    for event in events {
        match event {
            Event::Accepted { sock, .. } => ring.receive(sock),
            Event::Received { sock, buffer } => {
                let len = buffer.len();
                ring.send(sock, Payload::held(buffer, 0..len));
            }
            Event::Sent { payload, .. } => {
                if let Body::Held { buffer, .. } = payload.body {
                    ring.release(buffer);
                }
            }
            Event::Ended { sock } | Event::Failed { sock, .. } => ring.close(sock),
            _ => {}
        }
    }
}

/// Sixty-four clients in a closed loop: each sends anew when its answer is whole.
fn clients(address: SocketAddr, stop: &AtomicBool, trips: &AtomicU64) {
    pin(1);
    static MESSAGE: [u8; BYTES] = [b'x'; BYTES];
    let mut ring = Epoll::new(Sizes::default()).unwrap();
    for _ in 0..CONNECTIONS {
        let sock = ring.connect(address).unwrap();
        ring.receive(sock);
    }
    let mut missing = vec![BYTES; CONNECTIONS];
    let message = || Payload { head: Vec::new(), body: Body::Static(&MESSAGE) };
    let mut events = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        ring.wait(Some(Duration::from_millis(10)), &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Connected { sock, result } => {
                    result.unwrap();
                    ring.send(sock, message());
                }
                Event::Received { sock, buffer } => {
                    let missing = &mut missing[sock.slot as usize];
                    *missing -= buffer.len() as usize;
                    ring.release(buffer);
                    if *missing == 0 {
                        *missing = BYTES;
                        trips.fetch_add(1, Ordering::Relaxed);
                        ring.send(sock, message());
                    }
                }
                _ => {}
            }
        }
    }
}
