//! Simulated prefill and decode engines, told what a careless gateway would tell them: each rule of each handshake, by
//! the name under which its violation is counted, and how the engine answers.

mod peer;

use std::net::SocketAddr;
use std::time::Duration;

use peer::Peer;
use serde_json::{Value, json};
use warmpath_perf::engine::faults::{Door, Faults, Finish, Stall};
use warmpath_perf::engine::transfer::{Connector, Pair, Role};
use warmpath_perf::engine::version::Version;
use warmpath_perf::engine::{self, Config, Handle, Kind};

const COMPLETIONS: &str = "/v1/completions";

fn half(kind: Kind, pair: Pair) -> Handle {
    engine::start(Config { pair: Some(pair), ..Config::of(kind) }).expect("a half starts")
}

fn halves(kind: Kind) -> (Handle, Handle) {
    (half(kind, Pair::of(Role::Prefill)), half(kind, Pair::of(Role::Decode)))
}

/// Status and answer.
fn ask(engine: &Handle, body: &Value) -> (u16, Value) {
    let response = Peer::connect(engine.addr).post(COMPLETIONS, &body.to_string());
    (response.status, response.json())
}

fn violations(engine: &Handle) -> Vec<(&'static str, u64)> {
    engine.stats().pair.violations.into_iter().collect()
}

/// `body` with members changed; null removes nothing.
fn with(body: &Value, members: Value) -> Value {
    let mut body = body.clone();
    for (name, value) in members.as_object().expect("members") {
        body[name] = value.clone();
    }
    body
}

fn vllm_prefill() -> Value {
    json!({"prompt": "one two three", "max_tokens": 1,
        "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false}})
}

/// What an engine alone would have answered.
fn alone(kind: Kind, body: &Value) -> Value {
    let engine = engine::start(Config::of(kind)).expect("an engine");
    ask(&engine, body).1["choices"][0]["text"].clone()
}

#[test]
fn vllm_hands_blocks_over_once() {
    let (prefill, decode) = halves(Kind::Vllm);
    let (status, answer) = ask(&prefill, &vllm_prefill());
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let params = &answer["kv_transfer_params"];
    assert_eq!(params["remote_port"], prefill.door().expect("a door").port());
    assert_eq!(prefill.stats().pair.held, 1);
    let plain = json!({"prompt": "one two three", "max_tokens": 9});
    let body = with(&plain, json!({"kv_transfer_params": params}));
    let (status, answer) = ask(&decode, &body);
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["text"], alone(Kind::Vllm, &plain));
    let (sent, received) = (prefill.stats().pair, decode.stats().pair);
    assert_eq!((sent.prefills, sent.blocks_sent, sent.held), (1, 1, 0));
    assert_eq!((received.decodes, received.blocks_received, received.recomputes), (1, 1, 0));
    assert_eq!((violations(&prefill), violations(&decode)), (vec![], vec![]));
    // Its blocks are freed: another request would read what is somebody else's by now.
    assert_eq!(ask(&decode, &body).0, 500);
    assert_eq!(violations(&decode), [("stale_handle", 1)]);
}

/// An answer's `cached_tokens`.
fn cached(answer: &Value) -> &Value {
    &answer["usage"]["prompt_tokens_details"]["cached_tokens"]
}

/// Decode has the whole prompt from prefill. Since 0.32 it tells what prefill had of it instead.
#[test]
fn vllm_decode_tells_what_prefill_had_cached() {
    let prompt = "one two three ".repeat(60);
    for (version, told) in [("0.28.0", None), ("0.32.0", Some([0, 1]))] {
        let begin = |role| {
            let config = Config { version: Some(Version::new(version)), ..Config::of(Kind::Vllm) };
            engine::start(Config { pair: Some(Pair::of(role)), ..config }).expect("a half starts")
        };
        let (prefill, decode) = (begin(Role::Prefill), begin(Role::Decode));
        for turn in 0..2 {
            let first = ask(&prefill, &with(&vllm_prefill(), json!({"prompt": prompt}))).1;
            let params = &first["kv_transfer_params"];
            let body = json!({"prompt": prompt, "max_tokens": 9, "kv_transfer_params": params});
            let last = ask(&decode, &body).1;
            match told {
                None => assert_eq!(cached(&last), &last["usage"]["prompt_tokens"]),
                Some(warm) => {
                    assert_eq!(cached(&first), cached(&last));
                    assert_eq!(cached(&last).as_u64().map(|tokens| tokens.min(1)), Some(warm[turn]));
                }
            }
        }
    }
}

/// `kv_transfer_params` have the members, of the kinds, that a real answer had.
#[test]
fn vllm_hands_over_what_the_real_engine_does() {
    let capture: Value = serde_json::from_str(include_str!("captures/vllm-0.32.0-nixl.json")).expect("JSON");
    let config = Config { version: Some(Version::new("0.32.0")), ..Config::of(Kind::Vllm) };
    let prefill =
        engine::start(Config { pair: Some(Pair::of(Role::Prefill)), ..config }).expect("a half starts");
    let params = ask(&prefill, &vllm_prefill()).1["kv_transfer_params"].take();
    let members = |value: &Value| -> Vec<(String, std::mem::Discriminant<Value>)> {
        let members = value.as_object().expect("members").iter();
        let mut members: Vec<_> = members.map(|(k, v)| (k.clone(), std::mem::discriminant(v))).collect();
        members.sort_by(|left, right| left.0.cmp(&right.0));
        members
    };
    assert_eq!(members(&params), members(&capture["kv_transfer_params"]));
}

#[test]
fn vllm_counts_what_a_caller_of_prefill_does_wrong() {
    let both = json!({"kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": true}});
    for (members, violation, status) in [
        (json!({"kv_transfer_params": null}), "missing_params", 200),
        (json!({"kv_transfer_params": {}}), "missing_params", 200),
        (json!({"kv_transfer_params": {"do_remote_prefill": true}}), "wrong_role", 200),
        (both, "both_directions", 200),
        (json!({"kv_transfer_params": "x"}), "params_not_object", 400),
        (json!({"max_tokens": 5}), "not_one_token", 200),
        (json!({"min_tokens": 5}), "bounds", 400),
        (json!({"stream_options": {"include_usage": true}}), "bounds", 400),
        (json!({"prompt": ["a", "b"]}), "several_prompts", 200),
    ] {
        let (prefill, _) = halves(Kind::Vllm);
        assert_eq!(ask(&prefill, &with(&vllm_prefill(), members)).0, status, "{violation}");
        assert_eq!(violations(&prefill), [(violation, 1)]);
    }
    let (prefill, _) = halves(Kind::Vllm);
    let streamed = with(&vllm_prefill(), json!({"stream": true})).to_string();
    assert_eq!(Peer::connect(prefill.addr).post(COMPLETIONS, &streamed).status, 200);
    assert_eq!(violations(&prefill), [("streamed_prefill", 1)]);
}

#[test]
fn vllm_decode_knows_a_wrong_handle() {
    let (prefill, decode) = halves(Kind::Vllm);
    let body =
        |params: &Value| json!({"prompt": "one two three", "max_tokens": 4, "kv_transfer_params": params});
    let params = ask(&prefill, &vllm_prefill()).1["kv_transfer_params"].clone();
    for (members, status, violation) in [
        (json!({"remote_request_id": "x"}), 500, Some("unknown_handle")),
        (json!({"remote_engine_id": "x"}), 500, Some("unknown_handle")),
        (json!({"remote_host": null}), 200, Some("missing_member")),
        (json!({"remote_block_ids": null}), 200, Some("missing_member")),
        (json!({"remote_port": 1}), 500, None),
        (json!({"do_remote_decode": true, "do_remote_prefill": false}), 200, Some("wrong_role")),
    ] {
        let before = violations(&decode);
        assert_eq!(ask(&decode, &body(&with(&params, members.clone()))).0, status, "{members}");
        let after = violations(&decode);
        let count = |list: &[(&str, u64)], name| list.iter().find(|(n, _)| *n == name).map_or(0, |(_, c)| *c);
        match violation {
            Some(name) => assert_eq!(count(&after, name), count(&before, name) + 1, "{members}"),
            None => assert_eq!(after, before, "{members}"),
        }
    }
    let other = with(&body(&params), json!({"prompt": "four five"}));
    assert_eq!(ask(&decode, &other).0, 500);
    assert!(violations(&decode).contains(&("other_prompt", 1)));
    // A decode engine that is given nothing computes the prompt.
    assert_eq!(ask(&decode, &json!({"prompt": "a"})).0, 200);
    assert_eq!(decode.stats().pair.recomputes, 4);
    // A new process knows nothing of the old one's blocks.
    let params = ask(&prefill, &vllm_prefill()).1["kv_transfer_params"].clone();
    prefill.restart(true);
    assert_eq!(ask(&decode, &body(&params)).0, 500);
}

#[test]
fn a_lease_ends() {
    let prefill = half(Kind::Vllm, Pair { lease: Duration::ZERO, ..Pair::of(Role::Prefill) });
    let decode = half(Kind::Vllm, Pair::of(Role::Decode));
    let params = ask(&prefill, &vllm_prefill()).1["kv_transfer_params"].clone();
    assert_eq!((prefill.stats().pair.held, prefill.stats().pair.orphans), (0, 1));
    assert_eq!(ask(&decode, &json!({"prompt": "one two three", "kv_transfer_params": params})).0, 500);
    assert_eq!(violations(&decode), [("stale_handle", 1)]);
}

#[test]
fn every_step_can_fail() {
    let (prefill, decode) = halves(Kind::Vllm);
    let fault = |faults| prefill.set_faults(faults);
    fault(Faults { pd_hand_nothing: true, ..Faults::default() });
    assert_eq!(ask(&prefill, &vllm_prefill()).1["kv_transfer_params"], Value::Null);
    fault(Faults { pd_pad: Some(100_000), ..Faults::default() });
    let padded = ask(&prefill, &vllm_prefill()).1["kv_transfer_params"].clone();
    assert!(padded.to_string().len() > 100_000);
    let body = json!({"prompt": "one two three", "kv_transfer_params": padded});
    fault(Faults { pd_door: Some(Door::Refuse), ..Faults::default() });
    assert_eq!(ask(&decode, &body).0, 500);
    assert_eq!(decode.stats().pair.failed, 1);
    fault(Faults { pd_door: Some(Door::Forget), ..Faults::default() });
    assert_eq!(ask(&decode, &body).0, 500);
    assert_eq!(violations(&decode), [("unknown_handle", 1)]);
    let hasty = half(Kind::Vllm, Pair { wait: Duration::from_millis(20), ..Pair::of(Role::Decode) });
    fault(Faults { pd_door: Some(Door::Stall), ..Faults::default() });
    assert_eq!(ask(&hasty, &body).0, 500);
    assert_eq!(hasty.stats().pair.timeouts, 1);
    fault(Faults::default());
    assert_eq!(ask(&decode, &body).0, 200, "and goes on when the fault is over");
}

#[test]
fn mooncake_legs_share_a_transfer_id() {
    let pair = |role| Pair { connector: Connector::Mooncake, ..Pair::of(role) };
    let (prefill, decode) = (half(Kind::Vllm, pair(Role::Prefill)), half(Kind::Vllm, pair(Role::Decode)));
    let params = json!({"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": "xfer-1"});
    let (_, answer) = ask(&prefill, &with(&vllm_prefill(), json!({"kv_transfer_params": params})));
    assert_eq!(answer["kv_transfer_params"], Value::Null);
    let engine = Peer::connect(prefill.addr).get("/sim/stats").json()["pair"]["engine_id"].clone();
    let at = prefill.door().expect("a door");
    let params = json!({"do_remote_decode": false, "do_remote_prefill": true, "transfer_id": "xfer-1",
        "remote_bootstrap_addr": format!("http://{at}"), "remote_engine_id": engine});
    let body = json!({"prompt": "one two three", "kv_transfer_params": params});
    assert_eq!(ask(&decode, &body).0, 200);
    assert_eq!(decode.stats().pair.decodes, 1);
    assert_eq!(ask(&prefill, &vllm_prefill()).0, 200);
    assert_eq!(violations(&prefill), [("missing_member", 1)]);
}

fn triple(at: SocketAddr, room: Value) -> Value {
    json!({"prompt": "one two three", "max_tokens": 5, "bootstrap_host": at.ip().to_string(),
        "bootstrap_port": at.port(), "bootstrap_room": room})
}

/// Sends both legs at once.
fn meet(prefill: &Handle, decode: &Handle, prefill_body: &Value, decode_body: &Value) -> [(u16, Value); 2] {
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(prefill, prefill_body));
        let second = ask(decode, decode_body);
        [first.join().expect("an answer"), second]
    })
}

#[test]
fn sglang_legs_meet_in_a_room_and_only_once() {
    let (prefill, decode) = halves(Kind::Sglang);
    let at = prefill.door().expect("a door");
    let body = triple(at, json!(77));
    let [first, second] = meet(&prefill, &decode, &body, &body);
    assert_eq!((first.0, second.0), (200, 200));
    let plain = json!({"prompt": "one two three", "max_tokens": 5});
    assert_eq!(second.1["choices"][0]["text"], alone(Kind::Sglang, &plain));
    assert_eq!((prefill.stats().pair.blocks_sent, decode.stats().pair.blocks_received), (1, 1));
    assert_eq!((violations(&prefill), violations(&decode)), (vec![], vec![]));
    let [first, second] = meet(&prefill, &decode, &body, &body);
    assert_eq!((first.0, second.0), (500, 500), "the room was used before");
    assert_eq!(violations(&prefill), [("room_reused", 1)]);
    assert_eq!(violations(&decode), [("stale_handle", 1)]);
    // Of a batch each prompt has its room: listed, or counted on.
    for room in [json!([80, 90]), json!(100)] {
        let batch = with(&triple(at, room), json!({"prompt": ["a", "b"]}));
        let [first, second] = meet(&prefill, &decode, &batch, &batch);
        assert_eq!((first.0, second.0), (200, 200));
    }
    assert_eq!(decode.stats().pair.blocks_received, 5);
}

#[test]
fn sglang_refuses_a_wrong_triple() {
    for (members, violation) in [
        (json!({"bootstrap_room": null}), "triple_missing"),
        (json!({"bootstrap_host": null}), "triple_missing"),
        (json!({"bootstrap_room": -1}), "room_range"),
        (json!({"bootstrap_room": 1u64 << 63}), "room_range"),
        (json!({"bootstrap_room": "7"}), "room_range"),
        (json!({"bootstrap_room": [1, 2]}), "room_list"),
        (json!({"prompt": ["a", "b"], "bootstrap_room": [1, 1]}), "room_reused"),
    ] {
        let (prefill, decode) = halves(Kind::Sglang);
        let body = with(&triple(prefill.door().expect("a door"), json!(1)), members);
        for engine in [&prefill, &decode] {
            assert_eq!(ask(engine, &body).0, 400, "{body}");
            assert_eq!(violations(engine), [(violation, 1)]);
        }
    }
}

#[test]
fn sglang_legs_that_were_told_otherwise_wait_in_vain() {
    let wait = Duration::from_millis(30);
    let hasty = |role| half(Kind::Sglang, Pair { wait, ..Pair::of(role) });
    let (prefill, decode) = (hasty(Role::Prefill), hasty(Role::Decode));
    let at = prefill.door().expect("a door");
    let [first, second] = meet(&prefill, &decode, &triple(at, json!(1)), &triple(at, json!(2)));
    assert_eq!((first.0, second.0), (500, 500));
    assert_eq!((prefill.stats().pair.timeouts, decode.stats().pair.timeouts), (1, 1));
    let elsewhere = with(&triple(at, json!(3)), json!({"bootstrap_host": "127.0.0.9", "bootstrap_port": 9}));
    assert_eq!(ask(&prefill, &elsewhere).0, 500);
    assert_eq!(violations(&prefill), [("host_mismatch", 1), ("port_mismatch", 1)]);
    assert_eq!(ask(&decode, &elsewhere).0, 500, "nobody listens there");
    // A prefill that fails lets decode go at once.
    let patient = half(Kind::Sglang, Pair::of(Role::Decode));
    prefill.set_faults(Faults { stall: Some(Stall::BeforeHead), ..Faults::default() });
    let body = triple(at, json!(4));
    std::thread::scope(|scope| {
        let mut leaving = Peer::connect(prefill.addr);
        leaving.send(peer::post(COMPLETIONS, "", &body.to_string()).as_bytes());
        peer::until("prefill runs", || prefill.stats().running == 1);
        let waiting = scope.spawn(|| ask(&patient, &body).0);
        peer::until("decode runs", || patient.stats().running == 1);
        drop(leaving);
        assert_eq!(waiting.join().expect("an answer"), 500);
    });
    assert_eq!((patient.stats().pair.failed, patient.stats().pair.timeouts), (1, 0));
}

#[test]
fn sglang_rooms_lead_to_a_rank() {
    let config = Config { pair: Some(Pair::of(Role::Prefill)), ranks: 3, ..Config::of(Kind::Sglang) };
    let prefill = engine::start(config).expect("an engine");
    let decode = half(Kind::Sglang, Pair::of(Role::Decode));
    let body = with(&triple(prefill.door().expect("a door"), json!(5)), json!({"prompt": "w ".repeat(40)}));
    meet(&prefill, &decode, &body, &body);
    let blocks = |rank: usize| prefill.caches()["ranks"][rank]["media"]["gpu"]["blocks"].clone();
    assert_eq!([blocks(0), blocks(1), blocks(2)], [json!(0), json!(0), json!(2)]);
    let pinned = with(&body, json!({"bootstrap_room": 6, "routed_dp_rank": 1}));
    assert_eq!(ask(&prefill, &pinned).0, 500);
    assert_eq!(violations(&prefill), [("rank_mismatch", 1)]);
}

fn context(id: u64) -> Value {
    json!({"prompt": "one two three", "max_tokens": 5,
        "disaggregated_params": {"request_type": "context_only", "disagg_request_id": id}})
}

fn generation(answer: &Value) -> Value {
    let params =
        with(&answer["choices"][0]["disaggregated_params"], json!({"request_type": "generation_only"}));
    json!({"prompt": answer["prompt_token_ids"], "max_tokens": 5, "disaggregated_params": params})
}

#[test]
fn trtllm_state_goes_from_context_to_generation() {
    let (prefill, decode) = halves(Kind::Trtllm);
    let (status, answer) = ask(&prefill, &context(1 << 50));
    assert_eq!((status, &answer["choices"][0]["finish_reason"]), (200, &json!("length")));
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    let (status, second) = ask(&decode, &generation(&answer));
    assert_eq!(status, 200);
    let plain = json!({"prompt": "one two three", "max_tokens": 5});
    assert_eq!(second["choices"][0]["text"], alone(Kind::Trtllm, &plain));
    assert_eq!((decode.stats().pair.decodes, decode.stats().pair.blocks_received), (1, 1));
    assert_eq!((violations(&prefill), violations(&decode)), (vec![], vec![]));
    assert_eq!(ask(&decode, &generation(&answer)).0, 500);
    assert_eq!(violations(&decode), [("stale_handle", 1)]);
    assert_eq!(ask(&prefill, &context(1 << 50)).0, 500, "an id of an earlier request");
    assert_eq!(violations(&prefill), [("handle_reused", 1)]);
    // All is said after the context: nothing is kept.
    prefill.set_faults(Faults { pd_finish: Some(Finish::Stop), ..Faults::default() });
    let (_, answer) = ask(&prefill, &context(1 << 51));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["disaggregated_params"], Value::Null);
    assert_eq!(prefill.stats().pair.held, 0);
}

#[test]
fn trtllm_refuses_what_it_does_not_know() {
    let (prefill, decode) = halves(Kind::Trtllm);
    let (status, answer) = ask(&prefill, &with(&context(1 << 50), json!({"kv_transfer_params": {}})));
    assert_eq!(status, 400);
    assert!(answer["message"].as_str().is_some_and(|words| words.contains("kv_transfer_params")), "{answer}");
    let answer = ask(&prefill, &context(1 << 51)).1;
    let good = generation(&answer);
    let params =
        |members| with(&good, json!({"disaggregated_params": with(&good["disaggregated_params"], members)}));
    for (engine, body, status, violation) in [
        (&decode, params(json!({"x": 1})), 400, "unknown_param"),
        (&decode, params(json!({"request_type": "generate"})), 400, "request_type"),
        (&decode, params(json!({"request_type": "context_only"})), 200, "wrong_role"),
        (&decode, params(json!({"encoded_opaque_state": "AAAA"})), 400, "bad_state"),
        (&decode, params(json!({"encoded_opaque_state": null})), 400, "bad_state"),
        (&decode, params(json!({"first_gen_tokens": null})), 400, "missing_member"),
        (&decode, params(json!({"ctx_request_id": 7})), 400, "other_state"),
        (&prefill, good.clone(), 200, "wrong_role"),
        (&prefill, context(7), 200, "request_id_range"),
        (&prefill, json!({"prompt": "a"}), 200, "missing_params"),
    ] {
        let count = || engine.stats().pair.violations.get(violation).copied().unwrap_or(0);
        let before = count();
        assert_eq!(ask(engine, &body).0, status, "{violation}: {body}");
        assert_eq!(count(), before + 1, "{violation}: {body}");
    }
    let streamed = with(&context(1 << 52), json!({"stream": true})).to_string();
    Peer::connect(prefill.addr).post(COMPLETIONS, &streamed);
    assert_eq!(prefill.stats().pair.violations.get("streamed_prefill"), Some(&1));
}
