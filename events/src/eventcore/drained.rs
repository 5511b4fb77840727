//! The ranks of one engine whose events are drained, and the poller. Owns the pace and what a lost answer means;
//! must never judge an event's order, which [`Drain`] does.

use super::published::Change;
use crate::backoff::Backoff;
use crate::drain::Drain;
use crate::residency::{Removal, Residency};
use crate::trtllm_json::{DrainData, DrainEvent, parse};
use std::collections::BTreeMap;
use warmpath_core::Nanos;

/// How often an engine is asked for its events.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After an answer with events (`LOXILB_KV_TRTLLM_POLL_MIN_MS`).
    pub min: Nanos,
    /// The longest wait, reached by half as much again after each empty answer
    /// (`LOXILB_KV_TRTLLM_POLL_MAX_MS`).
    pub max: Nanos,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { min: 5 * warmpath_core::MILLISECOND, max: 20 * warmpath_core::MILLISECOND }
    }
}

/// The poller of one engine.
pub(super) struct Poller {
    pub path: &'static str,
    pace: Pace,
    wait: Nanos,
    pub at: Nanos,
    backoff: Backoff,
    /// The last answer came.
    pub is_up: bool,
    pub failures: u64,
}

impl Poller {
    pub fn new(path: &'static str, pace: Pace, seed: u64) -> Poller {
        Poller { path, pace, wait: pace.min, at: 0, backoff: Backoff::new(seed), is_up: false, failures: 0 }
    }

    /// An answer came, with so many events.
    pub fn answered(&mut self, now: Nanos, events: usize) {
        self.is_up = true;
        self.backoff.succeed();
        self.wait = if events > 0 { self.pace.min } else { (self.wait * 3 / 2).min(self.pace.max) };
        self.at = now + self.wait;
    }

    /// None came.
    pub fn failed(&mut self, now: Nanos) {
        self.is_up = false;
        self.failures += 1;
        self.at = now + self.backoff.fail();
    }
}

/// One drained rank.
pub(super) struct Drained {
    pub drain: Drain,
    pub residency: Residency,
    pub last_event: Nanos,
    pub batches: u64,
    pub cleared: u64,
}

impl Drained {
    pub fn new(blocks: usize) -> Drained {
        let residency = Residency::new(Removal::All, blocks);
        Drained { drain: Drain::default(), residency, last_event: 0, batches: 0, cleared: 0 }
    }

    /// Applies one event; the room that a new cache tells.
    pub fn apply(&mut self, now: Nanos, event: &DrainEvent, change: &mut Change<'_>) -> Option<u32> {
        self.last_event = now;
        let (holdings, index, cleared) = (&mut *change.holdings, &mut *change.index, &mut self.cleared);
        self.drain.apply(event, &mut self.residency, &mut |it| {
            *cleared += u64::from(it == crate::drain::DrainChange::Cleared);
            holdings.drained(it, index);
        });
        match &event.data {
            DrainData::Created { num_blocks_per_cache_level: levels } => {
                levels.first().and_then(|blocks| u32::try_from(*blocks).ok())
            }
            _ => None,
        }
    }

    /// An answer was lost.
    pub fn lost(&mut self, change: &mut Change<'_>) {
        let (holdings, index) = (&mut *change.holdings, &mut *change.index);
        self.drain.lost(&mut self.residency, &mut |it| holdings.drained(it, index));
    }

    /// The stream is ours again.
    pub fn reacquire(&mut self, change: &mut Change<'_>) {
        let (holdings, index) = (&mut *change.holdings, &mut *change.index);
        self.drain.reacquire(&mut self.residency, &mut |it| holdings.drained(it, index));
    }
}

/// An answer's events by rank, in their order; `None`: it can't be read.
pub(super) fn by_rank(body: &[u8]) -> Option<BTreeMap<u32, Vec<DrainEvent>>> {
    let mut ranks: BTreeMap<u32, Vec<DrainEvent>> = BTreeMap::new();
    for event in parse(body).ok()? {
        ranks.entry(event.rank).or_default().push(event);
    }
    Some(ranks)
}
