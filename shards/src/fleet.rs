//! The threads of the shards. Owns starting, pinning, waking and stopping them, and the mailboxes by which
//! the admin thread reaches them; must never touch a connection.

use crate::budget::Budget;
use crate::exact::{Blocks, Exact};
use crate::flow::Flow;
use crate::gate::Desk;
use crate::loader::{Loader, Told};
use crate::models::Models;
use crate::prompt;
use crate::settings::Settings;
use crate::tokenize::Text;
use crate::valve::Valve;
use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use warmpath_core::control::{DataPlane, DrainPhase, InstallFault, ModelReport, ShardReport};
use warmpath_core::engine::Engine;
use warmpath_core::profile::{self, registry::Registry};
use warmpath_core::table::Table;
use warmpath_prompt::{Api, Date};
use warmpath_ring::{Errno, Ring, Sizes, Wake, sock};

/// How long the admin thread waits for a shard's report.
const REPORT_WAIT: Duration = Duration::from_millis(500);

/// What the shards are started with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many shards.
    pub shards: usize,
    /// Cores to pin them to, in turn; empty leaves them unpinned.
    pub cores: Vec<usize>,
    /// Sizes of each ring.
    pub sizes: Sizes,
    /// Bounds and times.
    pub settings: Settings,
    /// Client connections that are served at once; `None`: all.
    pub connections: Option<u32>,
    /// Seed of request ids.
    pub seed: u64,
}

/// What the threads beside the shards are started with, that make keys of text.
#[derive(Clone, Debug, Default)]
pub struct TextPlan {
    /// The folder that has `tokenizers/`; `None`: no model is ever loaded.
    pub root: Option<PathBuf>,
    /// How many token cores. With none, long prompts are not routed by blocks.
    pub token_cores: usize,
    /// Cores to pin them to, in turn; empty leaves them unpinned.
    pub cores: Vec<usize>,
}

/// A message to a shard.
enum Order {
    Install(Arc<Table>, Vec<(SocketAddr, OwnedFd)>),
    Report(Sender<ShardReport>),
    Drain(DrainPhase),
    Models(Arc<Models>),
}

/// The running shards.
pub struct Fleet {
    shards: Vec<Mailbox>,
    /// VIPs listened on; also makes installs one at a time.
    listening: Mutex<Vec<SocketAddr>>,
    budget: Arc<Budget>,
    /// What the loader published last.
    models: Arc<Mutex<Arc<Models>>>,
    tell: Sender<Told>,
    /// Time since the Unix epoch, for templates that print the date.
    wall: fn() -> Duration,
}

#[derive(Clone)]
struct Mailbox {
    orders: Sender<Order>,
    waker: Arc<dyn Wake>,
}

/// A shard that could not start, or failed.
#[derive(Clone, Debug)]
pub struct ShardFault {
    /// Its number.
    pub shard: usize,
    /// One sentence.
    pub message: String,
}

impl std::fmt::Display for ShardFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shard {}: {}", self.shard, self.message)
    }
}

/// Threads to wait for at the end.
pub type Threads = Vec<JoinHandle<Result<(), ShardFault>>>;

impl Fleet {
    /// Starts the threads of `plan`; `make` makes a driver on its own thread. Returns when all shards are
    /// ready, or with the first fault.
    pub fn start<R, F>(
        plan: &Plan,
        budget: Arc<Budget>,
        blocks: &Blocks,
        make: F,
    ) -> Result<(Fleet, Threads), ShardFault>
    where
        R: Ring + 'static,
        F: Fn(Sizes) -> Result<R, String> + Clone + Send + 'static,
    {
        let mut fleet = Fleet {
            shards: Vec::new(),
            listening: Mutex::new(Vec::new()),
            budget: budget.clone(),
            models: Arc::default(),
            tell: blocks.text.teller(),
            wall: blocks.text.wall,
        };
        let mut threads = Threads::new();
        let valve = plan.connections.map(|most| Arc::new(Valve::new(most)));
        for (shard, desk) in Desk::row(plan.shards).into_iter().enumerate() {
            let (orders, inbox) = unbounded();
            let (ready, started) = bounded(1);
            let (plan, budget, make) = (plan.clone(), budget.clone(), make.clone());
            let exact = blocks.exact().map_err(|message| ShardFault { shard, message })?;
            let own = Own { shard, exact, desk, valve: valve.clone() };
            let run = move || run_shard(own, &plan, budget, make, inbox, ready);
            let thread = thread::Builder::new().name(format!("shard-{shard}")).spawn(run);
            threads.push(thread.map_err(|e| ShardFault { shard, message: format!("no thread: {e}") })?);
            let waker = match started.recv() {
                Ok(started) => started.map_err(|message| ShardFault { shard, message })?,
                Err(_) => return Err(ShardFault { shard, message: "it ended while starting".into() }),
            };
            fleet.shards.push(Mailbox { orders, waker });
        }
        Ok((fleet, threads))
    }

    /// Starts the loader and the token cores. They end when nobody is left who could ask them.
    pub fn start_text(&self, plan: &TextPlan, text: &Text) -> Result<(), String> {
        let no_thread = |e: std::io::Error| format!("no thread for text: {e}");
        let mut token_cores = Vec::new();
        for number in 0..plan.token_cores {
            let (publish, published) = unbounded();
            token_cores.push(publish);
            let core = plan.cores.get(number % plan.cores.len().max(1)).copied();
            let desk = text.desk.clone();
            let run = move || {
                core.map(|id| core_affinity::set_for_current(core_affinity::CoreId { id }));
                desk.run(published);
            };
            thread::Builder::new().name(format!("token-{number}")).spawn(run).map_err(no_thread)?;
        }
        let Some(root) = &plan.root else { return Ok(()) };
        let (loader, told) = (Loader::new(root), text.told.clone());
        // The admin thread reads rules by the profiles that are there from the first moment on.
        *lock(&self.models) = loader.models();
        let (shards, published) = (self.shards.clone(), self.models.clone());
        let publish = move |models: Arc<Models>| {
            // Each makes itself ready; one that is gone needs not.
            token_cores.iter().for_each(|core| drop(core.send(models.clone())));
            shards.iter().for_each(|shard| shard.tell(Order::Models(models.clone())));
            // Told last: whoever sees it in a report can ask a shard for what it says.
            *lock(&published) = models;
        };
        thread::Builder::new()
            .name("loader".into())
            .spawn(move || loader.run(&told, publish))
            .map_err(no_thread)?;
        Ok(())
    }

    /// The memory that bodies and waiting answers share.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    fn tell(&self, shard: usize, order: Order) {
        self.shards[shard].tell(order);
    }
}

impl Mailbox {
    fn tell(&self, order: Order) {
        // A shard that is gone has nothing to be told.
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DataPlane for Fleet {
    fn install(&self, table: Arc<Table>) -> Result<(), InstallFault> {
        let mut listening = lock(&self.listening);
        let mut opened: Vec<Vec<(SocketAddr, OwnedFd)>> = self.shards.iter().map(|_| Vec::new()).collect();
        let new = table.vips.iter().map(|v| v.address).filter(|at| !listening.contains(at));
        for vip in new {
            for sockets in &mut opened {
                sockets.push((vip, sock::listen(vip).map_err(|e| not_listening(vip, e))?));
            }
        }
        *listening = table.vips.iter().map(|v| v.address).collect();
        for (shard, sockets) in opened.into_iter().enumerate() {
            self.tell(shard, Order::Install(table.clone(), sockets));
        }
        // Without a loader nobody listens.
        let _ = self.tell.send(Told::Rules(table));
        Ok(())
    }

    fn reports(&self) -> Vec<ShardReport> {
        let (reply, replies) = bounded(self.shards.len());
        for shard in 0..self.shards.len() {
            self.tell(shard, Order::Report(reply.clone()));
        }
        drop(reply);
        let mut reports: Vec<ShardReport> =
            std::iter::from_fn(|| replies.recv_timeout(REPORT_WAIT).ok()).take(self.shards.len()).collect();
        reports.sort_by_key(|r| r.shard);
        reports
    }

    fn drain(&self, phase: DrainPhase) {
        for shard in 0..self.shards.len() {
            self.tell(shard, Order::Drain(phase));
        }
    }

    fn tokens(&self, model: &str, engine: Engine, api: profile::Api, body: &[u8]) -> Option<Vec<u32>> {
        let model = lock(&self.models).find(model, engine).cloned().ok()?;
        let today = i64::try_from((self.wall)().as_secs()).ok().map(Date::of_unix);
        let api = match api {
            profile::Api::Completions => Api::Completions,
            profile::Api::Chat => Api::Chat,
        };
        prompt::ids(&model, api, body, today)
    }

    fn models(&self) -> Vec<ModelReport> {
        lock(&self.models).reports()
    }

    fn registry(&self) -> Arc<Registry> {
        lock(&self.models).registry.clone()
    }
}

/// A sentence with cause and cure.
fn not_listening(vip: SocketAddr, error: Errno) -> InstallFault {
    let cure = match rustix_errno(error) {
        Cause::InUse => "another program listens there; stop it or choose another port",
        Cause::NotLocal => "the address is not one of this machine; add it to an interface or choose another",
        Cause::Forbidden => "ports below 1024 need root or CAP_NET_BIND_SERVICE",
        Cause::Other => "see the system's log",
    };
    InstallFault { vip, message: format!("cannot listen on {vip}: {error}; {cure}") }
}

enum Cause {
    InUse,
    NotLocal,
    Forbidden,
    Other,
}

fn rustix_errno(error: Errno) -> Cause {
    use std::io::ErrorKind;
    match std::io::Error::from_raw_os_error(error.0).kind() {
        ErrorKind::AddrInUse => Cause::InUse,
        ErrorKind::AddrNotAvailable => Cause::NotLocal,
        ErrorKind::PermissionDenied => Cause::Forbidden,
        _ => Cause::Other,
    }
}

/// What is one shard's alone.
struct Own {
    shard: usize,
    exact: Exact,
    desk: Desk,
    valve: Option<Arc<Valve>>,
}

/// The life of a shard's thread.
fn run_shard<R: Ring>(
    own: Own,
    plan: &Plan,
    budget: Arc<Budget>,
    make: impl Fn(Sizes) -> Result<R, String>,
    inbox: Receiver<Order>,
    ready: Sender<Result<Arc<dyn Wake>, String>>,
) -> Result<(), ShardFault> {
    let Own { shard, exact, desk, valve } = own;
    if let Some(core) = plan.cores.get(shard % plan.cores.len().max(1)) {
        core_affinity::set_for_current(core_affinity::CoreId { id: *core });
    }
    let ring = match make(plan.sizes) {
        Ok(ring) => ring,
        Err(message) => {
            let _ = ready.send(Err(message.clone()));
            return Err(ShardFault { shard, message });
        }
    };
    let waker = ring.waker();
    let mut flow =
        Flow::new(ring, plan.sizes, plan.settings, budget, exact, plan.seed ^ (shard as u64) << 32);
    flow.begin_turns_with(shard as u32);
    flow.sit_at(desk);
    valve.into_iter().for_each(|valve| flow.behind(valve));
    let _ = ready.send(Ok(waker));
    let failed = |e: Errno| ShardFault { shard, message: format!("its ring failed: {e}") };
    let mut closing = false;
    while !(closing && flow.is_quiet()) {
        flow.turn(None).map_err(failed)?;
        for order in inbox.try_iter() {
            match order {
                Order::Install(table, sockets) => {
                    let listen = |(at, fd)| Ok((at, flow.ring.listen(fd)?));
                    let listeners: Result<Vec<_>, Errno> = sockets.into_iter().map(listen).collect();
                    flow.install(table, listeners.map_err(failed)?);
                }
                Order::Models(models) => flow.publish(models),
                Order::Report(reply) => drop(reply.try_send(flow.report(shard))),
                Order::Drain(phase) => {
                    closing |= phase >= DrainPhase::Closing;
                    flow.drain(phase);
                }
            }
        }
    }
    Ok(())
}
