//! The event core with a core of its own: its ring in virtual time, which its own CPU time moves on, and publishers
//! that take none. Owns the clock, the network and what publishers say; must never look into the event core.
//!
//! What a turn computes takes as long as the thread's CPU clock says; a wait and each receive take besides what they
//! take in the kernel, by constants that `perf/results` gives the measurement of. So a lag here is how long an
//! event waited for the event core itself, whatever else the machine did meanwhile.

use crate::peer::{Ear, Heard, greeting, message, pong, ready, reply};
use crate::template::{NEVER_HELD, STORED, Template, key};
use crate::{KEPT, Load, MEASURED, RESTARTING, WARMUP, address, plan, rule, tell};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::shared::{Source, Tier};
use warmpath_core::table::Table;
use warmpath_events::eventcore::{EventCore, Settings};
use warmpath_kvindex::{Reader, index};
use warmpath_ring::sim::{Actor, ActorId, PeerEvent, Sim, Weather, World};
use warmpath_ring::{Counters, Errno, Event, Held, Listener, Payload, Ring, Sizes, Sock, Wake, clock};

/// Nanoseconds in the kernel of a wait, of a receive, and of each KiB received.
const WAIT: u64 = 1_500;
const RECEIVE: u64 = 1_500;
const RECEIVE_KIB: u64 = 100;

/// Events that a wait hands over at most.
const EVENTS_A_WAIT: usize = 512;

const PUBLISH: u16 = 5_557;
const REPLAY: u16 = 5_558;

/// What a timer of the publishers is for.
const NEXT_BATCH: u64 = 0;
const FILL: u64 = 1;
const RESTART: u64 = 2;

/// When those that restart later fill their caches, when the others begin, and when it is that they restart.
const FILL_AT: u64 = SECOND;
const BEGIN_AT: u64 = 3 * SECOND;
const RESTART_AT: u64 = BEGIN_AT + WARMUP.as_nanos() as u64;

/// Every so manieth batch is looked for.
const PROBED: u64 = 5;

/// A simulated network, and the time that the event core takes.
struct Metered {
    sim: Sim,
    /// The thread's CPU time up to which all is counted.
    mark: u64,
    /// Nanoseconds that the event core took.
    busy: u64,
}

impl Metered {
    /// Counts what was computed since the mark: virtual time passes.
    fn charge(&mut self, kernel: u64) {
        let cpu = clock::thread_cpu();
        let spent = cpu - self.mark + kernel;
        self.busy += spent;
        self.sim.pass(spent);
        self.mark = clock::thread_cpu();
    }

    /// What is computed from here on counts, and nothing before it.
    fn resume(&mut self) {
        self.mark = clock::thread_cpu();
    }
}

impl Ring for Metered {
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        self.charge(WAIT);
        self.sim.wait(timeout, events)?;
        let mut had = 0;
        while events.len() > had && events.len() < EVENTS_A_WAIT {
            had = events.len();
            self.sim.wait(Some(Duration::ZERO), events)?;
        }
        let receives = events.iter().map(|event| match event {
            Event::Received { buffer, .. } => RECEIVE + u64::from(buffer.len()) * RECEIVE_KIB / 1_024,
            _ => RECEIVE,
        });
        let receives = receives.sum();
        self.resume();
        self.charge(receives);
        Ok(())
    }

    fn listen(&mut self, socket: OwnedFd) -> Result<Listener, Errno> {
        self.sim.listen(socket)
    }

    fn close_listener(&mut self, listener: Listener) {
        self.sim.close_listener(listener);
    }

    fn connect(&mut self, to: SocketAddr) -> Result<Sock, Errno> {
        self.sim.connect(to)
    }

    fn receive(&mut self, sock: Sock) {
        self.sim.receive(sock);
    }

    fn pause(&mut self, sock: Sock) {
        self.sim.pause(sock);
    }

    fn send(&mut self, sock: Sock, payload: Payload) {
        self.sim.send(sock, payload);
    }

    fn shutdown_write(&mut self, sock: Sock) {
        self.sim.shutdown_write(sock);
    }

    fn close(&mut self, sock: Sock) {
        self.sim.close(sock);
    }

    fn acknowledged(&mut self, sock: Sock) -> Option<u64> {
        self.sim.acknowledged(sock)
    }

    fn bytes(&self, held: &Held) -> &[u8] {
        self.sim.bytes(held)
    }

    fn bytes_mut(&mut self, held: &Held) -> &mut [u8] {
        self.sim.bytes_mut(held)
    }

    fn release(&mut self, held: Held) {
        self.sim.release(held);
    }

    fn now(&self) -> u64 {
        self.sim.now()
    }

    fn cpu_time(&self) -> u64 {
        self.sim.cpu_time()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.sim.waker()
    }

    fn counters(&self) -> Counters {
        self.sim.counters()
    }
}

/// One engine process as the network shows it.
#[derive(Default)]
struct Process {
    seq: u64,
    held: VecDeque<u64>,
    live: Option<usize>,
    /// First numbers of the batches that a replay gives.
    replayed: Vec<u64>,
}

/// All engines.
struct Publishers {
    processes: Vec<Process>,
    template: Template,
    next: u64,
    ears: BTreeMap<usize, (SocketAddr, Ear)>,
    /// Blocks a second that the first endpoints store.
    rate: u64,
    /// When the network began.
    zero: u64,
    sent: u64,
    /// Endpoint, key and time of some batches.
    probes: Vec<(usize, u64, u64)>,
}

impl Publishers {
    fn new(load: Load, zero: u64) -> Publishers {
        Publishers {
            processes: (0..load.endpoints()).map(|_| Process::default()).collect(),
            template: Template::new(load.blocks_an_event),
            next: NEVER_HELD + STORED as u64,
            ears: BTreeMap::new(),
            rate: load.rate,
            zero,
            sent: 0,
            probes: Vec::new(),
        }
    }

    /// The last key that the batch stores.
    fn publish(&mut self, endpoint: usize, world: &mut World<'_>) -> u64 {
        let first = self.next;
        self.next += STORED as u64;
        let process = &mut self.processes[endpoint];
        process.held.push_back(first);
        let old = (process.held.len() > KEPT).then(|| process.held.pop_front()).flatten();
        let bytes = self.template.fill(process.seq, first, old.unwrap_or(NEVER_HELD));
        process.seq += 1;
        if let Some(live) = process.live {
            world.send(live, bytes);
        }
        key(first + STORED as u64 - 1)
    }

    /// The batches that are due, and a timer for the next.
    fn publish_due(&mut self, world: &mut World<'_>) {
        let every = STORED as u64 * SECOND / self.rate;
        let begun = self.zero + BEGIN_AT;
        let due = |sent: u64| begun + sent * every;
        while due(self.sent) <= world.now() {
            let endpoint = (self.sent % MEASURED as u64) as usize;
            let (at, key) = (due(self.sent), self.publish(endpoint, world));
            if self.sent.is_multiple_of(PROBED) && at >= self.zero + RESTART_AT {
                self.probes.push((endpoint, key, at));
            }
            self.sent += 1;
        }
        world.timer(due(self.sent) - world.now(), NEXT_BATCH);
    }

    fn fill(&mut self, endpoints: Range<usize>, world: &mut World<'_>) {
        for endpoint in endpoints.flat_map(|endpoint| std::iter::repeat_n(endpoint, KEPT)) {
            self.publish(endpoint, world);
        }
    }

    fn restart(&mut self, endpoints: Range<usize>, world: &mut World<'_>) {
        for endpoint in endpoints {
            let process = &mut self.processes[endpoint];
            process.live.take().into_iter().for_each(|live| world.reset(live));
            *process = Process { seq: KEPT as u64, ..Process::default() };
            for _ in 0..KEPT {
                self.processes[endpoint].replayed.push(self.next);
                self.next += STORED as u64;
            }
        }
    }

    fn hear(&mut self, conn: usize, bytes: &[u8], world: &mut World<'_>) {
        let Some((at, ear)) = self.ears.get_mut(&conn) else { return };
        let at = *at;
        for heard in ear.hear(bytes) {
            match heard {
                Heard::Greeting => {
                    world.send(conn, &ready(if at.port() == PUBLISH { "PUB" } else { "ROUTER" }))
                }
                Heard::Ping(context) => world.send(conn, &pong(&context)),
                Heard::Subscribe => self.processes[endpoint_of(at)].live = Some(conn),
                Heard::Message(frames) => self.reply(conn, endpoint_of(at), &frames[1], world),
                Heard::Ready => {}
            }
        }
    }

    fn reply(&mut self, conn: usize, endpoint: usize, from: &[u8], world: &mut World<'_>) {
        let from = u64::from_be_bytes(from.try_into().expect("eight bytes")) as usize;
        for (seq, first) in self.processes[endpoint].replayed.iter().enumerate().skip(from) {
            world.send(conn, &reply(seq as u64, &self.template.payload(*first)));
        }
        world.send(conn, &message(&[b"", b"", &[0xff; 8], b""]));
    }
}

fn endpoint_of(at: SocketAddr) -> usize {
    (0..MEASURED + RESTARTING).find(|endpoint| address(*endpoint).ip() == at.ip()).expect("one of ours")
}

/// What the network tells of one address, or of nobody's: the publishers' timers.
struct Door {
    at: Option<SocketAddr>,
    all: Rc<RefCell<Publishers>>,
}

impl Actor for Door {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        let mut all = self.all.borrow_mut();
        match (event, self.at) {
            (PeerEvent::Accepted { conn }, Some(at)) => {
                all.ears.insert(conn, (at, Ear::default()));
                world.send(conn, &greeting());
            }
            (PeerEvent::Data { conn, bytes }, _) => all.hear(conn, &bytes, world),
            (PeerEvent::Ended { conn } | PeerEvent::Reset { conn }, _) => {
                all.ears.remove(&conn);
                world.close(conn);
            }
            (PeerEvent::Begun, None) => {
                world.timer(BEGIN_AT, NEXT_BATCH);
                if all.processes.len() > MEASURED {
                    world.timer(FILL_AT, FILL);
                    world.timer(RESTART_AT, RESTART);
                }
            }
            (PeerEvent::Timer { token: NEXT_BATCH }, None) => all.publish_due(world),
            (PeerEvent::Timer { token: FILL }, None) => all.fill(MEASURED..MEASURED + RESTARTING, world),
            (PeerEvent::Timer { token: RESTART }, None) => {
                all.restart(MEASURED..MEASURED + RESTARTING, world);
            }
            _ => {}
        }
    }
}

/// One run: what it is told of, and how long it takes to be seen.
struct Alone {
    core: EventCore<Metered>,
    all: Rc<RefCell<Publishers>>,
    sources: Vec<Arc<Source>>,
    reader: Reader,
    zero: u64,
    waiting: Vec<(usize, u64, u64)>,
    lags: Vec<Duration>,
    /// Lags while not all that restarted had told all.
    meanwhile: Vec<Duration>,
    /// When they had.
    recovered: Option<Duration>,
}

/// Measures a load.
pub fn run(seconds: u64, load: Load) {
    let mut alone = Alone::new(load);
    let end = alone.zero + BEGIN_AT + seconds * SECOND;
    let mut begun = None;
    while alone.now() < end {
        if alone.now() >= alone.zero + RESTART_AT {
            begun.get_or_insert((alone.now(), alone.core.ring().busy));
        }
        alone.turn();
    }
    let (now, busy) = (alone.now(), alone.core.ring().busy);
    let (begun, before) = begun.expect("it lasts longer than its warm-up");
    while !alone.waiting.is_empty() && alone.now() < end + 10 * SECOND {
        alone.turn();
    }
    let share = (busy - before) as f64 / (now - begun) as f64;
    alone.lags.sort_unstable();
    tell("alone", load, &alone.lags, share);
    if let Some(after) = alone.recovered {
        alone.meanwhile.sort_unstable();
        println!("    all that restarted are whole after {after:.2?}; lags until then:");
        tell("   ", load, &alone.meanwhile, share);
    }
}

impl Alone {
    fn new(load: Load) -> Alone {
        let weather = Weather { delay_max: 40_000, socket_bytes: 1 << 20, piece_max: 1 << 20 };
        let mut sim = Sim::new(1, Sizes::default(), weather);
        let zero = sim.now();
        let all = Rc::new(RefCell::new(Publishers::new(load, zero)));
        let mut door = |at| sim.add(Rc::new(RefCell::new(Door { at, all: all.clone() })));
        let mut doors: Vec<(SocketAddr, ActorId)> = Vec::new();
        door(None);
        for (endpoint, port) in (0..load.endpoints()).flat_map(|at| [(at, PUBLISH), (at, REPLAY)]) {
            let at = SocketAddr::new(address(endpoint).ip(), port);
            doors.push((at, door(Some(at))));
        }
        doors.into_iter().for_each(|(at, door)| sim.serve(at, door));
        let table =
            Table::next(&Table::default(), vec![rule(load.endpoints(), (PUBLISH, REPLAY))], &mut 0, 0);
        let (writer, readers) = index(plan(load.endpoints()), 1);
        let mut core = EventCore::new(Metered { sim, mark: 0, busy: 0 }, writer, Settings::default());
        core.follow(&table);
        Alone {
            core,
            all,
            sources: table.sources(),
            reader: readers.reader().expect("a reader"),
            zero,
            waiting: Vec::new(),
            lags: Vec::new(),
            meanwhile: Vec::new(),
            recovered: None,
        }
    }

    fn now(&mut self) -> u64 {
        self.core.ring().now()
    }

    /// One turn of the event core, and what is seen after it.
    fn turn(&mut self) {
        self.core.ring().resume();
        self.core.turn(Some(Duration::from_millis(20))).expect("a simulated ring");
        self.core.ring().charge(0);
        let now = self.now();
        self.waiting.append(&mut self.all.borrow_mut().probes);
        let (view, sources, is_storm) = (self.reader.view(), &self.sources, self.recovered.is_none());
        let (lags, meanwhile) = (&mut self.lags, &mut self.meanwhile);
        self.waiting.retain(|(endpoint, key, since)| {
            let bit = sources[*endpoint].bit(0, Tier::Gpu);
            let is_seen = bit.is_some_and(|bit| view.holders(*key).contains(bit));
            if is_seen {
                lags.push(Duration::from_nanos(now - since));
                if is_storm {
                    meanwhile.push(Duration::from_nanos(now - since));
                }
            }
            !is_seen
        });
        let since = now.saturating_sub(self.zero + RESTART_AT);
        let restarted = sources.get(MEASURED..).unwrap_or_default();
        let is_whole =
            |source: &Arc<Source>| source.is_complete(0) && source.blocks(0) as usize == KEPT * STORED;
        if since > SECOND / 20 && !restarted.is_empty() && restarted.iter().all(is_whole) {
            self.recovered.get_or_insert(Duration::from_nanos(since));
        }
    }
}
