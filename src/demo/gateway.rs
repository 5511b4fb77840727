//! The gateway of the demo, in this process and a folder that goes with it: one rule for each side. Owns its start, what
//! it is asked, and its end; it starts, serves and goes down as `warmpath serve` does.

use super::pool::{Pool, Side};
use super::simulated::SEED;
use crate::plane::{Driver, Known, Plane, Texts};
use crate::serve;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use warmpath_admin::{AdminFault, Options, Outside};
use warmpath_core::control::{DataPlane, KvPlane, RankReport, ShardReport, SourceReport};
use warmpath_core::environment::Environment;
use warmpath_core::shared::Tier;
use warmpath_ring::{Sizes, clock};
use warmpath_shards::Settings;
use warmpath_shards::budget::Budget;
use warmpath_shards::fleet::Plan;

/// Bytes for request bodies and waiting answers.
const BODY_BYTES: u64 = 256 << 20;

/// The index of blocks: small, since an inventory looks through all of it.
const KNOWN: Known = Known { bytes: 2 << 20, holders: 64, core: None };

/// Times that the event core is asked until it answers.
const PATIENCE: usize = 5;

/// Keys asked for at once.
const PAGE: usize = 10_000;

/// The running gateway.
pub struct Gateway {
    plane: Plane,
    admin: JoinHandle<Result<(), AdminFault>>,
    addresses: [SocketAddr; 2],
    driver: &'static str,
    folder: Folder,
}

/// What the gateway told its operator and was not shown yet: it may not write over what is on the screen.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep(sentence: &str) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push(sentence.into());
}

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The port of the exact side; else a free one.
    pub port: Option<u16>,
    /// `kvExactMode` of that side: 3, or 0 to see what it is good for.
    pub mode: u8,
}

impl Gateway {
    /// Starts one before the engines of both sides.
    pub fn start(pool: &dyn Pool, wanted: Wanted) -> Result<Gateway, String> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let exact = at(wanted.port.map_or_else(free_port, Ok)?);
        let addresses = [at(free_port()?), exact];
        let folder = Folder::new()?;
        let rules = folder.path.join("rules.json");
        std::fs::write(&rules, rule_bodies(addresses, pool, wanted.mode).to_string())
            .map_err(|e| format!("{}: can't be written: {e}", rules.display()))?;
        let environment = Environment {
            none_hash_seed: Some(SEED.into()),
            secret: serve::random(),
            ..Environment::default()
        };
        let (driver, plane) = plane(&environment)?;
        let admin = admin(&folder.path, rules, environment, &plane)?;
        Ok(Gateway { plane, admin, addresses, driver, folder })
    }

    /// Where requests of a side go.
    pub fn address(&self, side: Side) -> SocketAddr {
        self.addresses[side as usize]
    }

    /// What the shards report.
    pub fn reports(&self) -> Vec<ShardReport> {
        self.plane.fleet.reports()
    }

    /// What is known of the cache of an engine of the exact side; `None` if there is no answer.
    pub fn known(&self, engine: usize) -> Option<RankReport> {
        let source = self.source(engine)?;
        source.ranks.into_iter().next()
    }

    /// The keys of the blocks that an engine of the exact side is known to hold, as `ctl kv inventory` lists them.
    pub fn inventory(&self, engine: usize) -> Option<BTreeSet<u64>> {
        let source = self.source(engine)?.source;
        let (mut keys, mut from) = (BTreeSet::new(), 0);
        loop {
            let ask = || self.plane.kv.inventory(source, 0, Tier::Gpu, from, PAGE);
            let page = (0..PATIENCE).find_map(|_| ask())?;
            keys.extend(page.keys);
            match page.next {
                Some(next) => from = next,
                None => return Some(keys),
            }
        }
    }

    /// Only the exact rule has sources, numbered as its endpoints are.
    fn source(&self, engine: usize) -> Option<SourceReport> {
        // On a busy machine the event core may be late with an answer.
        let mut sources = (0..PATIENCE).find_map(|_| self.plane.kv.report())?.sources;
        sources.sort_by_key(|source| source.source);
        sources.into_iter().nth(engine)
    }

    /// What it told its operator since this was asked.
    pub fn said(&self) -> Vec<String> {
        std::mem::take(&mut SAID.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it has gone down, for example by Ctrl-C.
    pub fn is_over(&self) -> bool {
        self.admin.is_finished()
    }

    /// Ends it by the signal that ends `serve`.
    pub fn end(self) -> Result<(), String> {
        if !self.admin.is_finished() {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
                .map_err(|e| format!("the gateway can't be told to end: {e}"))?;
        }
        ended(self.admin)?;
        self.plane.join()
    }

    /// What it runs on, in words.
    pub fn ground(&self) -> String {
        let shards = self.plane.shards();
        format!("{shards} shard{} on {}", if shards == 1 { "" } else { "s" }, self.driver)
    }

    /// The socket that `warmpath ctl` speaks to it by.
    pub fn socket(&self) -> PathBuf {
        self.folder.path.join("ctl.sock")
    }
}

/// A rule in turn and one by blocks, each over its side's engines. Where real ones publish they tell themselves.
fn rule_bodies(addresses: [SocketAddr; 2], pool: &dyn Pool, mode: u8) -> Value {
    let facts = pool.facts();
    let rule = |side: Side| {
        let address = addresses[side as usize];
        let endpoint = |at: SocketAddr| json!({"endpointIP": at.ip(), "targetPort": at.port(), "weight": 1});
        let endpoints: Vec<_> = pool.endpoints(side).into_iter().map(endpoint).collect();
        json!({
            "serviceArguments": {
                "externalIP": address.ip(), "port": address.port(), "protocol": "tcp", "mode": 4,
                "name": side.word(), "model_name": facts.model, "sel": 0, "sse_mode": true,
                // An ending engine closes connections as a request may come on them; made-up answers cost
                // nothing to make again elsewhere.
                "retry_before_first_byte": 1,
            },
            "endpoints": endpoints,
        })
    };
    let mut exact = rule(Side::Exact);
    if mode != 0 {
        for (member, value) in [
            ("kvExactMode", json!(mode)),
            ("kvEngineType", json!("vllm")),
            ("kvHashAlgo", json!("sha256_cbor")),
            ("kvBlockSize", json!(facts.block_size)),
            ("kvWarmupSec", json!(0)),
        ] {
            exact["serviceArguments"][member] = value;
        }
        if let Some((live, replay)) = facts.event_ports {
            exact["serviceArguments"]["kvZmqPort"] = json!(live);
            exact["serviceArguments"]["kvReplayPort"] = json!(replay);
        }
    }
    json!([rule(Side::Turns), exact])
}

/// Shards on io_uring, or where that can't be had on epoll.
fn plane(environment: &Environment) -> Result<(&'static str, Plane), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings::default();
    let plan = Plan {
        shards: cores.min(2),
        cores: Vec::new(),
        sizes: Sizes::default(),
        settings,
        connections: None,
        seed: serve::random(),
    };
    let start = |driver| {
        Plane::start(driver, &plan, Arc::new(Budget::new(BODY_BYTES)), environment, KNOWN, &Texts::default())
    };
    let on_epoll = |fault: String| {
        keep(&format!("{fault}; the demo goes on with epoll"));
        start(Driver::Epoll).map(|plane| ("epoll", plane))
    };
    start(Driver::Uring).map(|plane| ("io_uring", plane)).or_else(on_epoll)
}

/// The admin thread, once it serves.
fn admin(
    folder: &Path,
    rules: PathBuf,
    environment: Environment,
    plane: &Plane,
) -> Result<JoinHandle<Result<(), AdminFault>>, String> {
    let outside = Outside {
        data_plane: plane.fleet.clone(),
        environment: Arc::new(environment),
        kv: plane.kv.clone(),
        now: clock::now,
        wall: serve::wall,
        random: serve::random,
        say: keep,
    };
    let options = Options {
        admin: SocketAddr::from(([127, 0, 0, 1], 0)),
        socket: folder.join("ctl.sock"),
        state_dir: folder.join("state"),
        rules_file: Some(rules),
        lame_duck: Duration::ZERO,
        drain_timeout: Duration::from_secs(10),
        ..Options::default()
    };
    std::fs::create_dir_all(&options.state_dir)
        .map_err(|e| format!("{}: can't be made: {e}", options.state_dir.display()))?;
    let (started, waiting) = channel();
    let thread = std::thread::spawn(move || {
        warmpath_admin::run(&options, outside, |_| {
            // Whoever waited may be gone only if this process is ending.
            let _ = started.send(());
        })
    });
    match waiting.recv() {
        Ok(()) => Ok(thread),
        Err(_) => Err(ended(thread).err().unwrap_or_else(|| "the gateway ended at once".into())),
    }
}

fn ended(admin: JoinHandle<Result<(), AdminFault>>) -> Result<(), String> {
    match admin.join() {
        Ok(done) => done.map_err(|fault| fault.to_string()),
        Err(_) => Err("the admin thread ended by a panic; see its message above".into()),
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    listener.map(|at| at.port()).map_err(|e| format!("no free port on loopback: {e}"))
}

/// A folder of this process in the system's place for such; removed when dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Folder, String> {
        let path = std::env::temp_dir().join(format!("warmpath-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| {
            format!("{}: can't be made: {e}; set TMPDIR to a folder that can", path.display())
        })?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
