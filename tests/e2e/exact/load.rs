//! Many requests and many turns: the load bound under a burst, and what is predicted against what is spared in
//! conversations. Owns shards beside each other.

use super::pool::{
    NO_SEEDING, SEED, Told, body, complete_with, engine, exact_rule, followed, gateway_with, in_step, metric,
    tokens, warm,
};
use crate::harness::{Driver, on_both_drivers, post, wait_until};
use serde_json::json;
use warmpath_perf::engine::Kind::{self, Sglang, Trtllm, Vllm};
use warmpath_perf::engine::faults::{Faults, Stall};

on_both_drivers!(a_hot_prefix_keeps_the_load_bound);

/// 64 at once over two shards: none of four engines carries more than 175 percent of the mean.
fn a_hot_prefix_keeps_the_load_bound(driver: Driver) {
    let engines = [(); 4].map(|()| engine(Vllm));
    let rule = exact_rule("pool", Vllm, &engines.each_ref(), json!({}));
    let gateway = gateway_with(driver, &[rule], &["--shards", "2"], &[SEED, NO_SEEDING]);
    let hot = tokens(1, 320);
    warm(&gateway, "pool", &engines[2], &hot);
    let stall = Faults { stall: Some(Stall::BeforeHead), ..Faults::default() };
    engines.iter().for_each(|engine| engine.set_faults(stall.clone()));
    let mut clients: Vec<_> = (0..64).map(|_| gateway.client()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let prompt = [&hot[..], &tokens(100 + i as u32, 20)].concat();
        client.send(&post("/v1/completions", &[], &body(&prompt, json!({}))));
    }
    let running = || engines.each_ref().map(|engine| engine.stats().running);
    wait_until("all are there", || running().iter().sum::<u64>() == 64);
    let loads = running();
    assert!(loads.iter().all(|load| *load <= 28), "175 % of 16: {loads:?}");
    assert!(loads[2] >= 16, "the holder carries at least its share: {loads:?}");
    engines.iter().for_each(|engine| engine.set_faults(Faults::default()));
    let mut by_blocks = 0;
    for client in &mut clients {
        let told = Told::new(client.reply());
        assert_eq!(told.reply.status, 200);
        // Where the other shard took all places of a list meanwhile, the selector has the request.
        match told.word("tier") {
            "tier15" => by_blocks += 1,
            _ => told.assert_missed("bounded"),
        }
    }
    assert!(by_blocks >= 32, "{by_blocks} of 64");
    wait_until("nothing is charged any more", || gateway.sum("active") == 0);
    let shards = gateway.shards();
    assert!(shards.iter().all(|s| s["counts"]["accepted"].as_u64() > Some(0)), "both shards served");
}

/// Conversations over engines of one kind, a connection for each turn: each next turn spares what was predicted.
fn converse(kind: Kind, shards: &str) {
    let engines = [(); 3].map(|()| engine(kind));
    let rule = exact_rule("pool", kind, &engines.each_ref(), json!({}));
    let gateway = gateway_with(Driver::Uring, &[rule], &["--shards", shards], &[SEED, NO_SEEDING]);
    let system = tokens(1, 80);
    let mut talks: Vec<Vec<u32>> =
        (0..4).map(|i| [&system[..], &tokens(10 + i, 30 + 9 * i)].concat()).collect();
    let mut homes = [String::new(), String::new(), String::new(), String::new()];
    for turn in 0..4u32 {
        for (i, talk) in talks.iter_mut().enumerate() {
            let answer = tokens(200 + 10 * turn + i as u32, 21 + turn);
            let more = json!({"max_tokens": answer.len(), "ignore_eos": true, "sim_answer_ids": answer});
            let told = complete_with(gateway.vip, talk, &[], more);
            assert_eq!(told.reply.status, 200);
            if turn > 0 {
                assert_eq!(told.word("tier"), "tier15", "{}", told.reply.head);
                assert_eq!(told.word("endpoint"), homes[i], "{}", told.reply.head);
                assert!(told.number("predicted_tokens") > 96, "{}", told.reply.head);
                told.assert_as_predicted();
            }
            homes[i] = told.word("endpoint").to_owned();
            talk.extend(answer);
            talk.extend(tokens(400 + 10 * turn + i as u32, 40));
            let home = engines.iter().find(|engine| told.went_to(engine)).unwrap();
            match kind {
                Trtllm => followed(&gateway, "pool", home),
                _ => in_step(&gateway, "pool", home),
            }
        }
    }
    // What was predicted of all that was routed by blocks is what the engines' answers say.
    let sum = |name: &str| metric(&gateway, name, &[]).unwrap_or_else(|| panic!("no {name}"));
    let hits = sum("loxilb_pd_kv_tier15_hits_total");
    assert!(hits >= 12.0, "{hits}");
    assert_eq!(sum("warmpath_exact_answers_told_total"), hits);
    assert_eq!(sum("warmpath_exact_answers_as_predicted_total"), hits);
    assert_eq!(sum("warmpath_exact_cached_tokens_total"), sum("warmpath_exact_predicted_tokens_total"));
}

#[test]
fn conversations_spare_what_was_predicted_on_one_shard() {
    [Vllm, Sglang, Trtllm].into_iter().for_each(|kind| converse(kind, "1"));
}

#[test]
fn conversations_spare_what_was_predicted_on_four_shards() {
    [Vllm, Sglang, Trtllm].into_iter().for_each(|kind| converse(kind, "4"));
}
