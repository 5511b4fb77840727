//! Copies beyond the first: engines that store a block twice must remove it twice. Sparse, on the writer's
//! side, one map a holder so that a clear drops it whole; bounded over all holders.
//!
//! Must never count a first copy (the bit does) nor grow past its bound: a copy that is not counted makes the
//! block go one removal too early, which claims too little, never too much.

use std::collections::HashMap;

/// Extra copies by holder bit and key.
#[derive(Debug)]
pub(crate) struct ExtraCopies {
    maps: Vec<HashMap<u64, u32>>,
    entries: usize,
    entries_max: usize,
    uncounted: u64,
}

impl ExtraCopies {
    pub fn new(bits: usize, entries_max: usize) -> ExtraCopies {
        ExtraCopies {
            maps: (0..bits).map(|_| HashMap::new()).collect(),
            entries: 0,
            entries_max,
            uncounted: 0,
        }
    }

    /// Counts one more copy; false if there was no room.
    pub fn add(&mut self, bit: usize, key: u64) -> bool {
        if let Some(count) = self.maps[bit].get_mut(&key) {
            *count = count.saturating_add(1);
            return true;
        }
        if self.entries >= self.entries_max {
            self.uncounted += 1;
            return false;
        }
        self.entries += 1;
        self.maps[bit].insert(key, 1);
        true
    }

    /// Takes one extra copy; false if there was none, so that the block's bit must go.
    pub fn take_one(&mut self, bit: usize, key: u64) -> bool {
        let map = &mut self.maps[bit];
        let Some(count) = map.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            map.remove(&key);
            self.entries -= 1;
        }
        true
    }

    /// Forgets all extra copies of one block.
    pub fn forget(&mut self, bit: usize, key: u64) {
        if self.maps[bit].remove(&key).is_some() {
            self.entries -= 1;
        }
    }

    /// Forgets a holder's copies and frees their memory.
    pub fn clear(&mut self, bit: usize) {
        self.entries -= self.maps[bit].len();
        self.maps[bit] = HashMap::new();
    }

    /// Copies beyond the first of one block.
    #[cfg(test)]
    pub fn extra(&self, bit: usize, key: u64) -> u32 {
        self.maps[bit].get(&key).copied().unwrap_or(0)
    }

    /// Blocks with more than one copy, as (bit, key).
    pub fn blocks(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.maps.iter().enumerate().flat_map(|(bit, map)| map.keys().map(move |key| (bit, *key)))
    }

    /// Entries counted now, as the maps say.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Copies that found no room.
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_one_by_one_and_the_bound_holds() {
        let mut copies = ExtraCopies::new(2, 1);
        assert!(copies.add(0, 7) && copies.add(0, 7));
        assert!(!copies.add(1, 7), "one entry is the bound");
        assert_eq!((copies.uncounted(), copies.extra(0, 7)), (1, 2));
        assert!(copies.take_one(0, 7) && copies.take_one(0, 7) && !copies.take_one(0, 7));
        assert!(copies.add(1, 7));
        copies.clear(1);
        assert_eq!(copies.entries(), 0);
    }
}
