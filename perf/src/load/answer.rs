//! Checks one answer as its bytes arrive: head, body framing, JSON, events up to `[DONE]`.
//! Pure: the time of each read is an argument. Must never accept what a strict client would not.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::client::Timed;
use super::record::Failure;
use crate::wire::Dechunker;

/// Longest accepted response head in bytes.
const MAX_HEAD: usize = 64 * 1024;

#[derive(Debug)]
enum Body {
    /// The head is not complete.
    Unknown,
    Length(usize),
    Chunked(Dechunker),
    UntilClose,
}

/// An answer being read.
#[derive(Debug)]
pub struct Answer {
    stream: bool,
    head: Vec<u8>,
    status: u16,
    keep: bool,
    body: Body,
    content: Vec<u8>,
    done: bool,
    events: Events,
    bytes: u64,
    end: Option<Instant>,
}

impl Answer {
    /// An answer of which nothing came yet; `stream` when events are expected.
    pub fn new(stream: bool) -> Self {
        Answer {
            stream,
            head: Vec::new(),
            status: 0,
            keep: true,
            body: Body::Unknown,
            content: Vec::new(),
            done: false,
            events: Events::default(),
            bytes: 0,
            end: None,
        }
    }

    /// True once the framing says that the answer is whole.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Whether the connection may carry another request.
    pub fn keep_alive(&self) -> bool {
        self.keep
    }

    /// The failure that an end of the connection is at this point.
    pub fn cut(&self) -> Failure {
        if self.bytes == 0 { Failure::Closed } else { Failure::Cut }
    }

    /// Takes bytes in. A byte after the answer's end is a framing failure.
    pub fn feed(&mut self, input: &[u8], now: Instant) -> Result<(), Failure> {
        self.bytes += input.len() as u64;
        if !matches!(self.body, Body::Unknown) {
            return self.feed_body(input, now);
        }
        self.head.extend_from_slice(input);
        if let Some(used) = self.read_head()? {
            let rest = self.head.split_off(used);
            self.feed_body(&rest, now)?;
        }
        Ok(())
    }

    /// The connection ended: the answer's end for a body framed by it, a cut otherwise.
    pub fn end_of_input(&mut self, now: Instant) -> Result<(), Failure> {
        match self.body {
            Body::UntilClose => {
                self.keep = false;
                self.finish(now)
            }
            _ => Err(self.cut()),
        }
    }

    fn read_head(&mut self) -> Result<Option<usize>, Failure> {
        let mut slots = [httparse::EMPTY_HEADER; 128];
        let mut response = httparse::Response::new(&mut slots);
        let used = match response.parse(&self.head) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if self.head.len() <= MAX_HEAD => return Ok(None),
            _ => return Err(Failure::Framing("the response head is not HTTP/1.x")),
        };
        self.status = response.code.unwrap_or(0);
        let minor = response.version.unwrap_or(1);
        let facts = HeadFacts::of(response.headers)?;
        self.keep = if minor == 0 { facts.keep_alive } else { !facts.close };
        if self.status == 200 && facts.event_stream != self.stream {
            return Err(Failure::Content("the media type is not the one asked for"));
        }
        self.body = match (facts.chunked, facts.length) {
            (true, Some(_)) => return Err(Failure::Framing("both Content-Length and chunked")),
            (true, None) => Body::Chunked(Dechunker::default()),
            (false, Some(length)) => Body::Length(length),
            (false, None) => Body::UntilClose,
        };
        Ok(Some(used))
    }

    fn feed_body(&mut self, input: &[u8], now: Instant) -> Result<(), Failure> {
        let before = self.content.len();
        let used = match &mut self.body {
            Body::Unknown => 0,
            Body::Length(length) => {
                let take = input.len().min(*length - self.content.len());
                self.content.extend_from_slice(&input[..take]);
                take
            }
            Body::Chunked(decoder) => decoder.feed(input, &mut self.content).map_err(Failure::Framing)?,
            Body::UntilClose => {
                self.content.extend_from_slice(input);
                input.len()
            }
        };
        if used < input.len() {
            return Err(Failure::Framing("bytes after the end of the answer"));
        }
        if self.stream && self.status == 200 {
            self.events.feed(&self.content[before..], now)?;
            self.content.clear();
            if let Body::Length(length) = &mut self.body {
                *length -= used;
            }
        }
        match &self.body {
            Body::Length(length) if self.content.len() == *length => self.finish(now),
            Body::Chunked(decoder) if decoder.done() => self.finish(now),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, now: Instant) -> Result<(), Failure> {
        self.done = true;
        self.end = Some(now);
        if self.status != 200 {
            return Err(Failure::Status(self.status));
        }
        if self.stream { self.events.finish() } else { check_whole(&self.content) }
    }

    /// The times of a good answer.
    pub fn timed(self) -> Result<Timed, Failure> {
        let end = self.end.ok_or(Failure::Cut)?;
        let first = self.events.first.unwrap_or(end);
        Ok(Timed { first, end, gaps: self.events.gaps, bytes: self.bytes })
    }
}

/// The header fields that matter.
#[derive(Debug, Default)]
struct HeadFacts {
    length: Option<usize>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    event_stream: bool,
}

impl HeadFacts {
    fn of(headers: &[httparse::Header]) -> Result<Self, Failure> {
        let mut facts = HeadFacts::default();
        for header in headers {
            let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => facts.set_length(value)?,
                "transfer-encoding" => facts.chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => {
                    facts.close |= value.eq_ignore_ascii_case("close");
                    facts.keep_alive |= value.eq_ignore_ascii_case("keep-alive");
                }
                "content-type" => facts.event_stream = value.starts_with("text/event-stream"),
                _ => {}
            }
        }
        Ok(facts)
    }

    fn set_length(&mut self, value: &str) -> Result<(), Failure> {
        let length = value.parse().map_err(|_| Failure::Framing("Content-Length is not a number"))?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(Failure::Framing("two different Content-Lengths")),
            _ => Ok(()),
        }
    }
}

/// The members of an answer or event that are checked.
#[derive(Deserialize)]
struct Members {
    choices: Option<Vec<IgnoredAny>>,
    error: Option<IgnoredAny>,
}

fn check_whole(body: &[u8]) -> Result<(), Failure> {
    let members: Members =
        serde_json::from_slice(body).map_err(|_| Failure::Content("the answer is not JSON"))?;
    match members.choices {
        Some(choices) if !choices.is_empty() => Ok(()),
        _ => Err(Failure::Content("the answer has no choices")),
    }
}

/// Server-sent events, split at blank lines whatever the reads were.
#[derive(Debug, Default)]
struct Events {
    partial: Vec<u8>,
    first: Option<Instant>,
    last: Option<Instant>,
    gaps: Vec<Duration>,
    done: bool,
}

impl Events {
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), Failure> {
        self.partial.extend_from_slice(bytes);
        let mut start = 0;
        while let Some((length, next)) = event_end(&self.partial[start..]) {
            let event = std::str::from_utf8(&self.partial[start..start + length])
                .map_err(|_| Failure::Content("an event is not UTF-8"))?
                .to_owned();
            start += next;
            self.event(&event, now)?;
        }
        self.partial.drain(..start);
        Ok(())
    }

    fn event(&mut self, event: &str, now: Instant) -> Result<(), Failure> {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = lines.map(|data| data.strip_prefix(' ').unwrap_or(data)).collect::<Vec<_>>().join("\n");
        if data.is_empty() {
            return Ok(());
        }
        if self.done {
            return Err(Failure::Content("an event after [DONE]"));
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        check_event(&data)?;
        if let Some(last) = self.last.replace(now) {
            self.gaps.push(now - last);
        }
        self.first.get_or_insert(now);
        Ok(())
    }

    fn finish(&self) -> Result<(), Failure> {
        match () {
            () if !self.done => Err(Failure::Content("the stream ends without [DONE]")),
            () if !self.partial.is_empty() => Err(Failure::Content("the stream ends within an event")),
            () if self.first.is_none() => Err(Failure::Content("the stream has no event")),
            () => Ok(()),
        }
    }
}

fn check_event(data: &str) -> Result<(), Failure> {
    let members: Members =
        serde_json::from_str(data).map_err(|_| Failure::Content("an event is not JSON"))?;
    match members {
        Members { error: Some(_), .. } => Err(Failure::StreamError),
        Members { choices: Some(_), .. } => Ok(()),
        _ => Err(Failure::Content("an event has no choices")),
    }
}

/// Length of the first event and where the next begins.
fn event_end(bytes: &[u8]) -> Option<(usize, usize)> {
    let at = |pattern: &[u8]| bytes.windows(pattern.len()).position(|w| w == pattern);
    let plain = at(b"\n\n").map(|end| (end, end + 2));
    let carriage = at(b"\r\n\r\n").map(|end| (end, end + 4));
    match (plain, carriage) {
        (Some(a), Some(b)) => Some(if a.0 < b.0 { a } else { b }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

    fn check(stream: bool, bytes: &[u8], step: usize) -> Result<usize, Failure> {
        let now = Instant::now();
        let mut answer = Answer::new(stream);
        for part in bytes.chunks(step) {
            answer.feed(part, now)?;
        }
        if !answer.done() {
            answer.end_of_input(now)?;
        }
        Ok(answer.timed()?.gaps.len())
    }

    fn chunked(events: &str) -> Vec<u8> {
        format!("{STREAM}{:x}\r\n{events}\r\n0\r\n\r\n", events.len()).into_bytes()
    }

    #[test]
    fn a_good_stream_is_good_at_every_split() {
        let bytes =
            chunked(": ping\n\ndata: {\"choices\":[]}\n\ndata: {\"choices\":[1]}\r\n\r\ndata: [DONE]\n\n");
        for step in 1..bytes.len() {
            assert_eq!(check(true, &bytes, step), Ok(1), "step {step}");
        }
    }

    #[test]
    fn streams_that_a_client_could_not_trust() {
        let content = |events: &str| match check(true, &chunked(events), 7) {
            Err(Failure::Content(words)) => words,
            other => panic!("{other:?}"),
        };
        let good = "data: {\"choices\":[]}\n\n";
        assert!(content(good).contains("without [DONE]"));
        assert!(content(&format!("{good}data: [DONE]\n\n{good}")).contains("after [DONE]"));
        assert!(content(&format!("{good}data: [DONE]\n\ndata")).contains("within an event"));
        assert!(content("data: {\n\ndata: [DONE]\n\n").contains("not JSON"));
        assert!(content("data: [DONE]\n\n").contains("no event"));
        let error = chunked("data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n");
        assert_eq!(check(true, &error, 9), Err(Failure::StreamError));
        let cut = chunked(good);
        assert_eq!(check(true, &cut[..cut.len() - 3], 9), Err(Failure::Cut));
    }

    #[test]
    fn whole_answers() {
        let whole = |body: &str, more: &str| {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{more}\r\n{body}", body.len());
            check(false, text.as_bytes(), 5)
        };
        assert_eq!(whole("{\"choices\":[1]}", ""), Ok(0));
        assert!(matches!(whole("{\"choices\":[]}", ""), Err(Failure::Content(_))));
        assert!(matches!(whole("{\"choices\"", ""), Err(Failure::Content(_))));
        assert!(matches!(whole("{\"choices\":[1]}", "content-length: 3\r\n"), Err(Failure::Framing(_))));
        let long = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}x";
        assert!(matches!(check(false, long, 100), Err(Failure::Framing(_))));
        assert_eq!(check(false, b"", 1), Err(Failure::Closed));
        assert_eq!(
            check(false, b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n", 9),
            Err(Failure::Status(503))
        );
    }
}
