//! Rules and model profiles, over the API: what is admitted, what is told of it, what outlives a restart. Each test
//! stands for parts of a scenario of the existing gateway's CI, `kv-profile-admission`:
//!
//! | there | here |
//! |---|---|
//! | A1–A10, the admission matrix | `the_admission_matrix`, `what_a_rule_was_bound_by_stays` |
//! | W, what an accepted rule says on the wire | `a_bound_rule_reads_back_as_it_was_posted` |
//! | R1–R8, restart, restore, migration | `numbers_of_bindings_outlive_everything_and_never_go_back`, `a_restored_rule_without_a_profile_waits_for_one`, `a_profile_that_changes_or_goes_is_bound_anew_or_fences` |
//! | T, the tokenizer of a profile | the row `KV_EXACT_TOKENIZER_UNLOADABLE` of `the_admission_matrix` |
//! | D, discovery | `profiles_are_discovered` |

use crate::fake::profiles::profile;
use crate::fake::{FakePlane, PATIENCE, Running, options, outside};
use crate::rules::{Bindings, Origin, RuleSet};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmpath_core::profile::binding::{Binding, Bound};
use warmpath_core::rule::Rule;

const LB: &str = "/netlox/v1/config/loadbalancer";
const PROFILES: &str = "/netlox/v1/config/ai/model-profiles";

fn plane() -> Arc<FakePlane> {
    let plane = FakePlane::new();
    plane.publish(&published());
    plane
}

fn published() -> Vec<Value> {
    vec![
        profile("both", "org/m", &json!({"aliasPolicy": "list", "allowedAliases": ["m-fast"]})),
        profile("completions", "org/c", &json!({"supportedApis": ["completions"]})),
        profile("bare", "org/b", &json!({"templateArtifact": null, "templateSha256": null})),
        profile("unvalidated", "org/u", &json!({"rendererEngine": null})),
        profile("oss", "org/oss", &json!({"modelType": "gpt_oss"})),
        profile("untokenized", "org/t", &json!({"tokenizerArtifact": null, "tokenizerSha256": null})),
        profile("torn", "org/torn", &json!({"aliasPolicy": "any"})),
    ]
}

/// An exact rule that names no profile, with these members in the place of its own.
fn rule(members: Value) -> Value {
    let mut rule = json!({
        "serviceArguments": {
            "externalIP": "127.0.0.1", "port": 9001, "protocol": "tcp", "mode": 4, "kvExactMode": 3,
            "kvHashAlgo": "tokens", "model_name": "org/m",
        },
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 8000, "weight": 1}],
    });
    for (name, value) in members.as_object().unwrap() {
        rule["serviceArguments"][name] = value.clone();
    }
    rule
}

fn bound(rule: &Rule) -> Option<Arc<Bound>> {
    match &rule.exact.as_ref()?.profile.binding {
        Binding::Bound(bound) => Some(bound.clone()),
        _ => None,
    }
}

fn wait(until: impl Fn() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < PATIENCE, "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl FakePlane {
    /// The only rule in force.
    fn rule(&self) -> Rule {
        let tables = self.tables.lock().unwrap();
        tables.last().unwrap().services().next().unwrap().rule.clone()
    }

    fn bound(&self) -> Arc<Bound> {
        bound(&self.rule()).expect("bound")
    }
}

#[test]
fn the_admission_matrix() {
    let gateway = Running::start(&plane());
    let asked = |members: Value| gateway.tcp("POST", LB, &rule(members).to_string());
    let not_published = "not a published model-prompt profile";
    let cases = [
        (json!({"kvModelProfile": "none"}), 400, "profile_not_published", not_published),
        (
            json!({"kvModelProfile": "torn", "model_name": "org/torn"}),
            400,
            "profile_not_published",
            "refused: ",
        ),
        (json!({"kvModelProfile": "both", "model_name": ""}), 400, "profile_without_model", "model_name"),
        (
            json!({"kvModelProfile": "both", "model_name": "m"}),
            400,
            "profile_of_another_model",
            "org/m, m-fast",
        ),
        (json!({"kvModelProfile": "completions"}), 400, "profile_of_another_model", "does not serve"),
        (
            json!({"kvModelProfile": "completions", "model_name": "org/c", "kvExactApiMode": "chat"}),
            400,
            "profile_api_unsupported",
            "no chat in supportedApis",
        ),
        (
            json!({"kvModelProfile": "completions", "model_name": "org/c", "kvExactApiMode": "both"}),
            400,
            "profile_api_unsupported",
            "no chat",
        ),
        (
            json!({"kvModelProfile": "bare", "model_name": "org/b"}),
            400,
            "profile_renderer_missing",
            "pin templateArtifact",
        ),
        (
            json!({"kvModelProfile": "unvalidated", "model_name": "org/u"}),
            400,
            "profile_renderer_missing",
            "name rendererEngine",
        ),
        (
            json!({"kvModelProfile": "oss", "model_name": "org/oss", "kvExactApiMode": "chat"}),
            400,
            "profile_renderer_missing",
            "vllm encodes chats of modelType gpt_oss",
        ),
        (
            json!({"kvModelProfile": "untokenized", "model_name": "org/t"}),
            412,
            "KV_EXACT_TOKENIZER_UNLOADABLE",
            "no tokenizer of \"org/t\"",
        ),
        (
            json!({"kvModelProfile": "both", "kvExactMode": 0}),
            400,
            "conflicting_members",
            "kvExactMode 1 or 3",
        ),
        (
            json!({"kvExactApiMode": "chat", "kvExactMode": 0}),
            400,
            "conflicting_members",
            "kvExactMode 1 or 3",
        ),
        (
            json!({"kvModelProfile": "both", "kvEngineType": "llamacpp", "kvExactMode": 0, "kvHashAlgo": ""}),
            400,
            "conflicting_members",
            "kvModelProfile",
        ),
        (
            json!({"kvModelProfile": "both", "kvEngineType": "trtllm", "kvHashAlgo": "", "kvZmqPort": 5999}),
            400,
            "conflicting_members",
            "kvZmqPort is meaningless",
        ),
        (
            json!({"kvModelProfile": "both", "kvHashAlgo": "sha256_sglang"}),
            400,
            "conflicting_members",
            "incompatible with kv-engine-type",
        ),
    ];
    for (members, status, code, words) in cases {
        let (told, error) = asked(members.clone());
        assert_eq!((told, &error["reason_code"]), (status, &json!(code)), "{members} {error}");
        let sentence = error["result"].as_str().unwrap();
        assert!(sentence.contains(words), "{members}: {sentence}");
        assert!(error["member"].as_str().is_some_and(|own| own.starts_with("serviceArguments.")), "{error}");
    }
    assert_eq!(gateway.tcp("GET", &format!("{LB}/all"), "").1, json!({"lbAttr": []}), "nothing was created");
    for (port, members) in [
        json!({"kvModelProfile": "both"}),
        json!({"kvModelProfile": "both", "model_name": "m-fast"}),
        json!({"kvModelProfile": "both", "kvExactApiMode": "chat"}),
        json!({"kvModelProfile": "completions", "model_name": "org/c"}),
        json!({"kvModelProfile": "bare", "model_name": "org/b", "kvExactApiMode": "completions"}),
        json!({"kvModelProfile": "oss", "model_name": "org/oss", "kvExactApiMode": "completions"}),
        json!({"kvExactApiMode": "chat"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut whole = rule(members);
        whole["serviceArguments"]["port"] = json!(9100 + port);
        let (status, error) = gateway.tcp("POST", LB, &whole.to_string());
        assert_eq!(status, 200, "{whole} {error}");
    }
}

#[test]
fn what_a_rule_was_bound_by_stays() {
    let plane = plane();
    let gateway = Running::start(&plane);
    let post = |members: Value| gateway.tcp("POST", LB, &rule(members).to_string());
    assert_eq!(post(json!({"kvExactApiMode": "completions"})).0, 200);
    assert!(bound(&plane.rule()).is_none());
    for declared in ["", "chat", "both"] {
        let (status, error) = post(json!({"kvExactApiMode": declared, "kvModelProfile": "both"}));
        assert_eq!((status, &error["reason_code"]), (409, &json!("api_mode_fixed")), "{error}");
    }
    let attached = json!({"kvExactApiMode": "completions", "kvModelProfile": "both"});
    assert_eq!(post(attached).0, 200, "attached once");
    let first = plane.bound();
    assert_eq!((first.generation, first.surfaces.word()), (1, "completions"));
    for other in ["", "completions"] {
        let (status, error) = post(json!({"kvExactApiMode": "completions", "kvModelProfile": other}));
        assert_eq!((status, &error["reason_code"]), (409, &json!("model_profile_fixed")), "{error}");
        assert!(error["result"].as_str().unwrap().contains("cant modify rule kv model profile"), "{error}");
    }
    assert_eq!(plane.bound(), first, "what was refused changed nothing");
}

#[test]
fn a_bound_rule_reads_back_as_it_was_posted() {
    let gateway = Running::start(&plane());
    let own = rule(json!({"kvModelProfile": "both", "kvExactApiMode": "both"}));
    assert_eq!(gateway.tcp("POST", LB, &own.to_string()).0, 200);
    let path = format!("{LB}/externalipaddress/127.0.0.1/port/9001/protocol/tcp");
    let shown = gateway.tcp("GET", &path, "").1;
    let members = &shown["serviceArguments"];
    assert_eq!((&members["kvModelProfile"], &members["kvExactApiMode"]), (&json!("both"), &json!("both")));
    let (status, error) = gateway.tcp("POST", LB, &shown.to_string());
    assert_eq!((status, &error["reason_code"]), (409, &json!("rule_exists")), "the same rule");
}

#[test]
fn profiles_are_discovered() {
    let empty = Running::start(&FakePlane::new());
    let none = json!({"registryGeneration": 0, "setDigest": "", "profiles": [], "refused": []});
    assert_eq!(empty.tcp("GET", PROFILES, ""), (200, none));
    let plane = plane();
    let gateway = Running::start(&plane);
    let (status, all) = gateway.tcp("GET", PROFILES, "");
    assert_eq!((status, &all["registryGeneration"]), (200, &json!(1)));
    assert_eq!(all["setDigest"].as_str().map(str::len), Some(64));
    let ids: Vec<&str> =
        all["profiles"].as_array().unwrap().iter().map(|own| own["profileId"].as_str().unwrap()).collect();
    assert_eq!(ids, ["bare", "both", "completions", "oss", "untokenized", "unvalidated"]);
    assert_eq!(all["refused"][0]["file"], "torn.yaml", "one that is refused leaves the others published");
    let (status, one) = gateway.tcp("GET", &format!("{PROFILES}/completions"), "");
    let pin = "0123456789abcdef".repeat(4);
    let expected = json!({
        "profileId": "completions", "gen": 1, "baseModel": "org/c", "aliasPolicy": "base_model_only",
        "allowedAliases": [], "tokenizerRevision": "", "tokenizerSha256": pin, "templateSha256": pin,
        "templateContentFormat": "", "rendererEngine": "warmpath", "rendererVersion": "", "oracleEngine": "",
        "oracleVersion": "", "supportedApis": ["completions"], "supportedFeatures": [], "excludedFeatures": [],
    });
    assert_eq!((status, one), (200, expected));
    let (status, error) = gateway.tcp("GET", &format!("{PROFILES}/none"), "");
    assert_eq!((status, &error["reason_code"]), (404, &json!("no_such_profile")));
}

#[test]
fn a_profile_that_changes_or_goes_is_bound_anew_or_fences() {
    let plane = plane();
    let gateway = Running::start(&plane);
    let post = |members: Value| gateway.tcp("POST", LB, &rule(members).to_string()).0;
    assert_eq!(post(json!({"kvModelProfile": "both"})), 200);
    let first = plane.bound();
    plane.publish(&[profile("both", "org/m", &json!({"modelType": "qwen3"}))]);
    wait(|| plane.bound().digest != first.digest);
    let second = plane.bound();
    assert_eq!((second.generation, second.profile_generation), (2, 2), "another digest, another number");
    plane.publish(&[]);
    let binding = |plane: &FakePlane| plane.rule().exact.unwrap().profile.binding;
    wait(|| matches!(binding(&plane), Binding::Unresolved(_)));
    assert!(format!("{:?}", binding(&plane)).contains("not a published model-prompt profile"));
    plane.publish(&[profile("both", "org/m", &json!({"modelType": "qwen3"}))]);
    wait(|| matches!(binding(&plane), Binding::Bound(_)));
    assert_eq!(plane.bound().generation, 2, "as it was bound before");
}

#[test]
fn numbers_of_bindings_outlive_everything_and_never_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    let plane = plane();
    let start = || Running::with(options.clone(), &plane);
    let named = || rule(json!({"kvModelProfile": "both", "id": "own"}));
    let gateway = start();
    let post = |gateway: &Running, body: Value| gateway.tcp("POST", LB, &body.to_string());
    assert_eq!(post(&gateway, named()).0, 200);
    let first = plane.bound();
    assert_eq!(first.generation, 1);
    let mut wider = named();
    wider["endpoints"].as_array_mut().unwrap().push(json!({"endpointIP": "127.0.0.1", "targetPort": 8001}));
    assert_eq!(post(&gateway, wider.clone()).0, 200);
    assert_eq!(plane.bound(), first, "endpoints are not part of it");
    drop(gateway);
    let gateway = start();
    assert_eq!(plane.bound(), first, "nor is the process");
    assert_eq!(gateway.tcp("DELETE", &format!("{LB}/all"), "").0, 200);
    assert_eq!(post(&gateway, named()).0, 200);
    assert_eq!(plane.bound().generation, 2, "made again, it is another one");
    drop(gateway);
    plane.publish(&[profile("both", "org/m", &json!({"modelType": "qwen3"}))]);
    drop(start());
    assert_eq!(plane.bound().generation, 3, "the profile changed between two processes");
    plane.publish(&[profile("both", "org/m", &json!({"modelType": "qwen2"}))]);
    drop(start());
    assert_eq!(plane.bound().generation, 4, "and that was written down");
}

#[test]
fn a_restored_rule_without_a_profile_waits_for_one() {
    let plane = plane();
    let outside = outside(&plane);
    let mut rules = RuleSet::default();
    rules.upsert(&rule(json!({"id": "own"})), "", &outside.reading(Origin::Restored)).unwrap();
    let binding = |rules: &RuleSet| rules.entries()[0].rule.exact.clone().unwrap().profile.binding;
    assert_eq!(binding(&rules), Binding::RequiresMigration);
    assert!(rules.warnings().next().unwrap().contains("kvModelProfile"));
    let kept = Bindings::from_json(&rules.bindings().to_json()).unwrap();
    let mut next = RuleSet::numbered(kept);
    next.upsert(&rule(json!({"id": "own"})), "", &outside.reading(Origin::Kept)).unwrap();
    assert_eq!(binding(&next), Binding::RequiresMigration, "a restart is no way out");
    let mut asked = rule(json!({"id": "own", "sel": 4}));
    next.upsert(&asked, "", &outside.reading(Origin::Asked)).unwrap();
    assert_eq!(binding(&next), Binding::RequiresMigration, "nor is another change");
    asked["serviceArguments"]["kvModelProfile"] = json!("both");
    next.upsert(&asked, "", &outside.reading(Origin::Asked)).unwrap();
    assert_eq!(bound(&next.entries()[0].rule).unwrap().generation, 1);
    let mut legacy = RuleSet::default();
    legacy.upsert(&rule(json!({})), "", &outside.reading(Origin::Kept)).unwrap();
    assert_eq!(binding(&legacy), Binding::Legacy, "one of this gateway's own state goes on as it was");
}

#[test]
fn numbers_that_mean_nothing_are_told() {
    for (text, words) in [
        (r#"{"high": -1, "rules": {}}"#, "bindings.high"),
        (r#"{"high": 1, "rules": {"a": {"generation": 2, "digest": "x"}}}"#, "bindings.rules.a"),
        (r#"{"high": 1, "rules": {"a": {"generation": 0, "digest": "x"}}}"#, "generation up to 1"),
        (r#"{"high": 1, "rules": {"a": {}}}"#, "bindings.rules.a"),
    ] {
        let fault = Bindings::from_json(&serde_json::from_str(text).unwrap()).expect_err(text);
        assert!(fault.contains(words), "{fault}");
    }
    assert_eq!(Bindings::from_json(&Value::Null), Ok(Bindings::default()));
    let other = Bindings::from_json(&json!({"high": 7, "rules": {}})).unwrap();
    assert_eq!(RuleSet::default().renumbered(&other).bindings().to_json()["high"], 7);
}
