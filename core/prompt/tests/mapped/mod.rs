//! What a process maps, and a tokenizer of a kind that `fastokens` reads alone. Owns both.

use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Choice;

/// o200k's.
const WORDS: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// What this process has mapped, in KB.
pub fn mapped() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    size.trim_end_matches("kB").trim().parse().expect("a number")
}

/// Read by this repository's tokenizer.
pub fn own() -> Tokenizer {
    in_use(include_bytes!("../tokenizers/tiny.json"))
}

/// The same with words of another pattern.
pub fn foreign() -> Tokenizer {
    let tiny = include_str!("../tokenizers/tiny.json");
    let mut document: serde_json::Value = serde_json::from_str(tiny).expect("JSON");
    document["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]});
    in_use(document.to_string().as_bytes())
}

fn in_use(json: &[u8]) -> Tokenizer {
    let tokenizer = Tokenizer::load(json, Choice::Fast).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), None);
    tokenizer
}
