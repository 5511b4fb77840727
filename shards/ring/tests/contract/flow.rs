//! Bytes, ends and errors of healthy and failing connections.

use crate::harness::{PATIENCE, Seen, Shard, client, discard, echo, pattern, read_all, small};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use warmpath_ring::{Body, COPIED_MAX, Payload, Ring, Sizes};

pub fn echoes_every_size<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    for (round, size) in [1, 2, 4095, 4096, 4097, 8192, 100_000, 1_000_000].into_iter().enumerate() {
        let bytes = pattern(size, round);
        let talking = client(address, bytes.clone(), false);
        shard.run(echo, |shard| shard.accepted == round + 1 && shard.open.is_empty());
        assert!(talking.join().unwrap() == bytes, "{size} bytes came back changed");
    }
    shard.settle(&small());
}

/// More than both socket buffers hold, so that sends are taken in many pieces.
pub fn echoes_to_a_slow_reader<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let bytes = pattern(12_000_000, 5);
    let talking = client(address, bytes.clone(), true);
    shard.run(echo, |shard| shard.accepted == 1 && shard.open.is_empty());
    assert!(talking.join().unwrap() == bytes);
    shard.settle(&small());
}

pub fn sends_two_parts_whole<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let big = pattern(6_000_000, 9);
    let head = pattern(300, 2);
    let payloads = || {
        vec![
            Payload::head(head.clone()),
            Payload { head: head.clone(), body: Body::Static(b"static") },
            Payload { head: head.clone(), body: Body::Owned { bytes: big.clone(), range: 10..5_999_990 } },
            Payload { head: big.clone(), body: Body::Owned { bytes: head.clone(), range: 0..300 } },
            Payload { head: Vec::new(), body: Body::Static(b"only a body") },
        ]
    };
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"0123456789").unwrap();
    let reading = std::thread::spawn(move || read_all(&mut stream, true));
    let mut next = payloads().into_iter();
    let mut first = true;
    shard.run(
        |shard, seen| match seen {
            Seen::Accepted(sock) => shard.ring.receive(sock),
            // A head with what was received behind it, cut at both ends.
            Seen::Received(sock, buffer) => {
                assert!(std::mem::take(&mut first));
                shard.send(sock, Payload { head: head.clone(), body: Body::Held { buffer, range: 2..7 } });
            }
            Seen::Sent(sock, payload, ok) => {
                assert!(ok);
                shard.release(payload);
                match next.next() {
                    Some(payload) => shard.send(sock, payload),
                    None => shard.close(sock),
                }
            }
            _ => panic!("not expected"),
        },
        |shard| shard.accepted == 1 && shard.open.is_empty(),
    );
    let mut expected = [&head[..], b"23456", &head, &head, b"static", &head].concat();
    expected.extend([&big[10..5_999_990], &big, &head, b"only a body"].concat());
    shard.settle(&small());
    assert!(reading.join().unwrap() == expected);
}

/// A short body gives its buffer back at once, a long one when it was sent; the bytes are the same.
pub fn joins_a_head_and_received_bytes<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let sizes = Sizes { buffer_bytes: 16384, ..small() };
    let mut shard = Shard::new(make(sizes));
    let (_, address) = shard.listen();
    for (round, len) in [1, COPIED_MAX, COPIED_MAX + 1, 16384].into_iter().enumerate() {
        let bytes = pattern(len, round);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        shard.run(
            |shard, seen| match seen {
                Seen::Accepted(sock) => shard.ring.receive(sock),
                Seen::Received(sock, held) => {
                    assert_eq!(held.len() as usize, len, "loopback delivers one write whole");
                    let payload = shard.ring.join(b"head".to_vec(), held, 0..len as u32);
                    assert_eq!(payload.len(), 4 + len);
                    assert_eq!(shard.ring.counters().buffers_free == 64, len <= COPIED_MAX);
                    shard.send(sock, payload);
                }
                Seen::Sent(sock, payload, _) => {
                    shard.release(payload);
                    shard.close(sock);
                }
                _ => panic!("not expected"),
            },
            |shard| shard.accepted == round + 1 && shard.open.is_empty(),
        );
        shard.settle(&sizes);
        assert!(read_all(&mut stream, false) == [b"head", &bytes[..]].concat());
    }
}

pub fn tells_the_end_after_all_bytes<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let bytes = pattern(1_000_001, 3);
    let mut stream = TcpStream::connect(address).unwrap();
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || stream.write_all(&sent).unwrap());
    // The books assert that no bytes follow the end.
    shard.run(discard, |shard| shard.open.values().any(|peer| peer.ended));
    writing.join().unwrap();
    let sock = shard.only();
    assert!(shard.peer(sock).got == bytes);
    shard.close(sock);
    shard.settle(&small());
}

pub fn tells_a_reset<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let stream = TcpStream::connect(address).unwrap();
    shard.run(discard, |shard| shard.accepted == 1);
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    shard.run(discard, |shard| shard.open.values().any(|peer| peer.failed.is_some()));
    let sock = shard.only();
    assert_eq!(shard.peer(sock).failed, Some(rustix::io::Errno::CONNRESET.raw_os_error()));
    // A send on it fails, and gives the payload back.
    shard.send(sock, Payload::head(b"too late".to_vec()));
    let mut failed = false;
    shard
        .run(|_, seen| failed |= matches!(seen, Seen::Sent(_, _, false)), |shard| shard.peer(sock).sent == 1);
    assert!(failed);
    shard.close(sock);
    shard.settle(&small());
}

pub fn tells_a_refused_connection<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut shard = Shard::new(make(small()));
    let sock = shard.connect(address);
    shard.run(discard, |shard| shard.peer(sock).connected.is_some());
    assert_eq!(shard.peer(sock).connected, Some(Err(rustix::io::Errno::CONNREFUSED.raw_os_error())));
    shard.close(sock);
    shard.settle(&small());
}

pub fn connects_and_talks<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let engine = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut shard = Shard::new(make(small()));
    let sock = shard.connect(engine.local_addr().unwrap());
    // Asked before it is connected: armed as soon as it is.
    shard.ring.receive(sock);
    let serving = std::thread::spawn(move || {
        let mut stream = engine.accept().unwrap().0;
        let mut question = [0; 8];
        stream.read_exact(&mut question).unwrap();
        stream.write_all(b"answer").unwrap();
        question
    });
    shard.run(discard, |shard| shard.peer(sock).connected.is_some());
    assert_eq!(shard.peer(sock).connected, Some(Ok(())));
    shard.send(sock, Payload::head(b"question".to_vec()));
    shard.run(discard, |shard| shard.peer(sock).ended);
    assert_eq!(shard.peer(sock).got, b"answer");
    assert_eq!(&serving.join().unwrap(), b"question");
    shard.close(sock);
    shard.settle(&small());
}

pub fn ends_its_side_after_the_send_in_flight<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    shard.run(discard, |shard| shard.accepted == 1);
    let sock = shard.only();
    let bytes = pattern(8_000_000, 1);
    shard.send(sock, Payload::head(bytes.clone()));
    shard.ring.shutdown_write(sock);
    let reading = std::thread::spawn(move || {
        let got = read_all(&mut stream, true);
        stream.write_all(b"still open").unwrap();
        got
    });
    shard.run(discard, |shard| shard.peer(sock).ended);
    assert!(reading.join().unwrap() == bytes);
    assert_eq!(shard.peer(sock).got, b"still open");
    assert_eq!(shard.peer(sock).sent, 1);
}

pub fn pauses_and_goes_on<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let (_, address) = shard.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    shard.run(discard, |shard| shard.accepted == 1);
    let sock = shard.only();
    stream.write_all(b"first").unwrap();
    shard.run(discard, |shard| shard.peer(sock).got.len() == 5);
    shard.ring.pause(sock);
    shard.step(Some(Duration::ZERO), &mut discard);
    let bytes = pattern(300_000, 4);
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || {
        stream.write_all(&sent).unwrap();
        stream
    });
    for _ in 0..3 {
        assert_eq!(shard.step(Some(PATIENCE), &mut discard), 0, "bytes came through a pause");
    }
    shard.ring.receive(sock);
    shard.run(discard, |shard| shard.peer(sock).got.len() == 300_005);
    assert!(shard.peer(sock).got[5..] == bytes[..]);
    // A change of mind within one turn loses and repeats nothing.
    let mut stream = writing.join().unwrap();
    for _ in 0..20 {
        shard.ring.pause(sock);
        shard.ring.receive(sock);
        shard.ring.receive(sock);
        stream.write_all(b"x").unwrap();
        shard.step(Some(Duration::ZERO), &mut discard);
    }
    shard.run(discard, |shard| shard.peer(sock).got.len() == 300_025);
}

pub fn times_out<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let before = shard.ring.now();
    assert_eq!(shard.step(Some(Duration::from_millis(20)), &mut discard), 0);
    assert!(shard.ring.now() - before >= 20_000_000, "returned before its time");
    assert_eq!(shard.step(Some(Duration::ZERO), &mut discard), 0);
}

pub fn is_woken_by_another_thread<R: Ring>(make: &dyn Fn(Sizes) -> R) {
    let mut shard = Shard::new(make(small()));
    let waker = shard.ring.waker();
    let (tell, told) = std::sync::mpsc::channel();
    let waking = std::thread::spawn(move || {
        while told.recv().is_ok() {
            waker.wake();
        }
    });
    for round in 1..=50 {
        tell.send(()).unwrap();
        // For ever: only the wake ends it.
        shard.step(None, &mut discard);
        assert_eq!(shard.woken, round);
    }
    drop(tell);
    waking.join().unwrap();
    shard.ring.waker().wake();
    shard.ring.waker().wake();
    shard.run(discard, |shard| shard.woken == 51);
    assert_eq!(shard.step(Some(Duration::ZERO), &mut discard), 0, "two wakes before a wait are one");
}
