//! The engine's side of one TCP connection: reading request heads and bodies, writing answer bytes.
//! Raw TCP on purpose, since fault switches need control of every byte.
//! Must never know what a request means.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::text::Digest;
use crate::wire::Dechunker;

/// Longest accepted request head in bytes (h11, vLLM's parser, stops at 64 KiB by default).
const MAX_HEAD: usize = 64 * 1024;
/// Most bytes taken from the socket by one read of a body.
const READ: usize = 64 * 1024;
/// Most bytes a client may send ahead while an answer is under way; more stay in the kernel.
const MAX_AHEAD: usize = 64 * 1024;
/// Most header lines in a request head.
const MAX_HEADERS: usize = 128;
/// How long a refused body is read and dropped before the connection closes.
const LINGER: Duration = Duration::from_secs(1);

/// Why a request could not be read.
#[derive(Debug)]
pub enum Trouble {
    /// The client closed or reset the connection.
    Gone,
    /// The request breaks HTTP; the text says how.
    Bad(&'static str),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Trouble::Gone
    }
}

/// A request head as received.
#[derive(Debug, Clone)]
pub struct Head {
    /// The method, case kept.
    pub method: String,
    /// The request target up to `?`.
    pub path: String,
    /// The request target after `?`, empty if none.
    pub query: String,
    /// Minor HTTP version: 0 or 1.
    pub minor: u8,
    /// Header names and values in order.
    pub headers: Vec<(String, String)>,
    /// The head's bytes as received, blank line included.
    pub raw: String,
}

impl Head {
    /// The first value of a header, by name without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Whether the client lets the connection live on (RFC 9112 section 9.3).
    pub fn keep_alive(&self) -> bool {
        let connection = self.header("connection").unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| connection.split(',').any(|option| option.trim() == word);
        if self.minor == 0 { has("keep-alive") } else { !has("close") }
    }

    fn chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|v| v.trim().eq_ignore_ascii_case("chunked"))
    }
}

/// A request body as read.
#[derive(Debug, Clone)]
pub struct Body {
    /// The bytes; empty if there were more than are kept.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub length: u64,
    digest: Digest,
    keep: usize,
}

impl Body {
    fn new(keep: usize) -> Self {
        Body { bytes: Vec::new(), length: 0, digest: Digest::default(), keep }
    }

    fn add(&mut self, part: &[u8]) {
        self.length += part.len() as u64;
        self.digest.update(part);
        if self.dropped() {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(part);
        }
    }

    /// True when the body was too long to be kept.
    pub fn dropped(&self) -> bool {
        self.length > self.keep as u64
    }

    /// Digest of all bytes, those not kept included.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }
}

/// One connection with the bytes read ahead of it.
#[derive(Debug)]
pub struct Conn {
    stream: TcpStream,
    ahead: Vec<u8>,
    /// Bytes per second at which request bodies are read; `None` reads at full speed.
    pub slow_read: Option<u64>,
}

impl Conn {
    /// Takes over an accepted connection.
    pub fn new(stream: TcpStream) -> Self {
        Conn { stream, ahead: Vec::new(), slow_read: None }
    }

    /// Reads the next request head; `None` when the client closed between requests.
    pub async fn read_head(&mut self) -> Result<Option<Head>, Trouble> {
        loop {
            if let Some((head, used)) = parse_head(&self.ahead)? {
                self.ahead.drain(..used);
                return Ok(Some(head));
            }
            if self.ahead.len() > MAX_HEAD {
                return Err(Trouble::Bad("request head too long"));
            }
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return if self.ahead.is_empty() { Ok(None) } else { Err(Trouble::Gone) };
            }
        }
    }

    /// Reads the body that belongs to `head`, answering `Expect: 100-continue` first. A body longer
    /// than `keep` bytes is digested and dropped, so that large bodies cost no memory.
    pub async fn read_body(&mut self, head: &Head, keep: usize) -> Result<Body, Trouble> {
        let length = match head.header("content-length") {
            Some(text) => text.trim().parse::<u64>().map_err(|_| Trouble::Bad("bad Content-Length"))?,
            None => 0,
        };
        let expects = head.header("expect").is_some_and(|v| v.trim().eq_ignore_ascii_case("100-continue"));
        if expects && self.ahead.is_empty() && (length > 0 || head.chunked()) {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let mut body = Body::new(keep);
        if head.chunked() {
            self.read_chunked(&mut body).await?;
        } else {
            self.read_counted(&mut body, length).await?;
        }
        Ok(body)
    }

    async fn read_counted(&mut self, body: &mut Body, length: u64) -> Result<(), Trouble> {
        loop {
            let left = usize::try_from(length - body.length).unwrap_or(usize::MAX);
            let take = left.min(self.ahead.len());
            body.add(&self.ahead[..take]);
            self.ahead.drain(..take);
            if take == left {
                return Ok(());
            }
            self.fill(left - take).await?;
        }
    }

    async fn read_chunked(&mut self, body: &mut Body) -> Result<(), Trouble> {
        let (mut decoder, mut part) = (Dechunker::default(), Vec::new());
        loop {
            let used = decoder.feed(&self.ahead, &mut part).map_err(Trouble::Bad)?;
            self.ahead.drain(..used);
            body.add(&part);
            part.clear();
            if decoder.done() {
                return Ok(());
            }
            self.fill(READ).await?;
        }
    }

    /// Reads at least one byte and at most about `most`, at the slow pace where one is set.
    async fn fill(&mut self, most: usize) -> Result<(), Trouble> {
        let Some(rate) = self.slow_read else {
            self.ahead.reserve(most.clamp(1, READ));
            return if self.stream.read_buf(&mut self.ahead).await? == 0 {
                Err(Trouble::Gone)
            } else {
                Ok(())
            };
        };
        let tenth = usize::try_from(rate / 10).unwrap_or(usize::MAX).clamp(1, 16 * 1024);
        let mut part = vec![0; tenth.min(most)];
        let got = self.stream.read(&mut part).await?;
        if got == 0 {
            return Err(Trouble::Gone);
        }
        self.ahead.extend_from_slice(&part[..got]);
        tokio::time::sleep(Duration::from_secs_f64(got as f64 / rate.max(1) as f64)).await;
        Ok(())
    }

    /// Writes all bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Returns once the client has closed or reset its side; pipelined bytes are kept, bounded. The
    /// end of the client's data counts as gone, as it does for uvicorn.
    pub async fn gone(&mut self) {
        while self.ahead.len() < MAX_AHEAD {
            match self.stream.read_buf(&mut self.ahead).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        std::future::pending().await
    }

    /// Closes orderly: FIN after the bytes written, unread request bytes read and dropped for up to
    /// a second so that they do not turn the close into a reset.
    pub async fn close(mut self) {
        let _ = self.stream.shutdown().await;
        let mut sink = vec![0; 16 * 1024];
        let drain = async { while matches!(self.stream.read(&mut sink).await, Ok(n) if n > 0) {} };
        let _ = tokio::time::timeout(LINGER, drain).await;
    }

    /// Closes by reset: unsent bytes are lost, the client's next read fails.
    pub fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Trouble> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut slots);
    let used = match request.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Trouble::Bad("request head is not HTTP/1.x")),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        minor: request.version.unwrap_or(1),
        headers: request.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect(),
        raw: text(&bytes[..used]),
    };
    Ok(Some((head, used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        parse_head(text.as_bytes()).ok().flatten().map(|(head, _)| head).unwrap()
    }

    #[test]
    fn keep_alive_follows_version_and_connection_options() {
        assert!(head("GET / HTTP/1.1\r\n\r\n").keep_alive());
        assert!(!head("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keep_alive());
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive());
        assert!(head("GET / HTTP/1.0\r\nconnection: x, keep-alive\r\n\r\n").keep_alive());
    }

    #[test]
    fn target_is_split_and_raw_bytes_are_kept() {
        let h = head("GET /slots?a=1 HTTP/1.1\r\nX-Y:  z\r\n\r\nrest");
        assert_eq!((h.path.as_str(), h.query.as_str()), ("/slots", "a=1"));
        assert_eq!(h.raw, "GET /slots?a=1 HTTP/1.1\r\nX-Y:  z\r\n\r\n");
        assert_eq!(h.header("x-y"), Some("z"));
    }
}
