//! Prefill and decode on different engines, over real sockets: what the simulated engines, which hold the caller to
//! their handshakes, say of the gateway, and what becomes of a request when a leg fails.

use crate::harness::*;
use serde_json::{Value, json};
use std::net::SocketAddr;
use warmpath_perf::engine::faults::{Faults, Finish, Stall};
use warmpath_perf::engine::transfer::{Pair, Role};
use warmpath_perf::engine::{Config, Handle, Kind, start};

on_both_drivers!(
    pairs_answer_as_one_engine,
    both_legs_carry_one_id_with_both_side_channels,
    long_bodies_and_long_states_are_handed_on_whole,
    what_is_no_completion_is_served_by_one_engine,
    a_refusal_of_prefill_goes_to_the_client,
    a_failing_prefill_is_passed_over_until_its_breaker_opens,
    a_prefill_that_dies_is_replaced_once,
    a_failing_leg_of_sglang_cancels_the_other,
    a_leg_that_stalls_ends_in_time,
    decode_that_dies_is_told_as_that,
    a_final_context_is_the_answer,
    a_handshake_of_the_clients_own_is_refused,
    a_normal_engine_takes_what_a_pair_can_not,
    a_conversation_stays_with_its_pair,
    a_client_that_leaves_ends_both_legs,
    pairs_are_counted,
    three_kinds_of_pairs_share_a_gateway,
    a_batch_meets_in_as_many_rooms,
    what_the_context_engine_does_not_know_it_refuses_itself,
);

const PATH: &str = "/v1/completions";

/// Engines of a rule with both roles.
struct Pool {
    kind: Kind,
    prefill: Vec<Handle>,
    decode: Vec<Handle>,
    normal: Vec<Handle>,
}

fn half(kind: Kind, role: Role) -> Handle {
    start(Config { pair: Some(Pair::of(role)), ..Config::of(kind) }).unwrap()
}

impl Pool {
    fn new(kind: Kind, prefill: usize, decode: usize) -> Pool {
        Pool {
            kind,
            prefill: (0..prefill).map(|_| half(kind, Role::Prefill)).collect(),
            decode: (0..decode).map(|_| half(kind, Role::Decode)).collect(),
            normal: Vec::new(),
        }
    }

    fn rule(&self) -> Value {
        let end = |engine: &Handle, role: u8| {
            let side = engine.door().map_or(0, |door| door.port());
            json!({"endpointIP": engine.addr.ip().to_string(), "targetPort": engine.addr.port(), "weight": 1,
                   "ep_role": role, "nixl_port": side})
        };
        let mut endpoints: Vec<Value> = self.prefill.iter().map(|engine| end(engine, 1)).collect();
        endpoints.extend(self.decode.iter().map(|engine| end(engine, 2)));
        endpoints.extend(self.normal.iter().map(|engine| end(engine, 0)));
        let mut rule = rule_with(
            free_address(),
            &[],
            json!({"pd_disagg_mode": true, "kvEngineType": self.kind.name(), "name": "pairs", "model_name": "sim",
                   "explain_header": "full"}),
        );
        if self.kind == Kind::Sglang {
            rule["serviceArguments"]["pdBootstrapPort"] = self.prefill[0].door().unwrap().port().into();
        }
        rule["endpoints"] = endpoints.into();
        rule
    }

    fn gateway(&self, driver: Driver) -> Gateway {
        Gateway::start_in(driver, &[self.rule()], &["--shards", "1"], &[])
    }

    /// Nobody broke a handshake, and nothing is kept for decode any more.
    fn assert_clean(&self) {
        for engine in self.prefill.iter().chain(&self.decode) {
            let stats = engine.stats();
            assert!(stats.pair.violations.is_empty(), "{:?}: {:?}", self.kind, stats.pair.violations);
            wait_until("no leg is left", || engine.stats().running == 0);
            assert_eq!(engine.stats().pair.held, 0, "{:?}", self.kind);
        }
    }
}

fn completion(text: &str, stream: bool) -> Value {
    json!({"model": "sim", "prompt": text, "max_tokens": 9, "stream": stream})
}

fn ask(client: &mut Client, body: &Value) -> Reply {
    client.ask(&post(PATH, &[], body.to_string().as_bytes()))
}

/// What one engine alone answers.
fn alone(kind: Kind, body: &Value) -> Value {
    let engine = start(Config::of(kind)).unwrap();
    let reply = Client::connect(engine.addr).ask(&post(PATH, &[], body.to_string().as_bytes()));
    reply.json()["choices"][0]["text"].clone()
}

fn text_of(reply: &Reply, stream: bool) -> String {
    if !stream {
        return reply.json()["choices"][0]["text"].as_str().unwrap().to_owned();
    }
    let events = reply.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "{events:?}");
    let part = |event: &String| {
        let event: Value = serde_json::from_str(event).unwrap();
        event["choices"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    events[..events.len() - 1].iter().map(part).collect()
}

const KINDS: [Kind; 3] = [Kind::Vllm, Kind::Sglang, Kind::Trtllm];

fn pairs_answer_as_one_engine(driver: Driver) {
    for kind in KINDS {
        let pool = Pool::new(kind, 1, 2);
        let gateway = pool.gateway(driver);
        let mut client = gateway.client();
        for round in 0..3 {
            for stream in [false, true] {
                let body = completion(&format!("one two three {round}"), stream);
                let reply = ask(&mut client, &body);
                assert_eq!(reply.status, 200, "{kind:?}: {:?}", String::from_utf8_lossy(&reply.body));
                let plain = alone(kind, &completion(&format!("one two three {round}"), false));
                assert_eq!(text_of(&reply, stream), plain.as_str().unwrap(), "{kind:?} {stream}");
            }
        }
        let sum = |of: fn(&Handle) -> u64| pool.decode.iter().map(of).sum::<u64>();
        assert_eq!(pool.prefill[0].stats().pair.prefills, 6, "{kind:?}");
        assert_eq!(sum(|engine| engine.stats().pair.decodes), 6, "{kind:?}");
        assert_eq!(sum(|engine| engine.stats().pair.recomputes), 0, "{kind:?}");
        assert!(pool.decode.iter().all(|engine| engine.stats().pair.decodes > 0), "in turn: {kind:?}");
        pool.assert_clean();
    }
}

fn both_legs_carry_one_id_with_both_side_channels(driver: Driver) {
    let pool = Pool::new(Kind::Vllm, 1, 1);
    let gateway = pool.gateway(driver);
    let mut client = gateway.client();
    let reply = ask(&mut client, &completion("a b c", false));
    let id = pool.prefill[0].stats().bodies.into_keys().next().unwrap();
    let side = pool.prefill[0].door().unwrap();
    let front = format!("___prefill_addr_{side}___decode_addr_{}_", pool.decode[0].addr);
    let hex = id.strip_prefix(&front).unwrap_or_else(|| panic!("{id} has not {front}"));
    assert!(hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    for engine in [&pool.prefill[0], &pool.decode[0]] {
        assert!(engine.stats().bodies.contains_key(&id), "{:?}", engine.stats().bodies.keys());
    }
    let receipt = reply.header("x-warmpath-receipt").unwrap();
    assert!(receipt.contains(&format!("prefill={}", pool.prefill[0].addr)), "{receipt}");
    assert!(receipt.contains(&format!("endpoint={}", pool.decode[0].addr)), "{receipt}");
    let told = gateway.admin("GET", &format!("/netlox/v1/config/ai/explain?id={id}"), "").json();
    let pair = &told["decisions"][0]["pair"];
    assert_eq!(
        (&pair["prefill"], &pair["phase"]),
        (&json!(pool.prefill[0].addr.to_string()), &json!("complete"))
    );
    let own = client.ask(&post(PATH, &["X-Request-Id: mine"], completion("d", false).to_string().as_bytes()));
    assert_eq!(own.status, 200);
    for engine in [&pool.prefill[0], &pool.decode[0]] {
        assert!(engine.stats().bodies.contains_key("mine"));
    }
}

fn long_bodies_and_long_states_are_handed_on_whole(driver: Driver) {
    for kind in [Kind::Vllm, Kind::Trtllm] {
        let pool = Pool::new(kind, 1, 1);
        pool.prefill[0].set_faults(Faults { pd_pad: Some(3 << 20), ..Faults::default() });
        let gateway = pool.gateway(driver);
        let mut client = gateway.client();
        let body = completion(&"word ".repeat(400_000), false);
        assert_eq!(ask(&mut client, &body).status, 200, "{kind:?}");
        assert_eq!(pool.decode[0].stats().pair.decodes, 1, "{kind:?}");
        pool.assert_clean();
    }
}

fn what_is_no_completion_is_served_by_one_engine(driver: Driver) {
    let pool = Pool::new(Kind::Vllm, 1, 1);
    let mut rule = pool.rule();
    rule["serviceArguments"]["model_name"] = "".into();
    let gateway = Gateway::start_in(driver, &[rule], &["--shards", "1"], &[]);
    let mut client = gateway.client();
    assert_eq!(client.ask(&get("/v1/models", &[])).status, 200);
    let several = json!({"model": "sim", "prompt": ["a", "b"], "max_tokens": 2});
    assert_eq!(ask(&mut client, &several).status, 200);
    assert_eq!(pool.prefill[0].stats().pair.prefills, 0);
    let refused = client.ask(&post(PATH, &[], b"{\"prompt\": "));
    assert_eq!((refused.status, refused.error_code().as_str()), (400, "invalid_json"));
}

fn a_refusal_of_prefill_goes_to_the_client(driver: Driver) {
    for kind in KINDS {
        let pool = Pool::new(kind, 1, 1);
        let gateway = pool.gateway(driver);
        pool.prefill[0].set_faults(Faults { status: Some(422), ..Faults::default() });
        let mut client = gateway.client();
        for stream in [false, true] {
            assert_eq!(ask(&mut client, &completion("a b c", stream)).status, 422, "{kind:?}");
        }
        pool.prefill[0].set_faults(Faults::default());
        assert_eq!(
            ask(&mut client, &completion("a b c", false)).status,
            200,
            "{kind:?}: breakers are neutral"
        );
    }
}

fn a_failing_prefill_is_passed_over_until_its_breaker_opens(driver: Driver) {
    for kind in [Kind::Vllm, Kind::Trtllm] {
        let pool = Pool::new(kind, 2, 1);
        let gateway = pool.gateway(driver);
        pool.prefill[0].set_faults(Faults { status: Some(500), ..Faults::default() });
        let mut client = gateway.client();
        for round in 0..12 {
            assert_eq!(ask(&mut client, &completion(&format!("a {round}"), false)).status, 200, "{kind:?}");
        }
        assert_eq!(pool.prefill[1].stats().pair.prefills, 12, "{kind:?}: nobody decoded alone");
        assert_eq!(pool.prefill[0].stats().errors, 3, "{kind:?}: none while its breaker is open");
        pool.prefill[1].set_faults(Faults { status: Some(500), ..Faults::default() });
        assert_eq!(ask(&mut client, &completion("b", false)).status, 200, "{kind:?}");
        assert_eq!(pool.decode[0].stats().pair.recomputes, 1, "{kind:?}: decode alone");
        pool.assert_clean();
    }
}

fn a_prefill_that_dies_is_replaced_once(driver: Driver) {
    for kind in [Kind::Vllm, Kind::Trtllm] {
        let pool = Pool::new(kind, 2, 1);
        let gateway = pool.gateway(driver);
        pool.prefill[0].set_faults(Faults { close_before_response: true, ..Faults::default() });
        let mut client = gateway.client();
        for round in 0..4 {
            let reply = ask(&mut client, &completion(&format!("a {round}"), true));
            assert_eq!(reply.status, 200, "{kind:?}");
            let receipt = reply.header("x-warmpath-receipt").unwrap();
            assert!(receipt.contains(&format!("prefill={}", pool.prefill[1].addr)), "{kind:?}: {receipt}");
        }
        let side = pool.prefill[1].door().unwrap_or(pool.prefill[1].addr);
        let front = format!("___prefill_addr_{side}___");
        let ids = pool.decode[0].stats().bodies.into_keys().collect::<Vec<_>>();
        assert!(ids.len() == 4 && ids.iter().all(|id| id.starts_with(&front)), "{kind:?}: {ids:?}");
        pool.prefill[1].set_faults(Faults { close_before_response: true, ..Faults::default() });
        let refused = ask(&mut client, &completion("b", false));
        assert_eq!((refused.status, refused.error_code().as_str()), (503, "pd_pool_unavailable"), "{kind:?}");
        pool.assert_clean();
    }
}

fn a_failing_leg_of_sglang_cancels_the_other(driver: Driver) {
    let pool = Pool::new(Kind::Sglang, 1, 1);
    let gateway = pool.gateway(driver);
    let mut client = gateway.client();
    pool.prefill[0].set_faults(Faults { status: Some(500), ..Faults::default() });
    let failed = ask(&mut client, &completion("a", false));
    assert_eq!((failed.status, failed.error_code().as_str()), (502, "pd_sg_prefill_failed"));
    wait_until("decode was cancelled", || pool.decode[0].stats().running == 0);
    pool.prefill[0].set_faults(Faults::default());
    pool.decode[0].set_faults(Faults { close_before_response: true, ..Faults::default() });
    let died = ask(&mut client, &completion("b", true));
    assert_eq!((died.status, died.error_code().as_str()), (502, "pd_decode_backend_died"));
    wait_until("prefill was cancelled", || pool.prefill[0].stats().running == 0);
    pool.decode[0].set_faults(Faults::default());
    assert_eq!(ask(&mut client, &completion("c", false)).status, 200);
    let names = pool.prefill.iter().chain(&pool.decode).flat_map(|engine| engine.stats().pair.violations);
    assert_eq!(names.collect::<Vec<_>>(), vec![]);
}

fn a_leg_that_stalls_ends_in_time(driver: Driver) {
    let pool = Pool::new(Kind::Vllm, 1, 1);
    let quick = [("LLB_PD_PREFILL_TIMEOUT_SEC", "1")];
    let gateway = Gateway::start_in(driver, &[pool.rule()], &["--shards", "1"], &quick);
    let mut client = gateway.client();
    pool.prefill[0].set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let late = ask(&mut client, &completion("a", false));
    assert_eq!((late.status, late.error_code().as_str()), (504, "pd_prefill_timeout"));
    pool.prefill[0].set_faults(Faults::default());
    pool.decode[0].set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let late = ask(&mut client, &completion("b", true));
    assert_eq!((late.status, late.error_code().as_str()), (504, "pd_decode_timeout"));
    wait_until("both legs are closed", || pool.decode[0].stats().running == 0);
    let in_flight = format!("warmpath_endpoint_in_flight{{endpoint=\"{}\"}} ", pool.prefill[0].addr);
    let page = String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap();
    assert!(page.contains(&format!("{in_flight}1\n")), "its blocks stay charged for the lease: {page}");
    assert!(page.contains("warmpath_pd_orphans_total 1\n"));
}

fn decode_that_dies_is_told_as_that(driver: Driver) {
    for kind in KINDS {
        let pool = Pool::new(kind, 1, 1);
        let gateway = pool.gateway(driver);
        pool.decode[0].set_faults(Faults { close_before_response: true, ..Faults::default() });
        let died = ask(&mut gateway.client(), &completion("a", false));
        assert_eq!((died.status, died.error_code().as_str()), (502, "pd_decode_backend_died"), "{kind:?}");
    }
}

fn a_final_context_is_the_answer(driver: Driver) {
    let pool = Pool::new(Kind::Trtllm, 1, 1);
    let gateway = pool.gateway(driver);
    pool.prefill[0].set_faults(Faults { pd_finish: Some(Finish::Stop), ..Faults::default() });
    let mut client = gateway.client();
    let whole = ask(&mut client, &completion("a b", false));
    assert_eq!((whole.status, &whole.json()["choices"][0]["finish_reason"]), (200, &json!("stop")));
    let stream = ask(&mut client, &completion("a b", true));
    assert_eq!(text_of(&stream, true), whole.json()["choices"][0]["text"].as_str().unwrap());
    assert_eq!(pool.decode[0].stats().pair.decodes + pool.decode[0].stats().pair.recomputes, 0);
}

fn a_handshake_of_the_clients_own_is_refused(driver: Driver) {
    for (kind, members) in [
        (Kind::Vllm, json!({"kv_transfer_params": {"do_remote_prefill": true, "remote_host": "10.0.0.1"}})),
        (Kind::Trtllm, json!({"disaggregated_params": {"request_type": "generation_only"}})),
    ] {
        let pool = Pool::new(kind, 1, 1);
        let gateway = pool.gateway(driver);
        let mut body = completion("a", false);
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        let refused = ask(&mut gateway.client(), &body);
        assert_eq!(
            (refused.status, refused.error_code().as_str()),
            (400, "pd_handshake_carried"),
            "{kind:?}"
        );
        assert_eq!(pool.prefill[0].stats().by_path.len(), 0, "{kind:?}: nothing was sent");
    }
}

fn a_normal_engine_takes_what_a_pair_can_not(driver: Driver) {
    let mut pool = Pool::new(Kind::Vllm, 1, 1);
    let mut rule = pool.rule();
    // Nobody listens where its prefill engine should be.
    let nobody: SocketAddr = free_address();
    rule["endpoints"][0]["targetPort"] = nobody.port().into();
    let gateway = Gateway::start_in(driver, &[rule.clone()], &["--shards", "1"], &[]);
    let refused = ask(&mut gateway.client(), &completion("a", false));
    assert_eq!((refused.status, refused.error_code().as_str()), (503, "pd_pool_unavailable"));
    pool.normal.push(start(Config::of(Kind::Vllm)).unwrap());
    let normal = &pool.normal[0];
    let end = json!({"endpointIP": "127.0.0.1", "targetPort": normal.addr.port(), "weight": 1, "ep_role": 0});
    rule["endpoints"].as_array_mut().unwrap().push(end);
    gateway.post_rule(&rule);
    gateway.settle();
    assert_eq!(ask(&mut gateway.client(), &completion("a", false)).status, 200);
    assert_eq!(normal.stats().finished, 1);
}

fn a_conversation_stays_with_its_pair(driver: Driver) {
    let pool = Pool::new(Kind::Vllm, 2, 2);
    let gateway = pool.gateway(driver);
    for user in ["ann", "bob", "eve"] {
        let mut body = completion("a b", false);
        body["user"] = user.into();
        let pairs: Vec<String> = (0..4)
            .map(|_| {
                let reply = ask(&mut gateway.client(), &body);
                let receipt = reply.header("x-warmpath-receipt").unwrap();
                let of = |name: &str| receipt.split(", ").find(|member| member.starts_with(name)).unwrap();
                format!("{} {}", of("prefill="), of("endpoint="))
            })
            .collect();
        assert!(pairs.iter().all(|pair| *pair == pairs[0]), "{pairs:?}");
    }
    pool.assert_clean();
}

fn a_client_that_leaves_ends_both_legs(driver: Driver) {
    for kind in KINDS {
        let pool = Pool::new(kind, 1, 1);
        let gateway = pool.gateway(driver);
        pool.decode[0].set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
        let mut client = gateway.client();
        client.send(&post(PATH, &[], completion("a b", true).to_string().as_bytes()));
        wait_until("decode works", || pool.decode[0].stats().running == 1);
        client.reset();
        for engine in pool.prefill.iter().chain(&pool.decode) {
            wait_until("its leg is closed", || engine.stats().running == 0);
        }
        wait_until("nothing is left", || gateway.sum("active") == 0);
    }
}

fn pairs_are_counted(driver: Driver) {
    let pool = Pool::new(Kind::Vllm, 1, 1);
    let gateway = pool.gateway(driver);
    let mut client = gateway.client();
    for round in 0..3 {
        ask(&mut client, &completion(&format!("a {round}"), true));
    }
    pool.prefill[0].set_faults(Faults { pd_hand_nothing: true, ..Faults::default() });
    ask(&mut client, &completion("b", true));
    pool.prefill[0].set_faults(Faults { status: Some(400), ..Faults::default() });
    ask(&mut client, &completion("c", true));
    gateway.settle();
    let page = String::from_utf8(gateway.admin("GET", "/netlox/v1/metrics", "").body).unwrap();
    for line in [
        "loxilb_ai_pd_requests_total{model=\"sim\",phase=\"complete\",status=\"success\"} 4",
        "loxilb_ai_pd_requests_total{model=\"sim\",phase=\"prefill\",status=\"rejected\"} 1",
        "loxilb_ai_pd_prefill_duration_seconds_count{model=\"sim\"} 5",
        "loxilb_ai_pd_decode_ttft_seconds_count{model=\"sim\"} 4",
        "loxilb_ai_pd_kv_params_found_total{model=\"sim\"} 3",
        "loxilb_ai_pd_kv_params_missing_total{model=\"sim\"} 1",
        "loxilb_pd_sg_prefill_reject_relay_total 1",
        "warmpath_pd_orphans_total 0",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} is not in {page}");
    }
}

fn three_kinds_of_pairs_share_a_gateway(driver: Driver) {
    let pools = KINDS.map(|kind| Pool::new(kind, 1, 1));
    let rules: Vec<Value> = pools.iter().map(|pool| named(pool, pool.kind.name())).collect();
    let gateway = Gateway::start_in(driver, &rules, &["--shards", "1"], &[]);
    for (pool, rule) in pools.iter().zip(&rules) {
        let at =
            SocketAddr::new([127, 0, 0, 1].into(), rule["serviceArguments"]["port"].as_u64().unwrap() as u16);
        let mut client = Client::connect(at);
        for stream in [false, true] {
            assert_eq!(ask(&mut client, &completion("a b", stream)).status, 200, "{:?}", pool.kind);
        }
        assert_eq!(pool.decode[0].stats().pair.decodes, 2, "{:?}", pool.kind);
        pool.assert_clean();
    }
    drop(gateway);
}

fn named(pool: &Pool, name: &str) -> Value {
    let mut rule = pool.rule();
    rule["serviceArguments"]["name"] = name.into();
    rule
}

fn a_batch_meets_in_as_many_rooms(driver: Driver) {
    let pool = Pool::new(Kind::Sglang, 1, 1);
    let gateway = pool.gateway(driver);
    let body = json!({"model": "sim", "prompt": ["a b", "c d", "e f"], "max_tokens": 4});
    assert_eq!(ask(&mut gateway.client(), &body).status, 200);
    assert_eq!(pool.prefill[0].stats().pair.blocks_sent, pool.decode[0].stats().pair.blocks_received);
    assert!(pool.decode[0].stats().pair.blocks_received >= 3);
    pool.assert_clean();
}

fn what_the_context_engine_does_not_know_it_refuses_itself(driver: Driver) {
    let pool = Pool::new(Kind::Trtllm, 1, 1);
    let gateway = pool.gateway(driver);
    let mut body = completion("a", false);
    body["kv_transfer_params"] = json!({"do_remote_decode": true});
    let refused = ask(&mut gateway.client(), &body);
    assert!(refused.status == 400 && String::from_utf8_lossy(&refused.body).contains("kv_transfer_params"));
    assert_eq!(pool.decode[0].stats().executions.total, 0);
}
