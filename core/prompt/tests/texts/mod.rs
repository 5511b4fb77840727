//! Texts that try to move a cut, and the property of a cut. Owns both.

use proptest::prelude::*;
use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Recent;

/// What changes its form, or its neighbours', where it stands.
const PIECES: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "▁",
    "e\u{301}",
    "\u{301}",
    "\u{323}",
    "\u{200d}",
    "é",
    "a",
    "the",
    " the",
    "block",
    "'s",
    "7",
    "12345",
    ".",
    "!!",
    "<",
    ">",
    "|",
    "<|",
    "|>",
    "<|im_",
    "你好",
    "日本語",
    "안",
    "😀",
    "👩\u{200d}👧",
    "\u{1100}",
    "\u{1161}",
    "x",
    "y",
    "z",
    "b>c",
    "ab",
    "ba",
    "\u{0}",
    "\u{fffd}",
    "ﬁ",
];

/// So many cases; what fails is printed whole, so that no file has to keep it.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A text of such pieces, of added tokens, and of their beginnings and ends.
pub fn text(added: &[String]) -> impl Strategy<Value = String> + use<> {
    let pieces: Vec<String> = PIECES.iter().map(|piece| piece.to_string()).collect();
    let cut = (proptest::sample::select(added.to_vec()), any::<prop::sample::Index>(), any::<bool>());
    let part = cut.prop_map(|(token, at, head)| {
        let bounds: Vec<usize> = (0..=token.len()).filter(|at| token.is_char_boundary(*at)).collect();
        let (first, last) = token.split_at(*at.get(&bounds));
        if head { first.to_string() } else { last.to_string() }
    });
    let piece = prop_oneof![
        6 => proptest::sample::select(pieces),
        2 => proptest::sample::select(added.to_vec()),
        2 => part,
        1 => "\\PC{0,3}",
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut Recent::default(), &mut ids).map_err(|fault| fault.to_string())?;
    Ok(ids)
}

/// Whether `text`, which holds the safe `token`, is encoded the same when cut at any of its cuts.
pub fn property(tokenizer: &Tokenizer, text: &str, token: &str) -> Result<(), String> {
    let whole = ids(tokenizer, text)?;
    let mut found = false;
    for cut in tokenizer.boundaries().find(text) {
        // What stands before it may make it the end of a longer token.
        found |= text[cut.start..cut.end].ends_with(token);
        let mut parts = ids(tokenizer, &text[..cut.end])?;
        let tail = ids(tokenizer, &text[cut.start..])?;
        if tail.first() != Some(&cut.id) {
            return Err(format!("{text:?} at {cut:?}: the tail begins with {:?}", tail.first()));
        }
        parts.extend_from_slice(&tail[1..]);
        if parts != whole {
            return Err(format!("{text:?} at {cut:?}: {parts:?}, not {whole:?}"));
        }
    }
    if found { Ok(()) } else { Err(format!("{text:?} is not cut at {token:?}")) }
}
