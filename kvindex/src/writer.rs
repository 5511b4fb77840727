//! The one writer: blocks stored and removed, a holder at a time, in runs, mixed ones too. Owns everything that readers do not
//! see: fill of the segments, leases. Must never wait for a reader.
//!
//! A run is prefetched ahead of itself; each block of it is visible as soon as it is stored.

use crate::holders::{Bits, Holder};
use crate::plan::{FIRST, Plan};
use crate::publish::{At, NAMELESS, Probe, Shared, stored_key};
use crate::rebuild::Spares;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a run that are asked for ahead of the one at work.
const AHEAD: usize = 32;

/// Blocks of a run ahead of the one at work of which the first bucket is looked at.
const NEAR: usize = 16;

/// Writes one index. Not shared: whoever has it is the event core.
#[derive(Debug)]
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    /// By place.
    pub(crate) fills: Box<[Fill]>,
    pub(crate) bits: Bits,
    pub(crate) spares: Spares,
    pub(crate) sweep_at: usize,
    pub(crate) refused: u64,
    pub(crate) rebuilds: u64,
}

/// How full a place is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    /// The first segment that lives there, and the one behind the last: none where the place is spare.
    pub first: u32,
    pub end: u32,
    /// Slots with a key.
    pub used: u32,
    /// Slots with a bit, stale ones included until they are swept.
    pub live: u32,
    /// Some holder was cleared and its bits are still there.
    pub stale: bool,
    /// It was rebuilt before.
    pub rebuilt: bool,
}

/// What became of a run of stored blocks, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Newly held by this holder.
    pub added: usize,
    /// Held already: nothing changed.
    pub again: usize,
    /// Not admitted for want of room; the holder is partial.
    pub refused: usize,
}

/// What became of a run of removals, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// No longer held.
    pub gone: usize,
    /// Were not held: nothing changed.
    pub unknown: usize,
}

/// One block of a mixed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It is held from now on; blocks before it in its prompt.
    Store(u64, u32),
    /// It is not.
    Remove(u64),
}

impl Write {
    fn key(self) -> u64 {
        match self {
            Write::Store(key, _) | Write::Remove(key) => key,
        }
    }
}

/// Figures for metrics and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Distinct blocks, those of cleared holders included until they are swept.
    pub blocks: usize,
    /// Distinct blocks that are taken whatever their depth.
    pub capacity: usize,
    /// Blocks not admitted so far.
    pub refused: u64,
    /// Segments rebuilt so far.
    pub rebuilds: u64,
    /// Places of segments still to sweep.
    pub stale_places: usize,
}

impl Fill {
    /// The segments that live there.
    pub fn segments(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Whether several do.
    pub fn is_shared(&self) -> bool {
        self.end - self.first > 1
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>) -> Writer {
        let plan = shared.plan;
        let mut fills = vec![Fill::default(); plan.places()].into_boxed_slice();
        fills[FIRST].end = plan.segments as u32;
        Writer {
            fills,
            bits: Bits::new(plan.bits()),
            spares: Spares::new(plan),
            sweep_at: 0,
            refused: 0,
            rebuilds: 0,
            shared,
        }
    }

    /// The sizes it was made with.
    pub fn plan(&self) -> Plan {
        self.shared.plan
    }

    /// Leases a bit to a holder that readers see as `name` (any number but `u64::MAX`); none if all are taken.
    pub fn register(&mut self, name: u64) -> Option<Holder> {
        if name == NAMELESS {
            return None;
        }
        let holder = self.bits.take()?;
        self.shared.set_name(holder.bit(), name);
        Some(holder)
    }

    /// Clears a holder and ends its lease; its bit may be leased again at once.
    pub fn release(&mut self, holder: Holder) {
        if self.bits.knows(holder) {
            self.clear(holder);
            self.shared.set_name(holder.bit(), NAMELESS);
            self.bits.give_back(holder);
        }
    }

    /// Blocks that a holder has now; 0 for a lease that ended.
    pub fn held(&self, holder: Holder) -> usize {
        if self.bits.knows(holder) { self.bits.held(holder.bit()) } else { 0 }
    }

    /// Marks a run of consecutive blocks as held; the first of them is block `depth` of its prompt.
    /// A holder whose lease ended changes nothing.
    pub fn store(&mut self, holder: Holder, keys: &[u64], depth: u32) -> Stored {
        if !self.bits.knows(holder) {
            return Stored::default();
        }
        match self.shared.plan.words {
            1 => self.store_run::<1>(holder.bit(), keys, depth),
            2 => self.store_run::<2>(holder.bit(), keys, depth),
            _ => self.store_run::<0>(holder.bit(), keys, depth),
        }
    }

    /// Takes blocks from a holder, in any order. A holder whose lease ended changes nothing.
    pub fn remove(&mut self, holder: Holder, keys: &[u64]) -> Removed {
        if !self.bits.knows(holder) {
            return Removed::default();
        }
        match self.shared.plan.words {
            1 => self.remove_run::<1>(holder.bit(), keys),
            2 => self.remove_run::<2>(holder.bit(), keys),
            _ => self.remove_run::<0>(holder.bit(), keys),
        }
    }

    /// Stores and removals of one holder, in their order. Alike to calls of [`Writer::store`] and
    /// [`Writer::remove`], but what comes next is asked for over all of them, however short each is.
    pub fn write(&mut self, holder: Holder, writes: &[Write]) -> (Stored, Removed) {
        if !self.bits.knows(holder) {
            return Default::default();
        }
        match self.shared.plan.words {
            1 => self.write_run::<1>(holder.bit(), writes),
            2 => self.write_run::<2>(holder.bit(), writes),
            _ => self.write_run::<0>(holder.bit(), writes),
        }
    }

    /// Figures of now; walks the segments' fill.
    pub fn stats(&self) -> Stats {
        Stats {
            blocks: self.fills.iter().map(|fill| fill.live as usize).sum(),
            capacity: self.shared.plan.capacity(),
            refused: self.refused,
            rebuilds: self.rebuilds,
            stale_places: self.fills.iter().filter(|fill| fill.stale).count(),
        }
    }

    fn write_run<const W: usize>(&mut self, bit: usize, writes: &[Write]) -> (Stored, Removed) {
        let (mut stored, mut removed) = (Stored::default(), Removed::default());
        for write in writes.iter().take(AHEAD) {
            self.shared.ask::<W>(write.key());
        }
        for write in writes.iter().take(NEAR) {
            self.shared.ask_on::<W>(write.key());
        }
        for (at, write) in writes.iter().enumerate() {
            if let Some(next) = writes.get(at + AHEAD) {
                self.shared.ask::<W>(next.key());
            }
            if let Some(near) = writes.get(at + NEAR) {
                self.shared.ask_on::<W>(near.key());
            }
            match *write {
                Write::Store(key, depth) => self.store_one::<W>(bit, stored_key(key), depth, &mut stored),
                Write::Remove(key) => self.remove_one::<W>(bit, stored_key(key), &mut removed),
            }
        }
        let held = self.bits.held_mut(bit);
        *held = *held + stored.added - removed.gone;
        self.refused += stored.refused as u64;
        (stored, removed)
    }

    fn store_run<const W: usize>(&mut self, bit: usize, keys: &[u64], depth: u32) -> Stored {
        let mut result = Stored::default();
        self.ask_for_first::<W>(keys);
        for (at, key) in keys.iter().enumerate() {
            self.ask_for_next::<W>(keys, at);
            let depth = depth.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
            self.store_one::<W>(bit, stored_key(*key), depth, &mut result);
        }
        *self.bits.held_mut(bit) += result.added;
        if result.refused > 0 {
            self.refused += result.refused as u64;
        }
        result
    }

    #[inline(always)]
    fn store_one<const W: usize>(&mut self, bit: usize, key: u64, depth: u32, result: &mut Stored) {
        let home = self.shared.home(key);
        let place = self.shared.place(home.segment);
        self.make_valid(place, bit);
        match self.shared.probe::<W>(home, key) {
            Some(Probe::Found(at)) => {
                let word = self.shared.raw::<W>(at, bit / 64);
                if word >> (bit % 64) & 1 == 1 {
                    result.again += 1;
                    return;
                }
                if self.is_dead::<W>(at) {
                    self.fills[place].live += 1;
                }
                self.shared.set_raw::<W>(at, bit / 64, word | 1 << (bit % 64));
                result.added += 1;
            }
            Some(Probe::Empty(at)) => match self.room(depth, key, at) {
                Some(at) => {
                    let mask = |word| if word == bit / 64 { 1 << (bit % 64) } else { 0 };
                    self.shared.publish::<W>(at, key, mask);
                    result.added += 1;
                }
                None => self.refuse(bit, result),
            },
            None => self.refuse(bit, result),
        }
    }

    /// Room for a new key, at `at` unless segments move for it; counts it.
    #[inline(always)]
    fn room(&mut self, depth: u32, key: u64, at: At) -> Option<At> {
        let limits = self.shared.plan.limits;
        let mut at = at;
        if self.is_due(at.place) && self.make_room(at.place) {
            at = self.shared.empty_slot(key)?;
        }
        let fill = &mut self.fills[at.place];
        if fill.used as usize >= limits.hard || !limits.admits(fill.live as usize, depth) {
            return None;
        }
        fill.used += 1;
        fill.live += 1;
        Some(at)
    }

    /// Whether a place is shared for too long, or dead keys are in the way.
    #[inline(always)]
    fn is_due(&self, place: usize) -> bool {
        let (fill, plan) = (self.fills[place], &self.shared.plan);
        if fill.is_shared() {
            return fill.used as usize >= plan.shared_most(fill.first as usize);
        }
        fill.used as usize >= plan.limits.rebuild
            || !fill.rebuilt && plan.is_early(fill.first as usize, fill.used, fill.live)
    }

    #[cold]
    fn refuse(&mut self, bit: usize, result: &mut Stored) {
        result.refused += 1;
        self.shared.set_partial(bit, true);
    }

    fn remove_run<const W: usize>(&mut self, bit: usize, keys: &[u64]) -> Removed {
        let mut result = Removed::default();
        self.ask_for_first::<W>(keys);
        for (at, key) in keys.iter().enumerate() {
            self.ask_for_next::<W>(keys, at);
            self.remove_one::<W>(bit, stored_key(*key), &mut result);
        }
        *self.bits.held_mut(bit) -= result.gone;
        result
    }

    #[inline(always)]
    fn remove_one<const W: usize>(&mut self, bit: usize, key: u64, result: &mut Removed) {
        let home = self.shared.home(key);
        let Some(Probe::Found(at)) = self.shared.probe::<W>(home, key) else {
            result.unknown += 1;
            return;
        };
        let word = self.shared.raw::<W>(at, bit / 64);
        if (word & self.shared.valid(at.place, bit / 64)) >> (bit % 64) & 1 == 0 {
            result.unknown += 1;
            return;
        }
        self.shared.set_raw::<W>(at, bit / 64, word & !(1 << (bit % 64)));
        result.gone += 1;
        if self.is_dead::<W>(at) {
            self.fills[at.place].live -= 1;
        }
    }

    /// Whether nobody's bit, valid or stale, is in a slot.
    #[inline(always)]
    pub(crate) fn is_dead<const W: usize>(&self, at: At) -> bool {
        let words = if W == 0 { self.shared.plan.words } else { W };
        (0..words).all(|word| self.shared.raw::<W>(at, word) == 0)
    }

    #[inline(always)]
    fn ask_for_first<const W: usize>(&self, keys: &[u64]) {
        for key in keys.iter().take(AHEAD) {
            self.shared.ask::<W>(*key);
        }
        for key in keys.iter().take(NEAR) {
            self.shared.ask_on::<W>(*key);
        }
    }

    #[inline(always)]
    fn ask_for_next<const W: usize>(&self, keys: &[u64], at: usize) {
        if let Some(key) = keys.get(at + AHEAD) {
            self.shared.ask::<W>(*key);
        }
        if let Some(key) = keys.get(at + NEAR) {
            self.shared.ask_on::<W>(*key);
        }
    }
}

#[cfg(test)]
mod tests;
