//! Which of the ways to name blocks an engine uses, found by trying. Owns the trial; the names are the core's. Must
//! never take one equal key for a proof: all blocks of a chain have to fit.

use super::blocks::Block;
use super::launch::{self, Guess};
use super::wanted::Wanted;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Contract, Decline, Extras, Scratch, Seed, Terms, Version};

/// What the trial found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// What the rule says.
    AsTheRule,
    /// Something else.
    Otherwise(Guess),
    /// Nothing that was tried, so many ways.
    Nothing(usize),
}

/// The keys that a contract gives the blocks of `ids`; an error tells why it names none.
pub fn keys(contract: &Contract, ids: &[u32], extras: &Extras<'_>) -> Result<Vec<u64>, Decline> {
    let (mut keys, mut scratch) = (Vec::new(), Scratch::default());
    let mut chain = contract.chain(extras, &mut scratch)?;
    chain.feed(ids, |key, _| keys.push(key.0));
    Ok(keys)
}

/// Whether these are the names of the chain's blocks.
pub fn fits(keys: &[u64], chain: &[&Block]) -> bool {
    !chain.is_empty()
        && keys.len() >= chain.len()
        && chain.iter().zip(keys).all(|(block, key)| block.hash == *key)
}

/// Tries the rule's own contract, then all else that the engine may have been started with. `ids` are the prompt
/// that the chain is of.
pub fn find(wanted: &Wanted, version: Option<Version>, ids: &[u32], chain: &[&Block]) -> Found {
    let rule = wanted.exact.as_ref().filter(|_| wanted.lacking.is_none() && !wanted.is_by_tokens());
    if rule.is_some_and(|exact| is(&exact.contract, ids, chain)) {
        return Found::AsTheRule;
    }
    let guesses = (launch::of(wanted.engine).guesses)(version);
    let fitting = guesses.iter().find(|guess| tried(wanted, version, guess, ids, chain));
    fitting.cloned().map_or(Found::Nothing(guesses.len()), Found::Otherwise)
}

fn is(contract: &Contract, ids: &[u32], chain: &[&Block]) -> bool {
    keys(contract, ids, &Extras::default()).is_ok_and(|keys| fits(&keys, chain))
}

fn tried(wanted: &Wanted, version: Option<Version>, guess: &Guess, ids: &[u32], chain: &[&Block]) -> bool {
    let Some(first) = chain.first() else { return false };
    let Some(algo) = guess.algo else {
        let blocks: Vec<&[u32]> = chain.iter().map(|block| block.tokens.as_slice()).collect();
        return launch::own_keys(wanted.engine, guess.own, &blocks).is_some_and(|keys| fits(&keys, chain));
    };
    let Some(block_size) = BlockSize::new(first.tokens.len() as u64) else {
        return false;
    };
    let terms = Terms {
        version,
        seed: guess.seed.as_deref().map_or(Seed::Unset, Seed::Given),
        long_seed: true,
        lookahead: u16::try_from(first.lookahead).unwrap_or(0),
        bigram: first.is_paired,
        dynamo: guess.dynamo,
        ..Terms::plain(algo, block_size)
    };
    wanted.engine.contract(&terms).is_ok_and(|contract| is(&contract, ids, chain))
}

impl Guess {
    /// As it is told.
    pub fn says(&self) -> String {
        let algo = self.algo.map_or(self.own, |algo| algo.name());
        let dynamo = if self.dynamo { ", format dynamo" } else { "" };
        match &self.seed {
            Some(seed) => format!("{algo} with PYTHONHASHSEED={seed}{dynamo}"),
            None => format!("{algo}{dynamo}"),
        }
    }
}
