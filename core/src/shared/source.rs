//! Where the blocks of one engine process are known from: the stream of its cache events, as the event core
//! keeps it and as decisions read it. Owns the protocol: all values are written by the event core alone,
//! except `reserved` (shards add and subtract), and each is read alone, relaxed.

use crate::engine::{Contract, Engine, Version};
use crate::rule::KvPorts;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

/// Data-parallel ranks of one engine process.
pub const RANKS_MAX: usize = 8;

/// How near to the GPU a block is. Each tier's holder has also what is nearer, so that runs over tiers only
/// grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// On the GPU.
    Gpu,
    /// On the GPU or in the host's memory.
    Host,
    /// Anywhere, disks and remote stores included.
    Disk,
}

impl Tier {
    /// All, nearest first.
    pub const ALL: [Tier; 3] = [Tier::Gpu, Tier::Host, Tier::Disk];

    /// As in metrics and inventories.
    pub const fn word(self) -> &'static str {
        ["gpu", "host", "disk"][self as usize]
    }
}

/// Why an endpoint is left out of exact routing: what it says of itself is not what the rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Another block size.
    BlockSize,
    /// Another block hash.
    Algorithm,
    /// It does not serve the rule's model.
    Model,
    /// A version whose blocks are named otherwise.
    Version,
    /// Another number of ranks.
    Ranks,
    /// Events of a rank that is not the socket's.
    Rank,
    /// It publishes no events.
    NoEvents,
    /// Its events were read by somebody else too.
    Ownership,
    /// It claims more blocks than it has.
    Drift,
    /// It has no group of layers whose blocks alone make a prefix.
    Groups,
}

impl Fence {
    /// All of them.
    pub const ALL: [Fence; 10] = [
        Fence::BlockSize,
        Fence::Algorithm,
        Fence::Model,
        Fence::Version,
        Fence::Ranks,
        Fence::Rank,
        Fence::NoEvents,
        Fence::Ownership,
        Fence::Drift,
        Fence::Groups,
    ];

    /// As in metrics, explanations and the inventory.
    pub const fn word(self) -> &'static str {
        match self {
            Fence::BlockSize => "block_size",
            Fence::Algorithm => "algorithm",
            Fence::Model => "model",
            Fence::Version => "version",
            Fence::Ranks => "ranks",
            Fence::Rank => "rank",
            Fence::NoEvents => "no_events",
            Fence::Ownership => "ownership",
            Fence::Drift => "drift",
            Fence::Groups => "groups_unsupported",
        }
    }
}

/// What makes a source the one it is: rules that agree on all of it share one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// Where the engine serves requests.
    pub endpoint: SocketAddr,
    /// How its blocks are named; carries engine, algorithm and block size.
    pub contract: Contract,
    /// The version that the rule fixes, if it does.
    pub version: Option<Version>,
    /// Where its events are.
    pub ports: KvPorts,
    /// Data-parallel ranks, 1 to [`RANKS_MAX`].
    pub ranks: u8,
    /// The model that the rule names; empty: any.
    pub model: String,
}

impl SourceSpec {
    /// The kind of engine.
    pub fn engine(&self) -> Engine {
        self.contract.engine()
    }
}

/// A LoRA adapter that an engine serves under a model name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The name that requests use as model.
    pub name: String,
    /// Where the engine loaded it from, if it tells.
    pub path: Option<String>,
}

/// No holder yet.
const NO_BIT: u32 = u32::MAX;

/// A version of which it is not known how it names blocks.
const NO_VERSION: u64 = u64::MAX;

/// A version is three numbers of so many bits in one word.
const PART_BITS: u32 = 21;
const PART: u64 = (1 << PART_BITS) - 1;

/// No fence.
const NO_FENCE: u8 = u8::MAX;

/// One source. Outlives rule changes that keep its spec.
#[derive(Debug)]
pub struct Source {
    number: u32,
    spec: SourceSpec,
    fence: AtomicU8,
    version: AtomicU64,
    capacity: AtomicU32,
    /// Spares shards the lock where there is none.
    has_adapters: AtomicBool,
    is_misnamed: AtomicBool,
    adapters: RwLock<Arc<[Adapter]>>,
    ranks: [Rank; RANKS_MAX],
}

#[derive(Debug)]
struct Rank {
    bits: [AtomicU32; Tier::ALL.len()],
    blocks: AtomicU32,
    complete: AtomicBool,
    reserved: AtomicU32,
}

impl Source {
    /// One that nothing is known of yet. Numbers are never used again while the process lives.
    pub fn new(number: u32, spec: SourceSpec) -> Source {
        let rank = |_| Rank {
            bits: std::array::from_fn(|_| AtomicU32::new(NO_BIT)),
            blocks: AtomicU32::new(0),
            complete: AtomicBool::new(false),
            reserved: AtomicU32::new(0),
        };
        Source {
            number,
            spec,
            fence: AtomicU8::new(NO_FENCE),
            version: AtomicU64::new(NO_VERSION),
            capacity: AtomicU32::new(0),
            has_adapters: AtomicBool::new(false),
            is_misnamed: AtomicBool::new(false),
            adapters: RwLock::new(Arc::new([])),
            ranks: std::array::from_fn(rank),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What it is.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// The name under which the index knows the holder of one rank's tier: a bit may serve another holder by
    /// the time it is looked up, a name never does.
    pub fn holder_name(&self, rank: u8, tier: Tier) -> u64 {
        u64::from(self.number) << 16 | u64::from(rank) << 8 | tier as u64
    }

    /// The index's bit of one rank's tier, while it has one. Tiers below the GPU have none until the engine
    /// tells of blocks there.
    pub fn bit(&self, rank: u8, tier: Tier) -> Option<usize> {
        let bit = self.ranks.get(usize::from(rank))?.bits[tier as usize].load(Relaxed);
        (bit != NO_BIT).then_some(bit as usize)
    }

    /// Event core: the index's bit of one rank's tier from now on.
    pub fn set_bit(&self, rank: u8, tier: Tier, bit: Option<usize>) {
        if let Some(rank) = self.ranks.get(usize::from(rank)) {
            rank.bits[tier as usize].store(bit.map_or(NO_BIT, |bit| bit as u32), Relaxed);
        }
    }

    /// The engine's version, once it told it.
    pub fn version(&self) -> Option<Version> {
        let word = self.version.load(Relaxed);
        let part = |at: u32| (word >> at & PART) as u32;
        (word != NO_VERSION).then(|| Version::new(part(2 * PART_BITS), part(PART_BITS), part(0)))
    }

    /// Which of its engine's ways to name blocks that version has; equal numbers, equal names.
    pub fn family(&self) -> Option<usize> {
        self.version().map(|version| self.spec.engine().family(version))
    }

    /// Event core: the engine told its version. Numbers over 2 million, which no engine has, are cut to that.
    pub fn set_version(&self, version: Option<Version>) {
        let part = |number: u32| u64::from(number).min(PART);
        let word = version.map_or(NO_VERSION, |v| {
            part(v.major) << (2 * PART_BITS) | part(v.minor) << PART_BITS | part(v.patch)
        });
        self.version.store(word, Relaxed);
    }

    /// Why it is left out of exact routing by all rules, if it is.
    pub fn fence(&self) -> Option<Fence> {
        Fence::ALL.get(usize::from(self.fence.load(Relaxed))).copied()
    }

    /// Event core: leaves it out, or lets it in.
    pub fn set_fence(&self, fence: Option<Fence>) {
        let place = fence.and_then(|fence| Fence::ALL.iter().position(|f| *f == fence));
        self.fence.store(place.map_or(NO_FENCE, |place| place as u8), Relaxed);
    }

    /// Blocks on the GPU of one rank, as its events tell.
    pub fn blocks(&self, rank: u8) -> u32 {
        self.ranks.get(usize::from(rank)).map_or(0, |rank| rank.blocks.load(Relaxed))
    }

    /// Whether all that one rank holds is known: its history from an empty cache on.
    pub fn is_complete(&self, rank: u8) -> bool {
        self.ranks.get(usize::from(rank)).is_some_and(|rank| rank.complete.load(Relaxed))
    }

    /// Event core: what one rank holds.
    pub fn set_blocks(&self, rank: u8, blocks: u32, complete: bool) {
        if let Some(rank) = self.ranks.get(usize::from(rank)) {
            rank.blocks.store(blocks, Relaxed);
            rank.complete.store(complete, Relaxed);
        }
    }

    /// Blocks that a rank's GPU has room for, by the engine's own word; 0 while unknown.
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Relaxed)
    }

    /// Event core: the engine told how many blocks a rank has room for.
    pub fn set_capacity(&self, blocks: u32) {
        self.capacity.store(blocks, Relaxed);
    }

    /// Whether its events show that it names blocks otherwise than its contract: then nothing that is asked for
    /// is ever found, and what an answer proves could not be taken back by a removal.
    pub fn is_misnamed(&self) -> bool {
        self.is_misnamed.load(Relaxed)
    }

    /// Event core: what its events show of that.
    pub fn set_misnamed(&self, is_misnamed: bool) {
        self.is_misnamed.store(is_misnamed, Relaxed);
    }

    /// The adapters that the engine serves. Held for the time of a pointer's copy, by a reader as by the writer.
    pub fn adapters(&self) -> Option<Arc<[Adapter]>> {
        if !self.has_adapters.load(Relaxed) {
            return None;
        }
        Some(self.adapters.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
    }

    /// Event core: the engine told which adapters it serves.
    pub fn set_adapters(&self, adapters: &[Adapter]) {
        let mut own = self.adapters.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if **own != *adapters {
            *own = adapters.into();
        }
        drop(own);
        self.has_adapters.store(!adapters.is_empty(), Relaxed);
    }

    /// Requests in flight that were sent to one rank by name.
    pub fn reserved(&self, rank: u8) -> u32 {
        self.ranks.get(usize::from(rank)).map_or(0, |rank| rank.reserved.load(Relaxed))
    }

    /// Shard: one more request goes to `rank` by name; settled by [`Source::settle`].
    pub fn reserve(&self, rank: u8) {
        if let Some(rank) = self.ranks.get(usize::from(rank)) {
            rank.reserved.fetch_add(1, Relaxed);
        }
    }

    /// Shard: that request is over.
    pub fn settle(&self, rank: u8) {
        if let Some(rank) = self.ranks.get(usize::from(rank)) {
            let before = rank.reserved.fetch_sub(1, Relaxed);
            debug_assert!(before > 0, "settled more than was reserved");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockSize;
    use crate::engine::{Algo, Terms};

    fn source() -> Source {
        let contract =
            Engine::Sglang.contract(&Terms::plain(Algo::Sha256Sglang, BlockSize::SIXTEEN)).unwrap();
        let endpoint = "127.0.0.1:1".parse().unwrap();
        let (ports, model) = (KvPorts::default(), String::new());
        Source::new(7, SourceSpec { endpoint, contract, version: None, ports, ranks: 2, model })
    }

    #[test]
    fn what_the_event_core_writes_is_read_back_and_nothing_beyond_the_last_rank() {
        let source = source();
        assert_eq!((source.bit(0, Tier::Gpu), source.fence(), source.blocks(1)), (None, None, 0));
        source.set_bit(1, Tier::Host, Some(63));
        source.set_fence(Some(Fence::Drift));
        source.set_blocks(1, 12, true);
        assert_eq!((source.bit(1, Tier::Host), source.bit(1, Tier::Gpu)), (Some(63), None));
        assert_eq!((source.fence(), source.blocks(1), source.is_complete(1)), (Some(Fence::Drift), 12, true));
        source.set_fence(None);
        source.set_bit(1, Tier::Host, None);
        source.set_bit(200, Tier::Gpu, Some(1));
        source.reserve(200);
        source.settle(200);
        assert_eq!(
            (source.fence(), source.bit(1, Tier::Host), source.bit(200, Tier::Gpu)),
            (None, None, None)
        );
    }

    #[test]
    fn adapters_are_those_told_last() {
        let source = source();
        assert_eq!(source.adapters(), None);
        let adapters = [Adapter { name: "a".into(), path: Some("/a".into()) }];
        source.set_adapters(&adapters);
        assert_eq!(source.adapters().unwrap().to_vec(), adapters);
        source.set_adapters(&[]);
        assert_eq!(source.adapters(), None);
    }

    #[test]
    fn every_fence_is_told_apart() {
        let source = source();
        for fence in Fence::ALL {
            source.set_fence(Some(fence));
            assert_eq!(source.fence(), Some(fence));
        }
    }

    #[test]
    fn holders_of_ranks_and_tiers_have_names_of_their_own() {
        let source = source();
        let mut names: Vec<u64> = (0..RANKS_MAX as u8)
            .flat_map(|rank| Tier::ALL.map(|tier| source.holder_name(rank, tier)))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RANKS_MAX * Tier::ALL.len());
    }
}
