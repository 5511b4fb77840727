//! A client in the simulated network: a list of requests on one connection, or on one each, and what came of every one.
//! What it asks, and what is a good answer, are a test's to say.

use crate::sim::Shared;
use crate::sim::http::{self, Message, Read};
use std::net::SocketAddr;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// One request to make.
pub trait Ask: Clone + std::fmt::Debug {
    /// All of its bytes.
    fn bytes(&self) -> Vec<u8>;

    /// What an answer is, which is checked to the letter.
    fn judge(&self, message: &Message) -> Came;

    /// It is called so, in every ledger.
    fn call(&mut self, name: String);

    /// Bytes of answer after which the client leaves.
    fn leaves_after(&self) -> Option<usize> {
        None
    }

    /// The client leaves within so many nanoseconds.
    fn leaves_within(&self) -> Option<u64> {
        None
    }

    /// Its last piece comes 20 seconds late.
    fn stalls(&self) -> bool {
        false
    }

    /// FIN right after the request.
    fn half_closes(&self) -> bool {
        false
    }

    /// `100 Continue` may come first.
    fn expects(&self) -> bool {
        false
    }
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

impl Came {
    pub fn refused(status: u16, code: &str) -> Came {
        Came::Refusal(status, code.to_owned())
    }
}

/// A request's end.
#[derive(Clone, Debug)]
pub struct End<A> {
    pub ask: A,
    pub came: Came,
    /// Nanoseconds that it took.
    pub took: u64,
}

pub struct Client<A> {
    pub done: bool,
    /// It reads now and then.
    pub slow: bool,
    vip: SocketAddr,
    xor: u8,
    asks: Vec<A>,
    ends: Shared<Vec<End<A>>>,
    conn: Option<usize>,
    at: usize,
    buffer: Vec<u8>,
    received: usize,
    begun: u64,
    outgoing: Vec<Vec<u8>>,
}

impl<A> Client<A> {
    pub fn new(vip: SocketAddr, xor: u8, asks: Vec<A>, ends: Shared<Vec<End<A>>>) -> Client<A> {
        Client {
            done: false,
            slow: false,
            vip,
            xor,
            asks,
            ends,
            conn: None,
            at: 0,
            buffer: Vec::new(),
            received: 0,
            begun: 0,
            outgoing: Vec::new(),
        }
    }
}

const NEXT: u64 = 1;
const PIECE: u64 = 2;
const RESUME: u64 = 3;
const LEAVE: u64 = 4;

impl<A: Ask> Actor for Client<A> {
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

impl<A: Ask> Client<A> {
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
            self.outgoing.clear();
            self.conn = Some(world.connect(self.vip));
        }
    }

    fn ask(&mut self, world: &mut World<'_>) {
        (self.received, self.begun) = (0, world.now());
        let bytes = self.asks[self.at].bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = (1 + world.draw(1 + bytes.len() as u64 / 2) as usize).min(rest.len());
            self.outgoing.push(rest[..piece].to_vec());
            rest = &rest[piece..];
        }
        self.outgoing.reverse();
        self.piece(world);
        if let Some(within) = self.asks[self.at].leaves_within() {
            let after = world.draw(within);
            self.timer(after, LEAVE, world);
        }
    }

    fn piece(&mut self, world: &mut World<'_>) {
        let (Some(conn), Some(mut bytes)) = (self.conn, self.outgoing.pop()) else { return };
        bytes.iter_mut().for_each(|b| *b ^= self.xor);
        world.send(conn, &bytes);
        if !self.outgoing.is_empty() {
            let stalls = self.asks[self.at].stalls() && self.outgoing.len() == 1;
            let after = if stalls { 20_000_000_000 } else { world.draw(1_000_000) };
            self.timer(after, PIECE, world);
        } else if self.asks[self.at].half_closes() {
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
            let ask = &self.asks[self.at];
            if message.head.start == "100" {
                assert!(ask.expects(), "100 Continue unasked");
                continue;
            }
            let came = ask.judge(&message);
            let closes = message.head.get("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
            let rest = String::from_utf8_lossy(&self.buffer);
            assert!(rest.is_empty(), "bytes behind the answer {came:?} of {ask:?}: {rest}");
            if (closes || ended || ask.half_closes())
                && let Some(conn) = self.conn.take()
            {
                world.close(conn);
            }
            self.record(came, world);
        }
        let enough = self.asks.get(self.at).and_then(|a| a.leaves_after()).is_some_and(|n| self.received > n);
        if enough && self.conn.is_some() {
            self.leave(world);
        }
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
        let took = world.now() - self.begun;
        self.ends.borrow_mut().push(End { ask: self.asks[self.at].clone(), came, took });
        self.at += 1;
        self.buffer.clear();
        self.outgoing.clear();
        let after = world.draw(8_000_000);
        self.timer(after, NEXT, world);
    }
}
