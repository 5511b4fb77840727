//! What the process's environment says of routing and admission, read once at start. Owns the names of the variables,
//! their ranges and what a wrong value becomes; must never read the environment itself: it is passed in.
//!
//! A wrong value never stops the gateway: the default stands and the operator is told. A wrong seed is refused
//! where it matters, by the rule that needs it.

mod attest;
mod gate;

pub use gate::{GateEnvironment, PairAdmission};

use crate::attest::Cadence;
use crate::block::BlockSize;
use crate::decide::tuning::{LbMode, Tuning};
use crate::engine::{Algo, Seed, Terms, Version};
use crate::{MILLISECOND, Nanos, SECOND};
use std::ops::RangeInclusive;

/// How far loads may lie apart under `LLB_KV_LOADGUARD`: the default of `pd_balance_abs_threshold`.
const LOAD_GUARD: u32 = 3;

/// Answers of 5xx in a row that open a breaker.
const ORIGIN_ERRORS: u8 = 3;

/// Pauses between two drains of a TensorRT-LLM endpoint, in milliseconds.
const POLL_MIN_MS: u64 = 5;
const POLL_MAX_MS: u64 = 20;

/// Seconds that each half of a pair may take to its first byte.
const PAIR_SEC: u64 = 30;

/// What the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `LLB_KV_NONE_HASH_SEED`: `PYTHONHASHSEED` of the vLLM engines, to the letter; empty is absent.
    pub none_hash_seed: Option<String>,
    /// `LLB_KV_LONG_SEED=1`: seeds over 23 bytes are taken.
    pub long_seed: bool,
    /// Secret of the gateway's own block names, drawn by the caller.
    pub secret: u64,
    /// How decisions weigh.
    pub tuning: Tuning,
    /// `LOXILB_KV_TRTLLM_POLL_MIN_MS` and `…_MAX_MS`: the least and the longest pause between two drains of a
    /// TensorRT-LLM endpoint, 1 to 10,000 ms.
    pub drain_pause: (Nanos, Nanos),
    /// `LLB_KV_REPLAY_PORT_OFFSET`: where engines replay, counted from where they publish; 0 (also when unset):
    /// as `kvReplayPort` or the engine says.
    pub replay_offset: u16,
    /// `LOXILB_KV_MAX_BLOCKS`: blocks that are counted for one endpoint, 1,000 to 100,000,000; `None`: as many
    /// as memory allows.
    pub max_blocks: Option<u32>,
    /// `LOXILB_KV_ATTEST_…`: when proofs are asked for.
    pub attest: Cadence,
    /// `LLB_FC_…`: admission.
    pub gate: GateEnvironment,
    /// `LLB_PD_PREFILL_TIMEOUT_SEC`: how long prefill of a pair may take, and then decode to its first event, 1 to
    /// 3,600 s.
    pub pair_phase: Nanos,
    /// `LLB_PD_MAX_TOTAL_INFLIGHT`: client connections that are served at once, to 1,000,000; `None`: all.
    pub connections: Option<u32>,
    /// `LLB_PD_ORIGIN_ERR_THRESHOLD`: answers of 5xx in a row that open an endpoint's breaker, 0 (never) to 255.
    pub origin_errors: u8,
}

impl Default for Environment {
    fn default() -> Self {
        Environment {
            none_hash_seed: None,
            long_seed: false,
            secret: 0,
            tuning: Tuning::default(),
            drain_pause: (POLL_MIN_MS * MILLISECOND, POLL_MAX_MS * MILLISECOND),
            replay_offset: 0,
            max_blocks: None,
            attest: Cadence::default(),
            gate: GateEnvironment::default(),
            pair_phase: PAIR_SEC * SECOND,
            connections: None,
            origin_errors: ORIGIN_ERRORS,
        }
    }
}

impl Environment {
    /// Reads all variables by `get`. What comes with it are sentences for the operator, one for each value that
    /// was not taken.
    pub fn read(get: impl Fn(&str) -> Option<String>, secret: u64) -> (Environment, Vec<String>) {
        let mut reading = Reading { get, warnings: Vec::new() };
        let environment = Environment {
            none_hash_seed: reading.text("LLB_KV_NONE_HASH_SEED"),
            long_seed: reading.switch("LLB_KV_LONG_SEED").unwrap_or(false),
            secret,
            tuning: tuning(&mut reading),
            drain_pause: drain_pause(&mut reading),
            replay_offset: reading.number("LLB_KV_REPLAY_PORT_OFFSET", 0..=65_535, 0) as u16,
            max_blocks: reading
                .optional("LOXILB_KV_MAX_BLOCKS", 1_000..=100_000_000, "memory alone bounds them")
                .map(|blocks| blocks as u32),
            attest: attest::read(&mut reading),
            gate: gate::read(&mut reading),
            pair_phase: reading.number("LLB_PD_PREFILL_TIMEOUT_SEC", 1..=3_600, PAIR_SEC) * SECOND,
            connections: reading
                .optional("LLB_PD_MAX_TOTAL_INFLIGHT", 0..=1_000_000, "connections are not bounded")
                .filter(|most| *most > 0)
                .map(|most| most as u32),
            origin_errors: reading.number("LLB_PD_ORIGIN_ERR_THRESHOLD", 0..=255, u64::from(ORIGIN_ERRORS))
                as u8,
        };
        (environment, reading.warnings)
    }

    /// The terms of a contract for plain endpoints of this version.
    pub fn terms(&self, version: Option<Version>, algo: Algo, block_size: BlockSize) -> Terms<'_> {
        Terms {
            version,
            seed: Seed::from_environment(self.none_hash_seed.as_deref()),
            long_seed: self.long_seed,
            secret: self.secret,
            ..Terms::plain(algo, block_size)
        }
    }
}

fn tuning<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> Tuning {
    let default = Tuning::default();
    let load_guard = reading.switch("LLB_KV_LOADGUARD").unwrap_or(false).then_some(LOAD_GUARD);
    let mut within = |name, range, default| reading.number(name, range, u64::from(default)) as u32;
    Tuning {
        mean_load_factor: within("LOXILB_KV_MEAN_LOAD_FACTOR", 100..=1_000, default.mean_load_factor),
        load_penalty: within("LOXILB_KV_LOAD_PENALTY", 1..=100_000, default.load_penalty),
        min_match_tokens: within("LLB_KV_MIN_MATCH_TOKENS", 0..=4_096, default.min_match_tokens),
        seed_every: within("LOXILB_KV_COLDSTART_SEED_N", 0..=1_000_000, default.seed_every),
        seed_below_blocks: within(
            "LOXILB_KV_COLDSTART_MIN_BLOCKS",
            0..=100_000_000,
            default.seed_below_blocks,
        ),
        zero_hit_after: within("LOXILB_KV_ZERO_HIT_N", 1..=1_000_000, default.zero_hit_after),
        host_weight: within("WARMPATH_KV_HOST_WEIGHT", 0..=1_000, default.host_weight),
        disk_weight: within("WARMPATH_KV_DISK_WEIGHT", 0..=1_000, default.disk_weight),
        load_guard,
        mode: mode(reading),
        spill_relief: reading.switch("LOXILB_KV_SPILL_RELIEF"),
        cap_sum_milli: reading.optional(
            "LOXILB_KV_CAP_SUM_MILLI",
            1..=1_000_000_000_000,
            "load is not normalised by capacity",
        ),
    }
}

/// `LOXILB_KV_UNIFIED_MODE` is the older name of one question, asked only where the newer is not answered.
fn mode<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> LbMode {
    let name = "LOXILB_KV_LB_MODE";
    let Some(word) = reading.text(name) else {
        return match reading.switch("LOXILB_KV_UNIFIED_MODE") {
            Some(false) => LbMode::Off,
            _ => LbMode::default(),
        };
    };
    let plain = word.trim().to_ascii_lowercase();
    LbMode::ALL.into_iter().find(|mode| mode.word() == plain).unwrap_or_else(|| {
        let words = LbMode::ALL.map(LbMode::word).join(", ");
        reading.warn(name, &word, &format!("none of {words}"), "hard is used");
        LbMode::default()
    })
}

fn drain_pause<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> (Nanos, Nanos) {
    let (min, max) = ("LOXILB_KV_TRTLLM_POLL_MIN_MS", "LOXILB_KV_TRTLLM_POLL_MAX_MS");
    let least = reading.number(min, 1..=10_000, POLL_MIN_MS);
    let most = reading.number(max, 1..=10_000, POLL_MAX_MS);
    if least <= most {
        return (least * MILLISECOND, most * MILLISECOND);
    }
    reading
        .warnings
        .push(format!("{min} ({least}) is above {max} ({most}); {POLL_MIN_MS} and {POLL_MAX_MS} are used"));
    (POLL_MIN_MS * MILLISECOND, POLL_MAX_MS * MILLISECOND)
}

/// The variables, and what was wrong with them so far.
struct Reading<F> {
    get: F,
    warnings: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Reading<F> {
    /// As it is; empty is absent.
    fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }

    fn number(&mut self, name: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
        self.optional(name, range, &format!("{default} is used")).unwrap_or(default)
    }

    fn optional(&mut self, name: &str, range: RangeInclusive<u64>, instead: &str) -> Option<u64> {
        let value = self.text(name)?;
        let number = value.trim().parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let problem = format!("not a whole number from {} to {}", range.start(), range.end());
            self.warn(name, &value, &problem, instead);
        }
        number
    }

    fn switch(&mut self, name: &str) -> Option<bool> {
        let value = self.text(name)?;
        match value.trim().to_ascii_lowercase().as_str() {
            "1" | "on" | "true" | "yes" => Some(true),
            "0" | "off" | "false" | "no" => Some(false),
            _ => {
                self.warn(name, &value, "neither 1 nor 0", "it is taken as unset");
                None
            }
        }
    }

    fn warn(&mut self, name: &str, value: &str, problem: &str, instead: &str) {
        let shown: String = value.chars().take(64).collect();
        self.warnings.push(format!("{name} is {shown:?}: {problem}; {instead}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::GateMode;
    use std::cell::RefCell;

    fn read(given: &[(&str, &str)]) -> (Environment, Vec<String>) {
        let get = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string());
        Environment::read(get, 7)
    }

    #[test]
    fn an_empty_environment_is_the_default() {
        let (environment, warnings) = read(&[]);
        assert_eq!(environment, Environment { secret: 7, ..Environment::default() });
        assert!(warnings.is_empty(), "{warnings:?}");
        let (blank, warnings) = read(&[("LLB_KV_NONE_HASH_SEED", ""), ("LOXILB_KV_LB_MODE", "")]);
        assert_eq!((blank, warnings), (environment, Vec::new()));
    }

    #[test]
    fn every_variable_reaches_its_place() {
        let (environment, warnings) = read(&[
            ("LLB_KV_NONE_HASH_SEED", " 0"),
            ("LLB_KV_LONG_SEED", "1"),
            ("LLB_KV_MIN_MATCH_TOKENS", "0"),
            ("LLB_KV_LOADGUARD", "on"),
            ("LLB_KV_REPLAY_PORT_OFFSET", "1000"),
            ("LOXILB_KV_LB_MODE", "Adaptive-Soft"),
            ("LOXILB_KV_MEAN_LOAD_FACTOR", "100"),
            ("LOXILB_KV_LOAD_PENALTY", "100000"),
            ("LOXILB_KV_SPILL_RELIEF", "0"),
            ("LOXILB_KV_CAP_SUM_MILLI", "15284310"),
            ("LOXILB_KV_COLDSTART_SEED_N", "3"),
            ("LOXILB_KV_COLDSTART_MIN_BLOCKS", "0"),
            ("LOXILB_KV_ZERO_HIT_N", "9"),
            ("LOXILB_KV_TRTLLM_POLL_MIN_MS", "20"),
            ("LOXILB_KV_TRTLLM_POLL_MAX_MS", "20"),
            ("LOXILB_KV_MAX_BLOCKS", "1000"),
            ("LLB_PD_PREFILL_TIMEOUT_SEC", "3600"),
            ("LLB_PD_ORIGIN_ERR_THRESHOLD", "0"),
            ("WARMPATH_KV_HOST_WEIGHT", "1000"),
            ("WARMPATH_KV_DISK_WEIGHT", "0"),
            ("LLB_FC_MODE", "enforce"),
            ("LLB_FC_MAX_OUTSTANDING", "1"),
            ("LLB_FC_EP_MAX_INFLIGHT", "2"),
            ("LLB_FC_PREFILL_MAX_INFLIGHT", "3"),
            ("LLB_FC_DECODE_MAX_INFLIGHT", "4"),
            ("LLB_FC_MAX_QUEUE_DEPTH", "5"),
            ("LLB_FC_MAX_QUEUE_WAIT_MS", "6"),
            ("LLB_FC_ADAPTIVE", "on"),
            ("LLB_FC_WARMUP_MS", "7"),
            ("LLB_FC_TENANT_MAX_SHARE_PCT", "8"),
            ("LLB_FC_EXPOSE_HEADERS", "off"),
            ("LLB_PD_MAX_INFLIGHT_PER_EP", "9"),
            ("LLB_PD_QUEUE_DEPTH_PER_EP", "10"),
            ("LLB_PD_MAX_PARK_SEC", "11"),
            ("LLB_PD_MAX_TOTAL_INFLIGHT", "12"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        let tuning = Tuning {
            mode: LbMode::AdaptiveSoft,
            mean_load_factor: 100,
            load_penalty: 100_000,
            spill_relief: Some(false),
            cap_sum_milli: Some(15_284_310),
            min_match_tokens: 0,
            seed_every: 3,
            seed_below_blocks: 0,
            zero_hit_after: 9,
            load_guard: Some(3),
            host_weight: 1_000,
            disk_weight: 0,
        };
        let expected = Environment {
            none_hash_seed: Some(" 0".into()),
            long_seed: true,
            secret: 7,
            tuning,
            drain_pause: (20 * MILLISECOND, 20 * MILLISECOND),
            replay_offset: 1_000,
            max_blocks: Some(1_000),
            attest: Cadence::default(),
            gate: GateEnvironment {
                mode: Some(GateMode::Enforce),
                outstanding: Some(1),
                per_endpoint: Some(2),
                per_prefill: Some(3),
                per_decode: Some(4),
                queue: Some(5),
                wait: Some(6 * MILLISECOND),
                adaptive: Some(true),
                warmup: Some(7 * MILLISECOND),
                tenant_share: Some(8),
                expose: Some(false),
                pairs: PairAdmission {
                    per_prefill: Some(9),
                    queue_per_prefill: Some(10),
                    wait: Some(11 * SECOND),
                },
            },
            pair_phase: 3_600 * SECOND,
            connections: Some(12),
            origin_errors: 0,
        };
        assert_eq!(environment, expected);
    }

    #[test]
    fn a_wrong_value_is_told_and_the_default_stands() {
        for (name, value, told) in [
            ("LLB_KV_MIN_MATCH_TOKENS", "4097", "from 0 to 4096; 16 is used"),
            ("LOXILB_KV_MEAN_LOAD_FACTOR", "99", "from 100 to 1000; 175 is used"),
            ("LOXILB_KV_MEAN_LOAD_FACTOR", "1001", "from 100 to 1000; 175 is used"),
            ("LOXILB_KV_LOAD_PENALTY", "0", "from 1 to 100000; 32 is used"),
            ("LOXILB_KV_LOAD_PENALTY", "-1", "from 1 to 100000; 32 is used"),
            ("LOXILB_KV_LOAD_PENALTY", "many", "from 1 to 100000; 32 is used"),
            ("LOXILB_KV_LB_MODE", "loud", "none of off, hard, soft, adaptive, adaptive-soft; hard is used"),
            ("LOXILB_KV_UNIFIED_MODE", "perhaps", "taken as unset"),
            ("LOXILB_KV_SPILL_RELIEF", "2", "taken as unset"),
            ("LOXILB_KV_CAP_SUM_MILLI", "0", "load is not normalised"),
            ("LOXILB_KV_MAX_BLOCKS", "999", "memory alone bounds them"),
            ("LLB_KV_LONG_SEED", "si", "taken as unset"),
            ("LLB_PD_MAX_TOTAL_INFLIGHT", "1000001", "from 0 to 1000000; connections are not bounded"),
            ("LLB_PD_QUEUE_DEPTH_PER_EP", "65", "from 0 to 64; it is taken as unset"),
            ("LLB_FC_MODE", "inherit", "none of off, observe, enforce; it is taken as unset"),
            ("LLB_FC_MAX_OUTSTANDING", "100001", "from 0 to 100000; it is taken as unset"),
            ("LLB_FC_TENANT_MAX_SHARE_PCT", "101", "from 0 to 100; it is taken as unset"),
            ("LLB_PD_PREFILL_TIMEOUT_SEC", "0", "from 1 to 3600; 30 is used"),
            ("LLB_PD_ORIGIN_ERR_THRESHOLD", "256", "from 0 to 255; 3 is used"),
            ("LLB_KV_REPLAY_PORT_OFFSET", "65536", "0 is used"),
            ("WARMPATH_KV_HOST_WEIGHT", "1001", "500 is used"),
            ("LOXILB_KV_TRTLLM_POLL_MIN_MS", "21", "is above LOXILB_KV_TRTLLM_POLL_MAX_MS (20); 5 and 20"),
            ("LOXILB_KV_TRTLLM_POLL_MAX_MS", "4", "(5) is above LOXILB_KV_TRTLLM_POLL_MAX_MS (4); 5 and 20"),
        ] {
            let (environment, warnings) = read(&[(name, value)]);
            assert_eq!(environment, Environment { secret: 7, ..Environment::default() }, "{name}={value}");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains(name) && warnings[0].contains(told), "{warnings:?}");
            assert!(warnings[0].contains(value), "{warnings:?}");
        }
        let (_, warnings) = read(&[("LOXILB_KV_LB_MODE", &"x".repeat(10_000))]);
        assert!(warnings[0].len() < 250, "bounded");
    }

    #[test]
    fn the_older_mode_is_asked_only_where_the_newer_is_silent() {
        let mode = |given: &[(&str, &str)]| read(given).0.tuning.mode;
        for off in ["0", "off", "FALSE", "no"] {
            assert_eq!(mode(&[("LOXILB_KV_UNIFIED_MODE", off)]), LbMode::Off, "{off}");
        }
        assert_eq!(mode(&[("LOXILB_KV_UNIFIED_MODE", "1")]), LbMode::Hard);
        assert_eq!(mode(&[("LOXILB_KV_UNIFIED_MODE", "0"), ("LOXILB_KV_LB_MODE", "soft")]), LbMode::Soft);
    }

    /// Operators find every variable in the README.
    #[test]
    fn every_variable_is_documented() {
        let asked = RefCell::new(Vec::new());
        Environment::read(
            |name| {
                asked.borrow_mut().push(name.to_string());
                None
            },
            0,
        );
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        assert!(asked.borrow().len() > 15);
        for name in asked.borrow().iter() {
            assert!(readme.contains(&format!("`{name}`")), "{name}");
        }
    }
}
