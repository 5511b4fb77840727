//! The key of prompt affinity: one hash of what engines of one pool could share a KV cache by. Owns which
//! parts of a request enter it and how; must never see a whole prompt where a bounded head will do.
//!
//! Order of the parts as in the loxilb AI gateway: text, model, LoRA adapter, images, audio, cache salt,
//! tools, session context, RAG template, RAG documents. Of each part behind the model the 16 hex digits of
//! XXH64, seed 0, of its raw JSON enter. Unlike there, each part is preceded by a zero byte and its number,
//! so that no two different requests spell the same input.

use crate::rule::Chwbl;
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Bytes of the prompt that enter the key. Long enough to tell system prompts apart, and the figure of the
/// loxilb AI gateway; all gateways of a fleet must use the same.
pub const TEXT_MAX: usize = 511;

/// Bytes of the first user message that enter where there is no system message: less, since user messages
/// differ early and a long key would spread a conversation's variants.
pub const USER_TEXT_MAX: usize = 256;

/// Where the text of a key was found, unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptText<'a> {
    /// The member `prompt`.
    Prompt(&'a str),
    /// The first system message.
    System(&'a str),
    /// The first user message, there being no system message.
    User(&'a str),
}

impl<'a> PromptText<'a> {
    /// The head of the text that enters the key, cut at a character.
    pub fn head(self) -> &'a str {
        match self {
            PromptText::Prompt(text) | PromptText::System(text) => head(text, TEXT_MAX),
            PromptText::User(text) => head(text, USER_TEXT_MAX),
        }
    }
}

/// The parts of a request that may enter the key. All but the first two are raw JSON values as they stand in
/// the body; a part is used only if the rule's flags name it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefixKey<'a> {
    /// The model, unescaped.
    pub model: &'a str,
    /// The text; without one there is no key.
    pub text: Option<PromptText<'a>>,
    /// `lora_adapter`: flag bit 0.
    pub lora: Option<&'a [u8]>,
    /// `images`: flag bit 1.
    pub images: Option<&'a [u8]>,
    /// `audio`: flag bit 2.
    pub audio: Option<&'a [u8]>,
    /// `cache_salt`: flag bit 3.
    pub cache_salt: Option<&'a [u8]>,
    /// `tools`: flag bit 4.
    pub tools: Option<&'a [u8]>,
    /// `session_context`: flag bit 5, from level 2.
    pub session_context: Option<&'a [u8]>,
    /// `rag_context.rag_template`: flag bit 6, from level 3.
    pub rag_template: Option<&'a [u8]>,
    /// `rag_context.document_ids`, a list: flag bit 7, from level 3. The order of the ids does not matter.
    pub rag_document_ids: Option<&'a [u8]>,
}

impl PrefixKey<'_> {
    /// The key under the rule's level and flags; `None` without a text, or with an empty one.
    pub fn hash(&self, chwbl: &Chwbl) -> Option<u64> {
        let text = self.text.map(PromptText::head).filter(|text| !text.is_empty())?;
        let mut hash = Xxh64::new(0);
        hash.update(text.as_bytes());
        hash.update(&[0, b'm']);
        hash.update(self.model.as_bytes());
        let flags = chwbl.effective_flags();
        for (bit, part) in self.parts().into_iter().enumerate() {
            if let Some(raw) = part.filter(|_| flags >> bit & 1 == 1) {
                let digest = if bit == DOCUMENTS_BIT { unordered(raw) } else { xxh64(raw, 0) };
                hash.update(&[0, b'0' + bit as u8]);
                hash.update(&hex(digest));
            }
        }
        Some(hash.digest())
    }

    /// The optional parts in the order of their flag bits.
    fn parts(&self) -> [Option<&[u8]>; 8] {
        [
            self.lora,
            self.images,
            self.audio,
            self.cache_salt,
            self.tools,
            self.session_context,
            self.rag_template,
            self.rag_document_ids,
        ]
    }
}

/// Flag bit of the list whose order does not matter.
const DOCUMENTS_BIT: usize = 7;

/// One hash of the elements of a flat JSON list in any order: the sum of their hashes. Sorting would do the
/// same and need memory for as many ids as a client cares to send.
fn unordered(list: &[u8]) -> u64 {
    let inner = list.trim_ascii();
    let inner = inner.strip_prefix(b"[").unwrap_or(inner);
    let mut rest = inner.strip_suffix(b"]").unwrap_or(inner);
    let mut sum = 0u64;
    while !rest.is_empty() {
        let end = element_end(rest);
        let element = rest[..end].trim_ascii();
        if !element.is_empty() {
            sum = sum.wrapping_add(xxh64(element, 0));
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    sum
}

/// Where the first element of `list` ends: at a comma outside of strings, or at the end.
fn element_end(list: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (i, byte) in list.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return i,
            _ => {}
        }
    }
    list.len()
}

/// The first `max` bytes of `text` or less, whole characters.
fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn hex(value: u64) -> [u8; 16] {
    std::array::from_fn(|i| b"0123456789abcdef"[(value >> (60 - 4 * i) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(level: u8, flags: u8) -> Chwbl {
        Chwbl { level, flags, load_factor: 125, replication: 100, cache_salt: false }
    }

    fn key(text: &str) -> PrefixKey<'_> {
        PrefixKey { model: "m", text: Some(PromptText::Prompt(text)), ..PrefixKey::default() }
    }

    fn full(text: &str) -> PrefixKey<'_> {
        PrefixKey {
            lora: Some(b"\"a\""),
            images: Some(b"[1]"),
            audio: Some(b"[2]"),
            cache_salt: Some(b"\"s\""),
            tools: Some(b"[{}]"),
            session_context: Some(b"{\"s\":1}"),
            rag_template: Some(b"\"t\""),
            rag_document_ids: Some(b"[\"d1\", \"d2\"]"),
            ..key(text)
        }
    }

    #[test]
    fn the_formula_is_fixed() {
        let hash = key("hello").hash(&rule(1, 0)).unwrap();
        assert_eq!(hash, xxh64(b"hello\0mm", 0));
        let salted = full("hello").hash(&rule(1, 8)).unwrap();
        let digits = format!("{:016x}", xxh64(b"\"s\"", 0));
        assert_eq!(salted, xxh64(format!("hello\0mm\x003{digits}").as_bytes(), 0));
        // XXH64 of no bytes, from the reference implementation.
        assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
        assert_eq!(&hex(0x0123_4567_89ab_cdef), b"0123456789abcdef");
    }

    #[test]
    fn each_flag_adds_its_part_and_no_other() {
        for bit in 0..8u8 {
            let chwbl = rule(3, 1 << bit);
            let with = full("t").hash(&chwbl).unwrap();
            assert_ne!(with, key("t").hash(&chwbl).unwrap(), "bit {bit}");
            for other in (0..8).filter(|o| *o != bit) {
                assert_ne!(with, full("t").hash(&rule(3, 1 << other)).unwrap());
            }
        }
        assert_eq!(full("t").hash(&rule(3, 0)), key("t").hash(&rule(3, 0)));
    }

    #[test]
    fn the_level_masks_the_flags() {
        assert_eq!(full("t").hash(&rule(1, 0xff)), full("t").hash(&rule(3, 0x1f)));
        assert_eq!(full("t").hash(&rule(2, 0xff)), full("t").hash(&rule(3, 0x3f)));
        assert_ne!(full("t").hash(&rule(3, 0xff)), full("t").hash(&rule(3, 0x3f)));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let ask = |model, text| PrefixKey { model, ..key(text) }.hash(&rule(1, 0));
        assert_ne!(ask("bc", "a"), ask("c", "ab"));
        let lora = PrefixKey { lora: Some(b"1"), ..key("t") };
        let tools = PrefixKey { tools: Some(b"1"), ..key("t") };
        assert_ne!(lora.hash(&rule(1, 0x1f)), tools.hash(&rule(1, 0x1f)));
    }

    #[test]
    fn only_a_bounded_head_of_the_text_enters() {
        let long = "x".repeat(TEXT_MAX);
        assert_eq!(key(&format!("{long}a")).hash(&rule(1, 0)), key(&long).hash(&rule(1, 0)));
        assert_ne!(key(&long[1..]).hash(&rule(1, 0)), key(&long).hash(&rule(1, 0)));
        assert_eq!(PromptText::User(&long).head().len(), USER_TEXT_MAX);
        assert_eq!(PromptText::System(&long).head().len(), TEXT_MAX);
        let wide = format!("{}ä", "x".repeat(TEXT_MAX - 1));
        assert_eq!(PromptText::Prompt(&wide).head().len(), TEXT_MAX - 1, "no half character");
    }

    #[test]
    fn no_text_is_no_key() {
        assert_eq!(key("").hash(&rule(1, 0)), None);
        assert_eq!(PrefixKey { text: None, ..full("t") }.hash(&rule(1, 0)), None);
    }

    #[test]
    fn the_order_of_documents_does_not_matter() {
        let ask =
            |ids: &str| PrefixKey { rag_document_ids: Some(ids.as_bytes()), ..key("t") }.hash(&rule(3, 128));
        assert_eq!(ask(r#"["a","b,c","\"d,"]"#), ask(r#" [ "\"d,", "a" , "b,c" ] "#));
        assert_ne!(ask(r#"["a","b"]"#), ask(r#"["a","c"]"#));
        assert_ne!(ask(r#"["a,b"]"#), ask(r#"["a","b"]"#));
        assert_ne!(ask(r#"["a"]"#), ask("[]"));
        for odd in ["", "[", "]", "[,]", "\"", "[\"\\"] {
            assert!(ask(odd).is_some());
        }
    }
}
