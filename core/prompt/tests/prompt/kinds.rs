//! The small tokenizers, one of a kind. Owns what is expected of each.

macro_rules! kinds {
    ($($name:literal has $safe:literal),+ $(,)?) => {
        /// Name, `tokenizer.json`, and how many of its tokens are safe.
        pub const KINDS: &[(&str, &str, usize)] =
            &[$(($name, include_str!(concat!("../tokenizers/", $name, ".json")), $safe)),+];
    };
}

kinds! {
    "tiny" has 5,
    "qwen" has 5,
    "o200k" has 5,
    "nfc" has 6,
    "strips" has 3,
    "tangled" has 10,
    "normalized" has 2,
    "around" has 5,
    "metaspace_first" has 8,
    "metaspace_always" has 8,
    "legacy" has 8,
}
