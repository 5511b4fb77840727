//! The copies of each block on one shelf, by the engine's hash: one open table. Owns its layout; must never know
//! what a block is.
//!
//! A slot is two words, so four share a cache line, and a block is looked for from its home on until an empty slot.
//! Removing one moves what follows back, so there are no tombstones. Whoever has a run of hashes before him has
//! them touched first ([`Copies::touch`]): the loads of a run are waited for together, not one after the other.

use std::hint::black_box;

/// A hash, and its count and depth; a count of 0 is an empty slot.
type Slot = [u64; 2];

/// The fewest slots.
const SLOTS_MIN: usize = 16;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// At least 1.
    pub copies: u32,
    pub depth: u32,
}

impl Entry {
    fn of(slot: Slot) -> Entry {
        Entry { copies: slot[1] as u32, depth: (slot[1] >> 32) as u32 }
    }

    fn at(self, hash: u64) -> Slot {
        [hash, u64::from(self.depth) << 32 | u64::from(self.copies)]
    }
}

/// Where a block is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Held(usize, Entry),
    /// Good for [`Copies::insert`] until anything changes.
    Free(usize),
}

/// Blocks by hash; never over three quarters full.
pub(super) struct Copies {
    slots: Box<[Slot]>,
    held: usize,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { slots: vec![[0; 2]; SLOTS_MIN].into(), held: 0 }
    }
}

impl Copies {
    pub fn len(&self) -> usize {
        self.held
    }

    pub fn get(&self, hash: u64) -> Option<Entry> {
        match self.find(hash) {
            Found::Held(_, entry) => Some(entry),
            Found::Free(_) => None,
        }
    }

    #[inline]
    pub fn find(&self, hash: u64) -> Found {
        let mask = self.slots.len() - 1;
        let mut at = mix(hash) & mask;
        loop {
            let entry = Entry::of(self.slots[at]);
            if entry.copies == 0 {
                return Found::Free(at);
            }
            if self.slots[at][0] == hash {
                return Found::Held(at, entry);
            }
            at = (at + 1) & mask;
        }
    }

    /// A block that was not found, at the place that was.
    #[inline]
    pub fn insert(&mut self, at: usize, hash: u64, entry: Entry) {
        self.slots[at] = entry.at(hash);
        self.held += 1;
        if self.held * 4 > self.slots.len() * 3 {
            self.grow();
        }
    }

    /// Changes a block that was found.
    #[inline]
    pub fn set(&mut self, at: usize, entry: Entry) {
        self.slots[at] = entry.at(self.slots[at][0]);
    }

    /// Takes a block that was found out: each block behind it that may stand nearer to its home moves up.
    #[inline]
    pub fn remove(&mut self, at: usize) {
        let mask = self.slots.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & mask);
        while Entry::of(self.slots[next]).copies > 0 {
            let from_home = next.wrapping_sub(mix(self.slots[next][0])) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = [0; 2];
        self.held -= 1;
    }

    /// Loads the homes of a few hashes that are looked for soon. Independent loads overlap.
    #[inline]
    pub fn touch(&self, hashes: &[u64]) {
        let mask = self.slots.len() - 1;
        black_box(hashes.iter().fold(0, |sum, hash| sum ^ self.slots[mix(*hash) & mask][0]));
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        let all = self.slots.iter().map(|slot| (slot[0], Entry::of(*slot)));
        all.filter(|(_, entry)| entry.copies > 0)
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![[0; 2]; old.len() * 2].into();
        for slot in old.iter().filter(|slot| Entry::of(**slot).copies > 0) {
            if let Found::Free(at) = self.find(slot[0]) {
                self.slots[at] = *slot;
            }
        }
    }
}

/// Hashes of blocks are hashes already: one multiplication spreads what a shortened one may lack.
#[inline]
fn mix(hash: u64) -> usize {
    let wide = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    ((wide >> 64) as u64 ^ wide as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Few hashes, many of them with one home, against the map of the standard library.
    #[test]
    fn equals_a_map() {
        let (mut table, mut map, mut state) = (Copies::default(), HashMap::new(), 7_u64);
        for step in 0..60_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let world = if step < 30_000 { 400 } else { 12 };
            let hash = (state >> 33) % world * 0x1_0000_0001;
            let entry = Entry { copies: 1 + step % 3, depth: step };
            match (table.find(hash), state >> 20 & 1) {
                (Found::Held(at, _), 0) => {
                    table.remove(at);
                    assert!(map.remove(&hash).is_some());
                }
                (Found::Held(at, found), _) => {
                    table.set(at, entry);
                    assert_eq!(map.insert(hash, entry), Some(found));
                }
                (Found::Free(at), _) => {
                    table.insert(at, hash, entry);
                    assert_eq!(map.insert(hash, entry), None);
                }
            }
            assert_eq!(table.len(), map.len());
            assert_eq!(table.get(hash), map.get(&hash).copied());
        }
        assert!(table.slots.len() >= 512, "it never grew: {} slots", table.slots.len());
        assert_eq!(table.iter().collect::<HashMap<_, _>>(), map);
        table.touch(&[0, 1, u64::MAX]);
    }

    /// Blocks around the table's end move over it.
    #[test]
    fn a_run_over_the_end_stays_whole() {
        let last =
            (0..).filter(|hash| mix(*hash) & (SLOTS_MIN - 1) == SLOTS_MIN - 1).take(4).collect::<Vec<u64>>();
        for gone in &last {
            let mut table = Copies::default();
            for hash in &last {
                let Found::Free(at) = table.find(*hash) else { panic!("{hash} is new") };
                table.insert(at, *hash, Entry { copies: 1, depth: 0 });
            }
            let Found::Held(at, _) = table.find(*gone) else { panic!("{gone} is held") };
            table.remove(at);
            let left: Vec<u64> = last.iter().copied().filter(|hash| table.get(*hash).is_some()).collect();
            assert_eq!(left, last.iter().copied().filter(|hash| hash != gone).collect::<Vec<_>>());
            assert_eq!(table.len(), 3);
        }
    }
}
