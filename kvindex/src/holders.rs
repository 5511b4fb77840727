//! Sets of holders as bits, and the writer's register of who has which bit. Must never know what a holder is:
//! the caller names it by a number of its own.

use crate::plan::WORDS_MAX;

/// A lease of one bit: what the writer's calls take. One that was released is refused, although its bit may
/// serve another holder by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    bit: u16,
    lease: u32,
}

impl Holder {
    /// Its bit, as in [`HolderSet`] and in the overlaps that a reader fills.
    pub fn bit(self) -> usize {
        usize::from(self.bit)
    }
}

/// A set of holders by bit, wide enough for any index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HolderSet {
    words: [u64; WORDS_MAX],
}

impl HolderSet {
    /// No holder.
    pub fn empty() -> HolderSet {
        HolderSet::default()
    }

    /// Adds the holder of `bit`; a bit that no index has is ignored.
    pub fn insert(&mut self, bit: usize) {
        if let Some(word) = self.words.get_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Takes the holder of `bit` out.
    pub fn remove(&mut self, bit: usize) {
        if let Some(word) = self.words.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Whether the holder of `bit` is in it.
    pub fn contains(&self, bit: usize) -> bool {
        self.words.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The bits in it, rising.
    pub fn bits(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| bits_of(*word).map(move |bit| at * 64 + bit))
    }

    /// Its words, holder 0 in the lowest bit of the first.
    pub fn words(&self) -> &[u64; WORDS_MAX] {
        &self.words
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u64; WORDS_MAX] {
        &mut self.words
    }
}

/// The set bits of a word, rising.
pub(crate) fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

/// What the writer knows of each bit.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    lease: u32,
    taken: bool,
    /// Blocks with this bit set and valid.
    held: usize,
}

impl Bits {
    pub fn new(count: usize) -> Bits {
        Bits { entries: vec![Entry::default(); count] }
    }

    /// Leases the lowest free bit.
    pub fn take(&mut self) -> Option<Holder> {
        let bit = self.entries.iter().position(|entry| !entry.taken)?;
        let entry = &mut self.entries[bit];
        entry.taken = true;
        entry.lease = entry.lease.wrapping_add(1);
        Some(Holder { bit: bit as u16, lease: entry.lease })
    }

    /// Ends a lease.
    pub fn give_back(&mut self, holder: Holder) {
        self.entries[holder.bit()].taken = false;
    }

    /// Whether the lease still runs.
    pub fn knows(&self, holder: Holder) -> bool {
        self.entries.get(holder.bit()).is_some_and(|entry| entry.taken && entry.lease == holder.lease)
    }

    /// Blocks of a bit.
    pub fn held(&self, bit: usize) -> usize {
        self.entries[bit].held
    }

    /// The same, to change.
    pub fn held_mut(&mut self, bit: usize) -> &mut usize {
        &mut self.entries[bit].held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_tells_its_bits_in_order() {
        let mut set = HolderSet::empty();
        for bit in [700, 3, 64, 63, 5_000] {
            set.insert(bit);
        }
        assert_eq!(set.bits().collect::<Vec<_>>(), [3, 63, 64, 700]);
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63) && !set.is_empty());
    }

    #[test]
    fn a_released_lease_is_not_known_although_its_bit_is_leased_again() {
        let mut bits = Bits::new(2);
        let (first, _) = (bits.take().unwrap(), bits.take().unwrap());
        assert_eq!(bits.take(), None);
        bits.give_back(first);
        assert!(!bits.knows(first));
        let again = bits.take().unwrap();
        assert_eq!(again.bit(), first.bit());
        assert!(bits.knows(again) && !bits.knows(first));
    }
}
