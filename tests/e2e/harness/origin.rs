//! A scripted engine: the test itself reads what the gateway forwards and says each byte of the answer.

use super::{Client, PATIENCE, wait_until};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The begin of an answer with a length, without the length.
pub const SEPARATE_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

/// Where the gateway connects to.
pub struct Origin {
    listener: TcpListener,
    pub addr: SocketAddr,
}

impl Origin {
    pub fn start() -> Origin {
        Origin::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    pub fn at(addr: SocketAddr) -> Origin {
        let listener = TcpListener::bind(addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        Origin { addr: listener.local_addr().unwrap(), listener }
    }

    /// The next connection.
    pub fn accept(&self) -> OriginConn {
        let mut found = None;
        wait_until("the gateway connects", || {
            found = self.try_accept();
            found.is_some()
        });
        found.unwrap()
    }

    /// A connection that is there already.
    pub fn try_accept(&self) -> Option<OriginConn> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).unwrap();
        Some(OriginConn { wire: Client::of(stream) })
    }
}

/// One connection from the gateway.
pub struct OriginConn {
    pub wire: Client,
}

/// A request as the gateway forwarded it.
#[derive(Debug, Default)]
pub struct Forwarded {
    /// Request line and field lines, without line ends.
    pub lines: Vec<String>,
    pub body: Vec<u8>,
}

impl Forwarded {
    /// The values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named =
            |line: &'_ &String| line.split_once(':').is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        self.lines[1..].iter().filter(named).map(|l| l.split_once(':').unwrap().1.trim()).collect()
    }
}

impl OriginConn {
    /// Reads a request with a length, with chunks, or without a body.
    pub fn request(&mut self) -> Forwarded {
        self.try_request().expect("a request, not the end")
    }

    /// The same; `None` when the gateway closed.
    pub fn try_request(&mut self) -> Option<Forwarded> {
        let mut request = self.head()?;
        let length = request.all("content-length").first().map(|v| v.parse::<usize>().unwrap());
        if request.all("transfer-encoding") == ["chunked"] {
            assert_eq!(length, None);
            while let (data, _) = self.wire.chunk().unwrap()?
                && !data.is_empty()
            {
                request.body.extend_from_slice(&data);
            }
        } else if let Some(length) = length {
            while self.wire.ahead.len() < length {
                if !self.wire.more().unwrap() {
                    return None;
                }
            }
            request.body = self.wire.ahead.drain(..length).collect();
        }
        Some(request)
    }

    /// Reads a head only.
    pub fn head(&mut self) -> Option<Forwarded> {
        loop {
            if let Some(end) = self.wire.ahead.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.wire.ahead.drain(..end + 4).collect();
                let head = String::from_utf8(head[..end].to_vec()).unwrap();
                let lines = head.split("\r\n").map(str::to_owned).collect();
                return Some(Forwarded { lines, body: Vec::new() });
            }
            if !self.wire.more().unwrap() {
                assert!(self.wire.ahead.is_empty(), "half a head");
                return None;
            }
        }
    }

    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.send(bytes.as_ref());
    }

    /// A whole answer.
    pub fn answer(&mut self, body: &str) {
        self.say(format!("{SEPARATE_HEAD}Content-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// Waits for the gateway to close; nothing else may come.
    pub fn expect_end(&mut self) {
        self.wire.expect_end();
    }
}

const _: () = assert!(PATIENCE.as_secs() >= 30);
