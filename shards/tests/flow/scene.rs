//! A scene: some shards over one table, the same engines for each, and requests one after the other. Each shard has a
//! network of its own; what they share is what shards share in a gateway.

use crate::client::{Ask, Came, Client};
use crate::engine::{Engine, Ledger, Shared};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body;
use warmpath_core::table::{Service, Table};
use warmpath_ring::sim::{Sim, Weather};
use warmpath_ring::{Ring, Sizes};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::valve::Valve;
use warmpath_shards::{Flow, Settings, Transport};

const VIP: ([u8; 4], u16) = ([10, 0, 0, 1], 8080);

/// The scene.
pub struct Scene {
    shards: Vec<Shard>,
    table: Arc<Table>,
    numbers: u32,
    asked: u32,
    budget: Arc<Budget>,
}

struct Shard {
    flow: Flow<Sim>,
    engines: Vec<Rc<RefCell<Engine>>>,
}

/// The address of an engine.
pub fn engine_at(index: usize) -> SocketAddr {
    ([10, 1, 0, index as u8 + 1], 8000).into()
}

impl Scene {
    /// `shards` shards; a rule over `engines` engines with these arguments.
    pub fn new(shards: usize, engines: usize, arguments: &serde_json::Value) -> Scene {
        let budget = Arc::new(Budget::new(10 << 20));
        let shards = (0..shards).map(|number| Shard::new(number, engines, &budget)).collect();
        let mut scene = Scene { shards, table: Arc::default(), numbers: 0, asked: 0, budget };
        scene.install(arguments, &(0..engines).collect::<Vec<_>>());
        scene
    }

    /// Replaces the rule: these engines in this order.
    pub fn install(&mut self, arguments: &serde_json::Value, engines: &[usize]) {
        let endpoint = |engine: &usize| {
            let at = engine_at(*engine);
            serde_json::json!({"endpointIP": at.ip().to_string(), "targetPort": at.port(), "weight": 1})
        };
        let mut service = arguments.clone();
        service["externalIP"] = "10.0.0.1".into();
        service["port"] = 8080.into();
        let endpoints: Vec<_> = engines.iter().map(endpoint).collect();
        let rule = serde_json::json!({"serviceArguments": service, "endpoints": endpoints});
        let rule = body::parse(&rule, &Environment::default(), || "id".into()).expect("a good rule");
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
    pub fn ask(&mut self, shard: usize, ask: Ask) -> Came {
        let came = self.begin(shard, ask);
        self.end(shard, &came)
    }

    /// Sends a request and goes on until it is with an engine, or over.
    pub fn begin(&mut self, shard: usize, ask: Ask) -> Shared<Vec<(Ask, Came)>> {
        let came = self.send(shard, ask);
        let shard = &mut self.shards[shard];
        let before = shard.executions();
        while shard.executions() == before && came.borrow().is_empty() {
            shard.flow.turn(Some(Duration::from_millis(10))).expect("the simulated ring never fails");
        }
        came
    }

    /// Sends a request; what comes of it is seen as time passes.
    pub fn send(&mut self, shard: usize, mut ask: Ask) -> Shared<Vec<(Ask, Came)>> {
        self.asked += 1;
        ask.id = format!("ask{}", self.asked);
        let now = self.now();
        let shard = &mut self.shards[shard];
        shard.pass_until(now);
        let came: Shared<Vec<(Ask, Came)>> = Rc::default();
        let client = Client {
            vip: VIP.into(),
            xor: 0,
            asks: vec![ask],
            came: came.clone(),
            slow: false,
            conn: None,
            at: 0,
            buffer: Vec::new(),
            received: 0,
            outgoing: Vec::new(),
            done: false,
        };
        shard.flow.ring.add(Rc::new(RefCell::new(client)));
        came
    }

    /// Goes on until the request is over.
    pub fn end(&mut self, shard: usize, came: &Shared<Vec<(Ask, Came)>>) -> Came {
        let mut turns = 0;
        while came.borrow().is_empty() {
            self.shards[shard].flow.turn(Some(Duration::from_secs(1))).expect("it never fails");
            turns += 1;
            assert!(turns < 100_000, "the request does not end");
        }
        let came = came.borrow()[0].1.clone();
        // The answer is with the client before all of its end is with the shard.
        let now = self.shards[shard].flow.ring.now() + 10_000_000;
        self.shards[shard].pass_until(now);
        came
    }

    /// Lets time pass.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.now() + nanos;
        self.shards.iter_mut().for_each(|shard| shard.pass_until(until));
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
        let of = |shard: &Shard, engine: usize| -> u32 {
            shard.engines[engine].borrow().ledger.borrow().executions.values().sum()
        };
        engines.map(|engine| self.shards.iter().map(|shard| of(shard, engine)).sum()).collect()
    }

    /// From now on all shards together serve so many connections at once.
    pub fn bound_connections(&mut self, most: u32) {
        let valve = Arc::new(Valve::new(most));
        self.shards.iter_mut().for_each(|shard| shard.flow.behind(valve.clone()));
    }

    /// Client connections that are open.
    pub fn clients(&mut self) -> u64 {
        self.shards.iter_mut().map(|shard| shard.flow.report(0).clients).sum()
    }

    /// Those among them that wait for a seat.
    pub fn held(&mut self) -> u64 {
        self.shards.iter_mut().map(|shard| shard.flow.report(0).held).sum()
    }

    /// A count of all shards.
    pub fn count(&mut self, what: warmpath_core::control::Count) -> u64 {
        let of = |shard: &mut Shard| {
            let report = shard.flow.report(0);
            report.counts.iter().filter(|(count, _)| *count == what).map(|(_, n)| n).sum::<u64>()
        };
        self.shards.iter_mut().map(of).sum()
    }

    /// After all is over nothing is charged, held or open.
    pub fn assert_quiet(&mut self) {
        self.pass(400_000_000_000);
        assert!(self.service().endpoints.iter().all(|e| e.reserved() == 0), "a charge was not settled");
        assert_eq!(self.budget.used(), 0, "memory was not given back");
        assert!(self.shards.iter().all(|shard| shard.flow.ring.sockets() == 0), "sockets stay");
    }
}

impl Shard {
    fn new(number: usize, engines: usize, budget: &Arc<Budget>) -> Shard {
        let sizes = Sizes::default();
        let weather = Weather { delay_max: 400_000, socket_bytes: 65_536, piece_max: 16_384 };
        let sim = Sim::new(number as u64, sizes, weather);
        let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).expect("an empty index");
        let settings = Settings {
            client_transport: Transport::Plain,
            upstream_transport: Transport::Plain,
            ..Settings::default()
        };
        let mut flow = Flow::new(sim, sizes, settings, budget.clone(), exact, number as u64);
        flow.begin_turns_with(number as u32);
        let engines = (0..engines).map(|index| {
            let ledger: Shared<Ledger> = Rc::default();
            let engine = Rc::new(RefCell::new(Engine {
                ledger,
                xor: 0,
                refuses: false,
                idle_limit: 2_000_000_000,
                conns: HashMap::new(),
                timers: Vec::new(),
            }));
            let id = flow.ring.add(engine.clone());
            flow.ring.serve(engine_at(index), id);
            engine
        });
        let engines = engines.collect();
        Shard { flow, engines }
    }

    fn executions(&self) -> u32 {
        self.engines.iter().map(|e| e.borrow().ledger.borrow().executions.values().sum::<u32>()).sum()
    }

    fn pass_until(&mut self, until: u64) {
        while self.flow.ring.now() < until {
            let left = Duration::from_nanos(until - self.flow.ring.now()).min(Duration::from_secs(1));
            self.flow.turn(Some(left)).expect("the simulated ring never fails");
        }
    }
}
