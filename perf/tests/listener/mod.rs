//! The other end of an engine's event sockets, written for the tests alone: a blocking ZMTP SUB or DEALER
//! and a MessagePack reader that gives JSON (bytes as `{"bytes": hex}`). Must share nothing with the engine.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection past its handshake.
pub struct Socket {
    stream: TcpStream,
}

/// A batch as received.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    pub topic: Vec<u8>,
    pub number: u64,
    pub payload: Vec<u8>,
}

impl Heard {
    /// The events, in the reader's JSON.
    pub fn events(&self) -> Vec<Value> {
        let batch = unpack(&self.payload);
        batch[1].as_array().expect("events").clone()
    }
}

impl Socket {
    /// Connects as a SUB to every topic; returns once the engine has taken the subscription.
    pub fn subscribe(port: u16) -> Socket {
        let mut socket = Socket::open(TcpStream::connect(("127.0.0.1", port)).expect("it listens"), "SUB", 1);
        socket.frame(4, b"\x09SUBSCRIBE");
        socket.ping();
        socket
    }

    /// As `subscribe`, by the message of ZMTP 3.0.
    pub fn subscribe_by_message(port: u16, topic: &[u8]) -> Socket {
        let mut socket = Socket::open(TcpStream::connect(("127.0.0.1", port)).expect("it listens"), "SUB", 0);
        socket.frame(0, &[&[1], topic].concat());
        socket.ping();
        socket
    }

    /// Takes a connection of an engine that dials.
    pub fn accept(listener: &TcpListener) -> Socket {
        let mut socket = Socket::open(listener.accept().expect("an engine").0, "SUB", 1);
        socket.frame(4, b"\x09SUBSCRIBE");
        socket.ping();
        socket
    }

    /// Connects as a DEALER.
    pub fn dealer(port: u16) -> Socket {
        Socket::open(TcpStream::connect(("127.0.0.1", port)).expect("it listens"), "DEALER", 1)
    }

    fn open(mut stream: TcpStream, kind: &str, minor: u8) -> Socket {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, minor);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).expect("sent");
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(
            (greeting[0], greeting[9], greeting[10], &greeting[12..17]),
            (0xff, 0x7f, 3, &b"NULL\0"[..])
        );
        let mut socket = Socket { stream };
        let property =
            [&b"\x05READY\x0bSocket-Type\0\0\0"[..], &[kind.len() as u8], kind.as_bytes()].concat();
        socket.frame(4, &property);
        let (flags, ready) = socket.take().expect("READY");
        assert!(flags & 4 != 0 && ready.starts_with(b"\x05READY"));
        socket
    }

    /// Sends a heartbeat and takes its answer: what was sent before is processed then.
    pub fn ping(&mut self) {
        self.frame(4, b"\x04PING\0\x0ahello");
        assert_eq!(self.take(), Some((4, b"\x04PONGhello".to_vec())));
    }

    /// Whether a heartbeat is left unanswered for a while.
    pub fn is_mute(&mut self) -> bool {
        self.frame(4, b"\x04PING\0\x0ahello");
        self.stream.set_read_timeout(Some(Duration::from_millis(150))).expect("a timeout");
        let answer = self.stream.read(&mut [0; 1]);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        answer
            .is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
    }

    pub fn frame(&mut self, flags: u8, body: &[u8]) {
        assert!(body.len() < 256);
        self.stream.write_all(&[&[flags, body.len() as u8], body].concat()).expect("sent");
    }

    /// The next frame; `None` once the connection ended.
    pub fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut flags = [0];
        match self.stream.read(&mut flags) {
            Ok(1) => {}
            Ok(_) => return None,
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(e) => panic!("no frame: {e}"),
        }
        let length = if flags[0] & 2 == 0 {
            let mut length = [0];
            self.stream.read_exact(&mut length).expect("a length");
            u64::from(length[0])
        } else {
            let mut length = [0; 8];
            self.stream.read_exact(&mut length).expect("a length");
            u64::from_be_bytes(length)
        };
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body).expect("a body");
        Some((flags[0], body))
    }

    /// The next message's parts; `None` once the connection ended.
    pub fn message(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut parts = Vec::new();
        loop {
            let (flags, body) = self.take()?;
            parts.push(body);
            if flags & 1 == 0 {
                return Some(parts);
            }
        }
    }

    /// The next batch.
    pub fn hear(&mut self) -> Heard {
        let parts = self.message().expect("a batch");
        let [topic, number, payload]: [Vec<u8>; 3] = parts.try_into().expect("three parts");
        Heard { topic, number: u64::from_be_bytes(number.try_into().expect("8 bytes")), payload }
    }

    /// Nothing was sent so far: the answer to a heartbeat comes first.
    pub fn silent_so_far(&mut self) {
        self.ping();
    }

    /// The answer to a replay request: its messages, and whether the end mark came.
    pub fn replay(&mut self, from: u64) -> (Vec<Vec<Vec<u8>>>, bool) {
        self.frame(1, b"");
        self.frame(0, &from.to_be_bytes());
        let mut messages = Vec::new();
        while let Some(message) = self.message() {
            if message.contains(&vec![0xff; 8]) {
                return (messages, true);
            }
            messages.push(message);
        }
        (messages, false)
    }
}

/// A whole MessagePack value as JSON.
pub fn unpack(bytes: &[u8]) -> Value {
    let mut rest = bytes;
    let value = one(&mut rest);
    assert!(rest.is_empty(), "{} bytes are left over", rest.len());
    value
}

fn cut<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (front, back) = rest.split_at(length);
    *rest = back;
    front
}

fn number(rest: &mut &[u8], width: usize) -> u64 {
    cut(rest, width).iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn one(rest: &mut &[u8]) -> Value {
    let tag = cut(rest, 1)[0];
    match tag {
        0..=0x7f => json!(tag),
        0x80..=0x8f => map(rest, usize::from(tag & 15)),
        0x90..=0x9f => array(rest, usize::from(tag & 15)),
        0xa0..=0xbf => text(rest, usize::from(tag & 31)),
        0xc0 => Value::Null,
        0xc4 => {
            let length = number(rest, 1) as usize;
            let hex: String = cut(rest, length).iter().map(|byte| format!("{byte:02x}")).collect();
            json!({"bytes": hex})
        }
        0xcb => json!(f64::from_bits(number(rest, 8))),
        0xcc..=0xcf => json!(number(rest, 1 << (tag - 0xcc))),
        0xd0 => json!(number(rest, 1) as u8 as i8),
        0xd1 => json!(number(rest, 2) as u16 as i16),
        0xd2 => json!(number(rest, 4) as u32 as i32),
        0xd3 => json!(number(rest, 8) as i64),
        0xd9 => {
            let length = number(rest, 1) as usize;
            text(rest, length)
        }
        0xdc => {
            let length = number(rest, 2) as usize;
            array(rest, length)
        }
        0xdd => {
            let length = number(rest, 4) as usize;
            array(rest, length)
        }
        0xde => {
            let length = number(rest, 2) as usize;
            map(rest, length)
        }
        0xe0.. => json!(tag as i8),
        _ => panic!("tag {tag:02x} is not read here"),
    }
}

fn text(rest: &mut &[u8], length: usize) -> Value {
    json!(std::str::from_utf8(cut(rest, length)).expect("UTF-8"))
}

fn array(rest: &mut &[u8], length: usize) -> Value {
    (0..length).map(|_| one(rest)).collect::<Vec<_>>().into()
}

fn map(rest: &mut &[u8], length: usize) -> Value {
    let pair = |_| (one(rest).as_str().expect("a name").to_owned(), one(rest));
    Value::Object((0..length).map(pair).collect::<Map<_, _>>())
}
