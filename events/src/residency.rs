//! Which blocks one rank holds. Owns the counts per (group, medium, hash); must never know the index, weigh a
//! medium or ask where a batch came from. Beside the count it keeps how deep in its prompt a block is, as far as
//! it is known, since an index that is full takes first blocks before deep ones.
//!
//! An engine may hold a block twice: a hit stops one block short and the recomputed block is a second copy
//! (vLLM 0.32, captured). Each is removed by itself, so a block is gone when the last copy is. Whether a
//! removal takes one copy or all is the engine's rule ([`Removal`]). A removal of what is not held, as after a
//! stream that was picked up midway, changes nothing here, and is told.

mod copies;

use crate::wire::{Batch, Event, ExtraKey, Locality, Medium, Place, Removed, Run, Stored};
use copies::{Copies, Entry, Found};

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
    /// The medium. Events that name none mean the GPU; what is not the engine's own is `External`.
    pub medium: Medium,
}

impl From<Place> for Shelf {
    fn from(place: Place) -> Self {
        let medium = match place.locality {
            Some(Locality::Remote) => Medium::External,
            _ => place.medium.unwrap_or(Medium::Gpu),
        };
        Shelf { group: place.group.unwrap_or(0), medium }
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
    /// Token ids behind it that its hash covers too.
    pub lookahead: &'a [u32],
    /// Its extra keys.
    pub extra: &'a [ExtraKey],
    /// The batch, for texts.
    pub batch: &'a Batch,
}

/// A change that the index must know.
#[derive(Clone, Copy)]
pub enum Change<'a> {
    /// A block is held that was not.
    Held {
        /// Where.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
        /// Blocks before it in its prompt; a guess if the one before it is not held.
        depth: u32,
        /// The nearest other medium on which the same group holds it.
        also: Option<Medium>,
        /// The event that says so.
        event: &'a Stored,
        /// None if the event does not tell: masked groups list only the blocks that they keep.
        content: Option<Content<'a>>,
    },
    /// A block is no longer held.
    Gone {
        /// Where it was.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
        /// The nearest other medium on which the same group still holds it.
        also: Option<Medium>,
    },
    /// One more copy of a block that is held there.
    Again {
        /// Where.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
    },
    /// A copy left of a block that was not known to be held.
    Unknown {
        /// Where it was.
        shelf: Shelf,
        /// The engine's name of it.
        hash: u64,
    },
    /// Nothing is held any more of what was.
    Cleared(&'a Residency),
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

/// Up to so many blocks are few: a rank that has no more is cleared by its keys, which takes a millisecond. A larger
/// one is cleared as a whole, and what it stores next waits until the index is swept.
pub(crate) const FEW: usize = 1 << 15;

/// How far a batch is applied.
#[derive(Default)]
pub(crate) struct Applied {
    event: usize,
    /// Blocks of that event.
    block: usize,
    /// How deep in its prompt the next of them is.
    depth: u32,
    /// Hashes that were touched ahead.
    touched: usize,
    /// It emptied the cache.
    pub has_emptied: bool,
    /// The last step cleared more than a few blocks.
    pub has_cleared_many: bool,
}

/// Blocks of a batch that are touched before they are looked for: as many as a core can wait for at once.
const AHEAD: usize = 16;

/// The depth of a block whose parent is not held: useless until that one comes, so deep.
const DEPTH_UNKNOWN: u32 = 1 << 12;

impl Residency {
    /// An empty cache that takes up to `limit` blocks of all shelves.
    pub fn new(removal: Removal, limit: usize) -> Self {
        Residency { removal, limit, held: 0, shelves: Vec::new(), counts: Counts::default() }
    }

    /// Applies a batch. Whether it emptied the cache at some point.
    pub fn apply(&mut self, batch: &Batch, sink: &mut dyn FnMut(Change<'_>)) -> bool {
        let mut at = Applied::default();
        while !self.apply_some(batch, &mut at, usize::MAX, sink) {}
        at.has_emptied
    }

    /// Applies up to `blocks` blocks of a batch from `at` on, at first the default, and no more than the clear of
    /// a large rank: whether it is done.
    pub(crate) fn apply_some(
        &mut self,
        batch: &Batch,
        at: &mut Applied,
        blocks: usize,
        sink: &mut dyn FnMut(Change<'_>),
    ) -> bool {
        let mut left = blocks;
        at.has_cleared_many = false;
        while let Some(event) = batch.events.get(at.event) {
            let is_whole = match event {
                Event::Stored(stored) => self.store_some(batch, stored, at, &mut left, sink),
                Event::Removed(removed) => self.remove_some(batch, *removed, at, &mut left, sink),
                Event::Cleared => {
                    at.has_cleared_many = self.clear(sink);
                    at.has_emptied = true;
                    true
                }
            };
            if !is_whole {
                return false;
            }
            (at.event, at.block) = (at.event + 1, 0);
            if at.has_cleared_many {
                break;
            }
        }
        at.event == batch.events.len()
    }

    /// One more copy of a block, `depth` blocks into its prompt. Whether it is new on this shelf.
    pub fn store(&mut self, shelf: Shelf, hash: u64, depth: u32) -> bool {
        let is_full = self.held >= self.limit;
        let copies = self.shelf(shelf);
        match copies.find(hash) {
            Found::Held(at, entry) => {
                copies.set(at, Entry { copies: entry.copies.saturating_add(1), ..entry });
                self.counts.repeated += 1;
                false
            }
            Found::Free(_) if is_full => {
                self.counts.refused += 1;
                false
            }
            Found::Free(at) => {
                copies.insert(at, hash, Entry { copies: 1, depth });
                self.held += 1;
                true
            }
        }
    }

    /// A removal. Whether the block is now gone from this shelf.
    pub fn remove(&mut self, shelf: Shelf, hash: u64) -> bool {
        let removal = self.removal;
        let copies = self.shelf(shelf);
        match copies.find(hash) {
            Found::Free(_) => {
                self.counts.unmatched += 1;
                false
            }
            Found::Held(at, entry) if entry.copies > 1 && removal == Removal::One => {
                copies.set(at, Entry { copies: entry.copies - 1, ..entry });
                false
            }
            Found::Held(at, _) => {
                copies.remove(at);
                self.held -= 1;
                true
            }
        }
    }

    /// Forgets everything; whether that was more than is taken back by keys.
    pub fn clear(&mut self, sink: &mut dyn FnMut(Change<'_>)) -> bool {
        sink(Change::Cleared(self));
        self.shelves.clear();
        std::mem::take(&mut self.held) > FEW
    }

    /// Copies of a block on a shelf.
    pub fn copies(&self, shelf: Shelf, hash: u64) -> u32 {
        let found = self.shelves.iter().find(|(at, _)| *at == shelf);
        found.and_then(|(_, copies)| copies.get(hash)).map_or(0, |entry| entry.copies)
    }

    /// The nearest medium but `shelf`'s own on which its group holds a block.
    pub fn also(&self, shelf: Shelf, hash: u64) -> Option<Medium> {
        let others =
            self.shelves.iter().filter(|(at, _)| at.group == shelf.group && at.medium != shelf.medium);
        others.filter(|(_, copies)| copies.get(hash).is_some()).map(|(at, _)| at.medium).min()
    }

    /// The nearest medium on which a group holds a block.
    pub fn nearest(&self, group: u32, hash: u64) -> Option<Medium> {
        let own = self.shelves.iter().filter(|(at, _)| at.group == group);
        own.filter(|(_, copies)| copies.get(hash).is_some()).map(|(at, _)| at.medium).min()
    }

    /// How deep in its prompt a held block is.
    pub fn depth_of(&self, shelf: Shelf, hash: u64) -> u32 {
        let found = self.shelves.iter().find(|(at, _)| *at == shelf);
        found.and_then(|(_, copies)| copies.get(hash)).map_or(DEPTH_UNKNOWN, |entry| entry.depth)
    }

    /// How deep in its prompt a block of `group` behind `parent` is.
    pub fn depth_behind(&self, group: u32, parent: Option<u64>) -> u32 {
        let Some(parent) = parent else { return 0 };
        let shelves = self.shelves.iter().filter(|(at, _)| at.group == group);
        let entry = shelves.filter_map(|(_, copies)| copies.get(parent)).next();
        entry.map_or(DEPTH_UNKNOWN, |entry| entry.depth.saturating_add(1))
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
    pub fn blocks(&self) -> impl Iterator<Item = (Shelf, u64, u32)> + '_ {
        self.shelves
            .iter()
            .flat_map(|(shelf, copies)| copies.iter().map(|(hash, entry)| (*shelf, hash, entry.copies)))
    }

    /// Every block held: shelf, hash, depth in its prompt.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (Shelf, u64, u32)> + '_ {
        self.shelves
            .iter()
            .flat_map(|(shelf, copies)| copies.iter().map(|(hash, entry)| (*shelf, hash, entry.depth)))
    }

    /// Different blocks held on one medium, over all groups.
    pub fn on_medium(&self, medium: Medium) -> usize {
        let shelves = self.shelves.iter().filter(|(at, _)| at.medium == medium);
        shelves.map(|(_, copies)| copies.len()).sum()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the event is stored to its end.
    fn store_some(
        &mut self,
        batch: &Batch,
        stored: &Stored,
        at: &mut Applied,
        left: &mut usize,
        sink: &mut dyn FnMut(Change<'_>),
    ) -> bool {
        let shelf = Shelf::from(stored.place);
        let hashes = batch.hashes(stored.hashes);
        let spans = spans(batch, stored);
        let (mut parent, mut depth) = match at.block.checked_sub(1) {
            Some(before) => (hashes.get(before).copied(), at.depth),
            None => (stored.parent, self.depth_behind(shelf.group, stored.parent)),
        };
        let end = hashes.len().min(at.block.saturating_add(*left));
        for (block, hash) in hashes.iter().enumerate().take(end).skip(at.block) {
            self.touch(batch, stored.hashes, block, &mut at.touched);
            let repeated = self.counts.repeated;
            if self.store(shelf, *hash, depth) {
                let content = spans.as_ref().map(|(tokens, span, width)| Content {
                    parent,
                    tokens: &tokens[block * span..(block + 1) * span],
                    width: *width,
                    lookahead: lookahead(batch, stored, block),
                    extra: batch.extra(stored, block),
                    batch,
                });
                let also = self.also(shelf, *hash);
                sink(Change::Held { shelf, hash: *hash, depth, also, event: stored, content });
            } else if self.counts.repeated > repeated {
                sink(Change::Again { shelf, hash: *hash });
            }
            parent = Some(*hash);
            depth = depth.saturating_add(1);
        }
        *left -= end - at.block;
        (at.block, at.depth) = (end, depth);
        end == hashes.len()
    }

    /// Whether the event is done to its end.
    fn remove_some(
        &mut self,
        batch: &Batch,
        removed: Removed,
        at: &mut Applied,
        left: &mut usize,
        sink: &mut dyn FnMut(Change<'_>),
    ) -> bool {
        let shelf = Shelf::from(removed.place);
        let hashes = batch.hashes(removed.hashes);
        let end = hashes.len().min(at.block.saturating_add(*left));
        for (block, hash) in hashes.iter().enumerate().take(end).skip(at.block) {
            self.touch(batch, removed.hashes, block, &mut at.touched);
            let unmatched = self.counts.unmatched;
            if self.remove(shelf, *hash) {
                sink(Change::Gone { shelf, hash: *hash, also: self.also(shelf, *hash) });
            } else if self.counts.unmatched > unmatched {
                sink(Change::Unknown { shelf, hash: *hash });
            }
        }
        *left -= end - at.block;
        at.block = end;
        end == hashes.len()
    }

    /// Before a block is looked for: has it and the batch's next ones touched, those of further events too, if
    /// it is not yet.
    #[inline]
    fn touch(&self, batch: &Batch, run: Run, block: usize, touched: &mut usize) {
        let at = run.from as usize + block;
        if at >= *touched {
            *touched = at + AHEAD;
            let next = batch.hashes(Run { from: at as u32, to: batch.hashes.len().min(*touched) as u32 });
            self.shelves.iter().for_each(|(_, copies)| copies.touch(next));
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

/// The ids behind one of an event's blocks that its hash covers, as many for each block.
fn lookahead<'a>(batch: &'a Batch, stored: &Stored, block: usize) -> &'a [u32] {
    let Some((run, _)) = stored.lookahead.run() else { return &[] };
    let each = run.len() / stored.hashes.len().max(1);
    batch.tokens(run).get(block * each..(block + 1) * each).unwrap_or(&[])
}

#[cfg(test)]
mod tests;
