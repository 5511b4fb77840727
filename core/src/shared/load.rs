//! What an engine last told of its load. Owns the protocol; must never be read for two values of one instant.
//!
//! Writer: the admin thread's scraper of the endpoint. Readers: any shard, each value alone, relaxed: a decision made on
//! a sample of some seconds ago is not made worse by a mixture of two. `told_at` is written last and is 0 before the
//! first sample.

use crate::engine::telemetry::Load;
use crate::{Nanos, SECOND};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Older samples count for nothing (the loxilb AI gateway's `PD_QUEUE_STALE_SEC`).
pub const LOAD_STALE: Nanos = 30 * SECOND;

/// Stands for a value that the engine does not tell.
const UNTOLD: u32 = u32::MAX;

/// The last sample.
#[derive(Debug, Default)]
pub struct SharedLoad {
    running: AtomicU32,
    waiting: AtomicU32,
    kv_use_permille: AtomicU32,
    capacity_blocks: AtomicU32,
    told_at: AtomicU64,
}

impl SharedLoad {
    /// Takes a sample of `now`.
    pub fn tell(&self, load: Load, now: Nanos) {
        self.running.store(load.running, Relaxed);
        self.waiting.store(load.waiting, Relaxed);
        self.kv_use_permille.store(load.kv_use_permille.map_or(UNTOLD, u32::from), Relaxed);
        self.capacity_blocks.store(load.capacity_blocks.unwrap_or(UNTOLD), Relaxed);
        self.told_at.store(now.max(1), Relaxed);
    }

    /// The last sample; `None` before the first, and once it is older than `stale`.
    pub fn told(&self, now: Nanos, stale: Nanos) -> Option<Load> {
        let at = self.told_at.load(Relaxed);
        if at == 0 || now.saturating_sub(at) > stale {
            return None;
        }
        let told = |cell: &AtomicU32| Some(cell.load(Relaxed)).filter(|value| *value != UNTOLD);
        Some(Load {
            running: self.running.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            kv_use_permille: told(&self.kv_use_permille).map(|permille| permille.min(1000) as u16),
            capacity_blocks: told(&self.capacity_blocks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_until_it_is_stale() {
        let shared = SharedLoad::default();
        assert_eq!(shared.told(7, u64::MAX), None, "nothing was told");
        let load = Load { running: 3, waiting: 4, kv_use_permille: Some(500), capacity_blocks: None };
        shared.tell(load, 100);
        assert_eq!(shared.told(100, 0), Some(load));
        assert_eq!(shared.told(150, 50), Some(load));
        assert_eq!(shared.told(151, 50), None);
        // A shard's clock may be read before the writer's.
        assert_eq!(shared.told(99, 0), Some(load));
        shared.tell(Load { kv_use_permille: None, ..load }, 0);
        assert_eq!(shared.told(1, 1).map(|load| load.kv_use_permille), Some(None));
    }
}
