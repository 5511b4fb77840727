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
mod tests {
    use super::*;
    use crate::SECOND;
    use crate::breaker::State;
    use std::sync::atomic::AtomicBool;

    const TERMS: BreakerTerms = BreakerTerms::pair(3);

    #[test]
    fn three_failures_open_it_one_trial_closes_it() {
        let breaker = BreakerState::default();
        assert_eq!(breaker.take_trial(0), None, "a closed one has no trial");
        let changes = [1, 2, 3].map(|at| breaker.ended(Outcome::Unanswered, TERMS, at * SECOND));
        assert_eq!(changes, [Change::None, Change::None, Change::Opened]);
        assert_eq!((breaker.now().state(4 * SECOND), breaker.take_trial(4 * SECOND)), (State::Open, None));
        let due = 3 * SECOND + TERMS.open;
        assert_eq!(breaker.take_trial(due), Some(Trial { first: true }));
        assert_eq!(breaker.take_trial(due), None);
        breaker.give_trial_back();
        assert_eq!(breaker.take_trial(due), Some(Trial { first: false }));
        assert_eq!(breaker.trial_ended(Outcome::Answered, TERMS, due), Change::Closed);
        assert_eq!((breaker.now(), breaker.flips()), (Breaker::default(), (1, 1)));
    }

    /// Four threads fail, take trials and end them: never are two trials held at once, and each flip is counted.
    #[test]
    fn one_trial_at_a_time_whoever_asks() {
        let terms = BreakerTerms { failures: 1, origin_errors: 1, open: 0 };
        let (breaker, held, opened) = (BreakerState::default(), AtomicBool::new(false), AtomicU32::new(0));
        let run = |seed: u32| {
            for round in 0..20_000u32 {
                let outcome = match (round + seed) % 5 {
                    0 => Outcome::Answered,
                    1 => Outcome::OriginError,
                    _ => Outcome::Unanswered,
                };
                let change = match breaker.take_trial(0) {
                    Some(_) => {
                        assert!(!held.swap(true, Relaxed), "two trials at once");
                        held.store(false, Relaxed);
                        breaker.trial_ended(outcome, terms, 0)
                    }
                    None => breaker.ended(outcome, terms, 0),
                };
                opened.fetch_add(u32::from(change == Change::Opened), Relaxed);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || run(seed)))));
        let (openings, closings) = breaker.flips();
        assert_eq!(openings, opened.load(Relaxed));
        assert!(closings > 0 && openings > closings, "{openings} and {closings}");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Whatever the order, two shards never hold the trial at once, and the one that holds it ends it.
    #[test]
    fn two_shards_never_share_a_trial() {
        loom::model(|| {
            let terms = BreakerTerms { failures: 1, origin_errors: 0, open: 0 };
            let breaker = Arc::new(BreakerState::default());
            breaker.ended(Outcome::Unanswered, terms, 0);
            let held = Arc::new(AtomicU32::new(0));
            let shard = |outcome| {
                let (breaker, held) = (breaker.clone(), held.clone());
                thread::spawn(move || {
                    if breaker.take_trial(0).is_some() {
                        assert_eq!(held.fetch_add(1, Relaxed), 0);
                        held.fetch_sub(1, Relaxed);
                        breaker.trial_ended(outcome, terms, 0);
                    }
                })
            };
            let others = [shard(Outcome::Unanswered), shard(Outcome::Objected)];
            breaker.ended(Outcome::Unanswered, terms, 0);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(breaker.now().is_closed() || breaker.now().admits(0), "no trial is left taken");
        });
    }
}
