//! Tiny queues and few buffers: the rare paths as the ordinary ones.

use crate::harness::{Seen, Shard, client, echo, pattern, small};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use warmpath_ring::{Held, Ring, Sizes};

fn fifty_clients<R: Ring>(shard: &mut Shard<R>, len: usize) {
    let (_, address) = shard.listen();
    let talking: Vec<_> = (0..50).map(|seed| client(address, pattern(len, seed), seed % 5 == 0)).collect();
    shard.run(echo, |shard| shard.accepted == 50 && shard.open.is_empty());
    for (seed, talking) in talking.into_iter().enumerate() {
        assert!(talking.join().unwrap() == pattern(len, seed), "client {seed}");
    }
}

pub fn works_with_eight_completions<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let sizes = Sizes { submissions: 8, completions: 8, ..small() };
    let mut shard = Shard::new(make(sizes));
    fifty_clients(&mut shard, 60_000);
    shard.settle(&sizes);
}

pub fn serves_all_with_four_buffers<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let sizes = Sizes { buffers: 4, ..small() };
    let mut shard = Shard::new(make(sizes));
    fifty_clients(&mut shard, 60_000);
    let counters = shard.ring.counters();
    assert!(counters.starved > 0, "nobody starved: {counters:?}");
    // 50 × 60,000 bytes in buffers of 4,096 take 750 fillings at least; each may cost a few enters, but
    // sockets that wait for a buffer must not.
    assert!(counters.enters < 30_000, "{counters:?}");
    shard.settle(&sizes);
}

/// Every buffer can be in use at once, however many the driver shows the kernel at first.
pub fn fills_nearly_all_buffers_at_once<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let sizes = Sizes { buffers: 1024, buffer_bytes: 256, ..small() };
    let mut shard = Shard::new(make(sizes));
    let (_, address) = shard.listen();
    let streams: Vec<_> = (0..10)
        .map(|seed| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&pattern(20_000, seed)).unwrap();
            stream
        })
        .collect();
    let mut held = Vec::new();
    shard.run(
        |shard, seen| match seen {
            Seen::Accepted(sock) => shard.ring.receive(sock),
            Seen::Received(_, buffer) => held.push(buffer),
            _ => panic!("not expected"),
        },
        |shard| shard.open.len() == 10 && shard.open.values().all(|peer| peer.got.len() == 20_000),
    );
    assert!(held.len() >= 782);
    held.into_iter().for_each(|held| shard.ring.release(held));
    assert_eq!(shard.ring.counters().buffers_free, 1024);
    drop(streams);
}

/// All buffers are held, all sockets have bytes: waiting must cost nothing.
pub fn does_not_spin_without_buffers<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let (mut shard, _streams, held) = starved_shard(make);
    let before = shard.ring.counters().enters;
    for _ in 0..5 {
        assert_eq!(shard.step(Some(Duration::from_millis(40)), &mut echo), 0);
    }
    let enters = shard.ring.counters().enters - before;
    assert!(enters <= 10, "{enters} enters in 5 idle waits");
    held.into_iter().for_each(|held| shard.ring.release(held));
}

/// One buffer, returned again and again, serves every socket in the end.
pub fn wakes_the_starved_when_a_buffer_returns<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let (mut shard, _streams, mut held) = starved_shard(make);
    let one = held.pop().unwrap();
    shard.ring.release(one);
    shard.run(
        |shard, seen| match seen {
            Seen::Received(_, held) => shard.ring.release(held),
            _ => panic!("not expected"),
        },
        |shard| shard.open.values().all(|peer| peer.got.len() == 6000),
    );
    held.into_iter().for_each(|held| shard.ring.release(held));
}

/// Fifty sockets with 6,000 bytes each, four buffers, all held.
fn starved_shard<R: Ring>(make: &dyn Fn(Sizes) -> R) -> (Shard<R>, Vec<TcpStream>, Vec<Held>) {
    let mut shard = Shard::new(make(Sizes { buffers: 4, ..small() }));
    let (_, address) = shard.listen();
    let streams: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&pattern(6000, 0)).unwrap();
            stream
        })
        .collect();
    let mut held = Vec::new();
    let mut keep = |shard: &mut Shard<R>, seen| match seen {
        Seen::Accepted(sock) => shard.ring.receive(sock),
        Seen::Received(_, buffer) => held.push(buffer),
        _ => panic!("not expected"),
    };
    while shard.step(Some(Duration::from_millis(100)), &mut keep) > 0 {}
    assert_eq!((shard.accepted, held.len()), (50, 4));
    assert_eq!(shard.ring.counters().buffers_free, 0);
    (shard, streams, held)
}
