//! How each kind names its blocks, keeps its cache and tells of it. Must never hold state: what a process
//! draws at its start is passed in.

use std::sync::Arc;

use serde_json::Value;

use super::{Kind, Reply, sglang, trtllm, vllm};
use crate::engine::blocks::{CacheEvent, Digest, Space};
use crate::engine::cache::{Cache, Pool, PrefixSet, Radix};
use crate::engine::config::Config;
use crate::engine::http::Head;
use crate::engine::openai::Ask;
use crate::engine::text::{digest, digest_tokens};
use crate::engine::version::Version;

/// What events are written with.
#[derive(Debug, Clone)]
pub struct Tongue {
    /// The release.
    pub version: Version,
    /// Tokens per block.
    pub block_size: usize,
    /// Whole digests instead of numbers (vLLM).
    pub hash_bytes: bool,
    /// Ranks of the engine.
    pub ranks: usize,
}

/// How cache events leave an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// Published over ZeroMQ.
    Published,
    /// Kept until somebody drains them over HTTP.
    Drained,
    /// Not at all.
    Silent,
}

/// The digests of one prompt's blocks, in order.
#[derive(Debug, Clone)]
pub enum Chain {
    /// vLLM.
    Vllm(vllm::hash::Chain),
    /// SGLang.
    Sglang(sglang::hash::Chain),
    /// TensorRT-LLM.
    Trtllm(trtllm::hash::Chain),
    /// llama.cpp has no block names; these are made up.
    Llamacpp(u64),
}

impl Chain {
    /// The digest of the next block.
    pub fn next(&mut self, tokens: &[u32]) -> Digest {
        match self {
            Chain::Vllm(chain) => chain.next(tokens),
            Chain::Sglang(chain) => chain.next(tokens),
            Chain::Trtllm(chain) => Digest::new(&chain.next(tokens).to_be_bytes()),
            Chain::Llamacpp(parent) => {
                *parent = digest_tokens(*parent, tokens);
                Digest::new(&parent.to_be_bytes())
            }
        }
    }
}

impl Kind {
    /// The release that is simulated unless another is asked for.
    pub fn default_version(self) -> Version {
        Version::new(match self {
            Kind::Vllm => "0.32.0",
            Kind::Sglang => "0.5.23",
            Kind::Trtllm => "1.3.0rc24",
            Kind::Llamacpp => "b11434",
        })
    }

    /// Refuses a release whose behaviour is not known here, in words.
    pub fn check_version(self, version: &Version) -> Result<(), String> {
        let (known, cure) = match (self, version.numbers()) {
            (Kind::Vllm, [0, 23..=33, _]) => (true, ""),
            (Kind::Vllm, _) => (false, "0.23.0 to 0.33.0"),
            (Kind::Sglang, [0, 5, 18 | 19 | 23]) => (true, ""),
            (Kind::Sglang, _) => (false, "0.5.18, 0.5.19 or 0.5.23"),
            (Kind::Trtllm | Kind::Llamacpp, _) => (
                *version == self.default_version(),
                match self {
                    Kind::Trtllm => "1.3.0rc24",
                    _ => "b11434",
                },
            ),
        };
        if known {
            Ok(())
        } else {
            Err(format!("{} of {} is not known; give {cure}", version.text, self.name()))
        }
    }

    /// The digest that a process takes for "no parent".
    pub fn root(self, config: &Config, chance: [u8; 32]) -> Digest {
        let hashing = &config.hashing;
        match self {
            Kind::Vllm => vllm::hash::root(hashing.algo, &config.release(), hashing.seed.as_deref(), chance),
            _ => Digest::new(&[]),
        }
    }

    /// The chain of a prompt. `root` and `chance` are the process's.
    pub fn chain(self, config: &Config, root: Digest, chance: [u8; 32], space: &Arc<Space>) -> Chain {
        match self {
            Kind::Vllm => Chain::Vllm(vllm::hash::Chain::new(
                config.hashing.algo,
                &config.release(),
                root,
                space.clone(),
            )),
            Kind::Sglang => Chain::Sglang(sglang::hash::Chain::new(&config.release(), space, chance)),
            Kind::Trtllm => Chain::Trtllm(trtllm::hash::Chain::new(space)),
            Kind::Llamacpp => {
                let lora = space.lora.as_ref().map_or("", |lora| &lora.name);
                Chain::Llamacpp(digest(&[lora.as_bytes()]))
            }
        }
    }

    /// The 64 bits by which the world knows a block.
    pub fn key(self, digest: &Digest) -> u64 {
        match self {
            Kind::Vllm => digest.last8(),
            Kind::Sglang | Kind::Trtllm | Kind::Llamacpp => digest.first8(),
        }
    }

    /// An empty cache.
    pub fn cache(self, config: &Config) -> Cache {
        let (blocks, size, host) = (config.cache_blocks, config.block_size, config.host_blocks);
        match self {
            Kind::Vllm => Cache::Pool(Pool::new(blocks, size, host)),
            Kind::Sglang => Cache::Radix(Radix::new(blocks, host)),
            Kind::Trtllm | Kind::Llamacpp => Cache::Set(PrefixSet::new(blocks, host)),
        }
    }

    /// Whether removals that follow each other are told together.
    pub fn gathers_removals(self) -> bool {
        self == Kind::Sglang
    }

    /// Whether a new process first tells that its cache was cleared.
    pub fn clears_at_start(self) -> bool {
        self == Kind::Sglang
    }

    /// Tokens of a prompt that its prefill puts into the cache: TensorRT-LLM leaves the last one out.
    pub fn prefilled(self, prompt: usize) -> usize {
        if self == Kind::Trtllm { prompt.saturating_sub(1) } else { prompt }
    }

    /// Whether the unfilled block at a sequence's end is kept (TensorRT-LLM).
    pub fn keeps_parts(self) -> bool {
        self == Kind::Trtllm
    }

    /// How events leave.
    pub fn telling(self) -> Telling {
        match self {
            Kind::Vllm | Kind::Sglang => Telling::Published,
            Kind::Trtllm => Telling::Drained,
            Kind::Llamacpp => Telling::Silent,
        }
    }

    /// A published batch; empty for a kind that publishes none. `time` is in Unix seconds.
    pub fn batch(self, tongue: &Tongue, time: f64, rank: usize, events: &[CacheEvent]) -> Vec<u8> {
        match self {
            Kind::Vllm => vllm::events::batch(tongue, time, rank, events),
            Kind::Sglang => sglang::events::batch(tongue, time, rank, events),
            Kind::Trtllm | Kind::Llamacpp => Vec::new(),
        }
    }

    /// What stands in front of a drained stream.
    pub fn first_drained(self, config: &Config) -> Option<Value> {
        (self == Kind::Trtllm).then(|| trtllm::events::created(config.cache_blocks, config.host_blocks))
    }

    /// A drained event's data.
    pub fn drained(self, event: &CacheEvent) -> Option<Value> {
        if self == Kind::Trtllm { trtllm::events::data(event) } else { None }
    }

    /// A drained event with its number.
    pub fn numbered(self, tongue: &Tongue, number: u64, data: Value, rank: usize) -> Value {
        trtllm::events::numbered(tongue, number, data, rank)
    }

    /// Whether replay answers carry the topic: vLLM from 0.26 on, SGLang in 0.5.23.
    pub fn replays_topic(self, version: &Version) -> bool {
        match self {
            Kind::Vllm => version.at_least(0, 26, 0),
            _ => version.at_least(0, 5, 23),
        }
    }

    /// Whether an engine binds for this host, and else connects to it. `*` and `::` bind in both, SGLang
    /// binds `0.0.0.0` too.
    pub fn binds(self, host: &str) -> bool {
        matches!(host, "*" | "::" | "[::]") || (self == Kind::Sglang && host == "0.0.0.0")
    }

    /// The rank that a request asks for, if any; the error is its refusal.
    pub fn pinned_rank(self, head: &Head, ask: &Ask, ranks: usize) -> Result<Option<usize>, Reply> {
        let header = head.header("x-data-parallel-rank").map(str::trim);
        let number = header.map(str::parse::<i64>);
        let wanted = match (self, number) {
            (Kind::Vllm, Some(Ok(rank))) => Some(rank),
            (Kind::Sglang, Some(Err(_))) => {
                return Err(self.error(400, "BadRequestError", "X-Data-Parallel-Rank must be an integer"));
            }
            (Kind::Sglang, number) => number.and_then(Result::ok).or(ask.rank),
            _ => None,
        };
        match wanted {
            None => Ok(None),
            Some(rank) if (0..ranks as i64).contains(&rank) => Ok(usize::try_from(rank).ok()),
            Some(rank) => {
                let words = format!("data_parallel_rank {rank} is out of range; there are {ranks} ranks");
                Err(self.error(400, "BadRequestError", &words))
            }
        }
    }

    /// Refuses what an engine refuses of a request's members: a salt, or one that it does not know.
    pub fn check_cache_members(self, config: &Config, ask: &Ask) -> Result<(), Reply> {
        let words = match (self, ask.salt.as_deref()) {
            (Kind::Vllm, Some(salt)) => vllm::check_salt(&config.release(), salt),
            (Kind::Trtllm, _) => match trtllm::pair::unknown_member(ask) {
                Some(name) => return Err(trtllm::pair::forbidden(name)),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        words.map_err(|words| self.error(400, "BadRequestError", words))
    }

    /// Whether this request makes the engine tell again of the prefix it reuses: vLLM from 0.26 on, on
    /// `vllm_xargs: {"kv_cache_report_mode": "full"}`.
    pub fn reports_reused(self, config: &Config, ask: &Ask) -> bool {
        self == Kind::Vllm && config.release().at_least(0, 26, 0) && ask.report_full
    }
}
