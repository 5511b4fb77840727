//! One simulated run: a shard, engines, clients, all drawn from a seed; and what must hold at its end.

use crate::plain::ask::Ask;
use crate::plain::engine::{Ledger, Plain, engine_at};
use crate::sim::client::{Came, Client, End};
use crate::sim::engine::Engine;
use crate::sim::shard::{self, Sky, VIP};
use crate::sim::{Draw, Shared};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::rule::{HalfClose, Rule};
use warmpath_core::table::Table;
use warmpath_ring::Ring;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_shards::Settings;
use warmpath_shards::budget::Budget;

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

fn rule(engines: &[SocketAddr], draw: &mut Draw, mix: Mix) -> Rule {
    let endpoints: Vec<_> = engines
        .iter()
        .map(|e| serde_json::json!({"endpointIP": e.ip().to_string(), "targetPort": e.port(), "weight": 1}))
        .collect();
    let mut arguments = serde_json::json!({
        "protocol": "tcp", "mode": 4, "sel": draw.of(&[0, 2, 4]), "half_close": draw.of(&["leave", "serve"]),
    });
    if mix == Mix::Gated {
        for (name, values) in [
            ("fc_max_outstanding", [1, 2, 3]),
            ("fc_ep_max_inflight", [0, 0, 1]),
            ("fc_max_queue_depth", [0, 1, 4]),
            ("fc_max_queue_wait_ms", [1, 20, 3_000]),
            ("fc_tenant_max_share_pct", [0, 0, 50]),
        ] {
            arguments[name] = draw.of(&values).into();
        }
        arguments["fc_mode"] = "enforce".into();
        arguments["fc_fair"] = draw.of(&["off", "on"]).into();
    }
    let mut rule = shard::rule(arguments, endpoints);
    rule.deadlines.first_byte = 60 * SECOND;
    rule
}

fn settings(mix: Mix) -> Settings {
    Settings {
        max_inspect_body: if mix == Mix::Large { 40_000 } else { 16 << 20 },
        max_body: if mix == Mix::Large { 150_000 } else { 256 << 20 },
        ..Settings::default()
    }
}

/// One run. Panics where something that must hold does not.
pub fn run(seed: u64, mix: Mix) -> Outcome {
    let mut draw = Draw::new(seed ^ (mix as u64) << 32);
    let pieces: &[usize] = if mix == Mix::Large { &[1000, 16384] } else { &[7, 1000, 16384] };
    let sky = Sky::draw(&mut draw, pieces);
    let budget = Arc::new(Budget::new(if mix == Mix::Large { 100_000 } else { 10 << 20 }));
    let mut flow = sky.shard(seed, settings(mix), &budget);

    let vip = SocketAddr::from(VIP);
    let ledger: Shared<Ledger> = Rc::default();
    let engines = add_engines(&mut flow.ring, &ledger, sky.upstream_key, &mut draw, mix);
    let rule = rule(&engines, &mut draw, mix);
    let most = if mix == Mix::Gated { rule.gate.outstanding.value } else { u32::MAX };
    let serves_half_closed = rule.half_close == HalfClose::Serve;
    let table = Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0));
    let listener = flow.ring.listen_at(vip);
    flow.install(table.clone(), vec![(vip, listener)]);
    let (clients, ends) = add_clients(&mut flow.ring, &sky, &mut draw, mix, serves_half_closed);

    let mut turns = 0u64;
    while !clients.iter().all(|c| c.borrow().done) {
        flow.turn(Some(Duration::from_secs(1))).expect("the simulated ring never fails");
        turns += 1;
        let service = &table.vips[0].services[0];
        let charged: u32 = service.endpoints.iter().map(|endpoint| endpoint.reserved()).sum();
        assert!(charged <= most && service.admission.gate.out() <= most, "the gate let too many in");
        assert!(turns < 3_000_000, "the run does not end");
    }
    shard::assert_quiet(&mut flow, &sky, &table.vips[0].services[0], &budget);
    judge(mix, &ends.borrow(), &ledger.borrow(), flow.ring.now())
}

fn add_engines(
    sim: &mut Sim,
    ledger: &Shared<Ledger>,
    xor: u8,
    draw: &mut Draw,
    mix: Mix,
) -> Vec<SocketAddr> {
    let count = 1 + draw.below(3) as usize;
    let mut at = Vec::new();
    for name in 0..count {
        let address = engine_at(name);
        let idle = draw.of(&[20_000_000, 2_000_000_000, 6_000_000_000]);
        let mut engine = Engine::new(Plain { ledger: ledger.clone() }, xor, idle);
        // One engine always accepts.
        engine.refuses = mix == Mix::Faulty && name > 0 && draw.below(3) == 0;
        let id = sim.add(Rc::new(RefCell::new(engine)));
        sim.serve(address, id);
        at.push(address);
    }
    at
}

type Clients = Vec<Rc<RefCell<Client<Ask>>>>;

fn add_clients(
    sim: &mut Sim,
    sky: &Sky,
    draw: &mut Draw,
    mix: Mix,
    serves_half_closed: bool,
) -> (Clients, Shared<Vec<End<Ask>>>) {
    let ends: Shared<Vec<End<Ask>>> = Rc::default();
    let mut clients = Vec::new();
    let Weather { piece_max, .. } = sky.weather;
    for number in 0..1 + draw.below(8) {
        let asks = (0..1 + draw.below(4)).map(|k| ask(number, k, draw, mix, serves_half_closed)).collect();
        let mut client = Client::new(VIP.into(), sky.client_key, asks, ends.clone());
        client.slow = piece_max > 100 && draw.below(4) == 0;
        let client = Rc::new(RefCell::new(client));
        sim.add(client.clone());
        clients.push(client);
    }
    (clients, ends)
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

fn judge(mix: Mix, ends: &[End<Ask>], ledger: &Ledger, end: u64) -> Outcome {
    assert_eq!(ledger.wrong_bodies, 0, "an engine got another body than the client sent");
    let mut outcome = Outcome {
        executions: ledger.executions.values().sum(),
        connections: ledger.connections,
        end,
        ..Outcome::default()
    };
    for End { ask, came, .. } in ends {
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
        assert!(fine, "{ask:?} ended with {came:?}, executed {executed}; all: {ends:#?}");
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
