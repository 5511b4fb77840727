//! llama.cpp's launch settings (b11434), as far as there are any: it tells nothing of its cache. Owns them.

use super::Launch;

pub(super) const LAUNCH: Launch = Launch {
    oldest: None,
    model: |name| format!("--alias {name}"),
    block_size: |_| String::new(),
    algorithm: |_| String::new(),
    root: |_| String::new(),
    events: |_| String::new(),
    replay: String::new,
    usage: "",
    rank: |_| None,
    tells_salt: false,
    guesses: |_| Vec::new(),
};
