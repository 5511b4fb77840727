//! A client of pairs in the simulated network: requests one after the other, and what came of each.

use crate::body::Wish;
use crate::http::{self, Read};
use crate::ledger::Shared;
use std::net::SocketAddr;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// One request to make.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub wish: Wish,
    /// The body goes out in chunks.
    pub chunked: bool,
    /// It sends an id of its own.
    pub own_id: bool,
    /// When the client leaves, after so many bytes of the answer, or nanoseconds after the request.
    pub leave_after: Option<usize>,
    pub leave_at: Option<u64>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The engine's answer of this status, to the letter.
    Answer(u16),
    /// The context engine's answer, as the whole.
    Early,
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

/// A request's end.
#[derive(Clone, Debug)]
pub struct End {
    pub ask: Ask,
    pub came: Came,
    /// Nanoseconds that it took.
    pub took: u64,
}

pub struct Client {
    pub vip: SocketAddr,
    pub xor: u8,
    pub asks: Vec<Ask>,
    pub ends: Shared<Vec<End>>,
    pub conn: Option<usize>,
    pub at: usize,
    pub buffer: Vec<u8>,
    pub received: usize,
    pub begun: u64,
    pub done: bool,
}

const NEXT: u64 = 1;
const LEAVE: u64 = 2;

impl Actor for Client {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Begun => {
                let after = world.draw(5_000_000);
                self.timer(after, NEXT, world);
            }
            // A timer of an earlier request means nothing now.
            PeerEvent::Timer { token } if token >> 8 != self.at as u64 => {}
            PeerEvent::Timer { token } if token & 0xFF == NEXT => self.next(world),
            PeerEvent::Timer { .. } => self.leave(world),
            PeerEvent::Connected { conn } if Some(conn) == self.conn => self.ask(world),
            PeerEvent::Data { conn, mut bytes } if Some(conn) == self.conn => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                self.received += bytes.len();
                self.buffer.extend(bytes);
                self.read(false, world);
            }
            PeerEvent::Ended { conn } if Some(conn) == self.conn => {
                self.read(true, world);
                if Some(conn) == self.conn {
                    self.over(world);
                }
            }
            PeerEvent::Reset { conn } | PeerEvent::Refused { conn } if Some(conn) == self.conn => {
                self.over(world)
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
        } else if self.conn.is_some() {
            self.ask(world);
        } else {
            self.buffer.clear();
            self.conn = Some(world.connect(self.vip));
        }
    }

    fn ask(&mut self, world: &mut World<'_>) {
        (self.received, self.begun) = (0, world.now());
        let Some(conn) = self.conn else { return };
        let ask = &self.asks[self.at];
        let mut bytes = ask.bytes();
        bytes.iter_mut().for_each(|b| *b ^= self.xor);
        world.send(conn, &bytes);
        if let Some(after) = ask.leave_at {
            self.timer(after, LEAVE, world);
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
        if self.at >= self.asks.len() || self.buffer.is_empty() {
            return;
        }
        if (ended || !http::is_long_and_open(&self.buffer))
            && let Read::Whole(message, used) = http::response(&self.buffer, ended)
        {
            self.buffer.drain(..used);
            assert!(self.buffer.is_empty(), "bytes behind the answer: {:?}", self.buffer);
            let came = judge(&self.asks[self.at], &message);
            let closes = message.head.get("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
            if (closes || ended)
                && let Some(conn) = self.conn.take()
            {
                world.close(conn);
            }
            return self.record(came, world);
        }
        let enough = self.asks[self.at].leave_after.is_some_and(|n| self.received > n);
        if enough {
            self.leave(world);
        }
    }

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
        let took = world.now() - self.begun;
        self.ends.borrow_mut().push(End { ask: self.asks[self.at].clone(), came, took });
        self.at += 1;
        self.buffer.clear();
        let after = world.draw(8_000_000);
        self.timer(after, NEXT, world);
    }
}

/// Checks an answer to the letter.
fn judge(ask: &Ask, message: &http::Message) -> Came {
    let status: u16 = message.head.start.parse().expect("a status");
    let text = String::from_utf8_lossy(&message.body);
    let own = serde_json::from_str::<serde_json::Value>(&text).ok();
    if let Some(code) = own.as_ref().and_then(|v| v["error"]["code"].as_str()) {
        return Came::Refusal(status, code.to_owned());
    }
    if status != 200 {
        // From a room that fell apart it may be the other leg's word.
        assert!(text == "refused" || text == "no meeting", "{text}");
        return Came::Answer(status);
    }
    if ask.wish.prefill == "final" && text.contains("finish_reason") {
        assert_eq!(text.starts_with("data: "), ask.wish.stream, "{text}");
        assert_eq!(text.ends_with("data: [DONE]\n\n"), ask.wish.stream, "{text}");
        return Came::Early;
    }
    if !ask.wish.stream {
        assert!(
            message.body == http::pattern(&ask.wish.tag, ask.wish.out),
            "another answer for {ask:?}: {text}"
        );
        return Came::Answer(200);
    }
    if text.contains("data: {\"error\":") {
        return Came::ErrorEvent;
    }
    let sent: String = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let all = String::from_utf8(http::pattern(&ask.wish.tag, ask.wish.out)).expect("ASCII") + "[DONE]";
    assert!(sent == all, "another stream for {ask:?}: {text}");
    Came::Answer(200)
}

impl Ask {
    fn bytes(&self) -> Vec<u8> {
        let body = serde_json::to_vec(&self.wish.body()).expect("JSON");
        let mut out =
            String::from("POST /v1/completions HTTP/1.1\r\nHost: gw\r\nContent-Type: application/json\r\n");
        out += "X-Hop: 1\r\nConnection: X-Hop, keep-alive\r\n";
        if self.own_id {
            out += &format!("X-Request-Id: client-{}\r\n", self.wish.tag);
        }
        let mut out = if self.chunked {
            (out + "Transfer-Encoding: chunked\r\n\r\n").into_bytes()
        } else {
            (out + &format!("Content-Length: {}\r\n\r\n", body.len())).into_bytes()
        };
        out.extend(if self.chunked { http::chunked(&body, 1 + body.len() / 3) } else { body });
        out
    }
}
