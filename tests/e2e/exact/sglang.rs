//! SGLang with several ranks beside vLLM. Owns that neither's caches speak for the other's, and what SGLang alone
//! does: namespaces of salts, a clear at each start, ranks with trees of their own.

use super::pool::{
    NO_SEEDING, SEED, complete, complete_with, engine, engine_with, exact_rule, gateway, gateway_with, held,
    in_step, inventory, known_of, last_header, live_port, metric, tokens, vip_of, vllm_version, wait_known,
    warm,
};
use crate::harness::{Driver, wait_until};
use serde_json::json;
use warmpath_perf::engine::Kind::{Sglang, Vllm};

/// Two rules, one model name, one prompt; the vLLM engines on ports of their own.
#[test]
fn two_kinds_beside_each_other_share_nothing() {
    let s = engine_with(Sglang, |c| c.ranks = 3);
    let port = live_port() + 20;
    let v = engine_with(Vllm, |c| {
        c.events.live = format!("tcp://*:{port}").parse().ok();
        c.events.replay = format!("tcp://*:{}", port + 1).parse().ok();
    });
    let three = exact_rule("sglang", Sglang, &[&s], json!({"model_name": "sim", "kvDpRankCount": 3}));
    let one = json!({"model_name": "sim", "kvZmqPort": port, "kvReplayPort": port + 1});
    let one = exact_rule("vllm", Vllm, &[&v], one);
    let (sv, vv) = (vip_of(&three), vip_of(&one));
    let gateway = gateway(Driver::Uring, &[three, one]);
    let prompt = tokens(1, 96);
    let on_rank = |rank: u32, length: usize| {
        let header = format!("X-Data-Parallel-Rank: {rank}");
        complete_with(s.addr, &prompt[..length], &[&header], json!({}))
    };
    on_rank(0, 32);
    on_rank(1, 64);
    on_rank(2, 48);
    in_step(&gateway, "sglang", &s);
    let row = known_of(&gateway, "sglang", &s);
    let ranks = row["ranks"].as_array().unwrap();
    let counts: Vec<_> = ranks.iter().map(|rank| rank["blocks"]["gpu"].as_u64().unwrap()).collect();
    assert_eq!(counts, [2, 4, 3], "each rank has its own");
    let distinct: std::collections::BTreeSet<u64> =
        inventory(&gateway, &row, "gpu", 4).into_iter().map(|(_, key)| key).collect();
    assert_eq!(distinct.len(), 4, "one prompt, one name of each block");
    complete(vv, &prompt).assert_missed("no_signal");
    in_step(&gateway, "vllm", &v);
    let told = complete(sv, &prompt);
    told.assert_exact(&s, 4);
    assert_eq!(told.word("rank"), "1");
    told.assert_as_predicted();
    assert_eq!(last_header(&s, "x-data-parallel-rank"), ["1"]);
    let of_vllm = held(&v, &["gpu"]).len();
    complete(vv, &prompt).assert_exact(&v, of_vllm as u64);
    assert_eq!(v.stats().executions.total, 2);
}

/// A new process says so, and nothing of the old one counts.
#[test]
fn a_restart_clears_each_rank() {
    let s = engine_with(Sglang, |c| c.ranks = 2);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Sglang, &[&s], json!({"kvDpRankCount": 2}))]);
    let prompt = tokens(1, 64);
    for rank in ["X-Data-Parallel-Rank: 0", "X-Data-Parallel-Rank: 1"] {
        complete_with(s.addr, &prompt, &[rank], json!({}));
    }
    in_step(&gateway, "pool", &s);
    s.restart(true);
    wait_known(&gateway, "pool", &s, "both ranks are cleared", |row| {
        row["ranks"].as_array().unwrap().iter().all(|rank| rank["cleared"].as_u64() > Some(0))
    });
    // SGLang tells of its empty cache with its first step.
    let first = complete(gateway.vip, &tokens(2, 64));
    assert_eq!(first.word("tier"), "tier2", "{}", first.reply.head);
    in_step(&gateway, "pool", &s);
    let told = complete(gateway.vip, &tokens(2, 70));
    told.assert_exact(&s, 4);
    told.assert_as_predicted();
    complete(gateway.vip, &prompt).assert_missed("no_worker");
}

/// The tenant's salt keeps caches apart; a flood of it is told by the watchdog.
#[test]
fn salted_traffic_hits_nothing_of_the_plain_one() {
    let s = engine_with(Sglang, |c| c.version = vllm_version("0.5.23"));
    let rule = exact_rule("pool", Sglang, &[&s], json!({"kvEngineVersion": "0.5.23"}));
    let variables = [SEED, NO_SEEDING, ("LOXILB_KV_ZERO_HIT_N", "3")];
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &variables);
    let prompt = tokens(1, 64);
    complete(s.addr, &prompt);
    in_step(&gateway, "pool", &s);
    for tenant in 0..5 {
        let more = json!({"cache_salt": format!("tenant {tenant}")});
        let told = complete_with(gateway.vip, &prompt, &[], more);
        assert_eq!((told.reply.status, told.word("tier"), told.cached()), (200, "tier2", 0));
        in_step(&gateway, "pool", &s);
    }
    assert_eq!(metric(&gateway, "loxilb_pd_kv_tier15_hits_total", &[]).unwrap_or(0.0), 0.0, "hits stay flat");
    assert_eq!(metric(&gateway, "loxilb_pd_kv_zero_hit_watchdog_total", &[]), Some(3.0), "from the third on");
    let own = json!({"cache_salt": "tenant 3"});
    let told = complete_with(gateway.vip, &tokens(1, 70), &[], own);
    told.assert_exact(&s, 4);
    told.assert_as_predicted();
    complete(gateway.vip, &tokens(1, 70)).assert_exact(&s, 4);
}

/// `flush_cache` of the engine itself.
#[test]
fn a_flush_is_followed() {
    let s = engine(Sglang);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Sglang, &[&s], json!({}))]);
    warm(&gateway, "pool", &s, &tokens(1, 64));
    assert_eq!(super::pool::page(&s, "/flush_cache").status, 200);
    // It is told with the engine's next step.
    complete(s.addr, &tokens(2, 32));
    wait_until("the flush is known", || known_of(&gateway, "pool", &s)["ranks"][0]["blocks"]["gpu"] == 2);
    in_step(&gateway, "pool", &s);
    complete(gateway.vip, &tokens(1, 64)).assert_missed("no_worker");
}
