//! Bounds hold exactly, and parsing allocates nothing.

#![allow(clippy::unwrap_used)] // A test may stop at the first surprise.

use warmpath_parser::http1::*;
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_parser::{Malformed, sse};

fn request(bytes: &[u8], limits: &Limits) -> Result<Progress, Malformed> {
    RequestParser::new().advance(bytes, limits, &mut Headers::default())
}

/// The verdict must be the same for the whole input and for each prefix on the way to it.
fn fed_by_bytes(bytes: &[u8], limits: &Limits) -> Result<Progress, Malformed> {
    let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
    let mut last = Ok(Progress::NeedMore);
    for end in 0..=bytes.len() {
        last = parser.advance(&bytes[..end], limits, &mut headers);
        if last != Ok(Progress::NeedMore) {
            break;
        }
    }
    last
}

#[test]
fn head_bytes() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for bound in 1..head.len() + 3 {
        let limits = Limits { head_bytes: bound as u32, ..Limits::default() };
        let expected = if bound < head.len() { Err(Malformed::HeadTooLarge) } else { Ok(Progress::Done) };
        assert_eq!(request(head, &limits), expected, "{bound}");
        assert_eq!(fed_by_bytes(head, &limits), expected, "{bound}");
        let full = request(&head[..bound.min(head.len())], &limits);
        assert_eq!(full, expected, "a full buffer of {bound} must not wait for more");
    }
}

#[test]
fn target_bytes() {
    let head = b"GET /0123456789 HTTP/1.1\r\nHost: a\r\n\r\n";
    for bound in 1..20 {
        let limits = Limits { target_bytes: bound, ..Limits::default() };
        let expected = if bound < 11 { Err(Malformed::TargetTooLong) } else { Ok(Progress::Done) };
        assert_eq!(request(head, &limits), expected, "{bound}");
        assert_eq!(fed_by_bytes(head, &limits), expected, "{bound}");
    }
}

#[test]
fn header_lines() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nY: c\r\n\r\n";
    for bound in 0..5 {
        let limits = Limits { headers: bound, ..Limits::default() };
        let expected = if bound < 3 { Err(Malformed::TooManyHeaders) } else { Ok(Progress::Done) };
        assert_eq!(request(head, &limits), expected, "{bound}");
        assert_eq!(fed_by_bytes(head, &limits), expected, "{bound}");
    }
    let mut narrow = Headers::with_capacity(2);
    let verdict = RequestParser::new().advance(head, &Limits::default(), &mut narrow);
    assert_eq!(verdict, Err(Malformed::TooManyHeaders), "the capacity bounds too");
}

fn chunks(bytes: &[u8], step: usize, limits: &Limits) -> Result<bool, Malformed> {
    let mut decoder = ChunkDecoder::new();
    for part in bytes.chunks(step) {
        let mut rest = part;
        while !rest.is_empty() && !decoder.is_done() {
            rest = &rest[decoder.advance(rest, limits)?.consumed..];
        }
    }
    Ok(decoder.is_done())
}

#[test]
fn chunk_lines_and_extensions() {
    let body = b"1;0123456789\r\nx\r\n0\r\n\r\n";
    for step in 1..body.len() {
        for (bound, expected) in [(11, Err(Malformed::ChunkLineTooLong)), (12, Ok(true))] {
            let limits = Limits { chunk_line_bytes: bound, ..Limits::default() };
            assert_eq!(chunks(body, step, &limits), expected, "{bound} by {step}");
        }
    }
    let many = [b"1;01234567\r\nx\r\n".repeat(6), b"0\r\n\r\n".to_vec()].concat();
    let limits = |bytes| Limits { chunk_line_bytes: bytes, ..Limits::default() };
    assert_eq!(chunks(&many, 7, &limits(12)), Ok(true), "48 bytes of extensions are 4 lines of 12");
    assert_eq!(chunks(&many, 7, &limits(11)), Err(Malformed::ChunkExtensionsTooLong));
}

#[test]
fn trailers() {
    let body = b"0\r\nX-Sum: 0123\r\nY: z\r\n\r\n";
    let section = body.len() as u32 - 3;
    for step in 1..body.len() {
        for (bound, expected) in [(section - 1, Err(Malformed::TrailerTooLarge)), (section, Ok(true))] {
            let limits = Limits { trailer_bytes: bound, ..Limits::default() };
            assert_eq!(chunks(body, step, &limits), expected, "{bound} by {step}");
        }
    }
}

#[test]
fn declared_lengths() {
    assert_eq!(Framing::Length(8).within(8), Ok(()));
    assert_eq!(Framing::Length(9).within(8), Err(Malformed::BodyTooLarge));
    assert_eq!(Framing::Chunked.within(0), Ok(()));
}

#[test]
fn chunk_data_is_named_in_place_at_any_split() {
    let body = b"5;x=y\r\nhello\r\n10\r\n, sixteen bytes!\r\n0\r\nX: 1\r\n\r\nNEXT";
    for step in 1..body.len() {
        let (mut decoder, mut data, mut at) = (ChunkDecoder::new(), Vec::new(), 0);
        while at < body.len() && !decoder.is_done() {
            let input = &body[at..(at + step).min(body.len())];
            let piece = decoder.advance(input, &Limits::default()).unwrap();
            data.extend_from_slice(&input[piece.data.clone()]);
            assert!(piece.data.is_empty() || piece.data.end == piece.consumed);
            at += piece.consumed;
        }
        assert_eq!(data, b"hello, sixteen bytes!");
        assert_eq!(&body[at..], b"NEXT", "bytes of the next message are not touched");
    }
}

#[test]
fn parsing_allocates_nothing() {
    let limits = Limits::default();
    let (mut headers, mut members) = (Headers::default(), Members::new());
    let (mut framer, mut kept) = (sse::Framer::new(1024), Vec::with_capacity(1024));
    let head = b"POST /v1 HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = br#"{"mod\u0065l":"m","messages":[{"role":"user","content":"\u00e4 text"}],"n":1}"#;
    let allocations = allocation_counter::measure(|| {
        let mut parser = RequestParser::new();
        assert_eq!(parser.advance(head, &limits, &mut headers), Ok(Progress::Done));
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\n";
        let mut parser = ResponseParser::new(Method::Post);
        assert_eq!(parser.advance(response, &limits, &mut headers), Ok(Progress::Done));
        let mut decoder = ChunkDecoder::new();
        assert_eq!(decoder.advance(b"5;a\r\nhello", &limits).map(|piece| piece.data), Ok(5..10));
        assert_eq!(decoder.advance(b"\r\n0\r\nX: y\r\n\r\n", &limits).map(|piece| piece.done), Ok(true));
        assert_eq!(peek(body, &mut members, JsonLimits::default()), Ok(()));
        for part in [b"data: a".as_slice(), b"b\ndata: c\n\n"] {
            framer.advance(part, &mut kept);
        }
    });
    assert_eq!(allocations.count_total, 0);
    assert_eq!(kept, b"ab\nc");
}
