//! Figures of the kernel's traps, for the kernel notes (kernel-notes/0009 and others): how uneven SO_REUSEPORT is, what closing a listener
//! loses, what a wake costs, how many turns a long send takes, how many rings fit into the locked-memory limit.
//!
//! `cargo run --release -p warmpath-ring --example traps -- reuseport|listener|wake|send|iowait|rings`
//!
//! `rings` says something only as a user without CAP_IPC_LOCK.
#![allow(clippy::unwrap_used)] // a bench may stop at the first fault

use rustix::net::accept;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use warmpath_ring::{Epoll, Event, Payload, Ring, Sizes, Uring, sock};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("reuseport") => reuseport(),
        Some("listener") => listener(),
        Some("wake") => wake(),
        Some("send") => send(),
        Some("iowait") => iowait(),
        Some("rings") => rings(),
        _ => eprintln!("one of: reuseport, listener, wake, send, iowait, rings"),
    }
}

fn accepted(listener: &OwnedFd) -> usize {
    std::iter::from_fn(|| accept(listener).ok()).count()
}

/// Connections over four listeners: max ÷ mean, median and worst of 40 tries.
fn reuseport() {
    for connections in [16, 64, 1000] {
        let mut ratios: Vec<f64> = (0..40).map(|_| imbalance(connections)).collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{connections} connections over 4 listeners: max/mean median {:.2}, worst {:.2}, best {:.2}",
            ratios[20], ratios[39], ratios[0]
        );
    }
}

fn imbalance(connections: usize) -> f64 {
    let first = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = sock::local_address(&first).unwrap();
    let mut listeners = vec![first];
    listeners.extend((0..3).map(|_| sock::listen(address).unwrap()));
    let clients: Vec<_> = (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect();
    let counts: Vec<usize> = listeners.iter().map(accepted).collect();
    assert_eq!(counts.iter().sum::<usize>(), clients.len());
    *counts.iter().max().unwrap() as f64 * 4.0 / connections as f64
}

/// Fifty clients wait in a listener's queue when it is closed: how many lose their connection.
fn listener() {
    let plain = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let clients = queue_up(sock::local_address(&plain).unwrap());
    drop(plain);
    println!("closed at once: {} of 50 connections lost", lost(clients));
    for (name, mut ring) in drivers() {
        let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = sock::local_address(&socket).unwrap();
        let listener = ring.listen(socket).unwrap();
        let clients = queue_up(address);
        ring.close_listener(listener);
        let mut events = Vec::new();
        while !events.iter().any(|event| matches!(event, Event::ListenerClosed { .. })) {
            ring.wait(None, &mut events).unwrap();
        }
        let answering = std::thread::spawn(move || lost(clients));
        // Each gets a FIN when its socket is closed: an orderly end, not a reset.
        for event in events {
            if let Event::Accepted { sock, .. } = event {
                ring.close(sock);
            }
        }
        ring.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        println!("{name}, close_listener: {} of 50 connections lost", answering.join().unwrap());
    }
}

fn drivers() -> Vec<(&'static str, Box<dyn Ring>)> {
    let mut drivers: Vec<(&'static str, Box<dyn Ring>)> =
        vec![("epoll", Box::new(Epoll::new(Sizes::default()).unwrap()))];
    if let Ok(uring) = Uring::new(Sizes::default()) {
        drivers.push(("uring", Box::new(uring)));
    }
    drivers
}

fn queue_up(address: SocketAddr) -> Vec<TcpStream> {
    (0..50).map(|_| TcpStream::connect(address).unwrap()).collect()
}

fn lost(clients: Vec<TcpStream>) -> usize {
    clients.into_iter().filter_map(|mut client| client.read(&mut [0]).err()).count()
}

/// What a wake costs the waking thread, and a wake with the turn it causes.
fn wake() {
    const TIMES: u32 = 200_000;
    for (name, mut ring) in drivers() {
        let waker = ring.waker();
        waker.wake();
        let start = Instant::now();
        (0..TIMES).for_each(|_| waker.wake());
        let again = start.elapsed() / TIMES;
        let mut events = Vec::new();
        ring.wait(None, &mut events).unwrap();
        let start = Instant::now();
        for _ in 0..TIMES {
            waker.wake();
            events.clear();
            ring.wait(None, &mut events).unwrap();
        }
        println!("{name}: wake of a rung bell {again:?}; wake and turn {:?}", start.elapsed() / TIMES);
    }
}

/// Turns of the shard while 16 MiB go to a reader that takes 64 KiB at a time: median of 20 sends.
fn send() {
    const LEN: usize = 16 << 20;
    for (name, mut ring) in drivers() {
        let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = sock::local_address(&socket).unwrap();
        ring.listen(socket).unwrap();
        let reading = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut piece = vec![0; 64 << 10];
            while stream.read(&mut piece).unwrap() > 0 {}
        });
        let mut turns: Vec<u64> = Vec::new();
        let mut payload = Some(Payload::head(vec![1; LEN]));
        let mut before = 0;
        let mut to = None;
        while turns.len() < 20 {
            let mut events = Vec::new();
            ring.wait(None, &mut events).unwrap();
            for event in events {
                match event {
                    Event::Accepted { sock, .. } => to = Some(sock),
                    Event::Sent { payload: back, result, .. } => {
                        result.unwrap();
                        turns.push(ring.counters().enters - before);
                        payload = Some(back);
                    }
                    other => panic!("{other:?}"),
                }
            }
            if let (Some(sock), Some(payload)) = (to, payload.take()) {
                before = ring.counters().enters;
                ring.send(sock, payload);
            }
        }
        drop(ring);
        reading.join().unwrap();
        turns.sort_unstable();
        println!("{name}: {} enters for a send of 16 MiB to a slower reader", turns[10]);
    }
}

/// Tasks that the machine counts as waiting for a disk while eight shards wait for clients.
fn iowait() {
    let blocked = || -> i64 {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let line = stat.lines().find(|line| line.starts_with("procs_blocked")).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let before = blocked();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                let mut uring = Uring::new(Sizes::default()).unwrap();
                uring.listen(sock::listen("127.0.0.1:0".parse().unwrap()).unwrap()).unwrap();
                uring.wait(Some(Duration::from_millis(500)), &mut Vec::new()).unwrap();
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(250));
    println!("8 idle rings: {} more tasks in iowait", blocked() - before);
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Rings of the default sizes, and of others, until the kernel refuses.
fn rings() {
    for (submissions, completions) in [(256, 2048), (1024, 8192), (4096, 8192)] {
        let sizes = Sizes { submissions, completions, ..Sizes::default() };
        let mut rings = Vec::new();
        let fault = loop {
            match Uring::new(sizes) {
                Ok(_) if rings.len() == 1000 => break "no limit met".to_string(),
                Ok(ring) => rings.push(ring),
                Err(fault) => break fault.to_string(),
            }
        };
        println!("SQ {submissions}, CQ {completions}: {} rings, then: {fault}", rings.len());
        // The kernel gives the locked memory back a little later.
        drop(rings);
        std::thread::sleep(Duration::from_millis(500));
    }
    let _ = std::io::stdout().flush();
}
