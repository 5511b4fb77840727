//! What engines do with the prompts: 64 of them with a cache of 16,384 blocks of 16 tokens each, least recently
//! used out first, a prompt's end before its beginning. Owns where a prompt goes and what is stored and removed
//! for it; must never ask an index.

use crate::prompts::Random;
use crate::stream::{Header, Stream};
use dynamo_kv_router::protocols::{LocalBlockHash, compute_seq_hash_for_block};
use std::collections::{HashMap, VecDeque};

/// Engines.
pub const ENGINES: usize = 64;

/// Blocks that an engine caches.
const CACHE_BLOCKS: usize = 16_384;

/// Blocks of 16 tokens in a page of 512.
const BLOCKS_A_PAGE: u64 = 32;

/// One engine's cache.
#[derive(Default)]
struct Cache {
    /// By key: the last use.
    used: HashMap<u64, u64>,
    /// Uses in order; only the last of a key counts.
    uses: VecDeque<(u64, u64)>,
    clock: u64,
}

impl Cache {
    /// Takes a prompt in: its first block that was not there, and the keys that had to go.
    fn take_in(&mut self, keys: &[u64]) -> (usize, Vec<u64>) {
        let from = keys.iter().position(|key| !self.used.contains_key(key)).unwrap_or(keys.len());
        for key in keys.iter().rev() {
            self.clock += 1;
            self.used.insert(*key, self.clock);
            self.uses.push_back((self.clock, *key));
        }
        let mut gone = Vec::new();
        while self.used.len() > CACHE_BLOCKS {
            let Some((use_of, key)) = self.uses.pop_front() else { break };
            if self.used.get(&key) == Some(&use_of) {
                self.used.remove(&key);
                gone.push(key);
            }
        }
        (from, gone)
    }
}

/// Plays the prompts: each goes where the last prompt with most of its pages went, or to the next engine in
/// turn if that is less than a quarter of it.
pub fn play(prompts: &[Vec<u64>]) -> Stream {
    let mut caches: Vec<Cache> = (0..ENGINES).map(|_| Cache::default()).collect();
    let (mut owner, mut turn) = (HashMap::new(), 0);
    let (mut holders, mut header) = (HashMap::<u64, u32>::new(), Header::default());
    let mut stream = Stream::default();
    for pages in prompts {
        let known = pages.iter().rposition(|page| owner.contains_key(page));
        let engine = match known {
            Some(at) if (at + 1) * 4 > pages.len() => owner[&pages[at]],
            _ => {
                turn = (turn + 1) % ENGINES;
                turn
            }
        };
        owner.extend(pages.iter().map(|page| (*page, engine)));
        let contents = contents(pages);
        let hashes: Vec<LocalBlockHash> = contents.iter().copied().map(LocalBlockHash).collect();
        let keys: Vec<u64> = compute_seq_hash_for_block(&hashes);
        let (from, gone) = caches[engine].take_in(&keys);
        keys[from..].iter().for_each(|key| *holders.entry(*key).or_default() += 1);
        header.distinct_max = header.distinct_max.max(holders.len());
        gone.iter().for_each(|key| release(&mut holders, *key));
        stream.push(engine, from, &contents, &keys, &gone);
    }
    header.distinct_end = holders.len();
    header.held_end = caches.iter().map(|cache| cache.used.len()).sum();
    stream.header = header;
    stream
}

/// A block's own hash, without what is before it.
fn contents(pages: &[u64]) -> Vec<u64> {
    let first = pages.iter().map(|page| page * BLOCKS_A_PAGE);
    first.flat_map(|first| (first..first + BLOCKS_A_PAGE).map(|block| Random(block).word())).collect()
}

fn release(holders: &mut HashMap<u64, u32>, key: u64) {
    if let Some(count) = holders.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            holders.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_again_stores_nothing_and_a_longer_one_its_end() {
        let stream = play(&[vec![1, 2, 3, 4], vec![1, 2, 3, 4], vec![1, 2, 3, 4, 5]]);
        let seen: Vec<_> = stream.requests().map(|r| (r.engine, r.from, r.keys.len())).collect();
        assert_eq!(seen, [(1, 0, 128), (1, 128, 128), (1, 128, 160)]);
        assert_eq!((stream.header.distinct_end, stream.header.held_end), (160, 160));
    }

    #[test]
    fn what_is_used_least_recently_goes_its_end_first() {
        let mut cache = Cache::default();
        let (first, second): (Vec<u64>, Vec<u64>) = ((0..16_000).collect(), (20_000..20_400).collect());
        cache.take_in(&first);
        let (from, gone) = cache.take_in(&second);
        assert_eq!((from, gone), (0, (15_984..16_000).rev().collect()));
    }
}
