//! Cache events of the simulated engines over real sockets: what a listener that believes them holds is
//! what the engine's cache holds, in every kind, medium and fault.

mod listener;
mod peer;

use std::collections::BTreeMap;
use std::net::TcpListener;

use listener::{Heard, Socket};
use peer::{Peer, post, until};
use serde_json::{Value, json};
use warmpath_perf::engine::faults::{Faults, Replay};
use warmpath_perf::engine::text::mix;
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{self, Config, Events, Handle, Kind};

fn config(kind: Kind) -> Config {
    let any = || Some("tcp://*:0".parse().expect("an endpoint"));
    let mut config = Config { block_size: 4, ..Config::of(kind) };
    if matches!(kind, Kind::Vllm | Kind::Sglang) {
        config.events = Events { live: any(), replay: any(), ..Events::default() };
    }
    config
}

fn start(change: impl FnOnce(&mut Config)) -> Handle {
    let mut config = config(Kind::Vllm);
    change(&mut config);
    engine::start(config).expect("free ports")
}

fn live(engine: &Handle) -> Socket {
    Socket::subscribe(engine.sources()[0].live.port)
}

fn replay(engine: &Handle) -> Socket {
    Socket::dealer(engine.sources()[0].replay.as_ref().expect("replay").port)
}

fn complete(engine: &Handle, prompt: &[u64], tokens: u64) -> Value {
    let body = json!({"prompt": prompt, "max_tokens": tokens});
    Peer::connect(engine.addr).post("/v1/completions", &body.to_string()).json()
}

fn ids(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

/// Copies by medium and key, as events tell them.
#[derive(Debug, Default, PartialEq)]
struct Belief(BTreeMap<(String, u64), i64>);

impl Belief {
    fn believe(&mut self, event: &Value) {
        let of = |value: &Value| match value.as_i64() {
            Some(signed) => signed.cast_unsigned(),
            None => value.as_u64().expect("a key"),
        };
        let keys: Vec<u64> = event["block_hashes"].as_array().into_iter().flatten().map(of).collect();
        let medium = match event["medium"].as_str() {
            Some("CPU" | "CPU_PINNED") => "host",
            _ => "gpu",
        };
        let step = match event["type"].as_str().expect("a type") {
            "BlockStored" => 1,
            "BlockRemoved" => -1,
            _ => return self.0.clear(),
        };
        keys.into_iter().for_each(|key| *self.0.entry((medium.into(), key)).or_default() += step);
        self.0.retain(|_, copies| *copies != 0);
    }

    fn hear(&mut self, heard: &Heard) {
        heard.events().iter().for_each(|event| self.believe(event));
    }

    /// What the engine says of itself.
    fn of(engine: &Handle, rank: usize) -> Belief {
        let mut belief = Belief::default();
        let caches = engine.caches();
        for (medium, held) in caches["ranks"][rank]["media"].as_object().expect("media") {
            let key = |value: &Value| (medium.clone(), value.as_u64().expect("a key"));
            held["keys"].as_array().expect("keys").iter().for_each(|k| _ = belief.0.insert(key(k), 1));
            for several in held["several"].as_array().expect("a list") {
                belief.0.insert(key(&several[0]), several[1].as_i64().expect("copies"));
            }
        }
        belief
    }
}

#[test]
fn a_believer_holds_what_the_cache_holds() {
    for (kind, host_blocks) in [(Kind::Vllm, 0), (Kind::Vllm, 9), (Kind::Sglang, 0), (Kind::Sglang, 9)] {
        for seed in 0..4 {
            let engine = start(|to| {
                *to = Config { cache_blocks: 12, host_blocks, ..config(kind) };
            });
            let (mut live, mut belief, mut random) = (live(&engine), Belief::default(), seed);
            let mut draw = |below: u64| {
                random = mix(random);
                random % below
            };
            let mut heard = 0;
            for _ in 0..40 {
                let prompt: Vec<u64> = (0..1 + draw(30)).map(|_| draw(2)).collect();
                assert!(complete(&engine, &prompt, 1 + draw(9))["usage"].is_object());
                let told = engine.caches()["ranks"][0]["next_sequence"].as_u64().expect("a number");
                while heard < told {
                    let batch = live.hear();
                    assert_eq!(batch.number, heard);
                    belief.hear(&batch);
                    heard += 1;
                }
                assert_eq!(belief, Belief::of(&engine, 0), "{kind:?} {host_blocks} seed {seed}");
            }
            assert!(heard > 20);
        }
    }
}

#[test]
fn concurrent_streams_leave_a_true_belief() {
    for kind in [Kind::Vllm, Kind::Sglang] {
        let engine = start(|to| *to = Config { cache_blocks: 20, host_blocks: 5, ..config(kind) });
        let mut live = live(&engine);
        std::thread::scope(|scope| {
            for client in 0..4_u64 {
                let addr = engine.addr;
                scope.spawn(move || {
                    let mut peer = Peer::connect(addr);
                    for turn in 0..15 {
                        let prompt: Vec<u64> = ids(client % 2 * 100, 5 + mix(client * 100 + turn) % 20);
                        let body = json!({"prompt": prompt, "max_tokens": 9, "stream": true});
                        assert_eq!(peer.post("/v1/completions", &body.to_string()).status, 200);
                    }
                });
            }
        });
        let told = engine.caches()["ranks"][0]["next_sequence"].as_u64().expect("a number");
        let mut belief = Belief::default();
        (0..told).for_each(|_| belief.hear(&live.hear()));
        assert_eq!(belief, Belief::of(&engine, 0), "{kind:?}");
        assert_eq!(engine.caches()["ranks"][0]["untold_events"], 0);
    }
}

#[test]
fn usage_tells_the_cache_s_hit_by_rank() {
    let engine = start(|to| to.ranks = 2);
    let cached = |rank: &str, expected: u64| {
        let body = json!({"prompt": ids(0, 12), "max_tokens": 1}).to_string();
        let mut peer = Peer::connect(engine.addr);
        peer.send(post("/v1/completions", &format!("X-data-parallel-rank: {rank}\r\n"), &body).as_bytes());
        let usage = peer.response().expect("an answer").json()["usage"].clone();
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], expected, "rank {rank}");
    };
    cached("0", 0);
    cached("0", 8);
    cached("1", 0);
    cached("1", 8);
    // Requests without a rank take turns.
    complete(&engine, &ids(50, 5), 1);
    complete(&engine, &ids(50, 5), 1);
    let held = |rank: usize| engine.caches()["ranks"][rank]["media"]["gpu"]["blocks"].clone();
    assert_eq!((held(0), held(1)), (json!(4), json!(4)));
}

#[test]
fn salts_adapters_and_versions_keep_caches_apart_and_bad_salts_are_refused() {
    let engine = start(|_| {});
    let status = |salt: &str| {
        let body = json!({"prompt": ids(0, 9), "max_tokens": 1, "cache_salt": salt}).to_string();
        let answer = Peer::connect(engine.addr).post("/v1/completions", &body);
        (answer.status, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].clone())
    };
    assert_eq!((status("a"), status("b"), status("a")), ((200, json!(0)), (200, json!(0)), (200, json!(8))));
    assert_eq!(["", "a/b", &"s".repeat(129)].map(|salt| status(salt).0), [400, 400, 400]);
    let error =
        engine::start(Config { version: Some(Version::new("0.22.0")), ..Config::default() }).unwrap_err();
    assert!(error.to_string().contains("0.23.0 to 0.33.0"), "{error}");
}

#[test]
fn lost_doubled_and_silenced_batches_keep_their_numbers_and_replay_has_all() {
    let engine = start(|_| {});
    let mut live = live(&engine);
    let tell = |n: u64| complete(&engine, &ids(n * 100, 4), 1);
    engine.set_faults(Faults { kv_lose_next: Some(2), kv_double_next: Some(1), ..Faults::default() });
    (0..4).for_each(|n| _ = tell(n));
    let numbers: Vec<u64> = (0..3).map(|_| live.hear().number).collect();
    assert_eq!(numbers, [2, 2, 3]);
    engine.set_faults(Faults { kv_silence: true, ..Faults::default() });
    tell(4);
    assert!(live.is_mute(), "no answer to a heartbeat either");
    engine.set_faults(Faults::default());
    tell(5);
    assert_eq!(live.hear().number, 5, "what was not sent stays unsent");
    let (messages, ended) = replay(&engine).replay(1);
    assert!(ended);
    let numbers: Vec<Vec<u8>> = messages.iter().map(|message| message[2].clone()).collect();
    assert_eq!(numbers, (1..6_u64).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
}

#[test]
fn replay_goes_wrong_as_told() {
    let engine = start(|_| {});
    (0..6).for_each(|n| _ = complete(&engine, &ids(n * 100, 4), 1));
    let fault = |fault| engine.set_faults(Faults { kv_replay: Some(fault), ..Faults::default() });
    let count = |(messages, ended): (Vec<_>, bool)| (messages.len(), ended);
    assert_eq!(count(replay(&engine).replay(0)), (6, true));
    fault(Replay::Refuse);
    assert_eq!(count(replay(&engine).replay(0)), (0, false));
    fault(Replay::EndsEarly);
    assert_eq!(count(replay(&engine).replay(0)), (3, true));
    fault(Replay::Cut);
    assert_eq!(count(replay(&engine).replay(0)), (3, false));
    fault(Replay::Silent);
    let mut dealer = replay(&engine);
    dealer.frame(1, b"");
    dealer.frame(0, &[0; 8]);
    dealer.ping();
    engine.set_faults(Faults { kv_replay_late_ms: Some(20), ..Faults::default() });
    assert_eq!(count(dealer.replay(4)), (2, true));
    dealer.frame(0, &[0; 8]);
    dealer.ping();
}

#[test]
fn only_the_last_batches_are_kept() {
    let engine = start(|to| to.events.buffer_steps = 2);
    (0..6).for_each(|n| _ = complete(&engine, &ids(n * 100, 4), 1));
    let (messages, ended) = replay(&engine).replay(0);
    assert_eq!((messages.len(), ended, messages[0][2].as_slice()), (2, true, &4_u64.to_be_bytes()[..]));
}

#[test]
fn a_clear_is_told_with_the_next_step() {
    let engine = start(|_| {});
    let mut live = live(&engine);
    complete(&engine, &ids(0, 8), 1);
    live.hear();
    assert_eq!(Peer::connect(engine.addr).post("/sim/cache/clear", "").status, 200);
    live.silent_so_far();
    assert_eq!(engine.caches()["ranks"][0]["untold_events"], 1);
    complete(&engine, &ids(0, 8), 1);
    let events = live.hear().events();
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("AllBlocksCleared"), &json!("BlockStored")));
}

#[test]
fn a_restart_closes_links_counts_from_0_and_may_renew_the_process() {
    let engine = start(|to| to.version = Some(Version::new("0.28.0")));
    let first = live(&engine).hear_of(&engine);
    let started = engine.caches()["started"].clone();
    for renewed in [false, true] {
        let mut old = live(&engine);
        let body = json!({"renewed": renewed}).to_string();
        assert_eq!(Peer::connect(engine.addr).post("/sim/cache/restart", &body).status, 200);
        assert_eq!(old.take(), None, "the old process's connection is gone");
        let again = live(&engine).hear_of(&engine);
        assert_eq!(again.number, 0);
        // Without a seed 0.28 draws its root anew.
        assert_eq!(again.events()[0]["block_hashes"] == first.events()[0]["block_hashes"], !renewed);
        assert_eq!(engine.caches()["started"] == started, !renewed);
        let page = Peer::connect(engine.addr).get("/metrics").text();
        let line = format!("process_start_time_seconds {}\n", engine.caches()["started"]);
        assert!(page.contains(&line), "{line}");
    }
    let wrong = Peer::connect(engine.addr).post("/sim/cache/restart", r#"{"renew": 1}"#);
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("renewed"));
}

trait HearOf {
    fn hear_of(&mut self, engine: &Handle) -> Heard;
}

impl HearOf for Socket {
    /// The batch of a prompt.
    fn hear_of(&mut self, engine: &Handle) -> Heard {
        complete(engine, &ids(0, 8), 1);
        self.hear()
    }
}

#[test]
fn links_close_on_demand_and_topics_of_both_versions_are_obeyed() {
    let engine = start(|to| to.events.topic = "kv@model".into());
    let port = engine.sources()[0].live.port;
    let mut other = Socket::subscribe_by_message(port, b"load");
    let mut matching = Socket::subscribe_by_message(port, b"kv@");
    complete(&engine, &ids(0, 4), 1);
    assert_eq!(matching.hear().topic, b"kv@model");
    other.silent_so_far();
    engine.close_links();
    assert_eq!((other.take(), matching.take()), (None, None));
    assert_eq!(live(&engine).hear_of(&engine).number, 1);
}

#[test]
fn an_engine_without_a_wildcard_dials_and_dials_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let engine = start(|to| to.events.live = Some(format!("tcp://127.0.0.1:{port}").parse().expect("it")));
    let mut first = Socket::accept(&listener);
    assert_eq!(first.hear_of(&engine).number, 0);
    drop(first);
    let mut second = Socket::accept(&listener);
    complete(&engine, &ids(500, 8), 1);
    assert_eq!(second.hear().number, 1);
}

#[test]
fn a_client_that_leaves_lets_go_of_its_blocks() {
    let engine = start(|to| {
        to.cache_blocks = 2;
        to.faults = Faults { stall: Some(engine::faults::Stall::MidStream), ..Faults::default() };
    });
    let mut leaving = Peer::connect(engine.addr);
    let body = json!({"prompt": ids(0, 8), "max_tokens": 1, "stream": true}).to_string();
    leaving.send(post("/v1/completions", "", &body).as_bytes());
    until("it has both blocks", || engine.stats().blocks == 2);
    drop(leaving);
    until("it is noticed", || engine.stats().aborted == 1);
    engine.set_faults(Faults::default());
    complete(&engine, &ids(50, 8), 1);
    assert_eq!(engine.stats().blocks, 2, "the others took their place");
    assert_eq!(complete(&engine, &ids(50, 9), 1)["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
}

#[test]
fn sglang_begins_with_a_clear_flushes_and_tells_its_ports() {
    let engine = engine::start(Config { ranks: 2, ..config(Kind::Sglang) }).expect("free ports");
    let mut live = live(&engine);
    let mut peer = Peer::connect(engine.addr);
    let info = peer.get("/server_info").json();
    assert_eq!(info["kv_events"]["endpoint_port_base"], engine.sources()[0].live.port);
    assert_eq!(
        info["kv_events"]["replay_endpoint_port_base"],
        engine.sources()[0].replay.as_ref().unwrap().port
    );
    assert_eq!((&info["kv_events"]["dp_size"], &info["kv_events"]["block_size"]), (&json!(2), &json!(4)));
    let ask = |peer: &mut Peer, rank: &str| {
        let body = json!({"prompt": ids(0, 8), "max_tokens": 1}).to_string();
        peer.send(post("/v1/completions", &format!("X-Data-Parallel-Rank: {rank}\r\n"), &body).as_bytes());
        peer.response().expect("an answer").status
    };
    assert_eq!(["0", "x", "2"].map(|rank| ask(&mut peer, rank)), [200, 400, 400]);
    assert_eq!(live.hear().events()[0]["type"], "AllBlocksCleared");
    assert_eq!(peer.post("/flush_cache", "").status, 200);
    assert_eq!(ask(&mut peer, "0"), 200);
    let events = live.hear().events();
    assert_eq!((events.len(), &events[0]["type"]), (2, &json!("AllBlocksCleared")));
    let old = engine::start(Config { version: Some(Version::new("0.5.19")), ..config(Kind::Sglang) })
        .expect("free ports");
    let info = Peer::connect(old.addr).get("/server_info").json();
    assert!(info["kv_events"]["endpoint_port_base"].is_u64());
    assert!(info["kv_events"].get("replay_endpoint_port_base").is_none(), "told from 0.5.23 on");
}

#[test]
fn trtllm_events_are_drained_once_and_blocks_move_between_levels() {
    const EXAMPLE: &str = include_str!("../../events/tests/vectors/trtllm-events-example.json");
    let example: Value = serde_json::from_str(EXAMPLE).expect("JSON");
    let stored = &example["kv_cache_events"][1];
    let of = |block: &Value| -> Vec<u64> {
        block["tokens"]
            .as_array()
            .expect("tokens")
            .iter()
            .map(|t| t["token_id"].as_u64().expect("an id"))
            .collect()
    };
    let blocks = stored["data"]["blocks"].as_array().expect("blocks");
    let mut prompt: Vec<u64> = blocks.iter().flat_map(of).collect();
    prompt.push(7);
    let engine = engine::start(Config { cache_blocks: 2, host_blocks: 2, ..Config::of(Kind::Trtllm) })
        .expect("a port");
    let mut peer = Peer::connect(engine.addr);
    let drain =
        |peer: &mut Peer| peer.post("/kv_cache_events", "").json().as_array().expect("a list").clone();
    complete(&engine, &prompt, 1);
    let events = drain(&mut peer);
    assert_eq!(events[0]["data"], json!({"type": "created", "num_blocks_per_cache_level": [2, 2]}));
    assert_eq!(events[1]["data"], stored["data"], "keys and members of the example");
    assert_eq!(events.iter().map(|event| event["event_id"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(drain(&mut peer), Vec::<Value>::new(), "once taken they are gone");
    complete(&engine, &ids(9000, 33), 1);
    let moved: Vec<Value> =
        drain(&mut peer).iter().map(|event| event["data"]["cache_level"].clone()).collect();
    assert!(moved.contains(&json!({"type": "event_diff", "new_value": 1, "old_value": 0})), "{moved:?}");
    assert_eq!(complete(&engine, &prompt, 1)["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
    engine.set_faults(Faults { kv_lose_next: Some(1), ..Faults::default() });
    drain(&mut peer);
    let before = engine.caches()["ranks"][0]["next_sequence"].as_u64();
    complete(&engine, &ids(20_000, 65), 1);
    assert_eq!(drain(&mut peer), Vec::<Value>::new(), "lost, though numbered");
    assert!(engine.caches()["ranks"][0]["next_sequence"].as_u64() > before);
    assert_eq!(peer.get("/kv_cache_events").status, 405);
    engine.restart(false);
    assert_eq!(drain(&mut peer)[0]["event_id"], 0);
}

#[test]
fn a_wrong_path_or_switch_is_told_with_what_there_is() {
    let engine = start(|_| {});
    let mut peer = Peer::connect(engine.addr);
    assert!(peer.get("/sim/x").text().contains("/sim/cache/restart"));
    assert_eq!(peer.get("/sim/cache/clear").status, 405);
    let told = peer.post("/sim/faults", r#"{"kv_replay": "never"}"#).text();
    assert!(told.contains("ends_early"), "{told}");
    let taken = engine.sources()[0].live.clone();
    let error = engine::start(Config {
        events: Events { live: Some(taken), ..Events::default() },
        ..Config::default()
    });
    assert!(error.unwrap_err().to_string().contains("--kv-events"));
}
