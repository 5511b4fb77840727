//! The matrix of refused rule bodies as one table: each row is sent over HTTP, and status, code, member and phrase are
//! compared. Scripts of the loxilb AI gateway search the phrases.

use crate::disk::RealDisk;
use crate::fake::{FakePlane, Running, body, options, outside};
use serde_json::{Value, json};
use std::sync::Arc;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::contradictions;

/// Endpoints of a row.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    One,
    Two,
    /// One that takes no requests.
    Drained,
    /// Prefill and decode.
    Pair,
    /// The same and an encoder.
    Encoded,
    Twice,
    None,
}
use Ends::{Drained, Encoded, One, Pair, Two};

/// What is added to `serviceArguments`, the endpoints, and the refusal: status, code, member, phrase.
type Row = (&'static str, Ends, u16, &'static str, &'static str, &'static str);

const CONFLICT: &str = "conflicting_members";
const RANGE: &str = "out_of_range";
const ABSENT: &str = "not_in_this_build";

#[rustfmt::skip]
const MATRIX: &[Row] = &[
    (r#""sel": 5, "mode": 0"#, One, 400, CONFLICT, "serviceArguments.sel", "sel=n2(5) requires mode=fullproxy"),
    (r#""sel": 8, "mode": 0"#, One, 400, CONFLICT, "serviceArguments.sel", "sel=chwbl(8) requires mode=fullproxy"),
    (r#""sel": 9, "mode": 0"#, One, 400, CONFLICT, "serviceArguments.sel", "sel=gpu-aware(9) requires mode=fullproxy"),
    (r#""sel": 10, "mode": 0"#, One, 400, CONFLICT, "serviceArguments.sel", "sel=wrr-hash(10) requires mode=fullproxy"),
    (r#""sel": 10"#, Drained, 400, CONFLICT, "serviceArguments.sel", "at least 1 endpoint of positive weight"),
    (r#""sel": 10, "chwbl_replication": 1"#, Two, 400, CONFLICT, "serviceArguments.chwbl_replication", "fewer points than endpoints"),
    (r#""portMax": 80"#, One, 400, CONFLICT, "serviceArguments.portMax", "portMax is below port"),
    (r#""portMax": 9002"#, One, 400, ABSENT, "serviceArguments.portMax", "port ranges are not in this build"),
    (r#""pd_disagg_mode": true, "mode": 0"#, Pair, 400, CONFLICT, "serviceArguments.pd_disagg_mode", "pd-disagg requires mode=fullproxy"),
    (r#""pd_disagg_mode": true"#, One, 400, CONFLICT, "serviceArguments.pd_disagg_mode", "pd-disagg requires at least 1 prefill"),
    ("", Pair, 400, CONFLICT, "endpoints[0].ep_role", "requires pd_disagg_mode=true"),
    (r#""pd_disagg_mode": true, "kvEngineType": "trtllm""#, Encoded, 400, CONFLICT, "endpoints[2].ep_role", "have no encoders"),
    (r#""pd_connector": "mooncake""#, One, 400, CONFLICT, "serviceArguments.pd_connector", "have one way to transfer"),
    (r#""pd_disagg_mode": true, "pd_connector": "mooncake""#, Pair, 400, CONFLICT, "endpoints[0].kv_engine_id", "has to be told the engine_id"),
    (r#""pd_cache_aware_mode": true"#, One, 400, CONFLICT, "serviceArguments.pd_cache_aware_mode", "pd-cache-aware requires pd_disagg_mode=true"),
    (r#""pd_cache_threshold": 101"#, One, 422, RANGE, "serviceArguments.pd_cache_threshold", "0 to 100"),
    (r#""chwbl_prefix_hash_level": 2"#, One, 400, CONFLICT, "serviceArguments.chwbl_prefix_hash_level", "CHWBL fields require mode=4 and sel=8 or sel=10"),
    (r#""chwbl_prefix_hash_flags": 1"#, One, 400, CONFLICT, "serviceArguments.chwbl_prefix_hash_flags", "CHWBL fields require mode=4 and sel=8 or sel=10"),
    (r#""chwbl_mean_load_factor": 150"#, One, 400, CONFLICT, "serviceArguments.chwbl_mean_load_factor", "CHWBL fields require mode=4 and sel=8 or sel=10"),
    (r#""chwbl_replication": 10"#, One, 400, CONFLICT, "serviceArguments.chwbl_replication", "CHWBL fields require mode=4 and sel=8 or sel=10"),
    (r#""chwbl_enable_cache_salt": true"#, One, 400, CONFLICT, "serviceArguments.chwbl_enable_cache_salt", "CHWBL fields require mode=4 and sel=8 or sel=10"),
    (r#""sel": 8, "chwbl_prefix_hash_flags": 32"#, One, 400, CONFLICT, "serviceArguments.chwbl_prefix_hash_flags", "above its chwbl_prefix_hash_level"),
    (r#""sel": 8, "chwbl_prefix_hash_flags": 1, "chwbl_enable_cache_salt": true"#, One, 400, CONFLICT, "serviceArguments.chwbl_enable_cache_salt", "requires bit 3"),
    (r#""sel": 8, "chwbl_prefix_hash_level": 4"#, One, 422, RANGE, "serviceArguments.chwbl_prefix_hash_level", "1 to 3"),
    (r#""sel": 8, "chwbl_prefix_hash_flags": 256"#, One, 422, RANGE, "serviceArguments.chwbl_prefix_hash_flags", "0 to 255"),
    (r#""sel": 8, "chwbl_mean_load_factor": 99"#, One, 422, RANGE, "serviceArguments.chwbl_mean_load_factor", "100 to 300"),
    (r#""sel": 8, "chwbl_replication": 1025"#, One, 422, RANGE, "serviceArguments.chwbl_replication", "1 to 1024"),
    (r#""sel": 11"#, One, 422, RANGE, "serviceArguments.sel", "out of range"),
    (r#""sel": 5"#, One, 400, ABSENT, "serviceArguments.sel", "not in this build"),
    (r#""fc_max_queue_depth": 3, "fc_max_queue_wait_ms": 0"#, One, 400, CONFLICT, "serviceArguments.fc_max_queue_wait_ms", "lets them wait for no time"),
    (r#""fc_max_outstanding": null"#, One, 400, "null_member", "serviceArguments.fc_max_outstanding", "null is the wrong kind"),
    (r#""fc_expose_headers": "on", "sockMapMode": "both""#, One, 400, ABSENT, "serviceArguments.sockMapMode", "not in this build"),
    (r#""sockMapMode": "request", "sse_mode": true"#, One, 400, ABSENT, "serviceArguments.sockMapMode", "not in this build"),
    (r#""kvExactMode": 3, "pd_disagg_mode": true"#, Pair, 400, CONFLICT, "serviceArguments.kvExactMode", "kv-exact single-role mode is incompatible with pd-disagg"),
    (r#""kvExactMode": 3, "mode": 0"#, One, 400, CONFLICT, "serviceArguments.kvExactMode", "kv-exact single-role mode requires mode=fullproxy"),
    (r#""kvExactMode": 1"#, One, 400, CONFLICT, "serviceArguments.kvExactMode", "kv-exact zmq mode requires pd_disagg_mode=true"),
    (r#""kvExactMode": 2"#, One, 400, CONFLICT, "serviceArguments.kvExactMode", "reserved"),
    (r#""kvExactMode": 2, "kvEngineType": "trtllm""#, One, 400, CONFLICT, "serviceArguments.kvExactMode", "supports kvExactMode 1 or 3"),
    (r#""kvExactMode": 4"#, One, 422, RANGE, "serviceArguments.kvExactMode", "out of range"),
    (r#""kvEngineType": "tgi""#, One, 422, RANGE, "serviceArguments.kvEngineType", "kv-engine-type must be one of"),
    (r#""kvDpRankCount": 9"#, One, 422, RANGE, "serviceArguments.kvDpRankCount", "kv-dp-rank-count must be within 1..8"),
    (r#""kvExactMode": 3, "kvZmqPort": 65535, "kvDpRankCount": 2"#, One, 400, CONFLICT, "serviceArguments.kvZmqPort", "the last rank's port is above 65535"),
    (r#""kvExactMode": 3, "kvReplayPort": 65535, "kvDpRankCount": 2"#, One, 400, CONFLICT, "serviceArguments.kvReplayPort", "the last rank's port is above 65535"),
    (r#""kvExactMode": 3, "kvReplayPort": 5558, "kvDpRankCount": 2"#, One, 400, CONFLICT, "serviceArguments.kvReplayPort", "some rank would replay where another publishes"),
    (r#""kvHashAlgo": "md5""#, One, 422, RANGE, "serviceArguments.kvHashAlgo", "kv-hash-algo must be one of"),
    (r#""kvExactMode": 3, "kvHashAlgo": "sha256_sglang""#, One, 400, CONFLICT, "serviceArguments.kvHashAlgo", "kv-hash-algo is incompatible with kv-engine-type"),
    (r#""pdBootstrapPort": 8998"#, One, 400, CONFLICT, "serviceArguments.pdBootstrapPort", "pd-bootstrap-port requires"),
    (r#""kvExactMode": 3, "kvEngineType": "trtllm", "kvZmqPort": 5999"#, One, 400, CONFLICT, "serviceArguments.kvZmqPort", "kvZmqPort is meaningless"),
    (r#""kvExactMode": 3, "kvEngineType": "trtllm", "kvReplayPort": 5999"#, One, 400, CONFLICT, "serviceArguments.kvReplayPort", "kvReplayPort is meaningless"),
    (r#""kvExactMode": 3, "kvEngineType": "trtllm", "kvZmqBind": true"#, One, 400, CONFLICT, "serviceArguments.kvZmqBind", "kvZmqBind is meaningless"),
    (r#""kvExactMode": 3, "kvEngineType": "trtllm", "kvDpRankCount": 2"#, One, 400, CONFLICT, "serviceArguments.kvDpRankCount", "kvDpRankCount is meaningless"),
    (r#""kvEngineType": "llamacpp", "pd_disagg_mode": true"#, Pair, 400, CONFLICT, "serviceArguments.pd_disagg_mode", "publishes no cache events"),
    (r#""kvEngineType": "llamacpp", "kvExactMode": 3"#, One, 400, CONFLICT, "serviceArguments.kvExactMode", "publishes no cache events"),
    (r#""kvEngineType": "llamacpp", "kvHashAlgo": "sha256_cbor""#, One, 400, CONFLICT, "serviceArguments.kvHashAlgo", "publishes no cache events"),
    (r#""kvEngineType": "llamacpp", "kvBlockSize": 64"#, One, 400, CONFLICT, "serviceArguments.kvBlockSize", "publishes no cache events"),
    (r#""kvEngineType": "llamacpp", "kvZmqPort": 5999"#, One, 400, CONFLICT, "serviceArguments.kvZmqPort", "kvZmqPort is meaningless"),
    (r#""kvExactMode": 3"#, One, 412, "KV_EXACT_SEED_UNSET", "serviceArguments.kvExactMode", "LLB_KV_NONE_HASH_SEED"),
    (r#""kvExactApiMode": "completions""#, One, 400, CONFLICT, "serviceArguments.kvExactApiMode", "requires kvExactMode 1 or 3"),
    (r#""kvModelProfile": "p""#, One, 400, CONFLICT, "serviceArguments.kvModelProfile", "requires kvExactMode 1 or 3"),
    (r#""security": 1"#, One, 400, ABSENT, "serviceArguments.security", "not in this build"),
    (r#""security": 3"#, One, 422, RANGE, "serviceArguments.security", "out of range"),
    (r#""backend_protocol": "http2""#, One, 400, ABSENT, "serviceArguments.backend_protocol", "not in this build"),
    (r#""api_key_auth": "required""#, One, 400, ABSENT, "serviceArguments.api_key_auth", "not in this build"),
    (r#""proxyprotocolv2": true"#, One, 400, ABSENT, "serviceArguments.proxyprotocolv2", "not in this build"),
    (r#""egress": true"#, One, 400, ABSENT, "serviceArguments.egress", "not in this build"),
    (r#""protocol": "udp""#, One, 400, ABSENT, "serviceArguments.protocol", "not in this build"),
    (r#""mtls_backend": {"verify_server_cert": true}"#, One, 400, ABSENT, "serviceArguments.mtls_backend", "not in this build"),
    (r#""connectionLimit": 5"#, One, 400, "not_yet_available", "serviceArguments.connectionLimit", "not yet available"),
    (r#""kv_exact_mode": 3"#, One, 400, "unknown_member", "serviceArguments.kv_exact_mode", "did you mean kvExactMode?"),
    (r#""PdDisaggMode": true"#, One, 400, "unknown_member", "serviceArguments.PdDisaggMode", "did you mean pd_disagg_mode?"),
    (r#""Model_Name": "m""#, One, 400, "unknown_member", "serviceArguments.Model_Name", "did you mean model_name?"),
    (r#""targetPort": 1"#, One, 400, "unknown_member", "serviceArguments.targetPort", "it belongs into endpoints[]"),
    (r#""colour": 1"#, One, 400, "unknown_member", "serviceArguments.colour", "remove it"),
    (r#""port": "80""#, One, 422, "wrong_kind", "serviceArguments.port", "a string is the wrong kind"),
    (r#""externalIP": "vip""#, One, 422, RANGE, "serviceArguments.externalIP", "not an address"),
    (r#""path_prefix": "/v1", "path_match_mode": "disabled""#, One, 400, CONFLICT, "serviceArguments.path_match_mode", "would not be compared"),
    (r#""annotations": {"a": 1}"#, One, 422, "wrong_kind", "serviceArguments.annotations", "object of at most 32 strings"),
    ("", Ends::Twice, 400, "duplicate_endpoint", "endpoints[1].endpointIP", "is endpoints[0] already"),
    ("", Ends::None, 422, RANGE, "endpoints", "0 endpoints"),
];

fn ends(ends: Ends) -> Value {
    let end = |port: u16, role: u8, weight: u8| json!({"endpointIP": "127.0.0.1", "targetPort": port, "weight": weight, "ep_role": role});
    match ends {
        Ends::One => json!([end(8000, 0, 1)]),
        Ends::Two => json!([end(8000, 0, 1), end(8001, 0, 1)]),
        Ends::Drained => json!([end(8000, 0, 0)]),
        Ends::Pair => json!([end(8000, 1, 1), end(8001, 2, 1)]),
        Ends::Encoded => json!([end(8000, 1, 1), end(8001, 2, 1), end(8002, 3, 1)]),
        Ends::Twice => json!([end(8000, 0, 1), end(8000, 0, 1)]),
        Ends::None => json!([]),
    }
}

/// The body of a row.
fn wrong(members: &str, given: Ends) -> Value {
    let mut wrong = body("m", 9001);
    let members: Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
    wrong["serviceArguments"].as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    wrong["endpoints"] = ends(given);
    wrong
}

fn class(status: u16) -> &'static str {
    match status {
        400 => "Malformed arguments for API call",
        409 => "Resource conflict",
        412 => "Precondition failed",
        _ => "Value not allowed",
    }
}

const LB: &str = "/netlox/v1/config/loadbalancer";

#[test]
fn every_row_of_the_matrix_is_refused_with_its_status_code_member_and_phrase() {
    let plane = FakePlane::new();
    let gateway = Running::start(&plane);
    for (members, given, status, code, member, phrase) in MATRIX {
        let (got, error) = gateway.tcp("POST", LB, &wrong(members, *given).to_string());
        assert_eq!((got, &error["code"]), (*status, &json!(status)), "{members}: {error}");
        assert_eq!(
            (error["reason_code"].as_str(), error["member"].as_str()),
            (Some(*code), Some(*member)),
            "{error}"
        );
        assert_eq!(error["message"], class(*status), "{error}");
        let result = error["result"].as_str().unwrap();
        assert!(result.contains(phrase) && result.contains(member), "{members}: {result}");
        let cure = error["allowed"].as_str().unwrap();
        assert!(!cure.is_empty() && result.ends_with(cure), "{members}: {error}");
    }
    assert!(plane.names().is_empty(), "a refused body changed something");
}

#[test]
fn no_contradiction_that_is_known_is_left_out_of_the_matrix() {
    for (member, problem) in contradictions() {
        let provokes = |row: &&Row| {
            let blamed = row.4.rsplit('.').next().unwrap();
            row.3 == CONFLICT && blamed == member && problem.contains(row.5)
        };
        assert!(MATRIX.iter().any(|row| provokes(&row)), "no row provokes {member}: {problem}");
    }
}

#[test]
fn a_seed_that_is_too_long_is_refused_by_its_code() {
    let (folder, plane) = (tempfile::tempdir().unwrap(), FakePlane::new());
    let seeded = |seed: &str| Environment { none_hash_seed: Some(seed.into()), ..Environment::default() };
    let mut outside = outside(&plane);
    outside.environment = Arc::new(seeded("012345678901234567890123"));
    let gateway = Running::outside(Box::new(RealDisk), options(folder.path()), outside);
    let exact = wrong("\"kvExactMode\": 3", One).to_string();
    let (status, error) = gateway.tcp("POST", LB, &exact);
    assert_eq!((status, &error["reason_code"]), (412, &json!("KV_EXACT_SEED_TOO_LONG")));
    assert!(!error.to_string().contains("0123456789"), "the seed is told: {error}");
    let list = gateway.tcp("GET", "/netlox/v1/status/capabilities", "").1["capabilities"].clone();
    let of = |name: &str| list.as_array().unwrap().iter().find(|c| c["name"] == name).unwrap().clone();
    assert_eq!(
        (&of("kv_exact_vllm")["ready"], &of("kv_exact_vllm")["reason_code"]),
        (&json!(false), &json!("KV_EXACT_SEED_TOO_LONG"))
    );
    assert_eq!(of("kv_exact_vllm_tokens")["ready"], true);
}
