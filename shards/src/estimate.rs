//! How long a prompt will take to become keys, before anybody begins. Owns these estimates, by which a shard leaves a
//! prompt to a token core; must cost next to nothing, and never hold a text that merges slowly for prose.

use crate::prompt::{Left, Terms};
use warmpath_core::Nanos;
use warmpath_parser::json::{Kind, Member, Members};
use warmpath_prompt::Api;

/// Rounded medians of `core/prompt/benches/turns.rs` with Qwen3's tokenizer and template on a busy machine
/// (`perf/results/2026-12-01-text.md`), so rather too high than too low.
///
/// A chat that goes on with an earlier turn: rendering what is new, and per ten bytes of the body its hash. The walk over
/// its JSON is done by then.
const RESUME_BEGIN: Nanos = 20_000;
const RESUME_TENTHS: u64 = 3;
/// A byte of a body that is rendered whole: members, template and the lookup of cuts.
const RENDER: Nanos = 6;
/// A byte of a list of token ids, with its hashes. By the benchmark of lists of ids, which this one leaves out.
const IDS: Nanos = 3;
/// A byte of text through the fast tokenizer, with its hashes; the same through the reference.
const ENCODE_FAST: Nanos = 6;
const ENCODE_REFERENCE: Nanos = 600;
/// A byte of a long run through the fast tokenizer, which merges it piece by piece: random letters took 50 ns in runs of
/// 128 to 1,024, 60 in those of 4,096, and 70 in those of 16,000 (`perf/results/2026-12-01-text-shards.md`).
const MERGE: Nanos = 70;

/// Bytes of a run that no word has.
const RUN: usize = 64;

impl Terms {
    /// Nanoseconds that the way from a body of so many bytes to its text will take, or to its keys where it
    /// gives token ids.
    pub fn cost_of_body(body: &[u8], members: &Members) -> Nanos {
        let ids = members.get(Member::Prompt).is_some_and(|prompt| prompt.kind == Kind::Array);
        body.len() as u64 * if ids { IDS } else { RENDER }
    }

    /// Nanoseconds until it is known whether a chat of so many bytes goes on with an earlier turn, and what is new is
    /// rendered; `None` for what is no chat of text.
    pub fn cost_of_resuming(&self, body: &[u8]) -> Option<Nanos> {
        let is_chat = self.api == Api::Chat && self.model.is_ok();
        is_chat.then_some(RESUME_BEGIN + body.len() as u64 * RESUME_TENTHS / 10)
    }

    /// Nanoseconds that a text has left to take.
    pub fn cost_of_rest(&self, left: &Left) -> Nanos {
        let text = left.rest();
        let is_fast = self.model.as_ref().is_ok_and(|model| model.tokenizer().refusal().is_none());
        match is_fast {
            true => text.len() as u64 * ENCODE_FAST + unbroken(text) as u64 * MERGE,
            false => text.len() as u64 * ENCODE_REFERENCE,
        }
    }
}

/// Kinds of characters that tokenizers divide a text between.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Letter,
    Digit,
    Blank,
    Other,
}

impl Class {
    fn of(character: char) -> Class {
        match character {
            c if c.is_alphabetic() => Class::Letter,
            c if c.is_numeric() => Class::Digit,
            c if c.is_whitespace() => Class::Blank,
            _ => Class::Other,
        }
    }
}

/// Bytes in long runs of one class, which are one word for a tokenizer: of runs of twice [`RUN`] all, of shorter than
/// [`RUN`] none. Looks back from places that far apart, and so at a few characters of each word's length.
fn unbroken(text: &str) -> usize {
    let (mut rest, mut found) = (text, 0);
    while rest.len() >= RUN {
        let (window, behind) = rest.split_at(rest.floor_char_boundary(RUN));
        let mut back = window.char_indices().rev().map(|(at, character)| (at, Class::of(character)));
        let Some((mut begin, class)) = back.next() else { break };
        match back.find(|(at, other)| {
            *other != class || {
                begin = *at;
                false
            }
        }) {
            Some(_) => rest = &rest[begin..],
            None => {
                let more = behind.find(|character| Class::of(character) != class).unwrap_or(behind.len());
                found += window.len() + more;
                rest = &behind[more..];
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_found_wherever_they_are() {
        for (unit, what) in
            [("x", "letters"), (" ", "blanks"), ("7", "digits"), ("=", "signs"), ("數", "ideographs")]
        {
            for before in 0..70 {
                let run = unit.repeat(2 * RUN / unit.len() + 1);
                let text = format!(
                    "{}{run}{}",
                    "a 1 ".repeat(50).split_at(before).0,
                    " and prose, again ".repeat(9)
                );
                let found = unbroken(&text);
                assert!(found >= run.len() && found <= run.len() + RUN, "{what} behind {before}: {found}");
            }
        }
    }

    #[test]
    fn prose_code_and_languages_without_blanks_have_none() {
        for text in [
            "The cache of an engine holds what it has seen.\n\n    let x = vec![1, 2]; // and_so_on\n",
            "{\"id\":\"5f1c0a7e\",\"items\":[{\"a\":1,\"b\":[true,false]},{\"name\":\"value\"}],\"next\":null}",
            "引擎的缓存保存了它所见过的内容，路由器知道这一点，就能把每一轮对话送回原处。",
            "e\u{301}\u{323}o\u{302} ",
        ] {
            assert_eq!(unbroken(&text.repeat(100)), 0, "{text}");
        }
        for text in ["", "x", &"x".repeat(RUN - 1)] {
            assert_eq!(unbroken(text), 0);
        }
    }
}
