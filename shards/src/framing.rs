//! The framing of an answer as it comes: where its final head is, and which of the bytes behind belong to it. Owns
//! following it piece by piece; must never touch a socket.

use crate::exchange::{Answer, AnswerBody, Exchange};
use crate::usage;
use warmpath_parser::Malformed;
use warmpath_parser::http1::{ChunkDecoder, Field, Limits, Progress, ResponseParser};

/// What a parser made of bytes that may hold interim answers before the final one.
pub enum Parsed {
    /// The final head begins at `at`; it is in the exchange's parser.
    Final {
        /// Where the head begins.
        at: usize,
    },
    /// Not whole yet; what lies before `at` is dealt with.
    Partial {
        /// Up to where.
        at: usize,
    },
}

/// Parses up to the final head. Interim answers (1xx) end here: `100` was answered by this gateway itself.
pub fn parse_final(exchange: &mut Exchange, bytes: &[u8], limits: &Limits) -> Result<Parsed, Malformed> {
    let mut at = 0;
    loop {
        let answer = &mut exchange.answer;
        match answer.parser.advance(&bytes[at..], limits, &mut answer.headers)? {
            Progress::NeedMore => return Ok(Parsed::Partial { at }),
            Progress::Done => {
                let head = answer.parser.head();
                if head.status >= 200 {
                    return Ok(Parsed::Final { at });
                }
                at += head.len as usize;
                answer.parser = ResponseParser::new(exchange.head.method);
            }
        }
    }
}

/// Bytes that belong to the answer, and whether they end it.
pub struct Taken {
    /// How many.
    pub bytes: usize,
    /// Nothing more belongs to it.
    pub done: bool,
}

/// Follows the answer's framing over `bytes`.
pub fn track(exchange: &mut Exchange, bytes: &[u8], limits: &Limits) -> Result<Taken, Malformed> {
    let Answer { body, usage: told, .. } = &mut exchange.answer;
    match body {
        AnswerBody::None => Ok(Taken { bytes: 0, done: true }),
        AnswerBody::UntilClose => {
            usage::read(told, bytes);
            Ok(Taken { bytes: bytes.len(), done: false })
        }
        AnswerBody::Length(left) => {
            let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= taken as u64;
            usage::read(told, &bytes[..taken]);
            Ok(Taken { bytes: taken, done: *left == 0 })
        }
        AnswerBody::Chunked(decoder) => {
            let mut at = 0;
            let mut done = false;
            while at < bytes.len() && !done {
                let piece = decoder.advance(&bytes[at..], limits)?;
                usage::read(told, &bytes[at + piece.data.start..at + piece.data.end]);
                at += piece.consumed;
                done = piece.done;
            }
            Ok(Taken { bytes: at, done })
        }
    }
}

/// Appends the data of chunks to `out`; true when the body is complete.
pub fn unchunk(
    decoder: &mut ChunkDecoder,
    bytes: &[u8],
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let mut at = 0;
    while at < bytes.len() {
        let piece = decoder.advance(&bytes[at..], limits)?;
        out.extend_from_slice(&bytes[at + piece.data.start..at + piece.data.end]);
        at += piece.consumed;
        if piece.done {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Notes whether the answer is an event stream. `head` begins with the answer's head.
pub fn note_stream(exchange: &mut Exchange, head: &[u8]) {
    let answer = &mut exchange.answer;
    let kind = answer.headers.first(Field::ContentType).map(|h| h.value.of(head));
    answer.streamed = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
}
