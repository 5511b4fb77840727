//! The families of the loxilb AI gateway that its dashboards ask for, one by one: served here with the same labels, or
//! not, and why.

use super::families;

/// What becomes of a family here.
enum Here {
    /// It is served with these labels; those of this gateway's own come in addition.
    Served(&'static [&'static str]),
    /// There is nothing here that it could count.
    Nothing(&'static str),
    /// It would apply, and is not served yet.
    Missing(&'static str),
}
use Here::{Missing, Nothing, Served};

const KEYS: &str = "tenants and keys are counted with the keys of rules";
const HTTP2: &str = "HTTP/2 is refused";
const KERNEL: &str = "nothing is relayed by the kernel";
const CONTROLLER: &str = "no outside controller sets weights";
const AGENT: &str = "events are read by the gateway itself";
const CACHE: &str = "an answer is never cached: bytes go on as they come";

const TABLE: &[(&str, Here)] = &[
    // Requests and policy.
    ("loxilb_ai_requests_total", Missing(KEYS)),
    ("loxilb_ai_request_duration_seconds", Missing(KEYS)),
    ("loxilb_ai_active_streams", Missing("streams are counted as they begin, not as they run")),
    ("loxilb_ai_rate_limit_hits_total", Missing(KEYS)),
    ("loxilb_ai_model_not_allowed_total", Missing(KEYS)),
    ("loxilb_ai_normal_session_hits_total", Served(&["model"])),
    ("loxilb_ai_tokens_consumed_total", Missing(KEYS)),
    ("loxilb_ai_unmetered_requests_total", Missing(KEYS)),
    (
        "loxilb_ai_policy_store_unavailable_total",
        Nothing("rules stand in memory; there is no store to be without"),
    ),
    ("loxilb_ai_keyed_services", Missing(KEYS)),
    ("loxilb_ai_jwt_validation_total", Missing(KEYS)),
    ("loxilb_ai_engine_info", Served(&["service", "engine"])),
    ("loxilb_ai_worker_scrape_total", Served(&["result"])),
    ("loxilb_ai_llamacpp_probe_warnings_total", Nothing("llama.cpp is asked nothing but health and load")),
    // Pairs.
    ("loxilb_ai_pd_requests_total", Served(&["model", "phase", "status"])),
    ("loxilb_ai_pd_prefill_duration_seconds", Served(&["model"])),
    ("loxilb_ai_pd_decode_ttft_seconds", Served(&["model"])),
    ("loxilb_ai_pd_kv_params_found_total", Served(&["model"])),
    ("loxilb_ai_pd_kv_params_missing_total", Served(&["model"])),
    ("loxilb_ai_pd_session_hits_total", Served(&["model"])),
    ("loxilb_ai_pd_tier_selected_total", Served(&["tier", "model"])),
    ("loxilb_pd_ep_info", Served(&["service", "ep_idx", "ep"])),
    ("loxilb_pd_kv_blocks", Served(&["service", "ep_idx"])),
    ("loxilb_pd_kv_tier15_hits_total", Served(&["ep_idx"])),
    ("loxilb_pd_kv_tier15_spills_total", Served(&["ep_idx"])),
    ("loxilb_pd_kv_tier15_cold_seeds_total", Served(&["ep_idx"])),
    ("loxilb_pd_kv_tier15_fallthrough_total", Served(&[])),
    ("loxilb_pd_kv_tier15_miss_reason_total", Served(&["reason"])),
    ("loxilb_pd_kv_zero_hit_watchdog_total", Served(&["service_id"])),
    ("loxilb_pd_admission_inflight", Served(&[])),
    ("loxilb_pd_admission_queued_total", Served(&[])),
    ("loxilb_pd_admission_shed_total", Served(&[])),
    ("loxilb_pd_admission_total_blocked_total", Nothing("the same: loxilb_ai_admission_decisions_total")),
    ("loxilb_pd_admission_overflow_shed_total", Served(&[])),
    ("loxilb_pd_cb_flips_total", Served(&[])),
    ("loxilb_pd_cb_proactive_heal_total", Served(&[])),
    ("loxilb_pd_connect_failover_total", Served(&[])),
    (
        "loxilb_pd_connect_retry_same_ep_total",
        Nothing("an endpoint that can't be connected to is not tried twice"),
    ),
    (
        "loxilb_pd_connect_retry_same_ep_ok_total",
        Nothing("an endpoint that can't be connected to is not tried twice"),
    ),
    ("loxilb_pd_prefill_ep_died_total", Served(&[])),
    ("loxilb_pd_decode_ep_died_total", Served(&[])),
    (
        "loxilb_pd_decode_zero_byte_eof_total",
        Nothing("a close before the first byte is loxilb_pd_decode_ep_died_total"),
    ),
    ("loxilb_pd_fallback_to_normal_total", Served(&[])),
    ("loxilb_pd_sg_room_retry_total", Served(&[])),
    ("loxilb_pd_sg_prefill_abort_decode_total", Served(&[])),
    ("loxilb_pd_sg_decode_close_drain_total", Served(&[])),
    ("loxilb_pd_sg_prefill_reject_relay_total", Served(&[])),
    ("loxilb_pd_sg_oversize_reject_total", Nothing("bodies of pairs are bounded as all others are")),
    ("loxilb_pd_trt_ctx_early_exit_total", Served(&[])),
    ("loxilb_pd_sessions_active", Served(&[])),
    ("loxilb_pd_trie_nodes", Served(&[])),
    ("loxilb_pd_ctrl_state", Nothing(CONTROLLER)),
    ("loxilb_pd_ctrl_effective_weight", Nothing(CONTROLLER)),
    // What caches hold.
    ("loxilb_kv_subscriber_connected", Served(&["service", "ep"])),
    ("loxilb_kv_subscriber_reconnect_total", Served(&["service", "ep"])),
    ("loxilb_kv_subscriber_recv_error_total", Served(&["service", "ep"])),
    ("loxilb_kv_subscriber_last_event_timestamp_seconds", Served(&["service", "ep"])),
    ("loxilb_kv_subscriber_wire_reject_total", Served(&["service", "ep", "reason"])),
    ("loxilb_kv_inv_cap_evictions_total", Served(&["service", "ep"])),
    ("loxilb_kv_inventory_fresh", Served(&["service", "ep"])),
    ("loxilb_ai_kv_attest_state", Missing("with the bindings of profiles")),
    ("loxilb_ai_kv_attest_echo_total", Missing("with the bindings of profiles")),
    ("loxilb_ai_kv_attest_probe_fail_total", Missing("with the bindings of profiles")),
    ("loxilb_ai_kv_enforcement_fault", Missing("with the bindings of profiles")),
    (
        "loxilb_ai_kv_trtllm_drain_ownership_fault_total",
        Missing("told by warmpath_kv_fenced, fence ownership; not counted"),
    ),
    (
        "loxilb_ai_kv_trtllm_drain_ownership_heal_total",
        Missing("told by warmpath_kv_fenced, fence ownership; not counted"),
    ),
    ("loxilb_kv_agent_up", Nothing(AGENT)),
    // The gate.
    ("loxilb_ai_admission_decisions_total", Served(&["reason"])),
    ("loxilb_ai_admission_inflight", Served(&["role"])),
    ("loxilb_ai_admission_queued", Served(&[])),
    ("loxilb_ai_admission_limit", Served(&["role"])),
    ("loxilb_ai_admission_effective_limit", Served(&[])),
    ("loxilb_ai_admission_adapt_state", Served(&["state"])),
    (
        "loxilb_ai_admission_anomalies_total",
        Nothing("a charge is settled once by its type; there is no anomaly to count"),
    ),
    ("loxilb_proxy_context_inflight", Served(&[])),
    ("loxilb_proxy_accept_bound", Served(&[])),
    ("loxilb_proxy_accept_blocked_total", Served(&[])),
    // The proxy.
    ("loxilb_proxy_active_connections", Served(&[])),
    ("loxilb_proxy_active_ssl_connections", Nothing("TLS is not in this build")),
    ("loxilb_proxy_http_ttfb_seconds", Served(&[])),
    ("loxilb_proxy_http_responses_total", Served(&[])),
    ("loxilb_proxy_http_responses_by_status_total", Served(&["status_class"])),
    ("loxilb_proxy_chunked_responses_total", Served(&[])),
    ("loxilb_proxy_http2_sessions_total", Nothing(HTTP2)),
    ("loxilb_proxy_graceful_close_total", Nothing(KERNEL)),
    ("loxilb_proxy_cache_backpressure_ratio", Nothing(CACHE)),
    ("loxilb_proxy_cache_drain_partial_total", Nothing(CACHE)),
    ("loxilb_proxy_cache_high_water_events_total", Nothing(CACHE)),
    ("loxilb_proxy_pd_kv_params_overflow_total", Nothing("what is handed over is bounded by the body alone")),
    (
        "loxilb_proxy_header_deadline_drops_total",
        Missing("counted as event slow_clients of warmpath_shard_events_total"),
    ),
    ("loxilb_config_dirty", Nothing("what is accepted is on disk before it is acknowledged")),
    ("loxilb_sockproxy_sync_total", Nothing("one gateway is no cluster")),
];

#[test]
fn every_family_of_the_loxilb_gateway_is_served_alike_or_told_why_not() {
    for (name, here) in TABLE {
        let own = families().find(|family| family.name == *name);
        match here {
            Served(labels) => {
                let own = own.unwrap_or_else(|| panic!("{name} is not served"));
                let lacks: Vec<_> = labels.iter().filter(|label| !own.of.labels().contains(label)).collect();
                assert!(lacks.is_empty(), "{name} lacks {lacks:?}");
            }
            Nothing(why) => assert!(own.is_none() && !why.is_empty(), "{name} is served: say so"),
            Missing(why) => assert!(!why.is_empty(), "{name}"),
        }
    }
}

#[test]
fn every_served_family_of_that_name_is_in_the_table() {
    for family in families().filter(|family| family.name.starts_with("loxilb_")) {
        assert!(TABLE.iter().any(|(name, _)| *name == family.name), "{} is not in the table", family.name);
    }
    let mut names: Vec<_> = TABLE.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a family stands twice");
}
