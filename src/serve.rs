//! `warmpath serve`: shards and admin thread from a command line. Owns the resolution of flags into plans;
//! must never serve before both sides are ready.

use crate::plane::{Driver, Known, Plane, Texts};
use crate::sizes::{Bytes, Cores};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use warmpath_admin::{Options, Outside};
use warmpath_core::environment::Environment;
use warmpath_core::{MILLISECOND, Nanos};
use warmpath_ring::{Sizes, clock};
use warmpath_shards::budget::Budget;
use warmpath_shards::fleet::{Plan, TextPlan};
use warmpath_shards::{SPARE_BYTES_MAX, Settings};

/// Run the gateway.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  warmpath serve --rules rules.json
  warmpath serve --rules rules.toml --shards 4 --cores 2-5 --memory 4G
  warmpath serve --driver epoll          where io_uring is forbidden

A rule file is a JSON array of rule bodies (or TOML [[rule]] tables):
  [{\"serviceArguments\": {\"externalIP\": \"127.0.0.1\", \"port\": 8080, \"protocol\": \"tcp\", \"mode\": 4},
    \"endpoints\": [{\"endpointIP\": \"127.0.0.1\", \"targetPort\": 8000, \"weight\": 1}]}]")]
pub struct ServeArgs {
    /// Rules to create or replace at start; without it, those of the last run are served
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Where accepted rules are kept
    #[arg(long, value_name = "DIR", default_value = "warmpath-state")]
    state_dir: PathBuf,
    /// Where REST is served; other addresses than loopback need --admin-tokens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11111")]
    admin: SocketAddr,
    /// File of hashed tokens, of which REST over TCP asks for one; `warmpath ctl token NAME` makes them
    #[arg(long, value_name = "FILE")]
    admin_tokens: Option<PathBuf>,
    /// The unix socket of `warmpath ctl` [default: DIR/ctl.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Threads that serve requests [default: all cores but one]
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Cores to pin them to, like 2-5,8 [default: all, from the last]
    #[arg(long, value_name = "LIST")]
    cores: Option<Cores>,
    /// How shards speak with the kernel
    #[arg(long, value_name = "DRIVER", default_value = "uring")]
    driver: Driver,
    /// Bytes for everything this process holds: buffers, bodies, queues
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    memory: Bytes,
    /// Bytes of it for the index of cached blocks, 24 a block up to 64 holders [default: a quarter]
    #[arg(long, value_name = "SIZE")]
    index_memory: Option<Bytes>,
    /// Ranks of endpoints that may hold blocks at once; those with blocks in host memory or on disk count more
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    index_holders: u16,
    /// Core to pin the thread to that follows cache events [default: not pinned]
    #[arg(long, value_name = "CORE")]
    event_core: Option<usize>,
    /// Threads for the text of long prompts; with 0 these are not routed by blocks
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=64))]
    token_cores: u16,
    /// Cores to pin them to, like 2-5,8 [default: not pinned]
    #[arg(long, value_name = "LIST")]
    token_core_list: Option<Cores>,
    /// Where tokenizers/MODEL/tokenizer.json is found, with __ for each slash of the model's name
    #[arg(long, value_name = "DIR", default_value = "/etc/loxilb")]
    config_root: PathBuf,
    /// After SIGTERM, seconds in which readiness is off and connections are still accepted
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    lame_duck: f64,
    /// After that, seconds that running requests may take
    #[arg(long, value_name = "S", default_value_t = 300.0)]
    drain_timeout: f64,
    /// Seconds between two questions for an engine's load, where rules need it
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    scrape_interval: f64,
    /// Completion queue entries of each ring; small ones make its rare paths ordinary, for tests
    #[arg(long, value_name = "N", hide = true)]
    completions: Option<u32>,
    /// Milliseconds that a request waits for a token core; long where tests must not depend on the machine
    #[arg(long, value_name = "MS", default_value_t = 50, hide = true)]
    token_wait: u32,
    /// Leave out a default feature, to measure its cost
    #[arg(long, value_name = "FEATURE", hide = true)]
    without: Vec<Feature>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Feature {
    Forwarded,
    RequestId,
    Peek,
    Receipts,
    Learn,
}

/// Serves until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<(), String> {
    let mut plan = plan(args)?;
    std::fs::create_dir_all(&args.state_dir).map_err(|e| {
        format!("--state-dir {}: can't be made: {e}; choose a folder that can", args.state_dir.display())
    })?;
    raise_open_files();
    let environment = Arc::new(environment());
    plan.settings.pair_phase = environment.pair_phase;
    plan.connections = environment.connections;
    let known = known(args)?;
    let texts = texts(args)?;
    let budget = Arc::new(Budget::new(body_memory(args.memory, &plan, known.bytes, texts.bytes)?));
    let plane = Plane::start(args.driver, &plan, budget, &environment, known, &texts)?;
    let outside = Outside {
        data_plane: plane.fleet.clone(),
        kv: plane.kv.clone(),
        environment,
        now: clock::now,
        wall,
        random,
        say,
    };
    let options = Options {
        admin: args.admin,
        admin_tokens: args.admin_tokens.clone(),
        socket: args.socket.clone().unwrap_or_else(|| args.state_dir.join("ctl.sock")),
        state_dir: args.state_dir.clone(),
        rules_file: args.rules.clone(),
        lame_duck: seconds("--lame-duck", args.lame_duck)?,
        drain_timeout: seconds("--drain-timeout", args.drain_timeout)?,
        scrape_interval: seconds("--scrape-interval", args.scrape_interval)?,
    };
    let shards = plan.shards;
    warmpath_admin::run(&options, outside, |admin| {
        eprintln!("warmpath: {shards} shard(s) ready; admin at http://{admin}/netlox/v1");
    })
    .map_err(|e| e.to_string())?;
    plane.join()
}

/// What the process's environment says of exact routing; the operator is told what of it is not taken.
fn environment() -> Environment {
    let get = |name: &str| match std::env::var_os(name)?.into_string() {
        Ok(value) => Some(value),
        Err(value) => {
            say(&format!("{name} is {value:?}, which is no UTF-8; it is taken as unset"));
            None
        }
    };
    let (environment, warnings) = Environment::read(get, random());
    warnings.iter().for_each(|warning| say(warning));
    environment
}

fn plan(args: &ServeArgs) -> Result<Plan, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = args.shards.unwrap_or(cores.saturating_sub(1).max(1));
    if shards == 0 || shards > 256 {
        return Err(format!("--shards {shards}: must be 1 to 256"));
    }
    let pinned = match &args.cores {
        Some(Cores(list)) => list.clone(),
        None => (0..cores).rev().collect(),
    };
    if let Some(core) = pinned.iter().find(|core| **core >= cores) {
        return Err(format!("--cores: core {core} does not exist here; there are cores 0 to {}", cores - 1));
    }
    if shards > pinned.len() {
        eprintln!("warmpath: {shards} shards share {} core(s); each would rather have its own", pinned.len());
    }
    let token_wait = Nanos::from(args.token_wait) * MILLISECOND;
    let mut settings = Settings { token_wait, ..Settings::default() };
    for feature in &args.without {
        match feature {
            Feature::Forwarded => settings.features.forwarded = false,
            Feature::RequestId => settings.features.request_id = false,
            Feature::Peek => settings.features.peek = false,
            Feature::Receipts => settings.features.receipts = false,
            Feature::Learn => settings.features.learn = false,
        }
    }
    let mut sizes = Sizes::default();
    sizes.completions = args.completions.unwrap_or(sizes.completions).max(2);
    Ok(Plan { shards, cores: pinned, sizes, settings, connections: None, seed: random() })
}

/// The index of blocks: a quarter of `--memory` unless the operator says otherwise.
fn known(args: &ServeArgs) -> Result<Known, String> {
    let bytes = args.index_memory.map_or(args.memory.0 / 4, |bytes| bytes.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(core) = args.event_core.filter(|core| *core >= cores) {
        return Err(format!("--event-core {core}: does not exist here; there are cores 0 to {}", cores - 1));
    }
    Ok(Known { bytes, holders: args.index_holders.into(), core: args.event_core })
}

/// The part of `--memory` (one in this many) that checkpoints of prompts get.
const CHECKPOINTS_SHARE: u64 = 16;

fn texts(args: &ServeArgs) -> Result<Texts, String> {
    let cores = args.token_core_list.clone().unwrap_or_default().0;
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(core) = cores.iter().find(|core| **core >= there) {
        return Err(format!(
            "--token-core-list: core {core} does not exist here; there are cores 0 to {}",
            there - 1
        ));
    }
    let root = Some(args.config_root.clone());
    let plan = TextPlan { root, token_cores: args.token_cores.into(), cores };
    Ok(Texts { bytes: args.memory.0 / CHECKPOINTS_SHARE, plan })
}

/// What is left of `--memory` for bodies and waiting answers, once the fixed parts are taken.
fn body_memory(memory: Bytes, plan: &Plan, index: u64, checkpoints: u64) -> Result<u64, String> {
    const BASE: u64 = 64 << 20;
    const LEAST: u64 = 64 << 20;
    let buffers = u64::from(plan.sizes.buffers) * u64::from(plan.sizes.buffer_bytes);
    let shard = buffers + SPARE_BYTES_MAX as u64;
    let fixed = BASE + index + checkpoints + plan.shards as u64 * shard;
    match memory.0.checked_sub(fixed) {
        Some(bodies) if bodies >= LEAST => Ok(bodies),
        _ => Err(format!(
            "--memory {memory} is too small: {} shard(s) of {} with {} for the process, {} for the index of \
             blocks, {} for checkpoints of prompts and at least {} for request bodies need {}",
            plan.shards,
            Bytes(shard),
            Bytes(BASE),
            Bytes(index),
            Bytes(checkpoints),
            Bytes(LEAST),
            Bytes(fixed + LEAST)
        )),
    }
}

/// Each connection is an open file: takes all that the system lets this process have.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it may not be raised, what there is must do; running out is reported when it happens.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn seconds(flag: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|_| format!("{flag} {value}: must be seconds, 0 or more"))
}

/// Tells the operator one sentence.
pub fn say(sentence: &str) {
    eprintln!("warmpath: {sentence}");
}

/// Time since the Unix epoch.
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Bits that differ from start to start; rule ids and probe times need no more.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
