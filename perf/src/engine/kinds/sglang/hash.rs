//! SGLang's page hash (0.5.18 to 0.5.23, read from and checked against its released wheels): SHA-256
//! of the page before and the tokens; 0.5.23 publishes an adapter's pages under names of their own.
//! Must never decide what is published of a digest.

use sha2::{Digest as _, Sha256};

use crate::engine::blocks::{Digest, Space};
use crate::engine::version::Version;

/// The digests of one prompt's pages.
#[derive(Debug, Clone)]
pub struct Chain {
    prior: Option<[u8; 32]>,
    names: Names,
}

/// How a page is named.
#[derive(Debug, Clone)]
enum Names {
    /// By its digest.
    Plain,
    /// Under the seed of an adapter (0.5.23).
    Seeded([u8; 32]),
    /// Published as if there were no adapter (to 0.5.19); the cache keeps it apart all the same.
    Apart(u64),
}

impl Chain {
    /// A chain in a name space. `chance` makes up the number that SGLang draws for an adapter.
    pub fn new(version: &Version, space: &Space, chance: [u8; 32]) -> Self {
        let names = match &space.lora {
            None => Names::Plain,
            Some(lora) if version.at_least(0, 5, 23) => {
                let drawn = sha256(&[&chance, &lora.id.to_le_bytes()]);
                let key: String = drawn[..16].iter().map(|byte| format!("{byte:02x}")).collect();
                Names::Seeded(namespace_seed(Some(&key), space.salt.as_deref()))
            }
            Some(lora) => Names::Apart(lora.id),
        };
        Chain { prior: space.salt.as_deref().map(salted), names }
    }

    /// A chain whose pages are named under a seed.
    pub fn under(seed: [u8; 32], salt: Option<&str>) -> Self {
        Chain { prior: salt.map(salted), names: Names::Seeded(seed) }
    }

    /// The next page's name.
    pub fn next(&mut self, tokens: &[u32]) -> Digest {
        let mut hasher = Sha256::new();
        hasher.update(self.prior.as_ref().map_or(&[][..], |prior| prior));
        tokens.iter().for_each(|token| hasher.update(token.to_le_bytes()));
        let raw: [u8; 32] = hasher.finalize().into();
        self.prior = Some(raw);
        match &self.names {
            Names::Plain => Digest::new(&raw),
            Names::Seeded(seed) => Digest::new(&sha256(&[seed, &raw[..8]])),
            Names::Apart(lora) => {
                let rest = sha256(&[&raw, &lora.to_le_bytes()]);
                Digest::new(&[&raw[..8], &rest[8..]].concat())
            }
        }
    }
}

/// What a salted prompt's first page follows.
fn salted(salt: &str) -> [u8; 32] {
    sha256(&[b"sglang-cache-salt-v1\0", salt.as_bytes()])
}

/// The seed of a name space's published pages (0.5.23).
pub fn namespace_seed(extra_key: Option<&str>, salt: Option<&str>) -> [u8; 32] {
    let part = |text: Option<&str>| match text {
        None => vec![0],
        Some(text) => [&[1][..], &(text.len() as u64).to_le_bytes(), text.as_bytes()].concat(),
    };
    sha256(&[b"sglang-kv-event-namespace-v1", &part(extra_key), &part(salt)])
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}
