//! vLLM's block hash (0.23 to 0.33, read from and checked against its released wheels): digest of the
//! parent's digest, the tokens and the extra keys. Text, adapters and salts; requests with media or
//! embeddings and drafters do not exist here. Must never decide what is published of a digest.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::preimage::{self, Extra};
use crate::engine::blocks::{Digest, Space};
use crate::engine::version::Version;

/// `--prefix-caching-hash-algo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HashAlgo {
    /// SHA-256 of the pickle; vLLM's default.
    #[default]
    Sha256,
    /// SHA-256 of the CBOR form.
    #[value(name = "sha256_cbor")]
    Sha256Cbor,
    /// XXH3-128 of the pickle.
    Xxhash,
    /// XXH3-128 of the CBOR form.
    #[value(name = "xxhash_cbor")]
    XxhashCbor,
}

impl HashAlgo {
    /// Its name in vLLM.
    pub fn name(self) -> &'static str {
        match self {
            HashAlgo::Sha256 => "sha256",
            HashAlgo::Sha256Cbor => "sha256_cbor",
            HashAlgo::Xxhash => "xxhash",
            HashAlgo::XxhashCbor => "xxhash_cbor",
        }
    }

    fn pickles(self) -> bool {
        matches!(self, HashAlgo::Sha256 | HashAlgo::Xxhash)
    }

    fn is_sha256(self) -> bool {
        matches!(self, HashAlgo::Sha256 | HashAlgo::Sha256Cbor)
    }

    fn digest(self, preimage: &[u8]) -> Digest {
        match self.is_sha256() {
            true => Digest::new(&Sha256::digest(preimage)),
            false => Digest::new(&xxh3_128(preimage).to_be_bytes()),
        }
    }
}

/// The seed of a process without PYTHONHASHSEED, for SHA-256 from 0.29 on.
const DEFAULT_SEED: &str = "vllm-none-hash";

/// The digest that stands for "no parent". `chance` is what a process draws where no seed is given and
/// none is the default.
pub fn root(algo: HashAlgo, version: &Version, seed: Option<&str>, chance: [u8; 32]) -> Digest {
    let default = version.at_least(0, 29, 0) && algo.is_sha256();
    match seed.or(default.then_some(DEFAULT_SEED)) {
        Some(seed) if algo.pickles() => algo.digest(&preimage::pickled_text(seed)),
        Some(seed) => algo.digest(&preimage::cbor_text(seed)),
        None => Digest::new(&chance),
    }
}

/// The digests of one prompt's blocks.
#[derive(Debug, Clone)]
pub struct Chain {
    algo: HashAlgo,
    tagged: bool,
    space: Arc<Space>,
    parent: Digest,
    first: bool,
}

impl Chain {
    /// A chain from its root. Extra keys carry tags from 0.31 on.
    pub fn new(algo: HashAlgo, version: &Version, root: Digest, space: Arc<Space>) -> Self {
        Chain { algo, tagged: version.at_least(0, 31, 0), space, parent: root, first: true }
    }

    /// The next block's digest.
    pub fn next(&mut self, tokens: &[u32]) -> Digest {
        let extras = self.extras();
        let preimage = match self.algo.pickles() {
            true => preimage::pickled_block(self.parent.bytes(), tokens, &extras),
            false => preimage::cbor_block(self.parent.bytes(), tokens, &extras),
        };
        self.parent = self.algo.digest(&preimage);
        self.first = false;
        self.parent
    }

    /// The adapter in every block, the salt in the first.
    fn extras(&self) -> Vec<Extra<'_>> {
        let lora = self.space.lora.as_ref().map(|lora| match self.tagged {
            true => Extra::Tagged(vec!["lora", &lora.name, &lora.path]),
            false => Extra::Plain(&lora.name),
        });
        let salt = self.space.salt.as_deref().filter(|_| self.first).map(|salt| match self.tagged {
            true => Extra::Tagged(vec!["cache_salt", salt]),
            false => Extra::Plain(salt),
        });
        lora.into_iter().chain(salt).collect()
    }
}
