//! A rule: what the operator asked for, after validation. Owns the typed form that everything else reads;
//! must never hold a value that validation would refuse.
//!
//! [`body`] turns a rule body (JSON) into a [`Rule`].

pub mod body;
mod exact;
mod gate;
mod pair;

pub use exact::{ExplainHeader, KvExact, KvPorts, RankMode};
pub use gate::{By, GateMode, GateTerms, Said, WAIT};
pub use pair::{BOOTSTRAP_PORT, Disaggregation, PairConnector, Role, Roles};

use crate::breaker::BreakerTerms;
use crate::engine::Engine;
use crate::session::SessionTerms;
use crate::{MILLISECOND, Nanos, SECOND};
use std::net::SocketAddr;

/// What makes a rule the one it is: a second body with an equal key replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleKey {
    /// `externalIP:port`, the address that clients connect to.
    pub vip: SocketAddr,
    /// `host`, lower case, without port; empty matches any.
    pub host: String,
    /// `path_prefix`; empty matches any.
    pub path: String,
    /// How `path` is compared.
    pub path_match: PathMatch,
    /// `model_name`; empty is the pool for every model not named by another rule.
    pub model: String,
}

/// How a rule's path is compared with a request's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathMatch {
    /// Not at all.
    #[default]
    Disabled,
    /// Whole path segments from the left.
    Prefix,
    /// The whole path.
    Exact,
}

/// A validated rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its identity.
    pub key: RuleKey,
    /// Opaque id, given or made when absent.
    pub id: String,
    /// The operator's name for it, possibly empty.
    pub name: String,
    /// How an endpoint is chosen.
    pub selector: Selector,
    /// Whom it balances over, in the order that gives them their index.
    pub endpoints: Vec<Endpoint>,
    /// Time bounds of its requests.
    pub deadlines: Deadlines,
    /// Active health probe; `None` when `monitor` is off.
    pub probe: Option<Probe>,
    /// `sse_mode`: no bound between the bytes of a stream unless `timeoutMemberData` sets one.
    pub sse_mode: bool,
    /// `retry_before_first_byte`: 0 or 1 tries on another endpoint after a death before the first byte.
    pub retry_before_first_byte: u8,
    /// `half_close`: what a client's FIN after its request means.
    pub half_close: HalfClose,
    /// `kvEngineType`: the kind of its engines; vLLM where the body does not say.
    pub engine: Engine,
    /// `kv…`: exact routing by the blocks that engines hold; `None` with `kvExactMode` 0.
    pub exact: Option<KvExact>,
    /// `fc_…`: the capacity gate.
    pub gate: GateTerms,
    /// `pd_disagg_mode`: prefill and decode on different endpoints; `None` where each serves whole requests.
    pub disaggregation: Option<Disaggregation>,
    /// `cb_enable`, or that it has prefill and decode endpoints: the breaker of each endpoint. `None`: failed
    /// connection attempts eject an endpoint shortly.
    pub breaker: Option<BreakerTerms>,
    /// `session_header_name`, `pd_session_ttl_sec`: that requests of a session go where its first one went; `None`:
    /// they are chosen for one by one. Selectors that hash take the session's key in place of a missing prompt.
    pub session: Option<SessionTerms>,
    /// `pd_cache_aware_mode`: prefill endpoints are chosen by which beginnings of prompts they were sent before.
    pub cache_aware: Option<CacheAware>,
    /// `explain_header`.
    pub explain: ExplainHeader,
    /// `adminStateUp`: false answers as if the rule were absent.
    pub enabled: bool,
}

impl Rule {
    /// How long a session's endpoints are remembered; `None` where they are not. Selectors that hash need no memory, pairs
    /// do under any selector.
    pub fn keeps_sessions(&self) -> Option<Nanos> {
        let hashes = self.selector.prefix_terms().is_some() && self.disaggregation.is_none();
        self.session.as_ref().filter(|_| !hashes).map(|terms| terms.ttl)
    }

    /// Whether decisions take in what engines tell of their load.
    pub fn reads_load(&self) -> bool {
        self.selector == Selector::GpuAware || self.disaggregation.is_some()
    }

    /// Whether engines are asked for their load: for decisions, or for a gate that follows it.
    pub fn asks_load(&self) -> bool {
        let follows = self.gate.mode.value != GateMode::Off && self.gate.adaptive.value;
        self.reads_load() || follows
    }
}

/// `sel`: how an endpoint is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// 0: in turn.
    RoundRobin,
    /// 1: hash of the client's address and port: one endpoint for all requests of a connection.
    ClientHash,
    /// 2: in turn, in proportion to weight (smooth).
    Weighted,
    /// 3: a session's first request in turn, the others where that went ([`Rule::session`]).
    Persist,
    /// 4: fewest requests in flight.
    LeastConnections,
    /// 8: consistent hash of the prompt's prefix, else of the conversation, with bounded load.
    Chwbl(Chwbl),
    /// 9: hash of the prompt's prefix, else of the conversation, else the least to do.
    GpuAware,
    /// 10: as 8, with points and load in proportion to weight.
    WeightedHash(Chwbl),
}

impl Selector {
    /// As in a rule's `sel`.
    pub const fn number(&self) -> u8 {
        match self {
            Selector::RoundRobin => 0,
            Selector::ClientHash => 1,
            Selector::Weighted => 2,
            Selector::Persist => 3,
            Selector::LeastConnections => 4,
            Selector::Chwbl(_) => 8,
            Selector::GpuAware => 9,
            Selector::WeightedHash(_) => 10,
        }
    }

    /// How the prompt's prefix is hashed, where the selector goes by it.
    pub const fn prefix_terms(&self) -> Option<&Chwbl> {
        match self {
            Selector::Chwbl(chwbl) | Selector::WeightedHash(chwbl) => Some(chwbl),
            Selector::GpuAware => Some(&Chwbl::PLAIN),
            _ => None,
        }
    }
}

/// `pd_cache_aware_mode`: when the prefix trie decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheAware {
    /// `pd_cache_threshold`: percent of the prompt that must be known, 1 to 100.
    pub threshold: u8,
    /// `pd_balance_abs_threshold`: requests in flight that the most and the least loaded endpoint may lie apart.
    pub balance: u32,
}

/// `chwbl_*`: the consistent hash with bounded load.
#[derive(Clone, Debug, PartialEq)]
pub struct Chwbl {
    /// `chwbl_prefix_hash_level`, 1 to 3.
    pub level: u8,
    /// `chwbl_prefix_hash_flags`, 0 to 255; which optional parts of a request enter the key.
    pub flags: u8,
    /// `chwbl_mean_load_factor`, percent of the mean load an endpoint may carry, 100 to 300.
    pub load_factor: u16,
    /// `chwbl_replication`, points of an endpoint on the ring, with selector 10 of all together, 1 to 1024.
    pub replication: u16,
    /// `chwbl_enable_cache_salt`: the request's `cache_salt` enters the key.
    pub cache_salt: bool,
}

impl Chwbl {
    /// The defaults.
    pub const PLAIN: Chwbl =
        Chwbl { level: 1, flags: 0, load_factor: 125, replication: 100, cache_salt: false };

    /// The flag bits that a level knows: 1: bits 0 to 4, 2: also bit 5, 3: all.
    pub fn flag_mask(level: u8) -> u8 {
        match level {
            1 => 0x1f,
            2 => 0x3f,
            _ => 0xff,
        }
    }

    /// The flags that count.
    pub fn effective_flags(&self) -> u8 {
        self.flags & Self::flag_mask(self.level)
    }
}

/// One engine process behind a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// `endpointIP:targetPort`.
    pub address: SocketAddr,
    /// `weight`; 0 drains: no new request.
    pub weight: u32,
    /// `backup`: used only when no other is healthy.
    pub backup: bool,
    /// `ep_role`.
    pub role: Role,
    /// `nixl_port`: the side channel that a pair's request id names; the target port where the body says none.
    pub side_port: u16,
    /// `kv_engine_id`: how decode engines call it in a transfer by Mooncake; empty where none is needed.
    pub engine_id: Box<str>,
}

/// Time bounds of a rule's requests. All in [`Nanos`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// `timeoutMemberConnect`: to establish an upstream connection.
    pub connect: Nanos,
    /// `first_byte_timeout_ms`: to the first byte of the answer, after the request was sent.
    pub first_byte: Nanos,
    /// `timeoutMemberData`, else `inactiveTimeOut`: between two reads of the answer.
    pub between_bytes: Nanos,
    /// The same within an event stream; `sse_mode` without `timeoutMemberData` lifts it to `stream`.
    pub between_events: Nanos,
    /// `max_stream_duration_sec`: for the whole answer.
    pub stream: Nanos,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            connect: 500 * MILLISECOND,
            first_byte: 600 * SECOND,
            between_bytes: 300 * SECOND,
            between_events: 300 * SECOND,
            stream: 86_400 * SECOND,
        }
    }
}

/// What a client's FIN after its whole request means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HalfClose {
    /// It left: every leg is closed (an unwanted answer is expensive).
    #[default]
    Leave,
    /// It still reads: it is served.
    Serve,
}

/// An active health probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// How health is asked.
    pub kind: ProbeKind,
    /// `probeport`; 0: the endpoint's own port.
    pub port: u16,
    /// `probeTimeout`: of one probe, and between two.
    pub timeout: Nanos,
    /// `probeRetries`: failures in a row that take an endpoint out.
    pub retries: u32,
}

/// How health is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeKind {
    /// `tcp`: a connection is established.
    Tcp,
    /// `http`: GET `path` answers one of the expected codes, with `contains` in its body if not empty.
    Http {
        /// `probereq` or `urlPath`.
        path: String,
        /// `expectedCodes` as inclusive ranges.
        codes: Vec<(u16, u16)>,
        /// `proberesp`.
        contains: String,
    },
}
