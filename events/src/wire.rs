//! Typed events as engines publish them. Owns the values and the pools that hold their lists; must never read
//! bytes or judge what an event means for a cache.
//!
//! A [`Batch`] is used again for each payload: its events point into pools of hashes, tokens and text, so that
//! a steady stream allocates nothing.

/// A place in one of a batch's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Run {
    /// How many entries it has.
    pub fn len(self) -> usize {
        (self.to - self.from) as usize
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    pub(crate) fn between(from: usize, to: usize) -> Run {
        // A payload has at most 64 MiB and every entry takes a byte of it.
        Run { from: from as u32, to: to as u32 }
    }

    fn of<T>(self, pool: &[T]) -> &[T] {
        pool.get(self.from as usize..self.to as usize).unwrap_or(&[])
    }
}

/// Which 8 bytes of a byte-string hash, read big-endian, are the block's name: the engine's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashBytes {
    /// The last: vLLM.
    Last,
    /// The first: SGLang.
    First,
}

/// Where a block's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    /// `GPU`.
    Gpu,
    /// `CPU` (vLLM), `CPU_PINNED` (SGLang).
    Cpu,
    /// `STORAGE` (vLLM), `DISK` (SGLang).
    Disk,
    /// `EXTERNAL` (SGLang).
    External,
    /// A name that is not known here.
    Other,
}

impl Medium {
    /// From its name on the wire, if that is known here.
    pub fn named(name: &[u8]) -> Option<Medium> {
        match name {
            b"GPU" => Some(Medium::Gpu),
            b"CPU" | b"CPU_PINNED" => Some(Medium::Cpu),
            b"STORAGE" | b"DISK" => Some(Medium::Disk),
            b"EXTERNAL" => Some(Medium::External),
            _ => None,
        }
    }
}

/// `locality` of vLLM ≥ 0.26: whether the medium is this engine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// `LOCAL`.
    Local,
    /// `REMOTE`.
    Remote,
    /// A name that is not known here.
    Other,
}

/// `kv_cache_spec_kind` of vLLM: what kind of layers a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named as on the wire")]
pub enum SpecKind {
    FullAttention,
    MlaAttention,
    SlidingWindow,
    SlidingWindowMla,
    Mamba,
    ChunkedLocalAttention,
    SinkFullAttention,
    EncoderOnlyAttention,
    CrossAttention,
    Unknown,
}

impl SpecKind {
    /// From its name on the wire, if that is known here.
    pub fn named(name: &[u8]) -> Option<SpecKind> {
        match name {
            b"full_attention" => Some(SpecKind::FullAttention),
            b"mla_attention" => Some(SpecKind::MlaAttention),
            b"sliding_window" => Some(SpecKind::SlidingWindow),
            b"sliding_window_mla" => Some(SpecKind::SlidingWindowMla),
            b"mamba" => Some(SpecKind::Mamba),
            b"chunked_local_attention" => Some(SpecKind::ChunkedLocalAttention),
            b"sink_full_attention" => Some(SpecKind::SinkFullAttention),
            b"encoder_only_attention" => Some(SpecKind::EncoderOnlyAttention),
            b"cross_attention" => Some(SpecKind::CrossAttention),
            _ => None,
        }
    }
}

/// Where the blocks of an event are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The medium, if the event names one.
    pub medium: Option<Medium>,
    /// `group_idx` of vLLM's KV-cache groups.
    pub group: Option<u32>,
    /// `locality`.
    pub locality: Option<Locality>,
    /// `ownership`: text.
    pub ownership: Option<Run>,
}

/// Token ids of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// The event names none.
    #[default]
    Absent,
    /// Ids, one a unit.
    Single(Run),
    /// Bigrams of SGLang's EAGLE mode, two ids a unit.
    Pairs(Run),
    /// Ids beyond 32 bits (SGLang's media pads) or of another shape: the blocks are known by hash only.
    Unkept,
}

impl Tokens {
    /// The ids' place and how many of them make one unit of a block.
    pub fn run(self) -> Option<(Run, usize)> {
        match self {
            Tokens::Single(run) => Some((run, 1)),
            Tokens::Pairs(run) => Some((run, 2)),
            Tokens::Absent | Tokens::Unkept => None,
        }
    }
}

/// Blocks that are now in a cache, in the order of their chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Names of the blocks.
    pub hashes: Run,
    /// Name of the block before the first; none at a prompt's start.
    pub parent: Option<u64>,
    /// Ids of all tokens that the event spans.
    pub tokens: Tokens,
    /// Tokens (SGLang: units) of one block; at least 1.
    pub block_size: u32,
    /// Where they are.
    pub place: Place,
    /// What kind of layers they serve.
    pub kind: Option<SpecKind>,
    /// Tokens of the sliding window.
    pub window: Option<u32>,
    /// `lora_id`.
    pub lora_id: Option<u64>,
    /// `lora_name`: text.
    pub lora_name: Option<Run>,
    /// Extra keys of each block ([`Batch::extra`]); empty when no block has any.
    pub extra: Run,
    /// `cache_salt` of SGLang: text.
    pub salt: Option<Run>,
    /// `session_id`: text.
    pub session: Option<Run>,
    /// Tokens after each block that its hash covers too (vLLM 0.33), as many for each block.
    pub lookahead: Tokens,
}

/// Blocks of which one copy each has left a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names of the blocks.
    pub hashes: Run,
    /// Where they were.
    pub place: Place,
}

/// What happened in an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `BlockStored`.
    Stored(Stored),
    /// `BlockRemoved`.
    Removed(Removed),
    /// `AllBlocksCleared`: this rank's cache is empty.
    Cleared,
}

/// One of the values besides tokens that enter a block's hash (vLLM). What a text means depends on its place:
/// the adapter's name comes first if the event has one, then media, then the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// An adapter's name, a media identifier without offset, or a salt.
    Text(Run),
    /// A media item and where it starts, counted from the block's first token.
    Media {
        /// Its identifier: text.
        id: Run,
        /// Negative if it started in an earlier block.
        offset: i64,
    },
    /// The digest of prompt embeddings: bytes.
    Bytes(Run),
    /// A shape that is not known here.
    Other,
}

/// One payload's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// When the engine made it, in seconds of its wall clock.
    pub time: f64,
    /// The data-parallel rank that it names.
    pub rank: Option<u32>,
    /// Its events, in order.
    pub events: Vec<Event>,
    /// Events of kinds that are not known here, passed over.
    pub unknown: u32,
    pub(crate) hashes: Vec<u64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) extras: Vec<Run>,
    pub(crate) keys: Vec<ExtraKey>,
    pub(crate) bytes: Vec<u8>,
}

/// Entries that a pool may keep between payloads.
const KEPT: usize = 1 << 18;

impl Batch {
    /// Names of blocks.
    pub fn hashes(&self, run: Run) -> &[u64] {
        run.of(&self.hashes)
    }

    /// Token ids.
    pub fn tokens(&self, run: Run) -> &[u32] {
        run.of(&self.tokens)
    }

    /// Bytes of a text or digest.
    pub fn bytes(&self, run: Run) -> &[u8] {
        run.of(&self.bytes)
    }

    /// A text; empty if the run is no text.
    pub fn text(&self, run: Run) -> &str {
        std::str::from_utf8(self.bytes(run)).unwrap_or_default()
    }

    /// The extra keys of one of an event's blocks, counted from 0.
    pub fn extra(&self, stored: &Stored, block: usize) -> &[ExtraKey] {
        stored.extra.of(&self.extras).get(block).map_or(&[], |run| run.of(&self.keys))
    }

    /// Empties it and lets go of what an unusually large payload made it hold.
    pub(crate) fn clear(&mut self) {
        self.time = 0.0;
        self.rank = None;
        self.unknown = 0;
        empty(&mut self.events);
        empty(&mut self.hashes);
        empty(&mut self.tokens);
        empty(&mut self.extras);
        empty(&mut self.keys);
        empty(&mut self.bytes);
    }
}

fn empty<T>(pool: &mut Vec<T>) {
    pool.clear();
    if pool.capacity() > KEPT {
        pool.shrink_to(KEPT);
    }
}
