//! Predictions that no answer judges by itself: what events and counters of the engine say of them, and where nothing
//! can be said, why.

use super::pool::{
    NO_SEEDING, SEED, complete, complete_with, engine, engine_with, exact_rule, followed, gateway,
    gateway_with, known_of, tokens, warm,
};
use crate::harness::{Driver, wait_until};
use serde_json::json;
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::Kind::{Trtllm, Vllm};
use warmpath_perf::engine::faults::Faults;

/// vLLM without `--enable-prompt-tokens-details`.
fn mute() -> Handle {
    engine_with(Vllm, |config| config.pretence.mutes_cached = true)
}

/// A whole prompt that is held stores nothing: only counters tell whether it was found.
#[test]
fn counters_judge_what_neither_answers_nor_events_tell() {
    let a = mute();
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 70));
    let trust = || known_of(&gateway, "pool", &a)["trust"].clone();
    wait_until("counters agree", || {
        complete(gateway.vip, &tokens(1, 70)).assert_exact(&a, 4);
        trust()["windows"]["judged"].as_u64() >= Some(2)
    });
    let seen = trust();
    assert_eq!((&seen["state"], &seen["agreed"]), (&json!("trusted"), &seen["judged"]), "{seen}");
    // Somebody else asks the engine as well: nothing is judged by what is not known.
    wait_until("foreign traffic is told", || {
        complete(a.addr, &tokens(1, 70));
        complete(gateway.vip, &tokens(1, 70));
        trust()["windows"]["foreign"].as_u64() >= Some(1)
    });
}

/// The engine finds blocks of which the events were lost.
#[test]
fn counters_contradict() {
    let a = mute();
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(99, 70));
    a.set_faults(Faults { kv_lose_next: Some(10_000), ..Faults::default() });
    (1..=9).for_each(|seed| drop(complete(a.addr, &tokens(seed, 70))));
    let mut seed = 0;
    let mut seen = json!(null);
    wait_until("counters contradict", || {
        seed = seed % 9 + 1;
        complete(gateway.vip, &tokens(seed, 70));
        seen = known_of(&gateway, "pool", &a)["trust"].clone();
        std::thread::sleep(std::time::Duration::from_millis(300));
        seen["answers"]["more"].as_u64() >= Some(1)
    });
    assert!(seen["windows"]["judged"].as_u64() >= Some(1), "{seen}");
    assert_eq!((&seen["legs"], &seen["state"]), (&json!(["lost_events"]), &json!("doubted")), "{seen}");
}

/// A drained engine's events tell what a request had to compute as well.
#[test]
fn drained_engines_that_tell_nothing_are_judged_by_their_events() {
    let a = engine_with(Trtllm, |config| config.pretence.mutes_cached = true);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
    let (mut turn, mut seen) = (0, json!(null));
    wait_until("its events agree", || {
        turn += 1;
        complete(a.addr, &tokens(turn, 70));
        followed(&gateway, "pool", &a);
        complete(gateway.vip, &tokens(turn, 100)).assert_exact(&a, 2);
        followed(&gateway, "pool", &a);
        seen = known_of(&gateway, "pool", &a)["trust"].clone();
        seen["answers"]["agrees"].as_u64() >= Some(2)
    });
    assert_eq!((&seen["state"], &seen["agreed"]), (&json!("trusted"), &seen["judged"]), "{seen}");
}

/// A prompt that is asked for without a pause is always explained by the one before; its events come under another
/// name, and that is seen.
#[test]
fn a_prompt_repeated_at_once_is_judged_by_the_events_of_the_one_before() {
    let a = engine(Vllm);
    let rule = exact_rule("pool", Vllm, &[&a], json!({}));
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &[(SEED.0, "9"), NO_SEEDING]);
    let mut seen = json!(null);
    wait_until("it takes requests by load alone", || {
        (0..4).for_each(|_| drop(complete(gateway.vip, &tokens(1, 70))));
        seen = known_of(&gateway, "pool", &a)["trust"].clone();
        seen["state"] == "load_only"
    });
    assert_eq!(seen["legs"], json!(["seed"]), "{seen}");
}

/// The engine chooses the rank: what it finds is what one of them holds.
#[test]
fn ranks_that_nobody_names_are_judged_together() {
    let a = engine_with(Vllm, |config| config.ranks = 2);
    let more = json!({"kvDpRankCount": 2, "kvRankMode": "union"});
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], more.clone())]);
    let to_rank = |at: &str| {
        let header = format!("X-data-parallel-rank: {at}");
        assert_eq!(complete_with(a.addr, &tokens(1, 70), &[&header], json!({})).reply.status, 200);
    };
    to_rank("0");
    to_rank("1");
    super::pool::in_step(&gateway, "pool", &a);
    let told = complete(gateway.vip, &tokens(1, 70));
    told.assert_exact(&a, 4);
    told.assert_as_predicted();
    let trust = known_of(&gateway, "pool", &a)["trust"].clone();
    assert_eq!((&trust["state"], &trust["answers"]["agrees"]), (&json!("trusted"), &json!(1)), "{trust}");
    // Under another seed it finds what no rank was known to hold.
    let b = engine_with(Vllm, |config| (config.ranks, config.hashing.seed) = (2, Some("1".into())));
    let rule = exact_rule("other", Vllm, &[&b], more);
    let at = super::pool::vip_of(&rule);
    gateway.post_rule(&rule);
    super::pool::all_connected(&gateway);
    let mut seen = json!(null);
    wait_until("it takes requests by load alone", || {
        (1..=24).for_each(|seed| drop(complete(at, &tokens(seed, 70))));
        std::thread::sleep(std::time::Duration::from_millis(350));
        seen = known_of(&gateway, "other", &b)["trust"].clone();
        seen["state"] == "load_only"
    });
    assert_eq!(seen["legs"], json!(["seed"]), "{seen}");
}
