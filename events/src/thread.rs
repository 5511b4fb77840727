//! The event core's thread. Owns starting, pinning, waking and stopping it, and the mailbox by which the admin
//! thread reaches it; must never touch a stream.

use crate::eventcore::{EventCore, Settings};
use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use warmpath_core::attest::{Heard, Listening};
use warmpath_core::control::{InventoryPage, KvPlane, KvReport};
use warmpath_core::shared::{Observations, Tier};
use warmpath_core::table::Table;
use warmpath_kvindex::Writer;
use warmpath_ring::{Ring, Sizes, Wake, clock};

/// How long the admin thread waits for an answer.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// How long a proof of an answer may lie in the mailbox, whose writers wake nobody.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Proofs taken between two turns.
const PROOFS: usize = 64;

/// What the event core is started with.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The core to pin it to.
    pub core: Option<usize>,
    /// Sizes of its ring.
    pub sizes: Sizes,
    /// Bounds and times.
    pub settings: Settings,
    /// The seed of the engines' block hashes, as far as the gateway knows it.
    pub seed: Option<String>,
    /// What shards prove.
    pub observations: Arc<Observations>,
}

/// A message to the event core.
enum Order {
    Follow(Arc<Table>),
    Report(Sender<KvReport>),
    Inventory(Page, Sender<Option<InventoryPage>>),
    Reacquire(u32, Sender<bool>),
    Listen(u32, Option<Listening>, Sender<bool>),
    Heard(u32, Sender<Option<Vec<Heard>>>),
    Stop,
}

/// A page of an inventory.
struct Page {
    source: u32,
    rank: u8,
    tier: Tier,
    from: u64,
    limit: usize,
}

/// The running event core.
pub struct EventCoreHandle {
    orders: Sender<Order>,
    waker: Arc<dyn Wake>,
}

/// The thread, to be waited for at the end. It ends with one sentence if its ring fails.
pub type Thread = JoinHandle<Result<(), String>>;

/// Starts the thread; `make` makes its driver there. Returns when it is ready, or with one sentence.
pub fn start<R, F>(plan: Plan, writer: Writer, make: F) -> Result<(EventCoreHandle, Thread), String>
where
    R: Ring + 'static,
    F: FnOnce(Sizes) -> Result<R, String> + Send + 'static,
{
    let (orders, inbox) = unbounded();
    let (ready, started) = bounded(1);
    let run = move || run(plan, writer, make, &inbox, &ready);
    let thread = std::thread::Builder::new().name("events".into()).spawn(run);
    let thread = thread.map_err(|error| format!("event core: no thread: {error}"))?;
    match started.recv() {
        Ok(Ok(waker)) => Ok((EventCoreHandle { orders, waker }, thread)),
        Ok(Err(message)) => Err(format!("event core: {message}")),
        Err(_) => Err("event core: it ended while starting".into()),
    }
}

impl EventCoreHandle {
    /// Ends the thread; decisions see no holder any more.
    pub fn stop(&self) {
        self.tell(Order::Stop);
    }

    fn tell(&self, order: Order) {
        // An event core that is gone has nothing to be told.
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Option<T> {
        let (reply, answer) = bounded(1);
        self.tell(order(reply));
        answer.recv_timeout(ANSWER_WAIT).ok()
    }
}

impl KvPlane for EventCoreHandle {
    fn follow(&self, table: Arc<Table>) {
        self.tell(Order::Follow(table));
    }

    fn report(&self) -> Option<KvReport> {
        self.ask(Order::Report)
    }

    fn inventory(&self, source: u32, rank: u8, tier: Tier, from: u64, limit: usize) -> Option<InventoryPage> {
        let page = Page { source, rank, tier, from, limit };
        self.ask(|reply| Order::Inventory(page, reply)).flatten()
    }

    fn reacquire(&self, source: u32) -> bool {
        self.ask(|reply| Order::Reacquire(source, reply)).unwrap_or(false)
    }

    fn listen(&self, source: u32, to: Option<Listening>) -> bool {
        self.ask(|reply| Order::Listen(source, to, reply)).unwrap_or(false)
    }

    fn heard(&self, source: u32) -> Option<Vec<Heard>> {
        self.ask(|reply| Order::Heard(source, reply)).flatten()
    }
}

/// The life of the thread.
fn run<R: Ring>(
    plan: Plan,
    writer: Writer,
    make: impl FnOnce(Sizes) -> Result<R, String>,
    inbox: &Receiver<Order>,
    ready: &Sender<Result<Arc<dyn Wake>, String>>,
) -> Result<(), String> {
    if let Some(core) = plan.core {
        core_affinity::set_for_current(core_affinity::CoreId { id: core });
    }
    let ring = match make(plan.sizes) {
        Ok(ring) => ring,
        Err(message) => {
            let _ = ready.send(Err(message.clone()));
            return Err(message);
        }
    };
    let waker = ring.waker();
    let mut core = EventCore::new(ring, writer, plan.settings).with_seed(plan.seed);
    let proofs = plan.observations;
    let _ = ready.send(Ok(waker));
    loop {
        core.turn(Some(LOOK_EVERY)).map_err(|error| format!("event core: its ring failed: {error}"))?;
        (0..PROOFS).take_while(|_| proofs.take(|told| core.observe(told))).for_each(drop);
        for order in inbox.try_iter() {
            match order {
                Order::Follow(table) => core.follow(&table),
                Order::Report(reply) => {
                    let report = core.report(clock::thread_cpu());
                    drop(reply.try_send(KvReport { proofs_dropped: proofs.dropped(), ..report }));
                }
                Order::Inventory(page, reply) => {
                    let Page { source, rank, tier, from, limit } = page;
                    drop(reply.try_send(core.inventory(source, rank, tier, from, limit)));
                }
                Order::Reacquire(source, reply) => drop(reply.try_send(core.reacquire(source))),
                Order::Listen(source, to, reply) => drop(reply.try_send(core.listen_to(source, to.as_ref()))),
                Order::Heard(source, reply) => drop(reply.try_send(core.heard(source))),
                Order::Stop => {
                    core.stop();
                    return Ok(());
                }
            }
        }
    }
}
