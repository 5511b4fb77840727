//! A client and an engine in the simulated network. The engine answers every request; both write down what
//! they saw.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// A request to make.
#[derive(Clone, Debug)]
pub struct Asked {
    lines: Vec<String>,
    body: String,
    raw: Option<String>,
}

impl Asked {
    /// A completion.
    pub fn of(body: Value) -> Asked {
        Asked { lines: Vec::new(), body: body.to_string(), raw: None }
    }

    /// These very bytes.
    pub fn raw(bytes: &str) -> Asked {
        Asked { lines: Vec::new(), body: String::new(), raw: Some(bytes.into()) }
    }

    /// With a header line.
    pub fn with(mut self, line: &str) -> Asked {
        self.lines.push(line.into());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone().into_bytes();
        }
        let lines: String = self.lines.iter().map(|line| format!("{line}\r\n")).collect();
        let length = self.body.len();
        let head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
        format!("{head}{lines}Content-Length: {length}\r\n\r\n{}", self.body).into_bytes()
    }
}

/// What came of a request.
#[derive(Clone, Debug, Default)]
pub struct Served {
    pub status: u16,
    /// Who served it.
    pub endpoint: Option<usize>,
    /// Values of the rank header that the engine saw.
    pub ranks: Vec<String>,
    /// The receipt in the answer.
    pub receipt: Option<String>,
    /// Its body as it came, framing included.
    pub body: Vec<u8>,
}

pub type Shared<T> = Rc<RefCell<T>>;

/// One request on one connection.
pub struct Client {
    pub vip: SocketAddr,
    pub asked: Asked,
    pub answer: Shared<Option<Served>>,
    pub buffer: Vec<u8>,
}

impl Actor for Client {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Begun => drop(world.connect(self.vip)),
            PeerEvent::Connected { conn } => world.send(conn, &self.asked.bytes()),
            PeerEvent::Data { conn, bytes } => {
                self.buffer.extend(bytes);
                if let Some(served) = served(&self.buffer, false) {
                    *self.answer.borrow_mut() = Some(served);
                    world.close(conn);
                }
            }
            PeerEvent::Ended { .. } | PeerEvent::Reset { .. } | PeerEvent::Refused { .. } => {
                let served = || served(&self.buffer, true).unwrap_or_default();
                self.answer.borrow_mut().get_or_insert_with(served);
            }
            PeerEvent::Accepted { .. } | PeerEvent::Timer { .. } => {}
        }
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn lines(head: &[u8]) -> impl Iterator<Item = (String, String)> {
    let text = String::from_utf8_lossy(head).into_owned();
    let lines: Vec<_> = text.split("\r\n").filter_map(|line| line.split_once(':')).map(own).collect();
    lines.into_iter()
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.to_ascii_lowercase(), value.trim().to_string())
}

/// A whole message's head and body. What only a close ends is whole once it `ended`.
fn message(bytes: &[u8], ended: bool) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_at(head_end(bytes)?);
    if lines(head).any(|(name, _)| name == "transfer-encoding") {
        return rest.ends_with(b"0\r\n\r\n").then_some((head, rest));
    }
    let length = lines(head).find(|(name, _)| name == "content-length").map(|(_, v)| v.parse().unwrap());
    if length.is_none() && lines(head).any(|(name, value)| name == "connection" && value == "close") {
        return ended.then_some((head, rest));
    }
    let length = length.unwrap_or(0);
    (rest.len() >= length).then(|| (head, &rest[..length]))
}

fn served(bytes: &[u8], ended: bool) -> Option<Served> {
    let (head, raw) = message(bytes, ended)?;
    let status = std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap();
    let receipt = lines(head).find(|(name, _)| name == "x-warmpath-receipt").map(|(_, value)| value);
    let body: Value = serde_json::from_slice(raw).unwrap_or_default();
    let endpoint = body["endpoint"].as_u64().map(|at| at as usize);
    let ranks = body["ranks"].as_array().into_iter().flatten().map(|r| r.as_str().unwrap().into()).collect();
    Some(Served { status, endpoint, ranks, receipt, body: raw.to_vec() })
}

/// An engine that tells in its answer who it is and what rank it was asked for.
pub struct Engine {
    pub index: usize,
    pub refuses: bool,
    pub fails: bool,
    pub prefill: u64,
    /// Says this and nothing else; closes behind it where nothing else ends it.
    pub script: Option<String>,
    pub buffers: HashMap<usize, Vec<u8>>,
    pub due: Vec<(usize, Vec<u8>)>,
}

impl Actor for Engine {
    fn accepts(&self) -> bool {
        !self.refuses
    }

    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Data { conn, bytes } => {
                let buffer = self.buffers.entry(conn).or_default();
                buffer.extend(bytes);
                let Some((head, body)) = message(buffer, false) else { return };
                let (used, head) = (head.len() + body.len(), head.to_vec());
                buffer.drain(..used);
                let answer = self.answer(&head);
                self.due.push((conn, answer));
                world.timer(self.prefill, self.due.len() as u64 - 1);
            }
            PeerEvent::Timer { token } => {
                let (conn, answer) = self.due[token as usize].clone();
                world.send(conn, &answer);
                if self.script.as_ref().is_some_and(|script| script.contains("Connection: close")) {
                    world.close(conn);
                }
            }
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => world.close(conn),
            _ => {}
        }
    }
}

impl Engine {
    fn answer(&self, head: &[u8]) -> Vec<u8> {
        if let Some(script) = &self.script {
            return script.clone().into_bytes();
        }
        let ranks: Vec<String> =
            lines(head).filter(|(name, _)| name == "x-data-parallel-rank").map(|(_, value)| value).collect();
        let body = serde_json::json!({"endpoint": self.index, "ranks": ranks}).to_string();
        let status = if self.fails { "500 Broken" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}
