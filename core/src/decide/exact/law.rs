//! The formulas of exact routing, as the loxilb AI gateway publishes them. Owns their arithmetic, integers
//! alone; must never know a list of candidates.

use super::Candidate;
use crate::decide::tuning::{LbMode, Tuning};

/// What a block on the GPU is worth, and one missing costs.
pub(super) const BLOCK: u64 = 1000;

/// What a block that a request in flight will bring is worth: less than one that is there, since that request
/// may fail, and more than one in the host's memory, since it will be on the GPU.
const PROMISED: u64 = 800;

/// A rank with unknown capacity counts as 1, and no more than this is believed.
const CAPACITY_MAX: u32 = 8_000_000;

/// The sum of capacities, in thousandths, that the adaptive formulas were fitted to.
const CAPACITY_FITTED: u64 = 15_284_310;

/// What a candidate's overlap is worth, in thousandths of a block on the GPU. Below 2^42.
pub(super) fn worth(candidate: &Candidate, tuning: &Tuning) -> u64 {
    let [gpu, host, disk] = candidate.runs.map(u64::from);
    let promised = u64::from(candidate.promised);
    // Blocks from..to at `weight`, or as promised where that is more.
    let part = |from: u64, to: u64, weight: u64| {
        let coming = to.min(promised).saturating_sub(from);
        let length = to.saturating_sub(from);
        coming * weight.max(PROMISED) + (length - coming) * weight
    };
    let host_weight = u64::from(tuning.host_weight).min(BLOCK);
    let disk_weight = u64::from(tuning.disk_weight).min(BLOCK);
    gpu * BLOCK
        + part(gpu, host, host_weight)
        + part(host.max(gpu), disk, disk_weight)
        + part(disk.max(host).max(gpu), promised, PROMISED)
}

/// Leading blocks that must be held or promised for a hit: `LLB_KV_MIN_MATCH_TOKENS` in blocks, rounded up, no
/// more than the prompt has, at least one.
pub(super) fn minimum_depth(tuning: &Tuning, block_tokens: u32, blocks: u32) -> u32 {
    tuning.min_match_tokens.div_ceil(block_tokens.max(1)).min(blocks).max(1)
}

/// A candidate's capacity as the formulas take it.
pub(super) fn capacity(candidate: &Candidate) -> u64 {
    u64::from(candidate.capacity.clamp(1, CAPACITY_MAX))
}

/// Load and capacity of a set of endpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub load: u64,
    pub capacity: u64,
}

impl Sums {
    /// Takes an endpoint in.
    pub fn add(&mut self, candidate: &Candidate) {
        self.load += u64::from(candidate.load);
        self.capacity += capacity(candidate);
    }

    /// Requests that an endpoint of `capacity` may carry: `factor` percent of its share of the load, rounded
    /// up, at least 1.
    pub fn cap(&self, factor: u32, capacity: u64) -> u32 {
        let divisor = 100 * self.capacity.max(1);
        let product = u64::from(factor).checked_mul(self.load).and_then(|p| p.checked_mul(capacity));
        let cap = match product {
            Some(product) => product.div_ceil(divisor),
            None => {
                let product = u128::from(factor) * u128::from(self.load) * u128::from(capacity);
                u64::try_from(product.div_ceil(u128::from(divisor))).unwrap_or(u64::MAX)
            }
        };
        u32::try_from(cap).unwrap_or(u32::MAX).max(1)
    }
}

/// The percent of the mean load that caps are made with. `load`: of all endpoints with overlap.
pub(super) fn load_factor(tuning: &Tuning, load: u64) -> u32 {
    match tuning.mode {
        LbMode::Adaptive => {
            let over = normalised(tuning, load).saturating_sub(16).min(10);
            175 + (125 * over / 10) as u32
        }
        LbMode::Off | LbMode::Hard | LbMode::Soft | LbMode::AdaptiveSoft => tuning.mean_load_factor,
    }
}

/// What `soft` and `adaptive-soft` weigh load with.
pub(super) fn load_penalty(tuning: &Tuning, load: u64) -> u64 {
    match tuning.mode {
        LbMode::AdaptiveSoft => 50_000 + 5_000 * normalised(tuning, load).saturating_sub(16).min(10),
        LbMode::Off | LbMode::Hard | LbMode::Soft | LbMode::Adaptive => u64::from(tuning.load_penalty),
    }
}

/// What sending a prompt of `blocks` to a candidate costs: its missing blocks, and its load by capacity.
pub(super) fn cost(candidate: &Candidate, blocks: u32, worth: u64, penalty: u64) -> u64 {
    let missing = (u64::from(blocks) * BLOCK).saturating_sub(worth);
    missing.saturating_add(penalty.saturating_mul(u64::from(candidate.load)) / capacity(candidate))
}

/// The load as a pool of the fitted capacity would have it: L × fitted ÷ told. A told capacity more than eight
/// times away from the fitted one is not believed.
fn normalised(tuning: &Tuning, load: u64) -> u64 {
    match tuning.cap_sum_milli {
        Some(told) if (CAPACITY_FITTED.div_ceil(8)..=CAPACITY_FITTED * 8).contains(&told) => {
            load.saturating_mul(CAPACITY_FITTED) / told
        }
        _ => load,
    }
}
