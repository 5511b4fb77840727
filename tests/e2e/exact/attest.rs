//! Rules with a model profile against simulated engines: what has to be proven before they route by blocks, and each
//! reason why they don't. Stands for scenarios of the existing gateway's CI:
//!
//! | there | here |
//! |---|---|
//! | kv-sglang-attest, the ladder climbed | `sglang_climbs_rank_by_rank` |
//! | kv-sglang-attest, geometry mismatch (page size, port, ranks) | `geometry_that_differs`, rows `sglang …` |
//! | kv-sglang-attest, revision and served model | `identity_that_differs`, rows `sglang …` |
//! | kv-model-compat-pd, pairs | `prefill_of_a_pair_is_proven` |
//! | kv-model-compat-pd, preflight | `a_rule_routes_by_blocks_from_ready_on_and_not_before` |
//! | kv-model-compat-pd, negative arm: one token flipped | `one_token_flipped_fails`, with and without an endpoint for tokens |
//! | kv-profile-admission, manifest and fixtures staged or not | `what_lacks_in_the_registry` |

use super::pool::{
    NO_SEEDING, SEED, Told, complete, engine_with, exact_rule, gateway_with, live_port, metric, tokens,
    vip_of, warm,
};
use crate::harness::{Client, Driver, Gateway, TEMPLATE, post, wait_until, write_byte_model};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use warmpath_perf::engine::Kind::{Sglang, Trtllm, Vllm};
use warmpath_perf::engine::faults::{Faults, Stall};
use warmpath_perf::engine::text::Reading;
use warmpath_perf::engine::transfer::{Pair, Role};
use warmpath_perf::engine::{Config, Handle, Kind, Tokenize};

/// Challenges wait less, so that what never comes is told soon.
const WAIT: (&str, &str) = ("LOXILB_KV_ATTEST_CHALLENGE_TIMEOUT_S", "5");

/// What an engine makes of the fixtures: bytes, and the marks of its template.
const PROMPT: &str = "Attest, please.";

fn engine(kind: Kind, change: impl FnOnce(&mut Config)) -> Handle {
    engine_with(kind, |config| {
        config.reading = Reading { bytes: true, ..Reading::default() };
        change(config);
    })
}

/// A folder of the operator's, with a profile `sim-profile` of the model `sim`.
struct Registry(PathBuf);

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Registry {
    fn new(kind: Kind) -> Registry {
        let registry = Registry(Gateway::folder());
        write_byte_model(&registry.0.join("tokenizers/sim"));
        let template = sha256(TEMPLATE.as_bytes());
        registry.write(&format!("kvprofiles/artifacts/sha256/{template}"), TEMPLATE.as_bytes());
        let profile = json!({
            "profileId": "sim-profile", "baseModel": "sim", "rendererEngine": "warmpath",
            "templateArtifact": format!("sha256/{template}"), "templateSha256": template,
        });
        registry.write("kvprofiles/sim-profile.yaml", profile.to_string().as_bytes());
        let other = json!({"profileId": "other", "baseModel": "other"});
        registry.write("kvprofiles/other.yaml", other.to_string().as_bytes());
        registry.manifest(kind, json!({}));
        registry.fixture(kind, "1", json!({"model": "sim", "prompt": PROMPT}), "completions", &bytes(PROMPT));
        let chat = [vec![2], bytes(PROMPT), vec![0, 3]].concat();
        let messages = json!([{"role": "user", "content": PROMPT}]);
        let request = json!({"model": "sim", "messages": messages, "add_generation_prompt": true});
        registry.fixture(kind, "2", request, "chat", &chat);
        registry
    }

    fn manifest(&self, kind: Kind, more: Value) {
        let mut manifest = json!({
            "profileId": "sim-profile", "imageDigest": format!("sha256:{}", "0".repeat(64)),
            "engineVersion": version(kind),
        });
        for (name, value) in more.as_object().unwrap() {
            manifest[name] = value.clone();
        }
        self.write("kvprofiles/manifests/sim-profile.yaml", manifest.to_string().as_bytes());
    }

    fn fixture(&self, kind: Kind, name: &str, request: Value, api: &str, ids: &[u32]) {
        let folder = Registry::probes(kind);
        let request = request.to_string();
        let expect = json!({
            "requestSha256": sha256(request.as_bytes()), "expectedTokenIds": ids, "api": api,
        });
        self.write(&format!("{folder}/{name}.request.json"), request.as_bytes());
        self.write(&format!("{folder}/{name}.expect.json"), expect.to_string().as_bytes());
    }

    fn probes(kind: Kind) -> String {
        let own = match kind {
            Vllm => "",
            kind => &format!("/{}", kind.name()),
        };
        format!("kvprofiles/probefixtures/sim-profile{own}")
    }

    /// As a whole, at once: the gateway may be looking.
    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = path.with_extension("draft");
        std::fs::write(&draft, bytes).unwrap();
        std::fs::rename(&draft, &path).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.0.join(path);
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }

    fn root(&self) -> &Path {
        &self.0
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| 16 + u32::from(byte)).collect()
}

fn version(kind: Kind) -> &'static str {
    match kind {
        Vllm => "0.32.0",
        Sglang => "0.5.23",
        _ => "1.3.0rc24",
    }
}

/// A gateway with one rule that names the profile.
struct Bound {
    gateway: Gateway,
    vip: SocketAddr,
    _registry: Registry,
}

fn bound(kind: Kind, engines: &[&Handle], members: Value, registry: Registry) -> Bound {
    bound_with(kind, engines, members, registry, &[])
}

fn bound_with(
    kind: Kind,
    engines: &[&Handle],
    members: Value,
    registry: Registry,
    more: &[(&str, &str)],
) -> Bound {
    bound_as(kind, engines, members, registry, more, |_| {})
}

fn bound_as(
    kind: Kind,
    engines: &[&Handle],
    mut members: Value,
    registry: Registry,
    more: &[(&str, &str)],
    change: impl FnOnce(&mut Value),
) -> Bound {
    (members["model_name"], members["kvModelProfile"]) = ("sim".into(), "sim-profile".into());
    let mut rule = exact_rule("pool", kind, engines, members);
    change(&mut rule);
    let vip = vip_of(&rule);
    let flags = ["--shards", "2", "--config-root", registry.root().to_str().unwrap()];
    let variables = [&[SEED, NO_SEEDING, WAIT], more].concat();
    let gateway = gateway_with(Driver::Epoll, &[rule], &flags, &variables);
    Bound { gateway, vip, _registry: registry }
}

impl Bound {
    /// What `kvexactstatus` says.
    fn status(&self) -> Value {
        let (ip, port) = (self.vip.ip(), self.vip.port());
        let path = format!(
            "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/tcp/kvexactstatus?model_name=sim"
        );
        let reply = self.gateway.admin("GET", &path, "");
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        reply.json()["kvExactStatusAttr"][0].clone()
    }

    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Seen(Value::Null);
        wait_until(what, || {
            seen.0 = self.status();
            done(&seen.0)
        });
        std::mem::take(&mut seen.0)
    }

    #[track_caller]
    fn ready(&self) -> Value {
        self.wait("it is ready", |status| status["enforcedState"] == "READY")
    }

    /// Waits until it says this reason, and sees that nothing is routed by blocks.
    #[track_caller]
    fn lacks(&self, reason: &str) -> Value {
        let status = self.wait(reason, |status| has(status, reason));
        assert_ne!(status["enforcedState"], "READY", "{status}");
        // Not for want of blocks: for this, or what else it says.
        wait_until("receipts say why", || {
            let told = self.ask("Is anything routed by blocks?");
            assert_eq!(told.word("tier"), "tier2");
            has(&self.status(), told.word("missed"))
        });
        status
    }

    fn ask(&self, prompt: &str) -> Told {
        let body = json!({"model": "sim", "prompt": prompt.repeat(4), "max_tokens": 1});
        Told::new(Client::connect(self.vip).ask(&post("/v1/completions", &[], body.to_string().as_bytes())))
    }
}

fn has(status: &Value, reason: &str) -> bool {
    status["reasonCodes"].as_array().unwrap().iter().any(|own| own == reason)
}

/// What was last seen, told when the test fails meanwhile.
struct Seen(Value);

impl Drop for Seen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last status: {}", self.0);
        }
    }
}

#[test]
fn a_rule_routes_by_blocks_from_ready_on_and_not_before() {
    let one = engine(Vllm, |_| {});
    let bound = bound(Vllm, &[&one], json!({}), Registry::new(Vllm));
    let status = bound.ready();
    assert_eq!(
        [&status["modelProfileId"], &status["apiMode"], &status["desiredState"], &status["bindingGen"]],
        [&json!("sim-profile"), &json!("both"), &json!("READY"), &json!(1)]
    );
    assert_eq!(status["reasonCodes"], json!([]));
    assert_eq!(
        (&status["enforcement"]["enforced"], &status["enforcement"]["goFenced"]),
        (&json!("eligible"), &json!(false))
    );
    assert!(status["enforcement"]["lastAckAt"].as_str().is_some_and(|at| at.ends_with('Z')));
    assert_eq!(status["endpoints"][0]["tokenParity"], "tokenize");
    assert_eq!(bound.ask("Now it is routed by blocks. ").word("tier"), "tier2", "nobody holds it yet");
    wait_until("its blocks are known", || bound.ask("Now it is routed by blocks. ").word("tier") == "tier15");
    assert!(bound.gateway.log().contains("[KV_ATTEST] rule pool (service 1), profile sim-profile: "));
    let state = |state| metric(&bound.gateway, "loxilb_ai_kv_attest_state", &[("state", state)]);
    assert_eq!((state("READY"), state("DEGRADED")), (Some(1.0), Some(0.0)));
    assert!(metric(&bound.gateway, "loxilb_ai_kv_attest_echo_total", &[("result", "named")]) >= Some(1.0));
    assert_eq!(metric(&bound.gateway, "loxilb_ai_kv_enforcement_fault", &[]), Some(0.0));
}

/// An engine's restart fences it before anything else; it is routed to again once it was proven anew.
#[test]
fn a_restart_is_proven_anew() {
    let engine = engine(Vllm, |_| {});
    let bound = bound(Vllm, &[&engine], json!({}), Registry::new(Vllm));
    bound.ready();
    let named = || metric(&bound.gateway, "loxilb_ai_kv_attest_echo_total", &[("result", "named")]).unwrap();
    let before = named();
    engine.restart(true);
    bound.wait("it is proven anew", |status| named() > before && status["enforcedState"] == "READY");
    wait_until("the log says it", || bound.gateway.log().contains("READY -> DEGRADED"));
}

#[test]
fn identity_that_differs() {
    let vllm = || engine(Vllm, |_| {});
    let manifest = |kind, more| {
        let registry = Registry::new(kind);
        registry.manifest(kind, more);
        registry
    };
    let rows: [(&str, Kind, Handle, Registry); 5] = [
        ("version", Vllm, vllm(), manifest(Vllm, json!({"engineVersion": "0.31.0"}))),
        ("model", Vllm, engine(Vllm, |c| c.models = vec!["other".into()]), Registry::new(Vllm)),
        (
            "sglang version",
            Sglang,
            engine(Sglang, |_| {}),
            manifest(Sglang, json!({"engineVersion": "0.5.19"})),
        ),
        (
            "sglang revision",
            Sglang,
            engine(Sglang, |c| c.pretence.revision = Some("abc".into())),
            manifest(Sglang, json!({"modelRevision": "def"})),
        ),
        (
            "trtllm that does not describe itself",
            Trtllm,
            engine(Trtllm, |c| c.pretence.hides_blocks = true),
            Registry::new(Trtllm),
        ),
    ];
    for (what, kind, engine, registry) in rows {
        println!("{what}");
        bound(kind, &[&engine], json!({}), registry).lacks("identity_mismatch");
    }
}

#[test]
fn geometry_that_differs() {
    let typed = || {
        let registry = Registry::new(Sglang);
        registry.manifest(Sglang, json!({"serveArgs": ["--dtype", "bfloat16"]}));
        registry
    };
    let rows: [(&str, Kind, Handle, Value, Registry); 7] = [
        ("block size", Vllm, engine(Vllm, |c| c.block_size = 32), json!({}), Registry::new(Vllm)),
        (
            "block hash",
            Vllm,
            engine(Vllm, |c| c.hashing.algo = warmpath_perf::engine::kinds::HashAlgo::Sha256),
            json!({}),
            Registry::new(Vllm),
        ),
        ("no events", Vllm, engine(Vllm, |c| c.events.live = None), json!({}), Registry::new(Vllm)),
        ("sglang page size", Sglang, engine(Sglang, |c| c.block_size = 64), json!({}), Registry::new(Sglang)),
        (
            "sglang port",
            Sglang,
            engine(Sglang, |_| {}),
            json!({"kvZmqPort": live_port() + 7}),
            Registry::new(Sglang),
        ),
        ("sglang ranks", Sglang, engine(Sglang, |c| c.ranks = 2), json!({}), Registry::new(Sglang)),
        (
            "sglang type",
            Sglang,
            engine(Sglang, |c| c.pretence.dtype = Some("float16".into())),
            json!({}),
            typed(),
        ),
    ];
    for (what, kind, engine, members, registry) in rows {
        println!("{what}");
        bound(kind, &[&engine], members, registry).lacks("engine_geometry_mismatch");
    }
}

#[test]
fn sglang_climbs_rank_by_rank() {
    let engine = engine(Sglang, |c| c.ranks = 2);
    let bound = bound(Sglang, &[&engine], json!({"kvDpRankCount": 2}), Registry::new(Sglang));
    let status = bound.ready();
    let ranks = status["endpoints"][0]["ranks"].as_array().unwrap().clone();
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|rank| rank["exact"] == true && rank["reason"].is_null()), "{status}");
}

/// Of pairs prefill is proven: vLLM's alone, SGLang's together with a decode engine that it meets.
#[test]
fn prefill_of_a_pair_is_proven() {
    for kind in [Vllm, Sglang] {
        let half = |role| engine(kind, |c| c.pair = Some(Pair::of(role)));
        let (prefill, decode) = (half(Role::Prefill), half(Role::Decode));
        let mut members = json!({"kvExactMode": 1, "pd_disagg_mode": true, "sel": 0});
        if kind == Sglang {
            members["pdBootstrapPort"] = prefill.door().unwrap().port().into();
        }
        let roles = |rule: &mut Value| {
            rule["endpoints"][0]["ep_role"] = 1.into();
            rule["endpoints"][1]["ep_role"] = 2.into();
        };
        let bound = bound_as(kind, &[&prefill, &decode], members, Registry::new(kind), &[], roles);
        let rows = bound.ready()["endpoints"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 1, "decode has nothing to prove: {rows:?}");
        assert_eq!(rows[0]["endpoint"], prefill.addr.to_string());
    }
}

/// The negative arm: by the endpoint for tokens, and where that is broken by the events of the challenge.
#[test]
fn one_token_flipped_fails() {
    let flipped = engine(Vllm, |c| c.pretence.tokenize = Tokenize::Flipped);
    let told = bound(Vllm, &[&flipped], json!({}), Registry::new(Vllm));
    assert!(metric_of(&told, "token_mismatch") >= Some(1.0));
    told.lacks("token_mismatch");
    // Blocks that it holds, and that the gateway knows of, route nothing.
    warm(&told.gateway, "pool", &flipped, &tokens(1, 64));
    complete(told.vip, &tokens(1, 64)).assert_missed("token_mismatch");
    for at in [0, 20] {
        let engine = engine(Vllm, |c| (c.pretence.tokenize, c.pretence.flips) = (Tokenize::Broken, Some(at)));
        bound(Vllm, &[&engine], json!({}), Registry::new(Vllm)).lacks("token_mismatch");
    }
}

fn metric_of(bound: &Bound, reason: &str) -> Option<f64> {
    bound.wait(reason, |status| has(status, reason));
    metric(&bound.gateway, "loxilb_ai_kv_attest_probe_fail_total", &[("reason", reason)])
}

#[test]
fn without_an_endpoint_for_tokens_events_show_them() {
    let broken = engine(Sglang, |c| c.pretence.tokenize = Tokenize::Broken);
    let bound_to = bound(Sglang, &[&broken], json!({}), Registry::new(Sglang));
    assert_eq!(bound_to.ready()["endpoints"][0]["tokenParity"], "challenge_events");
    let none = engine(Trtllm, |_| {});
    let bound_to = bound(Trtllm, &[&none], json!({}), Registry::new(Trtllm));
    assert_eq!(bound_to.ready()["endpoints"][0]["tokenParity"], "challenge_events");
}

#[test]
fn an_answer_of_another_form_is_no_proof() {
    let odd = engine(Vllm, |c| c.pretence.tokenize = Tokenize::Odd);
    bound(Vllm, &[&odd], json!({}), Registry::new(Vllm)).lacks("probe_schema_mismatch");
}

#[test]
fn blocks_under_other_names_and_blocks_that_never_come() {
    let seeded = engine(Vllm, |c| c.hashing.seed = Some("1".into()));
    bound(Vllm, &[&seeded], json!({}), Registry::new(Vllm)).lacks("challenge_failed");
    let silent = engine(Vllm, |c| c.faults = Faults { kv_lose_next: Some(u64::MAX), ..Faults::default() });
    bound(Vllm, &[&silent], json!({}), Registry::new(Vllm)).lacks("challenge_timeout");
}

#[test]
fn an_engine_that_is_gone_is_unreachable() {
    let engine = engine(Vllm, |_| {});
    let bound = bound(Vllm, &[&engine], json!({}), Registry::new(Vllm));
    bound.ready();
    engine.set_faults(Faults { refuse: true, ..Faults::default() });
    engine.close_links();
    let status = bound.wait("it is unreachable", |status| has(status, "endpoint_unreachable"));
    assert_eq!((&status["desiredState"], &status["enforcedState"]), (&json!("DEGRADED"), &json!("DEGRADED")));
    assert_eq!(status["enforcement"]["goFenced"], true);
    engine.set_faults(Faults::default());
    bound.ready();
}

/// A challenge that an engine has no time for is pending.
#[test]
fn a_busy_engine_is_pending() {
    let engine = engine(Vllm, |c| c.max_running = 1);
    engine.set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let body = json!({"model": "sim", "prompt": "first", "max_tokens": 1}).to_string();
    let mut client = Client::connect(engine.addr);
    client.send(&post("/v1/completions", &[], body.as_bytes()));
    wait_until("it is executed", || engine.stats().running > 0);
    let bound = bound(Vllm, &[&engine], json!({}), Registry::new(Vllm));
    bound.wait("it waits", |status| {
        has(status, "attestation_pending") && has(status, "hash_attestation_pending")
    });
    engine.set_faults(Faults::default());
    bound.ready();
}

/// What is wrong in the registry is told, and mended without a restart.
#[test]
fn what_lacks_in_the_registry() {
    let engine = engine(Vllm, |_| {});
    let bound = bound(Vllm, &[&engine], json!({}), Registry::new(Vllm));
    let registry = &bound._registry;
    let generation = bound.ready()["bindingGen"].clone();
    registry.remove("kvprofiles/manifests/sim-profile.yaml");
    let status = bound.wait("the manifest is missed", |status| has(status, "manifest_missing"));
    assert_eq!(status["enforcedState"], "DEGRADED", "{status}");
    registry.manifest(Vllm, json!({"tokenizerRevision": "r"}));
    assert_eq!(bound.ready()["bindingGen"], generation, "a manifest is no part of the binding");
    let probes = Registry::probes(Vllm);
    registry.write(&format!("{probes}/1.request.json"), br#"{"model": "sim", "prompt": "drifted"}"#);
    bound.wait("the fixture drifted", |status| has(status, "probe_fixture_drift"));
    registry.remove(&probes);
    bound.wait("fixtures are missed", |status| has(status, "probe_fixtures_missing"));
    registry.fixture(Vllm, "1", json!({"model": "sim", "prompt": PROMPT}), "completions", &[1, 2, 3]);
    bound.wait("the gateway itself reads it otherwise", |status| has(status, "token_mismatch"));
    registry.fixture(Vllm, "1", json!({"model": "sim", "prompt": PROMPT}), "completions", &bytes(PROMPT));
    bound.ready();
    registry.remove("kvprofiles/sim-profile.yaml");
    bound.wait("the profile is gone", |status| has(status, "profile_resolution_fault"));
    registry.remove("kvprofiles/other.yaml");
    bound.wait("there is none", |status| has(status, "profile_registry_unavailable"));
}

/// Another reader of TensorRT-LLM's events takes the proof away.
#[test]
fn a_second_reader_of_a_drained_stream() {
    let engine = engine(Trtllm, |_| {});
    let bound = bound(Trtllm, &[&engine], json!({}), Registry::new(Trtllm));
    bound.ready();
    engine.set_faults(Faults { kv_lose_next: Some(1), ..Faults::default() });
    wait_until("events are missed", || {
        bound.ask("Something that is stored and not told. ");
        bound.ask("And something that is. ");
        let status = bound.status();
        has(&status, "drain_sequence_gap") || has(&status, "drain_ownership_lost")
    });
}

#[test]
fn without_a_manifest_it_works_only_where_that_is_allowed() {
    let allowed =
        [("LOXILB_KV_ATTEST_REQUIRE_MANIFEST", "0"), ("LOXILB_KV_ATTEST_FUNCTIONAL_ONLY_OPTIN", "1")];
    let engine = engine(Vllm, |_| {});
    let registry = Registry::new(Vllm);
    registry.remove("kvprofiles/manifests/sim-profile.yaml");
    let bound = bound_with(Vllm, &[&engine], json!({}), registry, &allowed);
    bound.wait("it works", |status| status["enforcedState"] == "READY_FUNCTIONAL_ONLY");
}

/// A rule that names no profile is told to be unattested, and routed as ever.
#[test]
fn a_rule_without_a_profile_attests_nothing() {
    let engine = engine(Vllm, |_| {});
    let rule = exact_rule("pool", Vllm, &[&engine], json!({"model_name": "sim"}));
    let vip = vip_of(&rule);
    let gateway = gateway_with(Driver::Epoll, &[rule], &["--shards", "1"], &[SEED, NO_SEEDING]);
    let bound = Bound { gateway, vip, _registry: Registry::new(Vllm) };
    let status = bound.status();
    assert_eq!(status["enforcedState"], "LEGACY_ACTIVE_UNATTESTED");
    assert_eq!(status["reasonCodes"], json!(["no_model_profile_bound"]));
    assert!(status.get("enforcement").is_none(), "{status}");
    let path = "/netlox/v1/config/loadbalancer/externalipaddress/127.0.0.1/port/1/protocol/tcp/kvexactstatus";
    assert_eq!(bound.gateway.admin("GET", path, "").status, 404);
}
