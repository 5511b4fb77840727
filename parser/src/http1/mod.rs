//! HTTP/1.1 for a proxy: heads, body framing, chunks, encoders.
//!
//! Owns what RFC 9110 and RFC 9112 ask of a strict intermediary. Policy decided once, here, for all of it:
//! only CRLF ends a line (bare LF and bare CR are refused), fields are never folded, Content-Length is
//! never repeated, and `chunked` is the only transfer coding. Reading order: `head` (what comes out),
//! `request` and `response` (the start lines), `fields` (the lines after them), `framing` (how long the
//! body is), `chunk`, `write`.

pub mod chunk;
mod facts;
pub mod field;
mod fields;
pub mod framing;
pub mod head;
mod host;
mod request;
mod response;
mod target;
pub mod write;

pub use chunk::{ChunkDecoder, Piece};
pub use facts::ConnectionFacts;
pub use field::Field;
pub use framing::Framing;
pub use head::{Header, Headers, Limits, METHOD_BYTES, Method, Progress, RequestHead, ResponseHead, Version};
pub use request::RequestParser;
pub use response::ResponseParser;
