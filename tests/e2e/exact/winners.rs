//! Who wins: the longest leading overlap, the second best when the best is away, the selector when nothing is
//! known. Owns the order of winners over one pool.

use super::pool::{
    NO_SEEDING, SEED, all_connected, complete, complete_with, counts_in_step, engine, engine_with,
    exact_rule, exact_rule_at, gateway, gateway_with, in_step, known_of, metric, tokens, wait_known, warm,
};
use crate::harness::{Client, Driver, chat, on_both_drivers, post, wait_until};
use serde_json::json;
use std::collections::BTreeSet;
use warmpath_perf::engine::Kind::{self, Vllm};
use warmpath_perf::engine::faults::Faults;

on_both_drivers!(the_longest_leading_overlap_wins_until_another_has_more, the_second_best_takes_over);

fn the_longest_leading_overlap_wins_until_another_has_more(driver: Driver) {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let gateway = gateway(driver, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    let prompt = tokens(1, 400);
    complete(gateway.vip, &prompt[..96]).assert_missed("no_signal");
    let fresh = tokens(2, 400);
    warm(&gateway, "pool", &a, &fresh[..64]);
    warm(&gateway, "pool", &b, &fresh[..32]);
    let first = complete(gateway.vip, &fresh[..96]);
    first.assert_exact(&a, 4);
    first.assert_as_predicted();
    in_step(&gateway, "pool", &a);
    warm(&gateway, "pool", &b, &fresh[..160]);
    let flipped = complete(gateway.vip, &fresh[..160]);
    flipped.assert_exact(&b, 10);
    assert_eq!(flipped.number("predicted_tokens"), 144, "the last token's block is computed");
    flipped.assert_as_predicted();
    in_step(&gateway, "pool", &b);
    warm(&gateway, "pool", &a, &fresh[..240]);
    complete(gateway.vip, &fresh[..300]).assert_exact(&a, 15);
    in_step(&gateway, "pool", &a);
    let branch = [&fresh[..40], &tokens(3, 60)].concat();
    let parted = complete(gateway.vip, &branch);
    assert_eq!((parted.word("tier"), parted.word("overlap_blocks")), ("tier15", "2"));
    parted.assert_as_predicted();
    let late = [&tokens(4, 16), &fresh[16..200]].concat();
    complete(gateway.vip, &late).assert_missed("no_worker");
}

/// A publisher whose replay does not reach back to the beginning leaves a cache of which the middle is known.
#[test]
fn what_lies_behind_a_hole_does_not_count() {
    let (a, b) = (engine_with(Vllm, |c| c.events.buffer_steps = 2), engine(Vllm));
    let prompt = tokens(1, 64);
    for length in [16, 32, 48, 64] {
        complete(a.addr, &prompt[..length]);
    }
    complete(b.addr, &prompt[..32]);
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    wait_known(&gateway, "pool", &a, "the last batches are replayed", |row| {
        row["ranks"][0]["blocks"]["gpu"] == 2 && row["ranks"][0]["standing"] == "since"
    });
    assert_eq!(known_of(&gateway, "pool", &a)["ranks"][0]["reason"], "replay_hole");
    in_step(&gateway, "pool", &b);
    complete(gateway.vip, &prompt[..48]).assert_exact(&b, 2);
    // The first block is computed and told again; the second is not: a hole between the first and the third.
    complete(a.addr, &prompt[..16]);
    wait_known(&gateway, "pool", &a, "the first block is known", |row| row["ranks"][0]["blocks"]["gpu"] == 3);
    b.stop();
    let other = [&prompt[..40], &tokens(9, 40)].concat();
    let told = complete(gateway.vip, &other);
    assert_eq!((told.went_to(&a), told.word("overlap_blocks")), (true, "1"), "{}", told.reply.head);
    assert_eq!(told.cached(), 32, "the engine itself has no hole");
}

fn the_second_best_takes_over(driver: Driver) {
    let pool = [engine(Vllm), engine(Vllm), engine(Vllm)];
    let [a, b, c] = &pool;
    let rule = exact_rule("pool", Vllm, &[a, b, c], json!({}));
    let gateway = gateway(driver, std::slice::from_ref(&rule));
    let prompt = tokens(1, 96);
    warm(&gateway, "pool", a, &prompt);
    warm(&gateway, "pool", b, &prompt[..48]);
    let mut drained = rule.clone();
    drained["endpoints"][0]["weight"] = 0.into();
    gateway.post_rule(&drained);
    let ask = |seed| complete(gateway.vip, &[&prompt[..96], &tokens(seed, 20)].concat());
    for seed in 2..5 {
        let told = ask(seed);
        assert!(told.went_to(b), "{}", told.reply.head);
        assert_eq!(told.word("tier"), "tier15");
    }
    gateway.post_rule(&rule);
    in_step(&gateway, "pool", b);
    assert_eq!(held_of(&gateway, a), 6, "a change of weights does not forget");
    warm(&gateway, "pool", a, &[&prompt[..96], &tokens(5, 64)].concat());
    let deep = [&prompt[..96], &tokens(5, 64)].concat();
    a.set_faults(Faults { refuse: true, ..Faults::default() });
    wait_until("it refuses", || std::net::TcpStream::connect(a.addr).is_err());
    for _ in 0..4 {
        let told = complete(gateway.vip, &deep);
        assert!(told.went_to(b), "not in turn: {}", told.reply.head);
        assert_eq!((told.reply.status, told.word("tier")), (200, "tier15"));
    }
    assert_eq!(c.stats().executions.total, 0);
}

fn held_of(gateway: &crate::harness::Gateway, engine: &warmpath_perf::engine::Handle) -> u64 {
    known_of(gateway, "pool", engine)["ranks"][0]["blocks"]["gpu"].as_u64().unwrap()
}

#[test]
fn a_rule_warms_up_before_it_routes_by_blocks() {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let rule = exact_rule("pool", Vllm, &[&a, &b], json!({"kvWarmupSec": 3600}));
    let gateway = gateway(Driver::Epoll, std::slice::from_ref(&rule));
    let prompt = tokens(1, 64);
    warm(&gateway, "pool", &b, &prompt);
    for _ in 0..2 {
        complete(gateway.vip, &prompt).assert_missed("warmup");
    }
    assert_eq!(a.stats().executions.total, 1, "in turn");
    let mut ready = rule.clone();
    ready["serviceArguments"]["kvWarmupSec"] = 0.into();
    gateway.post_rule(&ready);
    in_step(&gateway, "pool", &a);
    let longer = tokens(1, 80);
    warm(&gateway, "pool", &b, &longer);
    complete(gateway.vip, &longer).assert_exact(&b, 5);
    // Coming into force anew, a rule warms up by its own clock.
    let mut soon = rule;
    soon["serviceArguments"]["kvWarmupSec"] = 1.into();
    soon["serviceArguments"]["model_name"] = "sim".into();
    soon["serviceArguments"]["name"] = "soon".into();
    gateway.post_rule(&soon);
    all_connected(&gateway);
    wait_until("the warm-up is over", || {
        let told = complete(gateway.vip, &longer);
        if told.word("tier") == "tier2" {
            told.assert_missed("warmup");
        }
        told.word("tier") == "tier15"
    });
}

#[test]
fn what_has_no_token_ids_is_left_to_the_selector() {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    let mut client = gateway.client();
    let mut ask = |path: &str, body: &[u8]| {
        let told = super::pool::Told::new(client.ask(&post(path, &[], body)));
        (told.reply.status, told.word("tier").to_owned(), told.word("missed").to_owned())
    };
    let body = |value: serde_json::Value| value.to_string().into_bytes();
    let missed = |status: u16, why: &str| (status, "tier2".to_owned(), why.to_owned());
    assert_eq!(ask("/v1/chat/completions", &chat("hello")), missed(200, "no_tokenizer"));
    let text = body(json!({"model": "sim", "prompt": "a long text that nobody tokenizes"}));
    assert_eq!(ask("/v1/completions", &text), missed(200, "no_tokenizer"));
    let batch = body(json!({"model": "sim", "prompt": [tokens(1, 64), tokens(2, 64)]}));
    assert_eq!(ask("/v1/completions", &batch), missed(200, "batch"));
    let short = body(json!({"model": "sim", "prompt": tokens(1, 15)}));
    assert_eq!(ask("/v1/completions", &short), missed(200, "hashes"));
    assert_eq!(ask("/v1/completions", &body(json!({"model": "sim"}))), missed(400, "text_empty"));
    let odd = body(json!({"model": "sim", "prompt": tokens(1, 64), "cache_salt": 7}));
    assert_eq!(ask("/v1/completions", &odd).2, "member_type");
    for reason in ["no_tokenizer", "batch", "hashes", "text_empty", "member_type"] {
        let missed = metric(&gateway, "warmpath_exact_misses_total", &[("reason", reason)]);
        assert!(missed.is_some_and(|missed| missed >= 1.0), "{reason}: {missed:?}");
    }
    let (told_a, told_b) = (a.stats().executions.total, b.stats().executions.total);
    assert!(told_a > 1 && told_b > 1, "in turn: {told_a}, {told_b}");
}

#[test]
fn each_so_many_hits_one_goes_to_an_endpoint_that_is_cold() {
    let pool = [engine(Vllm), engine(Vllm), engine(Vllm)];
    let [a, b, c] = &pool;
    let rule = exact_rule("pool", Vllm, &[a, b, c], json!({}));
    let variables = [SEED, ("LOXILB_KV_COLDSTART_SEED_N", "4"), ("LOXILB_KV_COLDSTART_MIN_BLOCKS", "16")];
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &variables);
    let prompt = tokens(1, 20 * 16 + 1);
    warm(&gateway, "pool", a, &prompt);
    let mut seeded = Vec::new();
    for hit in 1..=12 {
        let told = complete(gateway.vip, &prompt);
        assert_eq!((told.reply.status, told.word("tier")), (200, "tier15"), "{}", told.reply.head);
        if told.word("reason") == "exact_seed" {
            let cold = if told.went_to(b) { b } else { c };
            assert!(told.went_to(cold), "{}", told.reply.head);
            seeded.push((hit, cold.addr));
        } else {
            assert!(told.went_to(a), "hit {hit}: {}", told.reply.head);
        }
        pool.iter().for_each(|engine| in_step(&gateway, "pool", engine));
    }
    assert_eq!(seeded, [(4, b.addr), (8, c.addr)], "then nobody is cold");
    assert_eq!(metric(&gateway, "loxilb_pd_kv_tier15_hits_total", &[]), Some(12.0));
    assert_eq!(metric(&gateway, "loxilb_pd_kv_tier15_cold_seeds_total", &[]), Some(2.0));
}

#[test]
fn a_rule_reads_back_as_it_was_given_and_one_mode_rules_beside_it_serve() {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let vip = crate::harness::free_address();
    let exact = exact_rule_at(vip, "exact", Vllm, &[&a, &b], json!({"model_name": "sim"}));
    let plain = crate::harness::rule_with(vip, &[a.addr], json!({"name": "plain"}));
    let gateway = gateway(Driver::Epoll, &[exact, plain]);
    let path = format!(
        "/netlox/v1/config/loadbalancer/externalipaddress/{}/port/{}/protocol/tcp?model_name=sim",
        vip.ip(),
        vip.port()
    );
    let read = gateway.admin("GET", &path, "").json();
    let service = read.pointer("/serviceArguments").or_else(|| read.pointer("/lbAttr/0/serviceArguments"));
    let service = service.unwrap_or_else(|| panic!("{read}"));
    for (name, value) in
        [("kvExactMode", json!(3)), ("kvBlockSize", json!(16)), ("kvEngineType", json!("vllm"))]
    {
        assert_eq!(service[name], value, "{name}: {service}");
    }
    let rows = super::pool::known(&gateway);
    let rules: BTreeSet<_> = rows.iter().map(|row| row["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, BTreeSet::from(["exact"]), "a plain rule follows nobody");
    let mut other = Client::connect(vip);
    let told = other.ask(&post("/v1/completions", &[], br#"{"model": "other", "prompt": [1, 2, 3]}"#));
    assert_eq!(told.status, 404, "the plain rule took it, the engine refused it");
    assert_eq!(told.header("x-warmpath-receipt"), None);
}

/// Blocks on their way count as overlap, so that a burst of one new prompt does not spread it.
#[test]
fn a_prompt_on_its_way_draws_the_next_of_its_kind() {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    // Something is held, so that lookups are made at all; nothing of the new prompt.
    warm(&gateway, "pool", &a, &tokens(1, 64));
    let stalled =
        Faults { stall: Some(warmpath_perf::engine::faults::Stall::BeforeHead), ..Faults::default() };
    [&a, &b].iter().for_each(|engine| engine.set_faults(stalled.clone()));
    let prompt = tokens(2, 160);
    let request = post("/v1/completions", &[], &super::pool::body(&prompt, json!({})));
    let mut first = gateway.client();
    first.send(&request);
    let running = || (a.stats().running, b.stats().running);
    wait_until("the first is there", || running().0 + running().1 == 1);
    let home = if running().0 == 1 { &a } else { &b };
    let mut second = gateway.client();
    second.send(&request);
    wait_until("the second is there", || running().0 + running().1 == 2);
    [&a, &b].iter().for_each(|engine| engine.set_faults(Faults::default()));
    let (first, second) = (first.reply(), super::pool::Told::new(second.reply()));
    assert_eq!((first.status, second.reply.status), (200, 200));
    assert_eq!(second.word("tier"), "tier15", "{}", second.reply.head);
    let expected = if second.went_to(home) { "exact_promised" } else { "exact_relief" };
    assert_eq!(second.word("reason"), expected);
}

/// The modes of balancing are read from the environment; `off` looks at overlap alone.
#[test]
fn unknown_settings_are_told_and_the_default_stands() {
    let a = engine(Kind::Vllm);
    let rule = exact_rule("pool", Kind::Vllm, &[&a], json!({}));
    let variables = [SEED, NO_SEEDING, ("LOXILB_KV_LB_MODE", "harder"), ("LLB_KV_MIN_MATCH_TOKENS", "99999")];
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &variables);
    let log = gateway.log();
    assert!(log.contains("LOXILB_KV_LB_MODE") && log.contains("LLB_KV_MIN_MATCH_TOKENS"), "{log}");
    warm(&gateway, "pool", &a, &tokens(1, 64));
    counts_in_step(&gateway, "pool", &a);
    complete_with(gateway.vip, &tokens(1, 65), &[], json!({})).assert_exact(&a, 4);
}
