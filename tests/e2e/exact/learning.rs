//! A gateway that starts later than its engines, without a replay: what answers prove of their caches is known, and no
//! longer than it is true.

use super::pool::{
    NO_SEEDING, SEED, all_connected, complete, engine_with, exact_rule, gateway_with, held, inventory,
    known_of, metric, tokens, wait_known,
};
use crate::harness::{Driver, on_both_drivers, wait_until};
use serde_json::{Value, json};
use warmpath_perf::engine::Handle;
use warmpath_perf::engine::Kind::{self, Sglang, Vllm};

on_both_drivers!(what_answers_prove_is_known, what_answers_prove_ends_with_its_removal);

/// Without replay, warm before any gateway is there.
fn warm_engine(kind: Kind, blocks: usize) -> Handle {
    engine_with(kind, |c| {
        c.events.replay = None;
        c.cache_blocks = blocks;
    })
}

fn observed(row: &Value) -> u64 {
    row["ranks"][0]["observed"].as_u64().unwrap()
}

fn what_answers_prove_is_known(driver: Driver) {
    for (kind, algo) in [(Vllm, "sha256_cbor"), (Vllm, "tokens"), (Sglang, "sha256_sglang")] {
        let (a, b) = (warm_engine(kind, 1_000), warm_engine(kind, 1_000));
        complete(b.addr, &tokens(1, 70));
        let more = json!({"kvReplayPort": 0, "kvHashAlgo": algo});
        let rule = exact_rule("pool", kind, &[&b, &a], more);
        let gateway = gateway_with(driver, &[rule], &["--shards", "1"], &[SEED, NO_SEEDING]);
        // It is the first in turn: a pure hit, of which no event tells.
        let first = complete(gateway.vip, &tokens(1, 70));
        assert!(first.went_to(&b), "{}", first.reply.head);
        assert_eq!(first.cached(), 64, "{algo}");
        wait_known(&gateway, "pool", &b, "the answer is learned", |row| observed(row) == 4);
        let again = complete(gateway.vip, &tokens(1, 80));
        again.assert_exact(&b, 4);
        again.assert_as_predicted();
        assert_eq!(
            metric(&gateway, "warmpath_kv_observed_blocks", &[("endpoint", &b.addr.to_string())]),
            Some(4.0)
        );
        assert_eq!(metric(&gateway, "warmpath_kv_learned_total", &[]), Some(4.0));
    }
}

fn what_answers_prove_ends_with_its_removal(driver: Driver) {
    for algo in ["sha256_cbor", "tokens"] {
        let a = warm_engine(Vllm, 14);
        complete(a.addr, &tokens(1, 70));
        let more = json!({"kvReplayPort": 0, "kvHashAlgo": algo});
        let gateway = gateway_with(
            driver,
            &[exact_rule("pool", Vllm, &[&a], more)],
            &["--shards", "1"],
            &[SEED, NO_SEEDING],
        );
        wait_until("an answer is learned", || {
            complete(gateway.vip, &tokens(1, 70));
            observed(&known_of(&gateway, "pool", &a)) >= 4
        });
        // Its blocks give way to others.
        for seed in 20..26 {
            complete(a.addr, &tokens(seed, 70));
        }
        wait_known(&gateway, "pool", &a, "nothing is believed that was removed", |row| observed(row) == 0);
        if algo == "sha256_cbor" {
            wait_until("what is claimed is held", || {
                let row = known_of(&gateway, "pool", &a);
                inventory(&gateway, &row, "gpu", 100).is_subset(&held(&a, &["gpu"]))
            });
        }
        let told = complete(gateway.vip, &tokens(1, 70));
        assert_eq!(told.cached(), 0, "it was evicted");
        all_connected(&gateway);
    }
}
