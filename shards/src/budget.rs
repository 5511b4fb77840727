//! The bytes that request bodies and waiting answers of all shards may occupy together. Owns the count;
//! must never give out more than there is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bounded count of bytes, shared by the shards. Taking never waits.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    free: AtomicU64,
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: u64) -> Self {
        Budget { total, free: AtomicU64::new(total) }
    }

    /// Takes `bytes`; false (and nothing taken) if fewer are free.
    pub fn take(&self, bytes: u64) -> bool {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }

    /// Takes `bytes` for a body to be read, leaving a quarter of all for what cannot be refused any more:
    /// bytes that the kernel had delivered of clients that must wait, and answers that nobody reads.
    pub fn take_for_body(&self, bytes: u64) -> bool {
        let floor = self.total / 4;
        let less = |free: u64| free.checked_sub(bytes).filter(|left| *left >= floor);
        self.free.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    /// Gives `bytes` back.
    pub fn give(&self, bytes: u64) {
        let before = self.free.fetch_add(bytes, Relaxed);
        debug_assert!(before + bytes <= self.total, "gave back more than was taken");
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.total - self.free.load(Relaxed)
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_gives_out_more_than_there_is() {
        let budget = Budget::new(1000);
        let taken: u64 = std::thread::scope(|scope| {
            let one = || (0..1000).filter(|_| budget.take(7)).count() as u64 * 7;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).sum()
        });
        assert_eq!((taken, budget.used()), (994, 994));
        assert!(!budget.take(7) && budget.take(6));
        budget.give(1000);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn bodies_leave_a_quarter() {
        let budget = Budget::new(1000);
        assert!(!budget.take_for_body(751) && budget.take_for_body(750) && !budget.take_for_body(1));
        assert!(budget.take(250) && !budget.take(1));
    }
}
