//! All interleavings of a permit put back and a request that finds none.

use super::*;
use loom::sync::Arc;

const PLACE: Place = Place { shard: 0, slot: 0, generation: 0 };

/// One permit, out. Its holder puts it back while another comes: that one has it in the end, whoever called it, and
/// a third never has one beside it.
#[test]
fn a_turn_is_never_lost() {
    loom::model(|| {
        let gate = Arc::new(Gate::default());
        gate.set_limit(1);
        assert!(gate.enter());
        let (turns, holder) = (Arc::new(AtomicU32::new(0)), gate.clone());
        let called = turns.clone();
        let holder = loom::thread::spawn(move || {
            holder.put_back();
            while holder.call().is_some() {
                called.fetch_add(1, SeqCst);
            }
        });
        if gate.enter() {
            turns.fetch_add(1, SeqCst);
        } else {
            assert_eq!(gate.queue(1, PLACE, Work::default()), Some(0));
            while gate.call().is_some() {
                turns.fetch_add(1, SeqCst);
            }
        }
        holder.join().unwrap();
        assert_eq!((turns.load(SeqCst), gate.out(), gate.waiting()), (1, 1, 0));
    });
}

/// It leaves while it is called: either it was called, and the caller has a permit to put back, or it was not.
#[test]
fn one_that_leaves_was_called_or_was_not() {
    loom::model(|| {
        let gate = Arc::new(Gate::default());
        gate.set_limit(1);
        assert!(gate.enter());
        assert_eq!(gate.queue(1, PLACE, Work::default()), Some(0));
        let holder = gate.clone();
        let holder = loom::thread::spawn(move || {
            holder.put_back();
            holder.call().is_some()
        });
        let left = gate.leave(0);
        let called = holder.join().unwrap();
        assert_ne!(left, called);
        assert_eq!((gate.out(), gate.waiting()), (u32::from(called), 0));
    });
}
