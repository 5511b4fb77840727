//! vLLM's block pool (0.23 to 0.33): a fixed number of physical blocks and a queue of free ones, from
//! whose head new blocks are taken. A block in the queue keeps its name until it is taken, and so is hit
//! until then. Blocks of a request are freed from its end, so that the deepest is taken first; a block
//! computed again is a second copy under the same name, stored and removed by itself.
//! The null block of the engine is not counted. Must never take a block that a request holds: a request
//! that finds no free block goes on without; a real engine would preempt.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Holdings, Host, Lease};
use crate::engine::blocks::{Block, Digest, Log, Medium};

#[derive(Debug, Default)]
struct Slot {
    block: Option<Arc<Block>>,
    holders: usize,
    /// Place in the queue of free blocks.
    place: Option<u64>,
}

/// A pool of physical blocks.
#[derive(Debug)]
pub struct Pool {
    block_size: usize,
    capacity: usize,
    /// Blocks that were ever used; the others stand before all in the queue.
    slots: Vec<Slot>,
    free: BTreeMap<u64, usize>,
    last_place: u64,
    /// Copies by name, the oldest first.
    named: HashMap<Digest, Vec<usize>>,
    epoch: u64,
    /// Memory behind it.
    pub host: Host,
}

impl Pool {
    /// A pool of `capacity` blocks of `block_size` tokens, both at least 1, before `host` blocks.
    pub fn new(capacity: usize, block_size: usize, host: usize) -> Self {
        Pool {
            block_size: block_size.max(1),
            capacity: capacity.max(1),
            slots: Vec::new(),
            free: BTreeMap::new(),
            last_place: 0,
            named: HashMap::new(),
            epoch: 0,
            host: Host::new(host),
        }
    }

    /// Leading blocks held here, then in the host's memory.
    pub fn hit(&self, blocks: &[Arc<Block>]) -> usize {
        let here = self.leading(blocks);
        here + blocks[here..].iter().take_while(|block| self.host.holds(&block.digest)).count()
    }

    fn leading(&self, blocks: &[Arc<Block>]) -> usize {
        blocks.iter().take_while(|block| self.named.contains_key(&block.digest)).count()
    }

    /// Holds the leading blocks that are here.
    pub fn begin(&mut self, blocks: &[Arc<Block>]) -> (Lease, usize) {
        let hits = self.leading(blocks);
        let oldest = |block: &Arc<Block>| self.named.get(&block.digest)?.first().copied();
        let slots: Vec<usize> = blocks[..hits].iter().filter_map(oldest).collect();
        slots.iter().for_each(|&slot| self.hold(slot));
        (Lease { epoch: self.epoch, slots, stored: hits }, hits)
    }

    /// Takes the blocks that `computed` tokens need and names those that are full.
    pub fn advance(&mut self, lease: &mut Lease, blocks: &[Arc<Block>], computed: usize, log: &mut Log) {
        if lease.epoch != self.epoch {
            return;
        }
        let mut evicted = Vec::new();
        while lease.slots.len() < computed.div_ceil(self.block_size) {
            let Some(slot) = self.take(&mut evicted) else { break };
            self.hold(slot);
            lease.slots.push(slot);
        }
        evicted.iter().for_each(|block: &Arc<Block>| log.removed(block.clone(), Medium::Gpu));
        evicted.iter().for_each(|block| self.host.offload(std::slice::from_ref(block), log));
        let full = (computed / self.block_size).min(blocks.len()).min(lease.slots.len());
        let new = lease.stored.min(full)..full;
        for at in new.clone() {
            self.named.entry(blocks[at].digest).or_default().push(lease.slots[at]);
            self.slots[lease.slots[at]].block = Some(blocks[at].clone());
        }
        log.stored(&blocks[new], Medium::Gpu);
        lease.stored = lease.stored.max(full);
    }

    /// Frees what a request holds, its end first.
    pub fn release(&mut self, lease: &mut Lease) {
        if lease.epoch != self.epoch {
            return;
        }
        for slot in lease.slots.drain(..).rev() {
            self.slots[slot].holders -= 1;
            if self.slots[slot].holders == 0 {
                self.last_place += 1;
                self.slots[slot].place = Some(self.last_place);
                self.free.insert(self.last_place, slot);
            }
        }
    }

    fn hold(&mut self, slot: usize) {
        self.slots[slot].holders += 1;
        if let Some(place) = self.slots[slot].place.take() {
            self.free.remove(&place);
        }
    }

    /// The block at the queue's head; its name, if it had one, goes to `evicted`.
    fn take(&mut self, evicted: &mut Vec<Arc<Block>>) -> Option<usize> {
        if self.slots.len() < self.capacity {
            self.slots.push(Slot::default());
            return Some(self.slots.len() - 1);
        }
        let (_, slot) = self.free.pop_first()?;
        self.slots[slot].place = None;
        if let Some(block) = self.slots[slot].block.take() {
            self.unname(&block.digest, slot);
            evicted.push(block);
        }
        Some(slot)
    }

    fn unname(&mut self, digest: &Digest, slot: usize) {
        if let Some(copies) = self.named.get_mut(digest) {
            copies.retain(|&copy| copy != slot);
            if copies.is_empty() {
                self.named.remove(digest);
            }
        }
    }

    /// Distinct names.
    pub fn count(&self) -> usize {
        self.named.len()
    }

    /// Names and copies.
    pub fn holdings(&self) -> Holdings {
        self.named.iter().map(|(digest, copies)| (*digest, copies.len())).collect()
    }

    /// Forgets everything; leases given out are void.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
        self.named.clear();
        self.host.clear();
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{chain, prompt_blocks, told};
    use super::*;

    /// One request from begin to end; what it told, and its hit.
    fn run(pool: &mut Pool, tokens: &[u32], log: &mut Log) -> (usize, Vec<String>) {
        let (mut lease, hits) = pool.begin(&prompt_blocks(tokens, 4));
        pool.advance(&mut lease, &chain(tokens, 4), tokens.len(), log);
        pool.release(&mut lease);
        (hits, told(log))
    }

    fn tokens(first: u32, length: u32) -> Vec<u32> {
        (first..first + length).collect()
    }

    #[test]
    fn the_last_full_block_of_a_hit_is_stored_and_removed_twice() {
        let (mut pool, mut log) = (Pool::new(4, 4, 0), Log::default());
        assert_eq!(run(&mut pool, &tokens(0, 12), &mut log), (0, vec!["+0,4,8".into()]));
        assert_eq!(run(&mut pool, &tokens(0, 12), &mut log), (2, vec!["+8".into()]));
        assert_eq!((pool.count(), pool.holdings().iter().map(|(_, n)| n).sum::<usize>()), (3, 4));
        let told = run(&mut pool, &tokens(100, 16), &mut log).1;
        assert_eq!(told, ["-8", "-8", "-4", "-0", "+100,104,108,112"]);
    }

    #[test]
    fn removal_is_deepest_first_and_partial_blocks_are_taken_before_named_ones() {
        let (mut pool, mut log) = (Pool::new(4, 4, 0), Log::default());
        run(&mut pool, &tokens(0, 14), &mut log);
        assert_eq!(run(&mut pool, &tokens(50, 4), &mut log).1, ["+50"], "the unnamed block goes first");
        assert_eq!(run(&mut pool, &tokens(60, 8), &mut log).1, ["-8", "-4", "+60,64"]);
    }

    #[test]
    fn blocks_of_a_running_request_are_never_taken() {
        let (mut pool, mut log) = (Pool::new(3, 4, 0), Log::default());
        let (mut lease, _) = pool.begin(&[]);
        pool.advance(&mut lease, &chain(&tokens(0, 8), 4), 8, &mut log);
        assert_eq!(run(&mut pool, &tokens(20, 12), &mut log).1, ["+0,4", "+20"], "only one block was free");
        pool.release(&mut lease);
        pool.clear();
        pool.release(&mut lease);
        assert_eq!(pool.count(), 0);
    }

    #[test]
    fn evicted_blocks_lie_on_the_host_and_fall_out_later() {
        let (mut pool, mut log) = (Pool::new(2, 4, 3), Log::default());
        run(&mut pool, &tokens(0, 8), &mut log);
        assert_eq!(run(&mut pool, &tokens(20, 8), &mut log).1, ["-4", "-0", "+h4", "+h0", "+20,24"]);
        assert_eq!(pool.hit(&prompt_blocks(&tokens(0, 9), 4)), 2, "the host's blocks need no computing");
        let told = run(&mut pool, &tokens(0, 8), &mut log).1;
        assert_eq!(told, ["-24", "-20", "+h24", "+h20", "-h4", "+0,4"]);
    }
}
