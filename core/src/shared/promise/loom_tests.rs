//! One bucket under every order of two threads' steps. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p warmpath-core --release --lib loom_tests`.

use super::*;
use loom::sync::Arc;
use loom::thread;

const NOW: Nanos = SECOND;

fn bucket() -> Arc<Bucket> {
    Arc::new(Bucket(std::array::from_fn(|_| AtomicU64::new(0))))
}

/// Words of that name, and the latest tick of theirs.
fn words(bucket: &Bucket, name: u64) -> (usize, u64) {
    let of_name = bucket.0.iter().map(|word| word.load(Relaxed)).filter(|word| word >> 18 == name);
    of_name.fold((0, 0), |(count, tick), word| (count + 1, tick.max(word % TICKS)))
}

fn check(steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(steps);
}

fn life() -> u64 {
    expiry(NOW, PROMISE_LIFE)
}

#[test]
fn two_promises_at_once_are_both_there() {
    check(|| {
        let bucket = bucket();
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.put(1, life(), NOW));
        bucket.put(2, life(), NOW);
        thread.join().unwrap();
        assert_eq!((words(&bucket, 1), words(&bucket, 2)), ((1, life()), (1, life())));
    });
}

#[test]
fn a_failure_does_not_end_what_is_promised_again() {
    check(|| {
        let bucket = bucket();
        bucket.put(1, life(), NOW);
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.remove(1 << 18 | life()));
        bucket.put(1, life() + 5, NOW);
        thread.join().unwrap();
        assert_eq!(words(&bucket, 1), (1, life() + 5));
    });
}

#[test]
fn a_sweep_leaves_what_is_promised_anew() {
    check(|| {
        let bucket = bucket();
        bucket.put(1, life(), NOW);
        let later = NOW + PROMISE_LIFE + SECOND;
        let other = Arc::clone(&bucket);
        let thread = thread::spawn(move || other.sweep(later));
        bucket.put(1, expiry(later, PROMISE_LIFE), later);
        thread.join().unwrap();
        assert_eq!(words(&bucket, 1), (1, expiry(later, PROMISE_LIFE)));
    });
}
