//! One simulated run: a shard, engines of both roles, clients, all drawn from a seed; and what must hold at all times
//! and at its end.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{BOOTSTRAP_PORT, Kind, Paired, Part};
use crate::pairs::judge::judge;
use crate::pairs::ledger::Ledger;
use crate::sim::client::{Client, End};
use crate::sim::engine::Engine;
use crate::sim::shard::{self, Sky, VIP};
use crate::sim::{Draw, Shared};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::control::{PairCount, ShardReport};
use warmpath_core::table::{Service, Table};
use warmpath_ring::Ring;
use warmpath_ring::sim::Sim;
use warmpath_shards::Settings;
use warmpath_shards::budget::Budget;

/// What kind of trouble a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Kind,
    Faulty,
    Leaving,
    /// More pairs than the gate lets in, of clients that may leave and engines that may fail.
    Gated,
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
            (Mix::Kind, Kind::Vllm) => &["Answer(200)", "Encoded"],
            (Mix::Kind, _) => &["Answer(200)"],
            (Mix::Leaving, _) => &["Answer(200)", "Left"],
            (Mix::Gated, _) => &["Answer(200)", "Left", "admission_capacity", "admission_queue_timeout"],
            (Mix::Faulty, Kind::Sglang) => &[
                "Answer(200)",
                "Answer(400)",
                "pd_sg_prefill_failed",
                "pd_decode_backend_died",
                "RoomRetry",
                "DecodeAborted",
            ],
            (Mix::Faulty, Kind::Vllm) => &[
                "Answer(200)",
                "Answer(400)",
                "pd_prefill_timeout",
                "pd_decode_timeout",
                "pd_encode_timeout",
                "pd_decode_backend_died",
                "HandedOver",
                "NotHandedOver",
                "Orphaned",
                "PrefillDied",
                "Encoded",
                "NotEncoded",
                "EncodeRefused",
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

/// One run. Panics where something that must hold does not.
pub fn run(seed: u64, kind: Kind, mix: Mix) -> Outcome {
    let mut draw = Draw::new(seed ^ (mix as u64) << 32 ^ (kind as u64) << 40);
    let sky = Sky::draw(&mut draw, &[70, 1000, 16384]);
    // Bodies of pairs are held whatever their length.
    let settings = Settings { max_inspect_body: 8_000, ..Settings::default() };
    let budget = Arc::new(Budget::new(20 << 20));
    let mut flow = sky.shard(seed, settings, &budget);

    let vip = SocketAddr::from(VIP);
    let ledger: Shared<Ledger> = Rc::default();
    let engines = add_engines(&mut flow.ring, &ledger, sky.upstream_key, &mut draw, (kind, mix));
    let mut arguments = arguments(kind, seed % 2 == 1);
    if mix == Mix::Gated {
        gate(&mut arguments, &mut draw);
    }
    let table = Arc::new(Table::next(
        &Table::default(),
        vec![shard::rule(arguments, endpoints(&engines))],
        &mut 0,
        0,
    ));
    let listener = flow.ring.listen_at(vip);
    flow.install(table.clone(), vec![(vip, listener)]);
    let (clients, ends) = add_clients(&mut flow.ring, sky.client_key, &mut draw, (kind, mix));
    let service = &table.vips[0].services[0];

    let mut turns = 0u64;
    while !clients.iter().all(|c| c.borrow().done) {
        flow.turn(Some(Duration::from_secs(1))).expect("the simulated ring never fails");
        check_gate(service);
        if !matches!(mix, Mix::Leaving | Mix::Gated) {
            check_pinned(service, &ledger.borrow(), flow.ring.now());
        }
        turns += 1;
        assert!(turns < 3_000_000, "the run does not end");
    }
    if mix == Mix::Leaving {
        // Legs of those who left are closed at once, not by their deadlines.
        let soon = flow.ring.now() + SECOND;
        shard::pass_until(&mut flow, soon);
        assert_eq!(ledger.borrow().running, 0, "legs of clients that left run on");
    }
    shard::assert_quiet(&mut flow, &sky, service, &budget);
    let report = flow.report(0);
    let ledger = ledger.borrow();
    assert_eq!(ledger.running, 0, "legs run on: {ledger:?}");
    assert!(ledger.violations.is_empty(), "{:?}", ledger.violations);
    for end in ends.borrow().iter() {
        judge(kind, mix, end, &ledger);
    }
    let outcome = outcome(&ends.borrow(), &ledger, &report, flow.ring.now());
    // Every request that was a pair to its end is counted once; those that a normal endpoint took are not, nor those
    // of clients that left before they were read.
    let counted: u64 = report.pairs[0].ended.iter().flatten().sum::<u64>() + outcome.counts["FellBack"];
    let all = ends.borrow().len() as u64;
    let leave = matches!(mix, Mix::Leaving | Mix::Gated);
    assert!(counted == all || leave && counted < all, "{counted} of {all}: {report:?}");
    outcome
}

/// At no time are more let in than may be, nor more charged to an endpoint.
fn check_gate(service: &Service) {
    let gate = &service.rule.gate;
    let most = if gate.outstanding.value == 0 { u32::MAX } else { gate.outstanding.value };
    assert!(service.admission.gate.out() <= most, "the gate let too many in");
    for (index, endpoint) in service.endpoints.iter().enumerate() {
        assert!(endpoint.reserved() <= service.endpoint_most(index), "{} has too many", endpoint.address());
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

fn outcome(ends: &[End<Ask>], ledger: &Ledger, report: &ShardReport, end: u64) -> Outcome {
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
    for (count, number) in PairCount::ALL.into_iter().zip(pairs.counts) {
        outcome.counts.insert(format!("{count:?}"), number);
    }
    outcome
}

/// Arguments of a rule for pairs.
pub fn arguments(kind: Kind, cache_aware: bool) -> Value {
    let engine = match kind {
        Kind::Vllm => "vllm",
        Kind::Sglang => "sglang",
        Kind::Trtllm => "trtllm",
    };
    let mut arguments = json!({
        "protocol": "tcp", "mode": 4, "sel": 0, "pd_disagg_mode": true, "kvEngineType": engine,
        "first_byte_timeout_ms": 60_000, "pd_cache_aware_mode": cache_aware,
    });
    if kind == Kind::Sglang {
        arguments["pdBootstrapPort"] = json!(BOOTSTRAP_PORT);
    }
    arguments
}

/// A gate that is too small for some.
fn gate(arguments: &mut Value, draw: &mut Draw) {
    for (name, values) in [
        ("fc_max_outstanding", [1, 2, 3]),
        ("fc_prefill_max_inflight", [0, 0, 2]),
        ("fc_decode_max_inflight", [0, 0, 2]),
        ("fc_max_queue_depth", [0, 1, 9]),
        ("fc_max_queue_wait_ms", [1, 3_000, 60_000]),
        ("fc_tenant_max_share_pct", [0, 0, 50]),
    ] {
        arguments[name] = draw.of(&values).into();
    }
    arguments["fc_fair"] = draw.of(&["off", "on"]).into();
    arguments["fc_mode"] = "enforce".into();
}

/// Engines, as a rule's endpoints.
pub fn endpoints(engines: &[(SocketAddr, Part)]) -> Vec<Value> {
    let endpoint = |(at, part): &(SocketAddr, Part)| {
        let role = match part {
            Part::Normal => 0,
            Part::Prefill => 1,
            Part::Decode => 2,
            Part::Encode => 3,
        };
        json!({"endpointIP": at.ip().to_string(), "targetPort": at.port(), "weight": 1,
               "ep_role": role, "nixl_port": at.port() + 1000})
    };
    engines.iter().map(endpoint).collect()
}

/// The address of an engine.
pub fn engine_at(part: Part, number: u64) -> SocketAddr {
    ([10, 1 + part as u8, 0, number as u8 + 1], 8000).into()
}

fn add_engines(
    sim: &mut Sim,
    ledger: &Shared<Ledger>,
    xor: u8,
    draw: &mut Draw,
    (kind, mix): (Kind, Mix),
) -> Vec<(SocketAddr, Part)> {
    let mut all = Vec::new();
    let encoders = if kind == Kind::Vllm { draw.below(3) } else { 0 };
    for (part, count) in [
        (Part::Prefill, 1 + draw.below(3)),
        (Part::Decode, 1 + draw.below(3)),
        (Part::Normal, draw.below(2)),
        (Part::Encode, encoders),
    ] {
        for name in 0..count {
            let at = engine_at(part, name);
            let idle = draw.of(&[20_000_000, 2_000_000_000, 6_000_000_000]);
            let mut engine = Engine::new(Paired::new(kind, part, at, ledger), xor, idle);
            // One engine of a role always accepts.
            engine.refuses = matches!(mix, Mix::Faulty | Mix::Gated) && name > 0 && draw.below(3) == 0;
            let id = sim.add(Rc::new(RefCell::new(engine)));
            sim.serve(at, id);
            all.push((at, part));
        }
    }
    all
}

type Clients = Vec<Rc<RefCell<Client<Ask>>>>;

fn add_clients(
    sim: &mut Sim,
    xor: u8,
    draw: &mut Draw,
    (kind, mix): (Kind, Mix),
) -> (Clients, Shared<Vec<End<Ask>>>) {
    let ends: Shared<Vec<End<Ask>>> = Rc::default();
    let mut clients = Vec::new();
    for number in 0..1 + draw.below(6) {
        let asks = (0..1 + draw.below(4)).map(|k| ask(number, k, draw, (kind, mix))).collect();
        let client = Rc::new(RefCell::new(Client::new(VIP.into(), xor, asks, ends.clone())));
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
    let mut encode = if draw.below(4) == 0 { "nothing" } else { "ok" };
    if matches!(mix, Mix::Faulty | Mix::Gated) {
        if draw.below(2) == 0 {
            encode = draw.of(&FAULTS);
        }
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
        images: if kind == Kind::Vllm { draw.of(&[0, 0, 1, 3, 20]) } else { 0 },
        native: kind == Kind::Sglang && draw.below(4) == 0,
        encode: encode.into(),
        pad: draw.of(&[0, 300, 9_000, 30_000]),
        out: draw.of(&[1, 200, 5_000]),
        state: if draw.below(3) == 0 { draw.of(&[1_000, 100_000]) } else { 10 },
        ..Wish::default()
    };
    let mut ask = Ask { wish, chunked: draw.below(3) == 0, own_id: draw.below(4) == 0, ..Ask::default() };
    let one_in = if mix == Mix::Gated { 5 } else { 2 };
    if matches!(mix, Mix::Leaving | Mix::Gated) && draw.below(one_in) == 0 {
        match draw.below(2) {
            0 => ask.leave_after = Some(draw.of(&[0, 1, 300, 3_000])),
            _ => {
                ask.leave_within = Some(20_000_000);
                // Nothing but the client's leaving ends this one soon.
                if draw.below(2) == 0 {
                    (ask.wish.prefill, ask.wish.always) = ("hang".into(), true);
                }
            }
        }
    }
    ask
}
