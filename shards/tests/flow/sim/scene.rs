//! A scene: some shards over one table, the same engines for each, and requests one after the other. Each shard has a
//! network of its own; what they share is what shards share in a gateway.

use crate::sim::Shared;
use crate::sim::client::{Ask, Came, Client, End};
use crate::sim::engine::{Engine, Serves};
use crate::sim::shard::{self, Sky, VIP};
use serde_json::Value;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::control::{Count, ShardReport};
use warmpath_core::table::{Service, Table};
use warmpath_ring::Ring;
use warmpath_ring::sim::Sim;
use warmpath_shards::budget::Budget;
use warmpath_shards::valve::Valve;
use warmpath_shards::{Flow, Settings};

/// Nanoseconds after which engines close connections that idle.
pub const IDLE: u64 = 2_000_000_000;

/// The scene.
pub struct Scene<S: Serves> {
    shards: Vec<Shard<S>>,
    table: Arc<Table>,
    numbers: u32,
    asked: u32,
    budget: Arc<Budget>,
    sky: Sky,
}

struct Shard<S: Serves> {
    flow: Flow<Sim>,
    engines: Vec<Rc<RefCell<Engine<S>>>>,
}

/// A request under way.
pub type Pending<A> = Shared<Vec<End<A>>>;

impl<S: Serves + 'static> Scene<S> {
    /// `shards` shards, each with an engine of `make` at every one of these addresses, and no rule.
    pub fn new(shards: usize, at: &[SocketAddr], make: impl Fn(SocketAddr) -> S) -> Scene<S> {
        let (sky, budget) = (Sky::clear(), Arc::new(Budget::new(20 << 20)));
        let shard = |number: usize| {
            let mut flow = sky.shard(number as u64, Settings::default(), &budget);
            flow.begin_turns_with(number as u32);
            let engine = |at: &SocketAddr| {
                let engine = Rc::new(RefCell::new(Engine::new(make(*at), 0, IDLE)));
                let id = flow.ring.add(engine.clone());
                flow.ring.serve(*at, id);
                engine
            };
            let engines = at.iter().map(engine).collect();
            Shard { flow, engines }
        };
        let shards = (0..shards).map(shard).collect();
        Scene { shards, table: Arc::default(), numbers: 0, asked: 0, budget, sky }
    }

    /// Replaces the rule.
    pub fn install(&mut self, arguments: &Value, endpoints: Vec<Value>) {
        let rule = shard::rule(arguments.clone(), endpoints);
        self.table = Arc::new(Table::next(&self.table, vec![rule], &mut self.numbers, 0));
        let vip = SocketAddr::from(VIP);
        for shard in &mut self.shards {
            let is_new = self.table.generation == 1;
            let listeners = if is_new { vec![(vip, shard.flow.ring.listen_at(vip))] } else { Vec::new() };
            shard.flow.install(self.table.clone(), listeners);
        }
    }

    /// The rule with its state.
    pub fn service(&self) -> &Service {
        &self.table.vips[0].services[0]
    }

    /// The rules in force.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Asks one shard, on a connection of its own; returns when all is over.
    pub fn ask<A: Ask + 'static>(&mut self, shard: usize, ask: A) -> Came {
        let pending = self.begin(shard, ask);
        self.end(shard, &pending)
    }

    /// Sends a request and goes on until it is with an engine, or over.
    pub fn begin<A: Ask + 'static>(&mut self, shard: usize, ask: A) -> Pending<A> {
        let pending = self.send(shard, ask);
        let shard = &mut self.shards[shard];
        let before = shard.executions();
        while shard.executions() == before && pending.borrow().is_empty() {
            shard.flow.turn(Some(Duration::from_millis(10))).expect("the simulated ring never fails");
        }
        pending
    }

    /// Sends a request; what comes of it is seen as time passes.
    pub fn send<A: Ask + 'static>(&mut self, shard: usize, mut ask: A) -> Pending<A> {
        self.asked += 1;
        ask.call(format!("ask{}", self.asked));
        let now = self.now();
        let shard = &mut self.shards[shard];
        shard::pass_until(&mut shard.flow, now);
        let pending: Pending<A> = Rc::default();
        let client = Client::new(VIP.into(), 0, vec![ask], pending.clone());
        shard.flow.ring.add(Rc::new(RefCell::new(client)));
        pending
    }

    /// Goes on until the request is over.
    pub fn end<A>(&mut self, shard: usize, pending: &Pending<A>) -> Came {
        let mut turns = 0;
        while pending.borrow().is_empty() {
            self.shards[shard].flow.turn(Some(Duration::from_secs(1))).expect("it never fails");
            turns += 1;
            assert!(turns < 100_000, "the request does not end");
        }
        let came = pending.borrow()[0].came.clone();
        // The answer is with the client before all of its end is with the shard.
        let now = self.shards[shard].flow.ring.now() + 10_000_000;
        shard::pass_until(&mut self.shards[shard].flow, now);
        came
    }

    /// Lets time pass.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.now() + nanos;
        self.shards.iter_mut().for_each(|shard| shard::pass_until(&mut shard.flow, until));
    }

    /// The time on the clock that is farthest.
    pub fn now(&self) -> u64 {
        self.shards.iter().map(|shard| shard.flow.ring.now()).max().unwrap_or(0)
    }

    /// From now on an engine takes connections, or refuses them.
    pub fn refuses(&mut self, engine: usize, refuses: bool) {
        self.shards.iter().for_each(|shard| shard.engines[engine].borrow_mut().refuses = refuses);
    }

    /// Requests executed by each engine.
    pub fn served(&self) -> Vec<u32> {
        let engines = 0..self.shards[0].engines.len();
        let of = |shard: &Shard<S>, engine: usize| shard.engines[engine].borrow().serves.executions();
        engines.map(|engine| self.shards.iter().map(|shard| of(shard, engine)).sum()).collect()
    }

    /// What a shard says of itself.
    pub fn report(&mut self, shard: usize) -> ShardReport {
        self.shards[shard].flow.report(0)
    }

    /// From now on all shards together serve so many connections at once.
    pub fn bound_connections(&mut self, most: u32) {
        let valve = Arc::new(Valve::new(most));
        self.shards.iter_mut().for_each(|shard| shard.flow.behind(valve.clone()));
    }

    /// A count of all shards.
    pub fn count(&mut self, what: Count) -> u64 {
        let of = |shard: &mut Shard<S>| {
            let report = shard.flow.report(0);
            report.counts.iter().filter(|(count, _)| *count == what).map(|(_, n)| n).sum::<u64>()
        };
        self.shards.iter_mut().map(of).sum()
    }

    /// After all is over nothing is charged, held or open.
    pub fn assert_quiet(&mut self) {
        self.pass(400_000_000_000);
        for shard in &mut self.shards {
            shard::assert_quiet(&mut shard.flow, &self.sky, &self.table.vips[0].services[0], &self.budget);
        }
    }
}

impl<S: Serves> Shard<S> {
    fn executions(&self) -> u32 {
        self.engines.iter().map(|e| e.borrow().serves.executions()).sum()
    }
}
