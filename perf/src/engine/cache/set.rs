//! A bounded set of distinct blocks with least-recently-used eviction, the deepest block of a chain
//! before its parents: TensorRT-LLM's reuse tree seen from outside, and llama.cpp's slots taken as one.
//! With host memory a block lies in one medium at a time and moves (TensorRT-LLM's secondary pool).
//! Must never hold a request's blocks against eviction.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Holdings, Host, Lease};
use crate::engine::blocks::{Block, Digest, Log, Medium};

#[derive(Debug)]
struct Held {
    used: u64,
    block: Arc<Block>,
}

/// A bounded set of blocks.
#[derive(Debug)]
pub struct PrefixSet {
    capacity: usize,
    held: HashMap<Digest, Held>,
    /// Eviction order: least recently used first, the deepest block of a chain before its parents.
    order: BTreeSet<(u64, Reverse<usize>, Digest)>,
    clock: u64,
    /// Memory behind it.
    pub host: Host,
}

impl PrefixSet {
    /// Room for `capacity` blocks, at least 1, before `host` blocks.
    pub fn new(capacity: usize, host: usize) -> Self {
        PrefixSet {
            capacity: capacity.max(1),
            held: HashMap::new(),
            order: BTreeSet::new(),
            clock: 0,
            host: Host::new(host),
        }
    }

    /// Leading blocks held here or in the host's memory.
    pub fn hit(&self, blocks: &[Arc<Block>]) -> usize {
        let held =
            |block: &&Arc<Block>| self.held.contains_key(&block.digest) || self.host.holds(&block.digest);
        blocks.iter().take_while(held).count()
    }

    /// Makes the leading blocks that are here the most recently used.
    pub fn begin(&mut self, blocks: &[Arc<Block>]) -> (Lease, usize) {
        self.clock += 1;
        let hits = blocks.iter().take_while(|block| self.held.contains_key(&block.digest)).count();
        blocks[..hits].iter().for_each(|block| _ = self.touch(block));
        (Lease::default(), hits)
    }

    /// Holds these blocks, evicting the least recently used over the bound. A chain longer than the
    /// bound keeps its leading blocks.
    pub fn insert(&mut self, blocks: &[Arc<Block>], log: &mut Log) {
        self.clock += 1;
        let within = &blocks[..blocks.len().min(self.capacity)];
        let new: Vec<_> = within.iter().filter(|block| self.touch(block)).cloned().collect();
        while self.held.len() > self.capacity {
            let Some((_, _, digest)) = self.order.pop_first() else { break };
            if let Some(Held { block, .. }) = self.held.remove(&digest) {
                self.evict(block, log);
            }
        }
        for run in new.chunk_by(|one, next| next.parent == Some(one.digest)) {
            self.tell(run, log);
        }
    }

    fn evict(&mut self, block: Arc<Block>, log: &mut Log) {
        if self.host.exists() {
            log.moved(block.clone(), Medium::Host);
            self.host.take_in(&block, log);
        } else {
            log.removed(block, Medium::Gpu);
        }
    }

    /// Tells a new run, blocks that come back from the host as moves.
    fn tell(&mut self, run: &[Arc<Block>], log: &mut Log) {
        let mut back = |block: &Arc<Block>| self.host.give_back(&block.digest);
        let marked: Vec<_> = run.iter().map(|block| (block.clone(), back(block))).collect();
        for part in marked.chunk_by(|one, next| one.1 == next.1) {
            let blocks: Vec<_> = part.iter().map(|(block, _)| block.clone()).collect();
            match part[0].1 {
                true => blocks.into_iter().for_each(|block| log.moved(block, Medium::Gpu)),
                false => log.stored(&blocks, Medium::Gpu),
            }
        }
    }

    /// Blocks held.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Blocks, each once.
    pub fn holdings(&self) -> Holdings {
        self.held.keys().map(|digest| (*digest, 1)).collect()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
        self.host.clear();
    }

    /// Marks a block as used; true if it was not held.
    fn touch(&mut self, block: &Arc<Block>) -> bool {
        let (digest, deepest) = (block.digest, Reverse(block.depth));
        self.order.insert((self.clock, deepest, digest));
        let old = self.held.insert(digest, Held { used: self.clock, block: block.clone() });
        if let Some(old) = &old
            && old.used != self.clock
        {
            self.order.remove(&(old.used, deepest, digest));
        }
        old.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{chain, prompt_blocks, told};
    use super::*;
    use crate::engine::text::mix;

    fn prompt(len: usize, seed: u32) -> Vec<u32> {
        (0..len as u32).map(|i| i * 7 + seed * 1000).collect()
    }

    /// A prompt's hit in tokens, which makes it used.
    fn hit(set: &mut PrefixSet, tokens: &[u32], size: usize) -> usize {
        set.begin(&prompt_blocks(tokens, size)).1 * size
    }

    fn store(set: &mut PrefixSet, tokens: &[u32], size: usize) -> Vec<String> {
        let mut log = Log::default();
        set.insert(&chain(tokens, size), &mut log);
        told(&mut log)
    }

    #[test]
    fn a_hit_counts_whole_leading_blocks_and_ends_at_a_difference() {
        let mut set = PrefixSet::new(100, 0);
        assert_eq!(hit(&mut set, &prompt(16, 1), 4), 0);
        assert_eq!(store(&mut set, &prompt(16, 1), 4).len(), 1);
        assert_eq!(hit(&mut set, &prompt(16, 1), 4), 12, "the last block is recomputed");
        assert_eq!(hit(&mut set, &prompt(17, 1), 4), 16);
        let mut other = prompt(16, 1);
        other[5] = 9999;
        assert_eq!(hit(&mut set, &other, 4), 4);
    }

    #[test]
    fn the_least_recently_used_goes_first_deepest_block_before_parent() {
        let mut set = PrefixSet::new(4, 0);
        store(&mut set, &prompt(8, 1), 4);
        store(&mut set, &prompt(8, 2), 4);
        hit(&mut set, &prompt(9, 1), 4);
        assert_eq!(store(&mut set, &prompt(4, 3), 4), ["-2028", "+3000"]);
        assert_eq!(hit(&mut set, &prompt(9, 1), 4), 8);
        assert_eq!(hit(&mut set, &prompt(9, 2), 4), 4, "its second block was evicted, its first stays");
    }

    #[test]
    fn a_chain_longer_than_the_bound_keeps_its_head() {
        let mut set = PrefixSet::new(3, 0);
        store(&mut set, &prompt(40, 1), 4);
        assert_eq!(set.count(), 3);
        assert_eq!(hit(&mut set, &prompt(40, 1), 4), 12);
    }

    #[test]
    fn a_block_lies_in_one_medium_and_moves() {
        let mut set = PrefixSet::new(2, 1);
        store(&mut set, &prompt(8, 1), 4);
        assert_eq!(store(&mut set, &prompt(4, 2), 4), [">h1028", "+2000"]);
        assert_eq!(set.hit(&prompt_blocks(&prompt(9, 1), 4)), 2);
        assert_eq!(store(&mut set, &prompt(8, 1), 4), [">h2000", "-h1028", "+1028"]);
    }

    /// The same cache by plain search: a list of (tokens up to the block's end, last use).
    struct Naive {
        held: Vec<(Vec<u32>, u64)>,
        clock: u64,
    }

    impl Naive {
        fn touch(&mut self, prefix: &[u32]) {
            self.held.retain(|(held, _)| held != prefix);
            self.held.push((prefix.to_vec(), self.clock));
        }

        fn hit(&mut self, tokens: &[u32], size: usize) -> usize {
            self.clock += 1;
            let mut end = size;
            while end < tokens.len() && self.held.iter().any(|(held, _)| held == &tokens[..end]) {
                self.touch(&tokens[..end]);
                end += size;
            }
            end - size
        }

        fn store(&mut self, tokens: &[u32], size: usize, capacity: usize) {
            self.clock += 1;
            (1..=tokens.len() / size).take(capacity).for_each(|blocks| self.touch(&tokens[..blocks * size]));
            while self.held.len() > capacity {
                let deeper = |(held, used): &(Vec<u32>, u64)| (*used, Reverse(held.len()));
                let victim = self.held.iter().map(deeper).min();
                let at = self.held.iter().position(|entry| Some(deeper(entry)) == victim).unwrap();
                self.held.remove(at);
            }
        }
    }

    #[test]
    fn random_use_agrees_with_a_plain_search() {
        for seed in 0..200 {
            let mut random = seed;
            let mut draw = |below: u64| {
                random = mix(random);
                random % below
            };
            let (size, capacity) = (1 + draw(3) as usize, 1 + draw(12) as usize);
            let (mut set, mut naive) = (PrefixSet::new(capacity, 0), Naive { held: Vec::new(), clock: 0 });
            for _ in 0..60 {
                let tokens: Vec<u32> = (0..draw(14)).map(|_| draw(2) as u32).collect();
                assert_eq!(hit(&mut set, &tokens, size), naive.hit(&tokens, size), "seed {seed}");
                store(&mut set, &tokens, size);
                naive.store(&tokens, size, capacity);
                assert_eq!(set.count(), naive.held.len(), "seed {seed}");
            }
        }
    }
}
