//! A request head, from the first byte to the blank line.
//!
//! Owns the request line and the rules that need the whole head (Host, framing). It must never accept a
//! head that another HTTP/1.1 reader could end elsewhere.

use super::facts::Facts;
use super::fields::FieldLines;
use super::head::{Headers, Limits, METHOD_BYTES, Method, Progress, RequestHead, Version};
use super::target;
use crate::{Malformed, Span, scan};

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Before the request line; an empty line may come.
    #[default]
    Start,
    Method,
    Target,
    Version,
    Fields,
    Done,
}

/// Parses one request head. Feed it a buffer that begins with the head's first byte and grows; it goes on
/// where it stopped. After `Done`, [`RequestParser::head`] has the head; make a new parser for the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    at: usize,
    /// Where the method or the target begins.
    mark: usize,
    head: RequestHead,
    fields: FieldLines,
    facts: Facts,
}

impl RequestParser {
    /// A parser before the first byte.
    pub fn new() -> Self {
        RequestParser::default()
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
    pub fn head(&self) -> RequestHead {
        self.head
    }

    /// Whether the head is complete. Each stage that completes leads to the next one below it.
    fn step(&mut self, window: &[u8], limits: &Limits, headers: &mut Headers) -> Result<bool, Malformed> {
        if matches!(self.stage, Stage::Start) && !self.start(window, headers)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Method) && !self.method(window)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Target) && !self.target(window, limits)? {
            return Ok(false);
        }
        if matches!(self.stage, Stage::Version) && !self.version(window)? {
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

    /// One empty line is skipped, for clients that end a body with a stray CRLF (RFC 9112 2.2).
    #[inline]
    fn start(&mut self, window: &[u8], headers: &mut Headers) -> Result<bool, Malformed> {
        headers.clear();
        self.mark = match window {
            [] | [b'\r'] | [b'\r', b'\n'] => return Ok(false),
            [b'\r', b'\n', b'\r', ..] => return Err(Malformed::EmptyLines),
            [b'\r', b'\n', ..] => 2,
            [b'\r', ..] => return Err(Malformed::BareCr),
            _ => 0,
        };
        self.at = self.mark;
        self.stage = Stage::Method;
        Ok(true)
    }

    #[inline]
    fn method(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        let bound = self.mark + METHOD_BYTES + 1;
        self.at = scan::token_end(window.get(..bound).unwrap_or(window), self.at);
        if self.at == bound {
            return Err(Malformed::MethodTooLong);
        }
        match window.get(self.at) {
            None => return Ok(false),
            Some(b' ') if self.at > self.mark => {}
            Some(b'\n') => return Err(Malformed::BareLf),
            Some(_) => return Err(Malformed::MethodNotToken),
        }
        self.head.method_span = Span::new(self.mark, self.at);
        let token = self.head.method_span.of(window);
        self.head.method = Method::of(token);
        match token {
            b"CONNECT" => return Err(Malformed::MethodConnect),
            b"TRACE" => return Err(Malformed::MethodTrace),
            _ => {}
        }
        self.at += 1;
        self.mark = self.at;
        self.stage = Stage::Target;
        Ok(true)
    }

    #[inline]
    fn target(&mut self, window: &[u8], limits: &Limits) -> Result<bool, Malformed> {
        let bound = self.mark.saturating_add(limits.target_bytes as usize).saturating_add(1);
        self.at = scan::target_end(window.get(..bound).unwrap_or(window), self.at);
        if self.at >= bound {
            return Err(Malformed::TargetTooLong);
        }
        match window.get(self.at) {
            None => return Ok(false),
            Some(b' ') if self.at > self.mark => {}
            Some(&byte) => return Err(bad_target_byte(byte, self.at == self.mark)),
        }
        self.head.target = Span::new(self.mark, self.at);
        self.at += 1;
        self.stage = Stage::Version;
        Ok(true)
    }

    #[inline]
    fn version(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        let rest = window.get(self.at..).unwrap_or_default();
        self.head.version = match rest.first_chunk() {
            Some(b"HTTP/1.1\r\n") => Version::Http11,
            Some(b"HTTP/1.0\r\n") => Version::Http10,
            _ => return self.odd_version(window, rest),
        };
        let parts = target::split(window, self.head.target, self.head.method)?;
        self.head.path = parts.path;
        self.head.query = parts.query;
        self.head.authority = parts.authority.unwrap_or_default();
        self.fields = FieldLines::starting_at(self.at + 10);
        self.stage = Stage::Fields;
        Ok(true)
    }

    /// A version line that is incomplete (false) or refused.
    #[cold]
    fn odd_version(&self, window: &[u8], rest: &[u8]) -> Result<bool, Malformed> {
        for (at, (&byte, &form)) in rest.iter().zip(b"HTTP/d.d\r\n").enumerate() {
            let fits = if form == b'd' { byte.is_ascii_digit() } else { byte == form };
            match (fits, at, byte) {
                (true, ..) => {}
                (false, 8, b'\n') => return Err(Malformed::BareLf),
                (false, 9, _) => return Err(Malformed::BareCr),
                (false, ..) => return Err(Malformed::VersionMalformed),
            }
        }
        if rest.len() < 10 {
            return Ok(false);
        }
        let preface = self.head.method_span.of(window) == b"PRI" && rest.starts_with(b"HTTP/2.0");
        Err(if preface { Malformed::Http2Preface } else { Malformed::VersionUnsupported })
    }

    /// The rules that need all fields.
    #[inline]
    fn finish(&mut self, end: usize) -> Result<bool, Malformed> {
        self.head.len = crate::span::narrow(end);
        self.head.connection = self.facts.connection;
        self.head.expect_continue = self.facts.expect_continue && self.head.version == Version::Http11;
        match self.facts.host {
            None if self.head.version == Version::Http11 => return Err(Malformed::HostMissing),
            Some(host) if self.head.authority.is_empty() => self.head.authority = host,
            _ => {}
        }
        self.head.body = self.facts.body.of_request(self.head.version)?;
        self.stage = Stage::Done;
        Ok(true)
    }
}

#[cold]
fn bad_target_byte(byte: u8, first: bool) -> Malformed {
    match byte {
        b'\n' => Malformed::BareLf,
        b' ' | b'\r' if first => Malformed::TargetEmpty,
        b'\r' => Malformed::VersionMalformed,
        b'#' => Malformed::TargetFragment,
        _ => Malformed::TargetByte,
    }
}
