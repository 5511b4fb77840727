//! The blocks of one publisher, by rank. Owns what is told of blocks that were held already or not at all; must
//! never print.

use super::anomaly::Anomaly;
use super::line::{hex, medium_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use warmpath_events::continuity::Effect;
use warmpath_events::residency::{Removal, Residency, Shelf};
use warmpath_events::wire::{Batch, Event, Removed, Stored};

/// The blocks of one publisher.
#[derive(Default)]
pub struct Inventory {
    ranks: Vec<(Option<u32>, Residency)>,
}

/// What one rank holds on one shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As the batches name it.
    pub rank: Option<u32>,
    /// Where.
    pub shelf: Shelf,
    /// Copies of all blocks.
    pub copies: u64,
    /// The blocks, ascending.
    pub keys: Vec<u64>,
}

impl Inventory {
    /// Applies a batch; what of it was not in order.
    pub fn apply(&mut self, batch: &Batch) -> (Effect, Vec<Anomaly>) {
        let residency = self.rank(batch.rank);
        let (mut effect, mut told) = (Effect::Changed, Vec::new());
        for event in &batch.events {
            match event {
                Event::Stored(stored) => told.extend(store(residency, batch, stored)),
                Event::Removed(removed) => told.extend(remove(residency, batch, *removed)),
                Event::Cleared => {
                    residency.clear(&mut |_| ());
                    effect = Effect::Emptied;
                }
            }
        }
        if batch.unknown > 0 {
            told.push(Anomaly::unknown(batch.unknown));
        }
        (effect, told)
    }

    /// Forgets the blocks of all ranks.
    pub fn clear(&mut self) {
        self.ranks.clear();
    }

    /// What is held, by rank and shelf.
    pub fn rows(&self) -> Vec<Row> {
        self.ranks.iter().flat_map(|(rank, residency)| rows(*rank, residency)).collect()
    }

    fn rank(&mut self, rank: Option<u32>) -> &mut Residency {
        let at = self.ranks.iter().position(|(known, _)| *known == rank).unwrap_or_else(|| {
            self.ranks.push((rank, Residency::new(Removal::One, usize::MAX)));
            self.ranks.len() - 1
        });
        &mut self.ranks[at].1
    }
}

fn store(residency: &mut Residency, batch: &Batch, stored: &Stored) -> Option<Anomaly> {
    let shelf = Shelf::from(stored.place);
    let hashes = batch.hashes(stored.hashes).iter().copied();
    Anomaly::stored_twice(shelf, hashes.filter(|hash| !residency.store(shelf, *hash, 0)).collect())
}

fn remove(residency: &mut Residency, batch: &Batch, removed: Removed) -> Option<Anomaly> {
    let shelf = Shelf::from(removed.place);
    let mut is_absent = |hash: &u64| {
        let copies = residency.copies(shelf, *hash);
        residency.remove(shelf, *hash);
        copies == 0
    };
    let hashes = batch.hashes(removed.hashes).iter().copied();
    Anomaly::not_held(shelf, hashes.filter(|hash| is_absent(hash)).collect())
}

/// What a rank holds, by shelf.
pub fn rows(rank: Option<u32>, residency: &Residency) -> Vec<Row> {
    let mut shelves: BTreeMap<Shelf, (u64, Vec<u64>)> = BTreeMap::new();
    for (shelf, hash, copies) in residency.blocks() {
        let (sum, keys) = shelves.entry(shelf).or_default();
        *sum += u64::from(copies);
        keys.push(hash);
    }
    let row = |(shelf, (copies, mut keys)): (Shelf, (u64, Vec<u64>))| {
        keys.sort_unstable();
        Row { rank, shelf, copies, keys }
    };
    shelves.into_iter().map(row).collect()
}

impl Row {
    /// For people, with the first `most` keys.
    pub fn text(&self, most: usize) -> String {
        let rank = self.rank.map_or("-".into(), |rank| rank.to_string());
        let (medium, group, blocks) = (medium_name(self.shelf.medium), self.shelf.group, self.keys.len());
        let mut text =
            format!("  rank {rank}  {medium}  group {group}  blocks {blocks}  copies {}", self.copies);
        for key in self.keys.iter().take(most) {
            text += &format!("\n    {}", hex(*key));
        }
        if most > 0 && blocks > most {
            text += &format!("\n    … {} more", blocks - most);
        }
        text
    }

    /// For programs, with the first `most` keys.
    pub fn json(&self, most: usize) -> Value {
        let keys: Vec<String> = self.keys.iter().take(most).map(|key| hex(*key)).collect();
        json!({
            "rank": self.rank, "medium": medium_name(self.shelf.medium), "group": self.shelf.group,
            "blocks": self.keys.len(), "copies": self.copies, "keys": keys,
        })
    }
}
