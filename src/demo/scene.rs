//! What the demo shows: simulated engines and a gateway in this process, in a folder that goes with it. Owns
//! starting and ending them; the gateway starts, serves and goes down as `warmpath serve` does.

use super::board::{Clocks, Seen};
use super::talk::Caught;
use super::tokens::ANSWER;
use crate::plane::{Driver, Known, Plane, Texts};
use crate::serve;
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use warmpath_admin::{AdminFault, Options, Outside};
use warmpath_core::control::{DataPlane, KvPlane, ShardReport, SourceReport};
use warmpath_core::environment::Environment;
use warmpath_perf::engine::faults::Faults;
use warmpath_perf::engine::publish::Endpoint;
use warmpath_perf::engine::{Config, Events, Handle, Kind, Timing, start};
use warmpath_ring::{Sizes, clock};
use warmpath_shards::Settings;
use warmpath_shards::budget::Budget;
use warmpath_shards::fleet::Plan;

/// Bytes for request bodies and waiting answers.
const BODY_BYTES: u64 = 256 << 20;

/// Times that free ports are looked for.
const ATTEMPTS: usize = 4;

/// The index of blocks.
const KNOWN: Known = Known { bytes: 16 << 20, holders: 64, core: None };

/// The running parts.
pub struct Scene {
    engines: Arc<Vec<Handle>>,
    resting: bool,
    plane: Plane,
    admin: JoinHandle<Result<(), AdminFault>>,
    address: SocketAddr,
    driver: &'static str,
    folder: Folder,
}

impl Scene {
    /// Starts `engines` engines and a gateway before them.
    pub fn start(engines: usize, port: Option<u16>) -> Result<Scene, String> {
        let engines = pool(engines)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port.map_or_else(free_port, Ok)?));
        let folder = Folder::new()?;
        let rules = folder.path.join("rules.json");
        std::fs::write(&rules, rule_bodies(address, &engines)?.to_string())
            .map_err(|e| format!("{}: can't be written: {e}", rules.display()))?;
        let (driver, plane) = plane()?;
        let admin = admin(&folder.path, rules, &plane)?;
        Ok(Scene { engines: Arc::new(engines), resting: false, plane, admin, address, driver, folder })
    }

    /// Where the gateway listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the engines listen.
    pub fn engines(&self) -> Vec<SocketAddr> {
        self.engines.iter().map(|engine| engine.addr).collect()
    }

    /// What the shards report.
    pub fn reports(&self) -> Vec<ShardReport> {
        self.plane.fleet.reports()
    }

    /// What each engine counted.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = |(index, engine): (usize, &Handle)| {
            let stats = engine.stats();
            Seen {
                running: stats.running,
                prompt: stats.tokens.prompt,
                cached: stats.tokens.cached,
                resting: self.resting && index == 0,
            }
        };
        self.engines.iter().enumerate().map(seen).collect()
    }

    /// Tells whether the gateway has applied every batch of events that the engines have published.
    pub fn caught(&self) -> Caught {
        let (engines, kv) = (self.engines.clone(), self.plane.kv.clone());
        Arc::new(move || {
            let Some(report) = kv.report() else { return false };
            let applied = |source: &SourceReport| source.ranks.first()?.sequence.map(|last| last + 1);
            // The sources numbered first are the endpoints of the rule for `small`, in order.
            let known = report.sources.iter().map(|source| applied(source).unwrap_or(0));
            report.sources.len() >= engines.len()
                && engines.iter().zip(known).all(|(engine, known)| known >= published(engine))
        })
    }

    /// The clock of receipts and that of people, at one moment.
    pub fn clocks(&self) -> Clocks {
        Clocks { now: clock::now(), wall: serve::wall() }
    }

    /// The first of several engines takes no further connection, or does again. What it is serving it ends.
    pub fn rest_first(&mut self, rest: bool) {
        if rest == self.resting || self.engines.len() < 2 {
            return;
        }
        self.resting = rest;
        let off = Faults { refuse: true, keepalive_close_after: Some(1), ..Faults::default() };
        self.engines[0].set_faults(if rest { off } else { Faults::default() });
    }

    /// Whether the gateway has gone down, for example by Ctrl-C.
    pub fn is_over(&self) -> bool {
        self.admin.is_finished()
    }

    /// Ends the gateway by the signal that ends `serve`, then the engines.
    pub fn end(self) -> Result<(), String> {
        if !self.admin.is_finished() {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
                .map_err(|e| format!("the gateway can't be told to end: {e}"))?;
        }
        ended(self.admin)?;
        self.plane.join()
    }

    /// What it is and how to take part.
    pub fn intro(&self) -> String {
        let (address, socket) = (self.address, self.folder.path.join("ctl.sock"));
        let rests = match self.engines.len() {
            1 => "",
            _ => {
                "The first endpoint takes no connections for the middle third of the requests (hash_next: a chat\n\
                 that it would have had).\n"
            }
        };
        format!(
            "warmpath demo: {} simulated engines behind http://{address}, {} shard(s) on {}\n\
             Model small: prompts of token ids. Each goes to the endpoint that holds most of its blocks, as the\n\
             engines' events tell (exact; round_robin: nobody holds any). PREDICTED: tokens expected in its cache;\n\
             CACHED: tokens that its answer says were there.\n\
             Model large: chats. They go by the beginning of their text (hash_home: where that went before;\n\
             hash_bounded: there was too much to do there).\n{rests}\n\
             Chat with it:    curl -N http://{address}/v1/chat/completions -H 'Content-Type: application/json' \
             -d '{{\"model\":\"small\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\
             Look into it:    warmpath ctl --socket {} rules list\n",
            self.engines.len(),
            self.plane.shards(),
            self.driver,
            socket.display()
        )
    }
}

/// Batches of events that an engine has published.
fn published(engine: &Handle) -> u64 {
    engine.caches()["ranks"][0]["next_sequence"].as_u64().unwrap_or(0)
}

/// Engines on loopback addresses of their own, since a rule names one port for the events of all.
fn pool(engines: usize) -> Result<Vec<Handle>, String> {
    let pool = || -> Result<Vec<Handle>, String> {
        let first = engine(0, 0, 0)?;
        let (live, replay) = event_ports(&first)?;
        let rest = (1..engines).map(|index| engine(index, live, replay));
        std::iter::once(Ok(first)).chain(rest).collect()
    };
    // Ports that are free at the first address may be taken at another.
    (1..ATTEMPTS).find_map(|_| pool().ok()).map_or_else(pool, Ok)
}

/// Where an engine publishes its events and replays them.
fn event_ports(engine: &Handle) -> Result<(u16, u16), String> {
    let told = engine.sources().first().and_then(|s| Some((s.live.port, s.replay.as_ref()?.port)));
    told.ok_or_else(|| "a simulated engine tells no events".into())
}

fn engine(index: usize, live: u16, replay: u16) -> Result<Handle, String> {
    let timing = Timing {
        ttft: Duration::from_millis(60),
        itl: Duration::from_millis(20),
        // Slow enough that a cold prompt shows in the first byte.
        prefill_tps: 4000,
    };
    let host = format!("127.0.0.{}", index + 1);
    let door = |port| Some(Endpoint { host: "*".into(), port });
    let events = Events { live: door(live), replay: door(replay), ..Events::default() };
    let models = vec!["small".into(), "large".into()];
    let tokens = ANSWER as u64;
    start(Config { host, models, timing, tokens, events, ..Config::of(Kind::Vllm) })
        .map_err(|e| e.to_string())
}

fn rule_bodies(address: SocketAddr, engines: &[Handle]) -> Result<serde_json::Value, String> {
    let (live, replay) = engines.first().map_or_else(|| Err("there is no engine".into()), event_ports)?;
    let endpoint = |e: &Handle| json!({"endpointIP": e.addr.ip(), "targetPort": e.addr.port(), "weight": 1});
    let endpoints: Vec<_> = engines.iter().map(endpoint).collect();
    let rule = |name: &str, selector: u8| {
        json!({
            "serviceArguments": {
                "externalIP": address.ip(), "port": address.port(), "protocol": "tcp", "mode": 4,
                "name": name, "model_name": name, "sel": selector, "sse_mode": true,
                // A resting engine closes connections as a request may come on them; made-up answers cost
                // nothing to make again elsewhere.
                "retry_before_first_byte": 1,
            },
            "endpoints": endpoints,
        })
    };
    let mut small = rule("small", 0);
    for (member, value) in [
        ("kvExactMode", json!(3)),
        ("kvEngineType", json!("vllm")),
        ("kvHashAlgo", json!("tokens")),
        ("kvWarmupSec", json!(0)),
        ("kvZmqPort", json!(live)),
        ("kvReplayPort", json!(replay)),
    ] {
        small["serviceArguments"][member] = value;
    }
    Ok(json!([small, rule("large", 8)]))
}

/// Shards on io_uring, or where that can't be had on epoll.
fn plane() -> Result<(&'static str, Plane), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings::default();
    let plan = Plan {
        shards: cores.min(2),
        cores: Vec::new(),
        sizes: Sizes::default(),
        settings,
        seed: serve::random(),
    };
    let environment = Environment::default();
    let start = |driver| {
        Plane::start(driver, &plan, Arc::new(Budget::new(BODY_BYTES)), &environment, KNOWN, &Texts::default())
    };
    let on_epoll = |fault: String| {
        eprintln!("warmpath: {fault}; the demo goes on with epoll");
        start(Driver::Epoll).map(|plane| ("epoll", plane))
    };
    start(Driver::Uring).map(|plane| ("io_uring", plane)).or_else(on_epoll)
}

/// The admin thread, once it serves.
fn admin(folder: &Path, rules: PathBuf, plane: &Plane) -> Result<JoinHandle<Result<(), AdminFault>>, String> {
    let outside = Outside {
        data_plane: plane.fleet.clone(),
        environment: Arc::default(),
        kv: plane.kv.clone(),
        now: clock::now,
        wall: serve::wall,
        random: serve::random,
        say: serve::say,
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
