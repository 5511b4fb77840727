//! One agreed way to name the blocks of one endpoint. Owns the terms, their refusals and the calls that turn
//! tokens into digests and keys; a contract never changes, is cheap to copy and shared by all shards.

use super::chain::{Chain, Checkpoint};
use super::extras::{BlockExtra, Decline, Extras};
use super::preimage::{Preimage, Scratch};
use super::seed::{LONGEST_SEED, Seed};
use super::{Algo, Engine, Version, sglang, tokens, vllm};
use crate::block::{BlockKey, BlockSize, Digest};
use std::fmt;

/// The longest adapter, salt, namespace or media name that is hashed, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;

/// What a rule and its endpoints say about block hashes.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The engine's version; `None` while unknown.
    pub version: Option<Version>,
    /// How blocks are named.
    pub algo: Algo,
    /// Tokens in a block (SGLang: units in a page).
    pub block_size: BlockSize,
    /// vLLM's seed.
    pub seed: Seed<'a>,
    /// Takes seeds over [`LONGEST_SEED`] (`LLB_KV_LONG_SEED=1`).
    pub long_seed: bool,
    /// vLLM's number of look-ahead tokens in a hash, from 0.33 with a draft model; else 0.
    pub lookahead: u16,
    /// SGLang with EAGLE: a page's units are pairs of neighbouring tokens.
    pub bigram: bool,
    /// SGLang with `"format": "dynamo"` in its events' configuration.
    pub dynamo: bool,
    /// Secret of the gateway's own chain, drawn once in a process's life.
    pub secret: u64,
}

impl Terms<'_> {
    /// Terms of a plain endpoint: no seed, look-ahead, pairs or namespaces.
    pub const fn plain(algo: Algo, block_size: BlockSize) -> Terms<'static> {
        Terms {
            version: None,
            algo,
            block_size,
            seed: Seed::Unset,
            long_seed: false,
            lookahead: 0,
            bigram: false,
            dynamo: false,
            secret: 0,
        }
    }

    pub(super) fn since(&self, version: Version) -> bool {
        self.version.is_some_and(|own| own >= version)
    }
}

/// Why there is no contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractFault {
    /// This engine, in this version, has no such hash.
    AlgorithmUnknown {
        /// The engine.
        engine: Engine,
        /// The hash.
        algo: Algo,
    },
    /// The root depends on a seed that the gateway was not given.
    SeedUnset,
    /// The seed is longer than the gateway takes.
    SeedTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// This engine has no blocks of this size.
    BlockSize {
        /// What was asked for, in tokens.
        tokens: usize,
        /// The smallest it has.
        least: usize,
        /// The largest it has.
        most: usize,
    },
    /// A feature that this engine, or this version of it, does not have.
    Feature {
        /// Its name.
        name: &'static str,
        /// Where there is such a thing.
        needs: &'static str,
    },
}

impl ContractFault {
    /// HTTP status of a rule refused for this: 412 where only the gateway's environment can cure it.
    pub const fn status(&self) -> u16 {
        match self {
            ContractFault::SeedUnset | ContractFault::SeedTooLong { .. } => 412,
            _ => 400,
        }
    }

    /// The machine-readable code.
    pub const fn code(&self) -> &'static str {
        match self {
            ContractFault::AlgorithmUnknown { .. } => "KV_EXACT_ALGORITHM_UNKNOWN",
            ContractFault::SeedUnset => "KV_EXACT_SEED_UNSET",
            ContractFault::SeedTooLong { .. } => "KV_EXACT_SEED_TOO_LONG",
            ContractFault::BlockSize { .. } => "KV_EXACT_BLOCK_SIZE",
            ContractFault::Feature { .. } => "KV_EXACT_FEATURE",
        }
    }
}

impl ContractFault {
    /// What is wrong, without the cure.
    pub fn problem(&self) -> String {
        match self {
            ContractFault::AlgorithmUnknown { engine, algo } => {
                format!("{} has no block hash {}", engine.name(), algo.name())
            }
            ContractFault::SeedUnset => "the engines' PYTHONHASHSEED is not known to the gateway".into(),
            ContractFault::SeedTooLong { bytes } => {
                format!("the seed has {bytes} bytes, over {LONGEST_SEED}")
            }
            ContractFault::BlockSize { tokens, least, most } if least == most => {
                format!("the block size {tokens} is not {least}, the only one of this contract")
            }
            ContractFault::BlockSize { tokens, least, most } => {
                format!("the block size {tokens} is not within {least} to {most}")
            }
            ContractFault::Feature { name, needs } => format!("{name} needs {needs}"),
        }
    }

    /// What to do about it.
    pub fn cure(&self) -> String {
        match self {
            ContractFault::AlgorithmUnknown { .. } => "choose another hash, or say another version".into(),
            ContractFault::SeedUnset => "start the gateway with LLB_KV_NONE_HASH_SEED, or name blocks by \
                 kvHashAlgo tokens, or give the kvEngineVersion of a vLLM from 0.29 that runs unseeded with a \
                 sha256 hash"
                .into(),
            ContractFault::SeedTooLong { .. } => "shorten it, or set LLB_KV_LONG_SEED=1".into(),
            ContractFault::BlockSize { least, most, .. } if least == most => {
                format!("use {least}, or name blocks by kvHashAlgo tokens")
            }
            ContractFault::BlockSize { least, most, .. } => format!("use {least} to {most}"),
            ContractFault::Feature { .. } => "leave it out".into(),
        }
    }
}

impl fmt::Display for ContractFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.cure())
    }
}

/// The bytes behind one way to name blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    Vllm(vllm::Recipe),
    Sglang(sglang::Recipe),
    Tokens(tokens::Recipe),
}

/// One agreed way to name blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    engine: Engine,
    algo: Algo,
    block_size: BlockSize,
    overhang: u16,
    root: Digest,
    recipe: Recipe,
}

/// Where a chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The parent of the first block.
    pub digest: Digest,
    /// What SGLang hashes published values with again, if it does.
    pub namespace: Option<[u8; 32]>,
}

impl Contract {
    pub(super) fn new(engine: Engine, terms: &Terms<'_>, recipe: Recipe, root: Digest) -> Contract {
        let overhang = if terms.bigram { 1 } else { terms.lookahead };
        Contract { engine, algo: terms.algo, block_size: terms.block_size, overhang, root, recipe }
    }

    /// The same agreement, made without a version, as engines of `version` keep it.
    pub fn told(&self, version: Version) -> Contract {
        Contract { recipe: (self.engine.answers().told)(self.recipe, version), ..*self }
    }

    /// Whose blocks are named.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// By what hash.
    pub fn algo(&self) -> Algo {
        self.algo
    }

    /// Whether keys are made from token ids alone: the engine's own names are only translated.
    pub fn is_by_tokens(&self) -> bool {
        matches!(self.algo, Algo::Tokens | Algo::BlockhashTrtllm)
    }

    /// How many tokens from one block's beginning to the next one's.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How many tokens behind a block enter its name: look-ahead tokens, or the second half of the last pair.
    pub fn overhang(&self) -> usize {
        usize::from(self.overhang)
    }

    /// The parent of a first block that carries `extra` (the whole request's, or a first block's own), or why
    /// blocks with it can't be named.
    pub fn start(&self, extra: &BlockExtra<'_>) -> Result<Start, Decline> {
        let plain = Start { digest: self.root, namespace: None };
        match &self.recipe {
            _ if extra.is_plain() => Ok(plain),
            _ if extra.longest() > LONGEST_TEXT => Err(Decline::TooLong),
            Recipe::Vllm(recipe) => recipe.admit(extra).map(|()| plain),
            Recipe::Sglang(recipe) => recipe.start(extra),
            Recipe::Tokens(_) => tokens::admit(extra).map(|()| plain),
        }
    }

    /// A chain from the beginning of a prompt.
    pub fn chain<'a>(
        &'a self,
        extras: &'a Extras<'a>,
        scratch: &'a mut Scratch,
    ) -> Result<Chain<'a>, Decline> {
        let start = self.start(&extras.whole())?;
        let checkpoint = Checkpoint { digest: start.digest, blocks: 0 };
        Ok(Chain::new(self, extras, start.namespace, checkpoint, scratch))
    }

    /// A chain that goes on behind `checkpoint`, taken from a chain of this contract and these extras; its next
    /// token is the one at `checkpoint.blocks` × block size.
    pub fn resume<'a>(
        &'a self,
        checkpoint: Checkpoint,
        extras: &'a Extras<'a>,
        scratch: &'a mut Scratch,
    ) -> Result<Chain<'a>, Decline> {
        let start = self.start(&extras.whole())?;
        Ok(Chain::new(self, extras, start.namespace, checkpoint, scratch))
    }

    /// The digest of one block behind `parent`, for blocks that come one by one, as in events. `tokens` are
    /// the block's own and [`Contract::overhang`] more. What `extra` may be was asked of [`Contract::start`].
    pub fn digest(
        &self,
        parent: &Digest,
        tokens: &[u32],
        extra: &BlockExtra<'_>,
        scratch: &mut Scratch,
    ) -> Digest {
        let mut digest = *parent;
        self.hash(&mut digest, tokens, Some(extra), &mut scratch.preimage);
        digest
    }

    /// The bytes that [`Contract::digest`] hashes, to compare with an engine's by eye.
    pub fn preimage<'s>(
        &self,
        parent: &Digest,
        tokens: &[u32],
        extra: &BlockExtra<'_>,
        scratch: &'s mut Scratch,
    ) -> &'s [u8] {
        self.digest(parent, tokens, extra, scratch);
        scratch.preimage.written()
    }

    /// The key of a digest, as the engine publishes it.
    pub fn key(&self, digest: &Digest, namespace: Option<&[u8; 32]>) -> BlockKey {
        match &self.recipe {
            Recipe::Vllm(_) => BlockKey(digest.tail()),
            Recipe::Sglang(_) => sglang::key(digest, namespace),
            Recipe::Tokens(_) => BlockKey(digest.head()),
        }
    }

    /// Replaces a parent's digest by that of the block behind it: in place, so that the next block of a chain
    /// finds it where it was written. Without `extra` tokens alone name the block.
    pub(super) fn hash(
        &self,
        digest: &mut Digest,
        tokens: &[u32],
        extra: Option<&BlockExtra<'_>>,
        out: &mut Preimage,
    ) {
        out.clear();
        match &self.recipe {
            Recipe::Vllm(recipe) => recipe.digest(digest, tokens, extra, out),
            Recipe::Sglang(recipe) => recipe.digest(digest, tokens, out),
            Recipe::Tokens(recipe) => recipe.digest(digest, tokens, extra, out),
        }
    }
}
