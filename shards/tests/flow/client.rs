//! A client in the simulated network: a list of requests on one connection, or on one each, and what came
//! of every one.

use crate::engine::Shared;
use crate::http::{self, Read};
use std::net::SocketAddr;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// One request to make.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub id: String,
    /// What the engine shall do.
    pub todo: String,
    /// Bytes of body.
    pub size: usize,
    /// The body goes out in chunks.
    pub chunked: bool,
    pub expect: bool,
    /// HTTP/1.0
    pub old: bool,
    /// Bytes of answer after which the client leaves.
    pub leave_after: Option<usize>,
    /// Half of the body comes 20 seconds late.
    pub stalls: bool,
    /// FIN right after the request.
    pub half_close: bool,
    /// Header lines, each with its end.
    pub lines: String,
    /// A body of its own instead of the pattern.
    pub json: Option<String>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// An answer with this status; its body was the engine's.
    Answer(u16),
    /// A gateway's own answer: status and code.
    Refusal(u16, String),
    /// An event stream that ended with an error event.
    ErrorEvent,
    /// The connection ended within an answer.
    Cut,
    /// The connection ended without an answer.
    Closed,
    /// This client left.
    Left,
}

pub struct Client {
    pub vip: SocketAddr,
    pub xor: u8,
    pub asks: Vec<Ask>,
    pub came: Shared<Vec<(Ask, Came)>>,
    pub slow: bool,
    pub conn: Option<usize>,
    pub at: usize,
    pub buffer: Vec<u8>,
    pub received: usize,
    pub outgoing: Vec<Vec<u8>>,
    pub done: bool,
}

const NEXT: u64 = 1;
const PIECE: u64 = 2;
const RESUME: u64 = 3;
const LEAVE: u64 = 4;

impl Actor for Client {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Begun => {
                let after = world.draw(5_000_000);
                self.timer(after, NEXT, world);
            }
            PeerEvent::Timer { token } if token & 0xFF == RESUME => {
                if let Some(conn) = self.conn {
                    world.resume(conn);
                }
            }
            // A timer of an earlier request means nothing now.
            PeerEvent::Timer { token } if token >> 8 != self.at as u64 => {}
            PeerEvent::Timer { token } => match token & 0xFF {
                NEXT => self.next(world),
                PIECE => self.piece(world),
                _ => self.leave(world),
            },
            PeerEvent::Connected { conn } if Some(conn) == self.conn => self.ask(world),
            PeerEvent::Data { conn, mut bytes } if Some(conn) == self.conn => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                self.received += bytes.len();
                self.buffer.extend(bytes);
                if self.slow {
                    world.pause(conn);
                    let after = world.draw(20_000_000);
                    self.timer(after, RESUME, world);
                }
                self.read(false, world);
            }
            PeerEvent::Ended { conn } if Some(conn) == self.conn => {
                self.read(true, world);
                if Some(conn) == self.conn {
                    self.over(world);
                }
            }
            PeerEvent::Reset { conn } | PeerEvent::Refused { conn } if Some(conn) == self.conn => {
                self.over(world);
            }
            _ => {}
        }
    }
}

impl Client {
    fn timer(&self, after: u64, what: u64, world: &mut World<'_>) {
        world.timer(after, what | (self.at as u64) << 8);
    }

    fn next(&mut self, world: &mut World<'_>) {
        if self.at >= self.asks.len() {
            if let Some(conn) = self.conn.take() {
                world.close(conn);
            }
            self.done = true;
            return;
        }
        match self.conn {
            Some(_) => self.ask(world),
            None => {
                self.buffer.clear();
                self.outgoing.clear();
                self.conn = Some(world.connect(self.vip));
            }
        }
    }

    fn ask(&mut self, world: &mut World<'_>) {
        self.received = 0;
        let bytes = self.asks[self.at].bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = (1 + world.draw(1 + bytes.len() as u64 / 2) as usize).min(rest.len());
            self.outgoing.push(rest[..piece].to_vec());
            rest = &rest[piece..];
        }
        self.outgoing.reverse();
        self.piece(world);
        if self.asks[self.at].leave_after == Some(0) {
            let after = world.draw(4_000_000);
            self.timer(after, LEAVE, world);
        }
    }

    fn piece(&mut self, world: &mut World<'_>) {
        let (Some(conn), Some(mut bytes)) = (self.conn, self.outgoing.pop()) else { return };
        bytes.iter_mut().for_each(|b| *b ^= self.xor);
        world.send(conn, &bytes);
        if !self.outgoing.is_empty() {
            let stalls = self.asks[self.at].stalls && self.outgoing.len() == 1;
            let after = if stalls { 20_000_000_000 } else { world.draw(1_000_000) };
            self.timer(after, PIECE, world);
        } else if self.asks[self.at].half_close {
            world.finish(conn);
        }
    }

    fn leave(&mut self, world: &mut World<'_>) {
        let Some(conn) = self.conn.take() else { return };
        if world.draw(2) == 0 {
            world.close(conn)
        } else {
            world.reset(conn)
        }
        self.record(Came::Left, world);
    }

    fn read(&mut self, ended: bool, world: &mut World<'_>) {
        while self.at < self.asks.len() && self.conn.is_some() && !self.buffer.is_empty() {
            if !ended && http::is_long_and_open(&self.buffer) {
                break;
            }
            let Read::Whole(message, used) = http::response(&self.buffer, ended) else { break };
            self.buffer.drain(..used);
            if message.head.start == "100" {
                assert!(self.asks[self.at].expect, "100 Continue unasked");
                continue;
            }
            let came = self.judge(&message);
            let closes = message.head.get("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
            if (closes || ended || self.asks[self.at].half_close)
                && let Some(conn) = self.conn.take()
            {
                world.close(conn);
            }
            assert!(
                self.buffer.is_empty(),
                "bytes behind the answer {:?} of {:?}: {:?}",
                came,
                self.asks[self.at],
                String::from_utf8_lossy(&self.buffer)
            );
            self.record(came, world);
        }
        let enough = self.asks.get(self.at).and_then(|a| a.leave_after).is_some_and(|n| self.received > n);
        if enough && self.conn.is_some() {
            self.leave(world);
        }
    }

    fn judge(&self, message: &http::Message) -> Came {
        let ask = &self.asks[self.at];
        let status: u16 = message.head.start.parse().expect("a status");
        let text = String::from_utf8_lossy(&message.body);
        let own = serde_json::from_str::<serde_json::Value>(&text).ok();
        if let Some(code) = own.as_ref().and_then(|v| v["error"]["code"].as_str()) {
            return Came::Refusal(status, code.to_owned());
        }
        if ask.todo.starts_with("die-stream") {
            assert!(text.contains("data: {\"error\":"), "{text}");
            return Came::ErrorEvent;
        }
        if status == 413 {
            assert_eq!(text, "early");
            return Came::Answer(413);
        }
        let size = ask.todo.split(' ').nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
        assert!(message.body == http::pattern(&ask.id, size), "another body than the engine's for {ask:?}");
        assert_eq!(message.head.get("x-request-id"), Some(ask.id.as_str()), "another request's answer");
        Came::Answer(status)
    }

    /// The connection is over.
    fn over(&mut self, world: &mut World<'_>) {
        if let Some(conn) = self.conn.take() {
            world.close(conn);
        }
        if self.at < self.asks.len() {
            let came = if self.buffer.is_empty() { Came::Closed } else { Came::Cut };
            self.record(came, world);
        }
    }

    fn record(&mut self, came: Came, world: &mut World<'_>) {
        self.came.borrow_mut().push((self.asks[self.at].clone(), came));
        self.at += 1;
        self.buffer.clear();
        self.outgoing.clear();
        let after = world.draw(8_000_000);
        self.timer(after, NEXT, world);
    }
}

impl Ask {
    fn bytes(&self) -> Vec<u8> {
        let version = if self.old { "1.0" } else { "1.1" };
        let mut out = format!(
            "POST /v1/completions HTTP/{version}\r\nHost: gw\r\nX-Request-Id: {}\r\nX-Do: {}\r\nX-Size: {}\r\n",
            self.id, self.todo, self.size
        );
        out += "X-Forwarded-For: 6.6.6.6\r\n";
        if !self.old {
            out += "X-Hop: 1\r\nConnection: X-Hop, keep-alive\r\n";
        }
        out += &self.lines;
        if let Some(json) = &self.json {
            return (out + &format!("X-Free: 1\r\nContent-Length: {}\r\n\r\n{json}", json.len()))
                .into_bytes();
        }
        if self.expect {
            out += "Expect: 100-continue\r\n";
        }
        let body = http::pattern(&self.id, self.size);
        let mut out = if self.chunked {
            (out + "Transfer-Encoding: chunked\r\n\r\n").into_bytes()
        } else {
            (out + &format!("Content-Length: {}\r\n\r\n", self.size)).into_bytes()
        };
        out.extend(if self.chunked { http::chunked(&body, 1 + self.size / 3) } else { body });
        out
    }
}
