//! Where one HTTP message ends, for all relays of the study alike.
//!
//! Owns the parsing state of one message and the bytes of a head that came in parts. Must never read or write
//! a socket, and never change a byte: a relay forwards what it was fed.

use std::io;
use warmpath_parser::http1::{
    ChunkDecoder, Framing, Headers, Limits, Method, Progress, RequestParser, ResponseParser,
};

/// Which message a [`Scanner`] reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From a client.
    Request,
    /// From the upstream.
    Response,
}

/// What a relay does with the bytes it fed.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// Nothing: the head is not whole, and the scanner has kept the bytes.
    More,
    /// Forward.
    Forward {
        /// Bytes kept before, to go first; nearly always empty.
        kept: Vec<u8>,
        /// Whether the bytes just fed are the message's last.
        done: bool,
    },
}

enum Head {
    Request(RequestParser),
    Response(ResponseParser),
}

enum Stage {
    Head(Head),
    Length(u64),
    Chunked(ChunkDecoder),
    Done,
}

/// Reads one message, then must be reset.
pub struct Scanner {
    side: Side,
    stage: Stage,
    kept: Vec<u8>,
    headers: Headers,
    limits: Limits,
}

impl Head {
    fn new(side: Side) -> Head {
        match side {
            Side::Request => Head::Request(RequestParser::new()),
            Side::Response => Head::Response(ResponseParser::new(Method::Post)),
        }
    }

    /// The head's length and the body's framing, once the head is whole.
    fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        headers: &mut Headers,
    ) -> io::Result<Option<(usize, Framing)>> {
        let (progress, len, body, persists) = match self {
            Head::Request(parser) => {
                let progress = parser.advance(bytes, limits, headers).map_err(io::Error::other)?;
                let head = parser.head();
                (progress, head.len, head.body, head.connection.persists(head.version))
            }
            Head::Response(parser) => {
                let progress = parser.advance(bytes, limits, headers).map_err(io::Error::other)?;
                let head = parser.head();
                (progress, head.len, head.body, head.connection.persists(head.version) && head.status >= 200)
            }
        };
        match progress {
            Progress::NeedMore => Ok(None),
            Progress::Done if persists => Ok(Some((len as usize, body))),
            Progress::Done => {
                Err(io::Error::other("an interim response or no keep-alive: not in this study"))
            }
        }
    }
}

impl Scanner {
    /// A scanner before the first byte of a message.
    pub fn new(side: Side) -> Scanner {
        Scanner {
            side,
            stage: Stage::Head(Head::new(side)),
            kept: Vec::new(),
            headers: Headers::default(),
            limits: Limits::default(),
        }
    }

    /// Begins the next message.
    pub fn reset(&mut self) {
        self.stage = Stage::Head(Head::new(self.side));
        self.kept.clear();
    }

    /// Whether the message is whole.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Reads the next bytes of the message. Errors: they break HTTP, go on after the message's end (no
    /// pipelining here), or need what this study leaves out.
    pub fn feed(&mut self, input: &[u8]) -> io::Result<Fed> {
        let mut body = input;
        let mut kept = Vec::new();
        if let Stage::Head(head) = &mut self.stage {
            let before = self.kept.len();
            let seen = if before == 0 {
                input
            } else {
                self.kept.extend_from_slice(input);
                &self.kept
            };
            let Some((len, framing)) = head.advance(seen, &self.limits, &mut self.headers)? else {
                if before == 0 {
                    self.kept.extend_from_slice(input);
                }
                return Ok(Fed::More);
            };
            self.stage = after_head(framing)?;
            body = &input[len - before..];
            kept = std::mem::take(&mut self.kept);
            kept.truncate(before);
        }
        self.body(body)?;
        Ok(Fed::Forward { kept, done: self.is_done() })
    }

    fn body(&mut self, mut input: &[u8]) -> io::Result<()> {
        while !input.is_empty() {
            match &mut self.stage {
                Stage::Length(left) if *left >= input.len() as u64 => {
                    *left -= input.len() as u64;
                    input = &[];
                }
                Stage::Chunked(decoder) if !decoder.is_done() => {
                    let piece = decoder.advance(input, &self.limits).map_err(io::Error::other)?;
                    input = &input[piece.consumed..];
                }
                _ => return Err(io::Error::other("bytes after the end of the message")),
            }
        }
        let whole = match &self.stage {
            Stage::Length(left) => *left == 0,
            Stage::Chunked(decoder) => decoder.is_done(),
            _ => false,
        };
        if whole {
            self.stage = Stage::Done;
        }
        Ok(())
    }
}

fn after_head(framing: Framing) -> io::Result<Stage> {
    match framing {
        Framing::None => Ok(Stage::Done),
        Framing::Length(length) => Ok(Stage::Length(length)),
        Framing::Chunked => Ok(Stage::Chunked(ChunkDecoder::new())),
        Framing::UntilClose => Err(io::Error::other("a body until close: not in this study")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

    fn fed_in_two(side: Side, message: &[u8], cut: usize) {
        let mut scanner = Scanner::new(side);
        let mut forwarded = Vec::new();
        for (part, last) in [(&message[..cut], false), (&message[cut..], true)] {
            match scanner.feed(part).unwrap() {
                Fed::More => assert!(!last),
                Fed::Forward { kept, done } => {
                    assert_eq!(done, last);
                    forwarded.extend_from_slice(&kept);
                    forwarded.extend_from_slice(part);
                }
            }
        }
        assert_eq!(forwarded, message);
    }

    #[test]
    fn a_message_cut_anywhere_is_forwarded_whole_and_ends_where_it_ends() {
        for cut in 1..LENGTH.len() {
            fed_in_two(Side::Request, LENGTH, cut);
        }
        for cut in 1..CHUNKED.len() {
            fed_in_two(Side::Response, CHUNKED, cut);
        }
    }

    #[test]
    fn after_reset_the_next_message_is_read_and_surplus_is_refused() {
        let mut scanner = Scanner::new(Side::Request);
        assert_eq!(scanner.feed(LENGTH).unwrap(), Fed::Forward { kept: Vec::new(), done: true });
        assert!(scanner.feed(LENGTH).is_err());
        scanner.reset();
        assert_eq!(scanner.feed(LENGTH).unwrap(), Fed::Forward { kept: Vec::new(), done: true });
        scanner.reset();
        assert!(scanner.feed(&[LENGTH, b"x"].concat()).is_err());
    }

    #[test]
    fn what_the_study_leaves_out_is_refused() {
        let refused = |text: &[u8]| Scanner::new(Side::Response).feed(text).is_err();
        assert!(refused(b"HTTP/1.1 200 OK\r\n\r\nuntil close"));
        assert!(refused(b"HTTP/1.1 100 Continue\r\n\r\n"));
        assert!(refused(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
    }
}
