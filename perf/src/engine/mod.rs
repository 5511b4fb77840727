//! Simulated LLM engines: an OpenAI surface with the habits of vLLM, SGLang, TensorRT-LLM or
//! llama.cpp, chosen timing, a bounded prefix cache, fault switches and exact counts.
//! Must never import another crate of this workspace, so that agreement with the gateway means
//! something; must never pretend to be a real model: tokens and text are made up (`text`).
//!
//! Each engine runs on a thread of its own with a single-threaded runtime, whether started from the
//! command line or in-process: `start(Config::default())` takes a free port and returns a `Handle`.
//! Inspection and fault switches are on the same port: `GET /sim/stats`, `GET /sim/faults`,
//! `POST /sim/faults`, `POST /sim/reset`.

pub mod cache;
pub mod cli;
mod date;
pub mod faults;
mod generate;
pub mod http;
pub mod kinds;
pub mod openai;
mod reply;
mod serve;
mod sim;
pub mod stats;
mod stream;
pub mod text;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};

use crate::Error;
use cache::PrefixCache;
use faults::Faults;
pub use kinds::Kind;
use stats::Stats;

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

/// How a simulated engine is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which engine.
    pub kind: Kind,
    /// Address or name to listen on.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Served model names, at least one.
    pub models: Vec<String>,
    /// Timing.
    pub timing: Timing,
    /// Prefix cache bound in blocks.
    pub cache_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Tokens of an answer when the request does not bound it lower.
    pub tokens: u64,
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
            host: "127.0.0.1".into(),
            port: 0,
            models: vec!["sim".into()],
            timing: Timing { ttft: Duration::ZERO, itl: Duration::ZERO, prefill_tps: 0 },
            cache_blocks: 262_144 / kind.block_size(),
            block_size: kind.block_size(),
            tokens: 16,
            max_running: 0,
            keep_alive: KeepAlive { requests: 0, idle: Duration::from_secs(5) },
            seed: 0,
            sink_over: 64 * 1024 * 1024,
            faults: Faults::default(),
        }
    }
}

/// What the tasks of one engine share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub config: Config,
    pub addr: SocketAddr,
    pub started: u64,
    pub faults: watch::Sender<Faults>,
    /// Places for executions.
    pub places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub stats: Stats,
    pub cache: PrefixCache,
}

impl Engine {
    fn new(config: Config, addr: SocketAddr) -> Self {
        let cache = PrefixCache::new(config.cache_blocks, config.block_size);
        let faults = watch::Sender::new(config.faults.clone());
        let state = Mutex::new(State { stats: Stats::default(), cache });
        let unlimited = Semaphore::MAX_PERMITS;
        let places = match config.max_running {
            0 => unlimited,
            bound => bound.min(unlimited),
        };
        Engine { config, addr, started: unix_now(), faults, places: Semaphore::new(places), state }
    }

    /// Counts and cache; held only for the moment, never across an await.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts now.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        Stats { blocks: state.cache.len() as u64, ..state.stats.clone() }
    }
}

/// Unix seconds now.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A running engine. Dropping it stops the engine.
#[derive(Debug)]
pub struct Handle {
    /// Where it listens.
    pub addr: SocketAddr,
    engine: Arc<Engine>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// The counts now.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Replaces all fault switches, also while the engine refuses connections.
    pub fn set_faults(&self, faults: Faults) {
        self.engine.faults.send_replace(faults);
    }

    /// The fault switches now.
    pub fn faults(&self) -> Faults {
        self.engine.faults.borrow().clone()
    }

    /// Stops at once: the port is free and every connection closed on return.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shut();
    }
}

/// Starts an engine on a thread of its own. It listens when this returns.
pub fn start(config: Config) -> Result<Handle, Error> {
    if config.models.iter().all(|name| name.is_empty()) {
        return Err(Error::new("the engine serves no model; name one with --model NAME"));
    }
    let listener = listen(&config)?;
    let addr = listener
        .local_addr()
        .map_err(|e| Error::new(format!("the listening socket has no address ({e})")))?;
    let listener = Some(listener).filter(|_| !config.faults.refuse);
    let engine = Arc::new(Engine::new(config, addr));
    let stop = watch::Sender::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(format!("the engine's runtime did not start ({e}); check the limit of open files"))
    })?;
    let (shared, stopping) = (engine.clone(), stop.subscribe());
    let thread = std::thread::Builder::new()
        .name(format!("engine-{}", addr.port()))
        .spawn(move || runtime.block_on(serve::run(shared, listener, stopping)))
        .map_err(|e| {
            Error::new(format!("the engine's thread did not start ({e}); check the limit of threads"))
        })?;
    Ok(Handle { addr, engine, stop, thread: Some(thread) })
}

fn listen(config: &Config) -> Result<TcpListener, Error> {
    let (host, port) = (config.host.as_str(), config.port);
    let cannot = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::new(format!(
            "port {port} on {host} is taken by another process; choose another with --port, or stop that process"
        )),
        _ => Error::new(format!("cannot listen on {host} port {port} ({e}); check --host and --port")),
    };
    let addr = (host, port).to_socket_addrs().map_err(cannot)?.next();
    let addr = addr.ok_or_else(|| Error::new(format!("host {host} has no address; check --host")))?;
    TcpListener::bind(addr).map_err(cannot)
}
