//! The event core against engines that say exactly what a test tells them to: fences, findings, drift,
//! admission, and what holds when nobody answers.

#[path = "core_simulated/pages.rs"]
mod pages;
#[path = "core_simulated/peer.rs"]
mod peer;

use pages::{answer, take_request};
use peer::{Ear, Heard, batch, greeting, message, pong, ready};
use rmpv::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use warmpath_core::SECOND;
use warmpath_core::block::BlockSize;
use warmpath_core::control::{RankReport, SourceReport};
use warmpath_core::engine::{Algo, Engine, Seed, Terms, Version};
use warmpath_core::environment::Environment;
use warmpath_core::rule::body;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, Rule};
use warmpath_core::shared::{Fence, Tier};
use warmpath_core::table::Table;
use warmpath_events::eventcore::{EventCore, Settings};
use warmpath_kvindex::{Plan, index};
use warmpath_ring::sim::{Actor, PeerEvent, Sim, Weather, World};
use warmpath_ring::{Ring, Sizes};

/// What one engine says.
#[derive(Default)]
struct Script {
    /// Answers by path; others are 404.
    http: BTreeMap<&'static str, String>,
    /// Payloads to whoever subscribes, and to whoever asks for a replay.
    payloads: Vec<Vec<u8>>,
    /// Paths asked for.
    asked: Vec<String>,
    ears: BTreeMap<usize, Ear>,
    requests: BTreeMap<usize, Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Http,
    Publish,
    Replay,
}

struct Door(Port, Rc<RefCell<Script>>);

impl Actor for Door {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        let Door(port, script) = self;
        let mut script = script.borrow_mut();
        match event {
            PeerEvent::Accepted { conn } if *port != Port::Http => {
                script.ears.insert(conn, Ear::default());
                world.send(conn, &greeting());
            }
            PeerEvent::Data { conn, bytes } if *port == Port::Http => script.serve(conn, &bytes, world),
            PeerEvent::Data { conn, bytes } => {
                let heard = script.ears.get_mut(&conn).expect("a connection").hear(&bytes);
                heard.into_iter().for_each(|heard| script.tell(*port, conn, heard, world));
            }
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => world.close(conn),
            _ => {}
        }
    }
}

impl Script {
    fn serve(&mut self, conn: usize, bytes: &[u8], world: &mut World<'_>) {
        let request = self.requests.entry(conn).or_default();
        request.extend_from_slice(bytes);
        while let Some(path) = self.requests.get_mut(&conn).and_then(take_request) {
            let body = self.http.get(path.as_str());
            world.send(conn, &answer(if body.is_some() { 200 } else { 404 }, body.map_or("", |b| b), false));
            self.asked.push(path);
        }
    }

    fn tell(&mut self, port: Port, conn: usize, heard: Heard, world: &mut World<'_>) {
        let numbered = self.payloads.iter().enumerate();
        match (heard, port) {
            (Heard::Greeting, Port::Publish) => world.send(conn, &ready("PUB")),
            (Heard::Greeting, _) => world.send(conn, &ready("ROUTER")),
            (Heard::Ping(context), _) => world.send(conn, &pong(&context)),
            (Heard::Subscribe, _) => {
                numbered.for_each(|(seq, payload)| world.send(conn, &batch(seq as u64, payload)));
            }
            (Heard::Message(frames), _) => {
                let from = u64::from_be_bytes(frames[1].as_slice().try_into().expect("eight bytes"));
                let numbered = numbered.skip(from as usize);
                numbered.for_each(|(seq, payload)| world.send(conn, &peer::reply(seq as u64, payload)));
                world.send(conn, &message(&[b"", b"", &[0xff; 8], b""]));
            }
            (Heard::Ready, _) => {}
        }
    }
}

/// One stored block of 16 tokens.
fn stored(rank: u64, hashes: &[u64], members: &[(&str, Value)]) -> Vec<u8> {
    let names = hashes.iter().map(|hash| Value::from(*hash)).collect();
    let mut event = vec![
        (Value::from("type"), Value::from("BlockStored")),
        (Value::from("block_hashes"), Value::Array(names)),
        (Value::from("block_size"), Value::from(16)),
    ];
    event.extend(members.iter().map(|(name, value)| (Value::from(*name), value.clone())));
    let batch = [Value::F64(1.5), Value::Array(vec![Value::Map(event)]), Value::from(rank)];
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Array(batch.to_vec())).expect("into memory");
    bytes
}

fn vllm(version: &str, blocks: u32) -> Script {
    let metrics = format!(
        "process_start_time_seconds 1.5\nvllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"{blocks}\",\
         prefix_caching_hash_algo=\"sha256_cbor\"}} 1.0\n"
    );
    let http = [
        ("/version", format!(r#"{{"version":"{version}"}}"#)),
        ("/v1/models", r#"{"data":[{"id":"m"}]}"#.to_owned()),
        ("/metrics", metrics),
    ];
    Script { http: http.into(), ..Script::default() }
}

struct Bench {
    core: EventCore<Sim>,
    scripts: Vec<Rc<RefCell<Script>>>,
    table: Table,
    numbers: u32,
    rule: Rule,
}

impl Bench {
    fn new(engine: Engine, algo: Algo, scripts: Vec<Script>) -> Bench {
        Bench::of_blocks(1_000, engine, algo, scripts)
    }

    /// An index for so many blocks.
    fn of_blocks(blocks: usize, engine: Engine, algo: Algo, scripts: Vec<Script>) -> Bench {
        let mut sim = Sim::new(7, Sizes { buffers: 64, ..Sizes::default() }, Weather::default());
        let scripts: Vec<_> = scripts.into_iter().map(|script| Rc::new(RefCell::new(script))).collect();
        for (at, script) in scripts.iter().enumerate() {
            let doors = [(Port::Http, 8_000), (Port::Publish, 5_557), (Port::Replay, 6_557)];
            for (port, number) in doors {
                // An engine without a page to show does not serve at all.
                if port != Port::Http || !script.borrow().http.is_empty() {
                    let id = sim.add(Rc::new(RefCell::new(Door(port, script.clone()))));
                    sim.serve(SocketAddr::from(([10, 0, 0, at as u8 + 1], number)), id);
                }
            }
        }
        let (writer, _) = index(Plan::for_blocks(blocks, 64, 1).expect("a plan"), 1);
        let terms = Terms { seed: Seed::Given("0"), ..Terms::plain(algo, BlockSize::SIXTEEN) };
        let terms = Terms { block_size: engine.rule_block_size(), ..terms };
        let endpoints: Vec<_> = (1..=scripts.len())
            .map(|at| serde_json::json!({"endpointIP": format!("10.0.0.{at}"), "targetPort": 8000, "weight": 1}))
            .collect();
        let arguments = serde_json::json!({"externalIP": "10.1.0.1", "port": 80, "model_name": "m"});
        let rule = serde_json::json!({"serviceArguments": arguments, "endpoints": endpoints});
        let mut rule = body::parse(&rule, &Environment::default(), || "r".into()).expect("a rule");
        rule.exact = Some(KvExact {
            profile: Default::default(),
            contract: engine.contract(&terms).expect("a contract"),
            version: None,
            ports: KvPorts { publish: 5_557, replay: 6_557, bind: false },
            ranks: 1,
            rank_mode: RankMode::Pin,
            warmup: 0,
        });
        let core = EventCore::new(sim, writer, Settings::default());
        let mut bench = Bench { core, scripts, table: Table::default(), numbers: 0, rule: rule.clone() };
        bench.follow(vec![rule]);
        bench
    }

    fn follow(&mut self, rules: Vec<Rule>) {
        self.table = Table::next(&self.table, rules, &mut self.numbers, 0);
        self.core.follow(&self.table);
    }

    fn run(&mut self, seconds: u64) {
        let until = self.core.ring().now() + seconds * SECOND;
        while self.core.ring().now() < until {
            self.core.turn(Some(Duration::from_millis(100))).expect("a simulated ring");
        }
    }

    fn source(&self, at: usize) -> SourceReport {
        self.core.report(0).sources[at].clone()
    }

    fn rank(&self) -> RankReport {
        self.source(0).ranks[0].clone()
    }

    /// What the rule of this place makes of its endpoints.
    fn fences(&self, rule: usize) -> Vec<Option<Fence>> {
        let service = self.table.services().nth(rule).expect("a rule");
        service.exact.as_ref().expect("an exact rule").fences().collect()
    }

    fn fence(&self, at: usize) -> Option<Fence> {
        let told = self.source(at).fence;
        assert_eq!(told, self.table.sources()[at].fence(), "what is told is what decisions read");
        told
    }
}

fn one(script: Script) -> Bench {
    Bench::new(Engine::Vllm, Algo::Sha256Cbor, vec![script])
}

#[test]
fn an_engine_that_serves_no_pages_is_followed_at_the_rules_ports() {
    let mut bench = one(Script { payloads: vec![stored(0, &[1, 2], &[])], ..Script::default() });
    bench.run(2);
    let source = bench.source(0);
    assert_eq!((source.fence, source.transport), (None, "dial"));
    assert!(source.findings[0].contains("does not answer"), "{source:?}");
    let rank = bench.rank();
    assert_eq!((rank.blocks, rank.standing, rank.sequence), ([2, 0, 0], "complete", Some(0)));
}

#[test]
fn an_engine_of_other_blocks_is_fenced_with_cause_and_cure() {
    let mut script = vllm("0.30.0", 100);
    let metrics = "vllm:cache_config_info{block_size=\"12\"} 1.0\n";
    script.http.insert("/metrics", metrics.into());
    let mut bench = one(script);
    bench.run(2);
    assert_eq!((bench.fence(0), bench.rank().standing), (Some(Fence::BlockSize), "fenced"));
    assert!(bench.source(0).findings.iter().any(|finding| finding.contains("kvBlockSize to 12")));
    // A minute later it was started anew with the rule's.
    bench.scripts[0].borrow_mut().http.insert("/metrics", metrics.replace("12", "16"));
    bench.run(62);
    assert_eq!(bench.fence(0), None);
}

#[test]
fn events_show_a_block_size_that_no_page_tells() {
    let small = [("block_size", Value::from(8))];
    let mut bench = one(Script { payloads: vec![stored(0, &[1], &small)], ..Script::default() });
    bench.run(2);
    assert_eq!((bench.fence(0), bench.rank().blocks), (Some(Fence::BlockSize), [0, 0, 0]));
}

#[test]
fn a_port_of_another_rank_is_fenced_and_nothing_of_it_counts() {
    let mut script = vllm("0.30.0", 100);
    script.payloads = (0..4).map(|hash| stored(3, &[hash], &[])).collect();
    let mut bench = one(script);
    bench.run(2);
    assert_eq!(bench.fence(0), Some(Fence::Rank));
    let rank = bench.rank();
    assert_eq!((rank.blocks, rank.rank_mismatch, rank.batches), ([0, 0, 0], 4, 0));
}

#[test]
fn a_model_of_sliding_windows_alone_is_fenced_until_a_whole_group_shows() {
    let window = [("kv_cache_spec_kind", Value::from("sliding_window")), ("group_idx", Value::from(0))];
    let mut script = vllm("0.30.0", 100);
    script.payloads = vec![stored(0, &[1], &window)];
    let mut bench = one(script);
    bench.run(2);
    assert_eq!((bench.fence(0), bench.rank().blocks), (Some(Fence::Groups), [0, 0, 0]));
    let whole = [("kv_cache_spec_kind", Value::from("full_attention")), ("group_idx", Value::from(1))];
    bench.scripts[0].borrow_mut().payloads.push(stored(0, &[1], &whole));
    bench.run(60);
    assert_eq!((bench.fence(0), bench.rank().blocks), (None, [1, 0, 0]));
}

#[test]
fn more_blocks_than_the_engine_has_are_forgotten_and_followed_anew() {
    let mut script = vllm("0.30.0", 2);
    script.payloads = vec![stored(0, &[1, 2, 3], &[])];
    let mut bench = one(script);
    bench.run(10);
    let rank = bench.rank();
    assert_eq!((bench.fence(0), rank.blocks), (Some(Fence::Drift), [0, 0, 0]));
    assert!(rank.cleared >= 2, "once at once, then after a rest: {rank:?}");
    assert!(bench.source(0).findings.iter().any(|finding| finding.contains("more blocks than")));
    bench.scripts[0].borrow_mut().payloads = vec![stored(0, &[1, 2], &[])];
    bench.run(90);
    assert_eq!((bench.fence(0), bench.rank().blocks), (None, [2, 0, 0]));
}

#[test]
fn endpoints_are_compared_with_the_first_that_told_its_version() {
    let scripts = vec![vllm("0.32.0", 9), vllm("0.30.0", 9), vllm("0.31.2", 9), Script::default()];
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, scripts);
    bench.run(3);
    assert_eq!(bench.fences(0), [None, Some(Fence::Version), None, None]);
    assert_eq!((bench.fence(1), bench.source(1).version.as_str()), (None, "0.30.0"));
    assert!(bench.source(1).findings.iter().any(|finding| finding.contains("first endpoint's 0.32.0")));
    assert!(bench.source(2).findings.iter().all(|finding| !finding.contains("names blocks otherwise")));
}

#[test]
fn a_version_that_does_not_fit_one_rule_is_let_in_by_another() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, vec![vllm("0.32.0", 9), vllm("0.30.0", 9)]);
    let both = bench.rule.clone();
    let mut alone = both.clone();
    alone.key.vip.set_port(81);
    alone.endpoints.remove(0);
    let mut fixed = alone.clone();
    fixed.key.vip.set_port(82);
    let exact = fixed.exact.as_mut().expect("an exact rule");
    exact.version = Version::read("0.32.0");
    bench.follow(vec![both, alone.clone(), fixed]);
    assert_eq!(bench.table.sources().len(), 3, "what fixes no version is followed once");
    bench.run(3);
    assert_eq!(bench.fences(0), [None, Some(Fence::Version)]);
    assert_eq!(bench.fences(1), [None]);
    assert_eq!(bench.fences(2), [Some(Fence::Version)]);
    // The rule that has both is gone: nothing else changes.
    bench.follow(vec![alone]);
    assert_eq!(bench.fences(0), [None]);
    assert!(bench.source(0).findings.iter().all(|finding| !finding.contains("names blocks otherwise")));
}

#[test]
fn rules_of_other_terms_do_not_drain_one_engine_twice() {
    let http = [("/server_info", "{}".to_owned()), ("/kv_cache_events", "[]".to_owned())];
    let script = Script { http: http.into(), ..Script::default() };
    let mut bench = Bench::new(Engine::Trtllm, Algo::BlockhashTrtllm, vec![script]);
    let first = bench.rule.clone();
    let mut second = first.clone();
    second.key.vip.set_port(81);
    second.exact.as_mut().expect("an exact rule").ranks = 2;
    bench.follow(vec![first, second.clone()]);
    bench.run(5);
    assert_eq!((bench.fences(0), bench.fences(1)), (vec![None], vec![Some(Fence::Ownership)]));
    assert!(bench.source(1).findings.iter().any(|finding| finding.contains("taken but once")));
    bench.follow(vec![second]);
    bench.run(2);
    assert_eq!((bench.fences(0), bench.source(0).ranks[0].connected), (vec![None], true));
}

#[test]
fn a_drained_engine_is_admitted_before_anything_is_taken_from_it() {
    let http = [
        ("/server_info", r#"{"kv_cache_hash_algo":"v2_sha256","tokens_per_block":32}"#.to_owned()),
        ("/v1/models", r#"{"data":[{"id":"m"}]}"#.to_owned()),
        ("/kv_cache_events", "[]".to_owned()),
    ];
    let script = Script { http: http.into(), ..Script::default() };
    let mut bench = Bench::new(Engine::Trtllm, Algo::BlockhashTrtllm, vec![script]);
    bench.run(10);
    let polled = |bench: &Bench| {
        let script = bench.scripts[0].borrow();
        script.asked.iter().filter(|path| *path == "/kv_cache_events").count()
    };
    assert_eq!((bench.fence(0), polled(&bench)), (Some(Fence::Algorithm), 0));
    let info = r#"{"disaggregated_params":null}"#;
    bench.scripts[0].borrow_mut().http.insert("/server_info", info.into());
    bench.run(60);
    assert_eq!((bench.fence(0), bench.source(0).transport), (None, "drain"));
    let (before, began) = (polled(&bench), bench.core.ring().now());
    bench.run(2);
    let (polls, took) = (polled(&bench) - before, bench.core.ring().now() - began);
    // Empty answers: one each 20 ms, and the way there and back.
    assert!(polls as u64 * 20 * 1_000_000 <= took && polls > 60, "{polls} polls in {took} ns");
}

#[test]
fn a_lost_answer_of_a_drain_is_fenced_until_taken_over() {
    let http = [("/server_info", "{}".to_owned()), ("/kv_cache_events", "no list".to_owned())];
    let script = Script { http: http.into(), ..Script::default() };
    let mut bench = Bench::new(Engine::Trtllm, Algo::BlockhashTrtllm, vec![script]);
    bench.run(2);
    assert_eq!((bench.fence(0), bench.rank().reason), (Some(Fence::Ownership), "drain_answer_lost"));
    bench.scripts[0].borrow_mut().http.insert("/kv_cache_events", "[]".into());
    bench.run(10);
    assert_eq!(bench.fence(0), Some(Fence::Ownership));
    let number = bench.source(0).source;
    assert!(bench.core.reacquire(number) && !bench.core.reacquire(number + 100));
    assert_eq!(bench.fence(0), None);
}

#[test]
fn a_source_that_no_rule_names_any_more_is_let_go() {
    let mut script = vllm("0.30.0", 100);
    script.payloads = vec![stored(0, &[1, 2], &[])];
    let mut bench = one(script);
    bench.run(2);
    let source = bench.table.sources()[0].clone();
    assert!(source.bit(0, Tier::Gpu).is_some() && source.blocks(0) == 2 && source.capacity() == 100);
    bench.follow(Vec::new());
    assert_eq!((source.bit(0, Tier::Gpu), source.blocks(0)), (None, 0));
    bench.run(2);
    assert_eq!((bench.core.report(0).sources.len(), bench.core.report(0).index_blocks), (0, 0));
    assert_eq!(bench.core.ring().sockets(), 0);
    let rule = bench.rule.clone();
    bench.follow(vec![rule]);
    bench.run(2);
    assert_eq!(bench.rank().blocks, [2, 0, 0]);
    let page = bench.core.inventory(bench.source(0).source, 0, Tier::Gpu, 0, 1).expect("a page");
    let next = page.next.expect("a second page");
    let rest = bench.core.inventory(bench.source(0).source, 0, Tier::Gpu, next, 9).expect("a page");
    assert_eq!((page.total, rest.next, page.keys.len() + rest.keys.len()), (2, None, 2));
    assert_eq!(bench.core.inventory(bench.source(0).source, 9, Tier::Gpu, 0, 1), None);
}

/// An engine whose batches are short and many, so that its bytes wait while another's long work goes on.
fn chatty() -> Script {
    let mut script = vllm("0.30.0", 100_000);
    script.payloads = (0..20_000).map(|hash| stored(0, &[1 << 40 | hash], &[])).collect();
    script
}

/// The most blocks that one rank may store in one turn, or all that catch up together: a receive buffer's worth and
/// a slice.
const TURN_BLOCKS: u64 = 16 * 1024 / 9 + 32 * 1024 / 32;

impl Bench {
    /// Turns that take 200 µs each, until `is_over`; `look` after each.
    fn turns(&mut self, is_over: impl Fn(&Bench) -> bool, mut look: impl FnMut(&Bench)) {
        for _ in 0..100_000 {
            if is_over(self) {
                return;
            }
            self.core.turn(Some(Duration::from_millis(1))).expect("a simulated ring");
            self.core.ring().pass(200_000);
            look(self);
        }
        panic!("never over: {:?}", self.core.report(0).sources);
    }
}

#[test]
fn others_have_their_turns_while_a_long_batch_is_worked_off() {
    let hashes: Vec<u64> = (0..60_000).map(|hash| 1 << 50 | hash).collect();
    let mut long = vllm("0.30.0", 100_000);
    long.payloads = vec![stored(0, &hashes, &[]), stored(0, &[7], &[])];
    let mut bench = Bench::of_blocks(200_000, Engine::Vllm, Algo::Sha256Cbor, vec![long, chatty()]);
    let (mut slices, mut between, mut before) = (0, Vec::new(), 0);
    bench.turns(
        |bench| bench.rank().sequence == Some(1),
        |bench| {
            let (long, other) = (bench.rank(), bench.source(1).ranks[0].sequence);
            assert!(long.stored - before <= TURN_BLOCKS, "{} blocks in one turn", long.stored - before);
            before = long.stored;
            if long.waiting > 0 {
                slices += 1;
                between.push(other);
                assert_eq!(long.sequence, None, "nothing is told to be applied that is not");
                assert!(!bench.table.sources()[0].is_complete(0));
            }
        },
    );
    assert_eq!(bench.rank().blocks[0], 60_001, "{:?}", bench.rank());
    // 16 to decode 540 kB and 59 to apply them; the first and the last show otherwise.
    assert!(slices > 70, "in {slices} slices");
    between.dedup();
    assert!(between.len() > 3, "between them the other's batches were applied: {between:?}");
    let rank = bench.rank();
    assert_eq!((rank.blocks[0], rank.standing), (60_001, "complete"), "{rank:?}");
}

#[test]
fn of_ranks_that_catch_up_one_has_its_turn_at_a_time() {
    let long = |engine: u64| {
        let hashes: Vec<u64> = (0..10_000).map(|hash| engine << 50 | hash).collect();
        let mut script = vllm("0.30.0", 100_000);
        script.payloads = vec![stored(0, &hashes, &[])];
        script
    };
    let scripts = (1..7).map(long).collect();
    let mut bench = Bench::of_blocks(200_000, Engine::Vllm, Algo::Sha256Cbor, scripts);
    let all = |bench: &Bench| (0..6).map(|at| bench.source(at).ranks[0].stored).sum::<u64>();
    let (mut before, mut shared) = (0, 0);
    bench.turns(
        |bench| all(bench) == 60_000,
        |bench| {
            let now = all(bench);
            assert!(now - before <= TURN_BLOCKS, "{} blocks in one turn", now - before);
            before = now;
            let begun = |at: &usize| (1..10_000).contains(&bench.source(*at).ranks[0].stored);
            shared = shared.max((0..6).filter(begun).count());
        },
    );
    assert!(shared > 3, "none waits until another is done: {shared} at once");
}

#[test]
fn others_have_their_turns_while_a_large_rank_that_was_cleared_waits_for_the_sweep() {
    let mut cleared = Vec::new();
    let event = Value::Array(vec![Value::from("AllBlocksCleared")]);
    let batch = Value::Array(vec![Value::F64(1.5), Value::Array(vec![event]), Value::from(0)]);
    rmpv::encode::write_value(&mut cleared, &batch).expect("into memory");
    let mut large = vllm("0.30.0", 100_000);
    for from in 0..40 {
        let hashes: Vec<u64> = (0..1_000).map(|hash| (1 << 50) + from * 1_000 + hash).collect();
        large.payloads.push(stored(0, &hashes, &[]));
    }
    large.payloads.extend([cleared, stored(0, &[1, 2, 3], &[])]);
    let mut bench = Bench::of_blocks(200_000, Engine::Vllm, Algo::Sha256Cbor, vec![large, chatty()]);
    let mut waits = Vec::new();
    bench.turns(
        |bench| bench.rank().sequence == Some(41),
        |bench| {
            let rank = bench.rank();
            if rank.sequence == Some(40) {
                assert_eq!((rank.blocks[0], rank.waiting), (0, 1), "the clear shows at once");
                assert_eq!(bench.table.sources()[0].blocks(0), 0);
                waits.push(bench.source(1).ranks[0].sequence);
            }
        },
    );
    // A place of the index a turn: 40,000 of 200,000 blocks have more than half of its 32.
    assert!(waits.len() > 16, "{} turns", waits.len());
    waits.dedup();
    assert!(waits.len() > 3, "between them the other's batches were applied: {waits:?}");
    assert_eq!(bench.rank().blocks[0], 3);
}
