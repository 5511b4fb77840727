//! What a process maps, and a tokenizer of a kind that `fastokens` reads alone beside one of ours. Owns both.

use warmpath_prompt::Tokenizer;
use warmpath_prompt::tokenizer::Choice;

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

/// The same with words of a pattern that is not ours.
pub fn foreign() -> Tokenizer {
    in_use(include_bytes!("../tokenizers/o200k.json"))
}

fn in_use(json: &[u8]) -> Tokenizer {
    let tokenizer = Tokenizer::load(json, Choice::Fast).expect("a tokenizer");
    assert_eq!(tokenizer.refusal(), None);
    tokenizer
}
