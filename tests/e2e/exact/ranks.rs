//! Data-parallel ranks: the one that holds the prompt is asked for by name, unless the client names one itself.
//! Owns the header's way.

use super::pool::{complete, complete_with, engine_with, exact_rule, gateway, in_step, last_header, tokens};
use crate::harness::{Driver, Gateway, on_both_drivers};
use serde_json::json;
use warmpath_perf::engine::Kind::{self, Sglang, Vllm};
use warmpath_perf::engine::{Handle, stats::Stats};

on_both_drivers!(the_rank_with_most_of_the_prompt_is_named_once);

const HEADER: &str = "x-data-parallel-rank";

/// Two ranks, the second with 4 blocks of the prompt, the first with 1.
fn ranked(driver: Driver, kind: Kind, mode: &str) -> (Gateway, Handle) {
    let engine = engine_with(kind, |c| c.ranks = 2);
    let rule = exact_rule("pool", kind, &[&engine], json!({"kvDpRankCount": 2, "kvRankMode": mode}));
    let gateway = gateway(driver, &[rule]);
    complete_with(engine.addr, &tokens(1, 16), &["X-data-parallel-rank: 0"], json!({}));
    complete_with(engine.addr, &tokens(1, 64), &["X-data-parallel-rank: 1"], json!({}));
    in_step(&gateway, "pool", &engine);
    (gateway, engine)
}

fn the_rank_with_most_of_the_prompt_is_named_once(driver: Driver) {
    for kind in [Vllm, Sglang] {
        let (gateway, engine) = ranked(driver, kind, "pin");
        for _ in 0..3 {
            let told = complete(gateway.vip, &tokens(1, 70));
            told.assert_exact(&engine, 4);
            assert_eq!(told.word("rank"), "1");
            assert_eq!(told.cached(), 64);
            assert_eq!(last_header(&engine, HEADER), ["1"]);
        }
    }
}

#[test]
fn the_clients_own_rank_is_honoured() {
    for kind in [Vllm, Sglang] {
        let (gateway, engine) = ranked(Driver::Epoll, kind, "pin");
        let told = complete_with(gateway.vip, &tokens(1, 70), &["X-Data-Parallel-Rank: 0"], json!({}));
        told.assert_exact(&engine, 1);
        assert_eq!((told.word("rank"), told.cached()), ("0", 16));
        assert_eq!(last_header(&engine, HEADER), ["0"], "the client's own, once");
        in_step(&gateway, "pool", &engine);
        let told = complete_with(gateway.vip, &tokens(1, 70), &["X-Data-Parallel-Rank: 7"], json!({}));
        assert_eq!(told.reply.status, 400, "{}", told.reply.head);
        assert!(String::from_utf8_lossy(&told.reply.body).contains("out of range"));
        assert_eq!(last_header(&engine, HEADER), ["7"]);
    }
}

/// SGLang takes it from the body too.
#[test]
fn the_clients_own_rank_in_the_body_is_honoured() {
    let (gateway, engine) = ranked(Driver::Epoll, Sglang, "pin");
    let told = complete_with(gateway.vip, &tokens(1, 70), &[], json!({"routed_dp_rank": 0}));
    told.assert_exact(&engine, 1);
    assert_eq!(told.cached(), 16);
    let named = last_header(&engine, HEADER);
    assert!(named.is_empty() || named == ["0"], "{named:?}");
}

/// In a union no rank is named; the engine chooses.
#[test]
fn a_union_of_ranks_names_none() {
    let (gateway, engine) = ranked(Driver::Epoll, Vllm, "union");
    let told = complete(gateway.vip, &tokens(1, 70));
    told.assert_exact(&engine, 4);
    assert_eq!(told.word("rank"), "");
    assert_eq!(last_header(&engine, HEADER), [""; 0]);
    let Stats { errors, .. } = engine.stats();
    assert_eq!(errors, 0);
}
