//! Pseudo tokenization and deterministic text. This is no real tokenizer: token ids are made up, but
//! equal text gives equal ids, a longer text keeps the ids of its leading part (up to the last
//! piece), and generated text tokenizes back to the generated ids, so prefix caching behaves as with
//! a real model. Must never read a clock or a random source.

use serde_json::Value;

/// Ids below this are specials of the chat template.
const SPECIALS: u32 = 16;
/// Size of the made-up vocabulary, specials included.
pub const VOCABULARY: u32 = 50_000;
/// Longest piece in bytes; a longer run of non-space bytes becomes several tokens.
const MAX_PIECE: usize = 6;
/// Closes each message of the pseudo chat template.
const END_OF_MESSAGE: u32 = 0;

/// Words of generated text; each is one piece of at most `MAX_PIECE` bytes with its leading space.
const WORDS: [&str; 32] = [
    " warm", " path", " to", " the", " block", " that", " holds", " it", " and", " each", " token", " goes",
    " where", " its", " past", " is", " kept", " so", " no", " work", " runs", " twice", " a", " short",
    " way", " by", " cache", " stays", " near", " for", " you", " now",
];

/// A digest of several texts that keeps their borders apart.
pub fn digest(parts: &[&[u8]]) -> u64 {
    parts.iter().fold(0, |h, part| mix(h ^ Digest::of(part)))
}

/// A 64-bit FNV-1a digest over any split of its input, finished with the SplitMix64 mixer. It tells
/// damage, not attacks.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, &byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// The digest of all bytes added.
    pub fn value(self) -> u64 {
        mix(self.0)
    }

    /// The digest of one slice.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Digest::default();
        digest.update(bytes);
        digest.value()
    }
}

/// The SplitMix64 finalizer: spreads every input bit over the output.
pub fn mix(value: u64) -> u64 {
    let v = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

/// Pseudo token ids of `text`: pieces start at white space or after `MAX_PIECE` bytes.
pub fn tokenize(text: &str) -> Vec<u32> {
    let bytes = text.as_bytes();
    let mut ids = Vec::with_capacity(bytes.len() / 4);
    let mut start = 0;
    for at in 1..=bytes.len() {
        let ends = at == bytes.len() || bytes[at].is_ascii_whitespace() || at - start == MAX_PIECE;
        if ends {
            ids.push(piece_id(&bytes[start..at]));
            start = at;
        }
    }
    ids
}

fn piece_id(piece: &[u8]) -> u32 {
    let span = u64::from(VOCABULARY - SPECIALS);
    SPECIALS + (Digest::of(piece) % span) as u32
}

/// How an engine turns text into token ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// One token a byte, the specials apart, which a `tokenizer.json` can say too; else pieces, which none can.
    pub bytes: bool,
    /// What the chat template puts before the first message.
    pub opening: String,
}

impl Reading {
    /// The ids of a text.
    pub fn text(&self, text: &str) -> Vec<u32> {
        match self.bytes {
            true => text.bytes().map(|byte| SPECIALS + u32::from(byte)).collect(),
            false => tokenize(text),
        }
    }

    /// The ids of a chat: a role mark, the content and an end mark for each message, then the assistant's mark. A
    /// part that is not text counts as its JSON.
    pub fn chat(&self, messages: &[Value]) -> Vec<u32> {
        let mut ids = self.text(&self.opening);
        for message in messages {
            ids.push(role_id(message["role"].as_str().unwrap_or_default()));
            match &message["content"] {
                Value::String(text) => ids.extend(self.text(text)),
                Value::Array(parts) => parts.iter().for_each(|part| ids.extend(self.part(part))),
                _ => {}
            }
            ids.push(END_OF_MESSAGE);
        }
        ids.push(role_id("assistant"));
        ids
    }

    fn part(&self, part: &Value) -> Vec<u32> {
        match part["text"].as_str() {
            Some(text) => self.text(text),
            None => self.text(&part.to_string()),
        }
    }
}

fn role_id(role: &str) -> u32 {
    match role {
        "system" | "developer" => 1,
        "user" => 2,
        "assistant" => 3,
        "tool" => 4,
        _ => 5,
    }
}

/// One generated token: its id and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Pseudo token id, equal to what `tokenize` gives for the text.
    pub id: u32,
    /// The token's text, a leading space included.
    pub text: &'static str,
}

/// The token at `index` of the answer to the prompt with this digest.
pub fn generated(seed: u64, prompt: u64, index: u64) -> Token {
    let pick = mix(mix(seed ^ prompt).wrapping_add(index)) % WORDS.len() as u64;
    let text = WORDS[pick as usize];
    Token { id: piece_id(text.as_bytes()), text }
}

/// Text of a pseudo token id where it is one of the generated words, else U+FFFD.
pub fn text_of(id: u32) -> &'static str {
    WORDS.iter().find(|word| piece_id(word.as_bytes()) == id).copied().unwrap_or("\u{fffd}")
}

/// Digest of a token sequence, with a root that keeps models and salts apart.
pub fn digest_tokens(root: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(mix(root), |h, &id| mix(h ^ u64::from(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_text_tokenizes_back_to_its_ids() {
        let tokens: Vec<Token> = (0..200).map(|i| generated(7, 42, i)).collect();
        let text: String = tokens.iter().map(|t| t.text).collect();
        assert_eq!(tokenize(&text), tokens.iter().map(|t| t.id).collect::<Vec<_>>());
        assert!(tokens.iter().all(|t| text_of(t.id) == t.text));
        assert!(text.bytes().all(|b| b == b' ' || b.is_ascii_lowercase()), "no JSON escapes are needed");
    }

    #[test]
    fn the_next_turn_begins_with_the_last_prompt_and_answer() {
        let reading = Reading::default();
        let first = reading.chat(&[json!({"role": "user", "content": "hello there"})]);
        let answer: Vec<Token> = (0..5).map(|i| generated(1, 2, i)).collect();
        let text: String = answer.iter().map(|t| t.text).collect();
        let second = reading.chat(&[
            json!({"role": "user", "content": "hello there"}),
            json!({"role": "assistant", "content": text}),
            json!({"role": "user", "content": [{"type": "text", "text": "more"}]}),
        ]);
        let held: Vec<u32> = first.iter().copied().chain(answer.iter().map(|t| t.id)).collect();
        assert!(second.starts_with(&held));
    }

    #[test]
    fn pieces_are_bounded_and_distinct() {
        assert_eq!(tokenize("").len(), 0);
        assert_eq!(tokenize("abcdefgh").len(), 2);
        assert_eq!(tokenize("a b c").len(), 3);
        assert_ne!(tokenize("a b"), tokenize("a c"));
        assert!(tokenize("日本語テキスト").iter().all(|&id| (SPECIALS..VOCABULARY).contains(&id)));
    }

    #[test]
    fn a_reading_by_bytes_has_an_id_for_each_and_an_opening_comes_first() {
        let reading = Reading { bytes: true, opening: "ab".into() };
        assert_eq!(reading.text("aß"), [16 + 97, 16 + 0xc3, 16 + 0x9f]);
        assert_eq!(reading.chat(&[json!({"role": "user", "content": "c"})]), [113, 114, 2, 115, 0, 3]);
    }

    #[test]
    fn seed_and_prompt_choose_the_text() {
        let text = |seed, prompt| (0..20).map(|i| generated(seed, prompt, i).text).collect::<String>();
        assert_eq!(text(1, 9), text(1, 9));
        assert_ne!(text(1, 9), text(2, 9));
        assert_ne!(text(1, 9), text(1, 8));
    }
}
