//! The fast tokenizer for byte-level BPE in the patterns of GPT-2, cl100k and Qwen. Owns which `tokenizer.json` it can
//! read, to the letter of every member; must refuse any other. Reads the file into tables that all threads share and
//! that never change; what a thread adds is bounded ([`Recent`]), and no text makes anything grow or start anew.
//!
//! Reading order: `scan` (text into words), `words` (those whose tokens are known), `merge` (the others).

mod merge;
mod scan;
mod words;

pub use words::Recent;

use crate::shared::numbered;
use aho_corasick::{AhoCorasick, MatchKind};
use merge::Merges;
use scan::{Pattern, Scanner};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;
use words::{Known, SHORT, Word};

pub(super) struct ByteLevel {
    /// Its own among all that were read, for what threads keep.
    number: u32,
    /// Added tokens that are looked for in the text as it is, then those in normalized text.
    added: [Option<Added>; 2],
    normalizes: bool,
    scanner: Scanner,
    known: Known,
    merges: Merges,
    /// Words too long for `known` that are one token whatever the merges say (`ignore_merges`).
    whole: HashMap<Box<[u8]>, u32>,
}

/// Added tokens of one pass.
struct Added {
    finder: AhoCorasick,
    ids: Vec<u32>,
}

impl ByteLevel {
    /// From a `tokenizer.json`; `None` if anything in it is not of this kind.
    pub(super) fn read(document: &Value) -> Option<ByteLevel> {
        let scanner = Scanner::new(pattern(&document["pre_tokenizer"])?)?;
        let normalizes = normalizes(&document["normalizer"])?;
        let model = document["model"].as_object().filter(|model| is_plain(model))?;
        let vocabulary = vocabulary(model)?;
        let ids: HashMap<&str, u32> = vocabulary.iter().map(|(token, id)| (*token, *id)).collect();
        let letters = letters();
        let mut bytes = [0; 256];
        for (byte, letter) in bytes.iter_mut().zip(letters) {
            *byte = *ids.get(letter.encode_utf8(&mut [0; 4]) as &str)?;
        }
        let merges = Merges::new(bytes, &merges(model, &ids)?)?;
        let words = spelled(&vocabulary, &letters);
        let ignores = model.get("ignore_merges") == Some(&Value::Bool(true));
        let known = Known::new(words.iter().map(|(word, id)| {
            let mut tokens = vec![*id];
            if !ignores {
                tokens.clear();
                merges.word(word, &mut tokens);
            }
            (&**word, tokens)
        }));
        let whole = words.into_iter().filter(|(word, _)| ignores && word.len() > SHORT).collect();
        let added = added(&document["added_tokens"], normalizes, &ids)?;
        Some(ByteLevel { number: numbered(), added, normalizes, scanner, known, merges, whole })
    }

    /// Appends the ids of a text.
    pub(super) fn encode(&self, text: &str, recent: &mut Recent, out: &mut Vec<u32>) {
        let [as_it_is, normalized] = &self.added;
        split(as_it_is.as_ref(), text, out, &mut |piece, out| {
            let as_it_is = !self.normalizes || piece.is_ascii();
            let piece = if as_it_is { piece.into() } else { fastokens::Nfc.normalize(piece) };
            split(normalized.as_ref(), &piece, out, &mut |piece, out| self.words(piece, recent, out));
        });
    }

    fn words(&self, text: &str, recent: &mut Recent, out: &mut Vec<u32>) {
        let mut at = 0;
        while at < text.len() {
            let end = self.scanner.end(text, at);
            let word = Word::of(text.as_bytes(), at, end);
            // What was met last lies together, each word on a line; the vocabulary's words are all over the memory.
            if !word.as_ref().is_some_and(|word| recent.get(self.number, word, out)) {
                self.word(text.as_bytes(), at..end, word.as_ref(), recent, out);
            }
            at = end;
        }
    }

    #[inline(never)]
    fn word(
        &self,
        text: &[u8],
        place: Range<usize>,
        line: Option<&Word>,
        recent: &mut Recent,
        out: &mut Vec<u32>,
    ) {
        let (before, word) = (out.len(), &text[place.clone()]);
        match self.known.get(text, place.start, place.end) {
            Some(ids) => out.extend_from_slice(ids),
            None if recent.get_wide(self.number, word, out) => return,
            None => match self.whole.get(word) {
                Some(id) => out.push(*id),
                None => self.merges.word(word, out),
            },
        }
        recent.put(self.number, line, word, &out[before..]);
    }
}

/// Pushes the added tokens of a text and hands on what stands between them.
fn split(
    added: Option<&Added>,
    text: &str,
    out: &mut Vec<u32>,
    between: &mut impl FnMut(&str, &mut Vec<u32>),
) {
    let mut from = 0;
    if let Some(added) = added {
        for found in added.finder.find_iter(text) {
            if from < found.start() {
                between(&text[from..found.start()], out);
            }
            out.push(added.ids[found.pattern().as_usize()]);
            from = found.end();
        }
    }
    if from < text.len() {
        between(&text[from..], out);
    }
}

/// Which pattern a pre-tokenizer cuts words by, if it does nothing else but write bytes as letters.
fn pattern(pre_tokenizer: &Value) -> Option<Pattern> {
    let writes = |step: &Value, by_pattern: bool| {
        let regex = step["use_regex"].as_bool().unwrap_or(true);
        step["type"] == "ByteLevel" && step["add_prefix_space"] == false && regex == by_pattern
    };
    if writes(pre_tokenizer, true) {
        return Some(Pattern::Gpt2);
    }
    let steps = pre_tokenizer["pretokenizers"].as_array().filter(|_| pre_tokenizer["type"] == "Sequence")?;
    let [cut, write] = steps.as_slice() else { return None };
    // These patterns leave nothing between two matches, so both ways to say it cut alike.
    let keeps = matches!(
        (cut["behavior"].as_str(), cut["invert"].as_bool()),
        (Some("Isolated"), Some(false)) | (Some("Removed"), Some(true))
    );
    let pattern = Pattern::of(cut["pattern"]["Regex"].as_str()?)?;
    (cut["type"] == "Split" && keeps && writes(write, false)).then_some(pattern)
}

/// Whether text is brought to NFC; `None` for any other normalizer.
fn normalizes(normalizer: &Value) -> Option<bool> {
    match normalizer["type"].as_str() {
        None => normalizer.is_null().then_some(false),
        Some("NFC") => Some(true),
        Some("Sequence") => {
            let each: Option<Vec<bool>> =
                normalizer["normalizers"].as_array()?.iter().map(normalizes).collect();
            each.map(|each| each.contains(&true))
        }
        Some(_) => None,
    }
}

/// Whether a model merges bytes and does nothing else.
fn is_plain(model: &Map<String, Value>) -> bool {
    let is_off = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    };
    model.iter().all(|(name, value)| match name.as_str() {
        "type" => value == "BPE",
        "vocab" | "merges" | "ignore_merges" => true,
        // Nothing is unknown where every byte is a token.
        "fuse_unk" => true,
        _ => is_off(value),
    })
}

fn vocabulary(model: &Map<String, Value>) -> Option<Vec<(&str, u32)>> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    model.get("vocab")?.as_object()?.iter().map(|(token, value)| Some((token.as_str(), id(value)?))).collect()
}

/// Both tokens of each merge and what they make.
fn merges(model: &Map<String, Value>, ids: &HashMap<&str, u32>) -> Option<Vec<[u32; 3]>> {
    let merge = |merge: &Value| {
        let (left, right) = match merge {
            Value::String(both) => both.split_once(' ')?,
            _ => match merge.as_array()?.as_slice() {
                [left, right] => (left.as_str()?, right.as_str()?),
                _ => return None,
            },
        };
        Some([*ids.get(left)?, *ids.get(right)?, *ids.get([left, right].concat().as_str())?])
    };
    model.get("merges")?.as_array()?.iter().map(merge).collect()
}

/// The tokens that are written as bytes, each as these, in the order of their ids, which is about that of use.
fn spelled(vocabulary: &[(&str, u32)], letters: &[char; 256]) -> Vec<(Box<[u8]>, u32)> {
    let bytes: HashMap<char, u8> = letters.iter().copied().zip(0..=255).collect();
    let spell = |token: &str| -> Option<Box<[u8]>> {
        token.chars().map(|letter| bytes.get(&letter).copied()).collect()
    };
    let mut words: Vec<_> = vocabulary.iter().filter_map(|(token, id)| Some((spell(token)?, *id))).collect();
    words.sort_unstable_by_key(|(_, id)| *id);
    words
}

/// How each byte is written: those that are printed as themselves, the others by the letters from U+0100 on.
fn letters() -> [char; 256] {
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..) => char::from(byte),
        _ => others.next().unwrap_or_default(),
    })
}

/// The added tokens of both passes, if none takes anything of its neighbours or is changed itself.
fn added(list: &Value, normalizes: bool, vocabulary: &HashMap<&str, u32>) -> Option<[Option<Added>; 2]> {
    let mut passes: [(Vec<&str>, Vec<u32>); 2] = Default::default();
    for entry in list.as_array().into_iter().flatten() {
        let content = entry["content"].as_str().filter(|content| !content.is_empty())?;
        let id = u32::try_from(entry["id"].as_u64()?).ok()?;
        let flag = |name: &str| entry[name].as_bool().unwrap_or(false);
        let normalized = flag("normalized");
        let changes = normalized && normalizes && fastokens::Nfc.normalize(content) != content;
        let has_two_ids = vocabulary.get(content).is_some_and(|own| *own != id);
        if changes || has_two_ids || ["single_word", "lstrip", "rstrip"].into_iter().any(flag) {
            return None;
        }
        let (contents, ids) = &mut passes[usize::from(normalized)];
        contents.push(content);
        ids.push(id);
    }
    let [first, second] = passes.map(|(contents, ids)| {
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&contents).ok()?;
        Some((!contents.is_empty()).then_some(Added { finder, ids }))
    });
    Some([first?, second?])
}
