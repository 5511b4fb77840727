//! The plain way: a concurrent map (dashmap) from key to a word of holders.

use crate::engines::ENGINES;
use crate::index::{Index, Told};
use crate::stream::Request;
use dashmap::DashMap;

/// Key to holders.
#[derive(Default)]
pub struct ConcurrentMap {
    blocks: DashMap<u64, u64>,
}

/// An event: holder, keys, and whether they are stored.
pub type Event = (usize, Vec<u64>, bool);

const _: () = assert!(ENGINES <= 64);

impl Index for ConcurrentMap {
    type Event = Event;
    type Query = Vec<u64>;

    fn event(&self, engine: usize, told: Told<'_>) -> Event {
        match told {
            Told::Removed(keys) => (engine, keys.to_vec(), false),
            Told::Stored { keys, .. } => (engine, keys.to_vec(), true),
        }
    }

    fn query(&self, request: &Request<'_>) -> Vec<u64> {
        request.keys.to_vec()
    }

    fn apply(&mut self, (engine, keys, stored): Event) {
        for key in keys {
            if stored {
                *self.blocks.entry(key).or_insert(0) |= 1 << engine;
            } else {
                self.blocks.remove_if_mut(&key, |_, holders| {
                    *holders &= !(1 << engine);
                    *holders == 0
                });
            }
        }
    }

    fn look(&mut self, keys: &Vec<u64>) -> u32 {
        let mut alive = u64::MAX;
        let holds = |key: &&u64| {
            alive &= self.blocks.get(*key).map_or(0, |holders| *holders);
            alive != 0
        };
        keys.iter().take_while(holds).count() as u32
    }
}
