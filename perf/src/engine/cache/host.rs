//! The host's memory behind an accelerator: blocks that were evicted there, least recently used out
//! first. Must never decide what is offloaded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Holdings;
use crate::engine::blocks::{Block, Digest, Log, Medium};

/// A bounded set of offloaded blocks.
#[derive(Debug)]
pub struct Host {
    capacity: usize,
    held: HashMap<Digest, (u64, Arc<Block>)>,
    order: BTreeMap<u64, Digest>,
    clock: u64,
}

impl Host {
    /// Room for `capacity` blocks; 0 offloads nothing.
    pub fn new(capacity: usize) -> Self {
        Host { capacity, held: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// Whether anything is offloaded at all.
    pub fn exists(&self) -> bool {
        self.capacity > 0
    }

    /// Whether a block lies here.
    pub fn holds(&self, digest: &Digest) -> bool {
        self.held.contains_key(digest)
    }

    /// Takes a run in. What was not here is told as stored, what falls out as removed.
    pub fn offload(&mut self, run: &[Arc<Block>], log: &mut Log) {
        if !self.exists() {
            return;
        }
        let new: Vec<_> = run.iter().filter(|block| !self.holds(&block.digest)).cloned().collect();
        run.iter().for_each(|block| self.touch(block));
        log.stored(&new, Medium::Host);
        self.shrink(log);
    }

    /// Takes one block in without telling: its caller tells that it moved.
    pub fn take_in(&mut self, block: &Arc<Block>, log: &mut Log) {
        self.touch(block);
        self.shrink(log);
    }

    /// Lets a block go without telling; false if it was not here.
    pub fn give_back(&mut self, digest: &Digest) -> bool {
        let Some((used, _)) = self.held.remove(digest) else { return false };
        self.order.remove(&used);
        true
    }

    /// What lies here.
    pub fn holdings(&self) -> Holdings {
        self.held.keys().map(|digest| (*digest, 1)).collect()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
    }

    fn touch(&mut self, block: &Arc<Block>) {
        self.clock += 1;
        if let Some((used, _)) = self.held.insert(block.digest, (self.clock, block.clone())) {
            self.order.remove(&used);
        }
        self.order.insert(self.clock, block.digest);
    }

    fn shrink(&mut self, log: &mut Log) {
        while self.held.len() > self.capacity {
            let Some((_, digest)) = self.order.pop_first() else { return };
            if let Some((_, block)) = self.held.remove(&digest) {
                log.removed(block, Medium::Host);
            }
        }
    }
}
