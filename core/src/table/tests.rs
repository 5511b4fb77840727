//! Which pool serves a request, what survives a change of rules, and whom a decision may see.

use super::*;
use crate::environment::Environment;
use crate::rule::body;
use serde_json::{Value, json};

/// A rule named `name` with the given members.
fn rule(name: &str, members: Value, ports: &[u16]) -> Rule {
    let mut arguments = json!({"externalIP": "127.0.0.1", "port": 80, "name": name});
    for (member, value) in members.as_object().unwrap() {
        arguments[member] = value.clone();
    }
    let endpoint = |p: &u16| json!({"endpointIP": "127.0.0.1", "targetPort": p, "weight": 1});
    let endpoints: Vec<Value> = ports.iter().map(endpoint).collect();
    let body = json!({"serviceArguments": arguments, "endpoints": endpoints});
    body::parse(&body, &Environment::default(), || name.into()).unwrap_or_else(|fault| panic!("{fault}"))
}

fn table(rules: Vec<Rule>) -> Table {
    Table::next(&Table::default(), rules, &mut 0, 0)
}

fn names(rules: &[(&str, Value)]) -> Table {
    table(rules.iter().map(|(name, members)| rule(name, members.clone(), &[9000])).collect())
}

fn ask<'a>(table: &'a Table, host: &str, path: &str, model: &str) -> Result<&'a str, NoRoute> {
    let found = table.vips[0].route(host.as_bytes(), path.as_bytes(), model.as_bytes());
    found.map(|service| service.rule.name.as_str())
}

#[test]
fn the_longest_path_of_whole_segments_wins() {
    let rules = [
        ("any", json!({})),
        ("root", json!({"path_prefix": "/"})),
        ("v1", json!({"path_prefix": "/v1"})),
        ("chat", json!({"path_prefix": "/v1/chat/"})),
        ("exact", json!({"path_prefix": "/v1/chat", "path_match_mode": "exact"})),
    ];
    let cases = [
        ("/v1/chat/completions", "chat"),
        ("/v1/chat/", "chat"),
        ("/v1/chat", "exact"),
        ("/v1/chatty", "v1"),
        ("/v1", "v1"),
        ("/v1/", "v1"),
        ("/v10", "root"),
        ("/V1", "root"),
        ("/", "root"),
        ("*", "any"),
        ("", "root"),
    ];
    let mut reversed = rules.clone();
    reversed.reverse();
    for table in [names(&rules), names(&reversed)] {
        for (path, expected) in cases {
            assert_eq!(ask(&table, "h", path, ""), Ok(expected), "{path}");
            assert_eq!(ask(&table, "h", path, "unknown"), Ok(expected), "{path}");
        }
    }
    assert_eq!(ask(&names(&rules[2..]), "h", "/v2", ""), Err(NoRoute::NoRoute));
    assert_eq!(ask(&names(&rules[2..]), "h", "/v2", "m"), Err(NoRoute::NoRoute));
}

#[test]
fn models_are_compared_to_the_letter_and_fall_back_to_the_pool_of_every_model() {
    let qwen = ("qwen", json!({"model_name": "Qwen/Qwen3-0.6B"}));
    let llama = ("llama", json!({"model_name": "llama"}));
    let every = names(&[("every", json!({})), qwen.clone(), llama.clone()]);
    assert_eq!(ask(&every, "h", "/v1", "Qwen/Qwen3-0.6B"), Ok("qwen"));
    assert_eq!(ask(&every, "h", "/v1", "llama"), Ok("llama"));
    for other in ["qwen/qwen3-0.6b", "Qwen/Qwen3-0.6B ", "Qwen/Qwen3", "", "a/b/c"] {
        assert_eq!(ask(&every, "h", "/v1", other), Ok("every"), "{other}");
    }
    assert!(every.vips[0].by_model);
    assert_eq!(every.vips[0].models().collect::<Vec<_>>().len(), 2);
    let named = names(&[qwen, llama]);
    assert_eq!(ask(&named, "h", "/v1", "other"), Err(NoRoute::ModelUnavailable));
    assert_eq!(ask(&named, "h", "/v1", ""), Err(NoRoute::NoRoute));
    assert!(!names(&[("every", json!({}))]).vips[0].by_model);
}

#[test]
fn a_pool_of_the_model_beats_a_longer_path_of_every_model() {
    let table = names(&[
        ("model", json!({"model_name": "m"})),
        ("model-v1", json!({"model_name": "m", "path_prefix": "/v1"})),
        ("chat", json!({"path_prefix": "/v1/chat"})),
    ]);
    assert_eq!(ask(&table, "h", "/v1/chat", "m"), Ok("model-v1"));
    assert_eq!(ask(&table, "h", "/other", "m"), Ok("model"));
    assert_eq!(ask(&table, "h", "/v1/chat", "x"), Ok("chat"));
    assert_eq!(ask(&table, "h", "/v1", "x"), Err(NoRoute::ModelUnavailable));
}

#[test]
fn a_hosts_own_rules_come_first_and_any_host_is_the_last_resort() {
    let table = names(&[
        ("any-m", json!({"model_name": "m"})),
        ("any", json!({})),
        ("a", json!({"host": "a.example"})),
        ("a-n", json!({"host": "A.example", "model_name": "n"})),
        ("v6", json!({"host": "fe80:0::1", "model_name": "six"})),
        ("v4", json!({"host": "10.10.10.254"})),
    ]);
    let cases = [
        ("a.example", "", "a"),
        ("A.EXAMPLE:8080", "", "a"),
        ("a.example.", "", "a"),
        ("a.example.:80", "", "a"),
        ("a.example", "n", "a-n"),
        ("a.example", "m", "a"),
        ("xa.example", "m", "any-m"),
        ("a.example.org", "", "any"),
        ("", "", "any"),
        (":80", "m", "any-m"),
        ("[fe80::1]", "six", "v6"),
        ("[FE80::1]:443", "six", "v6"),
        ("[fe80:0:0:0:0:0:0:1]:443", "six", "v6"),
        ("[fe80::2]", "six", "any"),
        ("[fe80::1", "six", "any"),
        ("fe80::1", "six", "any"),
        ("10.10.10.254:2020", "", "v4"),
        ("10.10.10.2", "", "any"),
    ];
    for (host, model, expected) in cases {
        assert_eq!(ask(&table, host, "/", model), Ok(expected), "{host} {model}");
    }
    assert_eq!(table.vips[0].route(b"\xff\xfe", b"\xff", b"\xff").unwrap().rule.name, "any");
}

#[test]
fn rules_switched_off_are_as_good_as_absent() {
    let off = json!({"adminStateUp": false, "model_name": "m"});
    let table = names(&[("off", off.clone()), ("every", json!({}))]);
    assert_eq!(ask(&table, "h", "/", "m"), Ok("every"));
    assert_eq!((table.vips[0].by_model, table.vips[0].models().count()), (false, 0));
    let table = names(&[("off", off)]);
    assert_eq!(ask(&table, "h", "/", "m"), Err(NoRoute::NoRules));
    let empty = Vip { address: "127.0.0.1:80".parse().unwrap(), services: Vec::new(), by_model: false };
    assert_eq!(empty.route(b"h", b"/", b"").unwrap_err(), NoRoute::NoRules);
}

#[test]
fn vips_are_apart() {
    let table = table(vec![
        rule("a", json!({}), &[1]),
        rule("b", json!({"port": 81}), &[1]),
        rule("c", json!({"externalIP": "::1"}), &[1]),
    ]);
    let addresses: Vec<String> = table.vips.iter().map(|v| v.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:80", "127.0.0.1:81", "[::1]:80"]);
    let found = table.vip("[::1]:80".parse().unwrap()).unwrap();
    assert_eq!(found.services[0].rule.name, "c");
    assert!(table.vip("127.0.0.1:82".parse().unwrap()).is_none());
}

#[test]
fn numbers_and_states_survive_a_change() {
    let mut last = 0;
    let model = |name: &str| json!({"model_name": name});
    let rules = vec![rule("a", model("a"), &[1, 2, 3]), rule("b", model("b"), &[2])];
    let first = Table::next(&Table::default(), rules, &mut last, 0);
    let a = first.vips[0].route(b"", b"/", b"a").unwrap();
    let b = first.vips[0].route(b"", b"/", b"b").unwrap();
    assert_eq!((a.number, b.number, first.generation), (1, 2, 1));
    assert!(Arc::ptr_eq(&a.endpoints[1], &b.endpoints[0]), "one state for each address");
    a.endpoints[1].reserve(9);

    let rules =
        vec![rule("c", model("c"), &[7]), rule("a", model("a"), &[3, 4, 2]), rule("b", model("b"), &[2])];
    let second = Table::next(&first, rules, &mut last, 0);
    let changed = second.vips[0].route(b"", b"/", b"a").unwrap();
    assert_eq!((changed.number, second.generation), (1, 2));
    assert!(!Arc::ptr_eq(changed, a));
    let ports: Vec<u16> = changed.endpoints.iter().map(|e| e.address().port()).collect();
    assert_eq!(ports, [3, 4, 2], "the operator's order");
    assert!(Arc::ptr_eq(&changed.endpoints[2], &a.endpoints[1]));
    assert_eq!(changed.endpoints[2].reserved(), 1);
    assert!(Arc::ptr_eq(second.vips[0].route(b"", b"/", b"b").unwrap(), b), "an unchanged rule is untouched");
    assert_eq!(second.vips[0].route(b"", b"/", b"c").unwrap().number, 3);

    let third = Table::next(&second, vec![rule("b", model("b"), &[2])], &mut last, 0);
    let fourth = Table::next(&third, vec![rule("a", model("a"), &[1])], &mut last, 0);
    assert_eq!(fourth.vips[0].services[0].number, 4, "numbers are never used twice");
    assert_eq!(fourth.vips[0].services.len(), 1);
}

fn seen(service: &Service, now: Nanos) -> Vec<bool> {
    let mut view = vec![EndpointView {
        available: true,
        load: 9,
        queued: None,
        capacity: None,
        weight: 9,
        backup: true,
    }];
    service.view(now, &mut view);
    view.iter().map(|e| e.available).collect()
}

#[test]
fn probes_alone_never_take_the_last_endpoint() {
    let table = table(vec![rule("a", json!({}), &[1, 2, 3])]);
    let service = &table.vips[0].services[0];
    service.endpoints[0].set_probed_down(true);
    service.endpoints[1].set_probed_down(true);
    assert_eq!(seen(service, 0), [false, false, true]);
    service.endpoints[2].set_probed_down(true);
    assert_eq!(seen(service, 0), [true, true, true], "not believed");
    for _ in 0..crate::shared::CONNECT_FAILURES_MAX {
        service.endpoints[1].connect_failed(0);
    }
    assert_eq!(seen(service, 0), [true, false, true], "failed connections are believed");
    for endpoint in &service.endpoints {
        for _ in 0..crate::shared::CONNECT_FAILURES_MAX {
            endpoint.connect_failed(0);
        }
    }
    assert_eq!(seen(service, 0), [false, false, false]);
    assert_eq!(seen(service, crate::shared::EJECTION), [true, true, true]);
}

#[test]
fn a_view_tells_load_weight_and_backup() {
    let body = json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 80},
        "endpoints": [
            {"endpointIP": "10.0.0.1", "targetPort": 1, "weight": 0},
            {"endpointIP": "10.0.0.2", "targetPort": 1, "weight": 7, "backup": true},
        ]
    });
    let table = table(vec![body::parse(&body, &Environment::default(), String::new).unwrap()]);
    let service = &table.vips[0].services[0];
    service.endpoints[1].reserve(5);
    let mut view = Vec::new();
    service.view(0, &mut view);
    assert_eq!(
        view[0],
        EndpointView { available: false, load: 0, queued: None, capacity: None, weight: 0, backup: false }
    );
    assert_eq!(
        view[1],
        EndpointView { available: true, load: 1, queued: None, capacity: None, weight: 7, backup: true }
    );
    service.endpoints[1].set_probed_down(true);
    service.view(0, &mut view);
    assert!(!view[0].available && view[1].available, "drained stays drained");
}

/// What was told longer ago than the rule says is as good as not told; rules that don't read loads see none.
#[test]
fn loads_are_seen_by_rules_that_read_them() {
    use crate::engine::telemetry::Load;
    let (at, stale) = (100 * crate::SECOND, 7 * crate::SECOND);
    let load = |waiting| Load { waiting, capacity_blocks: Some(waiting * 2), ..Load::default() };
    for (selector, expected) in [(9, [Some(4), None, Some(100), None, Some(10)]), (4, [None; 5])] {
        let members = json!({"sel": selector, "fc_telemetry_stale_ms": 7000});
        let table = table(vec![rule("r", members, &[1, 2, 3, 4, 5])]);
        let service = &table.vips[0].services[0];
        let tell = |index: usize, load, at| service.endpoints[index].load().tell(load, at);
        tell(0, load(4), at);
        tell(1, load(9), at - stale - 1);
        tell(2, load(100), at);
        service.endpoints[2].set_probed_down(true);
        tell(4, load(10), at - stale);
        let mut view = Vec::new();
        service.view(at, &mut view);
        let queued: Vec<Option<u32>> = view.iter().map(|endpoint| endpoint.queued).collect();
        assert_eq!(queued, expected);
        let blocks: Vec<Option<u32>> = view.iter().map(|endpoint| endpoint.capacity).collect();
        assert_eq!(blocks, expected.map(|told| told.map(|told| told * 2)));
    }
}

/// Nobody who is drained gets a request, not even where nobody else is left; its gate counts on it no more.
#[test]
fn a_drained_endpoint_is_out_whatever_else_is_down() {
    let table = table(vec![rule("a", json!({"fc_mode": "enforce", "fc_ep_max_inflight": 4}), &[1, 2])]);
    let service = &table.vips[0].services[0];
    let ceiling = || service.open(0).full(&service.rule.gate);
    assert_eq!(ceiling(), Some(8));
    service.endpoints[0].set_drained(true);
    assert_eq!((seen(service, 0), ceiling()), (vec![false, true], Some(4)));
    service.endpoints[1].set_probed_down(true);
    assert_eq!(seen(service, 0), [false, true], "probes are not believed, the operator is");
    service.endpoints[1].set_drained(true);
    assert_eq!(seen(service, 0), [false, false]);
    (0..4).for_each(|_| assert!(service.endpoints[0].reserve(9)));
    assert!(!service.is_full(), "one that is drained is not full");
    service.endpoints[0].set_drained(false);
    assert_eq!((seen(service, 0), service.is_full()), (vec![true, false], true));
}

/// An endpoint that a rule goes on naming keeps what its answers proved; under other terms it has to begin anew.
#[test]
fn trust_is_kept_with_the_source() {
    use crate::trust::{Class, Finding, State};
    let exact = |name, block_size| {
        rule(name, json!({"kvExactMode": 3, "kvEngineType": "sglang", "kvBlockSize": block_size}), &[9000])
    };
    let mut next = 0;
    let first = Table::next(&Table::default(), vec![exact("a", 16)], &mut next, 0);
    let trust = |table: &Table| table.services().next().unwrap().exact.as_ref().unwrap().trust[0].clone();
    trust(&first).judged(Class::default(), Finding::Agrees);
    let second = Table::next(&first, vec![exact("renamed", 16)], &mut next, 0);
    assert_eq!(trust(&second).state(), State::Trusted);
    let third = Table::next(&second, vec![exact("a", 32)], &mut next, 0);
    assert_eq!(trust(&third).state(), State::Unknown);
}

/// Breakers are believed where no other endpoint is left, and a reservation beside the trial is refused.
#[test]
fn an_open_breaker_keeps_an_endpoint_out_and_one_reservation_is_its_trial() {
    let table = table(vec![
        rule("a", json!({"cb_enable": true}), &[1, 2]),
        rule("b", json!({"model_name": "b"}), &[1]),
    ]);
    let service = table.services().find(|s| s.rule.breaker.is_some()).unwrap();
    let other = table.services().find(|s| s.rule.breaker.is_none()).unwrap();
    let terms = service.rule.breaker.unwrap();
    assert_eq!(terms, crate::breaker::BreakerTerms::plain(3));
    for _ in 0..terms.failures {
        service.endpoints[0].breaker().ended(crate::breaker::Outcome::Unanswered, terms, 0);
    }
    assert_eq!((seen(service, 0), seen(other, 0)), (vec![false, true], vec![true]));
    service.endpoints[1].set_probed_down(true);
    assert_eq!(seen(service, 0), [false, true], "probes are not believed, breakers are");
    assert_eq!(service.reserve(0, u32::MAX, 0), None);
    assert_eq!(service.endpoints[0].reserved(), 0, "what is refused is not charged");
    assert!(
        service.reserve(1, 1, 0).is_some()
            && service.reserve(1, 1, 0).is_none()
            && service.reserve(9, 1, 0).is_none()
    );
    let trial = Reserved::OnTrial(crate::shared::Trial { first: true });
    assert_eq!(
        (seen(service, terms.open), service.reserve(0, u32::MAX, terms.open)),
        (vec![true, false], Some(trial))
    );
    assert_eq!(
        (seen(service, terms.open), service.reserve(0, u32::MAX, terms.open)),
        (vec![false, true], None)
    );
    assert_eq!(other.reserve(0, u32::MAX, terms.open), Some(Reserved::Plainly));
}

/// A rule whose requests are served by pairs: its first two endpoints are for prefill, the others for decode.
fn paired() -> (Table, Excluded) {
    use crate::rule::CacheAware;
    let members = json!({
        "pd_disagg_mode": true, "pd_cache_aware_mode": true, "pd_session_ttl_sec": 0, "pd_balance_abs_threshold": 5
    });
    let mut arguments = json!({"externalIP": "127.0.0.1", "port": 80});
    members.as_object().unwrap().iter().for_each(|(name, value)| arguments[name] = value.clone());
    let endpoint = |(port, role)| json!({"endpointIP": "127.0.0.1", "targetPort": port, "ep_role": role});
    let endpoints: Vec<Value> = [(1, 1), (2, 1), (3, 2), (4, 2)].into_iter().map(endpoint).collect();
    let body = json!({"serviceArguments": arguments, "endpoints": endpoints});
    let rule = body::parse(&body, &Environment::default(), || "id".into()).unwrap();
    assert_eq!(rule.cache_aware, Some(CacheAware { threshold: 20, balance: 5 }));
    assert_eq!(
        (rule.keeps_sessions(), rule.breaker.map(|b| b.failures)),
        (Some(300 * crate::SECOND), Some(3))
    );
    let mut not_prefill = Excluded::default();
    [2, 3].into_iter().for_each(|i| not_prefill.add(i));
    (table(vec![rule]), not_prefill)
}

#[test]
fn a_pair_is_pinned_together_and_forgotten_with_its_prefill() {
    let (table, _) = paired();
    let service = &table.vips[0].services[0];
    let view = |now| {
        let mut view = Vec::new();
        service.view(now, &mut view);
        view
    };
    let ask = |now| service.pinned_pair(Some(7), &view(now), Excluded::default(), now);
    assert_eq!(ask(0), None);
    service.pin_pair(Some(7), 1, 2, 0);
    assert_eq!(
        (ask(9), service.pinned_pair(None, &view(9), Excluded::default(), 9)),
        (Some((1, Some(2))), None)
    );
    let terms = service.rule.breaker.unwrap();
    let open = |endpoint: usize| {
        for _ in 0..terms.failures {
            service.endpoints[endpoint].breaker().ended(crate::breaker::Outcome::Unanswered, terms, 0);
        }
    };
    open(2);
    assert_eq!(ask(9), Some((1, None)), "another one answers");
    open(1);
    assert_eq!(ask(9), None);
    assert_eq!((ask(9), table.sessions().unwrap().active(9)), (None, 0), "it is forgotten");
}

#[test]
fn beginnings_are_known_by_who_was_sent_them_until_its_cache_is_lost() {
    let (table, not_prefill) = paired();
    let service = &table.vips[0].services[0];
    let mut view = Vec::new();
    service.view(0, &mut view);
    let path = |text: &str| {
        let mut path = PrefixPath::default();
        path.fill(1, text.as_bytes());
        path
    };
    let (first, second) = (path(&"a".repeat(640)), path(&("a".repeat(320) + &"b".repeat(1280))));
    service.sent(&first, 1, 0);
    let known = |bytes, of| Some(Known { endpoint: 1, bytes, of });
    assert_eq!(service.known(&first, &view, not_prefill, 1), known(640, 640));
    assert_eq!(service.known(&second, &view, not_prefill, 1), known(320, 1600));
    service.sent(&second, 2, 1);
    assert_eq!(service.known(&second, &view, not_prefill, 2), known(320, 1600), "2 does not compute prompts");
    let terms = service.rule.breaker.unwrap();
    for _ in 0..terms.failures {
        service.endpoints[1].breaker().ended(crate::breaker::Outcome::Unanswered, terms, 0);
    }
    let trial = service.reserve(1, 9, terms.open);
    assert!(matches!(trial, Some(Reserved::OnTrial(_))));
    service.endpoints[1].breaker().trial_ended(crate::breaker::Outcome::Answered, terms, terms.open);
    assert_eq!(service.known(&first, &view, not_prefill, terms.open), None, "it may have started anew");
    assert!(table.trie().unwrap().nodes(2) > 0);
}

/// Sessions and the trie are made with the first rule that asks for them, shared by all, and kept through changes.
#[test]
fn sessions_and_trie_belong_to_the_gateway() {
    let (before, _) = paired();
    assert!(table(vec![rule("a", json!({}), &[1])]).sessions().is_none());
    let mut rules = vec![before.vips[0].services[0].rule.clone()];
    rules.push(rule("b", json!({"sel": 3, "model_name": "m"}), &[1]));
    rules[0].endpoints.reverse();
    let after = Table::next(&before, rules, &mut 9, 0);
    let shared: Vec<_> = after.services().map(|service| service.sessions.clone().unwrap()).collect();
    assert!(shared.iter().all(|own| Arc::ptr_eq(own, &shared[0])));
    assert!(std::ptr::eq(before.sessions().unwrap(), after.sessions().unwrap()));
    assert!(std::ptr::eq(before.trie().unwrap(), after.trie().unwrap()));
}
