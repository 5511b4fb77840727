//! A receipt: where a request went, why, and how it ended. Owns the record that the live table, logs and
//! `explain` print; must never hold a prompt.

use crate::Nanos;
use crate::decide::Reason;
use crate::decide::exact::{self, Explanation, Miss, Shown};
use crate::fault::Fault;
use crate::trust::Finding;
use std::net::SocketAddr;

/// Receipts that each shard keeps: its last ones.
pub const KEPT: usize = 256;

/// Bytes of a request's id that a receipt keeps.
pub const ID_MAX: usize = 64;

/// The record of one finished request.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// When it ended, monotonic.
    pub at: Nanos,
    /// Its `X-Request-Id`, the client's or ours.
    pub id: String,
    /// Number of the service that took it; 0 if none did.
    pub service: u32,
    /// The model it named, possibly empty.
    pub model: String,
    /// Where it went, if anywhere.
    pub endpoint: Option<SocketAddr>,
    /// What decided.
    pub reason: Option<Reason>,
    /// How exact routing decided, or why it did not; `None` where the rule does not ask for it.
    pub exact: Option<ExactReceipt>,
    /// Its other leg, where prefill and decode were two: `endpoint` is that of decode then.
    pub pair: Option<PairReceipt>,
    /// Status that the client got; 0 if it left before.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the answer was an event stream.
    pub streamed: bool,
    /// From the whole head to the answer's first byte; 0 if none came.
    pub first_byte: Nanos,
    /// From the whole head to the end.
    pub total: Nanos,
    /// Bytes of the answer relayed.
    pub bytes_out: u64,
    /// Connection attempts and replays beyond the first.
    pub retries: u8,
}

/// What a request that was served by two endpoints says of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairReceipt {
    /// Where its prompt was computed, or was to be.
    pub prefill: SocketAddr,
    /// How far it came.
    pub phase: PairPhase,
    /// From prefill's first dispatch to its end; 0 if it did not end.
    pub prefill_took: Nanos,
}

/// How far a pair came, as in `loxilb_ai_pd_requests_total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PairPhase {
    /// It ended before a leg was sent, or nobody can tell.
    #[default]
    Unknown,
    /// It ended while its prompt was computed.
    Prefill,
    /// It ended in decode before the answer was whole.
    Decode,
    /// The answer was whole.
    Complete,
}

impl PairPhase {
    /// All of them.
    pub const ALL: [PairPhase; 4] =
        [PairPhase::Unknown, PairPhase::Prefill, PairPhase::Decode, PairPhase::Complete];

    /// The word that metrics and receipts use.
    pub const fn word(self) -> &'static str {
        match self {
            PairPhase::Unknown => "unknown",
            PairPhase::Prefill => "prefill",
            PairPhase::Decode => "decode",
            PairPhase::Complete => "complete",
        }
    }
}

/// What exact routing says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactReceipt {
    /// What it saw and did.
    pub explanation: Explanation,
    /// The data-parallel rank, where one was chosen.
    pub rank: Option<u8>,
    /// Tokens of the prompt, where they were counted.
    pub prompt_tokens: u32,
    /// Tokens of it that the endpoint was expected to have cached.
    pub predicted_tokens: u32,
    /// Tokens of it that the engine says it had cached; `None` where its answer does not tell.
    pub cached_tokens: Option<u32>,
    /// Tokens of the prompt as the engine counted them; `None` where its answer does not tell.
    pub engine_tokens: Option<u32>,
    /// What that proves of the endpoint, if anything.
    pub finding: Option<Finding>,
}

impl ExactReceipt {
    /// The candidate that was chosen, if one was.
    pub fn chosen(&self) -> Option<&Shown> {
        match self.explanation.outcome {
            exact::Outcome::Chosen { .. } => self.explanation.shown().first(),
            exact::Outcome::Missed(_) => None,
        }
    }

    /// Why it was left to the selector, if it was.
    pub fn missed(&self) -> Option<Miss> {
        match self.explanation.outcome {
            exact::Outcome::Chosen { .. } => None,
            exact::Outcome::Missed(miss) => Some(miss),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An engine's answer was relayed whole.
    Completed,
    /// The gateway answered by itself (model list and the like).
    Answered,
    /// It was refused or failed.
    Faulted(Fault),
    /// The client left first.
    ClientLeft,
}
