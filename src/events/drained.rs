//! TensorRT-LLM's events to lines. Owns what is told of blocks that were held already or not at all; must never
//! order events itself or fetch them.

use super::anomaly::Anomaly;
use super::inventory::{Row, rows};
use super::line::{EventLine, Line};
use warmpath_events::drain::{Drain, DrainChange, medium};
use warmpath_events::residency::{Removal, Residency, Shelf};
use warmpath_events::trtllm_json::{DrainData, DrainEvent, Hash, StoredBlock};

/// One attention rank.
pub struct Drained {
    /// Its number.
    pub rank: u32,
    drain: Drain,
    residency: Residency,
}

impl Drained {
    /// A rank of which nothing is known.
    pub fn new(rank: u32) -> Drained {
        Drained { rank, drain: Drain::default(), residency: Residency::new(Removal::All, usize::MAX) }
    }

    /// The next event.
    pub fn apply(&mut self, event: &DrainEvent, out: &mut dyn FnMut(Line)) {
        out(Line::Event(line(event)));
        let last = self.drain.cursor();
        let mut changed = Vec::new();
        self.drain.apply(event, &mut self.residency, &mut |change| match change {
            DrainChange::Held { block, .. } => changed.push(block.block_hash.0),
            DrainChange::Moved { hash, .. } | DrainChange::Gone { hash, .. } => changed.push(hash),
            DrainChange::Cleared | DrainChange::Again { .. } | DrainChange::Unknown { .. } => {}
        });
        let is_next = last.is_none_or(|last| last.checked_add(1) == Some(event.id));
        let fault = self.drain.fault().filter(|_| !is_next).map(|fault| Anomaly::drain(fault, last));
        let unknown = (event.data == DrainData::Unknown).then(|| Anomaly::unknown(1));
        let counts = self.drain.fault().is_none() && self.drain.window() == Some(event.window);
        let unmatched = if counts { unmatched(event, changed) } else { None };
        let told = [fault, unknown, unmatched].into_iter().flatten();
        told.for_each(|anomaly| out(Line::Anomaly(Some(event.id), anomaly)));
    }

    /// An answer was lost.
    pub fn lost(&mut self) {
        self.drain.lost(&mut self.residency, &mut |_| ());
    }

    /// The last event id.
    pub fn last(&self) -> Option<u64> {
        self.drain.cursor()
    }

    /// What the blocks are worth: a word for scripts, and for people.
    pub fn standing(&self) -> (&'static str, String) {
        match self.drain.fault() {
            Some(_) => ("fenced", "fenced: nothing counts until the cache is created anew".into()),
            None if self.drain.is_complete() => {
                ("complete", "complete: all that the cache holds is known".into())
            }
            None => ("part", "a part: the stream was picked up midway".into()),
        }
    }

    /// What is held.
    pub fn rows(&self) -> Vec<Row> {
        rows(Some(self.rank), &self.residency)
    }
}

/// Blocks of an event that it did not change, though it says so.
fn unmatched(event: &DrainEvent, mut changed: Vec<u64>) -> Option<Anomaly> {
    let mut is_unchanged = |hash: &u64| match changed.iter().position(|done| done == hash) {
        Some(at) => {
            changed.swap_remove(at);
            false
        }
        None => true,
    };
    match &event.data {
        DrainData::Stored { blocks, .. } => {
            let level = blocks.first().map_or(0, |block| block.cache_level);
            let shelf = Shelf { group: event.window, medium: medium(level) };
            let hashes = blocks.iter().map(|block| block.block_hash.0);
            Anomaly::stored_twice(shelf, hashes.filter(|hash| is_unchanged(hash)).collect())
        }
        DrainData::Removed { block_hashes } => {
            let hashes = block_hashes.iter().map(|Hash(hash)| *hash);
            Anomaly::held_nowhere(hashes.filter(|hash| is_unchanged(hash)).collect())
        }
        DrainData::Updated { block_hash: Hash(hash), cache_level: Some(moved) } => {
            let stays = medium(moved.old_value) == medium(moved.new_value);
            Anomaly::held_nowhere(if !stays && is_unchanged(hash) { vec![*hash] } else { Vec::new() })
        }
        DrainData::Created { .. } | DrainData::Updated { .. } | DrainData::Unknown => None,
    }
}

fn line(event: &DrainEvent) -> EventLine {
    let group = Some(event.window);
    let line = EventLine { seq: event.id, rank: Some(event.rank), group, ..EventLine::default() };
    match &event.data {
        DrainData::Created { .. } => EventLine { kind: "created", ..line },
        DrainData::Stored { parent_hash, blocks } => EventLine {
            kind: "stored",
            keys: blocks.iter().map(|block| block.block_hash.0).collect(),
            parent: parent_hash.map(|Hash(hash)| hash),
            medium: blocks.first().map(|block| medium(block.cache_level)),
            tokens: Some(blocks.iter().map(|block| block.tokens.len()).sum()),
            salt: blocks.iter().find_map(|block: &StoredBlock| block.cache_salt.clone()),
            ..line
        },
        DrainData::Removed { block_hashes } => {
            EventLine { kind: "removed", keys: block_hashes.iter().map(|Hash(hash)| *hash).collect(), ..line }
        }
        DrainData::Updated { block_hash: Hash(hash), cache_level } => EventLine {
            kind: if cache_level.is_some() { "moved" } else { "updated" },
            keys: vec![*hash],
            medium: cache_level.map(|moved| medium(moved.old_value)),
            to: cache_level.map(|moved| medium(moved.new_value)),
            ..line
        },
        DrainData::Unknown => EventLine { kind: "unknown", ..line },
    }
}
