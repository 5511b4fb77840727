//! What a rank tells of one prompt: the blocks of a challenge, told from those of all other requests. Owns what is
//! listened for and what was heard; must never judge it, nor change what a block is called.

use std::collections::HashSet;
use warmpath_core::attest::{Heard, Listening};

/// One rank's, while somebody listens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ear {
    wanted: Option<Listening>,
    /// The engine's names of what was heard, to hear what is stored behind it.
    chain: HashSet<u64>,
    heard: Vec<Heard>,
}

/// A block as it was stored.
pub(crate) struct Told<'a> {
    pub rank: u8,
    /// The engine's name of it.
    pub hash: u64,
    /// The engine's name of the block before it.
    pub parent: Option<u64>,
    /// The key that the index has for it.
    pub key: Option<u64>,
    pub tokens: &'a [u32],
    /// Tokens alone name it.
    pub is_plain: bool,
}

impl Ear {
    /// Listens for this from now on, and forgets what was heard; `None`: for nothing.
    pub fn listen(&mut self, wanted: Option<Listening>) {
        *self = Ear { wanted, ..Ear::default() };
    }

    /// Whether anybody listens.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.wanted.is_some()
    }

    /// A block was stored.
    pub fn hear(&mut self, told: &Told<'_>) {
        let Some(wanted) = &self.wanted else { return };
        let is_named = told.key.is_some_and(|key| wanted.keys.contains(&key));
        let follows = match told.parent {
            None => wanted.is_like(told.tokens),
            Some(parent) => self.chain.contains(&parent),
        };
        if (is_named || follows) && self.heard.len() < wanted.keys.len() {
            self.chain.insert(told.hash);
            let Told { rank, key, is_plain, .. } = *told;
            self.heard.push(Heard { rank, key, tokens: told.tokens.to_vec(), is_plain });
        }
    }

    /// What was heard so far.
    pub fn heard(&self) -> &[Heard] {
        &self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<'a>(hash: u64, parent: Option<u64>, tokens: &'a [u32]) -> Told<'a> {
        Told { rank: 1, hash, parent, key: Some(hash), tokens, is_plain: true }
    }

    #[test]
    fn a_prompt_is_heard_by_its_names_or_from_a_first_block_that_is_like_it() {
        let mut ear = Ear::default();
        ear.hear(&told(1, None, &[1, 2, 3, 4]));
        assert!(!ear.is_open() && ear.heard().is_empty());
        ear.listen(Some(Listening { first: vec![1, 2, 3, 4], keys: vec![10, 11, 12] }));
        ear.hear(&told(7, None, &[9, 9, 9, 9]));
        ear.hear(&told(8, Some(7), &[5; 4]));
        assert!(ear.heard().is_empty(), "another prompt");
        ear.hear(&told(20, None, &[1, 2, 3, 9]));
        ear.hear(&told(21, Some(20), &[5; 4]));
        assert_eq!(ear.heard().len(), 2, "one token is another, and what follows it");
        ear.hear(&told(12, Some(99), &[6; 4]));
        assert_eq!(ear.heard().last().map(|heard| heard.key), Some(Some(12)), "by its name");
        ear.hear(&told(22, Some(21), &[5; 4]));
        assert_eq!(ear.heard().len(), 3, "no more than it has blocks");
        ear.listen(None);
        assert!(!ear.is_open() && ear.heard().is_empty());
    }
}
