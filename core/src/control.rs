//! What the admin thread and the shards say to each other. Owns the messages and snapshots; must never
//! carry a lock or a socket.

mod stage;

pub use stage::{RequestStage, STAGE_BUCKETS_US, StageTimes};

use crate::Nanos;
use crate::attest::{Heard, Listening};
use crate::decide::exact::Miss;
use crate::engine::Engine;
use crate::profile::Api;
use crate::profile::registry::Registry;
use crate::receipt::{PairPhase, Receipt};
use crate::shared::{Fence, Tier};
use crate::table::Table;
use crate::trust::Names;
use std::net::SocketAddr;
use std::sync::Arc;

/// The shards, as the admin thread sees them. Calls return when the shards were told, not when they acted.
pub trait DataPlane: Send + Sync {
    /// Opens listeners for new VIPs, then publishes `table` to every shard. On an error nothing changed.
    fn install(&self, table: Arc<Table>) -> Result<(), InstallFault>;

    /// Asks every shard for a report and waits for all, shortly. Shards that stay silent are missing.
    fn reports(&self) -> Vec<ShardReport>;

    /// Goes one step down: see [`DrainPhase`].
    fn drain(&self, phase: DrainPhase);

    /// What is known of the models whose text can be tokenized.
    fn models(&self) -> Vec<ModelReport> {
        Vec::new()
    }

    /// The token ids that the gateway makes of a request's body, as its shards do; `None`: it can't, or not yet.
    fn tokens(&self, _model: &str, _engine: Engine, _api: Api, _body: &[u8]) -> Option<Vec<u32>> {
        None
    }

    /// The profiles that are published, and the documents that are not, with the reason of each.
    fn registry(&self) -> Arc<Registry> {
        Arc::default()
    }
}

/// A document of the registry of model profiles that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedProfile {
    /// Its file, below `kvprofiles/`.
    pub file: String,
    /// Why, with the cure.
    pub fault: String,
}

/// A model's files, as the loader knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReport {
    /// The folder below `tokenizers/`: the model's name with `__` for each slash.
    pub folder: String,
    /// Whose way with text it has.
    pub engine: Engine,
    /// How far it is.
    pub state: ModelState,
    /// Why its files, as they are now, can't be loaded. A loaded one is then served by those before.
    pub fault: Option<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// `profileId` of the profile it is served by, if there is one.
    pub profile: Option<String>,
    /// Tokens at which text may be cut. With none nothing is kept from turn to turn.
    pub safe_tokens: usize,
    /// Where there is none: one token, and why it is not safe.
    pub no_safe: Option<String>,
    /// Why the fast tokenizer is not used.
    pub fast_refused: Option<String>,
    /// Why every turn of a chat is rendered whole, and not from its last question on.
    pub renders_whole: Option<String>,
    /// It was used, and differed from the reference on a request (`tokenizer_divergence`).
    pub diverged: bool,
}

impl ModelReport {
    /// One that is not there.
    pub fn absent() -> ModelReport {
        ModelReport {
            folder: String::new(),
            engine: Engine::Vllm,
            state: ModelState::Absent,
            fault: None,
            bytes: 0,
            profile: None,
            safe_tokens: 0,
            no_safe: None,
            fast_refused: None,
            renders_whole: None,
            diverged: false,
        }
    }
}

/// How far a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// There is no such folder.
    Absent,
    /// It is being loaded.
    Loading,
    /// It serves.
    Loaded,
    /// It can't be loaded.
    Failed,
}

impl ModelState {
    /// As in status.
    pub const fn word(self) -> &'static str {
        match self {
            ModelState::Absent => "absent",
            ModelState::Loading => "loading",
            ModelState::Loaded => "loaded",
            ModelState::Failed => "failed",
        }
    }
}

/// The event core, as the admin thread sees it. Calls return when it was told, or shortly without an answer.
pub trait KvPlane: Send + Sync {
    /// Follows the sources of `table` from now on, and no others.
    fn follow(&self, table: Arc<Table>);

    /// What it knows; `None` if it stays silent.
    fn report(&self) -> Option<KvReport>;

    /// Block keys that a source's rank holds on a tier, at most `limit` (up to 10,000) from `from` on, which is
    /// 0 or the `next` of the page before. `None`: there is no such source or rank, or no answer.
    fn inventory(&self, source: u32, rank: u8, tier: Tier, from: u64, limit: usize) -> Option<InventoryPage>;

    /// Takes the drained stream of a source over, after another reader was detected; false without such a
    /// source.
    fn reacquire(&self, source: u32) -> bool;

    /// Listens for the blocks of one prompt among those that a source tells of, and forgets what was heard before;
    /// `None`: for nothing any more. False without such a source.
    fn listen(&self, _source: u32, _to: Option<Listening>) -> bool {
        false
    }

    /// What was heard since then, by all ranks; `None`: there is no such source, or no answer.
    fn heard(&self, _source: u32) -> Option<Vec<Heard>> {
        None
    }
}

/// A page of block keys. A key that is stored or removed between two pages may be missing or come twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InventoryPage {
    /// The keys, in no order.
    pub keys: Vec<u64>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<u64>,
    /// Keys held in all.
    pub total: u64,
}

/// What the event core knows of itself.
#[derive(Clone, Debug, Default)]
pub struct KvReport {
    /// Distinct blocks in the index.
    pub index_blocks: u64,
    /// Distinct blocks it takes whatever their depth.
    pub index_capacity: u64,
    /// Bytes it was given.
    pub index_bytes: u64,
    /// Blocks not admitted for want of room since start.
    pub refused: u64,
    /// Proofs of answers that found no room on their way to it since start.
    pub proofs_dropped: u64,
    /// CPU time of the event core, nanoseconds.
    pub cpu: Nanos,
    /// Its sources, by number.
    pub sources: Vec<SourceReport>,
}

/// One source.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// Its number.
    pub source: u32,
    /// Why it is left out of exact routing, if it is.
    pub fence: Option<Fence>,
    /// What the engine says of itself and where that differs from the rule: sentences with cause and cure.
    pub findings: Vec<String>,
    /// The engine's version, as it tells it; empty while unknown.
    pub version: String,
    /// How its events come: `dial`, `listen` or `drain`.
    pub transport: &'static str,
    /// What its events show of the names of blocks.
    pub names: Names,
    /// Its ranks, from 0.
    pub ranks: Vec<RankReport>,
}

/// One rank of a source.
#[derive(Clone, Debug, Default)]
pub struct RankReport {
    /// Its connection is up.
    pub connected: bool,
    /// What its blocks are worth: `empty`, `unproven`, `complete`, `since` or `fenced`.
    pub standing: &'static str,
    /// Why all was last forgotten, or is not the whole; empty if never.
    pub reason: &'static str,
    /// The last applied sequence or event id.
    pub sequence: Option<u64>,
    /// When its last event came; 0: never.
    pub last_event: Nanos,
    /// Blocks held by tier, nearest first; each includes what is nearer.
    pub blocks: [u64; Tier::ALL.len()],
    /// Connections lost or refused since start.
    pub reconnects: u64,
    /// Receive errors since start.
    pub receive_errors: u64,
    /// Batches applied since start.
    pub batches: u64,
    /// Blocks stored since start.
    pub stored: u64,
    /// Blocks removed since start.
    pub removed: u64,
    /// Times that all was forgotten since start.
    pub cleared: u64,
    /// Batches of another form than this engine's since start.
    pub schema_mismatch: u64,
    /// Batches that could not be decoded since start.
    pub undecodable: u64,
    /// Batches of another rank since start.
    pub rank_mismatch: u64,
    /// Blocks not admitted for want of room since start.
    pub refused: u64,
    /// Batches that wait to be applied, or are in part: long ones, and those behind them.
    pub waiting: u64,
    /// Replays asked for since start.
    pub replays: u64,
    /// Blocks that count as held because answers proved them so, and no event yet.
    pub observed: u64,
    /// Blocks that answers proved held since start.
    pub learned: u64,
}

/// A VIP that could not be listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallFault {
    /// The address.
    pub vip: SocketAddr,
    /// One sentence with cause and cure.
    pub message: String,
}

/// The steps of going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPhase {
    /// Serving.
    Serving,
    /// Still accepting; every answer carries `Connection: close`.
    LameDuck,
    /// Queues are accepted until empty, listeners closed; what runs may end.
    Closing,
    /// What still runs is cut.
    Cutting,
}

/// What one shard knows of itself.
#[derive(Clone, Debug, Default)]
pub struct ShardReport {
    /// Its number.
    pub shard: usize,
    /// The generation of the table it serves by.
    pub generation: u64,
    /// Client connections now open.
    pub clients: u64,
    /// Of these, those that wait until others close, since as many are served as may be.
    pub held: u64,
    /// Upstream connections now open, in use or pooled.
    pub upstreams: u64,
    /// Requests in flight.
    pub active: u64,
    /// Counts by name since start.
    pub counts: Vec<(Count, u64)>,
    /// Requests by service number, endpoint index and status class (1 to 5).
    pub answers: Vec<AnswerCount>,
    /// Exact routing by service.
    pub exact: Vec<ExactReport>,
    /// Pairs of prefill and decode by service.
    pub pairs: Vec<PairReport>,
    /// What decided, by service that keeps sessions.
    pub sessions: Vec<SessionCount>,
    /// First-byte times: counts by bucket, bounds in [`FIRST_BYTE_BUCKETS_US`], last is above all.
    pub first_byte_us: [u64; FIRST_BYTE_BUCKETS_US.len() + 1],
    /// Sum of first-byte times, microseconds.
    pub first_byte_us_sum: u64,
    /// How long stages took, of one pass in some.
    pub stages: Vec<(RequestStage, StageTimes)>,
    /// CPU time of loop turns, from the first event to the last: counts by power of two of microseconds
    /// (index 0: under 1 µs). Never too low; events under 50 µs count as long as they took by the wall clock.
    pub turn_us: [u64; 24],
    /// The turn that used most, microseconds.
    pub turn_us_max: u64,
    /// What that turn spent most of its time on: the name of a stage.
    pub turn_max_stage: &'static str,
    /// The last receipts, oldest first.
    pub receipts: Vec<Receipt>,
}

/// Upper bounds of the first-byte histogram, microseconds.
pub const FIRST_BYTE_BUCKETS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

/// Answers of one endpoint of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerCount {
    /// The service's number.
    pub service: u32,
    /// The endpoint's index in the table of the report's generation; `u16::MAX` for answers that the gateway
    /// gave itself. A shard that takes a new table moves its counts along by address.
    pub endpoint: u16,
    /// Hundreds of the status.
    pub class: u8,
    /// How many.
    pub count: u64,
}

/// What decided of requests of one service that keeps sessions, blocks aside (those are in its [`ExactReport`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCount {
    /// The service's number.
    pub service: u32,
    /// They went where their session's earlier ones did.
    pub hits: u64,
    /// They went where the longest beginning of their prompt did.
    pub trie_hits: u64,
    /// By the rule's selector, or by load.
    pub others: u64,
}

/// How exact routing went for one service since it came into force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactReport {
    /// The service's number.
    pub service: u32,
    /// Requests that it decided, by endpoint index in the table of the report's generation.
    pub endpoints: Vec<ExactCount>,
    /// Requests that it left to the selector, by why.
    pub misses: Vec<(Miss, u64)>,
    /// Lookups without a hit in a row that was suspiciously long.
    pub zero_hits: u64,
    /// Tokens of prompts that it decided.
    pub prompt_tokens: u64,
    /// Tokens of them that were predicted to be cached.
    pub predicted_tokens: u64,
    /// Tokens of them that the engines said they had cached, in the answers that told.
    pub cached_tokens: u64,
    /// Answers that told.
    pub told: u64,
    /// Those of them that told the number predicted.
    pub as_predicted: u64,
}

/// How often exact routing chose one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactCount {
    /// In all.
    pub hits: u64,
    /// In place of one with more overlap that had too much to do.
    pub spills: u64,
    /// To fill its empty cache.
    pub seeds: u64,
    /// For blocks that were on their way to it.
    pub promised: u64,
}

/// How pairs of prefill and decode went for one service since it came into force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairReport {
    /// The service's number.
    pub service: u32,
    /// Requests that ended, by [`PairPhase`] and [`PairEnd`], in the order of their discriminants.
    pub ended: [[u64; PairEnd::ALL.len()]; PairPhase::ALL.len()],
    /// What else happened, in the order of [`PairCount`].
    pub counts: [u64; PairCount::ALL.len()],
    /// From prefill's dispatch to its end.
    pub prefill: Latency,
    /// From decode's dispatch to its first byte.
    pub decode: Latency,
}

impl PairReport {
    /// Counts one.
    pub fn count(&mut self, what: PairCount) {
        self.counts[what as usize] += 1;
    }

    /// Counts a request that ended.
    pub fn ended(&mut self, phase: PairPhase, end: PairEnd) {
        self.ended[phase as usize][end as usize] += 1;
    }
}

/// How a pair ended, as in `loxilb_ai_pd_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairEnd {
    /// With an engine's answer below 400.
    Success,
    /// A deadline passed.
    Timeout,
    /// A leg failed, or the client left.
    Error,
    /// An engine refused the request (4xx), or no endpoint could take it.
    Rejected,
}

impl PairEnd {
    /// All, in the order of their discriminants.
    pub const ALL: [PairEnd; 4] = [PairEnd::Success, PairEnd::Timeout, PairEnd::Error, PairEnd::Rejected];

    /// The word that metrics use.
    pub const fn word(self) -> &'static str {
        match self {
            PairEnd::Success => "success",
            PairEnd::Timeout => "timeout",
            PairEnd::Error => "error",
            PairEnd::Rejected => "rejected",
        }
    }
}

/// Counted events of pairs; a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairCount {
    /// Prefill answered with what decode reads its blocks by.
    HandedOver,
    /// Prefill answered without, or failed, and decode computed the prompt itself.
    NotHandedOver,
    /// No healthy prefill or decode endpoint: a normal one took the whole request.
    FellBack,
    /// A prefill endpoint closed the connection before it answered.
    PrefillDied,
    /// A decode endpoint closed the connection before it answered.
    DecodeDied,
    /// A pair whose prefill leg was lost was begun anew, in a new room.
    RoomRetry,
    /// A failing prefill leg cancelled its decode leg.
    DecodeAborted,
    /// A failing decode leg cancelled its prefill leg.
    PrefillClosed,
    /// Prefill refused the request, and its answer went to the client.
    PrefillRefused,
    /// The context's answer was the whole answer.
    EndedEarly,
    /// Prefill was done, and decode never began: its blocks stay charged for the lease.
    Orphaned,
    /// Another endpoint was tried after a connection attempt failed.
    ConnectFailover,
    /// An encoder encoded a part of a request.
    Encoded,
    /// A part of a request was left to prefill, since no encoder would do it.
    NotEncoded,
    /// An encoder refused a part, and its answer went to the client.
    EncodeRefused,
}

impl PairCount {
    /// All, in the order of their discriminants.
    pub const ALL: [PairCount; 15] = [
        PairCount::HandedOver,
        PairCount::NotHandedOver,
        PairCount::FellBack,
        PairCount::PrefillDied,
        PairCount::DecodeDied,
        PairCount::RoomRetry,
        PairCount::DecodeAborted,
        PairCount::PrefillClosed,
        PairCount::PrefillRefused,
        PairCount::EndedEarly,
        PairCount::Orphaned,
        PairCount::ConnectFailover,
        PairCount::Encoded,
        PairCount::NotEncoded,
        PairCount::EncodeRefused,
    ];
}

/// A histogram of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Counts by bucket, bounds in [`FIRST_BYTE_BUCKETS_US`], last is above all.
    pub buckets: [u64; FIRST_BYTE_BUCKETS_US.len() + 1],
    /// Sum, microseconds.
    pub sum_us: u64,
}

impl Latency {
    /// Takes one.
    pub fn note(&mut self, nanos: Nanos) {
        let us = nanos / 1000;
        self.buckets[FIRST_BYTE_BUCKETS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us += us;
    }
}

/// Counted events of a shard; a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Count {
    /// Client connections accepted.
    Accepted,
    /// Requests whose head was parsed.
    Requests,
    /// Requests that no parser accepts.
    Malformed,
    /// Answers that were event streams.
    Streams,
    /// Answers relayed with chunked framing.
    Chunked,
    /// Bytes of answers relayed.
    BytesOut,
    /// Upstream connections opened.
    Connects,
    /// Connection attempts that failed.
    ConnectFailures,
    /// Requests sent on a pooled connection.
    Reused,
    /// Pooled connections closed by the engine while idle.
    IdleClosed,
    /// Pooled connections retired by age.
    Retired,
    /// Replays after a reused connection turned out closed.
    Replays,
    /// Other endpoints tried after a failed connection attempt.
    Failovers,
    /// Clients that left before their answer was whole.
    ClientsLeft,
    /// Requests that waited for memory.
    MemoryWaits,
    /// Times receiving was paused because the other side was slow.
    Backpressure,
    /// Receives that found no free buffer.
    Starved,
    /// Completion queue overflows.
    Overflowed,
    /// Connections cut by a deadline on the client's side.
    SlowClients,
    /// Endpoints ejected after failed connection attempts.
    Ejections,
    /// Client connections that had to wait until others closed.
    AcceptsHeld,
    /// Breakers of endpoints opened.
    BreakerOpenings,
    /// Breakers closed again by a trial.
    BreakerClosings,
    /// Open breakers whose time was over, so that trials began.
    BreakerHeals,
}

impl Count {
    /// All, in the order of their discriminants.
    pub const ALL: [Count; 24] = [
        Count::Accepted,
        Count::Requests,
        Count::Malformed,
        Count::Streams,
        Count::Chunked,
        Count::BytesOut,
        Count::Connects,
        Count::ConnectFailures,
        Count::Reused,
        Count::IdleClosed,
        Count::Retired,
        Count::Replays,
        Count::Failovers,
        Count::ClientsLeft,
        Count::MemoryWaits,
        Count::Backpressure,
        Count::Starved,
        Count::Overflowed,
        Count::SlowClients,
        Count::Ejections,
        Count::AcceptsHeld,
        Count::BreakerOpenings,
        Count::BreakerClosings,
        Count::BreakerHeals,
    ];
}
