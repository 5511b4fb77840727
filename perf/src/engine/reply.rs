//! Response heads and whole answers as bytes, in the writing of uvicorn or cpp-httplib.
//! Must never decide what is answered.

use super::date::http_date;
use super::kinds::{Kind, Reply};
use super::{Engine, unix_now};

/// How the body's end is told (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length(usize),
    /// Transfer-Encoding: chunked.
    Chunked,
    /// The connection's end (HTTP/1.0 streams).
    UntilClose,
}

/// What a response head depends on beside its status and body.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Whether the connection lives on.
    pub keep: bool,
    /// The request's minor HTTP version.
    pub minor: u8,
    /// True for HEAD: head only.
    pub head_only: bool,
}

/// A response head's bytes.
pub fn head(engine: &Engine, manner: Manner, status: u16, content_type: &str, framing: Framing) -> Vec<u8> {
    let kind = engine.config.kind;
    let mut lines = vec![format!("HTTP/1.1 {status} {}", reason(status))];
    if !kind.is_httplib() {
        lines.push(format!("date: {}", http_date(unix_now().as_secs())));
    }
    lines.push(format!("server: {}", kind.server()));
    if !content_type.is_empty() {
        lines.push(format!("content-type: {content_type}"));
    }
    match framing {
        Framing::Length(length) => lines.push(format!("content-length: {length}")),
        Framing::Chunked => lines.push("transfer-encoding: chunked".into()),
        Framing::UntilClose => {}
    }
    match manner {
        Manner { keep: false, .. } => lines.push("connection: close".into()),
        Manner { minor: 0, .. } => lines.push("connection: keep-alive".into()),
        _ if kind.is_httplib() => {
            lines.push(format!("keep-alive: timeout={}, max=100", engine.config.keep_alive.idle.as_secs()));
        }
        _ => {}
    }
    let lines =
        lines.iter().enumerate().map(|(i, line)| if i > 0 { named(kind, line) } else { line.clone() });
    let mut bytes = lines.collect::<Vec<_>>().join("\r\n").into_bytes();
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes
}

/// cpp-httplib writes header names in capitals: `content-length` becomes `Content-Length`.
fn named(kind: Kind, line: &str) -> String {
    if !kind.is_httplib() {
        return line.to_owned();
    }
    let name_end = line.find(':').unwrap_or(0);
    let mut start = true;
    let capital = |(at, c): (usize, char)| {
        let out = if start && at < name_end { c.to_ascii_uppercase() } else { c };
        start = c == '-';
        out
    };
    line.char_indices().map(capital).collect()
}

/// A whole answer's bytes.
pub fn whole(engine: &Engine, manner: Manner, reply: &Reply) -> Vec<u8> {
    let mut bytes = head(engine, manner, reply.status, reply.content_type, Framing::Length(reply.body.len()));
    if !manner.head_only {
        bytes.extend_from_slice(&reply.body);
    }
    bytes
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Simulated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_follow_the_kinds_server() {
        assert_eq!(named(Kind::Llamacpp, "content-type: text/x-y"), "Content-Type: text/x-y");
        assert_eq!(named(Kind::Vllm, "content-type: text/x-y"), "content-type: text/x-y");
    }
}
