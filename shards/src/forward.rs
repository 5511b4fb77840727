//! The heads that go out: a request's towards the endpoint, an answer's towards the client. Owns which
//! header lines are dropped, replaced and added; must never touch a body.
//!
//! All other bytes are the sender's own: lines are copied in runs, order and case kept.

use warmpath_parser::http1::{Field, Framing, Header, Headers, RequestHead, ResponseHead, Version, write};

/// What a request head is written from.
pub struct Outgoing<'a> {
    /// The bytes of the received head.
    pub bytes: &'a [u8],
    /// The parsed head.
    pub head: &'a RequestHead,
    /// Its lines.
    pub headers: &'a Headers,
    /// How the body goes out: [`Framing::Length`], [`Framing::Chunked`] or none.
    pub body: Framing,
    /// The body is the gateway's edition of the client's, and its length another; an answer to it is read here, or
    /// is that of the other leg.
    pub edited: bool,
    /// The client and the VIP, for `X-Forwarded-*`; `None` leaves the client's own lines out.
    pub forwarded: Option<Forwarded>,
    /// The `X-Request-Id`; `None` leaves the client's own.
    pub request_id: Option<&'a [u8]>,
    /// The data-parallel rank that is to serve it, if the gateway chose one: the client named none then.
    pub rank: Option<u8>,
}

/// Who asked, and where.
#[derive(Clone, Copy)]
pub struct Forwarded {
    /// The client.
    pub client: std::net::IpAddr,
    /// The port it connected to.
    pub port: u16,
}

/// Writes the request head that the endpoint gets.
pub fn request_head(request: &Outgoing<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(request.head.method_span.of(request.bytes));
    out.push(b' ');
    write_target(request, out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if request.head.target.of(request.bytes).first() != Some(&b'/') || !request.headers.has(Field::Host) {
        write::header(out, b"Host", request.head.authority.of(request.bytes));
        copy_lines(request.bytes, request.headers, out, |h| dropped(request, h) || h.field == Field::Host);
    } else {
        copy_lines(request.bytes, request.headers, out, |h| dropped(request, h));
    }
    match request.body {
        Framing::Length(bytes) if request.edited || !request.headers.has(Field::ContentLength) => {
            out.extend_from_slice(b"Content-Length: ");
            write::decimal(out, bytes);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        _ => {}
    }
    if let Some(id) = request.request_id {
        write::header(out, b"X-Request-Id", id);
    }
    if let Some(rank) = request.rank {
        out.extend_from_slice(b"X-Data-Parallel-Rank: ");
        write::decimal(out, u64::from(rank));
        out.extend_from_slice(b"\r\n");
    }
    if let Some(forwarded) = request.forwarded {
        write_forwarded(forwarded, request.head.authority.of(request.bytes), out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Origin-form as it came; an absolute-form as path and query.
fn write_target(request: &Outgoing<'_>, out: &mut Vec<u8>) {
    let target = request.head.target.of(request.bytes);
    if target.first() == Some(&b'/') || target == b"*" {
        return out.extend_from_slice(target);
    }
    let path = request.head.path.of(request.bytes);
    out.extend_from_slice(if path.is_empty() { b"/" } else { path });
    if !request.head.query.is_empty() {
        out.push(b'?');
        out.extend_from_slice(request.head.query.of(request.bytes));
    }
}

/// Lines the endpoint must not see from the client: of this hop only, or the gateway's to say.
fn dropped(request: &Outgoing<'_>, header: &Header) -> bool {
    use Field::{Expect, XForwardedFor, XForwardedHost, XForwardedPort, XForwardedProto};
    matches!(header.field, Expect | XForwardedFor | XForwardedHost | XForwardedPort | XForwardedProto)
        || request.edited && header.field == Field::ContentLength
        || request.request_id.is_some() && header.field == Field::XRequestId
        || request.headers.is_hop_by_hop(request.bytes, header, request.head.connection)
}

fn write_forwarded(forwarded: Forwarded, host: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    write_address(forwarded.client, out);
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: ");
    write::decimal(out, u64::from(forwarded.port));
    out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
    out.extend_from_slice(host);
    out.extend_from_slice(b"\r\n");
}

fn write_address(address: std::net::IpAddr, out: &mut Vec<u8>) {
    match address {
        std::net::IpAddr::V4(v4) => {
            for (place, octet) in v4.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                write::decimal(out, u64::from(octet));
            }
        }
        std::net::IpAddr::V6(v6) => out.extend_from_slice(v6.to_string().as_bytes()),
    }
}

/// Copies the lines that `drop` does not name, in runs as long as possible.
fn copy_lines(bytes: &[u8], headers: &Headers, out: &mut Vec<u8>, drop: impl Fn(&Header) -> bool) {
    let mut run: Option<std::ops::Range<usize>> = None;
    for header in headers.iter() {
        if drop(header) {
            if let Some(run) = run.take() {
                out.extend_from_slice(&bytes[run]);
            }
            continue;
        }
        let line = header.line.range();
        run = Some(run.map_or(line.start, |r| r.start)..line.end);
    }
    if let Some(run) = run {
        out.extend_from_slice(&bytes[run]);
    }
}

/// What the client is told about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It lives on, as its version says by default.
    Implied,
    /// It lives on, said aloud to an HTTP/1.0 client that asked.
    KeepAlive,
    /// It ends after this answer.
    Close,
}

/// Whether an answer's head may go to the client byte for byte.
pub fn is_verbatim(head: &ResponseHead, headers: &Headers, persistence: Persistence) -> bool {
    const OURS: [Field; 7] = [
        Field::Connection,
        Field::KeepAlive,
        Field::ProxyConnection,
        Field::ProxyAuthenticate,
        Field::Upgrade,
        Field::Te,
        Field::Trailer,
    ];
    head.version == Version::Http11
        && persistence == Persistence::Implied
        && !OURS.iter().any(|field| headers.has(*field))
}

/// Writes the head that the client gets, but for the empty line at its end. `chunked`: the body goes out in
/// chunks.
pub fn answer_head(
    bytes: &[u8],
    head: &ResponseHead,
    headers: &Headers,
    persistence: Persistence,
    chunked: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write::decimal(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(head.reason.of(bytes));
    out.extend_from_slice(b"\r\n");
    copy_lines(bytes, headers, out, |h| headers.is_hop_by_hop(bytes, h, head.connection));
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    write_persistence(persistence, out);
}

/// Writes the Connection line, if one is due.
pub fn write_persistence(persistence: Persistence, out: &mut Vec<u8>) {
    match persistence {
        Persistence::Implied => {}
        Persistence::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        Persistence::Close => out.extend_from_slice(b"Connection: close\r\n"),
    }
}
