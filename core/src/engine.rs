//! The kinds of engine, closed, and the list of questions that each answers in its own file: which block
//! hashes it has, which it uses unless told otherwise, where a chain of block keys begins, how a block is
//! named. Owns the dispatch; must never hold an answer itself, and no file outside this folder may branch on
//! the engine.

mod cbor;
mod chain;
mod contract;
mod extras;
mod form;
mod llamacpp;
mod pickle;
mod preimage;
mod seed;
pub mod sglang;
mod text;
mod tokens;
pub mod trtllm;
mod version;
mod vllm;

pub use chain::{Chain, Checkpoint};
pub use contract::{Contract, ContractFault, Start, Terms};
pub use extras::{BlockExtra, Decline, Extras, Lora, Media};
pub use preimage::Scratch;
pub use seed::{LONGEST_SEED, Seed};
pub use text::{Looped, TextTerms};
pub use version::Version;

use crate::block::{BlockSize, Digest};
use contract::Recipe;

/// A kind of inference engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
    /// The llama.cpp server.
    Llamacpp,
}

/// How blocks are named: an engine's own hash, or the gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algo {
    /// vLLM: SHA-256 of Python's pickle; the engine's default.
    Sha256,
    /// vLLM: SHA-256 of canonical CBOR.
    Sha256Cbor,
    /// vLLM: XXH3-128 of Python's pickle.
    Xxhash,
    /// vLLM: XXH3-128 of canonical CBOR.
    XxhashCbor,
    /// SGLang: SHA-256 of the parent and little-endian token words.
    Sha256Sglang,
    /// TensorRT-LLM: SGLang's rule over 32 tokens. The engine itself names blocks otherwise; its names are
    /// only translated.
    BlockhashTrtllm,
    /// The gateway's own chain, for any engine that publishes token ids.
    Tokens,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 4] = [Engine::Vllm, Engine::Sglang, Engine::Trtllm, Engine::Llamacpp];

    /// As in a rule's `kvEngineType`.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Vllm => "vllm",
            Engine::Sglang => "sglang",
            Engine::Trtllm => "trtllm",
            Engine::Llamacpp => "llamacpp",
        }
    }

    /// By the word of a rule's `kvEngineType`, to the letter.
    pub fn from_name(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Block hashes that blocks of this engine can be named by. Without a version: all that any has.
    pub fn algorithms(self, version: Option<Version>) -> &'static [Algo] {
        match self {
            Engine::Vllm => vllm::algorithms(version),
            Engine::Sglang => sglang::ALGORITHMS,
            Engine::Trtllm => trtllm::ALGORITHMS,
            Engine::Llamacpp => llamacpp::ALGORITHMS,
        }
    }

    /// What a rule that names no algorithm means; `None` where exact routing is not possible.
    pub fn rule_default(self) -> Option<Algo> {
        match self {
            Engine::Vllm => Some(vllm::RULE_DEFAULT),
            Engine::Sglang => Some(sglang::RULE_DEFAULT),
            Engine::Trtllm => Some(trtllm::RULE_DEFAULT),
            Engine::Llamacpp => None,
        }
    }

    /// Tokens in a block where a rule does not say: what most engines of this kind run with.
    pub const fn rule_block_size(self) -> BlockSize {
        match self {
            Engine::Vllm | Engine::Sglang | Engine::Llamacpp => BlockSize::SIXTEEN,
            Engine::Trtllm => trtllm::BLOCK,
        }
    }

    /// Whether it tells which blocks it holds, so that exact routing is possible at all.
    pub fn publishes_blocks(self) -> bool {
        self.rule_default().is_some()
    }

    /// Whether it publishes events at a port of its own, one for each rank (`kvZmqPort`); else they are asked
    /// for where requests go, or there are none.
    pub const fn has_event_port(self) -> bool {
        match self {
            Engine::Vllm => vllm::EVENT_PORT,
            Engine::Sglang => sglang::EVENT_PORT,
            Engine::Trtllm => trtllm::EVENT_PORT,
            Engine::Llamacpp => llamacpp::EVENT_PORT,
        }
    }

    /// Whether prefill and decode meet at a port of the prefill engine (`pdBootstrapPort`).
    pub const fn has_bootstrap_port(self) -> bool {
        match self {
            Engine::Vllm => vllm::BOOTSTRAP_PORT,
            Engine::Sglang => sglang::BOOTSTRAP_PORT,
            Engine::Trtllm => trtllm::BOOTSTRAP_PORT,
            Engine::Llamacpp => llamacpp::BOOTSTRAP_PORT,
        }
    }

    /// What the engine itself uses unless its operator chose; where it differs from [`Engine::rule_default`]
    /// one of the two has to be set.
    pub fn own_default(self) -> Option<Algo> {
        match self {
            Engine::Vllm => Some(vllm::OWN_DEFAULT),
            _ => self.rule_default(),
        }
    }

    /// Whether a rank that holds a block has all blocks before it.
    pub const fn is_prefix_closed(self) -> bool {
        match self {
            Engine::Vllm => vllm::PREFIX_CLOSED,
            Engine::Sglang => sglang::PREFIX_CLOSED,
            Engine::Trtllm => trtllm::PREFIX_CLOSED,
            Engine::Llamacpp => false,
        }
    }

    /// Whether a request can name the data-parallel rank that is to serve it, in `X-Data-Parallel-Rank`.
    pub const fn takes_rank(self) -> bool {
        match self {
            Engine::Vllm => vllm::TAKES_RANK,
            Engine::Sglang => sglang::TAKES_RANK,
            Engine::Trtllm | Engine::Llamacpp => false,
        }
    }

    /// How it hands text to a chat template.
    pub const fn text_terms(self) -> TextTerms {
        match self {
            Engine::Vllm => vllm::TEXT,
            Engine::Sglang => sglang::TEXT,
            Engine::Trtllm => trtllm::TEXT,
            Engine::Llamacpp => llamacpp::TEXT,
        }
    }

    /// Which versions name all blocks alike: equal numbers, equal names.
    pub fn family(self, version: Version) -> usize {
        match self {
            Engine::Vllm => vllm::family(version),
            Engine::Sglang => sglang::family(version),
            Engine::Trtllm | Engine::Llamacpp => 0,
        }
    }

    /// Agrees on one way to name blocks, or tells which of the terms can't be kept.
    pub fn contract(self, terms: &Terms<'_>) -> Result<Contract, ContractFault> {
        if !self.algorithms(terms.version).contains(&terms.algo) {
            return Err(ContractFault::AlgorithmUnknown { engine: self, algo: terms.algo });
        }
        self.check(terms)?;
        let (recipe, root) = match terms.algo {
            Algo::Tokens => tokens::recipe(terms),
            _ => self.recipe(terms)?,
        };
        Ok(Contract::new(self, terms, recipe, root))
    }

    /// Refuses terms that no version of this engine can have.
    fn check(self, terms: &Terms<'_>) -> Result<(), ContractFault> {
        match self {
            Engine::Vllm => vllm::check(terms),
            Engine::Sglang => sglang::check(terms),
            Engine::Trtllm => trtllm::check(terms),
            Engine::Llamacpp => Ok(()),
        }
    }

    fn recipe(self, terms: &Terms<'_>) -> Result<(Recipe, Digest), ContractFault> {
        match self {
            Engine::Vllm => vllm::recipe(terms),
            Engine::Sglang | Engine::Trtllm => Ok(sglang::recipe(terms)),
            Engine::Llamacpp => Err(ContractFault::AlgorithmUnknown { engine: self, algo: terms.algo }),
        }
    }
}

impl Algo {
    /// All of them.
    pub const ALL: [Algo; 7] = [
        Algo::Sha256,
        Algo::Sha256Cbor,
        Algo::Xxhash,
        Algo::XxhashCbor,
        Algo::Sha256Sglang,
        Algo::BlockhashTrtllm,
        Algo::Tokens,
    ];

    /// As in a rule's `kvHashAlgo`.
    pub const fn name(self) -> &'static str {
        match self {
            Algo::Sha256 => "sha256",
            Algo::Sha256Cbor => "sha256_cbor",
            Algo::Xxhash => "xxhash",
            Algo::XxhashCbor => "xxhash_cbor",
            Algo::Sha256Sglang => "sha256_sglang",
            Algo::BlockhashTrtllm => "blockhash_trtllm",
            Algo::Tokens => "tokens",
        }
    }

    /// By the word of a rule's `kvHashAlgo`, to the letter.
    pub fn from_name(name: &str) -> Option<Algo> {
        Algo::ALL.into_iter().find(|algo| algo.name() == name)
    }
}

#[cfg(test)]
mod tests;
