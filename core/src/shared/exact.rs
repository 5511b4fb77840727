//! What exact routing of one service remembers from request to request, over all shards. Owns its protocol:
//! every value is written by shards alone and read alone, relaxed.

use crate::Nanos;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The memory of one service's exact routing. Lives as long as the service's number.
#[derive(Debug)]
pub struct ExactState {
    began: Nanos,
    hits: AtomicU64,
    lookups_without_hit: AtomicU32,
}

impl ExactState {
    /// Of a service that came into force at `now`.
    pub fn new(now: Nanos) -> ExactState {
        ExactState { began: now, hits: AtomicU64::new(0), lookups_without_hit: AtomicU32::new(0) }
    }

    /// Whether `warmup` has not passed yet since the service came into force.
    pub fn is_warming(&self, now: Nanos, warmup: Nanos) -> bool {
        now.saturating_sub(self.began) < warmup
    }

    /// Counts a hit; its number, from 1. Every so many seed a cold endpoint.
    pub fn hit(&self) -> u64 {
        self.hits.fetch_add(1, Relaxed) + 1
    }

    /// A lookup found blocks that are held, not only promised: ends the row of those that found nothing.
    pub fn found(&self) {
        if self.lookups_without_hit.load(Relaxed) != 0 {
            self.lookups_without_hit.store(0, Relaxed);
        }
    }

    /// Counts a lookup that found nothing although something is held; how many came in a row.
    pub fn missed(&self) -> u32 {
        self.lookups_without_hit.fetch_add(1, Relaxed).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_ends_a_row_of_misses_and_a_hit_alone_does_not() {
        let state = ExactState::new(10);
        assert!(state.is_warming(19, 10) && !state.is_warming(20, 10) && !state.is_warming(0, 0));
        assert_eq!(
            (state.missed(), state.missed(), state.hit(), state.missed(), state.hit()),
            (1, 2, 1, 3, 2)
        );
        state.found();
        assert_eq!(state.missed(), 1);
    }
}
