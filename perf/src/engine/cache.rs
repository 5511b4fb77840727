//! The simulated prefix cache: a bounded set of chained block keys with least-recently-used eviction.
//! Pure: time is a counter of its own. Must never report a hit that covers a whole prompt, as an
//! engine must compute at least one token to have something to sample from (vLLM 0.32).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::text::{digest_tokens, mix};

#[derive(Debug, Clone, Copy)]
struct Held {
    used: u64,
    depth: usize,
}

/// A bounded cache of full blocks. A block's key covers its whole prefix.
#[derive(Debug)]
pub struct PrefixCache {
    block_size: usize,
    capacity: usize,
    held: HashMap<u64, Held>,
    /// Eviction order: least recently used first, the deepest block of a chain before its parents.
    order: BTreeSet<(u64, Reverse<usize>, u64)>,
    clock: u64,
}

impl PrefixCache {
    /// A cache of `capacity` blocks of `block_size` tokens each; both at least 1.
    pub fn new(capacity: usize, block_size: usize) -> Self {
        let (capacity, block_size) = (capacity.max(1), block_size.max(1));
        PrefixCache { block_size, capacity, held: HashMap::new(), order: BTreeSet::new(), clock: 0 }
    }

    /// Leading tokens of `tokens` that are cached, in whole blocks and never all of them. Blocks that
    /// hit become the most recently used.
    pub fn hit(&mut self, root: u64, tokens: &[u32]) -> usize {
        self.clock += 1;
        let limit = tokens.len().saturating_sub(1) / self.block_size;
        let keys = self.keys(root, &tokens[..limit * self.block_size]);
        let hits = keys.iter().take_while(|key| self.held.contains_key(key)).count();
        keys[..hits].iter().enumerate().for_each(|(depth, &key)| self.touch(key, depth));
        hits * self.block_size
    }

    /// Holds every full block of `tokens`, evicting the least recently used blocks over the bound.
    /// A chain longer than the cache keeps its leading blocks.
    pub fn store(&mut self, root: u64, tokens: &[u32]) {
        self.clock += 1;
        let keys = self.keys(root, tokens);
        keys.iter().enumerate().take(self.capacity).for_each(|(depth, &key)| self.touch(key, depth));
        while self.held.len() > self.capacity {
            if let Some((_, _, key)) = self.order.pop_first() {
                self.held.remove(&key);
            }
        }
    }

    /// Blocks held now.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The bound in blocks.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
    }

    fn keys(&self, root: u64, tokens: &[u32]) -> Vec<u64> {
        let mut parent = mix(root);
        let blocks = tokens.chunks_exact(self.block_size);
        blocks
            .map(|block| {
                parent = digest_tokens(parent, block);
                parent
            })
            .collect()
    }

    fn touch(&mut self, key: u64, depth: usize) {
        let now = Held { used: self.clock, depth };
        if let Some(old) = self.held.insert(key, now) {
            self.order.remove(&(old.used, Reverse(old.depth), key));
        }
        self.order.insert((now.used, Reverse(depth), key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(len: usize, seed: u32) -> Vec<u32> {
        (0..len as u32).map(|i| i * 7 + seed * 1000).collect()
    }

    #[test]
    fn a_hit_counts_whole_leading_blocks_and_never_the_whole_prompt() {
        let mut cache = PrefixCache::new(100, 4);
        let tokens = prompt(16, 1);
        assert_eq!(cache.hit(0, &tokens), 0);
        cache.store(0, &tokens);
        assert_eq!(cache.len(), 4);
        assert_eq!(cache.hit(0, &tokens), 12, "the last block is recomputed");
        assert_eq!(cache.hit(0, &prompt(17, 1)), 16);
        assert_eq!(cache.hit(0, &tokens[..3]), 0);
        assert_eq!(cache.hit(0, &[]), 0);
    }

    #[test]
    fn a_difference_ends_the_hit_and_roots_are_apart() {
        let mut cache = PrefixCache::new(100, 4);
        cache.store(0, &prompt(16, 1));
        let mut other = prompt(16, 1);
        other[5] = 9999;
        assert_eq!(cache.hit(0, &other), 4);
        assert_eq!(cache.hit(1, &prompt(16, 1)), 0);
    }

    #[test]
    fn equal_blocks_at_other_depths_have_other_keys() {
        let cache = PrefixCache::new(100, 2);
        let keys = cache.keys(0, &[1, 2, 1, 2, 1, 2, 9]);
        assert_eq!(keys.len(), 3);
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    }

    #[test]
    fn the_least_recently_used_goes_first_deepest_block_before_parent() {
        let mut cache = PrefixCache::new(4, 4);
        cache.store(0, &prompt(8, 1));
        cache.store(0, &prompt(8, 2));
        cache.hit(0, &prompt(9, 1));
        cache.store(0, &prompt(4, 3));
        assert_eq!(cache.len(), 4);
        assert_eq!(cache.hit(0, &prompt(9, 1)), 8);
        assert_eq!(cache.hit(0, &prompt(9, 2)), 4, "its second block was evicted, its first stays");
    }

    #[test]
    fn a_chain_longer_than_the_cache_keeps_its_head() {
        let mut cache = PrefixCache::new(3, 4);
        cache.store(0, &prompt(40, 1));
        assert_eq!(cache.len(), 3);
        assert_eq!(cache.hit(0, &prompt(40, 1)), 12);
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
            let (mut cache, mut naive) =
                (PrefixCache::new(capacity, size), Naive { held: Vec::new(), clock: 0 });
            for _ in 0..60 {
                let tokens: Vec<u32> = (0..draw(14)).map(|_| draw(2) as u32).collect();
                assert_eq!(cache.hit(0, &tokens), naive.hit(&tokens, size), "seed {seed}");
                cache.store(0, &tokens);
                naive.store(&tokens, size, capacity);
                assert_eq!(cache.len(), naive.held.len(), "seed {seed}");
            }
        }
    }
}
