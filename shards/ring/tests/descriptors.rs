//! Descriptors: none is left when a ring goes, and running out of them is survived without a spin.
//!
//! One test in a process of its own: it counts the process's descriptors and lowers their limit.
#![allow(clippy::unwrap_used)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use warmpath_ring::{Epoll, Event, Payload, Ring, Sizes, Uring, sock, why_not_uring};

fn sizes() -> Sizes {
    Sizes { submissions: 32, completions: 64, buffers: 16, buffer_bytes: 4096 }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn both_drivers() {
    leaves_none(&|| Epoll::new(sizes()).unwrap());
    survives_running_out(&|| Epoll::new(sizes()).unwrap());
    if let Some((fault, cure)) = why_not_uring() {
        return eprintln!("not_run: {fault}. {cure}");
    }
    leaves_none(&|| Uring::new(sizes()).unwrap());
    survives_running_out(&|| Uring::new(sizes()).unwrap());
}

fn listen<R: Ring>(ring: &mut R) -> SocketAddr {
    let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = sock::local_address(&socket).unwrap();
    ring.listen(socket).unwrap();
    address
}

/// Dropped with connections in every state: accepted and told, accepted and not told, connecting, sending.
fn leaves_none<R: Ring>(make: &dyn Fn() -> R) {
    let before = open_descriptors();
    let mut ring = make();
    let address = listen(&mut ring);
    let mut told = TcpStream::connect(address).unwrap();
    let mut events = Vec::new();
    ring.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
    let [Event::Accepted { sock, .. }] = events[..] else { panic!("{events:?}") };
    ring.receive(sock);
    ring.send(sock, Payload::head(vec![7; 30_000_000]));
    ring.wait(Some(Duration::ZERO), &mut events).unwrap();
    let not_told: Vec<_> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
    ring.connect(address).unwrap();
    drop(ring);
    // The socket is really closed, not kept by an operation: the client comes to an end.
    let mut got = Vec::new();
    let _ = told.read_to_end(&mut got);
    assert!(got.iter().all(|byte| *byte == 7));
    drop((told, not_told));
    assert_eq!(open_descriptors(), before);
}

fn survives_running_out<R: Ring>(make: &dyn Fn() -> R) {
    let mut ring = make();
    let address = listen(&mut ring);
    let mut streams: Vec<_> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    let before = getrlimit(Resource::Nofile);
    // Room for two of the six (reading the folder takes one descriptor itself).
    let limit = open_descriptors() as u64 - 1 + 2;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    let mut events = Vec::new();
    let started = ring.now();
    while !events.iter().any(|event| matches!(event, Event::AcceptFailed { .. })) {
        ring.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
    }
    let enters = ring.counters().enters;
    let mut idle = Vec::new();
    ring.wait(Some(Duration::from_millis(250)), &mut idle).unwrap();
    assert!(ring.now() > started);
    assert!(ring.counters().enters - enters < 10, "it spins: {:?}", ring.counters());
    setrlimit(Resource::Nofile, before).unwrap();
    let accepted = |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Accepted { .. })).count();
    events.append(&mut idle);
    while accepted(&events) < 6 {
        let count = events.len();
        ring.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        assert!(events.len() > count, "the others were never accepted");
    }
    streams.iter_mut().for_each(|stream| stream.write_all(b"alive").unwrap());
}
