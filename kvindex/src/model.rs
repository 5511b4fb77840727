//! The index as a naive map, and the seeded operations that both are fed. Test only.

use crate::HolderSet;
use std::collections::{BTreeMap, BTreeSet};

/// Key to holder bits.
#[derive(Debug, Default)]
pub(crate) struct Naive {
    blocks: BTreeMap<u64, BTreeSet<usize>>,
}

impl Naive {
    pub fn store(&mut self, bit: usize, key: u64) {
        self.blocks.entry(key).or_default().insert(bit);
    }

    pub fn remove(&mut self, bit: usize, key: u64) {
        if let Some(holders) = self.blocks.get_mut(&key) {
            holders.remove(&bit);
        }
    }

    pub fn clear(&mut self, bit: usize) {
        for holders in self.blocks.values_mut() {
            holders.remove(&bit);
        }
    }

    pub fn holders(&self, key: u64) -> HolderSet {
        let mut set = HolderSet::empty();
        self.blocks.get(&key).into_iter().flatten().for_each(|bit| set.insert(*bit));
        set
    }

    pub fn overlap(&self, keys: &[u64], bit: usize) -> u32 {
        let held = |key: &&u64| self.blocks.get(key).is_some_and(|holders| holders.contains(&bit));
        keys.iter().take_while(held).count() as u32
    }

    pub fn held(&self, bit: usize) -> usize {
        self.blocks.values().filter(|holders| holders.contains(&bit)).count()
    }
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }
}

/// A small world of keys, the two remapped ones among them.
pub(crate) fn key_of(number: usize) -> u64 {
    match number {
        0 => 0,
        1 => u64::MAX,
        other => Random(other as u64).word(),
    }
}
