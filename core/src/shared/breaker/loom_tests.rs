//! All interleavings of those who meet at one breaker.

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
