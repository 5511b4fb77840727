//! The breaker of an endpoint, of all shards and all rules that name the endpoint and have one. Owns the protocol: the
//! word ([`Breaker`]) is read with one load, and changed by compare and swap by whoever knows how an attempt ended;
//! who swaps a trial in holds it, alone, until it ends or gives it back, which it must. Counts beside the word are added
//! to alone and only people read them. All relaxed: nothing else is published by the word.

use crate::Nanos;
use crate::breaker::{Breaker, BreakerTerms, Change, Outcome};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The shared breaker. Lives as long as a rule names the endpoint.
#[derive(Debug)]
pub struct BreakerState {
    word: AtomicU64,
    openings: AtomicU32,
    closings: AtomicU32,
}

/// A trial that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// It is the first since the breaker opened: the breaker begins to heal.
    pub first: bool,
}

impl Default for BreakerState {
    fn default() -> BreakerState {
        BreakerState { word: AtomicU64::new(0), openings: AtomicU32::new(0), closings: AtomicU32::new(0) }
    }
}

impl BreakerState {
    /// All that is remembered.
    pub fn now(&self) -> Breaker {
        Breaker::of(self.word.load(Relaxed))
    }

    /// How often it opened and how often it closed again.
    pub fn flips(&self) -> (u32, u32) {
        (self.openings.load(Relaxed), self.closings.load(Relaxed))
    }

    /// Takes the trial of a breaker that is not closed; `None`: it is closed, open, or another one has the trial.
    pub fn take_trial(&self, now: Nanos) -> Option<Trial> {
        let mut known = self.word.load(Relaxed);
        loop {
            let (next, first) = Breaker::of(known).trial(now)?;
            match self.word.compare_exchange_weak(known, next.word(), Relaxed, Relaxed) {
                Ok(_) => return Some(Trial { first }),
                Err(other) => known = other,
            }
        }
    }

    /// An attempt ended that was let through as it was closed.
    pub fn ended(&self, outcome: Outcome, terms: BreakerTerms, now: Nanos) -> Change {
        self.change(|breaker| breaker.after(outcome, terms, now))
    }

    /// The trial ended, for its holder.
    pub fn trial_ended(&self, outcome: Outcome, terms: BreakerTerms, now: Nanos) -> Change {
        self.change(|breaker| breaker.after_trial(outcome, terms, now))
    }

    /// The trial ended before it could prove anything, for its holder.
    pub fn give_trial_back(&self) {
        self.change(|breaker| (breaker.without_trial(), Change::None));
    }

    fn change(&self, next: impl Fn(Breaker) -> (Breaker, Change)) -> Change {
        let mut known = self.word.load(Relaxed);
        loop {
            let (after, change) = next(Breaker::of(known));
            // Nearly always: an answer where nothing was counted.
            if after.word() == known {
                return change;
            }
            match self.word.compare_exchange_weak(known, after.word(), Relaxed, Relaxed) {
                Ok(_) => break self.count(change),
                Err(other) => known = other,
            }
        }
    }

    fn count(&self, change: Change) -> Change {
        match change {
            Change::None => 0,
            Change::Opened => self.openings.fetch_add(1, Relaxed),
            Change::Closed => self.closings.fetch_add(1, Relaxed),
        };
        change
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
