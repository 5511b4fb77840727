//! The tokens that an engine says it found in its cache: `usage.prompt_tokens_details.cached_tokens` and
//! `usage.prompt_tokens` of an answer, whole or streamed, read as it passes. Owns the reading alone; must never
//! hold, change or copy a byte of the answer, allocate, or judge what it says (`proof` takes it).

use memchr::memmem::Finder;
use std::sync::LazyLock;

/// How the keys of both numbers end.
const ENDING: &[u8] = b"_tokens\"";
/// Bytes of either key with its quotes.
const KEY: usize = 15;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ENDING));

/// A member that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Prompt,
    Cached,
}

impl Member {
    /// The key as it stands in the answer (vLLM 0.32.0, llama.cpp b11434). Within a string its quotes would be
    /// escaped, so these bytes with a colon are a key wherever they come.
    fn key(self) -> &'static [u8; KEY] {
        match self {
            Member::Prompt => b"\"prompt_tokens\"",
            Member::Cached => b"\"cached_tokens\"",
        }
    }

    /// The one whose key these bytes end with.
    fn ending(bytes: &[u8]) -> Option<Member> {
        [Member::Prompt, Member::Cached].into_iter().find(|member| bytes.ends_with(member.key()))
    }
}

/// Where in a member the last byte left off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// In none.
    #[default]
    Between,
    /// A quote that may begin a key.
    Quote,
    /// So many bytes of its key.
    Key(Member, u8),
    /// Its key; a colon makes it one.
    Colon(Member),
    /// The colon.
    Value(Member),
    /// Digits so far.
    Digits(Member, u32),
}

/// What an answer told so far. Of several, the last counts, since engines that tell usage on each event count up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    step: Step,
    prompt: Option<u32>,
    cached: Option<u32>,
}

/// Reads the next bytes of a body where that is asked for.
#[inline]
pub fn read(usage: &mut Option<Usage>, data: &[u8]) {
    if let Some(usage) = usage {
        usage.read(data);
    }
}

impl Usage {
    /// Prompt tokens as the engine counted them, if it told.
    pub fn prompt_tokens(&self) -> Option<u32> {
        self.prompt
    }

    /// Of these, found in its cache, if it told. vLLM does with `--enable-prompt-tokens-details`, else it writes
    /// null (seen in 0.32.0); llama.cpp always does (seen in b11434).
    pub fn cached_tokens(&self) -> Option<u32> {
        self.cached
    }

    /// Reads the next bytes of the body, chunk framing taken off, however they were split.
    pub fn read(&mut self, bytes: &[u8]) {
        let mut rest = self.walk(bytes);
        while let Some(found) = FINDER.find(rest) {
            let (before, after) = rest.split_at(found + ENDING.len());
            self.step = Member::ending(before).map_or(Step::Quote, Step::Colon);
            rest = self.walk(after);
        }
        // A key may have begun that goes on in the next bytes.
        let last = &rest[rest.len().saturating_sub(KEY - 1)..];
        if let Some(quote) = last.iter().rposition(|byte| *byte == b'"') {
            self.step = Step::Quote;
            self.walk(&last[quote + 1..]);
        }
    }

    /// Goes on byte by byte while a member is open, and gives what lies behind it.
    fn walk<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut at = 0;
        while at < bytes.len() && self.step != Step::Between {
            self.step = self.next(bytes[at]);
            at += 1;
        }
        &bytes[at..]
    }

    fn next(&mut self, byte: u8) -> Step {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'));
        match (self.step, byte) {
            (Step::Quote, b'p') => return Step::Key(Member::Prompt, 2),
            (Step::Quote, b'c') => return Step::Key(Member::Cached, 2),
            (Step::Key(member, at), _) if member.key()[usize::from(at)] == byte => {
                let whole = usize::from(at) + 1 == KEY;
                return if whole { Step::Colon(member) } else { Step::Key(member, at + 1) };
            }
            (Step::Colon(_) | Step::Value(_), b' ' | b'\t' | b'\r' | b'\n') => return self.step,
            (Step::Colon(member), b':') => return Step::Value(member),
            (Step::Value(member), _) => match digit {
                Some(digit) => return Step::Digits(member, digit),
                None => self.note(member, None),
            },
            (Step::Digits(member, number), _) => {
                let longer = digit.map(|digit| number.checked_mul(10)?.checked_add(digit));
                match longer {
                    Some(Some(number)) => return Step::Digits(member, number),
                    Some(None) => self.note(member, None),
                    None => self.note(member, Some(number).filter(|_| !matches!(byte, b'.' | b'e' | b'E'))),
                }
            }
            _ => {}
        }
        if byte == b'"' { Step::Quote } else { Step::Between }
    }

    fn note(&mut self, member: Member, number: Option<u32>) {
        match member {
            Member::Prompt => self.prompt = number,
            Member::Cached => self.cached = number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two are of real engines, vLLM 0.32.0 and llama.cpp b11434; strings of the others hold what must
    /// not be taken for a member.
    const ANSWERS: [(&str, Option<u32>, Option<u32>); 13] = [
        (
            r#"{"usage":{"prompt_tokens": 150, "total_tokens": 151, "completion_tokens": 1, "prompt_tokens_details": null, "completion_tokens_details": null}}"#,
            Some(150),
            None,
        ),
        (
            r#"{"usage":{"completion_tokens": 2, "prompt_tokens": 4, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 3}}}"#,
            Some(4),
            Some(3),
        ),
        (
            r#"{"choices":[{"text":"\"cached_tokens\":9,"}],"usage":{"prompt_tokens":192,"total_tokens":208,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":144}}}"#,
            Some(192),
            Some(144),
        ),
        (
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\": 33, \"completion_tokens\": 5, \
             \"prompt_tokens_details\": {\"cached_tokens\" :\n 0}}}\n\ndata: [DONE]\n\n",
            Some(33),
            Some(0),
        ),
        (r#"{"usage":{"prompt_tokens":10,"prompt_tokens_details":null}}"#, Some(10), None),
        (
            r#"{"usage":{"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":4294967295}},"x":1}"#,
            None,
            Some(u32::MAX),
        ),
        (r#"{"cached_tokens":4294967296,"prompt_tokens":1.5}"#, None, None),
        (r#"{"cached_tokens":-1,"prompt_tokens":1e3}"#, None, None),
        (r#"{"cached_tokens":7,"prompt_tokens":2}{"cached_tokens":null,"prompt_tokens":3}"#, Some(3), None),
        (r#"{"cached_tokens":16}{"cached_tokens":32}"#, None, Some(32)),
        (r#"["cached_tokens","prompt_tokens",{"uncached_tokens":5,"prompt_token":6}]"#, None, None),
        (r#""x_tokens"cached_tokens":8,""prompt_tokens":9 "#, Some(9), Some(8)),
        (r#"{"cached_tokens":12"#, None, None),
    ];

    fn told(usage: &Usage) -> (Option<u32>, Option<u32>) {
        (usage.prompt_tokens(), usage.cached_tokens())
    }

    #[test]
    fn what_the_answer_tells_is_read() {
        for (text, prompt, cached) in ANSWERS {
            let mut usage = Usage::default();
            usage.read(text.as_bytes());
            assert_eq!(told(&usage), (prompt, cached), "{text}");
        }
    }

    #[test]
    fn no_split_changes_it() {
        for (text, prompt, cached) in ANSWERS {
            let bytes = text.as_bytes();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let mut usage = Usage::default();
                    usage.read(&bytes[..first]);
                    usage.read(&bytes[first..second]);
                    usage.read(&bytes[second..]);
                    assert_eq!(told(&usage), (prompt, cached), "{first} {second} {text}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_any_kind_are_read_the_same_in_pieces_of_any_size() {
        let parts: [&[u8]; 10] = [
            b"\"",
            b"cached",
            b"prompt",
            b"_tokens\"",
            b":",
            b" ",
            b"12",
            b".",
            b"\"cached_tokens\":",
            b"{\"a\":[",
        ];
        let mut seed = 1u64;
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut found = 0;
        for _ in 0..3_000 {
            let text: Vec<u8> = (0..draw(40)).flat_map(|_| parts[draw(parts.len())]).copied().collect();
            let mut whole = Usage::default();
            whole.read(&text);
            let mut single = Usage::default();
            text.iter().for_each(|byte| single.read(std::slice::from_ref(byte)));
            assert_eq!(single, whole, "{}", String::from_utf8_lossy(&text));
            let mut pieces = Usage::default();
            let mut rest = text.as_slice();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(1 + draw(rest.len()));
                pieces.read(piece);
                rest = behind;
            }
            assert_eq!(pieces, whole, "{}", String::from_utf8_lossy(&text));
            found += usize::from(whole.cached_tokens().is_some());
        }
        assert!(found > 100, "the texts hold members: {found}");
    }
}
