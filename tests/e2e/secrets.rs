//! What clients and the operator entrust to the gateway and nobody may read from it again: credentials, salts, prompts, the
//! hash seed. Owns the canaries.

use crate::harness::*;
use serde_json::json;

on_both_drivers!(no_secret_of_a_request_comes_out_again);

const CANARIES: [&str; 5] =
    ["canary-bearer-01", "canary-key-23", "canary-prompt-45", "canary-salt-67", "canary-seed-89"];

fn no_secret_of_a_request_comes_out_again(driver: Driver) {
    let [bearer, key, prompt, salt, seed] = CANARIES;
    let engine = engine();
    let members = json!({"name": "told", "kvExactMode": 3, "kvWarmupSec": 0, "fc_mode": "observe",
        "fc_max_outstanding": 1, "fc_tenant_max_share_pct": 50, "session_header_name": "X-Session-ID"});
    let rule = rule_with(free_address(), &[engine.addr], members);
    let variables = [("LLB_KV_NONE_HASH_SEED", seed)];
    let gateway = Gateway::start_in(driver, &[rule], &["--shards", "1"], &variables);
    let body = json!({"model": "m", "prompt": prompt, "cache_salt": salt, "max_tokens": 2}).to_string();
    let headers = [
        format!("Authorization: Bearer {bearer}"),
        format!("X-Api-Key: {key}"),
        "X-Request-Id: told-1".to_string(),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    for path in ["/v1/completions", "/v1/unheard-of"] {
        gateway.client().ask(&post(path, &headers, body.as_bytes()));
    }
    let mut told = String::new();
    for path in [
        "receipts",
        "config/ai/explain",
        "config/ai/explain?id=told-1",
        "config/loadbalancer/all",
        "config/snapshot",
        "config/ai/kv/status",
        "config/ai/models",
        "diagnostics",
        "metrics",
        "shards",
        "status/ready",
        "status/capabilities",
    ] {
        let reply = gateway.admin("GET", &format!("/netlox/v1/{path}"), "");
        told += &String::from_utf8_lossy(&reply.body);
    }
    told += &gateway.log();
    assert!(told.contains("told-1"), "the request is among the receipts: {told}");
    for canary in CANARIES {
        assert!(!told.contains(canary), "{canary} came out of {told}");
    }
}
