//! The tokens of one word: the pair of neighbours that the file lists first is merged, until none is listed. Owns the
//! table of pairs; a word of any length takes time that grows little faster than it does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// No token, no place, and the rank of what is no merge, behind all others.
const NONE: u32 = u32::MAX;

/// Words up to here are merged in arrays, by looking through them; longer ones by a heap.
const SHORT: usize = 64;

/// Bits of a place in a short word, below the rank.
const PLACE: u32 = 6;

/// The merges of a vocabulary.
pub(super) struct Merges {
    /// The token of each byte.
    bytes: [u32; 256],
    /// Merges of two bytes, by the first and the second.
    first: Box<[Merge]>,
    /// All merges, by their pair; open addressing.
    slots: Box<[Slot]>,
    /// A bit for each pair that may be there: most that are asked for are not, and this is small.
    seen: Box<[u64]>,
}

/// A rank and the token that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Merge {
    rank: u32,
    made: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    pair: u64,
    merge: Merge,
}

const NO_MERGE: Merge = Merge { rank: NONE, made: NONE };

impl Merges {
    /// Of two tokens and what they make, in order. A pair that is listed twice counts where it stands last. `None` if
    /// there are too many.
    pub(super) fn new(bytes: [u32; 256], merges: &[[u32; 3]]) -> Option<Merges> {
        if merges.len() >= 1 << (u32::BITS - PLACE) {
            return None;
        }
        let ranked = merges.iter().zip(0..);
        let ranked =
            ranked.map(|([left, right, made], rank)| (pair(*left, *right), Merge { rank, made: *made }));
        let all: HashMap<u64, Merge> = ranked.collect();
        let slots = (all.len() * 3 / 2 + 1).next_power_of_two();
        let mut merges = Merges {
            bytes,
            first: Box::default(),
            slots: vec![Slot { pair: u64::MAX, merge: NO_MERGE }; slots].into(),
            seen: vec![0; (slots / 8).max(1)].into(),
        };
        for (pair, merge) in all {
            let mut at = merges.home(pair);
            while merges.slots[at].pair != u64::MAX {
                at = (at + 1) & (slots - 1);
            }
            merges.slots[at] = Slot { pair, merge };
            let (word, bit) = merges.sight(pair);
            merges.seen[word] |= bit;
        }
        let pairs = (0..1usize << 16).map(|both| merges.merge(bytes[both >> 8], bytes[both & 255]));
        merges.first = pairs.collect();
        Some(merges)
    }

    /// Appends the tokens of a word.
    pub(super) fn word(&self, word: &[u8], out: &mut Vec<u32>) {
        match word.len() {
            0 => {}
            1 => out.push(self.bytes[usize::from(word[0])]),
            2..=16 => self.short::<16>(word, out),
            17..=SHORT => self.short::<SHORT>(word, out),
            _ => self.long(word, out),
        }
    }

    #[inline]
    fn merge(&self, left: u32, right: u32) -> Merge {
        let wanted = pair(left, right);
        let (word, bit) = self.sight(wanted);
        if self.seen[word] & bit == 0 {
            return NO_MERGE;
        }
        let mut at = self.home(wanted);
        loop {
            let Slot { pair, merge } = self.slots[at];
            if pair == wanted {
                return merge;
            }
            if pair == u64::MAX {
                return NO_MERGE;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn home(&self, pair: u64) -> usize {
        spread(pair) as usize & (self.slots.len() - 1)
    }

    /// Word and bit of a pair among those that were seen.
    #[inline]
    fn sight(&self, pair: u64) -> (usize, u64) {
        let spread = spread(pair);
        ((spread >> 6) as usize & (self.seen.len() - 1), 1 << (spread & 63))
    }

    #[inline]
    fn of_bytes(&self, bytes: &[u8]) -> Merge {
        self.first[usize::from(bytes[0]) << 8 | usize::from(bytes[1])]
    }

    /// A word of 2 to `N` bytes; `N` is a power of two, of at most [`SHORT`].
    #[inline]
    fn short<const N: usize>(&self, word: &[u8], out: &mut Vec<u32>) {
        let n = word.len();
        // Of each place whose pair can be merged: rank and place in one, so that the least is the next; what it makes.
        let (mut keys, mut made) = ([NONE; N], [NONE; N]);
        let (mut ids, mut before, mut behind) = ([NONE; N], [0u8; N], [0u8; N]);
        let key = |merge: Merge, at: usize| match merge.rank {
            NONE => NONE,
            rank => rank << PLACE | at as u32,
        };
        for (at, byte) in word.iter().enumerate().take(N) {
            ids[at] = self.bytes[usize::from(*byte)];
            (before[at], behind[at]) = ((at as u8).wrapping_sub(1), at as u8 + 1);
        }
        for (at, bytes) in word.windows(2).enumerate().take(N) {
            let merge = self.of_bytes(bytes);
            (keys[at], made[at]) = (key(merge, at), merge.made);
        }
        loop {
            let best = keys.iter().copied().fold(NONE, u32::min);
            if best == NONE {
                break;
            }
            let at = best as usize & (N - 1);
            ids[at] = made[at];
            let gone = usize::from(behind[at]) & (N - 1);
            keys[gone] = NONE;
            behind[at] = behind[gone];
            let (left, right) = (usize::from(before[at]), usize::from(behind[at]));
            let mut again = |at: usize, merge: Merge| (keys[at], made[at]) = (key(merge, at), merge.made);
            if right < n {
                before[right & (N - 1)] = at as u8;
                again(at, self.merge(ids[at], ids[right & (N - 1)]));
            } else {
                again(at, NO_MERGE);
            }
            if left < n {
                again(left & (N - 1), self.merge(ids[left & (N - 1)], ids[at]));
            }
        }
        let mut at = 0;
        while at < n {
            out.push(ids[at & (N - 1)]);
            at = usize::from(behind[at & (N - 1)]);
        }
    }

    fn long(&self, word: &[u8], out: &mut Vec<u32>) {
        let mut links: Vec<Link> = (0u32..).zip(word).map(|(at, byte)| self.link(at, *byte)).collect();
        for (link, bytes) in links.iter_mut().zip(word.windows(2)) {
            link.merge = self.of_bytes(bytes);
        }
        let ranked = |at: u32, merge: Merge| Reverse(pair(merge.rank, at));
        let merges = (0..).zip(&links).filter(|(_, link)| link.merge != NO_MERGE);
        let mut heap: BinaryHeap<Reverse<u64>> = merges.map(|(at, link)| ranked(at, link.merge)).collect();
        while let Some(Reverse(best)) = heap.pop() {
            let (rank, at) = ((best >> 32) as u32, best as u32);
            let Link { merge, before, behind, .. } = links[at as usize];
            // What was merged otherwise meanwhile has another rank.
            if merge.rank != rank {
                continue;
            }
            let gone = std::mem::replace(&mut links[behind as usize], GONE);
            links[at as usize] = Link { id: merge.made, merge: NO_MERGE, before, behind: gone.behind };
            if let Some(next) = links.get_mut(gone.behind as usize) {
                next.before = at;
            }
            for (left, right) in [(before, at), (at, gone.behind)] {
                let (Some(one), Some(other)) = (links.get(left as usize), links.get(right as usize)) else {
                    continue;
                };
                let merge = self.merge(one.id, other.id);
                links[left as usize].merge = merge;
                if merge != NO_MERGE {
                    heap.push(ranked(left, merge));
                }
            }
        }
        out.extend(links.iter().map(|link| link.id).filter(|id| *id != NONE));
    }

    fn link(&self, at: u32, byte: u8) -> Link {
        let id = self.bytes[usize::from(byte)];
        Link { id, merge: NO_MERGE, before: at.checked_sub(1).unwrap_or(NONE), behind: at + 1 }
    }
}

/// A token of a long word: how it merges with the next one, and both neighbours.
#[derive(Clone, Copy)]
struct Link {
    id: u32,
    merge: Merge,
    before: u32,
    behind: u32,
}

/// Where a token stood that was merged into the one before.
const GONE: Link = Link { id: NONE, merge: NO_MERGE, before: NONE, behind: NONE };

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[inline]
fn spread(pair: u64) -> u64 {
    let mixed = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges as they are defined: all pairs looked at again after each.
    fn plainly(merges: &[[u32; 3]], word: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = word.iter().map(|byte| u32::from(*byte)).collect();
        let rank = |pair: &[u32]| merges.iter().rposition(|[left, right, _]| pair == [*left, *right]);
        while let Some((rank, at)) =
            ids.windows(2).enumerate().filter_map(|(at, pair)| Some((rank(pair)?, at))).min()
        {
            ids.splice(at..at + 2, [merges[rank][2]]);
        }
        ids
    }

    #[test]
    fn words_of_any_length_are_merged_as_merging_is_defined() {
        let mut state = 7u64;
        let mut draw = |most: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % most
        };
        let mut merges: Vec<[u32; 3]> = Vec::new();
        for made in 256..320 {
            let mut part = || if draw(3) == 0 && made > 260 { 256 + draw(made - 256) } else { 97 + draw(3) };
            merges.push([part(), part(), made]);
        }
        let table = Merges::new(std::array::from_fn(|byte| byte as u32), &merges).expect("a table");
        let mut merged = 0;
        for round in 0..3_000 {
            let word: Vec<u8> = (0..1 + round % 150).map(|_| 97 + draw(3) as u8).collect();
            let mut ids = Vec::new();
            table.word(&word, &mut ids);
            assert_eq!(ids, plainly(&merges, &word), "{:?}", String::from_utf8_lossy(&word));
            // Both ways, where both may be gone.
            if word.len() > 1 {
                let mut by_heap = Vec::new();
                table.long(&word, &mut by_heap);
                assert_eq!(by_heap, ids);
            }
            merged += word.len() - ids.len();
        }
        assert!(merged > 50_000, "{merged}");
    }
}
