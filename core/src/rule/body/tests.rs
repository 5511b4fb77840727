//! Bodies taken and refused.

use super::*;
use crate::rule::{Chwbl, Deadlines, HalfClose, PairConnector, PathMatch, ProbeKind, Role, Selector};
use crate::{MILLISECOND, SECOND};
use serde_json::json;

fn plain() -> Value {
    json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 8080},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9001, "weight": 1}]
    })
}

fn with(service: Value) -> Value {
    let mut body = plain();
    for (name, value) in service.as_object().unwrap() {
        body["serviceArguments"][name] = value.clone();
    }
    body
}

fn with_endpoint(endpoint: Value) -> Value {
    let mut body = plain();
    for (name, value) in endpoint.as_object().unwrap() {
        body["endpoints"][0][name] = value.clone();
    }
    body
}

fn take(body: &Value) -> Rule {
    parse(body, &Environment::default(), || "fresh".into()).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

fn refuse(body: &Value) -> BodyFault {
    match parse(body, &Environment::default(), || "fresh".into()) {
        Ok(_) => panic!("accepted {body}"),
        Err(fault) => fault,
    }
}

#[test]
fn the_smallest_body_is_a_round_robin_rule() {
    let rule = take(&plain());
    assert_eq!(rule.key.vip, "127.0.0.1:8080".parse().unwrap());
    assert_eq!((rule.key.path_match, rule.key.path.as_str()), (PathMatch::Disabled, ""));
    assert_eq!(rule.id, "fresh");
    assert_eq!(rule.selector, Selector::RoundRobin);
    assert_eq!(rule.endpoints[0].address, "127.0.0.1:9001".parse().unwrap());
    assert_eq!(rule.deadlines, Deadlines::default());
    assert_eq!((rule.probe, rule.enabled, rule.half_close), (None, true, HalfClose::Leave));
}

#[test]
fn every_plain_member_reaches_the_rule() {
    let mut body = with(json!({
        "portMax": 8080, "protocol": "tcp", "mode": 4, "sel": 2, "security": 0, "host": "API.Example.com.",
        "path_prefix": "/v1/", "path_match_mode": "prefix", "model_name": "Qwen/Qwen3", "name": "chat",
        "id": "a-1", "adminStateUp": false, "projectId": "p", "annotations": {"team": "x"}, "monitor": true,
        "probetype": "http", "probeport": 81, "probereq": "/health", "proberesp": "ok", "probeTimeout": 7,
        "probeRetries": 3, "inactiveTimeOut": 40, "timeoutMemberConnect": 250, "timeoutMemberData": 1500,
        "first_byte_timeout_ms": 2000, "retry_before_first_byte": 1, "half_close": "serve",
        "backend_protocol": "http1", "sockMapMode": "off", "sse_mode": true, "max_stream_duration_sec": 9
    }));
    body["endpoints"][0] = json!({
        "endpointIP": "::1", "targetPort": 9001, "weight": 0, "backup": true, "subnetId": "s",
        "monitorAddress": "::1", "httpMethod": "GET", "urlPath": "/health", "expectedCodes": "200-204,300",
        "httpVersion": "1.1", "ep_role": 0, "nixl_port": 0, "state": "active", "counter": "0:0"
    });
    let rule = take(&body);
    assert_eq!((rule.key.host.as_str(), rule.key.path.as_str()), ("api.example.com", "/v1"));
    assert_eq!((rule.key.path_match, rule.key.model.as_str()), (PathMatch::Prefix, "Qwen/Qwen3"));
    assert_eq!((rule.id.as_str(), rule.name.as_str(), rule.enabled), ("a-1", "chat", false));
    assert_eq!(rule.selector, Selector::Weighted);
    let endpoint = &rule.endpoints[0];
    assert_eq!((endpoint.address, endpoint.weight), ("[::1]:9001".parse().unwrap(), 0));
    assert!(endpoint.backup && rule.sse_mode);
    assert_eq!((rule.retry_before_first_byte, rule.half_close), (1, HalfClose::Serve));
    let deadlines = Deadlines {
        connect: 250 * MILLISECOND,
        first_byte: 2 * SECOND,
        between_bytes: 1500 * MILLISECOND,
        between_events: 1500 * MILLISECOND,
        stream: 9 * SECOND,
    };
    assert_eq!(rule.deadlines, deadlines);
    let probe = rule.probe.unwrap();
    assert_eq!((probe.port, probe.timeout, probe.retries), (81, 7 * SECOND, 3));
    let codes = vec![(200, 204), (300, 300)];
    assert_eq!(probe.kind, ProbeKind::Http { path: "/health".into(), codes, contains: "ok".into() });
}

#[test]
fn zero_durations_are_defaults_and_idle_bounds_fall_back() {
    let zeros = with(json!({
        "inactiveTimeOut": 0, "timeoutMemberConnect": 0, "timeoutMemberData": 0, "first_byte_timeout_ms": 0,
        "max_stream_duration_sec": 0
    }));
    assert_eq!(take(&zeros).deadlines, Deadlines::default());
    let idle = take(&with(json!({"inactiveTimeOut": 8}))).deadlines;
    assert_eq!((idle.between_bytes, idle.between_events), (8 * SECOND, 8 * SECOND));
    let lifted = take(&with(json!({"inactiveTimeOut": 8, "sse_mode": true}))).deadlines;
    assert_eq!((lifted.between_bytes, lifted.between_events), (8 * SECOND, 86_400 * SECOND));
    let most = take(&with(json!({"timeoutMemberData": u32::MAX, "max_stream_duration_sec": i32::MAX})));
    assert_eq!(most.deadlines.stream, i32::MAX as u64 * SECOND);
}

#[test]
fn probes_default_to_a_tcp_connection() {
    let probe = take(&with(json!({"monitor": true}))).probe.unwrap();
    assert_eq!((probe.kind, probe.port), (ProbeKind::Tcp, 0));
    assert_eq!((probe.timeout, probe.retries), (5 * SECOND, 2));
    assert_eq!(take(&with(json!({"monitor": true, "probetype": "none"}))).probe, None);
    let kind = take(&with(json!({"monitor": true, "probetype": "http"}))).probe.unwrap().kind;
    assert_eq!(kind, ProbeKind::Http { path: "/".into(), codes: vec![(200, 200)], contains: String::new() });
    assert_eq!(take(&with(json!({"probetype": "http", "probereq": "/health"}))).probe, None);
}

#[test]
fn endpoints_share_one_probe() {
    let mut body = with(json!({"monitor": true, "probetype": "http"}));
    body["endpoints"] = json!([
        {"endpointIP": "10.0.0.1", "targetPort": 1, "urlPath": "/up"},
        {"endpointIP": "10.0.0.2", "targetPort": 1, "urlPath": "/down"},
    ]);
    let fault = refuse(&body);
    assert_eq!((fault.member.as_str(), fault.code), ("endpoints[1].urlPath", "conflicting_members"));
    body["endpoints"][1]["urlPath"] = json!("/up");
    body["endpoints"][1]["expectedCodes"] = json!("204");
    assert_eq!(refuse(&body).member, "endpoints[1].expectedCodes");
    body["endpoints"][0]["expectedCodes"] = json!("204");
    assert!(take(&body).probe.is_some());
}

#[test]
fn the_hash_selector_has_the_published_defaults() {
    let chwbl = |service| match take(&with(service)).selector {
        Selector::Chwbl(chwbl) => chwbl,
        other => panic!("{other:?}"),
    };
    let default = Chwbl { level: 1, flags: 0, load_factor: 125, replication: 100, cache_salt: false };
    assert_eq!(chwbl(json!({"sel": 8})), default);
    let salted = chwbl(json!({"sel": 8, "chwbl_enable_cache_salt": true}));
    assert_eq!((salted.flags, salted.cache_salt), (8, true));
    let full = chwbl(json!({
        "sel": 8, "chwbl_prefix_hash_level": 3, "chwbl_prefix_hash_flags": 255,
        "chwbl_mean_load_factor": 300, "chwbl_replication": 1024, "chwbl_enable_cache_salt": true
    }));
    assert_eq!(full, Chwbl { level: 3, flags: 255, load_factor: 300, replication: 1024, cache_salt: true });
}

#[test]
fn hosts_and_paths_are_kept_in_one_form() {
    let key = |service| take(&with(service)).key;
    assert_eq!(key(json!({"host": "::1"})).host, "[::1]");
    assert_eq!(key(json!({"host": "[FE80::1]"})).host, "[fe80::1]");
    assert_eq!(key(json!({"path_prefix": "/v1/chat"})).path_match, PathMatch::Prefix);
    assert_eq!(key(json!({"path_prefix": "/"})).path, "/");
    assert_eq!(key(json!({"path_prefix": "/a/", "path_match_mode": "exact"})).path, "/a/");
    assert_eq!(key(json!({"externalIP": "::ffff:1.2.3.4"})).vip, "1.2.3.4:8080".parse().unwrap());
    assert_eq!(key(json!({"externalIP": "::"})).vip, "[::]:8080".parse().unwrap());
    for host in ["a:80", "*.a", "http://a", ".", "a b", "ä", "[::1]:80", "[x]"] {
        assert_eq!(refuse(&with(json!({"host": host}))).member, "serviceArguments.host", "{host}");
    }
    for path in ["v1", "/a b", "/a?x=1", "/a#b", "/ä"] {
        assert_eq!(refuse(&with(json!({"path_prefix": path}))).member, "serviceArguments.path_prefix");
    }
}

#[test]
fn a_pair_says_who_does_what_and_where_its_engines_meet() {
    let mut body = with(json!({"pd_disagg_mode": true, "kvEngineType": "sglang"}));
    body["endpoints"] = json!([
        {"endpointIP": "10.0.0.1", "targetPort": 1, "ep_role": 1, "nixl_port": 9001},
        {"endpointIP": "10.0.0.2", "targetPort": 2, "ep_role": 2},
        {"endpointIP": "10.0.0.3", "targetPort": 3},
    ]);
    let rule = take(&body);
    assert_eq!(rule.disaggregation.map(|terms| terms.bootstrap_port), Some(8998));
    let ends: Vec<_> = rule.endpoints.iter().map(|e| (e.role, e.side_port)).collect();
    assert_eq!(ends, [(Role::Prefill, 9001), (Role::Decode, 2), (Role::Normal, 3)]);
    let shown = readback(&rule, &body);
    assert_eq!(shown["serviceArguments"]["pdBootstrapPort"], 8998);
    assert_eq!(take(&shown), rule);
    body["serviceArguments"]["pdBootstrapPort"] = json!(9998);
    assert_eq!(take(&body).disaggregation.map(|terms| terms.bootstrap_port), Some(9998));
}

/// Member blamed, and words that the sentence must hold.
#[test]
fn contradictions_are_refused_with_the_known_phrases() {
    let pd = |service: Value| {
        let mut body = with(service);
        body["endpoints"] = json!([
            {"endpointIP": "10.0.0.1", "targetPort": 1, "ep_role": 1},
            {"endpointIP": "10.0.0.2", "targetPort": 1, "ep_role": 2},
        ]);
        body
    };
    let encoder = |service: Value| {
        let mut body = pd(json!({"pd_disagg_mode": true}));
        for (name, value) in service.as_object().unwrap() {
            body["serviceArguments"][name] = value.clone();
        }
        body["endpoints"]
            .as_array_mut()
            .unwrap()
            .push(json!({"endpointIP": "10.0.0.3", "targetPort": 1, "ep_role": 3}));
        body
    };
    let cases = [
        (with(json!({"sel": 5, "mode": 0})), "sel", "sel=n2(5) requires mode=fullproxy"),
        (with(json!({"sel": 8, "mode": 0})), "sel", "sel=chwbl(8) requires mode=fullproxy"),
        (with(json!({"sel": 9, "mode": 2})), "sel", "sel=gpu-aware(9) requires mode=fullproxy"),
        (with(json!({"sel": 10, "mode": 1})), "sel", "sel=wrr-hash(10) requires mode=fullproxy"),
        (with(json!({"portMax": 80})), "portMax", "below port"),
        (with(json!({"portMax": 9000})), "portMax", "not in this build"),
        (
            with(json!({"pd_disagg_mode": true, "mode": 0})),
            "pd_disagg_mode",
            "pd-disagg requires mode=fullproxy",
        ),
        (with(json!({"pd_disagg_mode": true})), "pd_disagg_mode", "pd-disagg requires at least 1 prefill"),
        (pd(json!({})), "ep_role", "requires pd_disagg_mode=true"),
        (encoder(json!({"kvEngineType": "trtllm"})), "ep_role", "have no encoders"),
        (encoder(json!({"pd_disagg_mode": false})), "ep_role", "requires pd_disagg_mode=true"),
        (with(json!({"pd_connector": "mooncake"})), "pd_connector", "have one way to transfer"),
        (
            pd(json!({"pd_disagg_mode": true, "kvEngineType": "sglang", "pd_connector": "nixl"})),
            "pd_connector",
            "have one way to transfer",
        ),
        (
            pd(json!({"pd_disagg_mode": true, "pd_connector": "mooncake"})),
            "kv_engine_id",
            "has to be told the engine_id",
        ),
        (
            pd(json!({"pd_disagg_mode": true, "kvEngineType": "llamacpp"})),
            "pd_disagg_mode",
            "no cache events",
        ),
        (
            pd(json!({"pd_disagg_mode": true, "pdBootstrapPort": 9998})),
            "pdBootstrapPort",
            "pd-bootstrap-port requires",
        ),
        (
            with(json!({"pd_cache_aware_mode": true})),
            "pd_cache_aware_mode",
            "pd-cache-aware requires pd_disagg_mode=true",
        ),
        (
            pd(json!({"pd_disagg_mode": true, "kvExactMode": 3})),
            "kvExactMode",
            "kv-exact single-role mode is incompatible with pd-disagg",
        ),
        (
            with(json!({"kvExactMode": 3, "mode": 0})),
            "kvExactMode",
            "kv-exact single-role mode requires mode=fullproxy",
        ),
        (with(json!({"kvExactMode": 1})), "kvExactMode", "kv-exact zmq mode requires pd_disagg_mode=true"),
        (
            with(json!({"kvExactMode": 2, "kvEngineType": "trtllm"})),
            "kvExactMode",
            "supports kvExactMode 1 or 3",
        ),
        (with(json!({"kvEngineType": "ollama"})), "kvEngineType", "kv-engine-type must be one of"),
        (with(json!({"kvHashAlgo": "md5"})), "kvHashAlgo", "kv-hash-algo must be one of"),
        (with(json!({"kvDpRankCount": 9})), "kvDpRankCount", "kv-dp-rank-count must be within 1..8"),
        (with(json!({"kvHashAlgo": "sha256_sglang"})), "kvHashAlgo", "incompatible with kv-engine-type"),
        (with(json!({"pdBootstrapPort": 8998})), "pdBootstrapPort", "pd-bootstrap-port requires"),
        (with(json!({"kvEngineType": "trtllm", "kvZmqPort": 1})), "kvZmqPort", "meaningless"),
        (with(json!({"kvEngineType": "trtllm", "kvDpRankCount": 2})), "kvDpRankCount", "meaningless"),
        (
            with(json!({"chwbl_replication": 100})),
            "chwbl_replication",
            "CHWBL fields require mode=4 and sel=8",
        ),
        (with(json!({"sel": 4, "chwbl_prefix_hash_level": 1})), "chwbl_prefix_hash_level", "CHWBL fields"),
        (with(json!({"chwbl_prefix_hash_flags": 0})), "chwbl_prefix_hash_flags", "CHWBL fields"),
        (with(json!({"chwbl_mean_load_factor": 125})), "chwbl_mean_load_factor", "CHWBL fields"),
        (with(json!({"chwbl_enable_cache_salt": false})), "chwbl_enable_cache_salt", "CHWBL fields"),
        (with(json!({"sel": 8, "chwbl_prefix_hash_flags": 32})), "chwbl_prefix_hash_flags", "above"),
        (
            with(json!({"sel": 8, "chwbl_prefix_hash_level": 2, "chwbl_prefix_hash_flags": 64})),
            "chwbl_prefix_hash_flags",
            "above",
        ),
        (
            with(json!({"sel": 8, "chwbl_prefix_hash_flags": 1, "chwbl_enable_cache_salt": true})),
            "chwbl_enable_cache_salt",
            "cache salt requires bit 3",
        ),
        (
            with(json!({"path_prefix": "/a", "path_match_mode": "disabled"})),
            "path_match_mode",
            "not be compared",
        ),
        (with(json!({"path_match_mode": "prefix"})), "path_match_mode", "path_prefix is missing"),
        (with(json!({"path_match_mode": "exact"})), "path_match_mode", "path_prefix is missing"),
        (with(json!({"probereq": "/health"})), "probereq", "only HTTP probes"),
        (with(json!({"proberesp": "ok"})), "proberesp", "only HTTP probes"),
        (with(json!({"probetype": "http", "probereq": "health"})), "probereq", "not a path"),
        (with(json!({"id": "a/b"})), "id", "other characters"),
        (with(json!({"externalIP": "224.0.0.1"})), "externalIP", "multicast"),
    ];
    for (body, member, words) in cases {
        let fault = refuse(&body);
        let object = match (member, words) {
            ("ep_role", "have no encoders") => "endpoints[2]",
            ("ep_role" | "kv_engine_id", _) => "endpoints[0]",
            _ => "serviceArguments",
        };
        assert_eq!(fault.member, format!("{object}.{member}"), "{fault}");
        assert!(fault.message.contains(words), "{fault}");
    }
}

#[test]
fn endpoints_are_one_to_256_and_different() {
    let many = |n: u16| {
        let one = |i| json!({"endpointIP": "10.0.0.1", "targetPort": i, "weight": 1});
        json!({"serviceArguments": plain()["serviceArguments"], "endpoints": (1..=n).map(one).collect::<Vec<_>>()})
    };
    assert_eq!(take(&many(256)).endpoints.len(), 256);
    for n in [0, 257] {
        let fault = refuse(&many(n));
        assert_eq!((fault.member.as_str(), fault.status), ("endpoints", 422));
        assert!(fault.message.contains(&format!("{n} endpoints")), "{fault}");
        assert!(fault.message.len() < 250, "bounded: {fault}");
    }
    let mut twice = many(3);
    twice["endpoints"][2] = json!({"endpointIP": "::ffff:10.0.0.1", "targetPort": 1});
    let fault = refuse(&twice);
    assert_eq!((fault.member.as_str(), fault.code), ("endpoints[2].endpointIP", "duplicate_endpoint"));
    assert!(fault.message.contains("endpoints[0]"), "{fault}");
    for address in ["0.0.0.0", "::", "239.1.1.1"] {
        assert_eq!(refuse(&with_endpoint(json!({"endpointIP": address}))).code, "out_of_range");
    }
    let elsewhere = refuse(&with_endpoint(json!({"monitorAddress": "10.9.9.9"})));
    assert_eq!(elsewhere.code, "not_yet_available");
}

#[test]
fn unknown_members_are_refused_with_the_nearest_name() {
    let cases = [
        (with(json!({"PdDisaggMode": true})), "did you mean pd_disagg_mode?"),
        (with(json!({"kv_exact_mode": 3})), "did you mean kvExactMode?"),
        (with(json!({"modelname": "x"})), "did you mean model_name?"),
        (with(json!({"external_ip": "x"})), "did you mean externalIP?"),
        (with(json!({"weight": 1})), "it belongs into endpoints[]"),
        (with(json!({"colour": "red"})), "remove it"),
        (with_endpoint(json!({"wieght": 1})), "did you mean weight?"),
        (with_endpoint(json!({"model_name": "x"})), "it belongs into serviceArguments"),
    ];
    for (body, words) in cases {
        let fault = refuse(&body);
        assert_eq!((fault.status, fault.code), (400, "unknown_member"));
        assert!(fault.message.contains(words), "{fault}");
    }
    let mut body = plain();
    body["serviceargs"] = json!({});
    assert!(refuse(&body).message.starts_with("serviceargs: no member of this name"));
}

#[test]
fn other_shapes_of_a_body_are_refused() {
    for body in [json!(null), json!([]), json!("x"), json!(1), json!({}), json!({"endpoints": []})] {
        assert_eq!(refuse(&body).status, 422, "{body}");
    }
    let mut body = plain();
    body["endpoints"] = json!({"endpointIP": "10.0.0.1"});
    assert_eq!(refuse(&body).member, "endpoints");
    body["endpoints"] = json!([17]);
    assert_eq!(refuse(&body).member, "endpoints[0]");
    for extra in ["secondaryIPs", "secondaryVIPs", "allowedSources"] {
        let mut body = plain();
        body[extra] = json!([]);
        take(&body);
        body[extra] = json!([{"prefix": "10.0.0.0/8"}]);
        assert_eq!((refuse(&body).member.as_str(), refuse(&body).code), (extra, "not_in_this_build"));
    }
}

#[test]
fn annotations_are_bounded() {
    let keys = |n: usize| (0..n).map(|i| (format!("k{i}"), json!("v"))).collect::<serde_json::Map<_, _>>();
    take(&with(json!({"annotations": keys(32)})));
    take(&with(json!({"annotations": {"k": "ä".repeat(256)}})));
    for wrong in [json!(keys(33)), json!({"k": "v".repeat(257)}), json!({"k".repeat(257): "v"})] {
        assert_eq!(refuse(&with(json!({"annotations": wrong}))).code, "out_of_range");
    }
    assert_eq!(refuse(&with(json!({"annotations": {"k": 1}}))).code, "wrong_kind");
}

#[test]
fn a_sentence_names_member_value_and_cure() {
    let fault = refuse(&with_endpoint(json!({"weight": -1})));
    assert_eq!(
        fault.to_string(),
        "endpoints[0].weight is -1: out of range; use a whole number from 0 to 65535"
    );
    let fault = refuse(&with(json!({"name": "x".repeat(10_000)})));
    assert!(fault.value.len() <= 67 && fault.message.len() < 200, "{fault}");
    let fault = refuse(&with(json!({"port": null})));
    assert!(fault.message.contains("null is the wrong kind"), "{fault}");
}

#[test]
fn a_readback_may_be_posted_again() {
    let stored = with(json!({"sel": 8, "chwbl_enable_cache_salt": true, "model_name": "m"}));
    let rule = take(&stored);
    let mut shown = readback(&rule, &stored);
    assert_eq!(shown["serviceArguments"]["id"], "fresh");
    assert_eq!(shown["serviceArguments"]["chwbl_replication"], 100);
    assert_eq!(shown["serviceArguments"]["mode"], 4);
    shown["endpoints"][0]["state"] = json!("active");
    shown["endpoints"][0]["counter"] = json!("3:4");
    assert_eq!(take(&shown), rule);
    assert_eq!(readback(&rule, &shown), readback(&rule, &stored));
    let plain_rule = take(&plain());
    assert_eq!(take(&readback(&plain_rule, &plain())), plain_rule);
}

#[test]
fn selectors_and_sessions_reach_the_rule() {
    use crate::session::{SessionSource, SessionTerms, TTL_DEFAULT};
    let kept = |members| {
        let rule = take(&with(members));
        (rule.session.clone(), rule.keeps_sessions())
    };
    let terms = |source, seconds: u64| SessionTerms { source, ttl: seconds * SECOND };
    for sel in [0, 1, 2, 3, 4, 8, 9, 10] {
        assert_eq!(take(&with(json!({"sel": sel}))).selector.number(), sel);
    }
    assert_eq!(kept(json!({"sel": 0})), (None, None));
    assert_eq!(kept(json!({"sel": 3})), (Some(terms(SessionSource::ClientAddress, 300)), Some(TTL_DEFAULT)));
    let named = json!({"sel": 4, "session_header_name": "cookie:sid", "pd_session_ttl_sec": 7});
    let cookie = SessionSource::Cookie("sid".into());
    assert_eq!(kept(named), (Some(terms(cookie, 7)), Some(7 * SECOND)));
    let zero = json!({"session_header_name": "X-Thread", "pd_session_ttl_sec": 0});
    assert_eq!(kept(zero).1, Some(TTL_DEFAULT));
    for sel in [8, 9, 10] {
        let hashed = kept(json!({"sel": sel}));
        assert_eq!(hashed, (Some(terms(SessionSource::Conversation, 300)), None), "a hash needs no memory");
    }
    let fault = refuse(&with(json!({"session_header_name": "cookies:sid"}))).to_string();
    assert!(fault.contains("session_header_name") && fault.contains("cookie:NAME"), "{fault}");
}

#[test]
fn a_breaker_is_in_force_from_the_rules_first_request() {
    use crate::breaker::BreakerTerms;
    let environment = Environment { origin_errors: 7, ..Environment::default() };
    let breaker = |members| parse(&with(members), &environment, || "id".into()).unwrap().breaker;
    assert_eq!(breaker(json!({})), None);
    assert_eq!(breaker(json!({"cb_enable": true})), Some(BreakerTerms::plain(7)));
}

#[test]
fn points_shared_by_weight_must_be_enough() {
    let weighted = |weights: &[u32], points: u32| {
        let mut body = with(json!({"sel": 10, "chwbl_replication": points}));
        let endpoint =
            |(i, w): (usize, &u32)| json!({"endpointIP": "127.0.0.1", "targetPort": 9001 + i, "weight": w});
        body["endpoints"] = weights.iter().enumerate().map(endpoint).collect();
        body
    };
    take(&weighted(&[3, 0, 1], 2));
    let few = refuse(&weighted(&[3, 1, 1], 2)).to_string();
    assert!(few.contains("chwbl_replication") && few.contains("fewer points"), "{few}");
    let none = refuse(&weighted(&[0, 0], 2)).to_string();
    assert!(none.contains("at least 1 endpoint of positive weight"), "{none}");
}

#[test]
fn mooncake_pairs_meet_at_a_port_and_know_the_engine() {
    let mut body = with(json!({"pd_disagg_mode": true, "pd_connector": "mooncake", "pdBootstrapPort": 9998}));
    body["endpoints"] = json!([
        {"endpointIP": "10.0.0.1", "targetPort": 1, "ep_role": 1, "kv_engine_id": "p-1"},
        {"endpointIP": "10.0.0.2", "targetPort": 2, "ep_role": 2},
        {"endpointIP": "10.0.0.3", "targetPort": 3, "ep_role": 3},
    ]);
    let rule = take(&body);
    let terms = rule.disaggregation.expect("a rule with both roles");
    assert_eq!((terms.connector, terms.bootstrap_port), (PairConnector::Mooncake, 9998));
    assert_eq!((&*rule.endpoints[0].engine_id, rule.endpoints[2].role), ("p-1", Role::Encode));
    let shown = readback(&rule, &body);
    assert_eq!(shown["serviceArguments"]["pd_connector"], "mooncake");
    assert_eq!(shown["endpoints"][0]["kv_engine_id"], "p-1");
}
