//! The copies of each block on one shelf, by the engine's hash: one open table. Owns its layout; must never know
//! what a block is.
//!
//! A slot is two words, so four share a cache line, and a block is looked for from its home on until an empty slot.
//! Removing one moves what follows back, so there are no tombstones. Whoever has a run of hashes before him has
//! them touched first ([`Copies::touch`]): the loads of a run are waited for together, not one after the other.
//!
//! A table that is full is followed by one of twice the size, and what it has moves over a few slots at a time, with
//! each block that comes or goes: all at once took 4 ms at 100,000 blocks, in which nobody was served.

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

/// Slots of the old table that move with each block that comes or goes, and on to the next empty one.
const MOVED: usize = 8;

/// Blocks by hash; never over three quarters full.
pub(super) struct Copies {
    slots: Box<[Slot]>,
    held: usize,
    old: Option<Old>,
}

/// A table that was full, while what it has moves. What has moved ends before an empty slot, and so did what was
/// looked for across it: a block that is still here is found from its home on.
struct Old {
    slots: Box<[Slot]>,
    next: usize,
    left: usize,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { slots: vec![[0; 2]; SLOTS_MIN].into(), held: 0, old: None }
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
        match (look(&self.slots, hash), &self.old) {
            (Found::Free(at), Some(old)) => match look(&old.slots, hash) {
                Found::Held(place, entry) => Found::Held(self.slots.len() + place, entry),
                Found::Free(_) => Found::Free(at),
            },
            (found, _) => found,
        }
    }

    /// A block that was not found, at the place that was.
    #[inline]
    pub fn insert(&mut self, at: usize, hash: u64, entry: Entry) {
        self.slots[at] = entry.at(hash);
        self.held += 1;
        if self.old.is_some() {
            self.go_on_moving();
        } else if self.held * 4 > self.slots.len() * 3 {
            self.grow();
        }
    }

    /// Changes a block that was found.
    #[inline]
    pub fn set(&mut self, at: usize, entry: Entry) {
        let (slots, at) = self.table(at);
        slots[at] = entry.at(slots[at][0]);
    }

    /// Takes a block that was found out: each block behind it that may stand nearer to its home moves up.
    #[inline]
    pub fn remove(&mut self, at: usize) {
        let (slots, at) = self.table(at);
        let mask = slots.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & mask);
        while Entry::of(slots[next]).copies > 0 {
            let from_home = next.wrapping_sub(mix(slots[next][0])) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                slots[hole] = slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        slots[hole] = [0; 2];
        self.held -= 1;
        if self.old.is_some() {
            self.go_on_moving();
        }
    }

    /// Loads the homes of a few hashes that are looked for soon. Independent loads overlap.
    #[inline]
    pub fn touch(&self, hashes: &[u64]) {
        for slots in [Some(&self.slots), self.old.as_ref().map(|old| &old.slots)].into_iter().flatten() {
            let mask = slots.len() - 1;
            black_box(hashes.iter().fold(0, |sum, hash| sum ^ slots[mix(*hash) & mask][0]));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        let old = self.old.iter().flat_map(|old| old.slots.iter());
        let all = self.slots.iter().chain(old).map(|slot| (slot[0], Entry::of(*slot)));
        all.filter(|(_, entry)| entry.copies > 0)
    }

    /// The table that has a found place, and where in it.
    #[inline]
    fn table(&mut self, at: usize) -> (&mut [Slot], usize) {
        match (&mut self.old, at.checked_sub(self.slots.len())) {
            (Some(old), Some(at)) => (&mut old.slots, at),
            _ => (&mut self.slots, at),
        }
    }

    #[cold]
    fn grow(&mut self) {
        let twice = vec![[0; 2]; self.slots.len() * 2].into();
        let slots = std::mem::replace(&mut self.slots, twice);
        let empty = slots.iter().position(|slot| Entry::of(*slot).copies == 0).unwrap_or(0);
        self.old = Some(Old { next: empty + 1, left: slots.len(), slots });
        self.go_on_moving();
    }

    #[cold]
    fn go_on_moving(&mut self) {
        let Some(old) = &mut self.old else { return };
        let (mask, enough) = (old.slots.len() - 1, old.left.saturating_sub(MOVED));
        while old.left > 0 {
            let slot = std::mem::take(&mut old.slots[old.next & mask]);
            (old.next, old.left) = (old.next + 1, old.left - 1);
            if Entry::of(slot).copies == 0 {
                if old.left <= enough {
                    break;
                }
            } else if let Found::Free(at) = look(&self.slots, slot[0]) {
                self.slots[at] = slot;
            }
        }
        if old.left == 0 {
            self.old = None;
        }
    }
}

/// Looks for a block in one table.
#[inline]
fn look(slots: &[Slot], hash: u64) -> Found {
    let mask = slots.len() - 1;
    let mut at = mix(hash) & mask;
    loop {
        let entry = Entry::of(slots[at]);
        if entry.copies == 0 {
            return Found::Free(at);
        }
        if slots[at][0] == hash {
            return Found::Held(at, entry);
        }
        at = (at + 1) & mask;
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

    /// While a table moves, what it has is found, changed and removed in either half, and few of it move at a time.
    #[test]
    fn a_full_table_moves_a_few_blocks_at_a_time() {
        let (mut table, mut held, mut longest, mut steps) = (Copies::default(), Vec::new(), 0, 0);
        for number in 0..40_000_u64 {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let left = |table: &Copies| table.old.as_ref().map_or(0, |old| old.left);
            let before = left(&table);
            let Found::Free(at) = table.find(hash) else { panic!("{hash} is new") };
            table.insert(at, hash, Entry { copies: 1, depth: number as u32 });
            held.push(hash);
            longest = longest.max(before.saturating_sub(left(&table)));
            if before > 0 && number % 3 == 0 {
                steps += 1;
                let some = held.swap_remove(number as usize % held.len());
                let Found::Held(at, entry) = table.find(some) else { panic!("{some} is held") };
                table.set(at, Entry { copies: 2, ..entry });
                let Found::Held(at, entry) = table.find(some) else { panic!("{some} is held") };
                assert_eq!(entry.copies, 2);
                table.remove(at);
                assert_eq!(table.get(some), None);
            }
            if before > 0 && number % 97 == 0 {
                assert!(held.iter().all(|hash| table.get(*hash).is_some()), "at {number}");
                assert_eq!((table.iter().count(), table.len()), (held.len(), held.len()));
            }
        }
        assert!(steps > 1_000 && longest < 400, "{steps} removals, {longest} slots at once");
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
