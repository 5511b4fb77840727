//! Names of blocks: each hash of each release as the engine makes it, and what is left out because it names them
//! otherwise. Owns parity and fences.

use super::pool::{
    NO_SEEDING, SEED, all_connected, complete, complete_with, config, counts_in_step, engine, engine_with,
    exact_rule, exact_rule_at, fixed_port, gateway, gateway_with, in_step, known_of, metric, tokens, vip_of,
    vllm_version, wait_known, warm,
};
use crate::harness::{Driver, free_address, wait_until};
use serde_json::{Value, json};
use warmpath_perf::engine::Kind::{self, Sglang, Vllm};
use warmpath_perf::engine::kinds::HashAlgo;
use warmpath_perf::engine::{Config, Handle, start};

/// A vLLM engine of its own model.
fn own_model(model: &str, version: &str, algo: HashAlgo, bytes: bool) -> Handle {
    engine_with(Vllm, |c| {
        c.models = vec![model.into()];
        c.version = vllm_version(version);
        c.hashing.algo = algo;
        c.hashing.bytes = bytes;
    })
}

/// Releases before 0.31 publish arrays, later ones maps; each with numbers or whole digests as hashes.
#[test]
fn each_hash_of_each_release_is_the_engines_own() {
    let cases = [
        ("sha256_cbor", HashAlgo::Sha256Cbor, "0.23.0", false),
        ("sha256_cbor", HashAlgo::Sha256Cbor, "0.33.0", true),
        ("xxhash_cbor", HashAlgo::XxhashCbor, "0.28.0", true),
        ("xxhash_cbor", HashAlgo::XxhashCbor, "0.31.0", false),
        ("sha256", HashAlgo::Sha256, "0.33.0", false),
        ("sha256", HashAlgo::Sha256, "0.23.0", true),
        ("xxhash", HashAlgo::Xxhash, "0.32.0", true),
        ("xxhash", HashAlgo::Xxhash, "0.30.0", false),
    ];
    let vip = free_address();
    let models: Vec<String> = (0..cases.len()).map(|i| format!("m{i}")).collect();
    let engines: Vec<Handle> =
        cases.iter().zip(&models).map(|((_, algo, v, b), model)| own_model(model, v, *algo, *b)).collect();
    let rules: Vec<Value> = cases
        .iter()
        .zip(models.iter().zip(&engines))
        .enumerate()
        .map(|(at, ((word, _, version, _), (model, engine)))| {
            // Every second rule leaves it to the engine to tell its version, on which names of salts depend.
            let version = if at % 2 == 0 { *version } else { "" };
            let more = json!({"model_name": model, "kvHashAlgo": word, "kvEngineVersion": version});
            exact_rule_at(vip, model, Vllm, &[engine], more)
        })
        .collect();
    let gateway = gateway(Driver::Epoll, &rules);
    let prompt = tokens(1, 70);
    for (model, engine) in models.iter().zip(&engines) {
        let ask = |length: usize, salt: Value| {
            let more = json!({"model": model, "max_tokens": 12, "cache_salt": salt});
            complete_with(gateway.vip, &prompt[..length], &[], more)
        };
        assert_eq!(ask(70, Value::Null).reply.status, 200);
        in_step(&gateway, model, engine);
        assert_eq!(known_of(&gateway, model, engine)["fence"], Value::Null, "{model}");
        let again = ask(66, Value::Null);
        again.assert_exact(engine, 4);
        again.assert_as_predicted();
        assert_eq!(again.cached(), 64, "{model}");
        ask(66, "tenant".into()).assert_missed("no_worker");
        in_step(&gateway, model, engine);
        let salted = ask(70, "tenant".into());
        salted.assert_exact(engine, 4);
        salted.assert_as_predicted();
    }
}

/// Names of the gateway's own need neither seed nor a known hash, whatever the releases of one pool.
#[test]
fn names_by_tokens_take_any_engine_of_a_pool() {
    let unseeded = |version: &str| {
        engine_with(Vllm, |c| {
            c.version = vllm_version(version);
            c.hashing.algo = HashAlgo::Xxhash;
            c.hashing.seed = None;
        })
    };
    let (a, b) = (unseeded("0.23.0"), unseeded("0.33.0"));
    let c = engine_with(Sglang, |c| c.models = vec!["other".into()]);
    let vip = free_address();
    let tokens_of = |model: &str| json!({"kvHashAlgo": "tokens", "model_name": model});
    let pool = exact_rule_at(vip, "pool", Vllm, &[&a, &b], tokens_of("sim"));
    let other = exact_rule_at(vip, "other", Sglang, &[&c], tokens_of("other"));
    let gateway = gateway_with(Driver::Epoll, &[pool, other], &["--shards", "1"], &[super::pool::NO_SEEDING]);
    let prompt = tokens(1, 160);
    complete(a.addr, &prompt[..64]);
    complete(b.addr, &prompt[..96]);
    complete_with(c.addr, &prompt[..128], &[], json!({"model": "other"}));
    for (rule, engine) in [("pool", &a), ("pool", &b), ("other", &c)] {
        counts_in_step(&gateway, rule, engine);
        assert_eq!(known_of(&gateway, rule, engine)["hash_algo"], "tokens");
    }
    let told = complete(gateway.vip, &prompt[..140]);
    told.assert_exact(&b, 6);
    told.assert_as_predicted();
    let told = complete_with(gateway.vip, &prompt[..140], &[], json!({"model": "other"}));
    told.assert_exact(&c, 8);
    told.assert_as_predicted();
    complete(a.addr, &prompt);
    counts_in_step(&gateway, "pool", &a);
    complete(gateway.vip, &prompt).assert_exact(&a, 10);
}

/// Array and map schemas side by side: in a rule each both serve; mixed in one, the release that names blocks
/// otherwise than the rule's is left out, and the other serves.
#[test]
fn mixed_releases_are_told_apart() {
    let (old, new) = (
        own_model("sim", "0.23.0", HashAlgo::Sha256Cbor, false),
        own_model("sim", "0.32.0", HashAlgo::Sha256Cbor, true),
    );
    let rule = |name: &str, engines: &[&Handle], more| exact_rule(name, Vllm, engines, more);
    let mixed = rule("mixed", &[&old, &new], json!({"kvEngineVersion": "0.23.0"}));
    let newer = rule("newer", &[&old, &new], json!({"kvEngineVersion": "0.32.0"}));
    let arrays = rule("arrays", &[&old], json!({"kvEngineVersion": "0.23.0"}));
    let maps = rule("maps", &[&new], json!({"kvEngineVersion": "0.31.0"}));
    let first = rule("first", &[&old, &new], json!({}));
    let [a, m, x, y] = [&arrays, &maps, &mixed, &newer].map(vip_of);
    let gateway = gateway(Driver::Epoll, &[mixed, newer, arrays, maps, first]);
    let prompt = tokens(1, 90);
    complete(old.addr, &prompt[..64]);
    complete(new.addr, &prompt[..80]);
    in_step(&gateway, "arrays", &old);
    in_step(&gateway, "maps", &new);
    complete(a, &prompt[..70]).assert_exact(&old, 4);
    complete(m, &prompt[..70]).assert_exact(&new, 4);
    for (rule, fenced, serving, vip) in [("mixed", &new, &old, x), ("newer", &old, &new, y)] {
        wait_known(&gateway, rule, fenced, "the other release is fenced", |row| row["fence"] == "version");
        let findings = known_of(&gateway, rule, fenced)["findings"].to_string();
        assert!(findings.contains("names blocks otherwise than the rule's"), "{findings}");
        wait_known(&gateway, rule, serving, "one serves", |row| row["fence"].is_null());
        in_step(&gateway, rule, serving);
        complete(vip, &prompt[..70]).assert_exact(serving, 4);
        let labels = [("fence", "version"), ("endpoint", &fenced.addr.to_string())];
        assert!(metric(&gateway, "warmpath_kv_fenced", &labels).is_some_and(|fenced| fenced >= 1.0));
    }
    // Where the rule says nothing, one of them is the measure.
    let fences = [&old, &new].map(|engine| known_of(&gateway, "first", engine)["fence"] == "version");
    assert_ne!(fences[0], fences[1], "one of the two is fenced: {fences:?}");
}

/// What an engine says of itself against what the rule says of it.
#[test]
fn an_engine_that_is_not_as_the_rule_says_is_fenced_with_the_cure() {
    let good = engine(Vllm);
    let wide = engine_with(Vllm, |c| c.block_size = 32);
    let pickled = engine_with(Vllm, |c| c.hashing.algo = HashAlgo::Sha256);
    let other = engine_with(Vllm, |c| c.models = vec!["other".into()]);
    let ranks = engine_with(Vllm, |c| c.ranks = 2);
    let mute = engine_with(Vllm, |c| (c.events.live, c.events.replay) = (None, None));
    let bad = [
        (&wide, "block_size", "kvBlockSize to 32"),
        (&pickled, "algorithm", "kvHashAlgo"),
        (&other, "model", "it serves other, not sim"),
        (&ranks, "ranks", "kvDpRankCount to 2"),
        (&mute, "no_events", "--kv-events-config"),
    ];
    let engines = [&good, &wide, &pickled, &other, &ranks, &mute];
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &engines, json!({"model_name": "sim"}))]);
    for (engine, fence, cure) in bad {
        wait_known(&gateway, "pool", engine, fence, |row| row["fence"] == fence);
        let findings = known_of(&gateway, "pool", engine)["findings"].to_string();
        assert!(findings.contains(cure), "{fence}: {findings}");
    }
    let prompt = tokens(1, 80);
    for engine in [&wide, &pickled, &ranks] {
        assert_eq!(complete(engine.addr, &prompt).reply.status, 200);
    }
    warm(&gateway, "pool", &good, &prompt[..48]);
    complete(gateway.vip, &prompt).assert_exact(&good, 3);
    assert_eq!(metric(&gateway, "warmpath_kv_fenced", &[]), Some(5.0));
}

/// An engine that comes back as the rule says is let in.
#[test]
fn a_fence_falls_when_the_engine_is_started_as_the_rule_says() {
    let fixed = Config { port: fixed_port(), ..config(Vllm) };
    let wrong = Config { block_size: 32, ..fixed.clone() };
    let wrong = start(wrong).unwrap();
    let gateway = gateway(Driver::Epoll, &[exact_rule("pool", Vllm, &[&wrong], json!({}))]);
    wait_known(&gateway, "pool", &wrong, "it is fenced", |row| row["fence"] == "block_size");
    complete(gateway.vip, &tokens(1, 64)).assert_missed("fenced");
    wait_known(&gateway, "pool", &wrong, "its events show it too", |row| {
        row["findings"].to_string().contains("2 blocks of 32 tokens were not counted")
    });
    wrong.stop();
    let right = start(fixed).unwrap();
    wait_known(&gateway, "pool", &right, "it is let in", |row| {
        row["fence"].is_null() && row["ranks"][0]["connected"] == true
    });
    assert_eq!(known_of(&gateway, "pool", &right)["findings"], json!([]));
    warm(&gateway, "pool", &right, &tokens(1, 64));
    complete(gateway.vip, &tokens(1, 65)).assert_exact(&right, 4);
}

/// Publishers that dial the gateway, as behind a firewall.
#[test]
fn engines_may_connect_to_the_gateway() {
    let (port, replay) = (free_address().port(), free_address().port());
    let a = engine_with(Vllm, |c| {
        // The gateway knows who connects by the address alone.
        c.host = "127.0.0.1".into();
        c.events.live = format!("tcp://127.0.0.1:{port}").parse().ok();
        c.events.replay = format!("tcp://*:{replay}").parse().ok();
    });
    let rule = exact_rule(
        "pool",
        Vllm,
        &[&a],
        json!({"kvZmqBind": true, "kvZmqPort": port, "kvReplayPort": replay}),
    );
    let gateway = gateway(Driver::Epoll, &[rule]);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    complete(gateway.vip, &tokens(1, 65)).assert_exact(&a, 4);
}

/// A seed that the rule needs and the gateway was not given.
#[test]
fn a_rule_whose_seed_is_unknown_is_refused() {
    let a = engine(Vllm);
    let plain = exact_rule("pool", Vllm, &[&a], json!({"kvHashAlgo": "tokens"}));
    let gateway = crate::harness::Gateway::start(Driver::Epoll, &[plain]);
    all_connected(&gateway);
    let seeded = exact_rule("seeded", Vllm, &[&a], json!({}));
    let reply = gateway.admin("POST", "/netlox/v1/config/loadbalancer", &seeded.to_string());
    assert_eq!(reply.status, 412);
    assert!(reply.json().to_string().contains("KV_EXACT_SEED_UNSET"), "{}", reply.json());
    let wrong = gateway_with(
        Driver::Epoll,
        &[exact_rule("wrong", Vllm, &[&a], json!({}))],
        &["--shards", "1"],
        &[(SEED.0, "1"), ("LOXILB_KV_ZERO_HIT_N", "3")],
    );
    let prompt = tokens(1, 64);
    complete(a.addr, &prompt);
    in_step(&wrong, "wrong", &a);
    // Each a little longer, so that none follows on what is on its way.
    for length in [17, 33, 49, 64] {
        complete(wrong.vip, &[&[length], &prompt[1..length as usize]].concat()).assert_missed("no_worker");
    }
}

/// The kinds of engines are as far apart as rules say.
#[test]
fn the_kind_of_a_rule_cannot_change() {
    let (a, s) = (engine(Vllm), engine(Kind::Sglang));
    let vip = free_address();
    let rule = exact_rule_at(vip, "pool", Vllm, &[&a], json!({}));
    let gateway = gateway(Driver::Epoll, std::slice::from_ref(&rule));
    warm(&gateway, "pool", &a, &tokens(1, 64));
    let changed = exact_rule_at(vip, "pool", Sglang, &[&s], json!({}));
    let reply = gateway.admin("POST", "/netlox/v1/config/loadbalancer", &changed.to_string());
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    assert!(reply.json().to_string().contains("kvEngineType"), "{}", reply.json());
    complete(vip, &tokens(1, 65)).assert_exact(&a, 4);
}

/// Another seed than the engine's: each lookup misses, in a cache that holds something.
#[test]
fn a_long_row_without_a_hit_is_told_in_the_log() {
    let a = engine(Vllm);
    let rule = exact_rule("pool", Vllm, &[&a], json!({}));
    let variables = [("LLB_KV_NONE_HASH_SEED", "7"), NO_SEEDING, ("LOXILB_KV_ZERO_HIT_N", "5")];
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &variables);
    warm(&gateway, "pool", &a, &tokens(1, 64));
    let alarms = || metric(&gateway, "loxilb_pd_kv_zero_hit_watchdog_total", &[]);
    // Another prompt each time: one that is on its way is no miss.
    (1..5).for_each(|seed| complete(gateway.vip, &tokens(seed, 64)).assert_missed("no_worker"));
    assert_eq!(alarms(), Some(0.0));
    complete(gateway.vip, &tokens(5, 64)).assert_missed("no_worker");
    assert_eq!(alarms(), Some(1.0));
    wait_until("the log says so", || gateway.log().contains("[KV_ZEROHIT] rule pool "));
}
