//! The seed of vLLM's root hash, as the gateway is given it. Owns the rule's preconditions on it; must never
//! read the environment itself.

use super::contract::ContractFault;

/// The longest seed in bytes that the gateway takes without being told to: up to here the CBOR form has a
/// head of one byte, and implementations agree on it.
pub const LONGEST_SEED: usize = 23;

/// What the gateway knows of `PYTHONHASHSEED` of its vLLM engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seed<'a> {
    /// Nothing was said.
    #[default]
    Unset,
    /// The engines' `PYTHONHASHSEED`, to the letter: `0`, `00` and `random` are three different seeds.
    Given(&'a str),
}

impl<'a> Seed<'a> {
    /// From `LLB_KV_NONE_HASH_SEED`, where empty is the same as absent.
    pub fn from_environment(value: Option<&'a str>) -> Seed<'a> {
        match value {
            None | Some("") => Seed::Unset,
            Some(text) => Seed::Given(text),
        }
    }

    /// The text to hash: the seed, or else the one that the engine falls back to if it has one.
    pub(super) fn text(
        self,
        fallback: Option<&'static str>,
        allow_long: bool,
    ) -> Result<&'a str, ContractFault> {
        match self {
            Seed::Given(text) if text.len() > LONGEST_SEED && !allow_long => {
                Err(ContractFault::SeedTooLong { bytes: text.len() })
            }
            Seed::Given(text) => Ok(text),
            Seed::Unset => fallback.ok_or(ContractFault::SeedUnset),
        }
    }
}
