//! `LLB_FC_…`, and the older `LLB_PD_…` of pairs: what the environment says of admission, for rules that are silent. Owns
//! the names and their ranges.

use super::Reading;
use crate::rule::GateMode;
use crate::{MILLISECOND, Nanos, SECOND};

/// Requests that a ceiling may allow at most; as `fc_max_outstanding` and its siblings.
pub const CEILING_MAX: u64 = 100_000;
/// Requests that may wait at most; as `fc_max_queue_depth`.
pub const QUEUE_MAX: u64 = 65_536;
/// Milliseconds that a request may wait at most; as `fc_max_queue_wait_ms`.
pub const WAIT_MAX_MS: u64 = 3_600_000;

/// Each value as far as it is given; the numbers' 0 is as good as not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateEnvironment {
    /// `LLB_FC_MODE`.
    pub mode: Option<GateMode>,
    /// `LLB_FC_MAX_OUTSTANDING`.
    pub outstanding: Option<u32>,
    /// `LLB_FC_EP_MAX_INFLIGHT`.
    pub per_endpoint: Option<u32>,
    /// `LLB_FC_PREFILL_MAX_INFLIGHT`.
    pub per_prefill: Option<u32>,
    /// `LLB_FC_DECODE_MAX_INFLIGHT`.
    pub per_decode: Option<u32>,
    /// `LLB_FC_MAX_QUEUE_DEPTH`.
    pub queue: Option<u32>,
    /// `LLB_FC_MAX_QUEUE_WAIT_MS`.
    pub wait: Option<Nanos>,
    /// `LLB_FC_ADAPTIVE`.
    pub adaptive: Option<bool>,
    /// `LLB_FC_WARMUP_MS`.
    pub warmup: Option<Nanos>,
    /// `LLB_FC_TENANT_MAX_SHARE_PCT`.
    pub tenant_share: Option<u8>,
    /// `LLB_FC_EXPOSE_HEADERS`.
    pub expose: Option<bool>,
    /// The older gate of pairs.
    pub pairs: PairAdmission,
}

/// What held pairs back before there were `fc_` members: in force where a rule with prefill and decode endpoints, and
/// `LLB_FC_MODE`, say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairAdmission {
    /// `LLB_PD_MAX_INFLIGHT_PER_EP`: requests at one prefill endpoint.
    pub per_prefill: Option<u32>,
    /// `LLB_PD_QUEUE_DEPTH_PER_EP`: requests that may wait for each prefill endpoint, to 64.
    pub queue_per_prefill: Option<u32>,
    /// `LLB_PD_MAX_PARK_SEC`: how long; unset: as long as prefill may take.
    pub wait: Option<Nanos>,
}

pub(super) fn read<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> GateEnvironment {
    let mode = mode(reading);
    let (adaptive, expose) = (reading.switch("LLB_FC_ADAPTIVE"), reading.switch("LLB_FC_EXPOSE_HEADERS"));
    let mut given = |name, most| reading.optional(name, 0..=most, "it is taken as unset").filter(|n| *n > 0);
    GateEnvironment {
        mode,
        outstanding: given("LLB_FC_MAX_OUTSTANDING", CEILING_MAX).map(|most| most as u32),
        per_endpoint: given("LLB_FC_EP_MAX_INFLIGHT", CEILING_MAX).map(|most| most as u32),
        per_prefill: given("LLB_FC_PREFILL_MAX_INFLIGHT", CEILING_MAX).map(|most| most as u32),
        per_decode: given("LLB_FC_DECODE_MAX_INFLIGHT", CEILING_MAX).map(|most| most as u32),
        queue: given("LLB_FC_MAX_QUEUE_DEPTH", QUEUE_MAX).map(|depth| depth as u32),
        wait: given("LLB_FC_MAX_QUEUE_WAIT_MS", WAIT_MAX_MS).map(|wait| wait * MILLISECOND),
        adaptive,
        warmup: given("LLB_FC_WARMUP_MS", WAIT_MAX_MS).map(|warmup| warmup * MILLISECOND),
        tenant_share: given("LLB_FC_TENANT_MAX_SHARE_PCT", 100).map(|share| share as u8),
        expose,
        pairs: PairAdmission {
            per_prefill: given("LLB_PD_MAX_INFLIGHT_PER_EP", CEILING_MAX).map(|most| most as u32),
            queue_per_prefill: given("LLB_PD_QUEUE_DEPTH_PER_EP", 64).map(|depth| depth as u32),
            wait: given("LLB_PD_MAX_PARK_SEC", 3_600).map(|seconds| seconds * SECOND),
        },
    }
}

fn mode<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> Option<GateMode> {
    let name = "LLB_FC_MODE";
    let word = reading.text(name)?;
    let mode = GateMode::from_word(word.trim());
    if mode.is_none() {
        reading.warn(name, &word, "none of off, observe, enforce", "it is taken as unset");
    }
    mode
}
