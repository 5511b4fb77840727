//! How warm a pool is after its gateway was started anew: the share of prompt tokens found in caches, turn by turn, with
//! and without what answers prove. Owns the workload and the table; what is recorded of it is under `perf/results/`.

use crate::harness::{Client, Driver, Gateway, free_address, post, rule_with, wait_until};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::{Config, Handle, Kind, start};

/// Conversations, and turns of each after the restart.
const TALKS: u32 = 48;
const TURNS: u32 = 8;

/// Tokens of the prompt that all share, of what was said before the restart, and of each turn.
const SYSTEM: u32 = 64;
const BEFORE: u32 = 320;
const TURN: u32 = 32;

/// Between two turns of all: events and proofs of one are known in the next.
const PAUSE: Duration = Duration::from_millis(400);

fn engines(count: u8, publish: u16, replay: Option<u16>) -> Vec<Handle> {
    let [.., high, low] = std::process::id().to_be_bytes();
    let engine = |at| {
        let host = Ipv4Addr::new(127, 128 + high % 64, low, 1 + at + 20 * count);
        let mut config = Config { host: host.to_string(), ..Config::of(Kind::Vllm) };
        (config.hashing.algo, config.hashing.seed) = (HashAlgo::Sha256Cbor, Some("0".into()));
        config.events.live = format!("tcp://*:{publish}").parse().ok();
        config.events.replay = replay.and_then(|replay| format!("tcp://*:{replay}").parse().ok());
        start(config).unwrap()
    };
    (0..count).map(engine).collect()
}

/// What a conversation has said after so many turns.
fn said(talk: u32, turns: u32) -> Vec<u32> {
    let system = (0..SYSTEM).map(|at| 7 + at);
    let own = (0..BEFORE + turns * TURN).map(move |at| 1_000 + (talk * 7_919 + at * 31) % 40_000);
    system.chain(own).collect()
}

fn ask(at: SocketAddr, prompt: &[u32]) -> (u64, u64) {
    let body = json!({"model": "sim", "prompt": prompt, "max_tokens": 1}).to_string();
    let reply = Client::connect(at).ask(&post("/v1/completions", &[], body.as_bytes()));
    assert_eq!(reply.status, 200);
    let usage = reply.json()["usage"].clone();
    let number = |value: &Value| value.as_u64().unwrap();
    (number(&usage["prompt_tokens"]), number(&usage["prompt_tokens_details"]["cached_tokens"]))
}

/// Seconds since the first request, and the share of the turn's prompt tokens that was cached, in percent.
type Share = (f64, f64);

/// Engines that are warm, then a gateway that knows nothing of them.
fn shares(count: u8, has_replay: bool, flags: &[&str]) -> Vec<Share> {
    let (publish, replay) = (free_address().port(), free_address().port());
    let engines = engines(count, publish, has_replay.then_some(replay));
    for talk in 0..TALKS {
        ask(engines[(talk % u32::from(count)) as usize].addr, &said(talk, 0));
    }
    let addresses: Vec<SocketAddr> = engines.iter().map(|engine| engine.addr).collect();
    let members = json!({
        "name": "pool", "kvExactMode": 3, "kvWarmupSec": 0, "kvZmqPort": publish,
        "kvReplayPort": if has_replay { replay } else { 0 },
    });
    let rule = rule_with(free_address(), &addresses, members);
    let flags = [&["--shards", "1"], flags].concat();
    let gateway = Gateway::start_in(Driver::Epoll, &[rule], &flags, &[("LLB_KV_NONE_HASH_SEED", "0")]);
    wait_until("all events come", || {
        let reply = gateway.admin("GET", "/netlox/v1/config/ai/kv/status", "");
        let rows = if reply.status == 200 { reply.json()["endpoints"].clone() } else { Value::Null };
        rows.as_array().is_some_and(|rows| {
            let is_up = |row: &Value| {
                let rank = &row["ranks"][0];
                rank["connected"] == true && (rank["standing"] == "complete") == has_replay
            };
            !rows.is_empty() && rows.iter().all(is_up)
        })
    });
    let begun = Instant::now();
    let turn = |turn| {
        let at = begun.elapsed().as_secs_f64();
        // In another order each time, so that taking turns brings nobody home by itself.
        let talks = (0..TALKS).map(|talk| (talk * 29 + turn * 13) % TALKS);
        let (asked, cached) = talks
            .map(|talk| ask(gateway.vip, &said(talk, 1 + turn)))
            .fold((0, 0), |(asked, cached), (more, found)| (asked + more, cached + found));
        std::thread::sleep(PAUSE);
        (at, 100.0 * cached as f64 / asked as f64)
    };
    (0..TURNS).map(turn).collect()
}

#[test]
#[ignore = "a measurement: prints shares, asserts only what must hold on any machine"]
fn hit_share_after_a_restart() {
    for count in [2, 4, 8] {
        for (what, has_replay, flags) in [
            ("replay", true, &[][..]),
            ("no replay, answers teach", false, &[]),
            ("no replay, nothing learned", false, &["--without", "learn"]),
        ] {
            let shares = shares(count, has_replay, flags);
            let cells: Vec<String> =
                shares.iter().map(|(at, share)| format!("{share:.1} ({at:.1} s)")).collect();
            println!("| {count} | {what} | {} |", cells.join(" | "));
            let last = shares.last().map_or(0.0, |(_, share)| *share);
            let may_know = has_replay || flags.is_empty();
            assert!(last > 85.0 || !may_know, "every conversation has a home by then: {last}");
        }
    }
}
