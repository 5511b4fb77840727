//! What closing promises: nothing is reused early, nothing is named late, nothing waiting is lost.

use crate::harness::{Seen, Shard, client, discard, echo, pattern, small};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use warmpath_ring::{Payload, Ring, Sizes};

/// A send that nobody reads, and a receive, are in flight when the socket is closed. What the client then
/// reads must be an unchanged beginning of the payload, though its memory was let go by us.
pub fn closes_with_operations_in_flight<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    for round in 0..8 {
        let mut stream = TcpStream::connect(address).unwrap();
        shard.run(discard, |shard| shard.accepted == round + 1);
        let sock = shard.only();
        let bytes = pattern(16_000_000, round);
        shard.send(sock, Payload::head(bytes.clone()));
        if round % 2 == 0 {
            shard.step(Some(Duration::ZERO), &mut discard);
        }
        shard.close(sock);
        shard.settle(&small());
        // Allocations that would land on freed payload memory.
        let overwrite: Vec<Vec<u8>> = (0..4).map(|_| vec![0xee; 16_000_000]).collect();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(got.len() < bytes.len() && got[..] == bytes[..got.len()], "round {round}");
        drop(overwrite);
    }
}

/// Closes at every stage of a connection's life, with buffers in its sends; the books of the harness fail
/// on an event that names a closed socket.
pub fn never_names_a_closed_socket<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let mut streams = Vec::new();
    for round in 0..60 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&pattern(10_000, round)).unwrap();
        streams.push(stream);
        let stage = round % 6;
        shard.run(
            |shard, seen| match seen {
                Seen::Accepted(sock) if stage == 0 => shard.close(sock),
                Seen::Accepted(sock) => {
                    shard.ring.receive(sock);
                    if stage == 1 {
                        shard.close(sock);
                    }
                }
                Seen::Received(sock, held) => {
                    let len = held.len();
                    match stage {
                        2 => shard.ring.release(held),
                        _ if shard.peer(sock).sending => shard.ring.release(held),
                        _ => shard.send(sock, Payload::held(held, 0..len)),
                    }
                    if stage == 4 {
                        shard.ring.pause(sock);
                    }
                    if stage < 5 {
                        shard.close(sock);
                    }
                }
                Seen::Sent(sock, payload, _) => {
                    shard.release(payload);
                    shard.close(sock);
                }
                _ => {}
            },
            |shard| shard.accepted == round + 1 && shard.open.is_empty(),
        );
    }
    let connected = shard.connect(address);
    shard.close(connected);
    shard.run(discard, |shard| shard.ring.counters().sockets == shard.open.len() as u64);
    let left: Vec<_> = shard.open.keys().copied().collect();
    left.into_iter().for_each(|sock| shard.close(sock));
    shard.settle(&small());
}

pub fn reuses_slots_under_new_generations<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let mut generations: HashMap<u32, u32> = HashMap::new();
    for round in 0..200 {
        let talking = client(address, pattern(3000, round), false);
        shard.run(
            |shard, seen| {
                if let Seen::Accepted(sock) = seen {
                    let before = generations.insert(sock.slot, sock.generation);
                    assert!(before.is_none_or(|before| before < sock.generation));
                }
                echo(shard, seen);
            },
            |shard| shard.accepted == round + 1 && shard.open.is_empty(),
        );
        assert!(talking.join().unwrap() == pattern(3000, round));
    }
    assert!(generations.len() < 4, "slots are reused: {generations:?}");
    shard.settle(&small());
}

pub fn accepts_what_the_queue_holds_before_closing<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    for waits_before in [0, 1] {
        let mut shard = Shard::new(make(small()));
        let (listener, address) = shard.listen();
        for _ in 0..waits_before {
            shard.step(Some(Duration::ZERO), &mut echo);
        }
        let talking: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"served").unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                stream
            })
            .collect();
        shard.ring.close_listener(listener);
        shard.run(echo, |shard| shard.closed_listeners == [listener] && shard.open.is_empty());
        assert_eq!(shard.accepted, 50);
        for mut stream in talking {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "served");
        }
        let error = TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

pub fn gives_a_listener_handle_back<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (first, _) = shard.listen();
    let (second, address) = shard.listen();
    shard.ring.close_listener(first);
    shard.ring.close_listener(first);
    shard.run(discard, |shard| shard.closed_listeners == [first]);
    let (third, another) = shard.listen();
    assert_eq!(third, first);
    assert_ne!(third, second);
    let streams = [TcpStream::connect(address).unwrap(), TcpStream::connect(another).unwrap()];
    shard.run(discard, |shard| shard.accepted == 2);
    drop(streams);
}
