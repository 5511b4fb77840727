//! The indexes of `dynamo-kv-router`: the positional one, the tree of one thread, and the concurrent compressed
//! tree behind its pool (the only public way to feed it), here with one thread.

use crate::index::{Index, Told};
use crate::stream::Request;
use dynamo_kv_router::indexer::concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::positional::{LevelIndex, PositionalIndexer};
use dynamo_kv_router::indexer::{KvIndexerInterface, RadixTree, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent, WorkerWithDpRank,
};
use std::collections::HashMap;

/// The map type of the positional index's writer.
type Hasher = rustc_hash::FxBuildHasher;

/// Positions that the positional index jumps over, as its own documentation has it.
const JUMP: usize = 32;

/// Tokens of a block.
const BLOCK_TOKENS: u32 = 16;

/// `PositionalIndexer`.
pub struct Positional {
    index: PositionalIndexer,
    workers: HashMap<WorkerWithDpRank, LevelIndex, Hasher>,
}

/// `RadixTree`.
pub struct Tree(RadixTree);

/// `ConcurrentRadixTreeCompressed` in a `ThreadPoolIndexer`.
pub struct Pool(ThreadPoolIndexer<ConcurrentRadixTreeCompressed>);

impl Positional {
    /// Empty.
    pub fn new() -> Positional {
        Positional { index: PositionalIndexer::new(JUMP), workers: HashMap::default() }
    }
}

impl Tree {
    /// Empty.
    pub fn new() -> Tree {
        Tree(RadixTree::new())
    }
}

impl Pool {
    /// Empty, with one thread.
    pub fn new() -> Pool {
        Pool(ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, BLOCK_TOKENS))
    }
}

impl Index for Positional {
    type Event = RouterEvent;
    type Query = Vec<LocalBlockHash>;

    fn event(&self, engine: usize, told: Told<'_>) -> RouterEvent {
        event(engine, told)
    }

    fn query(&self, request: &Request<'_>) -> Vec<LocalBlockHash> {
        query(request)
    }

    fn apply(&mut self, event: RouterEvent) {
        let applied = self.index.apply_event(&mut self.workers, event, None);
        assert!(applied.is_ok(), "{applied:?}");
    }

    fn look(&mut self, query: &Vec<LocalBlockHash>) -> u32 {
        best(&self.index.find_matches(query, false))
    }
}

impl Index for Tree {
    type Event = RouterEvent;
    type Query = Vec<LocalBlockHash>;

    fn event(&self, engine: usize, told: Told<'_>) -> RouterEvent {
        event(engine, told)
    }

    fn query(&self, request: &Request<'_>) -> Vec<LocalBlockHash> {
        query(request)
    }

    fn apply(&mut self, event: RouterEvent) {
        let applied = self.0.apply_event(event);
        assert!(applied.is_ok(), "{applied:?}");
    }

    fn look(&mut self, query: &Vec<LocalBlockHash>) -> u32 {
        // It takes the list itself.
        best(&self.0.find_matches(query.clone(), false))
    }
}

impl Index for Pool {
    type Event = RouterEvent;
    type Query = Vec<LocalBlockHash>;

    fn event(&self, engine: usize, told: Told<'_>) -> RouterEvent {
        event(engine, told)
    }

    fn query(&self, request: &Request<'_>) -> Vec<LocalBlockHash> {
        query(request)
    }

    fn apply(&mut self, event: RouterEvent) {
        pollster::block_on(self.0.apply_event(event));
    }

    fn settle(&mut self) {
        let settled = pollster::block_on(self.0.flush_and_wait());
        assert!(settled.is_ok(), "{settled:?}");
    }

    fn look(&mut self, query: &Vec<LocalBlockHash>) -> u32 {
        // It takes the list itself.
        pollster::block_on(self.0.find_matches(query.clone())).map_or(0, |scores| best(&scores))
    }
}

fn event(engine: usize, told: Told<'_>) -> RouterEvent {
    let data = match told {
        Told::Removed(keys) => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: keys.iter().copied().map(ExternalSequenceBlockHash).collect(),
        }),
        Told::Stored { parent, contents, keys, .. } => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: contents.iter().zip(keys).map(block).collect(),
        }),
    };
    RouterEvent::new(engine as u64, KvCacheEvent { event_id: 0, dp_rank: 0, data })
}

fn block((content, key): (&u64, &u64)) -> KvCacheStoredBlockData {
    KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(*key),
        tokens_hash: LocalBlockHash(*content),
        mm_extra_info: None,
    }
}

fn query(request: &Request<'_>) -> Vec<LocalBlockHash> {
    request.contents.iter().copied().map(LocalBlockHash).collect()
}

fn best(scores: &OverlapScores) -> u32 {
    scores.scores.values().copied().max().unwrap_or(0)
}
