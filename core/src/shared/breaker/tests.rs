//! One breaker, and threads that meet at it.

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
