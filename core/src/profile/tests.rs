//! What is published of several documents, and what a binding's digest is over.

use super::binding::{ApiMode, Surfaces, digest};
use super::registry::{Document, Fixtures, Published, Registry};
use super::*;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::rule::{Rule, body};
use serde_json::{Value, json};
use std::sync::Arc;

fn document(file: &str, id: &str, model: &str, digest: &str) -> Document {
    let profile: Profile =
        serde_json::from_value(json!({"profileId": id, "baseModel": model})).expect("a profile");
    let published = Published {
        file: file.into(),
        profile,
        generation: 0,
        digest: digest.into(),
        has_tokenizer: true,
        manifest: None,
        fixtures: Fixtures::default(),
    };
    Document { file: file.into(), read: Ok(Arc::new(published)), claims: vec![model.into()] }
}

fn refused(file: &str, claims: &[&str]) -> Document {
    Document {
        file: file.into(),
        read: Err("torn".into()),
        claims: claims.iter().map(|name| name.to_string()).collect(),
    }
}

fn ids(registry: &Registry) -> Vec<(&str, u32)> {
    registry.profiles.iter().map(|own| (own.profile.id.as_str(), own.generation)).collect()
}

#[test]
fn a_bad_document_is_refused_by_name_and_the_others_are_published() {
    let all = [
        document("b.yaml", "b", "org/b", "1"),
        refused("c.yaml", &[]),
        document("a.yaml", "a", "org/a", "1"),
    ];
    let registry = Registry::next(&Registry::default(), &all);
    assert_eq!(ids(&registry), [("a", 1), ("b", 1)]);
    let told: Vec<_> = registry.refused.iter().map(|own| (own.file.as_str(), own.fault.as_str())).collect();
    assert_eq!(told, [("c.yaml", "torn")]);
    assert_eq!(registry.of_model("org__b").map(|own| own.profile.id.as_str()), Some("b"), "by folder too");
    assert!(registry.of_model("c").is_none());
}

#[test]
fn of_two_about_one_model_or_of_one_id_neither_counts() {
    for (other, words) in [
        (document("b.yaml", "b", "org__m", "1"), "b.yaml is about the model org__m too"),
        (document("b.yaml", "a", "org/n", "1"), "b.yaml has \"a\" too"),
        (refused("b.yaml", &["org/m"]), "b.yaml is about the model org__m too"),
    ] {
        let all = [document("a.yaml", "a", "org/m", "1"), other, document("c.yaml", "c", "org/c", "1")];
        let registry = Registry::next(&Registry::default(), &all);
        assert_eq!(ids(&registry), [("c", 1)]);
        assert!(registry.refused[0].fault.contains(words), "{:?}", registry.refused);
        assert_eq!(registry.refused.len(), 2, "each is named with its reason");
    }
}

#[test]
fn a_generation_counts_changes_of_the_set_and_a_profile_keeps_the_one_it_changed_in() {
    let none = Registry::next(&Registry::default(), &[]);
    assert_eq!((none.generation, none.set_digest.as_str()), (0, ""));
    let (a, b) = (document("a.yaml", "a", "m", "1"), document("b.yaml", "b", "n", "1"));
    let one = Registry::next(&none, std::slice::from_ref(&a));
    let two = Registry::next(&one, &[a.clone(), b.clone()]);
    assert_eq!((ids(&one), ids(&two)), (vec![("a", 1)], vec![("a", 1), ("b", 2)]));
    assert_eq!(Registry::next(&two, &[b.clone(), a.clone()]), two, "nothing changed");
    let three = Registry::next(&two, &[document("a.yaml", "a", "m", "2"), b.clone()]);
    assert_eq!(ids(&three), [("a", 3), ("b", 2)]);
    let four = Registry::next(&three, &[]);
    assert_eq!((four.generation, four.set_digest.as_str()), (4, ""), "it never goes back");
    assert_eq!(Registry::next(&four, &[a, b]).set_digest, two.set_digest, "the same set has the same digest");
}

#[test]
fn open_means_what_the_profile_supports() {
    let both = Surfaces { chat: true, completions: true };
    assert_eq!(ApiMode::Open.surfaces(None), both);
    let one: Profile =
        serde_json::from_value(json!({"profileId": "a", "baseModel": "m", "supportedApis": ["chat"]}))
            .expect("one");
    assert_eq!(ApiMode::Open.surfaces(Some(&one)).word(), "chat");
    assert_eq!(ApiMode::Both.surfaces(Some(&one)), both, "as declared: admission compares");
    for mode in [ApiMode::Open, ApiMode::Completions, ApiMode::Chat, ApiMode::Both] {
        assert_eq!(ApiMode::from_word(mode.word()), mode);
    }
    assert!(Surfaces { chat: false, completions: true }.has(Api::Completions));
}

fn rule(members: Value) -> Rule {
    let mut own = json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 80, "kvExactMode": 3, "kvHashAlgo": "tokens",
            "model_name": "m", "kvModelProfile": "a"},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 1}],
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        own["serviceArguments"][name] = value.clone();
    }
    body::parse(&own, &Environment::default(), || "id".into()).expect("a rule")
}

#[test]
fn a_bindings_digest_is_over_all_that_keys_depend_on_and_nothing_else() {
    let profile: Profile =
        serde_json::from_value(json!({"profileId": "a", "baseModel": "m"})).expect("a profile");
    let of = |members: Value, model: &str, pins: &str| {
        digest(rule(members).exact.as_ref().expect("exact"), model, &profile, pins)
    };
    let plain = of(json!({}), "m", "1");
    assert!(is_sha256(&plain));
    for (members, model, pins) in [
        (json!({"kvBlockSize": 32}), "m", "1"),
        (json!({"kvEngineType": "sglang"}), "m", "1"),
        (json!({"kvEngineVersion": "0.32.0"}), "m", "1"),
        (json!({"kvDpRankCount": 2}), "m", "1"),
        (json!({"kvExactApiMode": "chat"}), "m", "1"),
        (json!({}), "n", "1"),
        (json!({}), "m", "2"),
    ] {
        assert_ne!(of(members.clone(), model, pins), plain, "{members} {model} {pins}");
    }
    for members in [json!({"sel": 4}), json!({"kvZmqPort": 6000}), json!({"kvExactApiMode": "both"})] {
        assert_eq!(of(members.clone(), "m", "1"), plain, "{members}");
    }
}

#[test]
fn paths_stay_below_their_folder_and_digests_are_spelled_one_way() {
    for good in ["a", "sha256/00", "a.b/c-d_e"] {
        assert!(is_safe_path(good), "{good}");
    }
    for bad in ["", "/a", "a//b", "a/", "..", "a/../b", ".a", "a b", "a\\b"] {
        assert!(!is_safe_path(bad), "{bad}");
    }
    assert!(is_sha256(&sha256(b"")) && !is_sha256(&sha256(b"").to_uppercase()) && !is_sha256("00"));
    assert_eq!(slug("org/m"), "org__m");
    assert!(Engine::ALL.iter().all(|engine| is_safe_path(engine.name())), "they are folders of fixtures");
}
