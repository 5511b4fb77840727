//! The simulated engine over real loopback sockets: answers, streams, connections, counts.

mod peer;

use std::time::Duration;

use peer::{Peer, chat, post, until};
use serde_json::{Value, json};
use warmpath_perf::engine::faults::{Faults, Stall};
use warmpath_perf::engine::text::Digest;
use warmpath_perf::engine::{self, Config, KeepAlive, Kind, Timing};

const KINDS: [Kind; 4] = [Kind::Vllm, Kind::Sglang, Kind::Trtllm, Kind::Llamacpp];
const CHAT: &str = "/v1/chat/completions";

#[test]
fn whole_and_streamed_answers_carry_the_same_text_and_usage() {
    for kind in KINDS {
        for (path, body) in
            [(CHAT, chat("tell me", "")), ("/v1/completions", r#"{"prompt":"tell me"}"#.into())]
        {
            let engine = engine::start(Config::of(kind)).unwrap();
            let mut peer = Peer::connect(engine.addr);
            let whole = peer.post(path, &body).json();
            let streamed =
                body.replacen('{', r#"{"stream":true,"stream_options":{"include_usage":true},"#, 1);
            let response = peer.post(path, &streamed);
            assert!(response.header("content-type").unwrap().starts_with("text/event-stream"));
            let mut events = response.events();
            assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{kind:?} {path}");
            let events: Vec<Value> = events.iter().map(|e| serde_json::from_str(e).unwrap()).collect();
            assert_eq!(whole_text(&whole), streamed_text(&events), "{kind:?} {path}");
            let usage = &events.last().unwrap()["usage"];
            assert_eq!(usage["completion_tokens"], 16);
            assert_eq!(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]);
            assert_eq!(events.last().unwrap()["choices"], json!([]));
            let stats = engine.stats();
            assert_eq!((stats.finished, stats.accepted, stats.tokens.generated), (2, 1, 32));
        }
    }
}

fn whole_text(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    choice["text"].as_str().or(choice["message"]["content"].as_str()).expect("a text").to_owned()
}

fn streamed_text(events: &[Value]) -> String {
    let part = |event: &Value| {
        let choice = &event["choices"][0];
        choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default().to_owned()
    };
    events.iter().map(part).collect()
}

#[test]
fn every_event_of_a_choice_has_the_same_members() {
    for kind in KINDS {
        let engine = engine::start(Config::of(kind)).unwrap();
        let body = r#"{"prompt":["a","b"],"stream":true,"max_tokens":3}"#;
        let events = Peer::connect(engine.addr).post("/v1/completions", body).events();
        let tokens: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let of = |choice: u64| {
            let own = tokens.iter().filter(move |event| event["choices"][0]["index"] == choice);
            own.filter(|event| event["choices"][0]["text"] != "").collect::<Vec<_>>()
        };
        for choice in [0, 1] {
            assert_eq!(of(choice).len(), 3, "{kind:?}");
            let members =
                |event: &Value| event["choices"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert!(of(choice).iter().all(|event| members(event) == members(of(choice)[0])), "{kind:?}");
        }
    }
}

#[test]
fn text_is_the_same_on_every_start_and_differs_by_seed() {
    let text = |seed| {
        let engine = engine::start(Config { seed, ..Config::default() }).unwrap();
        whole_text(&Peer::connect(engine.addr).post(CHAT, &chat("same", "")).json())
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn a_second_turn_hits_the_first_turns_prompt_and_answer() {
    let engine = engine::start(Config { block_size: 4, ..Config::default() }).unwrap();
    let mut peer = Peer::connect(engine.addr);
    let question = "one two three four five six seven eight nine ten";
    let first = peer.post(CHAT, &chat(question, "")).json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let second = json!({"model": "sim", "messages": [
        {"role": "user", "content": question},
        {"role": "assistant", "content": whole_text(&first)},
        {"role": "user", "content": "and then"},
    ]});
    let second = peer.post(CHAT, &second.to_string()).json();
    let seen = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], seen / 4 * 4);
    assert_eq!(engine.stats().tokens.cached, seen / 4 * 4);
}

#[test]
fn token_prompts_and_string_arrays_are_answered() {
    let engine = engine::start(Config { block_size: 4, ..Config::default() }).unwrap();
    let mut peer = Peer::connect(engine.addr);
    let ids: Vec<u32> = (0..20).collect();
    let body = json!({"prompt": ids, "max_tokens": 3, "return_token_ids": true}).to_string();
    let first = peer.post("/v1/completions", &body).json();
    assert_eq!(first["choices"][0]["prompt_token_ids"], json!(ids));
    assert_eq!(first["choices"][0]["token_ids"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    let again = peer.post("/v1/completions", &body).json();
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 16, "never the whole prompt");
    let two = peer.post("/v1/completions", r#"{"prompt":["a b","c d"],"max_tokens":2}"#).json();
    assert_eq!(two["choices"][1]["index"], 1);
    assert_eq!(two["usage"]["completion_tokens"], 4);
}

#[test]
fn request_framings() {
    let engine = engine::start(Config::default()).unwrap();
    let body = chat("hello", r#","max_tokens":1"#);
    let mut peer = Peer::connect(engine.addr);
    let (a, b) = body.split_at(9);
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{a}\r\n{:X};e=1\r\n{b}\r\n0\r\nT: x\r\n\r\n",
        a.len(),
        b.len()
    );
    peer.send(chunked.as_bytes());
    assert_eq!(peer.response().unwrap().status, 200);
    let expecting = post(CHAT, "Expect: 100-continue\r\n", "");
    peer.send(expecting.replace("Length: 0", &format!("Length: {}", body.len())).as_bytes());
    assert_eq!(peer.head().unwrap().0, 100);
    peer.send(body.as_bytes());
    assert_eq!(peer.response().unwrap().status, 200);
    let pipelined = post(CHAT, "", &body).repeat(3);
    peer.send(pipelined.as_bytes());
    (0..3).for_each(|_| assert_eq!(peer.response().unwrap().status, 200));
    assert_eq!(engine.stats().accepted, 1);
    peer.send(b"nonsense\r\n\r\n");
    assert_eq!(peer.response().unwrap().status, 400);
    assert_eq!(peer.fill(), Err("closed".into()));
}

#[test]
fn http_1_0_closes_unless_asked_and_streams_until_close() {
    let engine = engine::start(Config::default()).unwrap();
    let old = |more: &str, body: &str| post(CHAT, more, body).replace("HTTP/1.1", "HTTP/1.0");
    let mut peer = Peer::connect(engine.addr);
    peer.send(old("Connection: keep-alive\r\n", &chat("a", "")).as_bytes());
    let response = peer.response().unwrap();
    assert_eq!(response.header("connection"), Some("keep-alive"));
    peer.send(old("Connection: keep-alive\r\n", &chat("a", r#","stream":true"#)).as_bytes());
    let response = peer.response().unwrap();
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.events().last().map(String::as_str), Some("[DONE]"));
    assert_eq!(peer.fill(), Err("closed".into()));
}

#[test]
fn keep_alive_ends_by_count_with_notice_and_by_idleness_without() {
    let engine = |requests, idle| {
        let keep_alive = KeepAlive { requests, idle: Duration::from_millis(idle) };
        engine::start(Config { keep_alive, ..Config::default() }).unwrap()
    };
    let counting = engine(2, 3_600_000);
    let mut peer = Peer::connect(counting.addr);
    assert_eq!(peer.get("/health").header("connection"), None);
    assert_eq!(peer.get("/health").header("connection"), Some("close"));
    assert_eq!(peer.fill(), Err("closed".into()));
    let idling = engine(0, 20);
    let mut peer = Peer::connect(idling.addr);
    assert_eq!(peer.get("/health").header("connection"), None);
    assert_eq!(peer.fill(), Err("closed".into()), "idle for longer than the limit");
}

#[test]
fn refused_requests_are_no_executions_and_have_the_kinds_shape() {
    for kind in KINDS {
        let engine = engine::start(Config::of(kind)).unwrap();
        let mut peer = Peer::connect(engine.addr);
        let llama = kind == Kind::Llamacpp;
        let bad = peer.post(CHAT, "{");
        assert_eq!(bad.status, if llama { 500 } else { 400 }, "{kind:?}");
        assert!(bad.json()["error"]["message"].is_string() || bad.json()["message"].is_string());
        assert_eq!(peer.get(CHAT).status, if llama { 404 } else { 405 });
        assert_eq!(peer.get("/nowhere").status, 404);
        let other = peer.post(CHAT, &chat("a", "").replace("sim", "other")).status;
        assert_eq!(other, if kind == Kind::Vllm { 404 } else { 200 });
        peer.send(b"HEAD /health HTTP/1.1\r\nHost: t\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(peer.head().unwrap().0, if llama { 200 } else { 405 }, "no body follows HEAD");
        assert_eq!(peer.response().unwrap().json()["data"][0]["id"], "sim");
        assert_eq!(engine.stats().executions.total, u64::from(kind != Kind::Vllm));
    }
}

#[test]
fn a_client_that_leaves_aborts_its_execution_in_every_phase() {
    let slow = Timing { ttft: Duration::from_secs(3600), itl: Duration::ZERO, prefill_tps: 0 };
    let engine = engine::start(Config { timing: slow, ..Config::default() }).unwrap();
    for (count, more) in [(1, ""), (2, r#","stream":true"#)] {
        let mut peer = Peer::connect(engine.addr);
        peer.send(post(CHAT, "", &chat("a", more)).as_bytes());
        until("the execution runs", || engine.stats().running == 1);
        drop(peer);
        until("it is aborted", || engine.stats().aborted == count && engine.stats().running == 0);
    }
    let slow = Timing { ttft: Duration::ZERO, itl: Duration::from_secs(3600), prefill_tps: 0 };
    let engine = engine::start(Config { timing: slow, ..Config::default() }).unwrap();
    let mut peer = Peer::connect(engine.addr);
    peer.send(post(CHAT, "", &chat("a", r#","stream":true"#)).as_bytes());
    peer.head().unwrap();
    until("one token is out", || engine.stats().tokens.generated == 1);
    drop(peer);
    until("the stream is aborted", || engine.stats().aborted == 1 && engine.stats().open == 0);
}

#[test]
fn executions_are_counted_by_request_id_and_heads_are_kept_verbatim() {
    let engine = engine::start(Config::default()).unwrap();
    let mut peer = Peer::connect(engine.addr);
    for id in ["r-1", "r-2", "r-1"] {
        let request = post(CHAT, &format!("X-Request-Id: {id}\r\n"), &chat("a", ""));
        peer.send(request.as_bytes());
        let answer = peer.response().unwrap().json();
        assert_eq!(answer["id"], format!("chatcmpl-{id}"), "vLLM takes the id over");
    }
    let stats = peer.get("/sim/stats").json();
    assert_eq!(stats["executions"]["by_request_id"], json!({"r-1": 2, "r-2": 1}));
    assert_eq!(stats["executions"]["by_prompt"].as_object().unwrap().values().next(), Some(&json!(3)));
    assert_eq!(stats["by_path"], json!({format!("POST {CHAT}"): 3}));
    let head = stats["last_heads"][2].as_str().unwrap();
    assert!(
        head.starts_with("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n") && head.ends_with("\r\n\r\n")
    );
    peer.post("/sim/reset", "");
    assert_eq!(engine.stats().executions.total, 0);
    assert_eq!(engine.stats().blocks, 0);
}

#[test]
fn requests_over_the_bound_wait_in_order_and_are_shown() {
    let faults = Faults { stall: Some(Stall::BeforeHead), ..Faults::default() };
    let engine = engine::start(Config { max_running: 1, faults, ..Config::default() }).unwrap();
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::connect(engine.addr)).collect();
    for (at, peer) in peers.iter_mut().enumerate() {
        peer.send(post(CHAT, "", &chat("a", "")).as_bytes());
        until("it has begun", || {
            let stats = engine.stats();
            (stats.running, stats.waiting) == (at as u64 + 1, at as u64)
        });
    }
    let metrics = Peer::connect(engine.addr).get("/metrics").text();
    for sample in ["num_requests_running{engine=\"0\",model_name=\"sim\"} 1.0", "reason=\"capacity\"} 3.0"] {
        assert!(metrics.contains(sample), "{metrics}");
    }
    drop(peers.pop());
    until("a waiting request is aborted", || engine.stats().aborted == 1 && engine.stats().waiting == 2);
    engine.set_faults(Faults::default());
    peers.iter_mut().for_each(|peer| assert_eq!(peer.response().unwrap().status, 200));
    assert_eq!((engine.stats().finished, engine.stats().waiting), (3, 0));
}

#[test]
fn large_bodies_are_digested_and_not_kept() {
    let engine = engine::start(Config { sink_over: 1000, ..Config::default() }).unwrap();
    let mut peer = Peer::connect(engine.addr);
    for (id, length) in [("small", 900), ("large", 5_000_000)] {
        let body = chat(&"y".repeat(length), "");
        peer.send(post(CHAT, &format!("X-Request-Id: {id}\r\n"), &body).as_bytes());
        assert_eq!(peer.response().unwrap().status, 200);
        let seen = engine.stats().bodies[id];
        assert_eq!((seen.length, seen.digest), (body.len() as u64, Digest::of(body.as_bytes())));
    }
    assert!(engine.stats().tokens.prompt < 1000, "the large body was not tokenized");
}

#[test]
fn each_kind_shows_its_own_pages_and_metric_names() {
    let pages: [(Kind, &[&str], &str, &str); 4] = [
        (
            Kind::Vllm,
            &["/version", "/load"],
            "/metrics",
            "vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} 0.0",
        ),
        (
            Kind::Sglang,
            &["/server_info", "/get_model_info", "/v1/loads"],
            "/metrics",
            "sglang:num_running_reqs{",
        ),
        (Kind::Trtllm, &["/version", "/server_info"], "/metrics", "numActiveRequests"),
        (Kind::Llamacpp, &["/props", "/slots"], "/metrics", "llamacpp:requests_processing 0"),
    ];
    for (kind, paths, metrics, sample) in pages {
        let engine = engine::start(Config::of(kind)).unwrap();
        let mut peer = Peer::connect(engine.addr);
        assert_eq!(peer.get("/health").status, 200);
        paths.iter().for_each(|path| assert!(!peer.get(path).json().is_null(), "{kind:?} {path}"));
        assert_eq!(peer.get("/v1/models").json()["object"], "list");
        let text = peer.get(metrics).text();
        assert!(text.contains(sample), "{kind:?}: {text}");
    }
}

#[test]
fn a_taken_port_is_told_with_its_cure_and_stop_frees_it() {
    let engine = engine::start(Config::default()).unwrap();
    let port = engine.addr.port();
    let error = engine::start(Config { port, ..Config::default() }).unwrap_err().to_string();
    assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
    let mut peer = Peer::connect(engine.addr);
    peer.get("/health");
    engine.stop();
    assert!(peer.fill().is_err(), "open connections end with the engine");
    drop(peer);
    engine::start(Config { port, ..Config::default() }).expect("the port is free again").stop();
}
