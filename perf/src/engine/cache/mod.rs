//! The simulated prefix caches, one by the way engines keep theirs: `pool` (vLLM), `radix` (SGLang) and
//! `set` (TensorRT-LLM, llama.cpp), each with `host` memory behind it.
//! Pure: time is a counter of their own. Must never report a hit that covers a whole prompt, as an
//! engine must compute at least one token to have something to sample from (vLLM 0.32).

mod host;
mod pool;
mod radix;
mod set;

use std::sync::Arc;

pub use host::Host;
pub use pool::Pool;
pub use radix::Radix;
pub use set::PrefixSet;

use super::blocks::{Block, Digest, Log};

/// What a running request holds of a cache. One from before a clear is void.
#[derive(Debug, Default)]
pub struct Lease {
    epoch: u64,
    /// Physical blocks in order (pool), or the locked node (radix).
    slots: Vec<usize>,
    /// Leading blocks that are named in the cache (pool).
    stored: usize,
}

/// A cache of blocks.
#[derive(Debug)]
pub enum Cache {
    /// Physical blocks with copies.
    Pool(Pool),
    /// A tree of runs.
    Radix(Radix),
    /// Distinct blocks.
    Set(PrefixSet),
}

/// Blocks held, and how many copies of each.
pub type Holdings = Vec<(Digest, usize)>;

impl Cache {
    /// Leading blocks of `blocks` that need not be computed, in whatever medium they lie.
    pub fn hit(&self, blocks: &[Arc<Block>]) -> usize {
        match self {
            Cache::Pool(pool) => pool.hit(blocks),
            Cache::Radix(radix) => radix.hit(blocks),
            Cache::Set(set) => set.hit(blocks),
        }
    }

    /// Holds the leading blocks of `blocks` that are there; returns how many lie on the accelerator.
    pub fn begin(&mut self, blocks: &[Arc<Block>]) -> (Lease, usize) {
        match self {
            Cache::Pool(pool) => pool.begin(blocks),
            Cache::Radix(radix) => radix.begin(blocks),
            Cache::Set(set) => set.begin(blocks),
        }
    }

    /// The prompt's first `computed` tokens are computed; `blocks` are those they fill.
    pub fn prefill(&mut self, lease: &mut Lease, blocks: &[Arc<Block>], computed: usize, log: &mut Log) {
        match self {
            Cache::Pool(pool) => pool.advance(lease, blocks, computed, log),
            Cache::Radix(radix) => radix.insert(lease, blocks, log),
            Cache::Set(set) => set.insert(blocks, log),
        }
    }

    /// A step of decoding came to `computed` tokens. Only vLLM's blocks are shared while they fill.
    pub fn decode(&mut self, lease: &mut Lease, blocks: &[Arc<Block>], computed: usize, log: &mut Log) {
        if let Cache::Pool(pool) = self {
            pool.advance(lease, blocks, computed, log);
        }
    }

    /// The request ended; `blocks` is all that may be reused, a part at its end included.
    pub fn finish(&mut self, lease: &mut Lease, blocks: &[Arc<Block>], log: &mut Log) {
        match self {
            Cache::Pool(pool) => pool.release(lease),
            Cache::Radix(radix) => {
                radix.insert(lease, blocks, log);
                radix.release(lease);
            }
            Cache::Set(set) => set.insert(blocks, log),
        }
    }

    /// Forgets everything; leases given out are void.
    pub fn clear(&mut self) {
        match self {
            Cache::Pool(pool) => pool.clear(),
            Cache::Radix(radix) => radix.clear(),
            Cache::Set(set) => set.clear(),
        }
    }

    /// Distinct blocks on the accelerator.
    pub fn count(&self) -> usize {
        match self {
            Cache::Pool(pool) => pool.count(),
            Cache::Radix(radix) => radix.count(),
            Cache::Set(set) => set.count(),
        }
    }

    /// What lies on the accelerator and in the host's memory, in no order.
    pub fn holdings(&self) -> (Holdings, Holdings) {
        match self {
            Cache::Pool(pool) => (pool.holdings(), pool.host.holdings()),
            Cache::Radix(radix) => (radix.holdings(), radix.host.holdings()),
            Cache::Set(set) => (set.holdings(), set.host.holdings()),
        }
    }
}

#[cfg(test)]
pub mod samples {
    //! Blocks for the tests of the caches; their digests are not an engine's.

    use super::*;
    use crate::engine::blocks::{CacheEvent, Medium, Space};
    use crate::engine::text::digest_tokens;

    /// The full blocks of `tokens`.
    pub fn chain(tokens: &[u32], size: usize) -> Vec<Arc<Block>> {
        let (mut parent, space) = (None, Arc::new(Space::default()));
        let block = |(depth, part): (usize, &[u32])| {
            let root = parent.map_or(0, |parent: Digest| parent.first8());
            let digest = Digest::new(&digest_tokens(root, part).to_be_bytes());
            let block = Block { digest, parent, tokens: part.into(), depth, space: space.clone() };
            parent = Some(digest);
            Arc::new(block)
        };
        tokens.chunks_exact(size).enumerate().map(block).collect()
    }

    /// The hit of a prompt: whole blocks, never all of its tokens.
    pub fn prompt_blocks(tokens: &[u32], size: usize) -> Vec<Arc<Block>> {
        chain(&tokens[..tokens.len().saturating_sub(1)], size)
    }

    /// Events as letters: `+` or `-`, `h` for the host, then the first token of each block.
    pub fn told(log: &mut Log) -> Vec<String> {
        let words = |sign: &str, blocks: &[Arc<Block>], medium: Medium| {
            let first: Vec<String> = blocks.iter().map(|block| block.tokens[0].to_string()).collect();
            format!("{sign}{}{}", if medium == Medium::Host { "h" } else { "" }, first.join(","))
        };
        let event = |event: &CacheEvent| match event {
            CacheEvent::Stored { blocks, medium, .. } => words("+", blocks, *medium),
            CacheEvent::Removed { blocks, medium } => words("-", blocks, *medium),
            CacheEvent::Moved { block, to } => words(">", std::slice::from_ref(block), *to),
            CacheEvent::Cleared => "cleared".into(),
        };
        std::mem::take(&mut log.events).iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::samples::{chain, prompt_blocks};
    use super::*;
    use crate::engine::blocks::{CacheEvent, Medium};
    use crate::engine::text::mix;

    type Belief = BTreeMap<(Medium, Digest), usize>;

    fn believe(belief: &mut Belief, event: CacheEvent) {
        let mut add = |medium, block: &Arc<Block>| *belief.entry((medium, block.digest)).or_default() += 1;
        match event {
            CacheEvent::Stored { blocks, medium, .. } => blocks.iter().for_each(|block| add(medium, block)),
            CacheEvent::Removed { blocks, medium } => {
                blocks.iter().for_each(|block| remove(belief, medium, block));
            }
            CacheEvent::Moved { block, to } => {
                add(to, &block);
                let from = if to == Medium::Host { Medium::Gpu } else { Medium::Host };
                remove(belief, from, &block);
            }
            CacheEvent::Cleared => belief.clear(),
        }
    }

    fn remove(belief: &mut Belief, medium: Medium, block: &Arc<Block>) {
        let copies = belief.get_mut(&(medium, block.digest)).expect("only what was stored is removed");
        *copies -= 1;
        belief.retain(|_, copies| *copies > 0);
    }

    fn holdings(cache: &Cache) -> Belief {
        let (gpu, host) = cache.holdings();
        let all = |medium, held: Holdings| held.into_iter().map(move |(digest, n)| ((medium, digest), n));
        all(Medium::Gpu, gpu).chain(all(Medium::Host, host)).collect()
    }

    #[test]
    fn events_of_overlapping_requests_tell_what_is_held() {
        for seed in 0..150 {
            let mut random = seed;
            let mut draw = |below: u64| {
                random = mix(random);
                random % below
            };
            let (room, host) = (1 + draw(9) as usize, draw(4) as usize);
            let mut caches = [
                Cache::Pool(Pool::new(room, 2, host)),
                Cache::Radix(Radix::new(room, host)),
                Cache::Set(PrefixSet::new(room, host)),
            ];
            let cache = &mut caches[draw(3) as usize];
            let (mut belief, mut log, mut running) = (Belief::new(), Log::default(), Vec::new());
            for _ in 0..60 {
                if draw(2) == 0 || running.is_empty() {
                    let tokens: Vec<u32> = (0..1 + draw(12)).map(|_| draw(2) as u32).collect();
                    let (mut lease, _) = cache.begin(&prompt_blocks(&tokens, 2));
                    cache.prefill(&mut lease, &chain(&tokens, 2), tokens.len(), &mut log);
                    running.push((tokens, lease));
                } else {
                    let at = draw(running.len() as u64) as usize;
                    let (tokens, lease) = &mut running[at];
                    tokens.push(draw(2) as u32);
                    cache.decode(lease, &chain(tokens, 2), tokens.len(), &mut log);
                    if draw(3) == 0 {
                        let (tokens, mut lease) = running.swap_remove(at);
                        cache.finish(&mut lease, &chain(&tokens, 2), &mut log);
                    }
                }
                std::mem::take(&mut log.events).into_iter().for_each(|event| believe(&mut belief, event));
                assert_eq!(belief, holdings(cache), "seed {seed}");
            }
        }
    }
}
