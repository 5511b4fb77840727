//! The `kv-index` crate (the index of smg): a tree of runs, with a map a worker.

use crate::engines::ENGINES;
use crate::index::{Index, Told};
use crate::stream::Request;
use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

/// The index with its workers' maps.
pub struct Chain {
    index: ChainIndex,
    workers: Vec<(u32, ChainBlockMap)>,
}

/// An event of a worker.
pub enum Event {
    /// Stored after a parent.
    Stored(usize, Vec<StoredBlock>, Option<SequenceHash>),
    /// Removed.
    Removed(usize, Vec<SequenceHash>),
}

impl Chain {
    /// With all workers known.
    pub fn new() -> Result<Chain, String> {
        let index = ChainIndex::with_max_workers(ENGINES);
        let worker = |at: usize| Ok((index.intern_worker(&format!("engine-{at}"))?, ChainBlockMap::new()));
        let workers = (0..ENGINES).map(worker).collect::<Result<_, kv_index::WorkerIdExhausted>>();
        let workers = workers.map_err(|fault| fault.to_string())?;
        Ok(Chain { index, workers })
    }
}

impl Index for Chain {
    type Event = Event;
    type Query = Vec<ContentHash>;

    fn event(&self, engine: usize, told: Told<'_>) -> Event {
        match told {
            Told::Removed(keys) => Event::Removed(engine, keys.iter().copied().map(SequenceHash).collect()),
            Told::Stored { parent, contents, keys, .. } => {
                let block = |(content, key): (&u64, &u64)| StoredBlock {
                    seq_hash: SequenceHash(*key),
                    content_hash: ContentHash(*content),
                };
                Event::Stored(
                    engine,
                    contents.iter().zip(keys).map(block).collect(),
                    parent.map(SequenceHash),
                )
            }
        }
    }

    fn query(&self, request: &Request<'_>) -> Vec<ContentHash> {
        request.contents.iter().copied().map(ContentHash).collect()
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Stored(engine, blocks, parent) => {
                let (worker, map) = &mut self.workers[engine];
                let applied = self.index.apply_stored(*worker, &blocks, parent, map);
                assert!(applied.is_ok(), "{applied:?}");
            }
            Event::Removed(engine, keys) => {
                let (worker, map) = &mut self.workers[engine];
                self.index.apply_removed(*worker, &keys, map);
            }
        }
    }

    fn look(&mut self, query: &Vec<ContentHash>) -> u32 {
        let mut best = 0;
        self.index.score_into(query, |content| content.0, false, |_, score| best = best.max(score));
        best
    }
}
