//! What a decision asks: how many leading blocks of a prompt each holder has. Owns the walk and the jump; must
//! never allocate or wait.
//!
//! Overlap is the longest run from block 0. The *walk* looks at every block. The *jump* looks at every 32nd
//! and walks only where a holder drops out: exact where residency is prefix-closed (a holder of a block has
//! all blocks before it) and nothing was refused to the holder, an upper bound elsewhere.

use crate::holders::{HolderSet, bits_of};
use crate::plan::WORDS_MAX;
use crate::publish::{At, NAMELESS, Pin, Readers, Shared};

/// Blocks that a jump skips over at most.
const STRIDE: usize = 32;

/// Blocks that a walk asks for ahead of the one it looks at.
const AHEAD: usize = 32;

/// The same where a block's bucket is several cache lines.
const AHEAD_WIDE: usize = 24;

/// Stride ends that a jump asks for ahead.
const STRIDES_AHEAD: usize = 8;

/// One registered reading thread.
#[derive(Debug)]
pub struct Reader {
    pin: Pin,
}

/// A reader that is online: short-lived, made for one decision. What it tells of a holder that was cleared
/// since it was made is that it has nothing.
///
/// While it lives the writer cannot reuse the memory of segments it rebuilt, so it must not be kept across
/// anything that blocks; dropping it is what takes the reader offline.
#[derive(Debug)]
pub struct View<'a> {
    shared: &'a Shared,
    pin: &'a Pin,
    clears: u64,
}

impl Readers {
    /// Registers a reader; none if as many as planned are registered.
    pub fn reader(&self) -> Option<Reader> {
        Some(Reader { pin: self.pin()? })
    }
}

impl Reader {
    /// Goes online for one decision.
    pub fn view(&mut self) -> View<'_> {
        self.pin.enter();
        View { shared: &self.pin.shared, clears: self.pin.shared.clears(), pin: &self.pin }
    }

    /// How long the overlaps that [`View::walk`] and the others fill must be.
    pub fn bits(&self) -> usize {
        self.pin.shared.plan.bits()
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.pin.leave();
    }
}

impl View<'_> {
    /// Registered holders.
    pub fn live(&self) -> HolderSet {
        self.shared.live()
    }

    /// Holders of which blocks were not admitted: what they are told to have is true but may be too little.
    pub fn partial(&self) -> HolderSet {
        self.shared.partial()
    }

    /// The name that the writer gave to a bit's holder; none if it has none, or was cleared since.
    pub fn name(&self, bit: usize) -> Option<u64> {
        let name = self.shared.name(bit);
        (name != NAMELESS && !self.shared.cleared_since(bit, self.clears)).then_some(name)
    }

    /// Who holds a block.
    pub fn holders(&self, key: u64) -> HolderSet {
        let mut set = HolderSet::empty();
        if let Some(at) = self.shared.find::<0>(key) {
            for (word, to) in set.words_mut().iter_mut().enumerate().take(self.shared.plan.words) {
                *to = self.shared.holders::<0>(at, word);
            }
        }
        let cleared = |bit: &usize| self.shared.cleared_since(*bit, self.clears);
        let read = set;
        read.bits().filter(cleared).for_each(|bit| set.remove(bit));
        set
    }

    /// Fills `out` (by bit) for each candidate with its run of blocks from `keys[0]` on; other places of `out`
    /// keep what they had. Bits beyond the end of `out` are left out.
    pub fn walk(&self, keys: &[u64], candidates: &HolderSet, out: &mut [u32]) {
        self.walk_all(keys, candidates, out);
        self.drop_cleared(candidates, out);
    }

    /// As [`View::walk`], by jumps: exact for holders whose residency is prefix-closed, else an upper bound.
    /// Partial holders are walked, since a refused block is a hole.
    pub fn jump(&self, keys: &[u64], candidates: &HolderSet, out: &mut [u32]) {
        match self.shared.plan.words {
            1 => self.jump_over::<1>(keys, candidates, out),
            2 => self.jump_over::<2>(keys, candidates, out),
            4 => self.jump_over::<4>(keys, candidates, out),
            _ => self.jump_over::<0>(keys, candidates, out),
        }
        let partial = both(candidates, &self.shared.partial());
        if !partial.is_empty() {
            self.walk_all(keys, &partial, out);
        }
        self.drop_cleared(candidates, out);
    }

    /// Zeroes who was cleared since the view was made: old and new content may be mixed in what was read.
    fn drop_cleared(&self, candidates: &HolderSet, out: &mut [u32]) {
        if !self.shared.any_cleared_since(self.clears) {
            return;
        }
        for bit in candidates.bits() {
            if bit < self.shared.plan.bits() && self.shared.cleared_since(bit, self.clears) {
                settle(out, bit / 64, 1 << (bit % 64), 0);
            }
        }
    }

    fn walk_all(&self, keys: &[u64], candidates: &HolderSet, out: &mut [u32]) {
        match self.shared.plan.words {
            1 => self.walk_range::<1>(keys, 0, *candidates.words(), out),
            2 => self.walk_range::<2>(keys, 0, *candidates.words(), out),
            4 => self.walk_range::<4>(keys, 0, *candidates.words(), out),
            _ => self.walk_range::<0>(keys, 0, *candidates.words(), out),
        }
    }

    /// Walks `keys[from..]` for holders that have all of `keys[..from]`; all of `alive` are settled.
    #[inline(always)]
    fn walk_range<const W: usize>(
        &self,
        keys: &[u64],
        from: usize,
        mut alive: [u64; WORDS_MAX],
        out: &mut [u32],
    ) {
        let ahead = if W == 1 { AHEAD } else { AHEAD_WIDE };
        let mut asked = [At::default(); AHEAD];
        for (at, key) in keys.iter().enumerate().skip(from).take(ahead) {
            asked[at % ahead] = self.shared.ask::<W>(*key);
        }
        for (at, key) in keys.iter().enumerate().skip(from) {
            let start = asked[at % ahead];
            if let Some(next) = keys.get(at + ahead) {
                asked[at % ahead] = self.shared.ask::<W>(*next);
            }
            if !self.keep::<W>(self.shared.find_from::<W>(start, *key), &mut alive, |word, lost| {
                settle(out, word, lost, at);
            }) {
                break;
            }
        }
        self.settle_all::<W>(&alive, keys.len(), out);
        self.settle_beyond::<W>(&alive, out);
    }

    #[inline(always)]
    fn jump_over<const W: usize>(&self, keys: &[u64], candidates: &HolderSet, out: &mut [u32]) {
        let mut alive = *candidates.words();
        let ends = |at: usize| (at + STRIDE).min(keys.len());
        let mut at = 0;
        for end in (0..keys.len()).step_by(STRIDE).map(ends).take(STRIDES_AHEAD) {
            self.shared.ask::<W>(keys[end - 1]);
        }
        while at < keys.len() {
            let end = ends(at);
            if let Some(key) = keys.get(end - 1 + STRIDE * STRIDES_AHEAD) {
                self.shared.ask::<W>(*key);
            }
            let mut dropped = [0; WORDS_MAX];
            let left =
                self.keep::<W>(self.shared.find::<W>(keys[end - 1]), &mut alive, |w, lost| dropped[w] = lost);
            if dropped.iter().take(self.words::<W>()).any(|word| *word != 0) {
                self.walk_range::<W>(&keys[..end - 1], at, dropped, out);
            }
            if !left {
                break;
            }
            at = end;
        }
        self.settle_all::<W>(&alive, keys.len(), out);
        self.settle_beyond::<W>(&alive, out);
    }

    /// Keeps of `alive` who holds the block, tells who does not, and whether anybody is left.
    #[inline(always)]
    fn keep<const W: usize>(
        &self,
        block: Option<At>,
        alive: &mut [u64; WORDS_MAX],
        mut lose: impl FnMut(usize, u64),
    ) -> bool {
        let mut any = 0;
        for (word, alive) in alive.iter_mut().enumerate().take(self.words::<W>()) {
            let held = block.map_or(0, |at| self.shared.holders::<W>(at, word));
            let lost = *alive & !held;
            if lost != 0 {
                lose(word, lost);
                *alive &= held;
            }
            any |= *alive;
        }
        any != 0
    }

    #[inline(always)]
    fn settle_all<const W: usize>(&self, alive: &[u64; WORDS_MAX], run: usize, out: &mut [u32]) {
        for (word, alive) in alive.iter().enumerate().take(self.words::<W>()) {
            settle(out, word, *alive, run);
        }
    }

    /// Candidates that this index is too narrow for hold nothing.
    #[inline(always)]
    fn settle_beyond<const W: usize>(&self, alive: &[u64; WORDS_MAX], out: &mut [u32]) {
        for (word, alive) in alive.iter().enumerate().skip(self.words::<W>()) {
            settle(out, word, *alive, 0);
        }
    }

    #[inline(always)]
    fn words<const W: usize>(&self) -> usize {
        if W == 0 { self.shared.plan.words } else { W }
    }
}

/// Writes a run down for some holders of one word.
#[inline(always)]
fn settle(out: &mut [u32], word: usize, bits: u64, run: usize) {
    for bit in bits_of(bits) {
        if let Some(place) = out.get_mut(word * 64 + bit) {
            *place = run as u32;
        }
    }
}

fn both(one: &HolderSet, other: &HolderSet) -> HolderSet {
    let mut set = *one;
    for (word, with) in set.words_mut().iter_mut().zip(other.words()) {
        *word &= with;
    }
    set
}

#[cfg(test)]
mod tests;
