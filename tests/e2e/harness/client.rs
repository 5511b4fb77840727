//! A raw client. Owns writing bytes as told and reading answers by `httparse` and its own reading of chunks;
//! must never mend what a gateway sent wrong.

use super::PATIENCE;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    /// Bytes read and not yet taken.
    pub ahead: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub minor: u8,
    pub headers: Vec<(String, String)>,
    /// The head's bytes, blank line included.
    pub head: String,
    /// The body without framing.
    pub body: Vec<u8>,
    /// The body as it came.
    pub framed: Vec<u8>,
    /// Whether the body ended as its framing promised.
    pub whole: bool,
}

impl Reply {
    /// The one value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, v)| v.as_str());
        assert!(found.next().is_none(), "{name} twice: {}", self.head);
        value
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {:?}", self.head, String::from_utf8_lossy(&self.body)))
    }

    /// The code of an error answer, whose shape is checked.
    pub fn error_code(&self) -> String {
        let json = self.json();
        let error = &json["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{json}");
        assert!(error.get("param").is_some_and(Value::is_null), "{json}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("content-length"), Some(self.body.len().to_string().as_str()));
        error["code"].as_str().unwrap().to_owned()
    }

    /// The `data:` of each event.
    pub fn events(&self) -> Vec<String> {
        let text = String::from_utf8(self.body.clone()).unwrap();
        let events = text.split("\n\n").filter(|e| !e.is_empty());
        events
            .map(|e| e.strip_prefix("data: ").unwrap_or_else(|| panic!("no data: {e:?}")).to_owned())
            .collect()
    }
}

impl Client {
    pub fn connect(to: SocketAddr) -> Client {
        Client::of(TcpStream::connect(to).unwrap())
    }

    pub fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, ahead: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, request: &[u8]) -> Reply {
        self.send(request);
        self.reply()
    }

    /// The same, where the connection may fail.
    pub fn try_reply_to(&mut self, request: &[u8]) -> std::io::Result<Reply> {
        self.stream.write_all(request)?;
        self.try_reply(false)
    }

    /// The status of an admin call, where the gateway may be killed at any moment.
    pub fn try_admin(&mut self, method: &str, path: &str, body: &str) -> Option<u16> {
        let request = super::gateway::admin_request(method, path, body, "localhost");
        self.try_reply_to(&request).ok().map(|reply| reply.status)
    }

    /// Reads an answer to anything but HEAD.
    pub fn reply(&mut self) -> Reply {
        self.try_reply(false).unwrap_or_else(|e| panic!("no answer: {e}; {:?}", self.ahead_text()))
    }

    /// Reads an answer to HEAD.
    pub fn reply_to_head(&mut self) -> Reply {
        self.try_reply(true).unwrap_or_else(|e| panic!("no answer: {e}"))
    }

    /// Reads an answer; an error is a connection that ended before a whole head. Interim answers are
    /// answers too.
    pub fn try_reply(&mut self, head_only: bool) -> std::io::Result<Reply> {
        let mut reply = self.try_head()?;
        let none = head_only || reply.status < 200 || matches!(reply.status, 204 | 304);
        let chunked = reply.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        let length = reply.header("content-length").map(|v| v.parse::<usize>().unwrap());
        match (none, chunked, length) {
            (true, ..) => reply.whole = true,
            (_, true, Some(_)) => panic!("chunks and a length: {}", reply.head),
            (_, true, None) => self.chunks(&mut reply)?,
            (_, false, Some(length)) => {
                while self.ahead.len() < length && self.more()? {}
                reply.whole = self.ahead.len() >= length;
                reply.body = self.ahead.drain(..length.min(self.ahead.len())).collect();
            }
            (_, false, None) => {
                while self.more()? {}
                reply.whole = true;
                reply.body = std::mem::take(&mut self.ahead);
            }
        }
        Ok(reply)
    }

    /// Reads a head.
    pub fn try_head(&mut self) -> std::io::Result<Reply> {
        loop {
            let mut slots = [httparse::EMPTY_HEADER; 128];
            let mut parsed = httparse::Response::new(&mut slots);
            if let httparse::Status::Complete(used) = parsed.parse(&self.ahead).expect("a valid head") {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let reply = Reply {
                    status: parsed.code.unwrap(),
                    minor: parsed.version.unwrap(),
                    headers: parsed.headers.iter().map(|h| (h.name.into(), text(h.value))).collect(),
                    head: text(&self.ahead[..used]),
                    ..Reply::default()
                };
                self.ahead.drain(..used);
                return Ok(reply);
            }
            if !self.more()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn chunks(&mut self, reply: &mut Reply) -> std::io::Result<()> {
        while let Some((data, framed)) = self.chunk()? {
            reply.body.extend_from_slice(&data);
            reply.framed.extend_from_slice(&framed);
            if data.is_empty() {
                reply.whole = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next chunk's data and its bytes as they came; the last has no data. `None`: the connection ended.
    pub fn chunk(&mut self) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let Some(line) = self.line(0)? else { return Ok(None) };
        let text = String::from_utf8(self.ahead[..line - 2].to_vec()).unwrap();
        let size = text.split(';').next().unwrap();
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("chunk size {text:?}"));
        let mut end = line + size;
        if size == 0 {
            loop {
                let Some(next) = self.line(end)? else { return Ok(None) };
                let empty = next == end + 2;
                end = next;
                if empty {
                    break;
                }
            }
        } else {
            end += 2;
            while self.ahead.len() < end {
                if !self.more()? {
                    return Ok(None);
                }
            }
            assert_eq!(&self.ahead[end - 2..end], b"\r\n", "after a chunk's data");
        }
        let framed: Vec<u8> = self.ahead.drain(..end).collect();
        Ok(Some((framed[line..line + size].to_vec(), framed)))
    }

    /// Where the line that begins at `from` ends.
    fn line(&mut self, from: usize) -> std::io::Result<Option<usize>> {
        loop {
            if let Some(at) = self.ahead[from..].windows(2).position(|w| w == b"\r\n") {
                return Ok(Some(from + at + 2));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Reads some bytes; false at the end. A reset is an end too.
    pub fn more(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(got) => {
                    self.ahead.extend_from_slice(&buffer[..got]);
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Asserts that nothing more comes but the end.
    pub fn expect_end(&mut self) {
        while self.more().unwrap_or_else(|e| panic!("the connection stays open: {e}")) {}
        assert!(self.ahead.is_empty(), "unasked: {:?}", self.ahead_text());
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends by a reset.
    pub fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO)).unwrap();
    }

    fn ahead_text(&self) -> String {
        String::from_utf8_lossy(&self.ahead[..self.ahead.len().min(400)]).into_owned()
    }
}

/// A POST with `Host` and a length; `headers` are lines.
pub fn post(path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut request = format!("POST {path} HTTP/1.1\r\nHost: gateway.test\r\n");
    headers.iter().for_each(|line| request += &format!("{line}\r\n"));
    request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    [request.as_bytes(), body].concat()
}

/// A GET.
pub fn get(path: &str, headers: &[&str]) -> Vec<u8> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: gateway.test\r\n");
    headers.iter().for_each(|line| request += &format!("{line}\r\n"));
    (request + "\r\n").into_bytes()
}

/// `length` bytes that never repeat soon, the same each time.
pub fn body_of(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut body = Vec::with_capacity(length + 8);
    while body.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(length);
    body
}
