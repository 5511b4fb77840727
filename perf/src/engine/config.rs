//! How a simulated engine is started: every setting with its default. Must never act on one.

use std::borrow::Cow;
use std::time::Duration;

use super::blocks::Lora;
use super::faults::Faults;
use super::kinds::{HashAlgo, Kind};
use super::publish::Endpoint;
use super::text::Reading;
use super::transfer::Pair;
use super::version::Version;

/// When an engine answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// From the end of the request to the first token, prefill apart.
    pub ttft: Duration,
    /// Between tokens.
    pub itl: Duration,
    /// Uncached prompt tokens computed per second, added to the first token's time; 0 is infinite.
    pub prefill_tps: u64,
}

/// How long a connection lives between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Requests per connection; the last answer says `connection: close`. 0 is unlimited.
    pub requests: u64,
    /// An idle connection is closed after this without a word, as uvicorn does (5 s by default).
    pub idle: Duration,
}

/// How blocks are named, where the kind leaves a choice (vLLM).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hashing {
    /// The algorithm.
    pub algo: HashAlgo,
    /// PYTHONHASHSEED, verbatim; an empty one is a seed.
    pub seed: Option<String>,
    /// Events carry whole digests (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
    pub bytes: bool,
}

/// How the endpoint for tokens goes wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tokenize {
    /// Not at all.
    #[default]
    Right,
    /// The last token is another one.
    Flipped,
    /// 500, as SGLang 0.5.18 answers for some tokenizers.
    Broken,
    /// An answer of another form: without its count.
    Odd,
}

/// What an engine says of itself that is not so, as a fork or a build of one's own may, or does not say; and what a
/// launch with other settings makes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pretence {
    /// The release that `/version` names.
    pub version: Option<Version>,
    /// The block hash that its metrics name.
    pub algo: Option<HashAlgo>,
    /// Answers don't tell how much was cached.
    pub mutes_cached: bool,
    /// The endpoint for tokens.
    pub tokenize: Tokenize,
    /// The token at this place of every prompt is another one than that endpoint says, as with another tokenizer.
    pub flips: Option<usize>,
    /// The type of weights that its information names (SGLang).
    pub dtype: Option<String>,
    /// The model's revision that its information names (SGLang).
    pub revision: Option<String>,
    /// TensorRT-LLM does not describe its blocks and hash, as older versions do not.
    pub hides_blocks: bool,
}

/// Where cache events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    /// Live events of rank 0; rank r has the port r further. None publishes nothing.
    pub live: Option<Endpoint>,
    /// Replay, always bound.
    pub replay: Option<Endpoint>,
    /// First frame of each message.
    pub topic: String,
    /// Batches kept for replay, or events kept for a drain.
    pub buffer_steps: usize,
    /// Minor version of ZMTP 3 to announce: 1 as libzmq 4.3 does, 0 as older ones do.
    pub zmtp_minor: u8,
}

impl Default for Events {
    /// Nothing is published; vLLM's bounds.
    fn default() -> Self {
        Events { live: None, replay: None, topic: String::new(), buffer_steps: 10_000, zmtp_minor: 1 }
    }
}

/// How a simulated engine is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which engine.
    pub kind: Kind,
    /// Which release of it; the kind's own if none.
    pub version: Option<Version>,
    /// Address or name to listen on.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Served model names, at least one; all name the same model.
    pub models: Vec<String>,
    /// Adapters of the first model, served under their own names.
    pub loras: Vec<Lora>,
    /// Data-parallel ranks, each with a cache of its own; at least 1.
    pub ranks: usize,
    /// Timing.
    pub timing: Timing,
    /// Prefix cache bound in blocks, by rank.
    pub cache_blocks: usize,
    /// Blocks of host memory behind it, by rank; 0 offloads nothing.
    pub host_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Names of blocks.
    pub hashing: Hashing,
    /// What it says of itself that is not so, or does not say.
    pub pretence: Pretence,
    /// How text becomes tokens.
    pub reading: Reading,
    /// Cache events.
    pub events: Events,
    /// Tokens of an answer when the request does not bound it lower.
    pub tokens: u64,
    /// Which half of a pair it is, if any.
    pub pair: Option<Pair>,
    /// Requests executed at once; more wait in arrival order (vLLM: `--max-num-seqs`). 0 is unlimited.
    pub max_running: usize,
    /// Connection lifetime.
    pub keep_alive: KeepAlive,
    /// Seed of the generated text.
    pub seed: u64,
    /// Longer bodies are digested and dropped unparsed; a whole answer to two made-up prompt tokens
    /// comes back. For tests with many large bodies.
    pub sink_over: usize,
    /// Switches on from the start.
    pub faults: Faults,
}

impl Default for Config {
    /// vLLM on a free loopback port, answering at once with 16 tokens.
    fn default() -> Self {
        Config::of(Kind::Vllm)
    }
}

impl Config {
    /// As `default`, for a kind, with its usual block size and room for 262,144 tokens.
    pub fn of(kind: Kind) -> Self {
        Config {
            kind,
            version: None,
            host: "127.0.0.1".into(),
            port: 0,
            models: vec!["sim".into()],
            loras: Vec::new(),
            ranks: 1,
            timing: Timing { ttft: Duration::ZERO, itl: Duration::ZERO, prefill_tps: 0 },
            cache_blocks: 262_144 / kind.block_size(),
            host_blocks: 0,
            block_size: kind.block_size(),
            hashing: Hashing::default(),
            pretence: Pretence::default(),
            reading: Reading::default(),
            events: Events::default(),
            tokens: 16,
            pair: None,
            max_running: 0,
            keep_alive: KeepAlive { requests: 0, idle: Duration::from_secs(5) },
            seed: 0,
            sink_over: 64 * 1024 * 1024,
            faults: Faults::default(),
        }
    }

    /// The release to behave as.
    pub fn release(&self) -> Cow<'_, Version> {
        self.version.as_ref().map_or_else(|| Cow::Owned(self.kind.default_version()), Cow::Borrowed)
    }

    /// How long a leg waits for the other.
    pub fn patience(&self) -> Duration {
        self.pair.map_or(Duration::ZERO, |pair| pair.wait)
    }

    /// How long prefill keeps what nobody takes.
    pub fn lease(&self) -> Duration {
        self.pair.map_or(Duration::ZERO, |pair| pair.lease)
    }

    /// The adapter of this name.
    pub fn lora(&self, name: Option<&str>) -> Option<&Lora> {
        self.loras.iter().find(|lora| Some(lora.name.as_str()) == name)
    }
}
