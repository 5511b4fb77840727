//! A response head, from the first byte to the blank line.
//!
//! Owns the status line. Whatever it refuses is a fault of the engine: the caller answers 502 and never
//! reuses that connection.

use super::facts::Facts;
use super::fields::FieldLines;
use super::head::{Headers, Limits, Method, Progress, ResponseHead, Version};
use crate::{Malformed, Span, scan};

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Version,
    Status,
    Reason,
    Fields,
    Done,
}

/// Parses one response head. Feed it a buffer that begins with the head's first byte and grows; it goes on
/// where it stopped. After an interim response (1xx) the next head needs a new parser.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseParser {
    stage: Stage,
    at: usize,
    method: Method,
    head: ResponseHead,
    fields: FieldLines,
    facts: Facts,
}

impl ResponseParser {
    /// A parser for the response to a request with `method`.
    pub fn new(method: Method) -> Self {
        ResponseParser { method, ..ResponseParser::default() }
    }

    /// Looks at the bytes that came since the last call. `headers` must be the same object in all calls of
    /// one head; it is cleared at the first.
    pub fn advance(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        headers: &mut Headers,
    ) -> Result<Progress, Malformed> {
        let window = buf.get(..limits.head_bytes as usize).unwrap_or(buf);
        if self.step(window, limits, headers)? {
            return Ok(Progress::Done);
        }
        if buf.len() >= limits.head_bytes as usize {
            return Err(Malformed::HeadTooLarge);
        }
        Ok(Progress::NeedMore)
    }

    /// The head, complete after [`Progress::Done`]; before that, what is known so far.
    pub fn head(&self) -> ResponseHead {
        self.head
    }

    /// Whether the head is complete. Each stage that completes leads to the next one below it.
    fn step(&mut self, window: &[u8], limits: &Limits, headers: &mut Headers) -> Result<bool, Malformed> {
        if matches!(self.stage, Stage::Version) && !self.version(window, headers)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Status) && !self.status(window)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Reason) && !self.reason(window)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Done) {
            return Ok(true);
        }
        match self.fields.advance(window, limits, headers, &mut self.facts)? {
            Some(end) => self.finish(end),
            None => Ok(false),
        }
    }

    #[inline]
    fn version(&mut self, window: &[u8], headers: &mut Headers) -> Result<bool, Malformed> {
        headers.clear();
        self.head.version = match window.first_chunk() {
            Some(b"HTTP/1.1 ") => Version::Http11,
            Some(b"HTTP/1.0 ") => Version::Http10,
            _ => return odd_version(window),
        };
        self.at = 9;
        self.stage = Stage::Status;
        Ok(true)
    }

    /// Three digits, then a space or the line end: many servers leave out both reason and space.
    #[inline]
    fn status(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        let rest = window.get(self.at..).unwrap_or_default();
        if !rest.iter().take(3).all(u8::is_ascii_digit) {
            return Err(Malformed::StatusMalformed);
        }
        let &[hundreds, tens, ones, after, ..] = rest else { return Ok(false) };
        self.head.status =
            [hundreds, tens, ones].iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
        match (after, self.head.status) {
            (b' ' | b'\r', 101) => return Err(Malformed::SwitchingProtocols),
            (b' ' | b'\r', 100..=599) => {}
            (b' ' | b'\r', _) => return Err(Malformed::StatusOutOfRange),
            (b'\n', _) => return Err(Malformed::BareLf),
            _ => return Err(Malformed::StatusMalformed),
        }
        self.at += 3 + usize::from(after == b' ');
        self.head.reason = Span::new(self.at, self.at);
        self.stage = Stage::Reason;
        Ok(true)
    }

    #[inline]
    fn reason(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        self.at = scan::value_end(window, self.at);
        match (window.get(self.at), window.get(self.at + 1)) {
            (None, _) | (Some(b'\r'), None) => return Ok(false),
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), Some(_)) => return Err(Malformed::BareCr),
            (Some(b'\n'), _) => return Err(Malformed::BareLf),
            (Some(_), _) => return Err(Malformed::ValueByte),
        }
        self.head.reason = Span::new(self.head.reason.start as usize, self.at);
        self.fields = FieldLines::starting_at(self.at + 2);
        self.stage = Stage::Fields;
        Ok(true)
    }

    #[inline]
    fn finish(&mut self, end: usize) -> Result<bool, Malformed> {
        self.head.len = crate::span::narrow(end);
        self.head.connection = self.facts.connection;
        self.head.body = self.facts.body.of_response(self.head.version, self.head.status, self.method)?;
        self.stage = Stage::Done;
        Ok(true)
    }
}

/// A beginning that is incomplete (false) or refused.
#[cold]
fn odd_version(window: &[u8]) -> Result<bool, Malformed> {
    for (&byte, &form) in window.iter().zip(b"HTTP/d.d ") {
        let fits = if form == b'd' { byte.is_ascii_digit() } else { byte == form };
        if !fits {
            return Err(Malformed::VersionMalformed);
        }
    }
    if window.len() < 9 {
        return Ok(false);
    }
    Err(Malformed::VersionUnsupported)
}
