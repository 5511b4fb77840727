//! What a rule says of admission (`fc_*`), with what the environment says where it is silent. Owns the typed members
//! and where each value is from; must never hold a value of the moment.

use crate::{Nanos, SECOND};

/// The capacity gate of a rule. Of each number 0 means that there is no such bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateTerms {
    /// `fc_mode`.
    pub mode: Said<GateMode>,
    /// `fc_max_outstanding`: requests of the service at its engines.
    pub outstanding: Said<u32>,
    /// `fc_ep_max_inflight`: requests at one endpoint.
    pub per_endpoint: Said<u32>,
    /// `fc_prefill_max_inflight`: requests at one prefill endpoint.
    pub per_prefill: Said<u32>,
    /// `fc_decode_max_inflight`: requests at one decode endpoint.
    pub per_decode: Said<u32>,
    /// `fc_max_queue_depth`: requests that may wait.
    pub queue: Said<u32>,
    /// `fc_max_queue_wait_ms`: how long one waits at most.
    pub wait: Said<Nanos>,
    /// `fc_adaptive`: the ceiling follows the engines' queues and times to first byte.
    pub adaptive: Said<bool>,
    /// `fc_ttft_target_ms`: time to first byte above which the ceiling falls; 0: it does not look at that.
    pub ttft_target: Nanos,
    /// `fc_telemetry_stale_ms`: engines' numbers older than this say nothing.
    pub stale: Nanos,
    /// `fc_warmup_ms`: how long an endpoint that comes up takes to its full share.
    pub warmup: Said<Nanos>,
    /// `fc_tenant_max_share_pct`: percent of the ceiling that one tenant may have.
    pub tenant_share: Said<u8>,
    /// `fc_fair`: among those that wait, whose tenant was served less goes first.
    pub fair: bool,
    /// `fc_expose_headers`: refusals tell the gate's numbers.
    pub expose: Said<bool>,
    /// It is in force by the older variables of pairs alone: refusals carry the codes of that time.
    pub by_pairs: bool,
}

impl Default for GateTerms {
    fn default() -> Self {
        GateTerms {
            mode: Said::default(),
            outstanding: Said::default(),
            per_endpoint: Said::default(),
            per_prefill: Said::default(),
            per_decode: Said::default(),
            queue: Said::default(),
            wait: Said::of(None, None, WAIT),
            adaptive: Said::default(),
            ttft_target: 0,
            stale: 30 * SECOND,
            warmup: Said::default(),
            tenant_share: Said::default(),
            fair: false,
            expose: Said::default(),
            by_pairs: false,
        }
    }
}

/// How long a request waits where a queue is declared and no time.
pub const WAIT: Nanos = 5 * SECOND;

/// `fc_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateMode {
    /// No gate.
    #[default]
    Off,
    /// It counts what it would do, and lets all pass.
    Observe,
    /// It holds back and refuses.
    Enforce,
}

impl GateMode {
    /// As in a rule.
    pub const fn word(self) -> &'static str {
        match self {
            GateMode::Off => "off",
            GateMode::Observe => "observe",
            GateMode::Enforce => "enforce",
        }
    }

    /// By the word of a rule or of the environment.
    pub fn from_word(word: &str) -> Option<GateMode> {
        [GateMode::Off, GateMode::Observe, GateMode::Enforce].into_iter().find(|mode| mode.word() == word)
    }
}

/// A value and who said it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said<T> {
    /// The value.
    pub value: T,
    /// Who.
    pub by: By,
}

/// Who said a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Nobody: it is the default.
    #[default]
    Default,
    /// The gateway's environment (`LLB_FC_…`).
    Environment,
    /// The rule.
    Rule,
}

impl By {
    /// As in a readback's `source`.
    pub const fn word(self) -> &'static str {
        match self {
            By::Default => "default",
            By::Environment => "env",
            By::Rule => "rule",
        }
    }
}

impl<T> Said<T> {
    /// The rule's word, else the environment's, else the default.
    pub fn of(rule: Option<T>, environment: Option<T>, default: T) -> Said<T> {
        match (rule, environment) {
            (Some(value), _) => Said { value, by: By::Rule },
            (None, Some(value)) => Said { value, by: By::Environment },
            (None, None) => Said { value: default, by: By::Default },
        }
    }
}
