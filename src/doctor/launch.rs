//! How each kind of engine is started so that it fits a rule, and what it may have been started with instead. Owns
//! the dispatch; flags and guesses of one engine are in its file. Must never be consulted by the gateway itself.

mod llamacpp;
mod sglang;
mod trtllm;
mod vllm;

use warmpath_core::engine::{Algo, Engine, Version};

/// One engine's launch settings, as sentences that name them.
pub struct Launch {
    /// The oldest release whose events and hashes were looked at; none where releases have no such order.
    pub oldest: Option<Version>,
    /// To serve a model under a name.
    pub model: fn(&str) -> String,
    /// To have blocks of so many tokens.
    pub block_size: fn(u32) -> String,
    /// To name blocks by a hash.
    pub algorithm: fn(&str) -> String,
    /// To chain first blocks to a seed's root; without one, to that of none.
    pub root: fn(Option<&str>) -> String,
    /// To publish events at a port.
    pub events: fn(u16) -> String,
    /// To replay them.
    pub replay: fn() -> String,
    /// To tell in answers how much was cached.
    pub usage: &'static str,
    /// Header line that sends a request to a rank.
    pub rank: fn(u8) -> Option<String>,
    /// Whether events carry a request's `cache_salt`, so that a request can be told by it.
    pub tells_salt: bool,
    /// What it may have been started with, besides what the rule says. `version` is the engine's own.
    pub guesses: fn(Option<Version>) -> Vec<Guess>,
}

/// One way in which an engine may name its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// Its hash; none for an engine's own that no rule names.
    pub algo: Option<Algo>,
    /// Its seed, to the letter; `None`: none.
    pub seed: Option<String>,
    /// SGLang's `"format": "dynamo"`.
    pub dynamo: bool,
    /// What the engine calls it, where no rule has a word for it.
    pub own: &'static str,
}

/// Of an engine.
pub fn of(engine: Engine) -> &'static Launch {
    match engine {
        Engine::Vllm => &vllm::LAUNCH,
        Engine::Sglang => &sglang::LAUNCH,
        Engine::Trtllm => &trtllm::LAUNCH,
        Engine::Llamacpp => &llamacpp::LAUNCH,
    }
}

/// The keys under an engine's own hash that no rule names, for blocks of these tokens; none if it is not known.
pub fn own_keys(engine: Engine, own: &str, blocks: &[&[u32]]) -> Option<Vec<u64>> {
    match engine {
        Engine::Trtllm => trtllm::own_keys(own, blocks),
        _ => None,
    }
}
