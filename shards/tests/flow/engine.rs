//! An engine in the simulated network. It does what the request's `x-do` asks, and writes down what it
//! executed.

use crate::http::{self, Head, Read};
use std::collections::HashMap;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// What engines wrote down.
#[derive(Default, Debug)]
pub struct Ledger {
    /// Executions begun, by request id.
    pub executions: HashMap<String, u32>,
    /// Bodies that were not what the client had sent.
    pub wrong_bodies: u32,
    /// Connections accepted.
    pub connections: u32,
    /// Connections that ended while an answer was due.
    pub aborted: u32,
}

pub type Shared<T> = std::rc::Rc<std::cell::RefCell<T>>;

/// The engine.
pub struct Engine {
    pub ledger: Shared<Ledger>,
    pub xor: u8,
    pub refuses: bool,
    /// An idle connection is closed after so long.
    pub idle_limit: u64,
    pub conns: HashMap<usize, Conn>,
    /// What timers mean.
    pub timers: Vec<(usize, Step)>,
}

#[derive(Default)]
pub struct Conn {
    buffer: Vec<u8>,
    busy: bool,
    closed: bool,
    served: u32,
}

/// A step of an answer, done when its timer fires.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Close,
    Reset,
    /// The answer is out; the connection idles.
    Idle,
    /// Close if idle since the answer of this number.
    IdleClose(u32),
}

impl Actor for Engine {
    fn accepts(&self) -> bool {
        !self.refuses
    }

    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Accepted { conn } => {
                self.ledger.borrow_mut().connections += 1;
                self.conns.insert(conn, Conn::default());
            }
            PeerEvent::Data { conn, mut bytes } => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.buffer.extend(bytes);
                }
                self.read(conn, world);
            }
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => self.gone(conn, world),
            PeerEvent::Timer { token } => {
                let (conn, step) = self.timers[token as usize].clone();
                self.step(conn, step, world);
            }
            PeerEvent::Begun | PeerEvent::Connected { .. } | PeerEvent::Refused { .. } => {}
        }
    }
}

impl Engine {
    fn gone(&mut self, conn: usize, world: &mut World<'_>) {
        if let Some(c) = self.conns.get_mut(&conn) {
            if c.busy && !c.closed {
                self.ledger.borrow_mut().aborted += 1;
            }
            c.closed = true;
            world.close(conn);
        }
    }

    fn read(&mut self, conn: usize, world: &mut World<'_>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.busy || c.closed || c.buffer.is_empty() {
            return;
        }
        match http::request(&c.buffer) {
            Read::Partial(Some(head)) if head.get("x-do").is_some_and(|d| d == "early") => {
                c.busy = true;
                self.plan(conn, vec![Step::Send(answer(413, &head, b"early", true)), Step::Close], world);
            }
            Read::Partial(_) => {}
            Read::Whole(message, used) => {
                c.buffer.drain(..used);
                assert!(c.buffer.is_empty(), "a second request before the first was answered");
                c.busy = true;
                c.served += 1;
                self.check(&message);
                self.execute(conn, &message.head, world);
            }
        }
    }

    fn check(&mut self, message: &http::Message) {
        let head = &message.head;
        let id = head.get("x-request-id").expect("every request has an id").to_owned();
        let size: usize = head.get("x-size").map_or(0, |v| v.parse().expect("a size"));
        let mut ledger = self.ledger.borrow_mut();
        *ledger.executions.entry(id.clone()).or_default() += 1;
        if head.get("x-free").is_none() && message.body != http::pattern(&id, size) {
            ledger.wrong_bodies += 1;
        }
        for hop in ["connection", "keep-alive", "te", "expect", "x-hop"] {
            assert!(head.get(hop).is_none(), "{hop} was forwarded");
        }
        assert_eq!(head.get("x-forwarded-proto"), Some("http"));
        assert!(head.get("x-forwarded-for").is_some_and(|v| v.starts_with("10.9.")), "{head:?}");
    }

    fn execute(&mut self, conn: usize, head: &Head, world: &mut World<'_>) {
        let todo = head.get("x-do").unwrap_or("length 5").to_owned();
        let id = head.get("x-request-id").unwrap_or_default();
        let words: Vec<&str> = todo.split(' ').collect();
        let number = |place: usize| words.get(place).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        let body = http::pattern(id, number(1));
        let steps = match words[0] {
            "length" => vec![Step::Send(answer(200, head, &body, false)), Step::Idle],
            "chunked" => {
                let mut steps = vec![Step::Send(answer_head(head, "transfer-encoding: chunked\r\n"))];
                let framed = http::chunked(&body, number(2));
                steps.extend(framed.chunks(number(3).max(1)).map(|piece| Step::Send(piece.to_vec())));
                steps.push(Step::Idle);
                steps
            }
            "status" => {
                let status = number(1) as u16;
                vec![Step::Send(answer(status, head, &body, false)), Step::Idle]
            }
            "until-close" => {
                vec![Step::Send(answer_head(head, "")), Step::Send(body), Step::Close]
            }
            "interim" => {
                let interim = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec();
                vec![Step::Send(interim), Step::Send(answer(200, head, &body, false)), Step::Idle]
            }
            "closing" => vec![Step::Send(answer(200, head, &body, true)), Step::Close],
            "die-before" => vec![Step::Close],
            "reset-before" => vec![Step::Reset],
            "half-head" => vec![Step::Send(b"HTTP/1.1 200 OK\r\nconte".to_vec()), Step::Close],
            "garbage" => vec![Step::Send(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), Step::Close],
            "bad-framing" => {
                let head =
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
                vec![Step::Send(head), Step::Close]
            }
            "die-mid" => {
                let mut whole = answer(200, head, &body, false);
                whole.truncate(whole.len() - body.len().min(3));
                vec![Step::Send(whole), Step::Close]
            }
            "die-stream" => {
                let events = b"data: {}\n\n";
                let mut piece = format!("{:x}\r\n", events.len()).into_bytes();
                piece.extend_from_slice(events);
                piece.extend_from_slice(b"\r\n");
                let head =
                    answer_head(head, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n");
                vec![Step::Send(head), Step::Send(piece), Step::Close]
            }
            "hang" | "early" => vec![],
            other => panic!("x-do: {other}"),
        };
        self.plan(conn, steps, world);
    }

    fn plan(&mut self, conn: usize, steps: Vec<Step>, world: &mut World<'_>) {
        let mut after = 0;
        for step in steps {
            after += 1 + world.draw(2_000_000);
            self.later(conn, after, step, world);
        }
    }

    fn later(&mut self, conn: usize, after: u64, step: Step, world: &mut World<'_>) {
        self.timers.push((conn, step));
        world.timer(after, self.timers.len() as u64 - 1);
    }

    fn step(&mut self, conn: usize, step: Step, world: &mut World<'_>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.closed {
            return;
        }
        match step {
            Step::Send(mut bytes) => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                world.send(conn, &bytes);
            }
            Step::Close => {
                c.closed = true;
                world.close(conn);
            }
            Step::Reset => {
                c.closed = true;
                world.reset(conn);
            }
            Step::Idle => {
                c.busy = false;
                let served = c.served;
                self.later(conn, self.idle_limit, Step::IdleClose(served), world);
                self.read(conn, world);
            }
            Step::IdleClose(served) => {
                if !c.busy && c.served == served && c.buffer.is_empty() {
                    c.closed = true;
                    world.close(conn);
                }
            }
        }
    }
}

fn answer(status: u16, head: &Head, body: &[u8], close: bool) -> Vec<u8> {
    let id = head.get("x-request-id").unwrap_or_default();
    let close = if close { "connection: close\r\n" } else { "" };
    let mut out =
        format!("HTTP/1.1 {status} X\r\nx-request-id: {id}\r\n{close}content-length: {}\r\n\r\n", body.len())
            .into_bytes();
    out.extend_from_slice(body);
    out
}

fn answer_head(head: &Head, lines: &str) -> Vec<u8> {
    let id = head.get("x-request-id").unwrap_or_default();
    format!("HTTP/1.1 200 OK\r\nx-request-id: {id}\r\n{lines}\r\n").into_bytes()
}
