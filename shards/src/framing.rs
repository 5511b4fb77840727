//! The framing of an answer as it comes: where its final head is, and which of the bytes behind belong to it. Owns
//! following it piece by piece; must never touch a socket.

use crate::exchange::{Answer, AnswerBody, Exchange};
use crate::usage::{self, Usage};
use warmpath_parser::Malformed;
use warmpath_parser::http1::{ChunkDecoder, Field, Limits, Method, Progress, ResponseParser};

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
pub fn parse_final(
    answer: &mut Answer,
    method: Method,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Parsed, Malformed> {
    let mut at = 0;
    loop {
        match answer.parser.advance(&bytes[at..], limits, &mut answer.headers)? {
            Progress::NeedMore => return Ok(Parsed::Partial { at }),
            Progress::Done => {
                let head = answer.parser.head();
                if head.status >= 200 {
                    return Ok(Parsed::Final { at });
                }
                at += head.len as usize;
                answer.parser = ResponseParser::new(method);
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
    let Answer { body, usage: told, tail, .. } = &mut exchange.answer;
    match body {
        AnswerBody::None => Ok(Taken { bytes: 0, done: true }),
        AnswerBody::UntilClose => {
            note(told, tail, bytes);
            Ok(Taken { bytes: bytes.len(), done: false })
        }
        AnswerBody::Length(left) => {
            let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= taken as u64;
            note(told, tail, &bytes[..taken]);
            Ok(Taken { bytes: taken, done: *left == 0 })
        }
        AnswerBody::Chunked(decoder) => {
            let mut at = 0;
            let mut done = false;
            while at < bytes.len() && !done {
                let piece = decoder.advance(&bytes[at..], limits)?;
                note(told, tail, &bytes[at + piece.data.start..at + piece.data.end]);
                at += piece.consumed;
                done = piece.done;
            }
            Ok(Taken { bytes: at, done })
        }
    }
}

impl Answer {
    /// Takes notes of more of the body.
    pub fn saw(&mut self, data: &[u8]) {
        note(&mut self.usage, &mut self.tail, data);
    }
}

fn note(told: &mut Option<Usage>, tail: &mut Tail, data: &[u8]) {
    usage::read(told, data);
    tail.note(data);
}

/// The last bytes of a body: whether an event stream is between two events, where one of the gateway's own may
/// stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail([u8; 4]);

impl Tail {
    /// More of the body.
    pub fn note(&mut self, data: &[u8]) {
        let last = &data[data.len().saturating_sub(self.0.len())..];
        self.0.rotate_left(last.len());
        let from = self.0.len() - last.len();
        self.0[from..].copy_from_slice(last);
    }

    /// Whether an empty line was the last, or nothing came yet. Lines end in LF, CR or both.
    pub fn is_between_events(&self) -> bool {
        let without_line_end = |bytes: &[u8]| match bytes {
            [.., b'\r', b'\n'] => Some(bytes.len() - 2),
            [.., b'\r' | b'\n'] => Some(bytes.len() - 1),
            _ => None,
        };
        let ends_twice = || without_line_end(&self.0[..without_line_end(&self.0)?]);
        self.0 == [0; 4] || ends_twice().is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_an_empty_line_over_any_split() {
        let streams: [(&[u8], bool); 11] = [
            (b"", true),
            (b"data: 1\n\n", true),
            (b"data: 1\r\n\r\n", true),
            (b"data: 1\r\r", true),
            (b"data: 1\n\r\n", true),
            (b": ping\n\n\n", true),
            (b"data: 1\n", false),
            (b"data: 1\r\n", false),
            (b"data: 1\n\ndata", false),
            (b"d", false),
            (b"data: 1\n\nd", false),
        ];
        for (stream, between) in streams {
            for cut in 0..=stream.len() {
                let mut tail = Tail::default();
                tail.note(&stream[..cut]);
                tail.note(&stream[cut..]);
                assert_eq!(tail.is_between_events(), between, "{stream:?} cut at {cut}");
            }
        }
    }
}
