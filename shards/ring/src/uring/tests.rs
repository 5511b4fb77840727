//! What only this driver can get wrong: completions that come late, queues that overflow.

use super::token::{Op, pack};
use super::{Receive, Uring, why_not_uring};
use crate::{Body, Event, Held, Payload, Ring, Sizes, Sock, sock};
use rustix::net::sockopt;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn uring(completions: u32) -> Option<Uring> {
    if let Some((fault, cure)) = why_not_uring() {
        eprintln!("not_run: {fault}. {cure}");
        return None;
    }
    Some(Uring::new(Sizes { submissions: 32, completions, buffers: 128, buffer_bytes: 512 }).unwrap())
}

fn listen(uring: &mut Uring) -> SocketAddr {
    let socket = sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = sock::local_address(&socket).unwrap();
    uring.listen(socket).unwrap();
    address
}

fn wait(uring: &mut Uring) -> Vec<Event> {
    let mut events = Vec::new();
    uring.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
    events
}

fn accept(uring: &mut Uring, address: SocketAddr) -> (Sock, TcpStream) {
    let stream = TcpStream::connect(address).unwrap();
    let events = wait(uring);
    let [Event::Accepted { sock, .. }] = events[..] else { panic!("{events:?}") };
    (sock, stream)
}

#[test]
fn a_slot_is_kept_until_its_last_completion() {
    let Some(mut uring) = uring(64) else { return };
    let address = listen(&mut uring);
    let (first, _stream) = accept(&mut uring, address);
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = elsewhere.local_addr().unwrap();
    uring.receive(first);
    uring.close(first);
    assert_eq!(uring.conns.get_mut(first).map(|conn| conn.in_flight), Some(2), "a receive and a cancel");
    let second = uring.connect(address).unwrap();
    assert_ne!(second.slot, first.slot, "the slot is not free yet");
    while uring.conns.get_mut(first).is_some() {
        assert!(wait(&mut uring).iter().all(|event| event.sock() != Some(first)));
    }
    let third = uring.connect(address).unwrap();
    assert_eq!((third.slot, third.generation), (first.slot, first.generation + 1));
}

#[test]
fn a_completion_of_an_earlier_tenant_changes_nothing() {
    let Some(mut uring) = uring(64) else { return };
    let address = listen(&mut uring);
    let (first, _stream) = accept(&mut uring, address);
    uring.close(first);
    let (second, _another) = accept(&mut uring, address);
    assert_eq!(second.slot, first.slot);
    uring.receive(second);
    let free = uring.counters().buffers_free;
    for op in [Op::Receive, Op::Send, Op::Connect, Op::Cancel] {
        for result in [0, 5, -rustix::io::Errno::CANCELED.raw_os_error()] {
            uring.complete(pack(op, first), result, 0);
        }
    }
    assert!(uring.ready.is_empty(), "{:?}", uring.ready);
    let conn = uring.conns.get_mut(second).unwrap();
    assert_eq!((conn.in_flight, conn.receive, conn.ended), (1, Receive::Armed, false));
    assert_eq!(uring.counters().buffers_free, free);
}

#[test]
fn a_full_completion_queue_loses_nothing() {
    let Some(mut uring) = uring(8) else { return };
    let address = listen(&mut uring);
    let mut streams: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut socks = Vec::new();
    while socks.len() < 50 {
        socks.extend(wait(&mut uring).iter().filter_map(Event::sock));
    }
    streams.iter_mut().for_each(|stream| stream.write_all(b"all at once").unwrap());
    // All fifty have bytes when their receives are submitted together: fifty completions for eight entries.
    socks.iter().for_each(|sock| uring.receive(*sock));
    let mut received = 0;
    while received < 50 {
        for event in wait(&mut uring) {
            let Event::Received { buffer, .. } = event else { panic!("{event:?}") };
            assert_eq!(uring.bytes(&buffer), b"all at once");
            uring.release(buffer);
            received += 1;
        }
    }
    assert!(uring.counters().overflowed > 0, "{:?}", uring.counters());
}

#[test]
fn a_payload_lives_until_its_send_has_ended() {
    let Some(mut uring) = uring(64) else { return };
    let address = listen(&mut uring);
    let (sock, mut stream) = accept(&mut uring, address);
    uring.receive(sock);
    stream.write_all(&[9; 100]).unwrap();
    let events = wait(&mut uring);
    let Ok([Event::Received { buffer, .. }]) = <[Event; 1]>::try_from(events) else { panic!() };
    let id = buffer.id;
    // So long a head that the send can't end before somebody reads.
    uring.send(sock, Payload { head: vec![1; 32 << 20], body: Body::Held { buffer, range: 0..100 } });
    let mut events = Vec::new();
    uring.wait(Some(Duration::from_millis(5)), &mut events).unwrap();
    assert!(events.is_empty());
    uring.close(sock);
    let kept = uring.conns.get_mut(sock).and_then(|conn| conn.sending.as_ref()).unwrap();
    assert!(matches!(&kept.payload.body, Body::Held { buffer: Held { id: kept, .. }, .. } if *kept == id));
    assert_eq!(uring.counters().buffers_free, 127);
    while uring.counters().sockets > 0 {
        uring.wait(Some(Duration::from_millis(5)), &mut events).unwrap();
    }
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(uring.counters().buffers_free, 128);
}

#[test]
fn accepted_and_connecting_sockets_send_at_once() {
    let Some(mut uring) = uring(64) else { return };
    let address = listen(&mut uring);
    let (accepted, _stream) = accept(&mut uring, address);
    let connecting = uring.connect(address).unwrap();
    for sock in [accepted, connecting] {
        let conn = uring.conns.get_mut(sock).unwrap();
        assert!(sockopt::tcp_nodelay(&conn.fd).unwrap());
    }
}

/// The bell is non-blocking, yet its read must wait in the kernel: kernel-notes/0007.
#[test]
fn the_read_of_a_silent_bell_waits() {
    let Some(mut uring) = uring(64) else { return };
    let before = uring.counters().enters;
    let mut events = Vec::new();
    uring.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
    assert!(events.is_empty() && uring.counters().enters - before <= 2);
    uring.waker().wake();
    assert!(matches!(wait(&mut uring)[..], [Event::Woken]));
}
