//! Which ranks of one endpoint of a rule with a model profile may be routed to by blocks. Owns the protocol: the word is
//! written by the admin thread alone and read with one load; what traffic proved is written by the event core alone.
//!
//! The word carries the generation of the binding that it was written for: a rule that was bound anew finds nothing
//! proven in it.

use crate::attest::{Reason, Write};
use crate::shared::RANKS_MAX;
use crate::{Nanos, SECOND};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Traffic is asked for evidence so often, each rank.
const ASK_EVERY: Nanos = 10 * SECOND;

/// One endpoint of one binding. Outlives rule changes that keep the binding and the endpoint's source.
#[derive(Debug, Default)]
pub struct AttestState {
    /// Generation, ranks, and the reason with 1 added.
    word: AtomicU64,
    asked: [AtomicU64; RANKS_MAX],
    routed: [AtomicU64; RANKS_MAX],
}

impl AttestState {
    /// Admin: what is known from now on; what is there then.
    pub fn write(&self, write: Write) -> Write {
        let reason = write.reason.map_or(0, |reason| reason as u64 + 1);
        let word = u64::from(write.generation) << 32 | u64::from(write.ranks) << 8 | reason;
        self.word.store(word, Relaxed);
        self.read()
    }

    /// What is there.
    pub fn read(&self) -> Write {
        let word = self.word.load(Relaxed);
        let reason = (word as u8).checked_sub(1).and_then(Reason::of);
        Write { generation: (word >> 32) as u32, ranks: (word >> 8) as u8, reason }
    }

    /// Shard: whether a rank may be routed to by blocks under the binding of this generation, or why not.
    pub fn admits(&self, generation: u32, rank: u8) -> Result<(), Reason> {
        let known = self.read();
        if known.generation != generation {
            return Err(Reason::BindingDataplanePending);
        }
        match known.ranks.checked_shr(rank.into()).unwrap_or(0) & 1 {
            1 => Ok(()),
            _ => Err(known.reason.unwrap_or(Reason::AttestationPending)),
        }
    }

    /// Shard: whether the events of a request to this rank are to be asked for evidence; true for one shard, now and
    /// again.
    pub fn take_ask(&self, rank: u8, now: Nanos) -> bool {
        let Some(asked) = self.asked.get(usize::from(rank)) else { return false };
        let due = asked.load(Relaxed);
        now >= due && asked.compare_exchange(due, now + ASK_EVERY, Relaxed, Relaxed).is_ok()
    }

    /// Event core: a block of a routed request was stored under the name computed here.
    pub fn routed(&self, rank: u8, now: Nanos) {
        if let Some(routed) = self.routed.get(usize::from(rank)) {
            routed.store(now, Relaxed);
        }
    }

    /// Admin: when that last was; 0: never.
    pub fn routed_at(&self, rank: u8) -> Nanos {
        self.routed.get(usize::from(rank)).map_or(0, |routed| routed.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_counts_for_its_generation_alone() {
        let state = AttestState::default();
        assert_eq!(state.admits(1, 0), Err(Reason::BindingDataplanePending));
        for reason in Reason::ALL.iter().copied().map(Some).chain([None]) {
            let write = Write { generation: u32::MAX, ranks: 0b1000_0010, reason };
            assert_eq!(state.write(write), write);
        }
        let generation = u32::MAX;
        assert_eq!([1, 7].map(|rank| state.admits(generation, rank)), [Ok(()); 2]);
        assert_eq!(state.admits(generation, 0), Err(Reason::AttestationPending));
        assert_eq!(state.admits(generation, 255), Err(Reason::AttestationPending));
        assert_eq!(state.admits(1, 1), Err(Reason::BindingDataplanePending));
        state.write(Write { generation: 1, ranks: 0, reason: Some(Reason::TokenMismatch) });
        assert_eq!(state.admits(1, 1), Err(Reason::TokenMismatch));
    }

    #[test]
    fn evidence_is_asked_for_now_and_again_and_kept_by_rank() {
        let state = AttestState::default();
        let asked = [0, 1, 10 * SECOND].map(|at| state.take_ask(3, at));
        assert_eq!((asked, state.take_ask(200, 0)), ([true, false, true], false));
        state.routed(3, 7);
        assert_eq!((state.routed_at(3), state.routed_at(0), state.routed_at(200)), (7, 0, 0));
    }
}
