//! Model profiles from files to rules, with the real binary: what `kv-profile-admission` of the existing gateway's CI has
//! of discovery (D), tokenizers (T) and restarts (R). The matrix of admission is `admin/src/run/profile_tests.rs`.

use crate::harness::*;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use warmpath_core::profile::sha256;

on_both_drivers!(a_profile_is_staged_bound_changed_and_refused_without_a_restart);

const TINY: &[u8] = include_bytes!("../../core/prompt/tests/tokenizers/tiny.json");
const PROFILES: &str = "/netlox/v1/config/ai/model-profiles";

/// Pins tokenizer and template, and writes what it pins.
fn stage(root: &Path, more: &str) -> PathBuf {
    let folder = root.join("kvprofiles/artifacts/sha256");
    std::fs::create_dir_all(&folder).unwrap();
    let (tokenizer, template) = (sha256(TINY), sha256(b"{{ messages }}"));
    std::fs::write(folder.join(&tokenizer), TINY).unwrap();
    std::fs::write(folder.join(&template), "{{ messages }}").unwrap();
    let path = root.join("kvprofiles/tiny.yaml");
    let yaml = format!(
        "profileId: tiny\nbaseModel: org/tiny\ntokenizerArtifact: sha256/{tokenizer}\n\
         tokenizerSha256: {tokenizer}\ntemplateArtifact: sha256/{template}\ntemplateSha256: {template}\n\
         rendererEngine: warmpath\n{more}"
    );
    std::fs::write(&path, yaml).unwrap();
    path
}

fn bound_rule() -> Value {
    let members = json!({
        "name": "bound", "model_name": "org/tiny", "kvExactMode": 3, "kvHashAlgo": "tokens",
        "kvModelProfile": "tiny", "kvZmqPort": free_address().port(),
    });
    rule_with(free_address(), &[free_address()], members)
}

fn a_profile_is_staged_bound_changed_and_refused_without_a_restart(driver: Driver) {
    let root = Gateway::folder();
    let flags = ["--shards", "1", "--config-root", root.to_str().unwrap()];
    let gateway = Gateway::spawn(driver, Gateway::folder(), false, &flags);
    let discovered = || gateway.admin("GET", PROFILES, "").json();
    assert_eq!(discovered()["registryGeneration"], 0);
    let rule = bound_rule();
    let refused = gateway.admin("POST", "/netlox/v1/config/loadbalancer", &rule.to_string());
    assert_eq!((refused.status, &refused.json()["reason_code"]), (400, &json!("profile_not_published")));
    let path = stage(&root, "");
    wait_until("the profile is published", || discovered()["registryGeneration"] == 1);
    assert_eq!(discovered()["profiles"][0]["tokenizerSha256"], sha256(TINY));
    gateway.post_rule(&rule);
    let models = || gateway.admin("GET", "/netlox/v1/config/ai/models", "").json()["models"][0].clone();
    wait_until("its pinned tokenizer is loaded, with no folder of the model", || {
        models()["state"] == "loaded" && models()["profile"] == "tiny"
    });
    std::fs::write(root.join("kvprofiles/torn.yaml"), "profileId: torn\nprofileId: torn\nbaseModel: m\n")
        .unwrap();
    wait_until("the bad one is named", || discovered()["refused"][0]["file"] == "torn.yaml");
    assert_eq!(discovered()["profiles"][0]["profileId"], "tiny", "the other stays published");
    stage(&root, "supportedApis: [completions]\n");
    wait_until("the change is published", || discovered()["profiles"][0]["gen"] == 2);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    wait_until("others can write it", || discovered()["profiles"] == json!([]));
    let why = discovered()["refused"].to_string();
    assert!(why.contains("tiny.yaml") && why.contains("chmod 644"), "{why}");
    wait_until("its rule is told", || gateway.log().contains("not a published model-prompt profile"));
    let shown = gateway.admin("GET", "/netlox/v1/config/loadbalancer/all", "").json();
    assert_eq!(shown["lbAttr"][0]["serviceArguments"]["kvModelProfile"], "tiny", "the rule stays");
    let _ = std::fs::remove_dir_all(root);
}
