//! The kinds of engine, closed, and the list of questions that each answers in its own file: which block
//! hashes it has, which it uses unless told otherwise, where a chain of block keys begins, how a block is
//! named. Owns the dispatch; must never hold an answer itself, and no file outside this folder may branch on
//! the engine.

mod answers;
pub mod attest;
mod cbor;
mod chain;
mod contract;
mod extras;
mod form;
mod group;
mod launch;
pub mod pairing;
mod pickle;
mod preimage;
mod seed;
pub mod telemetry;
mod text;
mod tokens;
mod version;

pub use chain::{Chain, Checkpoint};
pub use contract::{Contract, ContractFault, Start, Terms};
pub use extras::{BlockExtra, Decline, Extras, Lora, Media};
pub use group::GroupAsk;
pub use launch::{LaunchAsk, LaunchFault, LaunchFlags, LaunchLine, LaunchRole};
pub use preimage::Scratch;
pub use seed::{LONGEST_SEED, Seed};
pub use text::{Looped, Named, TextTerms, ToolForm};
pub use version::Version;

use crate::block::BlockSize;
use answers::Answers;

/// The kinds, one line each: its file, and its name in code.
macro_rules! engines {
    ($($(#[$doc:meta])* $visible:vis $file:ident: $engine:ident),+ $(,)?) => {
        $($visible mod $file;)+

        /// A kind of inference engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Engine {
            $($(#[$doc])* $engine,)+
        }

        impl Engine {
            /// All of them.
            pub const ALL: &'static [Engine] = &[$(Engine::$engine),+];

            /// The words of a rule's `kvEngineType`; empty stands for the first.
            pub const WORDS: &'static [&'static str] = &["", $($file::ANSWERS.name),+];

            const fn answers(self) -> &'static Answers {
                match self {
                    $(Engine::$engine => &$file::ANSWERS,)+
                }
            }
        }
    };
}

engines! {
    /// vLLM.
    vllm: Vllm,
    /// SGLang.
    pub sglang: Sglang,
    /// TensorRT-LLM.
    pub trtllm: Trtllm,
    /// The llama.cpp server.
    llamacpp: Llamacpp,
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
    /// As in a rule's `kvEngineType`.
    pub const fn name(self) -> &'static str {
        self.answers().name
    }

    /// By the word of a rule's `kvEngineType`, to the letter.
    pub fn from_name(name: &str) -> Option<Engine> {
        Engine::ALL.iter().copied().find(|engine| engine.name() == name)
    }

    /// Block hashes that blocks of this engine can be named by. Without a version: all that any has.
    pub fn algorithms(self, version: Option<Version>) -> &'static [Algo] {
        (self.answers().algorithms)(version)
    }

    /// What a rule that names no algorithm means; `None` where exact routing is not possible.
    pub const fn rule_default(self) -> Option<Algo> {
        self.answers().rule_default
    }

    /// Tokens in a block where a rule does not say: what most engines of this kind run with.
    pub const fn rule_block_size(self) -> BlockSize {
        self.answers().block_size
    }

    /// How it shows that an answer is bound to its request; `None` where its answers name none.
    pub const fn group_ask(self) -> Option<&'static GroupAsk> {
        self.answers().group_ask.as_ref()
    }

    /// Whether it tells which blocks it holds, so that exact routing is possible at all.
    pub const fn publishes_blocks(self) -> bool {
        self.rule_default().is_some()
    }

    /// Whether it publishes events at a port of its own, one for each rank (`kvZmqPort`); else they are asked
    /// for where requests go, or there are none.
    pub const fn has_event_port(self) -> bool {
        self.answers().event_port
    }

    /// Whether prefill and decode meet at a port of the prefill engine (`pdBootstrapPort`).
    pub const fn has_bootstrap_port(self) -> bool {
        self.answers().bootstrap_port
    }

    /// What the engine itself uses unless its operator chose; where it differs from [`Engine::rule_default`]
    /// one of the two has to be set.
    pub fn own_default(self) -> Option<Algo> {
        self.answers().own_default.or(self.rule_default())
    }

    /// Whether a rank that holds a block has all blocks before it.
    pub const fn is_prefix_closed(self) -> bool {
        self.answers().prefix_closed
    }

    /// Whether a request can name the data-parallel rank that is to serve it, in `X-Data-Parallel-Rank`.
    pub const fn takes_rank(self) -> bool {
        self.answers().takes_rank
    }

    /// The base model and the adapter that a request's `model` names together, if it does. Where adapters are
    /// models of their own, the engine tells their names.
    pub fn split_model(self, model: &str) -> Option<(&str, &str)> {
        (self.answers().split_model)(model)
    }

    /// How it hands text to a chat template.
    pub const fn text_terms(self) -> TextTerms {
        self.answers().text
    }

    /// What a chat template gets of a tool's definition; `None` where that was not verified for the version.
    pub fn tool_form(self, version: Option<Version>) -> Option<ToolForm> {
        (self.answers().text.tools)(version)
    }

    /// How prefill and decode serve a request together; `None` where one engine always does both.
    pub fn pairing(self) -> Option<&'static pairing::Pairing> {
        self.answers().pairing.as_ref()
    }

    /// Whether its pairs may have encoders (`ep_role` 3).
    pub fn encodes(self) -> bool {
        self.pairing().is_some_and(|pairing| !matches!(pairing.encoding, pairing::encode::Encoding::Never))
    }

    /// Where it tells its load; `None` if nowhere.
    pub fn telemetry(self) -> Option<&'static telemetry::Telemetry> {
        self.answers().telemetry.as_ref()
    }

    /// What it is asked before a rule with a model profile routes by its blocks; `None`: nothing could prove them.
    pub fn questions(self) -> Option<&'static attest::Questions> {
        self.answers().questions.as_ref()
    }

    /// The line that starts it so that a profile can be proven against it.
    pub fn launch(self, ask: &LaunchAsk<'_>) -> Result<LaunchLine, LaunchFault> {
        let line = self.answers().launch.ok_or(LaunchFault::NoEvents(self))?;
        line(ask)
    }

    /// The folder of its probe fixtures within `kvprofiles/probefixtures/ID`; empty: that itself.
    pub const fn probe_folder(self) -> &'static str {
        self.answers().probe_folder
    }

    /// The arguments of its command line that decide what its caches look like.
    pub const fn launch_flags(self) -> LaunchFlags {
        self.answers().flags
    }

    /// Which versions name all blocks alike: equal numbers, equal names.
    pub fn family(self, version: Version) -> usize {
        (self.answers().family)(version)
    }

    /// Agrees on one way to name blocks, or tells which of the terms can't be kept.
    pub fn contract(self, terms: &Terms<'_>) -> Result<Contract, ContractFault> {
        if !self.algorithms(terms.version).contains(&terms.algo) {
            return Err(ContractFault::AlgorithmUnknown { engine: self, algo: terms.algo });
        }
        (self.answers().check)(terms)?;
        let (recipe, root) = match terms.algo {
            Algo::Tokens => tokens::recipe(terms),
            _ => (self.answers().recipe)(terms)?,
        };
        Ok(Contract::new(self, terms, recipe, root))
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
