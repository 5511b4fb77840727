//! What any router could reach at most: one cache of the whole fleet's size, which every request finds at once. Owns
//! that bound; must never know of endpoints.

use super::engine::{Model, blocks, findable};
use super::trace::Trace;
use crate::engine::blocks::Log;
use crate::engine::cache::Pool;
use std::collections::HashSet;

/// Prompt tokens found by such a cache under the engine's own eviction, and by one that never evicts.
pub fn hits(trace: &Trace, fleet: usize, model: &Model) -> (u64, u64) {
    let size = trace.block_tokens;
    let mut pool = Pool::new(model.blocks(size).saturating_mul(fleet), size as usize, 0);
    let mut log = Log { muted: true, ..Log::default() };
    let (mut bounded, mut unbounded, mut seen) = (0, 0, HashSet::new());
    for arrival in &trace.arrivals {
        let blocks = blocks(&arrival.keys);
        let findable = findable(&blocks, arrival.prompt, size);
        unbounded += findable.iter().take_while(|block| seen.contains(&block.digest)).count() as u64;
        seen.extend(blocks.iter().map(|block| block.digest));
        let (mut lease, hits) = pool.begin(findable);
        bounded += hits as u64;
        pool.advance(&mut lease, &blocks, (arrival.prompt + arrival.answer) as usize, &mut log);
        pool.release(&mut lease);
    }
    (bounded * u64::from(size), unbounded * u64::from(size))
}
