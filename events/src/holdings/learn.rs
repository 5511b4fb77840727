//! What answers prove of a rank's blocks, brought into the index. Owns that a block is held by events or by proof,
//! never by both; must never judge whether a proof may count ([`crate::observed`] and the rank do).

use super::{Holdings, TIERS};
use crate::index::Index;
use warmpath_core::shared::Observation;
use warmpath_kvindex::Write;

impl Holdings {
    /// Blocks that were in the cache when a request was computed.
    pub fn learn(&mut self, told: &Observation<'_>, depth: u32, index: &mut Index) {
        self.flush(index);
        let Some(gpu) = self.holders[0] else { return };
        for (depth, key) in (depth..).zip(told.keys) {
            // What events know stays theirs: it is not added again.
            if self.observed.is_news(*key, told.sent) && index.add(gpu, *key, depth) {
                self.observed.hold(*key, depth);
                for holder in self.holders[1..].iter().flatten() {
                    index.store(*holder, &[*key], depth);
                }
            }
        }
    }

    /// Blocks that had to be computed: proofs that they are held are out of date.
    pub fn unlearn(&mut self, told: &Observation<'_>, index: &mut Index) {
        let ended: Vec<u64> = told.keys.iter().copied().filter(|key| self.observed.end(*key)).collect();
        self.take_out(&ended, index);
    }

    /// All that only answers proved is forgotten.
    pub fn forget_observed(&mut self, index: &mut Index) {
        let ended = self.observed.forget(index.now);
        self.take_out(&ended, index);
    }

    /// An event stores a block on a tier: from now on events alone tell where it is.
    pub(super) fn known_by_events(&mut self, key: u64, at: usize, index: &mut Index) {
        if self.observed.end(key) {
            self.write(Write::Remove(key), 0..at, index);
        }
    }

    /// A block left that no event had told of.
    pub(super) fn left_unknown(&mut self, hash: u64, index: &mut Index) {
        let ended = self.observed.left_unknown(index.now, hash);
        self.take_out(&ended, index);
    }

    fn take_out(&mut self, keys: &[u64], index: &mut Index) {
        keys.iter().for_each(|key| self.write(Write::Remove(*key), 0..TIERS, index));
        self.flush(index);
    }
}

#[cfg(test)]
mod tests;
