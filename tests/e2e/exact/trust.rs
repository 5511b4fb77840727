//! Each leg of exact routing broken by itself: what the gateway then says is broken, that the endpoint takes requests
//! by load alone, and that it is let in again. Where the evidence fits several legs, all of them are named.
//!
//! | Leg | How it is broken | Test |
//! |---|---|---|
//! | seed | another `PYTHONHASHSEED` | `a_wrong_seed_is_named_and_demotes` |
//! | algorithm | another hash than the engine says, and than the rule says | `a_wrong_hash_is_named` |
//! | seed, algorithm | both | `what_fits_seed_and_hash_names_both` |
//! | block_size | blocks of 32 under a rule of 16 | `another_block_size_is_named` |
//! | tokenizer | another `tokenizer.json` | `another_tokenizer_is_named_and_demotes` |
//! | template | a text of its own before every chat | `another_template_is_named_and_demotes` |
//! | lost_events | batches that never come | `events_that_never_came_are_named` |
//! | lost_events | the same, of an engine that tells nothing | `counters_contradict` |
//! | second_reader | somebody else drains | `a_second_reader_is_named` |
//! | salt, lora | a release that says it is a later one | `salts_and_adapters_that_are_hashed_otherwise_are_named` |

use super::pool::{
    NO_SEEDING, SEED, complete, complete_with, config, engine, engine_with, exact_rule, fixed_port, gateway,
    gateway_with, in_step, known_of, metric, tokens, vllm_version, wait_known, warm,
};
use crate::harness::{Client, Driver, Gateway, on_both_drivers, post, wait_until};
use serde_json::{Value, json};
use std::time::Duration;
use warmpath_core::trust::Leg;
use warmpath_perf::engine::Kind::{Sglang, Trtllm, Vllm};
use warmpath_perf::engine::faults::Faults;
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::{Config, Handle, start};

on_both_drivers!(a_wrong_seed_is_named_and_demotes, an_engine_put_right_is_let_in_again);

/// The table above is whole, and true of these files.
#[test]
fn every_leg_has_a_test() {
    let files = [include_str!("trust.rs"), include_str!("trust_text.rs"), include_str!("trust_untold.rs")];
    let rows = files[0].lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    for leg in Leg::ALL {
        let mut proofs = rows.iter().filter(|row| row[0].split(", ").any(|word| word == leg.word()));
        assert!(proofs.next().is_some(), "no test provokes {}", leg.word());
    }
    for row in rows {
        let name = row[2].trim_matches(['`', ' ', '|']);
        assert!(files.iter().any(|file| file.contains(&format!("fn {name}("))), "there is no test {name}");
    }
}

fn legs(row: &Value) -> Vec<&str> {
    row["trust"]["legs"].as_array().unwrap().iter().map(|leg| leg.as_str().unwrap()).collect()
}

/// Longer than a promise lasts after its answer: what was promised to an endpoint a moment ago judges nothing.
const PROMISES_LAPSE: Duration = Duration::from_millis(350);

/// Asks for the same prompts over and over, each with `more` members, until the endpoint takes requests by load
/// alone.
fn until_demoted(gateway: &Gateway, engine: &Handle, more: &Value) -> Value {
    let mut seen = Value::Null;
    wait_until("it takes requests by load alone", || {
        for seed in 1..=24 {
            assert_eq!(complete_with(gateway.vip, &tokens(seed, 70), &[], more.clone()).reply.status, 200);
        }
        seen = known_of(gateway, "pool", engine);
        std::thread::sleep(PROMISES_LAPSE);
        seen["trust"]["state"] == "load_only"
    });
    seen
}

/// Waits until the events show what is wrong with names.
fn until_named(gateway: &Gateway, engine: &Handle, leg: &'static str) {
    wait_known(gateway, "pool", engine, leg, |row| legs(row) == [leg]);
}

fn a_wrong_seed_is_named_and_demotes(driver: Driver) {
    let a = engine(Vllm);
    let rule = exact_rule("pool", Vllm, &[&a], json!({}));
    let gateway = gateway_with(driver, &[rule], &["--shards", "2"], &[(SEED.0, "9"), NO_SEEDING]);
    assert_eq!(known_of(&gateway, "pool", &a)["trust"]["state"], "unknown", "silence is no evidence");
    let row = until_demoted(&gateway, &a, &json!({}));
    assert_eq!(legs(&row), ["seed"], "{row}");
    assert!(row["trust"]["judged"].as_u64() >= Some(20) && row["trust"]["agreed"] == 0, "{row}");
    assert!(row["trust"]["answers"]["more"].as_u64() >= Some(20), "{row}");
    assert!(row["findings"].to_string().contains("PYTHONHASHSEED"), "{row}");
    assert_eq!(row["ranks"][0]["observed"], 0, "what a removal could not take back is not learned: {row}");
    complete(gateway.vip, &tokens(1, 70)).assert_missed("untrusted");
    let at = a.addr.to_string();
    let labels = [("leg", "seed"), ("endpoint", at.as_str())];
    assert_eq!(metric(&gateway, "warmpath_trust_broken_leg", &labels), Some(1.0));
    let labels = [("state", "load_only"), ("endpoint", at.as_str())];
    assert_eq!(metric(&gateway, "warmpath_trust_state", &labels), Some(1.0));
}

/// An engine that says it names blocks by one hash, and uses another.
#[test]
fn a_wrong_hash_is_named() {
    let lying = |algo, told| engine_with(Vllm, |c| (c.hashing.algo, c.pretence.algo) = (algo, Some(told)));
    let a = lying(HashAlgo::Sha256, HashAlgo::Sha256Cbor);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    let row = until_demoted(&gateway, &a, &json!({}));
    assert_eq!((legs(&row), &row["fence"]), (vec!["algorithm"], &Value::Null), "{row}");
    // One that tells is fenced at once, and the leg is named without a single answer.
    let b = engine_with(Vllm, |c| c.hashing.algo = HashAlgo::Sha256);
    gateway.post_rule(&exact_rule("pool", Vllm, &[&b], json!({})));
    wait_known(&gateway, "pool", &b, "it is fenced", |row| row["fence"] == "algorithm");
    until_named(&gateway, &b, "algorithm");
}

/// Seed and hash both wrong: which, nobody can tell.
#[test]
fn what_fits_seed_and_hash_names_both() {
    let a = engine_with(Vllm, |c| {
        (c.hashing.algo, c.pretence.algo) = (HashAlgo::Xxhash, Some(HashAlgo::Sha256Cbor));
        c.hashing.seed = Some("77".into());
    });
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    let row = until_demoted(&gateway, &a, &json!({}));
    assert_eq!(legs(&row), ["seed", "algorithm"], "{row}");
}

#[test]
fn another_block_size_is_named() {
    let a = engine_with(Vllm, |c| c.block_size = 32);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    complete(a.addr, &tokens(1, 70));
    until_named(&gateway, &a, "block_size");
}

/// A release that says it is a later one, which hashes salts and adapters otherwise.
#[test]
fn salts_and_adapters_that_are_hashed_otherwise_are_named() {
    let a = engine_with(Vllm, |c| {
        c.version = vllm_version("0.28.0");
        c.pretence.version = vllm_version("0.32.0");
        c.loras =
            vec![warmpath_perf::engine::blocks::Lora { id: 1, name: "sql".into(), path: "/a/sql".into() }];
    });
    let rule = exact_rule("pool", Vllm, &[&a], json!({}));
    let gateway = gateway(Driver::Epoll, &[rule]);
    let row = until_demoted(&gateway, &a, &json!({"cache_salt": "tenant"}));
    assert_eq!((legs(&row), &row["fence"]), (vec!["salt"], &Value::Null), "{row}");
    let mut told = Value::Null;
    wait_until("the adapter is found out too", || {
        complete_with(gateway.vip, &tokens(77, 70), &[], json!({"model": "sql"}));
        complete_with(gateway.vip, &tokens(78, 70), &[], json!({"model": "sql"}));
        std::thread::sleep(PROMISES_LAPSE);
        told = known_of(&gateway, "pool", &a);
        legs(&told) == ["salt", "lora"]
    });
}

/// Events that nobody misses, since none comes after them.
#[test]
fn events_that_never_came_are_named() {
    let a = engine(Vllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(99, 70));
    a.set_faults(Faults { kv_lose_next: Some(10_000), ..Faults::default() });
    (1..=24).for_each(|seed| drop(complete(a.addr, &tokens(seed, 70))));
    (1..=24).for_each(|seed| drop(complete(gateway.vip, &tokens(seed, 70))));
    let row = known_of(&gateway, "pool", &a);
    assert_eq!((&row["trust"]["state"], legs(&row)), (&json!("load_only"), vec!["lost_events"]), "{row}");
    assert_eq!(row["ranks"][0]["standing"], "complete", "nothing else shows it: {row}");
}

/// TensorRT-LLM gives each event to whoever asks first: an id that is missing was lost, or somebody else has it.
#[test]
fn a_second_reader_is_named() {
    let a = engine(Trtllm);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Trtllm, &[&a], json!({}))]);
    let mut thief = Client::connect(a.addr);
    wait_until("somebody else has some events, and it shows", || {
        complete(a.addr, &tokens(1, 65));
        a.clear_caches();
        thief.ask(&post("/kv_cache_events", &[], b""));
        complete(a.addr, &tokens(3, 65));
        known_of(&gateway, "pool", &a)["fence"] == "ownership"
    });
    let row = known_of(&gateway, "pool", &a);
    assert_eq!(legs(&row), ["lost_events", "second_reader"], "{row}");
}

/// The wrong process at first, then the right one at its place.
fn an_engine_put_right_is_let_in_again(driver: Driver) {
    let right = Config { port: fixed_port(), ..config(Vllm) };
    let mut wrong = right.clone();
    wrong.hashing.seed = Some("1".into());
    let wrong = start(wrong).unwrap();
    let gateway = gateway(driver, &[exact_rule("pool", Vllm, &[&wrong], json!({}))]);
    let row = until_demoted(&gateway, &wrong, &json!({}));
    assert_eq!(legs(&row), ["seed"], "{row}");
    wait_until("the log tells it", || gateway.log().contains("[KV_TRUST] rule pool"));
    wrong.stop();
    let right = start(right).unwrap();
    wait_known(&gateway, "pool", &right, "it is followed again", |row| row["ranks"][0]["connected"] == true);
    warm(&gateway, "pool", &right, &tokens(50, 70));
    wait_until("it is trusted again", || {
        complete(gateway.vip, &tokens(50, 70));
        known_of(&gateway, "pool", &right)["trust"]["state"] == "trusted"
    });
    let row = known_of(&gateway, "pool", &right);
    assert_eq!((legs(&row), &row["trust"]["agreed"]), (vec![], &row["trust"]["judged"]), "{row}");
    wait_until("the log tells both", || {
        let log = gateway.log();
        let said: Vec<&str> = log.lines().filter(|line| line.contains("[KV_TRUST] rule pool")).collect();
        said.len() == 2
            && said[0].contains("broken: seed (")
            && said[0].contains("PYTHONHASHSEED")
            && said[1].contains("agree again")
            && said[1].contains("broken was: seed")
    });
    complete(gateway.vip, &tokens(50, 70)).assert_exact(&right, 4);
}

/// An engine that does as it says is trusted, and nothing is said to be broken, whatever is evicted.
#[test]
fn engines_in_order_are_trusted() {
    for kind in [Vllm, Sglang, Trtllm] {
        let a = engine_with(kind, |c| c.cache_blocks = 40);
        let gateway = gateway(Driver::Epoll, &[exact_rule("pool", kind, &[&a], json!({}))]);
        for round in 0..60_u32 {
            let seed = if round % 2 == 0 { 1 } else { 2 + round % 7 };
            complete(gateway.vip, &tokens(seed, 130));
            if kind != Trtllm {
                in_step(&gateway, "pool", &a);
            } else {
                super::pool::followed(&gateway, "pool", &a);
            }
        }
        let row = known_of(&gateway, "pool", &a);
        assert_eq!((legs(&row), &row["trust"]["state"]), (vec![], &json!("trusted")), "{kind:?}: {row}");
        assert_eq!(row["trust"]["agreed"], row["trust"]["judged"], "{kind:?}: {row}");
    }
}

/// vLLM without `--enable-prompt-tokens-details`: what requests compute is in their events.
#[test]
fn engines_that_tell_nothing_are_judged_by_their_events() {
    let a = engine_with(Vllm, |c| c.pretence.mutes_cached = true);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    let mut turn = 0;
    let mut ask = |loses: bool| {
        turn += 1;
        warm(&gateway, "pool", &a, &tokens(turn, 70));
        if loses {
            // A reset is told with the next step: too late for this decision.
            a.clear_caches();
        }
        complete(gateway.vip, &tokens(turn, 100)).assert_exact(&a, 4);
    };
    wait_until("its events agree", || {
        ask(false);
        known_of(&gateway, "pool", &a)["trust"]["state"] == "trusted"
    });
    let mut row = Value::Null;
    wait_until("its events contradict", || {
        ask(true);
        row = known_of(&gateway, "pool", &a);
        row["trust"]["answers"]["less"].as_u64() >= Some(3)
    });
    assert!(row["trust"]["answers"]["agrees"].as_u64() >= Some(1), "{row}");
    assert_eq!(row["trust"]["answers"]["more"], 0, "{row}");
}
