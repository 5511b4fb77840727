//! The machine against handwritten peers, at every split and with every kind of misbehaviour.

use super::*;

const VERSION_3_0: u8 = 0;
const VERSION_3_1: u8 = 1;

fn greeting(minor: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xff;
    bytes[8] = 1; // libzmq puts a legacy length here
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = minor;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

fn ready(socket: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend((socket.len() as u32).to_be_bytes());
    body.extend_from_slice(socket.as_bytes());
    body.extend_from_slice(b"\x08Identity\0\0\0\0");
    frame(4, &body)
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags];
    if flags & 2 != 0 {
        bytes.extend((body.len() as u64).to_be_bytes());
    } else {
        bytes.push(body.len() as u8);
    }
    bytes.extend_from_slice(body);
    bytes
}

fn long(flags: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![flags | 2];
    bytes.extend(length.to_be_bytes());
    bytes
}

fn publisher(minor: u8) -> Vec<u8> {
    [greeting(minor), ready("PUB")].concat()
}

fn subscriber() -> Connection {
    Connection::new(Role::Sub(b"kv".to_vec()), Limits::default(), 0)
}

/// A connection past the handshake whose output is drained.
fn connected(role: Role, opening: &[u8]) -> Connection {
    let mut connection = Connection::new(role, Limits::default(), 0);
    connection.receive(0, opening, &mut |_| panic!("no message yet")).expect("a handshake");
    assert!(connection.is_ready());
    drain(&mut connection);
    connection
}

fn drain(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.output().to_vec();
    connection.wrote(bytes.len());
    bytes
}

fn fault_after(opening: &[u8], bytes: &[u8]) -> Fault {
    let mut connection = subscriber();
    connection.receive(0, opening, &mut |_| ()).expect("a good opening");
    let fault = connection.receive(0, bytes, &mut |_| ()).expect_err("a fault");
    assert_eq!(connection.receive(0, b"x", &mut |_| ()), Err(fault), "a fault is final");
    assert_eq!(connection.tick(0), Err(fault));
    fault
}

#[test]
fn the_greeting_announces_3_1_and_null() {
    let mut ours = subscriber();
    let bytes = drain(&mut ours);
    assert_eq!(bytes.len(), 64);
    assert_eq!((bytes[0], bytes[9], bytes[10], bytes[11]), (0xff, 0x7f, 3, 1));
    assert_eq!(&bytes[12..17], b"NULL\0");
    assert!(!ours.is_ready());
}

#[test]
fn a_3_1_peer_gets_ready_then_a_subscribe_command() {
    let mut ours = subscriber();
    drain(&mut ours);
    ours.receive(0, &greeting(VERSION_3_1), &mut |_| ()).expect("greeting");
    assert_eq!(drain(&mut ours), frame(4, b"\x05READY\x0bSocket-Type\0\0\0\x03SUB"));
    ours.receive(0, &ready("XPUB"), &mut |_| ()).expect("ready");
    assert_eq!(drain(&mut ours), frame(4, b"\x09SUBSCRIBEkv"));
    assert!(ours.has_heartbeats());
}

#[test]
fn a_3_0_peer_gets_a_subscribe_message_and_no_heartbeats() {
    let mut ours = subscriber();
    ours.receive(0, &publisher(VERSION_3_0), &mut |_| ()).expect("handshake");
    assert!(drain(&mut ours).ends_with(&frame(0, b"\x01kv")));
    assert_eq!(ours.tick(100 * SECOND), Ok(None));
    assert!(ours.output().is_empty());
}

#[test]
fn messages_are_the_same_at_every_split() {
    let big = vec![7; 300];
    let stream = [
        publisher(VERSION_3_1),
        frame(1, b"kv"),
        frame(1, &[0; 8]),
        frame(2, &big),
        frame(0, b""),
        frame(3, b"long form of a short body"),
        frame(4, b"\x04PING\0\x96ctx"), // libzmq may put one between two frames of a message
        frame(0, b"end"),
    ]
    .concat();
    let expected = vec![
        vec![b"kv".to_vec(), vec![0; 8], big],
        vec![b"".to_vec()],
        vec![b"long form of a short body".to_vec(), b"end".to_vec()],
    ];
    for split in 0..=stream.len() {
        let mut ours = subscriber();
        let mut messages: Vec<Vec<Vec<u8>>> = Vec::new();
        for part in [&stream[..split], &stream[split..]] {
            ours.receive(0, part, &mut |message| {
                messages.push(message.frames().map(<[u8]>::to_vec).collect());
            })
            .expect("well-formed");
        }
        assert_eq!(messages, expected, "split at {split}");
        assert!(ours.output().ends_with(&frame(4, b"\x04PONGctx")));
    }
}

#[test]
fn every_prefix_gives_the_same_verdict_at_every_split() {
    let stream = [
        publisher(VERSION_3_1),
        frame(1, b"topic"),
        frame(3, &[9; 300]),
        frame(4, b"\x04PING\0\x01c"),
        frame(0, b"tail"),
        frame(0x80, b""),
    ]
    .concat();
    for end in 0..=stream.len() {
        crate::fuzz::zmtp(&stream[..end]);
        let mut bent = stream[..end].to_vec();
        if let Some(last) = bent.last_mut() {
            *last ^= 0x41;
            crate::fuzz::zmtp(&bent);
        }
    }
}

#[test]
fn noise_is_refused_in_the_same_way_at_every_split() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..2_000 {
        let mut bytes = if round % 2 == 0 { publisher(VERSION_3_1) } else { Vec::new() };
        for _ in 0..round % 61 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(if state & 0x300 == 0 { state as u8 } else { state as u8 & 7 });
        }
        crate::fuzz::zmtp(&bytes);
    }
}

#[test]
fn bad_openings_are_named() {
    assert_eq!(fault_after(b"", b"HTTP/1.1 200 OK\r\n"), Fault::Signature);
    assert_eq!(fault_after(b"", b"\xff\0\0\0\0\0\0\0\x01\x7e"), Fault::Signature);
    assert_eq!(fault_after(b"", b"\xff\0\0\0\0\0\0\0\x01\x7f\x01"), Fault::Version(1));
    let mut plain = greeting(VERSION_3_1);
    plain[12..17].copy_from_slice(b"PLAIN");
    assert_eq!(fault_after(b"", &plain), Fault::Mechanism);
    let greeted = greeting(VERSION_3_1);
    assert_eq!(fault_after(&greeted, &ready("ROUTER")), Fault::SocketType);
    assert_eq!(fault_after(&greeted, &frame(4, b"\x05READY")), Fault::SocketType);
    assert_eq!(fault_after(&greeted, &frame(4, b"\x05ERROR\x02no")), Fault::Refused);
    assert_eq!(fault_after(&greeted, &frame(0, b"hi")), Fault::Early);
    assert_eq!(fault_after(&greeted, &frame(4, b"\x05READY\x0bSocket-Type\0\0\0\x09PUB")), Fault::Command);
}

#[test]
fn bad_frames_are_named() {
    let open = publisher(VERSION_3_1);
    assert_eq!(fault_after(&open, &[8]), Fault::Flags);
    assert_eq!(fault_after(&open, &[5]), Fault::Flags);
    assert_eq!(fault_after(&open, &long(0, (64 << 20) + 1)), Fault::TooLong);
    assert_eq!(fault_after(&open, &long(4, 1 << 40)), Fault::TooLong);
    assert_eq!(fault_after(&open, &long(0, u64::MAX)), Fault::TooLong);
    assert_eq!(fault_after(&open, &frame(1, b"x").repeat(17)), Fault::TooLarge);
    assert_eq!(fault_after(&open, &frame(4, b"")), Fault::Command);
    assert_eq!(fault_after(&open, &frame(4, b"\x09PING")), Fault::Command);
    assert_eq!(fault_after(&open, &frame(4, b"\x04PING\0\x0012345678901234567")), Fault::Command);
    assert_eq!(fault_after(&open, &ready("PUB")), Fault::Command);
}

#[test]
fn a_claimed_length_reserves_nothing_and_a_large_message_is_let_go() {
    let mut ours = connected(Role::Sub(Vec::new()), &publisher(VERSION_3_1));
    ours.receive(0, &long(0, 64 << 20), &mut |_| ()).expect("within the bound");
    assert!(ours.held_bytes() < 1 << 12);
    let mut length = 0;
    let part = vec![1; 1 << 20];
    for _ in 0..64 {
        ours.receive(0, &part, &mut |message| length = message.frame(0).map_or(0, <[u8]>::len))
            .expect("bytes");
    }
    assert_eq!(length, 64 << 20);
    assert!(ours.held_bytes() <= 2 << 20);
}

#[test]
fn heartbeats_go_each_five_seconds_and_silence_ends_after_fifteen() {
    let mut ours = connected(Role::Sub(Vec::new()), &publisher(VERSION_3_1));
    assert_eq!(ours.tick(0), Ok(Some(PING_EVERY)));
    assert_eq!(ours.tick(5 * SECOND), Ok(Some(10 * SECOND)));
    assert_eq!(drain(&mut ours), frame(4, b"\x04PING\0\x96"));
    ours.receive(6 * SECOND, &frame(4, b"\x04PONG"), &mut |_| ()).expect("an answer");
    assert_eq!(ours.tick(20 * SECOND), Ok(Some(21 * SECOND)));
    assert_eq!(ours.tick(21 * SECOND), Err(Fault::Silent));
    assert_eq!(ours.receive(22 * SECOND, b"x", &mut |_| ()), Err(Fault::Silent));
}

#[test]
fn a_peer_that_never_greets_is_given_up() {
    let mut ours = subscriber();
    assert_eq!(ours.tick(SECOND), Ok(Some(DEAD_AFTER)));
    assert_eq!(ours.tick(DEAD_AFTER), Err(Fault::Silent));
}

#[test]
fn heartbeats_that_outrun_their_answers_are_a_flood() {
    let mut ours = connected(Role::Sub(Vec::new()), &publisher(VERSION_3_1));
    let pings = frame(4, b"\x04PING\0\x010123456789abcdef").repeat(5_000);
    assert_eq!(ours.receive(0, &pings, &mut |_| ()), Err(Fault::Flood));
    assert!(ours.output().len() < 70 << 10);
}

#[test]
fn a_dealer_asks_with_an_empty_delimiter() {
    let router = [greeting(VERSION_3_1), ready("ROUTER")].concat();
    let mut fresh = Connection::new(Role::Dealer, Limits::default(), 0);
    assert_eq!(fresh.send(&[b""]), Err(NotReady));
    let mut ours = connected(Role::Dealer, &router);
    ours.send(&[b"", &5_u64.to_be_bytes()]).expect("ready");
    assert_eq!(drain(&mut ours), [frame(1, b""), frame(0, &[0, 0, 0, 0, 0, 0, 0, 5])].concat());
    ours.send(&[&[3; 256]]).expect("ready");
    assert_eq!(&ours.output()[..9], long(0, 256));
}

#[test]
fn output_is_taken_in_any_parts() {
    let mut ours = subscriber();
    let whole = ours.output().to_vec();
    ours.wrote(10);
    assert_eq!(ours.output(), &whole[10..]);
    ours.wrote(1_000);
    assert!(ours.output().is_empty());
}
