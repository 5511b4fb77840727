//! One request to an engine's own port and its whole answer, for the few GETs and POSTs that events need. Owns
//! the request's bytes and the answer's bounds; must never open a socket, follow a redirect or try again.

use std::net::SocketAddr;
use warmpath_parser::Malformed;
use warmpath_parser::http1::{
    ChunkDecoder, Framing, Headers, Limits, Method, Progress, ResponseHead, ResponseParser,
};

/// The bytes of a request without a body; the connection is kept.
pub fn request(method: Method, path: &str, host: SocketAddr) -> Vec<u8> {
    let (name, length) = match method {
        Method::Post => ("POST", "Content-Length: 0\r\n"),
        _ => ("GET", ""),
    };
    format!("{name} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json, text/plain\r\n{length}\r\n")
        .into_bytes()
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body, without transfer coding.
    pub body: Vec<u8>,
    /// Whether the connection may serve another request.
    pub persists: bool,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It breaks a rule of HTTP.
    Malformed(Malformed),
    /// Its body is longer than asked for.
    TooLong,
    /// The connection ended before it did.
    Short,
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Self {
        Broken::Malformed(malformed)
    }
}

enum Stage {
    Head,
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
}

/// Reads one answer.
pub struct Reading {
    parser: ResponseParser,
    headers: Headers,
    limits: Limits,
    stage: Stage,
    /// Bytes that are not dealt with: of the head, or of chunks.
    buffer: Vec<u8>,
    head: ResponseHead,
    body: Vec<u8>,
    body_max: usize,
}

impl Reading {
    /// Of the answer to a request whose body may have up to `body_max` bytes.
    pub fn new(body_max: usize) -> Reading {
        Reading {
            parser: ResponseParser::new(Method::Get),
            headers: Headers::default(),
            limits: Limits::default(),
            stage: Stage::Head,
            buffer: Vec::new(),
            head: ResponseHead::default(),
            body: Vec::new(),
            body_max,
        }
    }

    /// Whether nothing of the answer has come.
    pub fn is_fresh(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.buffer.is_empty()
    }

    /// Bytes of the connection; the answer when it is whole. What follows it is dropped, and the connection
    /// with it.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Broken> {
        if !matches!(self.stage, Stage::Head) {
            return self.take_body(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        while self.parser.advance(&self.buffer, &self.limits, &mut self.headers)? == Progress::Done {
            let head = self.parser.head();
            let rest = self.buffer.split_off(head.len as usize);
            if head.status >= 200 {
                self.buffer.clear();
                self.begin_body(head)?;
                return self.take_body(&rest);
            }
            self.parser = ResponseParser::new(Method::Get);
            self.buffer = rest;
        }
        Ok(None)
    }

    /// The connection ended: an answer without a length is whole by that.
    pub fn ended(&mut self) -> Result<Answer, Broken> {
        match self.stage {
            Stage::UntilClose => Ok(self.answer(false)),
            _ => Err(Broken::Short),
        }
    }

    fn begin_body(&mut self, head: ResponseHead) -> Result<(), Broken> {
        head.body.within(self.body_max as u64).map_err(|_| Broken::TooLong)?;
        self.head = head;
        self.stage = match head.body {
            Framing::None => Stage::Length(0),
            Framing::Length(length) => Stage::Length(length),
            Framing::Chunked => Stage::Chunked(ChunkDecoder::new()),
            Framing::UntilClose => Stage::UntilClose,
        };
        Ok(())
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Broken> {
        let mut extra = false;
        let done = match &mut self.stage {
            Stage::Head => false,
            Stage::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.body.extend_from_slice(&bytes[..taken]);
                *left -= taken as u64;
                extra = taken < bytes.len();
                *left == 0
            }
            Stage::UntilClose => {
                self.body.extend_from_slice(bytes);
                false
            }
            Stage::Chunked(decoder) => {
                let (mut at, mut done) = (0, false);
                while at < bytes.len() && !done {
                    let piece = decoder.advance(&bytes[at..], &self.limits)?;
                    self.body.extend_from_slice(&bytes[at + piece.data.start..at + piece.data.end]);
                    at += piece.consumed;
                    done = piece.done;
                }
                extra = at < bytes.len();
                done
            }
        };
        if self.body.len() > self.body_max {
            return Err(Broken::TooLong);
        }
        Ok(done.then(|| self.answer(!extra)))
    }

    fn answer(&mut self, is_clean: bool) -> Answer {
        let persists = is_clean && self.head.connection.persists(self.head.version);
        Answer { status: self.head.status, body: std::mem::take(&mut self.body), persists }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], piece: usize, body_max: usize) -> Result<Option<Answer>, Broken> {
        let mut reading = Reading::new(body_max);
        for piece in bytes.chunks(piece) {
            if let Some(answer) = reading.receive(piece)? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    #[test]
    fn every_framing_is_read_at_every_cut() {
        let length = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".as_slice();
        let chunked =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        for piece in 1..length.len() {
            let whole = Answer { status: 200, body: b"hello".to_vec(), persists: true };
            assert_eq!(read(length, piece, 5), Ok(Some(whole)), "pieces of {piece}");
            let whole = Answer { status: 404, body: b"hello".to_vec(), persists: true };
            assert_eq!(read(chunked, piece, 5), Ok(Some(whole)), "pieces of {piece}");
        }
        assert_eq!(read(length, 7, 4), Err(Broken::TooLong));
        assert_eq!(read(chunked, 7, 4), Err(Broken::TooLong));
    }

    #[test]
    fn an_answer_without_length_ends_with_the_connection() {
        let mut reading = Reading::new(100);
        assert!(reading.is_fresh());
        assert_eq!(reading.receive(b"HTTP/1.0 200 OK\r\n\r\nall"), Ok(None));
        assert!(!reading.is_fresh());
        let answer = Answer { status: 200, body: b"all".to_vec(), persists: false };
        assert_eq!(reading.ended(), Ok(answer));
        let mut cut = Reading::new(100);
        assert_eq!(cut.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"), Ok(None));
        assert_eq!(cut.ended(), Err(Broken::Short));
    }

    #[test]
    fn what_follows_an_answer_ends_the_connection() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nax";
        assert!(!read(bytes, 100, 10).expect("read").expect("whole").persists);
        assert!(matches!(read(b"SSH-2.0-x\r\n", 100, 10), Err(Broken::Malformed(_))));
    }

    #[test]
    fn requests_are_what_the_gateway_itself_would_take() {
        let host = "[::1]:80".parse().expect("an address");
        for (method, path) in [(Method::Get, "/version"), (Method::Post, "/kv_cache_events")] {
            let bytes = request(method, path, host);
            let (limits, mut headers) = (Limits::default(), Headers::default());
            let mut parser = warmpath_parser::http1::RequestParser::new();
            assert_eq!(parser.advance(&bytes, &limits, &mut headers), Ok(Progress::Done));
            assert_eq!(parser.head().path.of(&bytes), path.as_bytes());
            assert_eq!(parser.head().len as usize, bytes.len());
        }
    }
}
