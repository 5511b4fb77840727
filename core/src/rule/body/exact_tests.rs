//! Bodies that ask for exact routing: what is refused in which words, what is taken, and what depends on the
//! environment.

use super::*;
use crate::SECOND;
use crate::block::BlockSize;
use crate::engine::{Algo, Engine, Version};
use crate::profile::binding::ApiMode;
use crate::rule::{ExplainHeader, KvExact, KvPorts, RankMode};
use serde_json::json;

/// An exact rule with more members.
fn with(members: Value) -> Value {
    let mut body = json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 8080, "kvExactMode": 3},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9001, "weight": 1}]
    });
    for (name, value) in members.as_object().unwrap() {
        body["serviceArguments"][name] = value.clone();
    }
    body
}

/// The same with a prefill and a decode endpoint.
fn pair(members: Value) -> Value {
    let mut body = with(members);
    body["endpoints"] = json!([
        {"endpointIP": "10.0.0.1", "targetPort": 1, "ep_role": 1},
        {"endpointIP": "10.0.0.2", "targetPort": 1, "ep_role": 2},
    ]);
    body
}

fn seeded(seed: &str) -> Environment {
    Environment { none_hash_seed: Some(seed.into()), ..Environment::default() }
}

fn take(members: Value) -> Rule {
    parse(&with(members), &seeded("0"), || "id".into()).unwrap_or_else(|fault| panic!("{fault}"))
}

fn exact(members: Value) -> KvExact {
    take(members).exact.expect("exact routing")
}

fn refuse(body: &Value, environment: &Environment) -> BodyFault {
    match parse(body, environment, || "id".into()) {
        Ok(_) => panic!("accepted {body}"),
        Err(fault) => fault,
    }
}

/// Rule members, member blamed, status, words that the sentence must hold.
#[test]
fn every_wrong_shape_is_refused_with_the_known_phrase() {
    let vllm = json!({});
    let sglang = json!({"kvEngineType": "sglang"});
    let trtllm = json!({"kvEngineType": "trtllm"});
    let llamacpp = json!({"kvEngineType": "llamacpp", "kvExactMode": 0});
    let silent = "publishes no cache events";
    let cases = [
        (&vllm, json!({"kvExactMode": 4}), "kvExactMode", 422, "out of range"),
        (&vllm, json!({"mode": 0}), "kvExactMode", 400, "kv-exact single-role mode requires mode=fullproxy"),
        (
            &vllm,
            json!({"kvExactMode": 1}),
            "kvExactMode",
            400,
            "kv-exact zmq mode requires pd_disagg_mode=true",
        ),
        (&vllm, json!({"kvExactMode": 2}), "kvExactMode", 400, "2 is reserved"),
        (&sglang, json!({"kvExactMode": 2}), "kvExactMode", 400, "2 is reserved"),
        (&trtllm, json!({"kvExactMode": 2}), "kvExactMode", 400, "supports kvExactMode 1 or 3"),
        (&vllm, json!({"kvEngineType": "ollama"}), "kvEngineType", 422, "kv-engine-type must be one of"),
        (&vllm, json!({"kvEngineType": "VLLM"}), "kvEngineType", 422, "kv-engine-type must be one of"),
        (&vllm, json!({"kvDpRankCount": 9}), "kvDpRankCount", 422, "kv-dp-rank-count must be within 1..8"),
        (&vllm, json!({"kvDpRankCount": 0}), "kvDpRankCount", 422, "kv-dp-rank-count must be within 1..8"),
        (&vllm, json!({"kvZmqPort": 65535, "kvDpRankCount": 2}), "kvZmqPort", 400, "above 65535"),
        (&vllm, json!({"kvReplayPort": 65534, "kvDpRankCount": 3}), "kvReplayPort", 400, "above 65535"),
        (&vllm, json!({"kvReplayPort": 5557}), "kvReplayPort", 400, "where another publishes"),
        (&vllm, json!({"kvReplayPort": 5558, "kvDpRankCount": 2}), "kvReplayPort", 400, "another publishes"),
        (&vllm, json!({"kvReplayPort": 5556, "kvDpRankCount": 2}), "kvReplayPort", 400, "another publishes"),
        (&vllm, json!({"kvHashAlgo": "md5"}), "kvHashAlgo", 422, "kv-hash-algo must be one of"),
        (
            &vllm,
            json!({"kvHashAlgo": "sha256_sglang"}),
            "kvHashAlgo",
            400,
            "incompatible with kv-engine-type",
        ),
        (&vllm, json!({"kvHashAlgo": "blockhash_trtllm"}), "kvHashAlgo", 400, "omit kvHashAlgo"),
        (
            &sglang,
            json!({"kvHashAlgo": "sha256_cbor"}),
            "kvHashAlgo",
            400,
            "incompatible with kv-engine-type",
        ),
        (&sglang, json!({"kvHashAlgo": "xxhash"}), "kvHashAlgo", 400, "incompatible with kv-engine-type"),
        (&trtllm, json!({"kvHashAlgo": "sha256"}), "kvHashAlgo", 400, "incompatible with kv-engine-type"),
        (&trtllm, json!({"kvHashAlgo": "sha256_sglang"}), "kvHashAlgo", 400, "incompatible"),
        (
            &vllm,
            json!({"kvHashAlgo": "sha256", "kvEngineVersion": "0.17.0"}),
            "kvHashAlgo",
            400,
            "vllm has no block hash sha256",
        ),
        (&vllm, json!({"pdBootstrapPort": 8998}), "pdBootstrapPort", 400, "pd-bootstrap-port requires"),
        (&sglang, json!({"pdBootstrapPort": 8998}), "pdBootstrapPort", 400, "pd-bootstrap-port requires"),
        (&trtllm, json!({"kvZmqPort": 5999}), "kvZmqPort", 400, "kvZmqPort is meaningless"),
        (&trtllm, json!({"kvDpRankCount": 2}), "kvDpRankCount", 400, "kvDpRankCount is meaningless"),
        (&trtllm, json!({"kvReplayPort": 5558}), "kvReplayPort", 400, "kvReplayPort is meaningless"),
        (&trtllm, json!({"kvZmqBind": true}), "kvZmqBind", 400, "kvZmqBind is meaningless"),
        (&trtllm, json!({"kvBlockSize": 16}), "kvBlockSize", 400, "the block size 16 is not 32"),
        (&sglang, json!({"kvBlockSize": 129}), "kvBlockSize", 400, "not within 1 to 128"),
        (&vllm, json!({"kvBlockSize": 0}), "kvBlockSize", 422, "out of range"),
        (&vllm, json!({"kvBlockSize": 4097}), "kvBlockSize", 422, "out of range"),
        (&vllm, json!({"kvEngineVersion": "latest"}), "kvEngineVersion", 422, "write it as the engine does"),
        (&vllm, json!({"kvExactApiMode": "responses"}), "kvExactApiMode", 422, "not one of its words"),
        (
            &vllm,
            json!({"kvExactMode": 0, "kvExactApiMode": "completions"}),
            "kvExactApiMode",
            400,
            "requires kvExactMode 1 or 3",
        ),
        (
            &vllm,
            json!({"kvExactMode": 0, "kvModelProfile": "qwen"}),
            "kvModelProfile",
            400,
            "requires kvExactMode 1 or 3",
        ),
        (&llamacpp, json!({"kvExactMode": 1}), "kvExactMode", 400, silent),
        (&llamacpp, json!({"kvExactMode": 2}), "kvExactMode", 400, silent),
        (&llamacpp, json!({"kvExactMode": 3}), "kvExactMode", 400, silent),
        (&llamacpp, json!({"kvHashAlgo": "sha256_cbor"}), "kvHashAlgo", 400, silent),
        (&llamacpp, json!({"kvHashAlgo": "tokens"}), "kvHashAlgo", 400, silent),
        (&llamacpp, json!({"kvBlockSize": 32}), "kvBlockSize", 400, silent),
        (&llamacpp, json!({"kvZmqPort": 5558}), "kvZmqPort", 400, "meaningless"),
        (&llamacpp, json!({"kvReplayPort": 5558}), "kvReplayPort", 400, "meaningless"),
        (&llamacpp, json!({"kvZmqBind": true}), "kvZmqBind", 400, "meaningless"),
        (&llamacpp, json!({"kvDpRankCount": 2}), "kvDpRankCount", 400, "meaningless"),
        (&llamacpp, json!({"kvModelProfile": "qwen"}), "kvModelProfile", 400, "requires kvExactMode"),
    ];
    for (engine, members, member, status, words) in cases {
        let mut body = with(engine.clone());
        for (name, value) in members.as_object().unwrap() {
            body["serviceArguments"][name] = value.clone();
        }
        let fault = refuse(&body, &seeded("0"));
        assert_eq!((fault.member, fault.status), (format!("serviceArguments.{member}"), status), "{body}");
        assert!(fault.message.contains(words), "{}", fault.message);
    }
}

#[test]
fn prefill_and_decode_have_their_own_mode() {
    let told = |members: Value| refuse(&pair(members), &seeded("0"));
    let single = told(json!({"pd_disagg_mode": true}));
    assert!(single.message.contains("kv-exact single-role mode is incompatible with pd-disagg"), "{single}");
    let coupled = pair(json!({"pd_disagg_mode": true, "kvExactMode": 1}));
    let rule = parse(&coupled, &seeded("0"), || "id".into()).unwrap();
    assert!(rule.exact.is_some() && rule.disaggregation.is_some());
    let shown = readback(&rule, &coupled);
    assert_eq!(shown["serviceArguments"]["kvExactMode"], 1);
    assert_eq!(parse(&shown, &seeded("0"), String::new).unwrap(), rule);
    let silent = told(json!({"pd_disagg_mode": true, "kvExactMode": 0, "kvEngineType": "llamacpp"}));
    assert!(silent.message.contains("publishes no cache events"), "{silent}");
}

#[test]
fn left_out_members_are_what_the_engine_runs_with() {
    let terms = |members| {
        let exact = exact(members);
        let contract = exact.contract;
        (contract.engine(), contract.algo(), contract.block_size().tokens(), exact.ports, exact.ranks)
    };
    let ports = KvPorts { publish: 5557, replay: 0, bind: false };
    assert_eq!(terms(json!({})), (Engine::Vllm, Algo::Sha256Cbor, 16, ports, 1));
    assert_eq!(terms(json!({"kvEngineType": ""})), terms(json!({"kvEngineType": "vllm"})));
    assert_eq!(terms(json!({"kvZmqPort": 0, "kvHashAlgo": ""})), terms(json!({})));
    assert_eq!(terms(json!({"kvEngineType": "sglang"})), (Engine::Sglang, Algo::Sha256Sglang, 16, ports, 1));
    assert_eq!(
        terms(json!({"kvEngineType": "trtllm"})),
        (Engine::Trtllm, Algo::BlockhashTrtllm, 32, ports, 1)
    );
    let rule = take(json!({}));
    assert_eq!((rule.engine, rule.explain), (Engine::Vllm, ExplainHeader::Off));
    let exact = rule.exact.unwrap();
    assert_eq!((exact.rank_mode, exact.warmup, exact.version), (RankMode::Pin, 30 * SECOND, None));
}

#[test]
fn every_member_reaches_the_terms() {
    let rule = take(json!({
        "kvEngineType": "sglang", "kvHashAlgo": "tokens", "kvBlockSize": 64, "kvZmqPort": 65528,
        "kvReplayPort": 6000, "kvZmqBind": true, "kvDpRankCount": 8, "kvRankMode": "union",
        "kvWarmupSec": 0, "kvEngineVersion": "0.5.23", "kvExactApiMode": "completions",
        "kvModelProfile": "qwen", "explain_header": "full",
    }));
    let exact = rule.exact.unwrap();
    assert_eq!(
        (exact.contract.algo(), exact.contract.block_size()),
        (Algo::Tokens, BlockSize::new(64).unwrap())
    );
    assert_eq!(exact.ports, KvPorts { publish: 65528, replay: 6000, bind: true });
    assert_eq!((exact.ranks, exact.rank_mode, exact.warmup), (8, RankMode::Union, 0));
    assert_eq!(exact.version, Some(Version::new(0, 5, 23)));
    assert_eq!((exact.profile.id.as_str(), exact.profile.declared), ("qwen", ApiMode::Completions));
    assert_eq!((rule.engine, rule.explain), (Engine::Sglang, ExplainHeader::Full));
    assert_eq!(take(json!({"explain_header": "id"})).explain, ExplainHeader::Id);
    for algo in Engine::ALL
        .iter()
        .copied()
        .flat_map(|engine| engine.algorithms(None).iter().map(move |a| (engine, a)))
    {
        let (engine, algo) = algo;
        let taken = exact_of(engine, algo.name());
        assert_eq!((taken.contract.engine(), taken.contract.algo()), (engine, *algo));
    }
}

fn exact_of(engine: Engine, algo: &str) -> KvExact {
    exact(json!({"kvEngineType": engine.name(), "kvHashAlgo": algo}))
}

#[test]
fn a_plain_rule_may_say_its_engine_and_has_no_terms() {
    for engine in Engine::ALL.iter().copied() {
        let rule = take(json!({"kvExactMode": 0, "kvEngineType": engine.name()}));
        assert_eq!((rule.engine, rule.exact), (engine, None));
    }
    let own = json!({"kvExactMode": 0, "kvEngineType": "llamacpp", "kvBlockSize": 16, "kvZmqPort": 5557});
    assert_eq!(take(own).exact, None, "defaults that are said are defaults");
}

/// Engine, hash, version, seed, long seeds taken; the code of the refusal, empty where the rule is taken.
#[test]
fn the_seed_is_asked_for_where_the_root_depends_on_it() {
    let (unset, long) = ("KV_EXACT_SEED_UNSET", "KV_EXACT_SEED_TOO_LONG");
    let (fits, over) = ("0".repeat(23), "0".repeat(24));
    let cases = [
        ("vllm", "", "", None, false, unset),
        ("vllm", "", "", Some(""), false, unset),
        ("vllm", "", "", Some("0"), false, ""),
        ("vllm", "", "", Some(fits.as_str()), false, ""),
        ("vllm", "", "", Some(over.as_str()), false, long),
        ("vllm", "", "", Some(over.as_str()), true, ""),
        ("vllm", "sha256_cbor", "0.28.0", None, false, unset),
        ("vllm", "sha256_cbor", "0.29.0", None, false, ""),
        ("vllm", "sha256", "0.28.0", None, false, unset),
        ("vllm", "sha256", "0.33.0", None, false, ""),
        ("vllm", "sha256", "0.33.0", Some(over.as_str()), false, long),
        ("vllm", "xxhash", "0.33.0", None, false, unset),
        ("vllm", "xxhash_cbor", "0.33.0", None, false, unset),
        ("vllm", "xxhash_cbor", "0.33.0", Some("0"), false, ""),
        ("vllm", "tokens", "", None, false, ""),
        ("vllm", "tokens", "0.23.0", Some(over.as_str()), false, ""),
        ("sglang", "", "", None, false, ""),
        ("sglang", "tokens", "", None, false, ""),
        ("trtllm", "", "", None, false, ""),
        ("trtllm", "", "", Some(over.as_str()), false, ""),
    ];
    for (engine, algo, version, seed, long_seed, code) in cases {
        let body = with(json!({"kvEngineType": engine, "kvHashAlgo": algo, "kvEngineVersion": version}));
        let environment =
            Environment { none_hash_seed: seed.map(str::to_string), long_seed, ..Environment::default() };
        let case = format!("{engine} {algo} {version} {seed:?} {long_seed}");
        match parse(&body, &environment, || "id".into()) {
            Ok(rule) => assert!(code.is_empty() && rule.exact.is_some(), "{case}"),
            Err(fault) => {
                assert_eq!((fault.code, fault.status), (code, 412), "{case}: {fault}");
                assert_eq!(fault.member, "serviceArguments.kvExactMode");
                assert!(fault.message.contains("LLB_KV_"), "the cure: {fault}");
            }
        }
    }
    let plain = with(json!({"kvExactMode": 0}));
    assert!(
        parse(&plain, &Environment::default(), String::new).is_ok(),
        "who asks for nothing needs nothing"
    );
}

#[test]
fn a_stored_rule_outlives_the_seed_without_its_exact_routing() {
    let body = with(json!({"model_name": "m", "kvHashAlgo": "xxhash_cbor"}));
    let before = parse(&body, &seeded("0"), || "id".into()).unwrap();
    let restored = restore(&body, &Environment::default(), || "id".into()).unwrap();
    assert_eq!(restored.rule, Rule { exact: None, ..before.clone() });
    assert_eq!(restored.without_exact.unwrap().code, "KV_EXACT_SEED_UNSET");
    let shown = readback(&restored.rule, &body);
    assert_eq!(shown["serviceArguments"]["kvExactMode"], 3, "the wish is kept");
    assert_eq!(parse(&shown, &seeded("0"), || "id".into()), Ok(before.clone()));
    let whole = restore(&body, &seeded("0"), || "id".into()).unwrap();
    assert_eq!(whole, Restored { rule: before, without_exact: None });
    let wrong = with(json!({"kvEngineType": "trtllm", "kvBlockSize": 16}));
    assert_eq!(restore(&wrong, &seeded("0"), String::new).unwrap_err().code, "KV_EXACT_BLOCK_SIZE");
}

#[test]
fn another_seed_or_secret_names_other_blocks() {
    let contract = |members, environment: &Environment| {
        parse(&with(members), environment, || "id".into()).unwrap().exact.unwrap().contract
    };
    assert_ne!(contract(json!({}), &seeded("0")), contract(json!({}), &seeded("1")));
    let tokens = || json!({"kvHashAlgo": "tokens"});
    let secret = |secret| Environment { secret, ..Environment::default() };
    assert_ne!(contract(tokens(), &secret(1)), contract(tokens(), &secret(2)));
    assert_eq!(contract(tokens(), &secret(1)), contract(tokens(), &secret(1)));
}

#[test]
fn the_replay_port_is_the_rules_own_else_the_environments_else_the_engines() {
    let replay = |members, replay_offset| {
        let environment = Environment { replay_offset, ..seeded("0") };
        parse(&with(members), &environment, || "id".into()).unwrap().exact.unwrap().ports.replay
    };
    assert_eq!(replay(json!({}), 0), 0);
    assert_eq!(replay(json!({}), 1000), 6557);
    assert_eq!(replay(json!({"kvReplayPort": 5558}), 1000), 5558);
    assert_eq!(replay(json!({}), 1), 5558);
    assert_eq!(replay(json!({"kvEngineType": "trtllm"}), 1000), 0, "it has no event port");
    assert_eq!(replay(json!({"kvDpRankCount": 2}), 1), 0, "rank 1 publishes there");
    assert_eq!(replay(json!({"kvZmqPort": 64535, "kvDpRankCount": 1}), 1000), 65535);
    assert_eq!(replay(json!({"kvZmqPort": 64535, "kvDpRankCount": 2}), 1000), 0, "there is no such port");
}

#[test]
fn a_readback_shows_the_terms_in_force_and_may_be_posted_again() {
    for (members, expected) in [
        (json!({}), ("vllm", "sha256_cbor", 16, 5557, 1, 30)),
        (json!({"kvEngineType": "sglang", "kvDpRankCount": 3}), ("sglang", "sha256_sglang", 16, 5557, 3, 30)),
        (json!({"kvEngineType": "trtllm", "kvWarmupSec": 5}), ("trtllm", "blockhash_trtllm", 32, 5557, 1, 5)),
        (
            json!({"kvHashAlgo": "tokens", "kvBlockSize": 48, "kvZmqPort": 7000, "kvReplayPort": 7100}),
            ("vllm", "tokens", 48, 7000, 1, 30),
        ),
    ] {
        let body = with(members);
        let rule = parse(&body, &seeded("0"), || "id".into()).unwrap();
        let shown = readback(&rule, &body);
        let service = &shown["serviceArguments"];
        let (engine, algo, size, port, ranks, warmup) = expected;
        for (name, value) in [
            ("kvExactMode", json!(3)),
            ("kvEngineType", json!(engine)),
            ("kvHashAlgo", json!(algo)),
            ("kvBlockSize", json!(size)),
            ("kvZmqPort", json!(port)),
            ("kvDpRankCount", json!(ranks)),
            ("kvWarmupSec", json!(warmup)),
        ] {
            assert_eq!(service[name], value, "{name} of {shown}");
        }
        assert_eq!(parse(&shown, &seeded("0"), String::new), Ok(rule.clone()));
        assert_eq!(readback(&rule, &shown), shown);
    }
}
