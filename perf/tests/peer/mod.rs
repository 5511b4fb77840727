//! A plain blocking HTTP/1.1 client for the tests of simulated engines: it sends what it is given
//! and shows what came back, byte for byte. Must never repair anything.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use warmpath_perf::wire::Dechunker;

/// Longest wait for bytes before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A response as read.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The data of each event, `[DONE]` included.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        events.map(|event| event.strip_prefix("data: ").expect("a data line").to_owned()).collect()
    }
}

/// One connection.
pub struct Peer {
    pub stream: TcpStream,
    ahead: Vec<u8>,
}

impl Peer {
    pub fn connect(addr: SocketAddr) -> Peer {
        let stream = TcpStream::connect(addr).expect("the engine listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Peer { stream, ahead: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the engine reads");
    }

    pub fn post(&mut self, path: &str, body: &str) -> Response {
        self.send(post(path, "", body).as_bytes());
        self.response().expect("a whole answer")
    }

    pub fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes());
        self.response().expect("a whole answer")
    }

    /// A whole response, or the words for how it fell short.
    pub fn response(&mut self) -> Result<Response, String> {
        let (status, head) = self.head()?;
        let mut response = Response { status, head, body: Vec::new() };
        let chunked = response.header("transfer-encoding") == Some("chunked");
        let length: Option<usize> = response.header("content-length").map(|v| v.parse().expect("a number"));
        response.body = match length {
            _ if chunked => self.chunked()?,
            Some(length) => self.exact(length)?,
            None => self.rest(),
        };
        Ok(response)
    }

    /// The next response head: its status and bytes.
    pub fn head(&mut self) -> Result<(u16, String), String> {
        loop {
            if let Some(at) = self.ahead.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.ahead.drain(..at + 4).collect();
                let head = String::from_utf8(head).expect("text");
                let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
                return Ok((status, head));
            }
            self.fill()?;
        }
    }

    fn exact(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.ahead.len() < length {
            self.fill()?;
        }
        Ok(self.ahead.drain(..length).collect())
    }

    fn chunked(&mut self) -> Result<Vec<u8>, String> {
        let (mut decoder, mut body) = (Dechunker::default(), Vec::new());
        loop {
            let used = decoder.feed(&self.ahead, &mut body)?;
            self.ahead.drain(..used);
            if decoder.done() {
                return Ok(body);
            }
            self.fill()?;
        }
    }

    /// All bytes up to the end, however it comes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill().is_ok() {}
        std::mem::take(&mut self.ahead)
    }

    /// Reads more bytes; "closed" or "reset" when there are none, with what is left unread.
    pub fn fill(&mut self) -> Result<(), String> {
        let mut part = [0; 4096];
        match self.stream.read(&mut part) {
            Ok(0) => Err("closed".into()),
            Ok(n) => {
                self.ahead.extend_from_slice(&part[..n]);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Err("reset".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// A POST request's bytes; `headers` are whole lines.
pub fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A chat body of one user message.
pub fn chat(text: &str, more: &str) -> String {
    format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"{text}"}}]{more}}}"#)
}

/// Waits until the condition holds; the bound only ends a test that has failed.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not reached: {what}");
}
