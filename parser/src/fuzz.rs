//! What the fuzz targets and the corpus test call: each machine on arbitrary bytes.
//!
//! Owns the properties that hold for all input: no panic, the same verdict at any split, spans in order
//! and inside the buffer, edits that leave valid JSON valid. It is not part of the API.

use crate::http1::{
    ChunkDecoder, Header, Headers, Limits, Method, Progress, RequestHead, RequestParser, ResponseHead,
    ResponseParser,
};
use crate::json::{self, Change, JsonLimits, Member, Members};
use crate::{Malformed, Span, sse};

/// Small bounds, so that they are met.
const LIMITS: Limits =
    Limits { head_bytes: 512, target_bytes: 64, headers: 8, chunk_line_bytes: 24, trailer_bytes: 48 };

/// Ends of the parts that a first byte asks for, the last of them the whole.
fn ends(data: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let (step, length) = (1 + usize::from(data.first().copied().unwrap_or(0) % 19), data.len());
    (0..length).step_by(step).chain([length])
}

/// A request head.
pub fn request(data: &[u8]) {
    let whole = request_head(data, [data.len()].into_iter());
    assert_eq!(whole, request_head(data, ends(data)));
}

fn request_head(
    data: &[u8],
    ends: impl Iterator<Item = usize>,
) -> Result<Option<(RequestHead, Vec<Header>)>, Malformed> {
    let (mut parser, mut headers) = (RequestParser::new(), Headers::default());
    for end in ends {
        if parser.advance(&data[..end], &LIMITS, &mut headers)? == Progress::Done {
            let head = parser.head();
            check_lines(data, head.len, &headers);
            assert!(!head.target.is_empty() && head.path.end <= head.target.end);
            return Ok(Some((head, headers.as_slice().to_vec())));
        }
    }
    Ok(None)
}

/// A response head.
pub fn response(data: &[u8]) {
    let whole = response_head(data, [data.len()].into_iter());
    assert_eq!(whole, response_head(data, ends(data)));
}

fn response_head(
    data: &[u8],
    ends: impl Iterator<Item = usize>,
) -> Result<Option<(ResponseHead, Vec<Header>)>, Malformed> {
    let (mut parser, mut headers) = (ResponseParser::new(Method::Get), Headers::default());
    for end in ends {
        if parser.advance(&data[..end], &LIMITS, &mut headers)? == Progress::Done {
            check_lines(data, parser.head().len, &headers);
            return Ok(Some((parser.head(), headers.as_slice().to_vec())));
        }
    }
    Ok(None)
}

/// The lines lie end to end up to the blank line and hold no byte that ends one.
fn check_lines(data: &[u8], len: u32, headers: &Headers) {
    let mut at = headers.iter().next().map_or(len - 2, |first| first.line.start);
    for header in headers.iter() {
        assert_eq!(header.line.start, at);
        assert!(header.name.end < header.line.end && header.value.end <= header.line.end - 2);
        assert!(!header.value.of(data).iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
        at = header.line.end;
    }
    assert_eq!(at + 2, len);
    assert_eq!(Span { start: at, end: len }.of(data), b"\r\n");
}

/// A chunked body.
pub fn chunks(data: &[u8]) {
    let whole = decoded(data, [data.len()].into_iter());
    assert_eq!(whole, decoded(data, ends(data)));
}

/// The data, how many bytes the body took, and whether it is complete.
fn decoded(data: &[u8], ends: impl Iterator<Item = usize>) -> Result<(Vec<u8>, usize, bool), Malformed> {
    let (mut decoder, mut out, mut at) = (ChunkDecoder::new(), Vec::new(), 0);
    for end in ends {
        while at < end && !decoder.is_done() {
            let input = &data[at..end];
            let piece = decoder.advance(input, &LIMITS)?;
            assert!(piece.consumed > 0 && piece.consumed <= input.len());
            out.extend_from_slice(&input[piece.data]);
            at += piece.consumed;
        }
    }
    Ok((out, at, decoder.is_done()))
}

/// A JSON body: what is found, its text, and every single change of it.
pub fn json(data: &[u8]) {
    let limits = JsonLimits { depth: 16 };
    let mut members = Members::new();
    if json::peek(data, &mut members, limits).is_err() {
        return;
    }
    let (mut out, mut edits) = (Vec::new(), Vec::new());
    for member in Member::ALL {
        if let Some(value) = members.get(*member) {
            out.clear();
            json::prefix_text(data, value, 5, &mut out);
            assert!(out.len() <= 5 && std::str::from_utf8(&out).is_ok());
            json::first_message_text(data, value, &["system", "user"], 5, &mut out);
        }
        for change in [Change::Remove(*member), Change::Set(*member, b"[0]")] {
            out.clear();
            json::edits(data, &members, &[change], &mut edits);
            json::apply(data, &edits, &mut out);
            let mut again = Vec::new();
            json::Rewrite::begin(data, &members, &[change], 0, &mut again).end();
            assert_eq!(again, out);
            let mut after = Members::new();
            assert_eq!(json::peek(&out, &mut after, limits), Ok(()));
            let value = after.get(*member).map(|value| value.raw.of(&out));
            let expected = matches!(change, Change::Set(..)).then_some(b"[0]".as_slice());
            assert_eq!(value, expected);
            let others =
                |found: &Members| Member::ALL.iter().filter(|other| found.get(**other).is_some()).count();
            assert_eq!(
                others(&after) + usize::from(members.get(*member).is_some()),
                others(&members) + usize::from(expected.is_some())
            );
        }
    }
}

/// A stream of server-sent events.
pub fn events(data: &[u8]) {
    let whole = framed(data, [data.len()].into_iter());
    assert_eq!(whole, framed(data, ends(data)));
}

fn framed(data: &[u8], ends: impl Iterator<Item = usize>) -> (Vec<Option<Vec<u8>>>, u64) {
    const BOUND: usize = 24;
    let (mut framer, mut kept, mut events, mut at) = (sse::Framer::new(BOUND), Vec::new(), Vec::new(), 0);
    for end in ends {
        while at < end {
            let input = &data[at..end];
            let step = framer.advance(input, &mut kept);
            assert!(step.consumed > 0 && step.consumed <= input.len() && kept.len() <= BOUND);
            if let Some(found) = step.event {
                events.push(found.bytes(input, &kept).map(<[u8]>::to_vec));
            }
            at += step.consumed;
        }
    }
    (events, framer.oversized())
}
