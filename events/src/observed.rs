//! Blocks that one rank holds because an answer proved it, and no event told. Owns how long that is believed; must
//! never write the index, nor count what events count.
//!
//! A gateway that starts later than its engine, without a replay, does not know what the engine holds: a pure hit is
//! told by no event. The answer of a request tells. What it proved is believed until
//! - an event stores the block: from then on events count its copies. What copies the engine had before is not known,
//!   so that the first removal ends all belief: too little is claimed, never too much;
//! - an event removes it, all is cleared, or the link is lost;
//! - a later answer shows that it had to be computed.
//!
//! Where the index names blocks by their tokens, a removal names the engine's own hash, of which an observed block has
//! no translation. As long as only blocks that are known by that hash are removed, all observed ones are still there;
//! the first removal of an unknown one may be of any of them, and ends the belief in all.
//!
//! An answer is older than the events that were applied since its request was sent. So a block that left the cache
//! since then is not taken for held: the last removals are kept with their times.

use std::collections::{HashMap, VecDeque};
use warmpath_core::Nanos;

/// Blocks of one rank at most, 16 to 32 bytes each: a million tokens of 16-token blocks.
const BLOCKS_MAX: usize = 1 << 16;

/// Removals that are remembered. Where more came since a request was sent, its answer proves nothing any more.
const REMOVALS_KEPT: usize = 1 << 12;

/// One rank's.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    by_tokens: bool,
    /// Depth by key.
    held: HashMap<u64, u32>,
    removed: VecDeque<(Nanos, u64)>,
    /// What was removed up to here is not remembered.
    forgotten: Nanos,
    /// Since the gateway follows this source.
    pub learned: u64,
}

impl Observed {
    /// Nothing yet; `by_tokens`: the index's keys are not the engine's hashes.
    pub fn new(by_tokens: bool) -> Observed {
        Observed { by_tokens, ..Observed::default() }
    }

    /// Whether a block may be taken for held now, if it was so when a request sent at `sent` was computed.
    pub fn is_news(&self, key: u64, sent: Nanos) -> bool {
        let left = |(at, own): &&(Nanos, u64)| *at >= sent && *own == key;
        sent > self.forgotten && !self.held.contains_key(&key) && self.held.len() < BLOCKS_MAX
            // The newest first: most requests are short.
            && !self.removed.iter().rev().take_while(|(at, _)| *at >= sent).any(|entry| left(&entry))
    }

    /// It is held, as far as is known.
    pub fn hold(&mut self, key: u64, depth: u32) {
        self.held.insert(key, depth);
        self.learned += 1;
    }

    /// Whether it was held by proof alone; from now on it is not.
    pub fn end(&mut self, key: u64) -> bool {
        !self.held.is_empty() && self.held.remove(&key).is_some()
    }

    /// A block that events knew left the cache.
    pub fn left(&mut self, now: Nanos, key: u64) {
        if self.removed.len() == REMOVALS_KEPT
            && let Some((at, _)) = self.removed.pop_front()
        {
            self.forgotten = at;
        }
        self.removed.push_back((now, key));
    }

    /// A block that no event had told of left the cache: what is not held any more because of it.
    pub fn left_unknown(&mut self, now: Nanos, hash: u64) -> Vec<u64> {
        if self.by_tokens {
            return self.forget(now);
        }
        self.left(now, hash);
        if self.end(hash) { vec![hash] } else { Vec::new() }
    }

    /// All belief ends, also in answers that are still on their way: what was held.
    pub fn forget(&mut self, now: Nanos) -> Vec<u64> {
        self.removed.clear();
        self.forgotten = now;
        std::mem::take(&mut self.held).into_keys().collect()
    }

    /// All of them, with their depths.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.held.iter().map(|(key, depth)| (*key, *depth))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_since_the_request_was_sent_is_no_news() {
        let mut observed = Observed::new(false);
        assert!(observed.is_news(1, 10));
        observed.left(20, 1);
        assert!(!observed.is_news(1, 10) && !observed.is_news(1, 20), "perhaps in the same moment");
        assert!(observed.is_news(1, 21) && observed.is_news(2, 10));
        observed.hold(2, 0);
        assert!(!observed.is_news(2, 30), "it is known");
        observed.forget(30);
        assert!(!observed.is_news(3, 30) && observed.is_news(3, 31));
    }

    #[test]
    fn of_more_removals_than_are_remembered_an_older_answer_proves_nothing() {
        let mut observed = Observed::new(false);
        (0..=REMOVALS_KEPT as u64).for_each(|at| observed.left(100 + at, 1_000 + at));
        assert!(!observed.is_news(1, 100), "a removal at 100 is not remembered");
        assert!(observed.is_news(1, 101));
    }

    #[test]
    fn a_removal_without_a_name_ends_one_or_all() {
        let (mut by_hash, mut by_tokens) = (Observed::new(false), Observed::new(true));
        for observed in [&mut by_hash, &mut by_tokens] {
            observed.hold(1, 0);
            observed.hold(2, 1);
        }
        assert_eq!((by_hash.left_unknown(5, 9), by_hash.left_unknown(6, 2)), (vec![], vec![2]));
        assert_eq!((by_hash.len(), by_hash.held.contains_key(&1), by_hash.is_news(2, 6)), (1, true, false));
        let mut gone = by_tokens.left_unknown(5, 9);
        gone.sort_unstable();
        assert_eq!((gone, by_tokens.len()), (vec![1, 2], 0));
        assert!(!by_tokens.is_news(3, 5) && by_tokens.is_news(3, 6));
    }

    #[test]
    fn it_is_bounded() {
        let mut observed = Observed::new(false);
        (0..BLOCKS_MAX as u64).for_each(|key| observed.hold(key, 0));
        assert!(!observed.is_news(u64::MAX, 1));
        assert!(observed.end(0) && observed.is_news(u64::MAX, 1));
    }
}
