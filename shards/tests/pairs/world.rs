//! One simulated run: a shard, engines of both roles, clients, all drawn from a seed; and what must hold at all times
//! and at its end.

use crate::body::Wish;
use crate::client::{Ask, Client, End};
use crate::engine::{Engine, Kind, Part};
use crate::judge::judge;
use crate::ledger::{Ledger, Shared};
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::control::ShardReport;
use warmpath_core::environment::Environment;
use warmpath_core::table::{Service, Table};
use warmpath_ring::Sizes;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::{Flow, Settings, Transport};

/// What kind of trouble a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Kind,
    Faulty,
    Leaving,
}

/// Counts of what came, to see that a mix covers what it claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub came: BTreeMap<String, u32>,
    pub prefills: u32,
    pub decodes: u32,
    pub counts: BTreeMap<String, u64>,
    pub end: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        for (what, count) in &other.came {
            *self.came.entry(what.clone()).or_default() += count;
        }
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        self.prefills += other.prefills;
        self.decodes += other.decodes;
    }

    pub fn assert_covers(&self, kind: Kind, mix: Mix) {
        let wanted: &[&str] = match (mix, kind) {
            (Mix::Kind, _) => &["Answer(200)"],
            (Mix::Leaving, _) => &["Answer(200)", "Left"],
            (Mix::Faulty, Kind::Sglang) => &[
                "Answer(200)",
                "Answer(400)",
                "pd_sg_prefill_failed",
                "pd_decode_backend_died",
                "RoomRetry",
                "DecodeAborted",
            ],
            (Mix::Faulty, _) => &[
                "Answer(200)",
                "Answer(400)",
                "pd_prefill_timeout",
                "pd_decode_timeout",
                "pd_decode_backend_died",
                "HandedOver",
                "NotHandedOver",
                "Orphaned",
                "PrefillDied",
            ],
        };
        let counted = self.counts.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name);
        let seen: Vec<&String> = self.came.keys().chain(counted).collect();
        for word in wanted {
            assert!(seen.iter().any(|k| k.contains(word)), "{kind:?} {mix:?} never saw {word}: {self:?}");
        }
        if (kind, mix) == (Kind::Trtllm, Mix::Faulty) {
            assert!(self.came.contains_key("Early"), "{self:?}");
        }
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n.max(1)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

pub const VIP: ([u8; 4], u16) = ([10, 0, 0, 1], 8080);
const BOOTSTRAP_PORT: u16 = 9998;

/// One run. Panics where something that must hold does not.
pub fn run(seed: u64, kind: Kind, mix: Mix) -> Outcome {
    let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mix as u64 ^ (kind as u64) << 8);
    let sizes = Sizes {
        buffers: draw.of(&[8, 16, 64]),
        buffer_bytes: draw.of(&[512, 4096, 16384]),
        ..Sizes::default()
    };
    let weather = Weather {
        delay_max: draw.of(&[1_000, 400_000, 5_000_000]),
        socket_bytes: draw.of(&[700, 8192, 65536]),
        piece_max: draw.of(&[70, 1000, 16384]),
    };
    let (client_key, upstream_key) = (draw.of(&[0, 0x5A]), draw.of(&[0, 0xC3]));
    let transport = |key| if key == 0 { Transport::Plain } else { Transport::Xor(key) };
    let settings = Settings {
        // Bodies of pairs are held whatever their length.
        max_inspect_body: 8_000,
        client_transport: transport(client_key),
        upstream_transport: transport(upstream_key),
        ..Settings::default()
    };
    let budget = Arc::new(Budget::new(20 << 20));
    let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).expect("an empty index");
    let mut flow = Flow::new(Sim::new(seed, sizes, weather), sizes, settings, budget.clone(), exact, seed);

    let vip = SocketAddr::from(VIP);
    let ledger: Shared<Ledger> = Rc::default();
    let engines = add_engines(&mut flow.ring, &ledger, upstream_key, &mut draw, (kind, mix));
    let table = Arc::new(Table::next(&Table::default(), vec![rule(seed, kind, &engines)], &mut 0, 0));
    let listener = flow.ring.listen_at(vip);
    flow.install(table.clone(), vec![(vip, listener)]);
    let (clients, ends) = add_clients(&mut flow.ring, vip, client_key, &mut draw, (kind, mix));
    let service = &table.vips[0].services[0];

    let mut turns = 0u64;
    while !clients.iter().all(|c| c.borrow().done) {
        flow.turn(Some(Duration::from_secs(1))).expect("the simulated ring never fails");
        if mix != Mix::Leaving {
            check_pinned(service, &ledger.borrow(), warmpath_ring::Ring::now(&flow.ring));
        }
        turns += 1;
        assert!(turns < 3_000_000, "the run does not end");
    }
    if mix == Mix::Leaving {
        // Legs of those who left are closed at once, not by their deadlines.
        pass(&mut flow, SECOND);
        assert_eq!(ledger.borrow().running, 0, "legs of clients that left run on");
    }
    // Long enough for every lease, and every idle and lingering connection, to end.
    pass(&mut flow, 400 * SECOND);
    let report = flow.report(0);
    for endpoint in &service.endpoints {
        assert_eq!(endpoint.reserved(), 0, "a charge was not settled");
    }
    assert_eq!(budget.used(), 0, "memory was not given back");
    assert_eq!((report.clients, report.upstreams, report.active), (0, 0, 0), "connections stay");
    assert_eq!(flow.ring.sockets(), 0, "sockets stay");
    let free = warmpath_ring::Ring::counters(&flow.ring).buffers_free;
    assert_eq!(free, u64::from(sizes.buffers), "receive buffers leak");
    let ledger = ledger.borrow();
    assert_eq!(ledger.running, 0, "legs run on: {ledger:?}");
    assert!(ledger.violations.is_empty(), "{:?}", ledger.violations);
    for end in ends.borrow().iter() {
        judge(kind, mix, end, &ledger);
    }
    let outcome = outcome(&ends.borrow(), &ledger, &report, warmpath_ring::Ring::now(&flow.ring));
    // Every request that was a pair to its end is counted once; those that a normal endpoint took are not, nor those
    // of clients that left before they were read.
    let counted: u64 = report.pairs[0].ended.iter().flatten().sum::<u64>() + outcome.counts["FellBack"];
    let all = ends.borrow().len() as u64;
    assert!(counted == all || mix == Mix::Leaving && counted < all, "{counted} of {all}: {report:?}");
    outcome
}

/// So much time passes.
fn pass(flow: &mut Flow<Sim>, nanos: u64) {
    let until = warmpath_ring::Ring::now(&flow.ring) + nanos;
    while warmpath_ring::Ring::now(&flow.ring) < until {
        flow.turn(Some(Duration::from_millis(500))).expect("the simulated ring never fails");
    }
}

/// At no time are fewer requests charged to a prefill endpoint than it keeps blocks of.
fn check_pinned(service: &Service, ledger: &Ledger, now: u64) {
    let mut pinned: HashMap<SocketAddr, u32> = HashMap::new();
    for kept in ledger.kept.values().filter(|kept| !kept.read && kept.until > now) {
        *pinned.entry(kept.at).or_default() += 1;
    }
    for endpoint in &service.endpoints {
        let kept = pinned.get(&endpoint.address()).copied().unwrap_or(0);
        assert!(kept <= endpoint.reserved(), "{kept} kept, {} charged", endpoint.reserved());
    }
}

fn outcome(ends: &[End], ledger: &Ledger, report: &ShardReport, end: u64) -> Outcome {
    let mut outcome = Outcome {
        prefills: ledger.prefills.values().sum(),
        decodes: ledger.decodes.values().sum(),
        end,
        ..Outcome::default()
    };
    for End { came, .. } in ends {
        *outcome.came.entry(format!("{came:?}")).or_default() += 1;
    }
    let pairs = &report.pairs[0];
    for (count, number) in warmpath_core::control::PairCount::ALL.into_iter().zip(pairs.counts) {
        outcome.counts.insert(format!("{count:?}"), number);
    }
    outcome
}

pub fn rule(seed: u64, kind: Kind, engines: &[(SocketAddr, Part)]) -> warmpath_core::rule::Rule {
    let role = |part| match part {
        Part::Normal => 0,
        Part::Prefill => 1,
        Part::Decode => 2,
    };
    let endpoints: Vec<_> = engines
        .iter()
        .map(|(at, part)| {
            json!({"endpointIP": at.ip().to_string(), "targetPort": at.port(), "weight": 1,
                   "ep_role": role(*part), "nixl_port": at.port() + 1000})
        })
        .collect();
    let engine = match kind {
        Kind::Vllm => "vllm",
        Kind::Sglang => "sglang",
        Kind::Trtllm => "trtllm",
    };
    let mut body = json!({
        "serviceArguments": {
            "externalIP": "10.0.0.1", "port": 8080, "protocol": "tcp", "mode": 4, "sel": 0,
            "pd_disagg_mode": true, "kvEngineType": engine, "first_byte_timeout_ms": 60_000,
            "pd_cache_aware_mode": seed % 2 == 1,
        },
        "endpoints": endpoints,
    });
    if kind == Kind::Sglang {
        body["serviceArguments"]["pdBootstrapPort"] = json!(BOOTSTRAP_PORT);
    }
    warmpath_core::rule::body::parse(&body, &Environment::default(), || "id".into()).expect("a good rule")
}

fn add_engines(
    sim: &mut Sim,
    ledger: &Shared<Ledger>,
    xor: u8,
    draw: &mut Draw,
    (kind, mix): (Kind, Mix),
) -> Vec<(SocketAddr, Part)> {
    let mut all = Vec::new();
    for (part, count) in
        [(Part::Prefill, 1 + draw.below(3)), (Part::Decode, 1 + draw.below(3)), (Part::Normal, draw.below(2))]
    {
        for name in 0..count {
            let at = SocketAddr::from(([10, 1 + part as u8, 0, name as u8 + 1], 8000));
            let engine = Engine {
                kind,
                part,
                at,
                bootstrap_port: BOOTSTRAP_PORT,
                ledger: ledger.clone(),
                xor,
                // One engine of a role always accepts.
                refuses: mix == Mix::Faulty && name > 0 && draw.below(3) == 0,
                idle_limit: draw.of(&[20_000_000, 2_000_000_000, 6_000_000_000]),
                conns: HashMap::new(),
                timers: Vec::new(),
            };
            let id = sim.add(Rc::new(RefCell::new(engine)));
            sim.serve(at, id);
            all.push((at, part));
        }
    }
    all
}

type Clients = Vec<Rc<RefCell<Client>>>;

fn add_clients(
    sim: &mut Sim,
    vip: SocketAddr,
    xor: u8,
    draw: &mut Draw,
    (kind, mix): (Kind, Mix),
) -> (Clients, Shared<Vec<End>>) {
    let ends: Shared<Vec<End>> = Rc::default();
    let mut clients = Vec::new();
    for number in 0..1 + draw.below(6) {
        let asks = (0..1 + draw.below(4)).map(|k| ask(number, k, draw, (kind, mix))).collect();
        let client = Rc::new(RefCell::new(Client {
            vip,
            xor,
            asks,
            ends: ends.clone(),
            conn: None,
            at: 0,
            buffer: Vec::new(),
            received: 0,
            begun: 0,
            done: false,
        }));
        sim.add(client.clone());
        clients.push(client);
    }
    (clients, ends)
}

const FAULTS: [&str; 9] =
    ["die-before", "reset-before", "half-head", "garbage", "die-mid", "hang", "400", "500", "slow"];

fn ask(client: u64, number: u64, draw: &mut Draw, (kind, mix): (Kind, Mix)) -> Ask {
    let mut prefill = "ok";
    let mut decode = "ok";
    let stream = draw.below(2) == 0;
    if mix == Mix::Faulty {
        match draw.below(5) {
            0 | 1 => prefill = draw.of(&FAULTS),
            2 | 3 => decode = draw.of(&FAULTS),
            _ => {}
        }
        if kind == Kind::Vllm && draw.below(8) == 0 {
            prefill = "nothing";
        }
        if kind == Kind::Trtllm && draw.below(6) == 0 {
            prefill = "final";
        }
        if decode == "die-mid" && stream {
            decode = "die-stream";
        }
    }
    let wish = Wish {
        tag: format!("c{client}r{number}"),
        lead: String::new(),
        stream,
        prefill: prefill.into(),
        always: draw.below(2) == 0,
        decode: decode.into(),
        pad: draw.of(&[0, 300, 9_000, 30_000]),
        out: draw.of(&[1, 200, 5_000]),
        state: if draw.below(3) == 0 { draw.of(&[1_000, 100_000]) } else { 10 },
    };
    let mut ask = Ask { wish, chunked: draw.below(3) == 0, own_id: draw.below(4) == 0, ..Ask::default() };
    if mix == Mix::Leaving && draw.below(2) == 0 {
        match draw.below(2) {
            0 => ask.leave_after = Some(draw.of(&[0, 1, 300, 3_000])),
            _ => {
                ask.leave_at = Some(draw.below(20_000_000));
                // Nothing but the client's leaving ends this one soon.
                if draw.below(2) == 0 {
                    (ask.wish.prefill, ask.wish.always) = ("hang".into(), true);
                }
            }
        }
    }
    ask
}
