//! Which blocks one rank holds. Owns the counts per (group, medium, hash); must never know the index, weigh a
//! medium or ask where a batch came from.
//!
//! An engine may hold a block twice: a hit stops one block short and the recomputed block is a second copy
//! (vLLM 0.32, captured). Each is removed by itself, so a block is gone when the last copy is. Whether a
//! removal takes one copy or all is the engine's rule ([`Removal`]). A removal of what is not held, as after a
//! stream that was picked up midway, changes nothing.

use crate::wire::{Batch, Event, ExtraKey, Medium, Place, Removed, Stored};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// How many copies one removal takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// One (vLLM, SGLang).
    One,
    /// All (TensorRT-LLM).
    All,
}

/// Where a block is held within its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shelf {
    /// The KV-cache group; 0 if the engine has but one. TensorRT-LLM: the attention window.
    pub group: u32,
    /// The medium. Events that name none mean the GPU.
    pub medium: Medium,
}

impl From<Place> for Shelf {
    fn from(place: Place) -> Self {
        Shelf { group: place.group.unwrap_or(0), medium: place.medium.unwrap_or(Medium::Gpu) }
    }
}

/// What is known of a block beside its hash, for keys of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Content<'a> {
    /// The block before it; none at a prompt's start.
    pub parent: Option<u64>,
    /// Its token ids, [`Content::width`] of them for each unit.
    pub tokens: &'a [u32],
    /// 1, or 2 in SGLang's bigram mode.
    pub width: usize,
    /// Its extra keys.
    pub extra: &'a [ExtraKey],
    /// The event, for its adapter and salt.
    pub event: &'a Stored,
}

/// A change that the index must know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// A block is held that was not.
    Held {
        /// Where.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
        /// None if the event does not tell: masked groups list only the blocks that they keep.
        content: Option<Content<'a>>,
    },
    /// A block is no longer held.
    Gone {
        /// Where it was.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
    },
    /// Nothing is held any more.
    Cleared,
}

/// What happened so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stores of a block that was held already.
    pub repeated: u64,
    /// Removals of a block that was not held.
    pub unmatched: u64,
    /// Blocks not taken because the limit was reached: the state is partial.
    pub refused: u64,
}

/// One rank's blocks.
pub struct Residency {
    removal: Removal,
    limit: usize,
    held: usize,
    shelves: Vec<(Shelf, Copies)>,
    counts: Counts,
}

type Copies = HashMap<u64, u32, BuildHasherDefault<Mix>>;

impl Residency {
    /// An empty cache that takes up to `limit` blocks of all shelves.
    pub fn new(removal: Removal, limit: usize) -> Self {
        Residency { removal, limit, held: 0, shelves: Vec::new(), counts: Counts::default() }
    }

    /// Applies a batch. Whether it emptied the cache at some point.
    pub fn apply(&mut self, batch: &Batch, sink: &mut dyn FnMut(Change<'_>)) -> bool {
        let mut emptied = false;
        for event in &batch.events {
            match event {
                Event::Stored(stored) => self.store_all(batch, stored, sink),
                Event::Removed(removed) => self.remove_all(batch, *removed, sink),
                Event::Cleared => {
                    self.clear(sink);
                    emptied = true;
                }
            }
        }
        emptied
    }

    /// One more copy of a block. Whether it is new on this shelf.
    pub fn store(&mut self, shelf: Shelf, hash: u64) -> bool {
        let is_full = self.held >= self.limit;
        let copies = self.shelf(shelf);
        match copies.get_mut(&hash) {
            Some(count) => {
                *count = count.saturating_add(1);
                self.counts.repeated += 1;
                false
            }
            None if is_full => {
                self.counts.refused += 1;
                false
            }
            None => {
                copies.insert(hash, 1);
                self.held += 1;
                true
            }
        }
    }

    /// A removal. Whether the block is now gone from this shelf.
    pub fn remove(&mut self, shelf: Shelf, hash: u64) -> bool {
        let removal = self.removal;
        let copies = self.shelf(shelf);
        match copies.get_mut(&hash) {
            None => {
                self.counts.unmatched += 1;
                false
            }
            Some(count) if *count > 1 && removal == Removal::One => {
                *count -= 1;
                false
            }
            Some(_) => {
                copies.remove(&hash);
                self.held -= 1;
                true
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self, sink: &mut dyn FnMut(Change<'_>)) {
        self.shelves.clear();
        self.held = 0;
        sink(Change::Cleared);
    }

    /// Copies of a block on a shelf.
    pub fn copies(&self, shelf: Shelf, hash: u64) -> u32 {
        let found = self.shelves.iter().find(|(at, _)| *at == shelf);
        found.and_then(|(_, copies)| copies.get(&hash).copied()).unwrap_or(0)
    }

    /// Different blocks held, over all shelves.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Different blocks held on one shelf, to be compared with what the engine says it has.
    pub fn on(&self, shelf: Shelf) -> usize {
        self.shelves.iter().find(|(at, _)| *at == shelf).map_or(0, |(_, copies)| copies.len())
    }

    /// Every block held: shelf, hash, copies.
    pub fn blocks(&self) -> impl Iterator<Item = (Shelf, u64, u32)> {
        let each = |(shelf, copies): &(Shelf, Copies)| {
            let shelf = *shelf;
            copies.iter().map(move |(hash, count)| (shelf, *hash, *count)).collect::<Vec<_>>()
        };
        self.shelves.iter().flat_map(each)
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn store_all(&mut self, batch: &Batch, stored: &Stored, sink: &mut dyn FnMut(Change<'_>)) {
        let shelf = Shelf::from(stored.place);
        let hashes = batch.hashes(stored.hashes);
        let spans = spans(batch, stored);
        let mut parent = stored.parent;
        for (block, hash) in hashes.iter().enumerate() {
            if self.store(shelf, *hash) {
                let content = spans.as_ref().map(|(tokens, span, width)| Content {
                    parent,
                    tokens: &tokens[block * span..(block + 1) * span],
                    width: *width,
                    extra: batch.extra(stored, block),
                    event: stored,
                });
                sink(Change::Held { shelf, hash: *hash, content });
            }
            parent = Some(*hash);
        }
    }

    fn remove_all(&mut self, batch: &Batch, removed: Removed, sink: &mut dyn FnMut(Change<'_>)) {
        let shelf = Shelf::from(removed.place);
        for hash in batch.hashes(removed.hashes) {
            if self.remove(shelf, *hash) {
                sink(Change::Gone { shelf, hash: *hash });
            }
        }
    }

    /// Ranks have one to a few shelves: a list is searched faster than a map.
    fn shelf(&mut self, shelf: Shelf) -> &mut Copies {
        let at = self.shelves.iter().position(|(at, _)| *at == shelf).unwrap_or_else(|| {
            self.shelves.push((shelf, Copies::default()));
            self.shelves.len() - 1
        });
        &mut self.shelves[at].1
    }
}

/// An event's tokens, how many of them make a block, and ids a unit; none unless they fit the blocks exactly.
fn spans<'a>(batch: &'a Batch, stored: &Stored) -> Option<(&'a [u32], usize, usize)> {
    let (run, width) = stored.tokens.run()?;
    let span = (stored.block_size as usize).checked_mul(width)?;
    let fits = stored.hashes.len().checked_mul(span) == Some(run.len());
    fits.then(|| (batch.tokens(run), span, width))
}

/// Hashes of blocks are hashes already: one multiplication spreads what a shortened one may lack.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        let wide = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

#[cfg(test)]
mod tests;
