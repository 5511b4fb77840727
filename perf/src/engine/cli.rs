//! The command line of `warmpath engine`: arguments to a `Config`, then one engine in the foreground.
//! Must never start with a value out of range.

use std::time::Duration;

use clap::Args;

use super::blocks::Lora;
use super::faults::Faults;
use super::kinds::{HashAlgo, Telling};
use super::publish::Endpoint;
use super::text::Reading;
use super::transfer::{Connector, Pair, Role};
use super::version::Version;
use super::{Config, Events, Hashing, KeepAlive, Kind, Pretence, Timing, start};
use crate::Error;

const EXAMPLES: &str = "\
Examples:
  A vLLM-like engine that answers after 80 ms and then every 12 ms:
    warmpath engine --port 8001 --model llama --ttft 80 --itl 12

  Prefill that costs time by uncached tokens, with a small prefix cache:
    warmpath engine --kind sglang --port 8002 --model llama --prefill-tps 5000 --cache-blocks 2000

  Look at what it did, make its next three requests fail, and put it right again:
    curl localhost:8001/sim/stats
    curl localhost:8001/sim/faults -d '{\"fail_next\": 3}'
    curl -X POST localhost:8001/sim/reset

  Two ranks that publish cache events at ports 5557 and 5558, with replay, named as PYTHONHASHSEED=0 does:
    warmpath engine --model llama --ranks 2 --kv-events 'tcp://*:5557' --kv-replay 'tcp://*:6557' \
      --hash-algo sha256_cbor --seed 0 --lora sql=/adapters/sql --host-blocks 1000

  Look into its cache; lose the next batch of events; restart it; clear it; cut its event connections:
    curl localhost:8000/sim/cache
    curl localhost:8000/sim/faults -d '{\"kv_lose_next\": 1}'
    curl localhost:8000/sim/cache/restart -d '{\"renewed\": true}'
    curl -X POST localhost:8000/sim/cache/clear
    curl -X POST localhost:8000/sim/events/close

  An engine whose events are drained:
    warmpath engine --kind trtllm --port 8003 --model llama
    curl -X POST localhost:8003/kv_cache_events

  Prefill and decode apart, what went from one to the other, and what a caller did wrong; then prefill whose blocks
  are gone when decode comes:
    warmpath engine --port 8001 --role prefill --pair-port 5600
    warmpath engine --port 8002 --role decode
    curl localhost:8002/sim/stats | jq .pair
    curl localhost:8001/sim/faults -d '{\"pd_door\": \"forget\"}'

  Other switches of pairs: pd_door (\"refuse\", \"stall\"), pd_hand_nothing, pd_pad, pd_finish (\"stop\", \"length\",
  \"not_finished\").

  Other switches of events: kv_double_next, kv_silence, kv_replay (\"refuse\", \"silent\", \"ends_early\",
  \"cut\"), kv_replay_late_ms.

  Other switches: refuse, refuse_ms, close_mid_stream_after, close_before_response, crash_on_marker,
  stall (\"before_head\", \"mid_stream\"), status, half_head, bad_framing, keepalive_close_after,
  early_response, rst, slow_read, health (\"ok\", \"fail\", \"stall\").";

/// Run a simulated engine: an OpenAI surface with made-up tokens, chosen timing and fault switches.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct EngineArgs {
    /// Which engine's paths, shapes and metric names to show
    #[arg(long, value_enum, default_value_t = Kind::Vllm)]
    pub kind: Kind,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Served model name; may be given several times
    #[arg(long = "model", value_name = "NAME", default_value = "sim")]
    pub models: Vec<String>,
    /// Pace of the answers
    #[command(flatten)]
    pub pace: PaceArgs,
    /// Prefix cache bound in blocks [default: room for 262144 tokens]
    #[arg(long, value_name = "N")]
    pub cache_blocks: Option<usize>,
    /// Tokens per cache block [default: the kind's: 16 vllm and sglang, 1 llamacpp, 32 trtllm]
    #[arg(long, value_name = "N")]
    pub block_size: Option<usize>,
    /// What is particular to cache events
    #[command(flatten)]
    pub cache: CacheArgs,
    /// What is particular to one half of a pair
    #[command(flatten)]
    pub pair: PairArgs,
    /// Requests per connection; 0 is unlimited
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keepalive_requests: u64,
    /// Milliseconds after which an idle connection is closed without a word
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    pub keepalive_idle: u64,
    /// Seed of the generated text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub text_seed: u64,
    /// Bytes over which a body is digested and dropped unparsed
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024)]
    pub sink_over: usize,
    /// Fault switches on from the start, as for POST /sim/faults
    #[arg(long, value_name = "JSON")]
    pub faults: Option<String>,
}

/// How long answers take and are.
#[derive(Debug, Clone, Args)]
pub struct PaceArgs {
    /// Milliseconds to the first token, prefill apart
    #[arg(long, value_name = "MS", default_value_t = 50.0)]
    pub ttft: f64,
    /// Milliseconds between tokens
    #[arg(long, value_name = "MS", default_value_t = 10.0)]
    pub itl: f64,
    /// Uncached prompt tokens computed per second; 0 computes them in no time
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub prefill_tps: u64,
    /// Tokens of an answer when the request does not bound it lower
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub tokens: u64,
    /// Requests executed at once; more wait; 0 is unlimited
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_running: usize,
}

/// The cache, its names and its events.
#[derive(Debug, Clone, Args)]
pub struct CacheArgs {
    /// Release to behave as: 0.23.0 to 0.33.0 of vllm; 0.5.18, 0.5.19, 0.5.23 of sglang [default: the kind's]
    #[arg(long, value_name = "VERSION")]
    pub engine_version: Option<String>,
    /// Data-parallel ranks, each with a cache of its own; X-data-parallel-rank pins (vllm, sglang)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub ranks: usize,
    /// Host memory in blocks to which evicted ones go; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub host_blocks: usize,
    /// An adapter; may be given several times
    #[arg(long = "lora", value_name = "NAME=PATH")]
    pub loras: Vec<String>,
    /// Publish cache events here, rank r at the port r further; `*` binds at --host, else it connects
    #[arg(long, value_name = "ENDPOINT")]
    pub kv_events: Option<Endpoint>,
    /// Bind replay here, likewise
    #[arg(long, value_name = "ENDPOINT", requires = "kv_events")]
    pub kv_replay: Option<Endpoint>,
    /// First frame of each batch
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub topic: String,
    /// Batches kept for replay, or events kept for a drain
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub buffer_steps: usize,
    /// Hash of the blocks (vllm)
    #[arg(long, value_enum, default_value_t)]
    pub hash_algo: HashAlgo,
    /// PYTHONHASHSEED, verbatim (vllm) [default: unset]
    #[arg(long, value_name = "TEXT")]
    pub seed: Option<String>,
    /// Events carry whole digests, as with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 (vllm)
    #[arg(long)]
    pub hash_bytes: bool,
}

/// Prefill and decode apart.
#[derive(Debug, Clone, Args)]
pub struct PairArgs {
    /// Be one half of a pair (vllm, sglang, trtllm), or its encoder (vllm)
    #[arg(long, value_enum)]
    pub role: Option<Role>,
    /// Prefill, encode: port at which the next one takes what was computed (vLLM's side channel, SGLang's bootstrap);
    /// 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "role")]
    pub pair_port: u16,
    /// Milliseconds for which prefill keeps what nobody takes
    #[arg(long, value_name = "MS", default_value_t = 30_000.0, requires = "role")]
    pub pair_lease: f64,
    /// Milliseconds for which a leg waits for the other
    #[arg(long, value_name = "MS", default_value_t = 30_000.0, requires = "role")]
    pub pair_wait: f64,
    /// How blocks are transferred (vllm)
    #[arg(long, value_enum, default_value_t, requires = "role")]
    pub connector: Connector,
}

impl PairArgs {
    fn pair(&self, kind: Kind) -> Result<Option<Pair>, Error> {
        let Some(role) = self.role else { return Ok(None) };
        if !kind.pairs() {
            let name = kind.name();
            return Err(Error::new(format!(
                "--role: {name} does prefill and decode in one process; leave it out"
            )));
        }
        Ok(Some(Pair {
            role,
            port: self.pair_port,
            lease: millis("--pair-lease", self.pair_lease)?,
            wait: millis("--pair-wait", self.pair_wait)?,
            connector: self.connector,
        }))
    }
}

impl CacheArgs {
    fn events(&self, kind: Kind) -> Result<Events, Error> {
        if self.kv_events.is_some() && kind.telling() != Telling::Published {
            let why = match kind.telling() {
                Telling::Drained => "its events are drained by POST /kv_cache_events",
                _ => "it has no cache events",
            };
            return Err(Error::new(format!(
                "--kv-events: {} publishes none, {why}; leave it out",
                kind.name()
            )));
        }
        Ok(Events {
            live: self.kv_events.clone(),
            replay: self.kv_replay.clone(),
            topic: self.topic.clone(),
            buffer_steps: self.buffer_steps,
            ..Events::default()
        })
    }

    fn loras(&self) -> Result<Vec<Lora>, Error> {
        let lora = |(at, text): (usize, &String)| match text.split_once('=') {
            Some((name, path)) if !name.is_empty() => {
                Ok(Lora { id: at as u64 + 1, name: name.into(), path: path.into() })
            }
            _ => Err(Error::new(format!("--lora is \"{text}\"; write NAME=PATH"))),
        };
        self.loras.iter().enumerate().map(lora).collect()
    }
}

impl EngineArgs {
    /// The configuration these arguments mean; the error names the argument and what is allowed.
    pub fn config(&self) -> Result<Config, Error> {
        let block_size = self.block_size.unwrap_or(self.kind.block_size());
        let cache_blocks = self.cache_blocks.unwrap_or(262_144 / block_size.max(1));
        let cache = &self.cache;
        for (name, value) in
            [("--block-size", block_size), ("--cache-blocks", cache_blocks), ("--ranks", cache.ranks)]
        {
            if value == 0 {
                return Err(Error::new(format!("{name} is 0; give at least 1")));
            }
        }
        if !(1..=1_000_000).contains(&self.pace.tokens) {
            return Err(Error::new(format!("--tokens is {}; give 1 to 1000000", self.pace.tokens)));
        }
        let faults = match &self.faults {
            Some(text) => Faults::from_json(text.as_bytes())
                .map_err(|words| Error::new(format!("--faults: {words}")))?,
            None => Faults::default(),
        };
        let version = cache.engine_version.as_deref().map(Version::new);
        if let Some(version) = &version {
            let unknown = |words| Error::new(format!("--engine-version: {words}"));
            self.kind.check_version(version).map_err(unknown)?;
        }
        Ok(Config {
            kind: self.kind,
            version,
            loras: cache.loras()?,
            ranks: cache.ranks,
            host_blocks: cache.host_blocks,
            hashing: Hashing { algo: cache.hash_algo, seed: cache.seed.clone(), bytes: cache.hash_bytes },
            pretence: Pretence::default(),
            reading: Reading::default(),
            events: cache.events(self.kind)?,
            host: self.host.clone(),
            port: self.port,
            models: self.models.clone(),
            timing: Timing {
                ttft: millis("--ttft", self.pace.ttft)?,
                itl: millis("--itl", self.pace.itl)?,
                prefill_tps: self.pace.prefill_tps,
            },
            cache_blocks,
            block_size,
            tokens: self.pace.tokens,
            pair: self.pair.pair(self.kind)?,
            max_running: self.pace.max_running,
            keep_alive: KeepAlive {
                requests: self.keepalive_requests,
                idle: Duration::from_millis(self.keepalive_idle),
            },
            seed: self.text_seed,
            sink_over: self.sink_over,
            faults,
        })
    }
}

fn millis(name: &str, value: f64) -> Result<Duration, Error> {
    if !(0.0..=3_600_000.0).contains(&value) {
        return Err(Error::new(format!("{name} is {value}; give milliseconds from 0 to 3600000")));
    }
    Ok(Duration::from_secs_f64(value / 1000.0))
}

/// Runs an engine until SIGINT or SIGTERM.
pub fn run_engine(args: EngineArgs) -> Result<(), Error> {
    let config = args.config()?;
    let (name, models) = (config.kind.name(), config.models.join(", "));
    let handle = start(config)?;
    println!("simulated {name} engine on http://{} serving {models}", handle.addr);
    if let Some(door) = handle.door() {
        println!("decode takes what it computed at {door}");
    }
    for (rank, source) in handle.sources().iter().enumerate() {
        let replay = source.replay.as_ref().map_or(String::new(), |replay| format!(", replay at {replay}"));
        println!("cache events of rank {rank} at {}{replay}", source.live);
    }
    wait_for_signal()?;
    handle.stop();
    Ok(())
}

fn wait_for_signal() -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |e: std::io::Error| Error::new(format!("cannot wait for signals ({e})"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: EngineArgs,
    }

    fn config(line: &str) -> Result<Config, Error> {
        Cli::try_parse_from(format!("engine {line}").split_whitespace())
            .expect("known arguments")
            .args
            .config()
    }

    #[test]
    fn defaults_follow_the_kind() {
        let of =
            |kind: &str| config(&format!("--kind {kind}")).map(|c| (c.block_size, c.cache_blocks)).unwrap();
        assert_eq!(of("vllm"), (16, 16_384));
        assert_eq!(of("sglang"), (16, 16_384));
        assert_eq!(of("trtllm"), (32, 8192));
        assert_eq!(of("llamacpp"), (1, 262_144));
    }

    #[test]
    fn models_add_up_and_times_are_milliseconds() {
        let config = config("--model a --model b --itl 2.5 --keepalive-idle 20").unwrap();
        assert_eq!(config.models, ["a", "b"]);
        assert_eq!(config.timing.itl, Duration::from_micros(2500));
        assert_eq!(config.keep_alive.idle, Duration::from_millis(20));
    }

    #[test]
    fn cache_arguments_reach_the_configuration() {
        let line = "--kind sglang --kv-events tcp://*:0 --kv-replay tcp://*:0 --ranks 2 --host-blocks 9 \
                    --engine-version 0.5.19 --lora a=/x --topic kv-events";
        let config = config(line).unwrap();
        assert_eq!((config.ranks, config.host_blocks, config.events.topic.as_str()), (2, 9, "kv-events"));
        assert_eq!(config.loras, [Lora { id: 1, name: "a".into(), path: "/x".into() }]);
        assert!(!config.release().at_least(0, 5, 23));
        let vllm = self::config("--seed 042 --hash-algo xxhash_cbor --hash-bytes").unwrap().hashing;
        assert_eq!(vllm, Hashing { algo: HashAlgo::XxhashCbor, seed: Some("042".into()), bytes: true });
    }

    #[test]
    fn a_half_of_a_pair_is_named_with_its_port() {
        let pair =
            config("--role prefill --pair-port 5600 --pair-lease 250 --connector mooncake").unwrap().pair;
        let (lease, wait) = (Duration::from_millis(250), Duration::from_secs(30));
        let port = 5600;
        assert_eq!(
            pair,
            Some(Pair { role: Role::Prefill, port, lease, wait, connector: Connector::Mooncake })
        );
        assert_eq!(config("").unwrap().pair, None);
    }

    #[test]
    fn values_out_of_range_are_told_by_name() {
        for line in [
            "--block-size 0",
            "--cache-blocks 0",
            "--tokens 0",
            "--ttft=-1",
            "--faults {\"x\":1}",
            "--ranks 0",
            "--lora x",
            "--engine-version 0.5",
            "--kv-events tcp://*:0 --kind trtllm",
            "--role decode --kind llamacpp",
            "--pair-lease=-1 --role prefill",
        ] {
            let told = config(line).unwrap_err().to_string();
            assert!(told.contains(line.split([' ', '=']).next().unwrap()), "{told}");
        }
    }
}
