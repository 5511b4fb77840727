//! The beginnings of a prompt's text, as tier 1 remembers them. Owns at which lengths beginnings are compared and how
//! they are named; must never hold text.
//!
//! Beginnings are compared every [`FINE`] bytes up to [`FINE_UP_TO`], every [`COARSE`] beyond: at the same lengths in
//! every text, so that two texts have the same names exactly as far as they are the same. What a radix tree over bytes
//! would match is found to within one step: never more, and less by under 64 bytes, or by under an eighth. A text is
//! compared whole, however long: one of 400 KB has 856 names.

use warmpath_parser::json::{Kind, Member, Members};
use xxhash_rust::xxh64::xxh64;

/// Bytes between two lengths at the beginning of a text.
pub const FINE: usize = 64;

/// Up to here.
pub const FINE_UP_TO: usize = 4096;

/// Bytes between two lengths beyond.
pub const COARSE: usize = 512;

/// Names that room is kept for: those of a text of 32 KB.
const NAMES_SPARE: usize = 128;

/// The beginnings of one text, in memory that is used again.
#[derive(Clone, Debug, Default)]
pub struct PrefixPath {
    names: Vec<u64>,
    length: usize,
}

impl PrefixPath {
    /// Takes over `text`. `space` keeps apart what is never to match: services, models, adapters, salts.
    pub fn fill(&mut self, space: u64, text: &[u8]) {
        self.clear();
        self.length = text.len();
        let (mut name, mut from) = (space, 0);
        while let Some(piece) = text.get(from..from + step(from)) {
            name = xxh64(piece, name);
            self.names.push(name);
            from += piece.len();
        }
    }

    /// Forgets the text, and all but little of the room that it took.
    pub fn clear(&mut self) {
        self.names.clear();
        self.names.shrink_to(NAMES_SPARE);
        self.length = 0;
    }

    /// The names of its beginnings, the shortest first.
    pub fn names(&self) -> &[u64] {
        &self.names
    }

    /// Bytes of the text.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// What of a body is compared: the JSON of its prompt or its messages, as it stands there. Two turns of a conversation
/// have the same beginning, since clients write earlier messages as before; a client that writes the same messages in
/// another way matches nothing, which costs a match and nothing else. `None` without either.
pub fn text<'b>(body: &'b [u8], members: &Members) -> Option<&'b [u8]> {
    if let Some(prompt) = members.get(Member::Prompt) {
        return match prompt.kind {
            Kind::String { .. } => Some(prompt.inner().of(body)),
            // Token ids.
            Kind::Array => prompt.raw.of(body).strip_suffix(b"]"),
            _ => None,
        };
    }
    let messages = members.get(Member::Messages).filter(|messages| messages.kind == Kind::Array)?;
    messages.raw.of(body).strip_suffix(b"]")
}

/// The space of a request's texts: those of another service, model, adapter, salt or other tools never match.
pub fn space(service: u32, model: &[u8], body: &[u8], members: &Members) -> u64 {
    let apart = [Member::LoraAdapter, Member::CacheSalt, Member::Tools, Member::ChatTemplateKwargs];
    apart.into_iter().fold(xxh64(model, u64::from(service)), |space, member| {
        xxh64(members.get(member).map_or(&b""[..], |value| value.raw.of(body)), space)
    })
}

fn step(from: usize) -> usize {
    if from < FINE_UP_TO { FINE } else { COARSE }
}

/// Bytes of the beginning whose name is the `count`-th, counted from 1; 0 for 0.
pub fn length_of(count: usize) -> usize {
    const FINES: usize = FINE_UP_TO / FINE;
    FINE * count.min(FINES) + COARSE * count.saturating_sub(FINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warmpath_parser::json::{self, JsonLimits};

    fn path(space: u64, text: &[u8]) -> PrefixPath {
        let mut path = PrefixPath::default();
        path.fill(space, text);
        path
    }

    #[test]
    fn lengths_are_fine_first_then_coarse() {
        for (length, names) in [(0, 0), (63, 0), (64, 1), (4095, 63), (4096, 64), (4607, 64), (4608, 65)] {
            assert_eq!(path(1, &vec![b'x'; length]).names().len(), names, "{length}");
            assert!(length_of(names) <= length && length_of(names + 1) > length);
        }
        assert_eq!(path(1, &vec![b'x'; 400 * 1024]).names().len(), 856);
        assert_ne!(path(1, &[b'x'; 64]).names(), path(2, &[b'x'; 64]).names(), "spaces are apart");
    }

    fn read(body: &str) -> (Option<String>, u64) {
        let mut members = Members::new();
        json::peek(body.as_bytes(), &mut members, JsonLimits::default()).unwrap();
        let text = text(body.as_bytes(), &members).map(|text| String::from_utf8_lossy(text).into_owned());
        (text, space(1, b"m", body.as_bytes(), &members))
    }

    #[test]
    fn turns_of_a_conversation_begin_alike_and_tools_and_salts_are_apart() {
        let first = read(r#"{"messages":[{"role":"user","content":"a"}]}"#);
        let second =
            read(r#"{"x":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#);
        assert!(second.0.unwrap().starts_with(&first.0.unwrap()));
        assert_eq!(first.1, second.1);
        assert_eq!(read(r#"{"prompt":"once \"upon"}"#).0.unwrap(), r#"once \"upon"#);
        assert_eq!(read(r#"{"prompt":[1,2]}"#).0.unwrap(), "[1,2", "token ids begin alike too");
        for other in [r#"{"prompt":7}"#, r#"{"messages":"a"}"#, "{}"] {
            assert_eq!(read(other).0, None, "{other}");
        }
        for other in [r#"{"tools":[]}"#, r#"{"cache_salt":"s"}"#, r#"{"lora_adapter":"l"}"#] {
            assert_ne!(read(other).1, first.1, "{other}");
        }
    }

    proptest! {
        /// As many names are equal as whole steps of the texts are.
        #[test]
        fn names_are_equal_as_far_as_texts_are(same in 0usize..9_000, more in 0usize..700, other in 0usize..700) {
            let text = |tail: &[u8]| {
                let mut text: Vec<u8> = (0..same).map(|i| (i * 31 % 251) as u8).collect();
                text.extend_from_slice(tail);
                text
            };
            let (a, b) = (path(7, &text(&vec![1; more])), path(7, &text(&vec![2; other])));
            let equal = a.names().iter().zip(b.names()).take_while(|(a, b)| a == b).count();
            let steps = (0..).take_while(|count| length_of(count + 1) <= same).count();
            prop_assert_eq!(equal, steps);
        }
    }
}
