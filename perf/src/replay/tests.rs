//! Whole replays: what is the same for every policy, what tells them apart, and that a seed is all that varies.

use super::agents::Agents;
use super::trace::{Arrival, Trace, key};
use super::*;

fn plan<'a>(trace: &'a Trace, policy: &str, fleet: usize, cache_tokens: u64) -> Plan<'a> {
    let model = Model { cache_tokens, ..Model::default() };
    Plan { trace, fleet, policy: Policy::parse(policy).unwrap(), model, affinity_blocks: 2 }
}

/// Conversations of `turns` turns whose prompts grow by a block, interleaved, a second apart.
fn conversations(count: u64, turns: u64) -> Trace {
    let arrival = |turn: u64, of: u64| Arrival {
        at: (turn * count + of) * 1_000_000_000,
        prompt: ((turn + 2) * 512 + 7) as u32,
        answer: 20,
        keys: (0..turn + 2).map(|block| key(of << 32 | block)).collect(),
    };
    let arrivals = (0..turns).flat_map(|turn| (0..count).map(move |of| arrival(turn, of))).collect();
    Trace { block_tokens: 512, arrivals }
}

#[test]
fn exact_routing_finds_all_that_was_sent_and_turns_find_little() {
    let trace = conversations(12, 6);
    let exact = run(&plan(&trace, "exact", 4, 1_000_000)).unwrap();
    let (oracle, seen) = oracle::hits(&trace, 4, &Model::default());
    assert_eq!((oracle, seen), (12 * (2 + 3 + 4 + 5 + 6) * 512, oracle));
    assert_eq!((exact.answered, exact.refused), (72, 0));
    let seeded = exact.reasons.get("exact_seed").copied().unwrap_or(0);
    assert!(exact.hit_tokens + seeded * 6 * 512 >= oracle && exact.hit_tokens <= oracle, "{exact:?}");
    let turns = run(&plan(&trace, "round_robin", 5, 1_000_000)).unwrap();
    assert_eq!(turns.imbalance_requests, 15.0 / 14.4, "72 requests on 5 endpoints");
    assert!(turns.hit_tokens < oracle / 2 && turns.first_token.p50_ms > exact.first_token.p50_ms);
}

#[test]
fn on_one_endpoint_no_policy_matters() {
    let trace = conversations(5, 4);
    let hits: Vec<u64> = ["exact", "exact:soft", "chwbl", "round_robin", "least_connections"]
        .map(|policy| run(&plan(&trace, policy, 1, 1_000_000)).unwrap().hit_tokens)
        .to_vec();
    assert!(hits.iter().all(|hit| *hit == hits[0] && *hit > 0), "{hits:?}");
}

#[test]
fn a_small_cache_finds_less_than_the_trace_repeats() {
    let trace = conversations(12, 6);
    let (bounded, seen) = oracle::hits(&trace, 1, &Model { cache_tokens: 512 * 20, ..Model::default() });
    assert!(bounded < seen / 2, "{bounded} of {seen}");
    let exact = run(&plan(&trace, "exact", 1, 512 * 20)).unwrap();
    assert!(exact.hit_tokens <= bounded + 512);
}

/// `run` itself checks that nothing stays charged and that the index has what the caches hold.
#[test]
fn under_eviction_and_bursts_every_policy_answers_all() {
    let agents = Agents { sessions: 6, turns: 5, between: 0.5, pause: 0.5, begin: 5000, ..Agents::default() };
    for seed in 0..6 {
        let trace = Agents { seed, ..agents.clone() }.trace();
        for policy in
            ["exact", "exact:off", "exact:adaptive-soft", "chwbl:110", "least_connections", "round_robin"]
        {
            let plan = plan(&trace, policy, 3, 60_000);
            let outcome = run(&plan).unwrap();
            assert_eq!((outcome.answered, outcome.refused), (30, 0), "{policy}, seed {seed}");
            assert_eq!(outcome, run(&plan).unwrap(), "{policy}, seed {seed}");
        }
    }
}

#[test]
fn a_burst_on_a_new_prefix_is_computed_on_few_endpoints() {
    let keys: Vec<u64> = (0..40).map(key).collect();
    let arrival = |n: u64| Arrival { at: n * 1_000_000, prompt: 40 * 512 + 1, answer: 2, keys: keys.clone() };
    let trace = Trace { block_tokens: 512, arrivals: (0..8).map(arrival).collect() };
    let reasons = run(&plan(&trace, "exact:off", 4, 1_000_000)).unwrap().reasons;
    assert_eq!(reasons.get("exact_promised"), Some(&7), "{reasons:?}");
}

#[test]
fn the_report_tells_what_it_rests_on_and_escapes_names() {
    let trace = conversations(2, 2);
    let (policy, outcome) = ("<exact>".to_string(), run(&plan(&trace, "exact", 2, 1_000_000)).unwrap());
    let row = Row { policy, fleet: 2, oracle_tokens: 2048, seen_tokens: 2048, outcome };
    let report = Report {
        trace: "a&b".into(),
        requests: 4,
        block_tokens: 512,
        seconds: 3.0,
        model: Model::default(),
        rows: vec![row],
    };
    assert!(report.text().contains("cache of 1000000 tokens") && report.text().contains("1.000"));
    let read: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(read["rows"][0]["outcome"]["hit_tokens"], 2048);
    let page = report.page();
    assert!(page.contains("&lt;exact&gt;") && !page.contains("<exact>") && page.contains("a&amp;b"));
    assert!(!page.contains("http"), "the page needs nothing else");
}
