//! How long to wait before the next try of a connection. Owns growth and jitter; must never read a clock.

use warmpath_core::{MILLISECOND, Nanos, SECOND};

/// The wait after a first failure.
const SHORTEST: Nanos = 100 * MILLISECOND;
/// The wait that more failures don't exceed.
const LONGEST: Nanos = 5 * SECOND;

/// Doubles from 0.1 s to 5 s, each wait shortened by up to half so that many streams don't come at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    failures: u32,
    seed: u64,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Backoff { failures: 0, seed }
    }

    /// One more failure: how long to wait.
    pub fn fail(&mut self) -> Nanos {
        let full = SHORTEST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures += 1;
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        full - (self.seed >> 32) % (full / 2)
    }

    /// It works again.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds_and_differ_between_streams() {
        let (mut one, mut other) = (Backoff::new(1), Backoff::new(2));
        let waits: Vec<Nanos> = (0..20).map(|_| one.fail()).collect();
        for (failures, wait) in waits.iter().enumerate() {
            let full = (SHORTEST << failures.min(6)).min(LONGEST);
            assert!(*wait > full / 2 - 1 && *wait <= full, "{wait} after {failures} failures");
        }
        assert_ne!(waits, (0..20).map(|_| other.fail()).collect::<Vec<_>>());
        one.succeed();
        assert!(one.fail() <= SHORTEST);
    }
}
