//! Where rendered text may be cut so that what stands behind is encoded the same as within the whole. Owns the
//! proof, made from `tokenizer.json` at load, and its reasons.
//!
//! Text is cut at an added token: tokenizers split text at those first, leftmost and longest, and everything
//! after works on the pieces between them. A token T is *safe* if no text around an occurrence of T can keep it
//! from being split off there: ids(A·T·B) = ids(A·T) + ids(T·B) without its first, for all A and B. The tail is
//! encoded from T on, so that nothing in B is the first piece of a text.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use serde_json::Value;
use std::fmt;

/// The cuts that a tokenizer allows.
pub struct Boundaries {
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
    tokens: Vec<(String, Option<Unsafe>)>,
}

/// An occurrence of a safe token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Its first byte.
    pub start: usize,
    /// The byte behind it.
    pub end: usize,
    /// The token's id.
    pub id: u32,
}

/// Why text is not cut at a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// It is empty, or begins or ends with a blank, which neighbours may take.
    Blank,
    /// `single_word`: whether it is a token depends on its neighbours.
    SingleWord,
    /// `lstrip` or `rstrip`: it takes blanks around it.
    Strips,
    /// It is looked for in normalized text, and the normalizer may act across it.
    Normalized,
    /// It stands within another token, other than at its end.
    Inside(String),
    /// It may overlap another token, which then comes first.
    Overlaps(String),
    /// The tokenizer does not make it one token.
    NotOneToken,
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsafe::Blank => f.write_str("begins or ends with a blank"),
            Unsafe::SingleWord => f.write_str("single_word"),
            Unsafe::Strips => f.write_str("lstrip or rstrip"),
            Unsafe::Normalized => f.write_str("the normalizer may act across it"),
            Unsafe::Inside(other) => write!(f, "stands within {other:?}"),
            Unsafe::Overlaps(other) => write!(f, "may overlap {other:?}"),
            Unsafe::NotOneToken => f.write_str("is not encoded as one token"),
        }
    }
}

/// An entry of `added_tokens`.
struct Added<'a> {
    id: u32,
    content: &'a str,
    single_word: bool,
    strips: bool,
    normalized: bool,
}

impl Boundaries {
    pub(super) fn of(document: &Value, reference: &tokenizers::Tokenizer) -> Boundaries {
        let added: Vec<Added<'_>> =
            document["added_tokens"].as_array().into_iter().flatten().filter_map(Added::read).collect();
        let normalizes = normalizes(&document["normalizer"]);
        let one = |token: &Added<'_>| {
            reference.encode_fast(token.content, false).is_ok_and(|ids| ids.get_ids() == [token.id])
        };
        let judge = |token: &Added<'_>| {
            token.judge(&added, normalizes).or_else(|| (!one(token)).then_some(Unsafe::NotOneToken))
        };
        let judged: Vec<(&Added<'_>, Option<Unsafe>)> =
            added.iter().map(|token| (token, judge(token))).collect();
        let safe: Vec<&Added<'_>> =
            judged.iter().filter(|(_, why)| why.is_none()).map(|(token, _)| *token).collect();
        let finder = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build(safe.iter().map(|token| token.content))
            .ok()
            .filter(|_| !safe.is_empty());
        Boundaries {
            finder,
            ids: safe.iter().map(|token| token.id).collect(),
            tokens: judged.into_iter().map(|(token, why)| (token.content.to_string(), why)).collect(),
        }
    }

    /// All added tokens in the file's order, each with the reason why it is not safe.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, Option<&Unsafe>)> {
        self.tokens.iter().map(|(token, why)| (token.as_str(), why.as_ref()))
    }

    /// How many tokens are safe. With none there are no checkpoints.
    pub fn safe(&self) -> usize {
        self.ids.len()
    }

    /// The safe tokens in a text, in order.
    pub fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Boundary> + 't {
        self.finder.iter().flat_map(move |finder| finder.find_iter(text)).map(|found| Boundary {
            start: found.start(),
            end: found.end(),
            id: self.ids[found.pattern().as_usize()],
        })
    }
}

/// Whether a normalizer may change text.
fn normalizes(normalizer: &Value) -> bool {
    match normalizer["normalizers"].as_array() {
        Some(list) => list.iter().any(normalizes),
        None => !normalizer.is_null(),
    }
}

impl<'a> Added<'a> {
    fn read(entry: &'a Value) -> Option<Added<'a>> {
        let flag = |name: &str| entry[name].as_bool().unwrap_or(false);
        Some(Added {
            id: u32::try_from(entry["id"].as_u64()?).ok()?,
            content: entry["content"].as_str()?,
            single_word: flag("single_word"),
            strips: flag("lstrip") || flag("rstrip"),
            normalized: flag("normalized"),
        })
    }

    fn judge(&self, all: &[Added<'_>], normalizes: bool) -> Option<Unsafe> {
        let blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        if blank(self.content.chars().next()) || blank(self.content.chars().next_back()) {
            return Some(Unsafe::Blank);
        }
        if self.single_word {
            return Some(Unsafe::SingleWord);
        }
        if self.strips {
            return Some(Unsafe::Strips);
        }
        if self.normalized && normalizes {
            return Some(Unsafe::Normalized);
        }
        all.iter().find_map(|other| self.disturbed_by(other))
    }

    /// Tokens that are not `normalized` are split off first, in a pass of their own: they are disturbed by each
    /// other alone, the others by all.
    fn disturbed_by(&self, other: &Added<'_>) -> Option<Unsafe> {
        if !self.normalized && other.normalized {
            return None;
        }
        let earlier_pass = self.normalized && !other.normalized;
        if let Some(why) = hidden(self.content, other.content, !earlier_pass) {
            return Some(why);
        }
        // In an earlier pass even what begins later comes first.
        if earlier_pass && hidden(other.content, self.content, false).is_some() {
            return Some(Unsafe::Overlaps(other.content.to_string()));
        }
        None
    }
}

/// Why an occurrence of `other` may hide one of `token`. With `end_is_fine`, not if it ends with `token`: it is
/// then split off itself, and text is cut at the same place.
fn hidden(token: &str, other: &str, end_is_fine: bool) -> Option<Unsafe> {
    let (token_bytes, other_bytes) = (token.as_bytes(), other.as_bytes());
    let first = *token_bytes.first()?;
    for at in memchr::memchr_iter(first, other_bytes) {
        let rest = &other_bytes[at..];
        let itself = at == 0 && other_bytes == token_bytes;
        if rest.starts_with(token_bytes) {
            let at_end = rest.len() == token_bytes.len();
            if !(itself || at_end && end_is_fine) {
                return Some(Unsafe::Inside(other.to_string()));
            }
        } else if at > 0 && token_bytes.starts_with(rest) {
            return Some(Unsafe::Overlaps(other.to_string()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(content: &str, normalized: bool) -> Added<'_> {
        Added { id: 0, content, single_word: false, strips: false, normalized }
    }

    fn judged(content: &str, others: &[(&str, bool)], normalized: bool, normalizes: bool) -> Option<Unsafe> {
        let all: Vec<Added<'_>> = others
            .iter()
            .map(|(content, normalized)| added(content, *normalized))
            .chain([added(content, normalized)])
            .collect();
        added(content, normalized).judge(&all, normalizes)
    }

    #[test]
    fn neighbours_that_can_hide_a_token_make_it_unsafe() {
        let inside = |other: &str| Some(Unsafe::Inside(other.into()));
        let overlaps = |other: &str| Some(Unsafe::Overlaps(other.into()));
        let cases = [
            ("<a>", vec![("<b>", false)], None),
            ("<a>", vec![("<a>>", false)], inside("<a>>")),
            ("<a>", vec![("x<a>y", false)], inside("x<a>y")),
            ("<a>", vec![("x<a>", false)], None),
            ("<a>", vec![("x<", false)], overlaps("x<")),
            ("<a>", vec![("<", false), ("a", false), (">", false), (">x", false)], None),
            ("<a>", vec![("x<", true), ("<a>>", true)], None),
            ("aba", vec![], overlaps("aba")),
            (" <a>", vec![], Some(Unsafe::Blank)),
            ("<a>\n", vec![], Some(Unsafe::Blank)),
            ("", vec![], Some(Unsafe::Blank)),
        ];
        for (token, others, wanted) in cases {
            assert_eq!(judged(token, &others, false, true), wanted, "{token} {others:?}");
        }
    }

    #[test]
    fn normalized_tokens_come_second() {
        assert_eq!(judged("<a>", &[], true, true), Some(Unsafe::Normalized));
        assert_eq!(judged("<a>", &[("<b>", false)], true, false), None);
        for other in ["<", "a", ">x", "x<", "x<a>"] {
            assert!(judged("<a>", &[(other, false)], true, false).is_some(), "{other}");
        }
    }

    #[test]
    fn empty_sequences_do_not_normalize() {
        for (text, wanted) in [
            ("null", false),
            (r#"{"type": "Sequence", "normalizers": []}"#, false),
            (r#"{"type": "Sequence", "normalizers": [{"type": "NFC"}]}"#, true),
            (r#"{"type": "NFC"}"#, true),
        ] {
            assert_eq!(normalizes(&serde_json::from_str(text).expect("JSON")), wanted, "{text}");
        }
    }
}
