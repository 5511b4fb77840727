//! What a parsed head is: bounds, start line, header lines.
//!
//! Owns the value types that the parsers fill and the relay reads. They hold spans into the caller's
//! buffer and must never hold bytes of it.

use super::facts::ConnectionFacts;
use super::field::Field;
use super::framing::Framing;
use crate::Span;

/// The longest method that is looked at; RFC 9112 3 suggests 501 for longer ones.
pub const METHOD_BYTES: usize = 32;

/// Bounds on what one message may occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, from the first byte to the blank line inclusive.
    pub head_bytes: u32,
    /// Bytes of a request-target.
    pub target_bytes: u32,
    /// Header lines of a head.
    pub headers: u16,
    /// Bytes of one chunk-size line without its CRLF.
    pub chunk_line_bytes: u32,
    /// Bytes of a trailer section, the blank line included.
    pub trailer_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes: 64 * 1024,
            target_bytes: 16 * 1024,
            headers: 100,
            chunk_line_bytes: 4096,
            trailer_bytes: 16 * 1024,
        }
    }
}

/// Request methods this proxy tells apart. Methods are case-sensitive (RFC 9110 9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// HEAD: its response never has a body.
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// OPTIONS: the only one that may ask for `*`.
    Options,
    /// PATCH
    Patch,
    /// Any other token; relayed as it is.
    Other,
}

impl Method {
    pub(super) fn of(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// Protocol versions that are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// What a parser made of the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes are fine and the head is not complete.
    NeedMore,
    /// The head is complete; its length is in the head.
    Done,
}

/// One header line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The field name, never empty.
    pub name: Span,
    /// The value without the whitespace around it; may be empty.
    pub value: Span,
    /// The whole line with its CRLF: what to copy or to leave out.
    pub line: Span,
    /// Which known field the name is.
    pub field: Field,
}

/// The header lines of one head, in order. Made once per connection and reused: parsing never makes it
/// grow past the capacity given here.
#[derive(Clone, Debug)]
pub struct Headers {
    lines: Vec<Header>,
    seen: u64,
}

impl Headers {
    /// Room for `capacity` lines; more lines than that are refused even if [`Limits::headers`] is higher.
    pub fn with_capacity(capacity: u16) -> Self {
        Headers { lines: Vec::with_capacity(usize::from(capacity)), seen: 0 }
    }

    /// Forgets the lines, keeps the room.
    #[inline]
    pub fn clear(&mut self) {
        self.lines.clear();
        self.seen = 0;
    }

    /// The lines in the order of the message.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.lines.iter()
    }

    /// The lines as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[Header] {
        &self.lines
    }

    /// How many lines there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether a line of this field is there; constant time.
    #[inline]
    pub fn has(&self, field: Field) -> bool {
        self.seen & field.bit() != 0
    }

    /// The first line of a field.
    #[inline]
    pub fn first(&self, field: Field) -> Option<&Header> {
        if !self.has(field) {
            return None;
        }
        self.lines.iter().find(|header| header.field == field)
    }

    /// The first line whose name equals `name`, whatever the case of its letters.
    pub fn named<'a>(&'a self, buf: &[u8], name: &[u8]) -> Option<&'a Header> {
        self.lines.iter().find(|header| header.name.of(buf).eq_ignore_ascii_case(name))
    }

    /// Whether a Connection line of this head lists the name of `header`, which a proxy must then remove
    /// (RFC 9110 7.6.1). Ask only when [`ConnectionFacts::names_fields`] is set: it reads all of them.
    pub fn is_listed_by_connection(&self, buf: &[u8], header: &Header) -> bool {
        let name = header.name.of(buf);
        self.lines
            .iter()
            .filter(|line| line.field == Field::Connection)
            .flat_map(|line| line.value.of(buf).split(|&byte| byte == b','))
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
    }

    /// Whether a proxy must not forward this line: hop-by-hop by its nature or because Connection lists it
    /// (RFC 9110 7.6.1). `facts` are those of the same head.
    #[inline]
    pub fn is_hop_by_hop(&self, buf: &[u8], header: &Header, facts: ConnectionFacts) -> bool {
        header.field.is_hop_by_hop() || (facts.names_fields && self.is_listed_by_connection(buf, header))
    }

    /// How many lines may be pushed in all.
    #[inline]
    pub(super) fn room(&self, bound: u16) -> usize {
        usize::from(bound).min(self.lines.capacity())
    }

    #[inline]
    pub(super) fn push(&mut self, header: Header) {
        self.seen |= header.field.bit();
        self.lines.push(header);
    }
}

impl Default for Headers {
    fn default() -> Self {
        Headers::with_capacity(Limits::default().headers)
    }
}

/// A complete, accepted request head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method's bytes.
    pub method_span: Span,
    /// The request-target as sent.
    pub target: Span,
    /// The path without the query; `*` for the asterisk-form; empty when an absolute-form has no path
    /// (it then means `/`).
    pub path: Span,
    /// The query without its `?`; empty if there is none.
    pub query: Span,
    /// Host and port: of an absolute-form target, which overrides Host (RFC 9112 3.2.2), else of Host;
    /// empty only in HTTP/1.0.
    pub authority: Span,
    /// The version of the request line.
    pub version: Version,
    /// Bytes of the head, the blank line and a skipped empty line before it included: where the body begins.
    pub len: u32,
    /// What Connection says.
    pub connection: ConnectionFacts,
    /// Whether the client waits for `100 Continue`; never in HTTP/1.0 (RFC 9110 10.1.1).
    pub expect_continue: bool,
    /// How long the body is.
    pub body: Framing,
}

/// A complete, accepted response head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// The version of the status line.
    pub version: Version,
    /// The status code, 100 to 599.
    pub status: u16,
    /// The reason phrase; may be empty.
    pub reason: Span,
    /// Bytes of the head, the blank line included.
    pub len: u32,
    /// What Connection says.
    pub connection: ConnectionFacts,
    /// How long the body is.
    pub body: Framing,
}
