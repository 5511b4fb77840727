//! Simulated LLM engines: an OpenAI surface with the habits of vLLM, SGLang, TensorRT-LLM or
//! llama.cpp, chosen timing, a bounded prefix cache, fault switches and exact counts.
//! Must never import another crate of this workspace, so that agreement with the gateway means
//! something; must never pretend to be a real model: tokens and text are made up (`text`).
//!
//! Each engine runs on a thread of its own with a single-threaded runtime, whether started from the
//! command line or in-process: `start(Config::default())` takes a free port and returns a `Handle`.
//! Inspection and fault switches are on the same port: `GET /sim/stats`, `GET /sim/faults`,
//! `POST /sim/faults`, `POST /sim/reset`, and for the cache `GET /sim/cache`, `POST /sim/cache/clear`,
//! `POST /sim/cache/restart`, `POST /sim/events/close`.
//!
//! A prompt's way through the cache: `openai` (its tokens) → `sequence` (blocks, named by the chain of
//! `kinds`) → `work` (one execution, step by step) → `cache` (hits, evictions, events) → `rank` (tells) →
//! `publish` (sends).

pub mod blocks;
pub mod cache;
pub mod cli;
pub mod config;
mod date;
pub mod faults;
mod generate;
pub mod http;
pub mod kinds;
pub mod openai;
pub mod publish;
mod rank;
mod reply;
pub mod sequence;
mod serve;
mod sim;
pub mod stats;
mod stream;
pub mod text;
pub mod transfer;
pub mod version;
mod work;

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, mpsc, watch};

use crate::Error;
use blocks::Digest;
pub use config::{Config, Events, Hashing, KeepAlive, Pretence, Timing, Tokenize};
use faults::Faults;
pub use kinds::Kind;
use kinds::{Half, Tongue};
use publish::stream::Batch;
use publish::{Doors, Outlet, Source};
use rank::Rank;
use stats::Stats;
use transfer::{Pair, Role, Shelf};

/// What the tasks of one engine share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub config: Config,
    pub addr: SocketAddr,
    pub faults: watch::Sender<Faults>,
    /// Places for executions.
    pub places: Semaphore,
    /// Where events are told, by rank.
    pub sources: Vec<Source>,
    /// Each change closes the connections of events and replay.
    pub link_closings: watch::Sender<u64>,
    /// Where decode engines take what this one computed.
    pub door: Option<SocketAddr>,
    /// What they can take.
    pub shelf: Shelf,
    tongue: Tongue,
    state: Mutex<State>,
}

/// What a process draws when it starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    /// Unix seconds.
    pub started: u64,
    /// Random bytes, from which what is random in a process comes.
    pub chance: [u8; 32],
    /// The digest that stands for "no parent".
    pub root: Digest,
}

impl Process {
    fn new(config: &Config, started: u64) -> Self {
        let random = RandomState::new();
        let mut chance = [0; 32];
        for (at, part) in chance.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&random.hash_one(at).to_le_bytes());
        }
        Process { started, chance, root: config.kind.root(config, chance) }
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub stats: Stats,
    pub process: Process,
    pub ranks: Vec<Rank>,
    /// Requests that named no rank.
    unpinned: usize,
    /// Requests read as half of a pair.
    legs: u64,
}

impl Engine {
    fn new(config: Config, addr: SocketAddr, door: Option<SocketAddr>, sources: Vec<Source>) -> Self {
        let faults = watch::Sender::new(config.faults.clone());
        let state = Mutex::new(State {
            stats: Stats::default(),
            process: Process::new(&config, unix_now().as_secs()),
            ranks: (0..config.ranks).map(|_| Rank::new(&config)).collect(),
            unpinned: 0,
            legs: 0,
        });
        let unlimited = Semaphore::MAX_PERMITS;
        let places = match config.max_running {
            0 => unlimited,
            bound => bound.min(unlimited),
        };
        let tongue = Tongue {
            version: config.release().into_owned(),
            block_size: config.block_size,
            hash_bytes: config.hashing.bytes,
            ranks: config.ranks,
        };
        let (places, link_closings) = (Semaphore::new(places), watch::Sender::new(0));
        Engine {
            config,
            addr,
            faults,
            places,
            sources,
            link_closings,
            door,
            shelf: Shelf::default(),
            tongue,
            state,
        }
    }

    /// Counts and caches; held only for the moment, never across an await.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts now.
    pub fn stats(&self) -> Stats {
        let (held, orphans) = self.shelf.counts();
        let state = self.state();
        let blocks = state.ranks.iter().map(|rank| rank.cache.count() as u64).sum();
        let mut stats = Stats { blocks, ..state.stats.clone() };
        (stats.pair.held, stats.pair.orphans) = (held, orphans);
        stats
    }

    /// It, as one half of a pair, before a request; `None` if it is none.
    pub fn half(&self) -> Option<Half<'_>> {
        let pair = self.config.pair?;
        let mut state = self.state();
        state.legs += 1;
        let chance: [u8; 8] = *state.process.chance.first_chunk()?;
        Some(Half {
            config: &self.config,
            pair,
            door: self.door,
            engine_id: format!("{:016x}", u64::from_le_bytes(chance)),
            serial: state.legs,
            violations: Vec::new(),
        })
    }

    /// The next rank of those who named none: each in turn.
    pub fn next_rank(&self) -> usize {
        let mut state = self.state();
        state.unpinned += 1;
        (state.unpinned - 1) % self.config.ranks
    }

    /// Ends a step of a rank: what happened in its cache is told.
    pub fn tell(&self, rank: usize) {
        let mut state = self.state();
        if !state.ranks[rank].has_news() {
            return;
        }
        let mut fate = publish::Fate::Sent;
        if matches!(state.ranks[rank].outlet, Outlet::Stream(_) | Outlet::Drain(_)) {
            self.faults.send_if_modified(|faults| {
                fate = faults.take_fate();
                false
            });
        }
        state.ranks[rank].tell(self.config.kind, &self.tongue, rank, unix_now().as_secs_f64(), fate);
    }

    /// A queue of a rank's batches from now on.
    pub fn listen(&self, rank: usize) -> Option<mpsc::Receiver<Batch>> {
        match &mut self.state().ranks[rank].outlet {
            Outlet::Stream(stream) => Some(stream.listen()),
            _ => None,
        }
    }

    /// A rank's kept batches from a number on.
    pub fn kept_since(&self, rank: usize, number: u64) -> Vec<Batch> {
        match &self.state().ranks[rank].outlet {
            Outlet::Stream(stream) => stream.since(number),
            _ => Vec::new(),
        }
    }

    /// Takes all drained events of all ranks.
    pub fn drain(&self) -> serde_json::Value {
        let (mut state, mut all) = (self.state(), Vec::new());
        for (rank, held) in state.ranks.iter_mut().enumerate() {
            if let Outlet::Drain(drain) = &mut held.outlet {
                let numbered = |(n, data)| self.config.kind.numbered(&self.tongue, n, data, rank);
                all.extend(drain.take().into_iter().map(numbered));
            }
        }
        all.into()
    }

    /// Empties the caches; told with each rank's next step. Running requests lose their hold, where a real
    /// engine would refuse.
    pub fn clear_caches(&self) {
        self.state().ranks.iter_mut().for_each(Rank::clear);
    }

    /// What a new process leaves of the old one's cache and events: nothing, numbers from 0, connections
    /// of events closed. With `renewed`, it also draws anew and has started later.
    pub fn restart(&self, renewed: bool) {
        {
            let mut state = self.state();
            let kind = self.config.kind;
            state.ranks.iter_mut().for_each(|rank| rank.restart(kind));
            if renewed {
                let started = unix_now().as_secs().max(state.process.started + 1);
                state.process = Process::new(&self.config, started);
            }
        }
        self.shelf.clear();
        self.close_links();
    }

    /// Closes the connections of events and replay.
    pub fn close_links(&self) {
        self.link_closings.send_modify(|closings| *closings += 1);
    }

    /// All caches as JSON, for comparison with what others believe of them.
    pub fn dump(&self) -> serde_json::Value {
        let (state, kind) = (self.state(), self.config.kind);
        let ranks = state.ranks.iter().enumerate().map(|(number, rank)| rank.dump(kind, number));
        serde_json::json!({
            "kind": kind.name(), "version": self.config.release().text, "block_size": self.config.block_size,
            "started": state.process.started, "ranks": ranks.collect::<Vec<_>>(),
        })
    }
}

/// Time since the Unix epoch.
pub(crate) fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
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

    /// Where decode engines take what it computed, if it is prefill.
    pub fn door(&self) -> Option<SocketAddr> {
        self.engine.door
    }

    /// Where cache events are told, by rank; empty if nowhere.
    pub fn sources(&self) -> &[Source] {
        &self.engine.sources
    }

    /// All caches, as `GET /sim/cache` shows them.
    pub fn caches(&self) -> serde_json::Value {
        self.engine.dump()
    }

    /// Empties the caches, as `POST /sim/cache/clear` does.
    pub fn clear_caches(&self) {
        self.engine.clear_caches();
    }

    /// A new process's cache and events, as `POST /sim/cache/restart` gives them; `renewed` with a later
    /// start time and everything random drawn anew.
    pub fn restart(&self, renewed: bool) {
        self.engine.restart(renewed);
    }

    /// Closes the connections of events and replay.
    pub fn close_links(&self) {
        self.engine.close_links();
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
    let version = config.kind.check_version(&config.release());
    version.map_err(|words| Error::new(format!("the version {words} with --engine-version")))?;
    if config.ranks == 0 {
        return Err(Error::new("the engine has no rank; give --ranks at least 1"));
    }
    if config.pair.is_some() && !config.kind.pairs() {
        return Err(Error::new(format!(
            "{} has no prefill or decode role; leave --role out",
            config.kind.name()
        )));
    }
    if config.pair.is_some_and(|pair| pair.role == Role::Encode) && !config.kind.encodes() {
        return Err(Error::new(format!(
            "{} is no encoder here; use vllm, or another --role",
            config.kind.name()
        )));
    }
    let doors = Doors::open(&config)?;
    let listener = listen(&config.host, config.port, "--port")?;
    let transfer = match config.pair {
        Some(Pair { role: Role::Prefill | Role::Encode, port, .. }) => {
            Some(listen(&config.host, port, "--pair-port")?)
        }
        _ => None,
    };
    let door = transfer.as_ref().and_then(|door| door.local_addr().ok());
    let addr = listener
        .local_addr()
        .map_err(|e| Error::new(format!("the listening socket has no address ({e})")))?;
    let listener = Some(listener).filter(|_| !config.faults.refuse);
    let engine = Arc::new(Engine::new(config, addr, door, doors.sources));
    let stop = watch::Sender::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Error::new(format!("the engine's runtime did not start ({e}); check the limit of open files"))
    })?;
    let (shared, stopping) = (engine.clone(), stop.subscribe());
    let thread = std::thread::Builder::new()
        .name(format!("engine-{}", addr.port()))
        .spawn(move || runtime.block_on(serve::run(shared, (listener, transfer), doors.ranks, stopping)))
        .map_err(|e| {
            Error::new(format!("the engine's thread did not start ({e}); check the limit of threads"))
        })?;
    Ok(Handle { addr, engine, stop, thread: Some(thread) })
}

fn listen(host: &str, port: u16, option: &str) -> Result<TcpListener, Error> {
    let cannot = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::new(format!(
            "port {port} on {host} is taken by another process; choose another with {option}, or stop that process"
        )),
        _ => Error::new(format!("cannot listen on {host} port {port} ({e}); check --host and {option}")),
    };
    let addr = (host, port).to_socket_addrs().map_err(cannot)?.next();
    let addr = addr.ok_or_else(|| Error::new(format!("host {host} has no address; check --host")))?;
    TcpListener::bind(addr).map_err(cannot)
}
