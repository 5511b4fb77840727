//! Live batches that wait for a replay. Owns their bound; must never reorder them.

use super::Mark;
use std::collections::VecDeque;

/// A live batch, held.
pub(super) struct Held {
    pub mark: Mark,
    pub payload: Box<[u8]>,
}

/// First in, first out, up to a number of bytes and of batches.
pub(super) struct Queue {
    held: VecDeque<Held>,
    bytes: usize,
    max_bytes: usize,
    max_batches: usize,
}

impl Queue {
    pub fn new(max_bytes: usize, max_batches: usize) -> Self {
        Queue { held: VecDeque::new(), bytes: 0, max_bytes, max_batches }
    }

    /// Whether there was room.
    pub fn push(&mut self, mark: Mark, payload: &[u8]) -> bool {
        let fits = self.held.len() < self.max_batches && self.bytes + payload.len() <= self.max_bytes;
        if fits {
            self.bytes += payload.len();
            self.held.push_back(Held { mark, payload: payload.into() });
        }
        fits
    }

    /// Before all others, whatever the bound: for one that was just taken, or finds the queue empty.
    pub fn put_back(&mut self, mark: Mark, payload: &[u8]) {
        self.bytes += payload.len();
        self.held.push_front(Held { mark, payload: payload.into() });
    }

    pub fn front(&self) -> Option<Mark> {
        self.held.front().map(|held| held.mark)
    }

    pub fn pop(&mut self) -> Option<Held> {
        let held = self.held.pop_front()?;
        self.bytes -= held.payload.len();
        Some(held)
    }

    pub fn clear(&mut self) {
        self.held = VecDeque::new();
        self.bytes = 0;
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
