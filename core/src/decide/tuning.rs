//! The knobs of exact routing, one value for the whole gateway. Owns their names and defaults, which are
//! those of the loxilb AI gateway; must never read the environment.

/// How overlap is weighed against load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LbMode {
    /// Overlap alone.
    Off,
    /// The largest overlap under a cap of requests in flight.
    #[default]
    Hard,
    /// The least sum of missing blocks and weighted load.
    Soft,
    /// As `Hard`, with a cap that widens with the load.
    Adaptive,
    /// As `Soft`, with a weight of the load that grows with the load.
    AdaptiveSoft,
}

impl LbMode {
    /// All of them.
    pub const ALL: [LbMode; 5] =
        [LbMode::Off, LbMode::Hard, LbMode::Soft, LbMode::Adaptive, LbMode::AdaptiveSoft];

    /// As in `LOXILB_KV_LB_MODE`.
    pub const fn word(self) -> &'static str {
        match self {
            LbMode::Off => "off",
            LbMode::Hard => "hard",
            LbMode::Soft => "soft",
            LbMode::Adaptive => "adaptive",
            LbMode::AdaptiveSoft => "adaptive-soft",
        }
    }
}

/// The knobs. Whoever fills them holds the ranges; a value outside of them is computed with as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `LOXILB_KV_LB_MODE`.
    pub mode: LbMode,
    /// `LOXILB_KV_MEAN_LOAD_FACTOR`: the cap of `hard` in percent of the mean load, 100 to 1000.
    pub mean_load_factor: u32,
    /// `LOXILB_KV_LOAD_PENALTY`: what `soft` weighs load with, 1 to 100,000.
    pub load_penalty: u32,
    /// `LOXILB_KV_SPILL_RELIEF`: whether a winner over the whole pool's cap is relieved by an endpoint without
    /// overlap; unset: on for a single pool, off for prefill/decode.
    pub spill_relief: Option<bool>,
    /// `LOXILB_KV_CAP_SUM_MILLI`: the sum of capacities that the adaptive modes were tuned for, in thousandths
    /// of what the endpoints tell; unset: load is not normalised by capacity.
    pub cap_sum_milli: Option<u64>,
    /// `LLB_KV_MIN_MATCH_TOKENS`: tokens that must match for a hit, 0 to 4096; 0: one block.
    pub min_match_tokens: u32,
    /// `LOXILB_KV_COLDSTART_SEED_N`: every so many hits a cold endpoint is seeded; 0: never.
    pub seed_every: u32,
    /// `LOXILB_KV_COLDSTART_MIN_BLOCKS`: an endpoint with fewer blocks is cold; 0: only an empty one.
    pub seed_below_blocks: u32,
    /// `LOXILB_KV_ZERO_HIT_N`: lookups in a row without a hit that are suspicious.
    pub zero_hit_after: u32,
    /// `LLB_KV_LOADGUARD`: the spread of loads beyond which exact routing stands back; unset: never.
    pub load_guard: Option<u32>,
    /// What a block in the host's memory is worth, in thousandths of one on the GPU.
    pub host_weight: u32,
    /// What a block on a disk or in a remote store is worth, in thousandths of one on the GPU.
    pub disk_weight: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            mode: LbMode::Hard,
            mean_load_factor: 175,
            load_penalty: 32,
            spill_relief: None,
            cap_sum_milli: None,
            min_match_tokens: 16,
            seed_every: 16,
            seed_below_blocks: 16,
            zero_hit_after: 50,
            load_guard: None,
            host_weight: 500,
            disk_weight: 200,
        }
    }
}
