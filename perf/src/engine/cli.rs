//! The command line of `warmpath engine`: arguments to a `Config`, then one engine in the foreground.
//! Must never start with a value out of range.

use std::time::Duration;

use clap::Args;

use super::faults::Faults;
use super::{Config, KeepAlive, Kind, Timing, start};
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
    /// Tokens per cache block [default: the kind's: 16 vllm, 1 sglang and llamacpp, 32 trtllm]
    #[arg(long, value_name = "N")]
    pub block_size: Option<usize>,
    /// Requests per connection; 0 is unlimited
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keepalive_requests: u64,
    /// Milliseconds after which an idle connection is closed without a word
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    pub keepalive_idle: u64,
    /// Seed of the generated text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
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

impl EngineArgs {
    /// The configuration these arguments mean; the error names the argument and what is allowed.
    pub fn config(&self) -> Result<Config, Error> {
        let block_size = self.block_size.unwrap_or(self.kind.block_size());
        let cache_blocks = self.cache_blocks.unwrap_or(262_144 / block_size.max(1));
        for (name, value) in [("--block-size", block_size), ("--cache-blocks", cache_blocks)] {
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
        Ok(Config {
            kind: self.kind,
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
            max_running: self.pace.max_running,
            keep_alive: KeepAlive {
                requests: self.keepalive_requests,
                idle: Duration::from_millis(self.keepalive_idle),
            },
            seed: self.seed,
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
        assert_eq!(of("sglang"), (1, 262_144));
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
    fn values_out_of_range_are_told_by_name() {
        for line in ["--block-size 0", "--cache-blocks 0", "--tokens 0", "--ttft=-1", "--faults {\"x\":1}"] {
            let told = config(line).unwrap_err().to_string();
            assert!(told.contains(line.split([' ', '=']).next().unwrap()), "{told}");
        }
    }
}
