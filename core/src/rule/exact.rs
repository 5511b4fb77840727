//! What a rule says of exact routing. Owns the typed members (`kv…`); must never hold terms on which no
//! contract was agreed.

use crate::Nanos;
use crate::engine::{Contract, Version};
use crate::profile::binding::ProfileTerms;

/// Exact routing: over a single pool (`kvExactMode` 3), or over the prefill endpoints of pairs (1).
#[derive(Clone, Debug, PartialEq)]
pub struct KvExact {
    /// How blocks are named: `kvEngineType`, `kvHashAlgo`, `kvBlockSize` and the seed of the environment.
    pub contract: Contract,
    /// `kvEngineVersion` (this gateway's own); `None`: as the engines tell it, if all of a rule tell the same;
    /// what depends on it is declined until then.
    pub version: Option<Version>,
    /// Where events are published.
    pub ports: KvPorts,
    /// `kvDpRankCount`: data-parallel ranks of each endpoint, 1 to 8.
    pub ranks: u8,
    /// `kvRankMode` (this gateway's own).
    pub rank_mode: RankMode,
    /// `kvModelProfile` and `kvExactApiMode`: what text means, and which requests are routed by blocks.
    pub profile: ProfileTerms,
    /// `kvWarmupSec`: how long after coming into force the rule does not route by blocks yet.
    pub warmup: Nanos,
}

/// Where the events of an engine are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPorts {
    /// `kvZmqPort`: rank r publishes at this port + r.
    pub publish: u16,
    /// `kvReplayPort` (this gateway's own), else `kvZmqPort` + `LLB_KV_REPLAY_PORT_OFFSET`: rank r replays at
    /// this port + r; 0: as the engine tells, else none.
    pub replay: u16,
    /// `kvZmqBind` (this gateway's own): the engines connect, so the gateway listens on these ports.
    pub bind: bool,
}

impl Default for KvPorts {
    fn default() -> Self {
        KvPorts { publish: 5557, replay: 0, bind: false }
    }
}

/// Whether a decision is for a rank or only for an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankMode {
    /// `pin`: the rank is chosen, and the request carries it where the engine takes one.
    #[default]
    Pin,
    /// `union`: an endpoint counts as holding what any of its ranks holds.
    Union,
}

impl RankMode {
    /// As in a rule's `kvRankMode`.
    pub const fn word(self) -> &'static str {
        match self {
            RankMode::Pin => "pin",
            RankMode::Union => "union",
        }
    }
}

/// `explain_header` (this gateway's own): what of its receipt an answer carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainHeader {
    /// Nothing.
    #[default]
    Off,
    /// The receipt's id, to ask `warmpath ctl explain` with.
    Id,
    /// All of it.
    Full,
}
