//! One simulated run: a shard, engines, clients, all drawn from a seed; and what must hold at its end.

use crate::client::{Ask, Came, Client};
use crate::engine::{Engine, Ledger, Shared};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::environment::Environment;
use warmpath_core::rule::{HalfClose, Rule};
use warmpath_core::table::Table;
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
    Large,
    /// More requests than the gate lets in, of clients that may leave.
    Gated,
}

/// Counts of what came, to see that a mix covers what it claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub came: HashMap<String, u32>,
    pub executions: u32,
    pub connections: u32,
    pub end: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        for (what, count) in &other.came {
            *self.came.entry(what.clone()).or_default() += count;
        }
        self.executions += other.executions;
        self.connections += other.connections;
    }

    pub fn assert_covers(&self, mix: Mix) {
        if std::env::var("FLOW_SEED").is_ok() {
            return;
        }
        let wanted: &[&str] = match mix {
            Mix::Kind => &["Answer(200)"],
            Mix::Faulty => {
                &["Answer(200)", "backend_died", "bad_answer", "ErrorEvent", "Cut", "first_byte_timeout"]
            }
            Mix::Leaving => &["Answer(200)", "Left"],
            Mix::Large => &["Answer(200)", "body_too_large", "memory_pressure"],
            Mix::Gated => &["Answer(200)", "Left", "admission_capacity", "admission_queue_timeout"],
        };
        for word in wanted {
            assert!(self.came.keys().any(|k| k.contains(word)), "{mix:?} never saw {word}: {self:?}");
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

const VIP: ([u8; 4], u16) = ([10, 0, 0, 1], 8080);

fn rule(engines: &[SocketAddr], draw: &mut Draw, mix: Mix) -> Rule {
    let endpoints: Vec<_> = engines
        .iter()
        .map(|e| serde_json::json!({"endpointIP": e.ip().to_string(), "targetPort": e.port(), "weight": 1}))
        .collect();
    let mut body = serde_json::json!({
        "serviceArguments": {
            "externalIP": "10.0.0.1", "port": 8080, "protocol": "tcp", "mode": 4,
            "sel": draw.of(&[0, 2, 4]), "half_close": draw.of(&["leave", "serve"]),
        },
        "endpoints": endpoints,
    });
    if mix == Mix::Gated {
        let service = body["serviceArguments"].as_object_mut().expect("an object");
        for (name, values) in [
            ("fc_max_outstanding", [1, 2, 3]),
            ("fc_ep_max_inflight", [0, 0, 1]),
            ("fc_max_queue_depth", [0, 1, 4]),
            ("fc_max_queue_wait_ms", [1, 20, 3_000]),
            ("fc_tenant_max_share_pct", [0, 0, 50]),
        ] {
            service.insert(name.into(), draw.of(&values).into());
        }
        service.insert("fc_mode".into(), "enforce".into());
        service.insert("fc_fair".into(), draw.of(&["off", "on"]).into());
    }
    let mut rule = warmpath_core::rule::body::parse(&body, &Environment::default(), || "id".into())
        .expect("a good rule");
    rule.deadlines.first_byte = 60 * SECOND;
    rule
}

fn settings(mix: Mix, client_key: u8, upstream_key: u8) -> Settings {
    let transport = |key| if key == 0 { Transport::Plain } else { Transport::Xor(key) };
    Settings {
        max_inspect_body: if mix == Mix::Large { 40_000 } else { 16 << 20 },
        max_body: if mix == Mix::Large { 150_000 } else { 256 << 20 },
        client_transport: transport(client_key),
        upstream_transport: transport(upstream_key),
        ..Settings::default()
    }
}

/// One run. Panics where something that must hold does not.
pub fn run(seed: u64, mix: Mix) -> Outcome {
    let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mix as u64);
    let sizes = Sizes {
        buffers: draw.of(&[8, 16, 64]),
        buffer_bytes: draw.of(&[512, 4096, 16384]),
        ..Sizes::default()
    };
    let weather = Weather {
        delay_max: draw.of(&[1_000, 400_000, 5_000_000]),
        socket_bytes: draw.of(&[700, 8192, 65536]),
        piece_max: if mix == Mix::Large { draw.of(&[1000, 16384]) } else { draw.of(&[7, 1000, 16384]) },
    };
    let (client_key, upstream_key) = (draw.of(&[0, 0x5A]), draw.of(&[0, 0xC3]));
    let sim = Sim::new(seed, sizes, weather);
    let budget = Arc::new(Budget::new(if mix == Mix::Large { 100_000 } else { 10 << 20 }));
    let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).expect("an empty index");
    let mut flow =
        Flow::new(sim, sizes, settings(mix, client_key, upstream_key), budget.clone(), exact, seed);

    let vip = SocketAddr::from(VIP);
    let ledger: Shared<Ledger> = Rc::default();
    let engines = add_engines(&mut flow.ring, &ledger, upstream_key, &mut draw, mix);
    let rule = rule(&engines, &mut draw, mix);
    let most = if mix == Mix::Gated { rule.gate.outstanding.value } else { u32::MAX };
    let serves_half_closed = rule.half_close == HalfClose::Serve;
    let table = Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0));
    let listener = flow.ring.listen_at(vip);
    flow.install(table.clone(), vec![(vip, listener)]);
    let (clients, came) =
        add_clients(&mut flow.ring, vip, client_key, &mut draw, mix, &weather, serves_half_closed);

    let mut turns = 0u64;
    while !clients.iter().all(|c| c.borrow().done) {
        flow.turn(Some(Duration::from_secs(1))).expect("the simulated ring never fails");
        turns += 1;
        let service = &table.vips[0].services[0];
        let charged: u32 = service.endpoints.iter().map(|endpoint| endpoint.reserved()).sum();
        assert!(charged <= most && service.admission.gate.out() <= most, "the gate let too many in");
        assert!(turns < 3_000_000, "the run does not end");
    }
    // Long enough for every idle and lingering connection to be closed.
    let until = warmpath_ring::Ring::now(&flow.ring) + 400 * SECOND;
    while warmpath_ring::Ring::now(&flow.ring) < until {
        flow.turn(Some(Duration::from_secs(1))).expect("the simulated ring never fails");
    }
    let report = flow.report(0);
    for endpoint in &table.vips[0].services[0].endpoints {
        assert_eq!(endpoint.reserved(), 0, "a charge was not settled");
    }
    let admission = &table.vips[0].services[0].admission;
    assert_eq!(
        (admission.gate.out(), admission.gate.waiting()),
        (0, 0),
        "a permit or a place was not given back"
    );
    assert_eq!(admission.tenants.active(), 0, "a tenant's seat was not given back");
    assert_eq!(budget.used(), 0, "memory was not given back");
    assert_eq!((report.clients, report.upstreams, report.active), (0, 0, 0), "connections stay");
    assert_eq!(flow.ring.sockets(), 0, "sockets stay");
    let free = warmpath_ring::Ring::counters(&flow.ring).buffers_free;
    assert_eq!(free, u64::from(sizes.buffers), "receive buffers leak");
    judge(mix, &came.borrow(), &ledger.borrow(), warmpath_ring::Ring::now(&flow.ring))
}

fn add_engines(
    sim: &mut Sim,
    ledger: &Shared<Ledger>,
    xor: u8,
    draw: &mut Draw,
    mix: Mix,
) -> Vec<SocketAddr> {
    let count = 1 + draw.below(3) as u16;
    let mut at = Vec::new();
    for name in 0..count {
        let address = SocketAddr::from(([10, 1, 0, name as u8 + 1], 8000));
        let engine = Engine {
            ledger: ledger.clone(),
            xor,
            // One engine always accepts.
            refuses: mix == Mix::Faulty && name > 0 && draw.below(3) == 0,
            idle_limit: draw.of(&[20_000_000, 2_000_000_000, 6_000_000_000]),
            conns: HashMap::new(),
            timers: Vec::new(),
        };
        let id = sim.add(Rc::new(RefCell::new(engine)));
        sim.serve(address, id);
        at.push(address);
    }
    at
}

type Clients = Vec<Rc<RefCell<Client>>>;

fn add_clients(
    sim: &mut Sim,
    vip: SocketAddr,
    xor: u8,
    draw: &mut Draw,
    mix: Mix,
    weather: &Weather,
    serves_half_closed: bool,
) -> (Clients, Shared<Vec<(Ask, Came)>>) {
    let came: Shared<Vec<(Ask, Came)>> = Rc::default();
    let mut clients = Vec::new();
    for number in 0..1 + draw.below(8) {
        let asks = (0..1 + draw.below(4)).map(|k| ask(number, k, draw, mix, serves_half_closed)).collect();
        let client = Rc::new(RefCell::new(Client {
            vip,
            xor,
            asks,
            came: came.clone(),
            slow: weather.piece_max > 100 && draw.below(4) == 0,
            conn: None,
            at: 0,
            buffer: Vec::new(),
            received: 0,
            outgoing: Vec::new(),
            done: false,
        }));
        sim.add(client.clone());
        clients.push(client);
    }
    (clients, came)
}

fn ask(client: u64, number: u64, draw: &mut Draw, mix: Mix, serves_half_closed: bool) -> Ask {
    let size = draw.of(&[0, 1, 300, 5_000, 20_000]);
    let out = draw.of(&[1, 200, 5_000, 60_000]);
    let kind = [
        format!("length {out}"),
        format!("chunked {out} {} {}", 1 + out / draw.of(&[1, 3, 20]), 1 + out / 7),
        format!("interim {out}"),
        format!("closing {out}"),
        format!("until-close {out}"),
    ];
    let faulty = [
        "die-before",
        "reset-before",
        "half-head",
        "garbage",
        "bad-framing",
        "die-mid 500",
        "die-stream",
        "hang",
        "early",
    ];
    let todo = match mix {
        Mix::Faulty if draw.below(2) == 0 => draw.of(&faulty).to_owned(),
        _ => kind[draw.below(kind.len() as u64) as usize].clone(),
    };
    // HTTP/1.0 has no way to show that such an answer was cut.
    let old = draw.below(8) == 0 && !(mix == Mix::Large && todo.starts_with("until-close"));
    let mut ask = Ask { id: format!("c{client}r{number}"), todo, size, ..Ask::default() };
    ask.old = old;
    ask.chunked = !old && draw.below(3) == 0;
    ask.expect = !old && draw.below(5) == 0;
    if matches!(mix, Mix::Leaving | Mix::Gated) && draw.below(if mix == Mix::Gated { 5 } else { 2 }) == 0 {
        ask.leave_after = Some(draw.of(&[0, 1, 100, 3_000]));
    }
    if mix == Mix::Kind && serves_half_closed {
        ask.half_close = draw.below(4) == 0;
    }
    if mix == Mix::Large {
        ask.stalls = draw.below(5) == 0;
        ask.size = draw.of(&[10_000, 30_000, 39_000, 60_000, 120_000, 200_000]);
    }
    ask
}

fn judge(mix: Mix, came: &[(Ask, Came)], ledger: &Ledger, end: u64) -> Outcome {
    assert_eq!(ledger.wrong_bodies, 0, "an engine got another body than the client sent");
    let mut outcome = Outcome {
        executions: ledger.executions.values().sum(),
        connections: ledger.connections,
        end,
        ..Outcome::default()
    };
    let all = came;
    for (ask, came) in came {
        *outcome.came.entry(format!("{came:?}")).or_default() += 1;
        let executed = ledger.executions.get(&ask.id).copied().unwrap_or(0);
        assert!(executed <= 1, "{ask:?} was executed {executed} times");
        let fine = match (mix, came) {
            (Mix::Leaving | Mix::Gated, Came::Left) => ask.leave_after.is_some(),
            (Mix::Gated, Came::Refusal(_, code)) => code.starts_with("admission_") && executed == 0,
            (Mix::Large, Came::Refusal(413, code)) => code == "body_too_large" && ask.size > 150_000,
            (Mix::Large, Came::Refusal(503, code)) => code == "memory_pressure",
            // A slow reader may be cut when memory is short; that it shows is checked by the bodies.
            (Mix::Large, Came::Cut) => true,
            (Mix::Faulty, came) => faulty_end(&ask.todo, came),
            (_, Came::Answer(200)) => executed == 1,
            _ => false,
        };
        assert!(fine, "{ask:?} ended with {came:?}, executed {executed}; all: {all:#?}");
    }
    outcome
}

/// Whether `came` is what a request of this kind may end with.
fn faulty_end(todo: &str, came: &Came) -> bool {
    let refused = |status: u16, code: &str| *came == Came::Refusal(status, code.to_owned());
    match todo.split(' ').next().unwrap_or_default() {
        "die-before" | "reset-before" | "half-head" => refused(502, "backend_died"),
        "garbage" | "bad-framing" => refused(502, "bad_answer"),
        "die-mid" => *came == Came::Cut,
        "die-stream" => matches!(came, Came::ErrorEvent | Came::Cut),
        "hang" => refused(504, "first_byte_timeout"),
        // A small body may have been read whole by then: the engine hangs.
        "early" => {
            // A reset for unread bytes may overtake the answer.
            let lost = refused(502, "backend_died") || refused(504, "first_byte_timeout");
            *came == Came::Answer(413) || lost
        }
        _ => *came == Came::Answer(200),
    }
}
