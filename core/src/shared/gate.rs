//! The capacity gate of one service, over all shards: how many permits are out, and in which order those wait that
//! got none. Owns that nobody overtakes, that no turn is lost and that no more permits are out than allowed; must
//! never know what a permit is for.
//!
//! While nobody waits, a permit is one compare and swap. Who finds none takes a place in a line ([`lines`]) behind a
//! lock, the one lock of this folder: it is taken only under overload, for a lookup, and never while anything else is.
//! Whoever puts a permit back, and whoever has just taken a place, calls those whose turn it is ([`Gate::call`]):
//! either the one that puts back sees the other waiting, or the waiting one sees the permit, since each writes its count
//! before it reads the other's, with a fence between.
//!
//! A turn is a permit that is out already: whoever it is called for either uses it or puts it back.

mod lines;

pub use lines::Work;

use lines::Lines;
#[cfg(all(test, loom))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence},
};
#[cfg(not(all(test, loom)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence},
};

/// Where one waits: its shard, and what that shard knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The shard.
    pub shard: u16,
    /// The connection, as that shard names it.
    pub slot: u32,
    /// Which of the connections of that name.
    pub generation: u32,
}

/// Somebody's turn: the permit is out for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The number that [`Gate::queue`] gave.
    pub ticket: u64,
    /// Where it waits, or waited.
    pub place: Place,
}

/// The gate of one service. Lives as long as the service's number.
#[derive(Debug, Default)]
pub struct Gate {
    /// Permits out.
    out: AtomicU32,
    /// Those who wait.
    waiting: AtomicU32,
    /// Permits that may be out.
    limit: AtomicU32,
    next: AtomicU64,
    queue: Mutex<Lines>,
}

impl Gate {
    /// Permits out, turns that were called among them.
    pub fn out(&self) -> u32 {
        self.out.load(Relaxed)
    }

    /// Those who wait.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Permits that may be out.
    pub fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// From now on so many permits may be out. Where that is more than before, the caller calls.
    pub fn set_limit(&self, limit: u32) {
        if self.limit.load(Relaxed) != limit {
            self.limit.store(limit, SeqCst);
            fence(SeqCst);
        }
    }

    /// A permit, if one is free and nobody waits for it.
    pub fn enter(&self) -> bool {
        self.waiting.load(SeqCst) == 0 && self.take()
    }

    /// A permit beyond the limit, for what is counted but not held back.
    pub fn enter_anyway(&self) {
        self.out.fetch_add(1, SeqCst);
    }

    /// A place in the queue, if fewer than `depth` wait, in the line of its tenant. The caller calls afterwards: its turn may
    /// have come already.
    pub fn queue(&self, depth: u32, place: Place, work: Work) -> Option<u64> {
        let mut queue = self.lock();
        if queue.len() >= depth as usize {
            return None;
        }
        let ticket = self.next.fetch_add(1, Relaxed);
        queue.join(ticket, place, work);
        self.note(&queue);
        fence(SeqCst);
        Some(ticket)
    }

    /// Gives up a place. False: its turn was called before, and whoever takes that puts the permit back.
    pub fn leave(&self, ticket: u64) -> bool {
        let mut queue = self.lock();
        let waited = queue.leave(ticket);
        self.note(&queue);
        waited
    }

    /// Puts a permit back. The caller calls afterwards.
    pub fn put_back(&self) {
        let before = self.out.fetch_sub(1, SeqCst);
        fence(SeqCst);
        debug_assert!(before > 0, "put back more than was taken");
    }

    /// The next whose turn it is, if a permit is free; to be asked until there is none.
    pub fn call(&self) -> Option<Turn> {
        if self.waiting.load(SeqCst) == 0 {
            return None;
        }
        let mut queue = self.lock();
        if queue.len() == 0 || !self.take() {
            return None;
        }
        let turn = queue.call();
        debug_assert!(turn.is_some(), "nobody has a turn although somebody waits");
        self.note(&queue);
        turn
    }

    /// A tenant was served more work than its turns began with: those who were served less go before it.
    pub fn serve(&self, work: Work) {
        if self.waiting.load(Relaxed) > 0 {
            self.lock().serve(work);
        }
    }

    /// Never more than the limit, not even for an instant: a moment's excess would hide a free permit from the one
    /// that calls.
    fn take(&self) -> bool {
        let limit = self.limit.load(SeqCst);
        self.out.fetch_update(SeqCst, SeqCst, |out| (out < limit).then(|| out + 1)).is_ok()
    }

    fn note(&self, queue: &Lines) {
        self.waiting.store(u32::try_from(queue.len()).unwrap_or(u32::MAX), SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        // Nothing panics within.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
