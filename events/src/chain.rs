//! What benches call: published bytes through feed, holdings and index, without a socket. It is not part of the
//! API; the event core puts the same together in `eventcore`.

use crate::continuity::Policy;
use crate::feed::{Feed, Terms};
use crate::holdings::Holdings;
use crate::index::Index;
use crate::residency::Removal;
use crate::wire::HashBytes;
use crate::zmtp::Limits;
use std::sync::Arc;
use warmpath_core::shared::Source;
use warmpath_kvindex::Writer;

/// Ranks and the index they share.
pub struct Chain {
    ranks: Vec<(Feed, Holdings)>,
    index: Index,
}

impl Chain {
    /// One rank of each source, its live connection just opened, `hello` (a peer's greeting and READY) taken.
    pub fn new(sources: Vec<Arc<Source>>, writer: Writer, hello: &[u8]) -> Chain {
        let mut chain = Chain { ranks: Vec::new(), index: Index::new(writer) };
        for (seed, source) in sources.into_iter().enumerate() {
            let terms = Terms {
                topic: Vec::new(),
                limits: Limits::default(),
                policy: Policy { replay: false, ..Policy::default() },
                naming: HashBytes::Last,
                removal: Removal::One,
                blocks: usize::MAX,
                rank: Some(0),
                slice: 32 << 10,
                seed: seed as u64,
            };
            let (mut feed, holdings) = (Feed::new(terms), Holdings::new(source, 0, &mut chain.index));
            feed.live_opened(0);
            feed.live_bytes(0, hello, &mut |_| ());
            feed.identified(0, None, &mut |_| ());
            chain.ranks.push((feed, holdings));
        }
        chain
    }

    /// A receive buffer of a rank's live connection, worked off; nothing for a rank that isn't there.
    pub fn live(&mut self, rank: usize, bytes: &[u8]) {
        let Some((feed, holdings)) = self.ranks.get_mut(rank) else { return };
        let index = &mut self.index;
        feed.live_bytes(0, bytes, &mut |change| holdings.change(change, index));
        while feed.is_busy() {
            while holdings.awaits_sweep(index) {
                index.sweep(1);
            }
            feed.work(0, &mut |change| holdings.change(change, index));
        }
        holdings.flush(index);
    }

    /// Blocks that all ranks hold by their events, and by the index.
    pub fn blocks(&self) -> (usize, u64) {
        let held = self.ranks.iter().map(|(feed, _)| feed.residency().len()).sum();
        let indexed = self.ranks.iter().flat_map(|(_, holdings)| holdings.blocks(&self.index)).sum();
        (held, indexed)
    }
}
