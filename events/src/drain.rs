//! One TensorRT-LLM rank's drained events in order. Owns event ids, the choice of the attention window and
//! what events do to a [`Residency`]; must never parse or fetch.
//!
//! The engine gives each event away once. Consecutive ids prove that no one else reads them; a hole or an id
//! that goes back means that part of the history is lost, and until the engine starts anew (`created`) or an
//! operator takes the stream over ([`Drain::reacquire`]) no state is claimed. Layers of a sliding window emit
//! events of their own: only those of the largest window count.

use crate::residency::{Residency, Shelf};
use crate::trtllm_json::{DrainData, DrainEvent, Hash, StoredBlock};
use crate::wire::Medium;

/// Why a rank's state is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainFault {
    /// Event ids were skipped.
    Gap,
    /// An event id came again or went back: another reader, or a restart without `created`.
    OwnershipLost,
    /// An answer was lost or unreadable after the engine had given it away.
    Lost,
}

/// A change that the index must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainChange<'a> {
    /// A block is held that was not.
    Held {
        /// Where: the window as group, the level as medium.
        shelf: Shelf,
        /// The block before it.
        parent: Option<u64>,
        /// Blocks before it in its prompt; a guess if its parent is not held.
        depth: u32,
        /// The nearest other level on which it is held.
        also: Option<Medium>,
        /// The block, with its tokens.
        block: &'a StoredBlock,
    },
    /// A block is stored that was held already, or that found no room.
    Again {
        /// Its name.
        hash: u64,
    },
    /// A block has come to another level; what it holds was told before.
    Moved {
        /// Where it was.
        from: Shelf,
        /// Where it is.
        to: Shelf,
        /// Its name.
        hash: u64,
        /// The nearest level beside both on which it is held.
        also: Option<Medium>,
    },
    /// A block is no longer held.
    Gone {
        /// Where it was.
        shelf: Shelf,
        /// Its name.
        hash: u64,
        /// The nearest other level on which it still is.
        also: Option<Medium>,
    },
    /// A block left the GPU that was not known to be held.
    Unknown {
        /// Its name.
        hash: u64,
    },
    /// Nothing is held any more.
    Cleared,
}

/// Levels of the engine's cache: GPU, host, and disk beyond.
const LEVELS: [Medium; 3] = [Medium::Gpu, Medium::Cpu, Medium::Disk];

type Sink<'s> = &'s mut dyn FnMut(DrainChange<'_>);

/// One rank's stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drain {
    cursor: Option<u64>,
    window: Option<u32>,
    fault: Option<DrainFault>,
    /// The history is known from an empty cache on.
    complete: bool,
}

impl Drain {
    /// Why the state is fenced, if it is.
    pub fn fault(&self) -> Option<DrainFault> {
        self.fault
    }

    /// Whether the whole history since the cache was empty is known.
    pub fn is_complete(&self) -> bool {
        self.complete && self.fault.is_none()
    }

    /// The last event id.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// The attention window whose events count; none before the first event.
    pub fn window(&self) -> Option<u32> {
        self.window
    }

    /// Takes the stream over: what comes from now on counts, as part of the cache. What was held is
    /// forgotten, since events may have gone elsewhere meanwhile.
    pub fn reacquire(&mut self, residency: &mut Residency, sink: Sink<'_>) {
        clear(residency, sink);
        *self = Drain { window: self.window, ..Drain::default() };
    }

    /// An answer was lost: nobody can give its events again.
    pub fn lost(&mut self, residency: &mut Residency, sink: Sink<'_>) {
        self.fail(DrainFault::Lost, residency, sink);
    }

    /// Applies one event, in the order of the answer.
    pub fn apply(&mut self, event: &DrainEvent, residency: &mut Residency, sink: Sink<'_>) {
        if matches!(event.data, DrainData::Created { .. }) {
            self.start(event, residency, sink);
        } else {
            self.follow(event.id, residency, sink);
        }
        self.cursor = Some(event.id);
        if self.fault.is_none() && self.is_chosen(event.window, residency, sink) {
            change(event, residency, sink);
        }
    }

    /// A new cache. Each window is created by an event of its own; only a first or a later start is news.
    fn start(&mut self, event: &DrainEvent, residency: &mut Residency, sink: Sink<'_>) {
        let is_next = self.cursor.is_some_and(|cursor| cursor.checked_add(1) == Some(event.id));
        if !(is_next && self.complete && residency.is_empty()) {
            self.window = None;
            clear(residency, sink);
        }
        self.fault = None;
        self.complete = true;
    }

    fn follow(&mut self, id: u64, residency: &mut Residency, sink: Sink<'_>) {
        match self.cursor {
            Some(cursor) if id <= cursor => self.fail(DrainFault::OwnershipLost, residency, sink),
            Some(cursor) if id - cursor > 1 => self.fail(DrainFault::Gap, residency, sink),
            _ => {}
        }
    }

    fn fail(&mut self, fault: DrainFault, residency: &mut Residency, sink: Sink<'_>) {
        self.complete = false;
        if self.fault.replace(fault).is_none() {
            clear(residency, sink);
        }
    }

    /// Whether an event is of the window that counts. A larger one than any before takes its place.
    fn is_chosen(&mut self, window: u32, residency: &mut Residency, sink: Sink<'_>) -> bool {
        match self.window {
            Some(chosen) if window <= chosen => return window == chosen,
            Some(_) if !residency.is_empty() => {
                self.complete = false;
                clear(residency, sink);
            }
            _ => {}
        }
        self.window = Some(window);
        true
    }
}

fn clear(residency: &mut Residency, sink: Sink<'_>) {
    residency.clear(&mut |_| sink(DrainChange::Cleared));
}

fn change(event: &DrainEvent, residency: &mut Residency, sink: Sink<'_>) {
    match &event.data {
        DrainData::Stored { parent_hash, blocks } => {
            let mut parent = parent_hash.map(|Hash(hash)| hash);
            let mut depth = residency.depth_behind(event.window, parent);
            for block in blocks {
                let (shelf, hash) = (shelf(event.window, block.cache_level), block.block_hash.0);
                if residency.store(shelf, hash, depth) {
                    let also = residency.also(shelf, hash);
                    sink(DrainChange::Held { shelf, parent, depth, also, block });
                } else {
                    sink(DrainChange::Again { hash });
                }
                parent = Some(hash);
                depth = depth.saturating_add(1);
            }
        }
        DrainData::Removed { block_hashes } => {
            for Hash(hash) in block_hashes {
                remove(event.window, *hash, residency, sink);
            }
        }
        DrainData::Updated { block_hash: Hash(hash), cache_level: Some(moved) } => {
            let (from, to) = (shelf(event.window, moved.old_value), shelf(event.window, moved.new_value));
            if from != to && residency.copies(from, *hash) > 0 {
                let (depth, also) = (residency.depth_of(from, *hash), residency.also(from, *hash));
                residency.remove(from, *hash);
                residency.store(to, *hash, depth);
                sink(DrainChange::Moved { from, to, hash: *hash, also });
            } else if from != to {
                sink(DrainChange::Unknown { hash: *hash });
            }
        }
        DrainData::Created { .. } | DrainData::Updated { .. } | DrainData::Unknown => {}
    }
}

/// A removal does not say from which level.
fn remove(window: u32, hash: u64, residency: &mut Residency, sink: Sink<'_>) {
    let mut is_known = false;
    for medium in LEVELS {
        let shelf = Shelf { group: window, medium };
        if residency.copies(shelf, hash) > 0 && residency.remove(shelf, hash) {
            sink(DrainChange::Gone { shelf, hash, also: residency.also(shelf, hash) });
            is_known = true;
        }
    }
    if !is_known {
        sink(DrainChange::Unknown { hash });
    }
}

/// What a cache level is: 0 the GPU, 1 the host, disk beyond.
pub fn medium(level: u32) -> Medium {
    LEVELS.get(level as usize).copied().unwrap_or(Medium::Disk)
}

fn shelf(window: u32, level: u32) -> Shelf {
    Shelf { group: window, medium: medium(level) }
}

#[cfg(test)]
mod tests;
