//! Overlap against load: each mode of `LOXILB_KV_LB_MODE` sends a row of requests that nobody answers where the
//! published formulas say. Owns a second writing of these formulas; must never take one from the product.

use super::pool::{NO_SEEDING, SEED, body, engine_with, exact_rule, gateway_with, tokens, warm};
use crate::harness::{Driver, post, wait_until};
use serde_json::json;
use warmpath_perf::engine::Kind::Vllm;
use warmpath_perf::engine::faults::{Faults, Stall};

/// Blocks of each engine's cache: few, so that a request weighs something where load counts by capacity.
const CAPACITY: u64 = 96;

/// Blocks of the prompt that each of the engines holds, in their order.
const HELD: [u64; 3] = [20, 10, 10];

/// `LOXILB_KV_LOAD_PENALTY` here.
const PENALTY: u64 = 100_000;

const REQUESTS: usize = 30;

/// What an endpoint knows of the prompt, in thousandths of a block; 800 of one that is on its way.
fn worth(held: u64, coming: u64) -> u64 {
    held * 1000 + coming.saturating_sub(held) * 800
}

/// The share of the load that an endpoint may have: all three have the same capacity.
fn cap(percent: u64, load: u64) -> u64 {
    (percent * load).div_ceil(300).max(1)
}

/// Where the next request goes. `loads`: requests in flight, of the same prompt all.
fn next(mode: &str, loads: [u64; 3]) -> usize {
    let load: u64 = loads.iter().sum();
    let over = load.saturating_sub(16).min(10);
    let worths = [0, 1, 2].map(|i| worth(HELD[i], if loads[i] > 0 { HELD[0] } else { 0 }));
    let cost = |i: usize, penalty: u64| HELD[0] * 1000 - worths[i] + penalty * loads[i] / CAPACITY;
    let most = |i: &usize| (u64::MAX - worths[*i], loads[*i], *i);
    let under = |percent: u64| {
        let free = (0..3).filter(|i| loads[*i] < cap(percent, load)).min_by_key(most);
        free.unwrap_or_else(|| (0..3).min_by_key(|i| (loads[*i], u64::MAX - worths[*i], *i)).unwrap())
    };
    match mode {
        "off" => (0..3).min_by_key(most).unwrap(),
        "hard" => under(175),
        "adaptive" => under(175 + 125 * over / 10),
        "soft" => (0..3).min_by_key(|i| (cost(*i, PENALTY), most(i))).unwrap(),
        "adaptive-soft" => (0..3).min_by_key(|i| (cost(*i, 50_000 + 5_000 * over), most(i))).unwrap(),
        _ => unreachable!("{mode}"),
    }
}

fn expected(mode: &str) -> Vec<usize> {
    let mut loads = [0; 3];
    let ways = (0..REQUESTS).map(|_| {
        let way = next(mode, loads);
        loads[way] += 1;
        way
    });
    ways.collect()
}

fn goes_as_published(mode: &str) {
    let engines = [(); 3].map(|()| engine_with(Vllm, |c| c.cache_blocks = CAPACITY as usize));
    let rule = exact_rule("pool", Vllm, &engines.each_ref(), json!({}));
    let penalty = PENALTY.to_string();
    let variables = [
        SEED,
        NO_SEEDING,
        ("LOXILB_KV_LB_MODE", mode),
        ("LOXILB_KV_LOAD_PENALTY", &penalty),
        ("LOXILB_KV_SPILL_RELIEF", "0"),
    ];
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &variables);
    let prompt = tokens(1, 16 * HELD[0] as u32 + 1);
    for (engine, held) in engines.iter().zip(HELD) {
        warm(&gateway, "pool", engine, &prompt[..16 * held as usize + 1]);
    }
    let stall = Faults { stall: Some(Stall::BeforeHead), ..Faults::default() };
    engines.iter().for_each(|engine| engine.set_faults(stall.clone()));
    let running = || engines.each_ref().map(|engine| engine.stats().running);
    let mut clients = Vec::new();
    let mut ways = Vec::new();
    for sent in 1..=REQUESTS as u64 {
        let before = running();
        let mut client = gateway.client();
        client.send(&post("/v1/completions", &[], &body(&prompt, json!({}))));
        clients.push(client);
        wait_until("the request is there", || running().iter().sum::<u64>() == sent);
        let after = running();
        ways.push((0..3).find(|i| after[*i] > before[*i]).unwrap());
    }
    engines.iter().for_each(|engine| engine.set_faults(Faults::default()));
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().status, 200));
    assert_eq!(ways, expected(mode), "{mode}");
}

#[test]
fn the_modes_differ_here() {
    let rows = ["off", "hard", "adaptive", "soft", "adaptive-soft"].map(expected);
    for (i, row) in rows.iter().enumerate() {
        assert!(!rows[..i].contains(row), "{rows:?}");
    }
}

#[test]
fn off_looks_at_overlap_alone() {
    goes_as_published("off");
}

#[test]
fn hard_keeps_each_under_its_share() {
    goes_as_published("hard");
}

#[test]
fn adaptive_widens_the_share_with_the_load() {
    goes_as_published("adaptive");
}

#[test]
fn soft_weighs_load_against_missing_blocks() {
    goes_as_published("soft");
}

#[test]
fn adaptive_soft_weighs_load_more_the_more_there_is() {
    goes_as_published("adaptive-soft");
}
