//! The gateway's dialects against simulated engines, which share no code with them: what one says the other must take
//! without a single violation, and the answer must be that of an engine alone.

mod peer;

use std::net::SocketAddr;

use peer::Peer;
use serde_json::{Value, json};
use warmpath_core::engine::Engine;
use warmpath_core::engine::pairing::{
    Body, Connector as Means, Given, PairTerms, Pairing, Pin, PrefillEnd, Rooms, Unpairable,
};
use warmpath_parser::json::{JsonLimits, Members, peek};
use warmpath_perf::engine::faults::{Faults, Finish};
use warmpath_perf::engine::transfer::{Connector, Pair, Role};
use warmpath_perf::engine::{self, Config, Handle, Kind};

const KINDS: [(Kind, Engine); 3] =
    [(Kind::Vllm, Engine::Vllm), (Kind::Sglang, Engine::Sglang), (Kind::Trtllm, Engine::Trtllm)];

/// A pair of simulated engines, and one alone.
struct Pool {
    dialect: &'static Pairing,
    prefill: Handle,
    decode: Handle,
    alone: Handle,
    attempts: u64,
    mooncake: Option<String>,
}

impl Pool {
    fn new(kind: Kind, engine: Engine, connector: Connector) -> Pool {
        let half = |role| {
            let pair = Pair { connector, ..Pair::of(role) };
            engine::start(Config { pair: Some(pair), ranks: 2, ..Config::of(kind) }).expect("an engine")
        };
        let prefill = half(Role::Prefill);
        let id = || Peer::connect(prefill.addr).get("/sim/stats").json()["pair"]["engine_id"].clone();
        let mooncake = (connector == Connector::Mooncake).then(|| id().as_str().expect("an id").to_string());
        let alone = engine::start(Config::of(kind)).expect("an engine");
        let dialect = engine.pairing().expect("a dialect");
        Pool { dialect, prefill, decode: half(Role::Decode), alone, attempts: 0, mooncake }
    }

    fn post(&self, at: SocketAddr, path: &str, body: &[u8]) -> peer::Response {
        Peer::connect(at).post(path, std::str::from_utf8(body).expect("text"))
    }

    /// One request as a gateway serves it.
    fn serve(&mut self, path: &str, text: &str) -> Result<peer::Response, Unpairable> {
        let mut members = Members::new();
        peek(text.as_bytes(), &mut members, JsonLimits::default()).expect("valid JSON");
        let body = Body { bytes: text.as_bytes(), members: &members };
        let need = self.dialect.admit(&body)?;
        self.attempts += 1;
        let pin = Some(Pin { rank: 1, of: 2 });
        let terms = PairTerms {
            encoded: b"",
            rooms: Rooms::draw(self.attempts.wrapping_mul(0x9e37_79b9_7f4a_7c15), need, pin),
            bootstrap: self.prefill.door().expect("a door"),
            connector: match &self.mooncake {
                Some(engine) => Means::Mooncake { engine },
                None => Means::Answered,
            },
        };
        let mut first = Vec::new();
        self.dialect.prefill_body(&body, &terms, &mut first);
        if !self.dialect.decodes_alone() {
            return Ok(self.together(path, &body, &terms, &first));
        }
        let answer = self.post(self.prefill.addr, path, &first);
        let given = match self.dialect.read_prefill(answer.status, &answer.body, &terms) {
            PrefillEnd::Ready(handed) => Some(Given { answer: &answer.body, handed }),
            PrefillEnd::Nothing => None,
            PrefillEnd::Final => {
                let mut stream = Vec::new();
                self.dialect.early_answer(&body, &answer.body, &mut stream);
                return Ok(peer::Response { body: stream, ..answer });
            }
            other => panic!("{other:?}: {}", answer.text()),
        };
        let mut second = Vec::new();
        self.dialect.decode_body(&body, &terms, given, &mut second);
        Ok(self.post(self.decode.addr, path, &second))
    }

    fn together(&self, path: &str, body: &Body<'_>, terms: &PairTerms<'_>, first: &[u8]) -> peer::Response {
        let mut second = Vec::new();
        self.dialect.decode_body(body, terms, None, &mut second);
        std::thread::scope(|scope| {
            let prefill = scope.spawn(|| self.post(self.prefill.addr, path, first));
            let answer = self.post(self.decode.addr, path, &second);
            let drained = prefill.join().expect("an answer");
            let end = self.dialect.read_prefill(drained.status, &drained.body, terms);
            assert!(matches!(end, PrefillEnd::Ready(_)), "{end:?}: {}", drained.text());
            answer
        })
    }

    fn settled(&self, decodes: u64, blocks: u64, recomputes: u64) {
        let (sent, received) = (self.prefill.stats().pair, self.decode.stats().pair);
        assert!(sent.violations.is_empty() && received.violations.is_empty(), "{sent:?} {received:?}");
        assert_eq!((received.decodes, received.recomputes), (decodes, recomputes));
        assert_eq!((sent.blocks_sent, received.blocks_received, sent.held), (blocks, blocks, 0));
    }
}

/// What was said, streamed or not.
fn text_of(answer: &peer::Response) -> String {
    let part = |value: Value| {
        let texts = value["choices"].as_array().into_iter().flatten().map(|choice| {
            let message = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]];
            message.into_iter().find_map(Value::as_str).unwrap_or_default().to_string()
        });
        texts.collect::<String>()
    };
    if !answer.body.starts_with(b"data: ") {
        return part(answer.json());
    }
    let mut events = answer.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| part(serde_json::from_str(event).expect("JSON"))).collect()
}

/// Requests whose text, order or names would mislead whoever looks for members by text. One block each.
const REQUESTS: [(&str, &str); 7] = [
    ("/v1/completions", r#"{"prompt":"one two three"}"#),
    (
        "/v1/completions",
        r#"{ "stream" : true, "prompt" : "say \"kv_transfer_params\":{\"a\":1}} now", "max_tokens" : 7 }"#,
    ),
    (
        "/v1/completions",
        r#"{"prompt":[5,6,7],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}"#,
    ),
    ("/v1/completions", r#"{"max_tokens":2,"prompt":"a b","max_tokens":6,"\u0073tream":false}"#),
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"\"bootstrap_room\":1,\"stream\":true}"}],"max_completion_tokens":9,"min_tokens":3}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"stream":true,"messages":[{"role":"system","content":"be"},{"role":"user","content":"\u00e9"}],"stream_options":{}}"#,
    ),
    ("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#),
];

#[test]
fn pairs_answer_as_one_engine_does() {
    for (kind, engine) in KINDS {
        let mut pool = Pool::new(kind, engine, Connector::Nixl);
        for (path, body) in REQUESTS {
            let answer = pool.serve(path, body).expect("a pair");
            let expected = pool.post(pool.alone.addr, path, body.as_bytes());
            assert_eq!(answer.status, 200, "{kind:?} {body}: {}", answer.text());
            assert_eq!(answer.header("content-type"), expected.header("content-type"));
            assert_eq!(text_of(&answer), text_of(&expected), "{kind:?} {body}");
        }
        pool.settled(7, pool.prefill.stats().pair.blocks_sent, 0);
        assert!(pool.prefill.stats().pair.blocks_sent >= 7);
    }
}

#[test]
fn mooncake_pairs_too() {
    let mut pool = Pool::new(Kind::Vllm, Engine::Vllm, Connector::Mooncake);
    for (path, body) in REQUESTS {
        let answer = pool.serve(path, body).expect("a pair");
        assert_eq!(text_of(&answer), text_of(&pool.post(pool.alone.addr, path, body.as_bytes())), "{body}");
    }
    pool.settled(7, pool.prefill.stats().pair.blocks_sent, 0);
}

#[test]
fn batches_have_a_room_for_each_prompt_or_are_no_pair() {
    let body = r#"{"prompt":["one","two","three"],"max_tokens":3}"#;
    let mut sglang = Pool::new(Kind::Sglang, Engine::Sglang, Connector::Nixl);
    let answer = sglang.serve("/v1/completions", body).expect("a pair");
    assert_eq!(
        text_of(&answer),
        text_of(&sglang.post(sglang.alone.addr, "/v1/completions", body.as_bytes()))
    );
    sglang.settled(1, 3, 0);
    for (kind, engine) in [KINDS[0], KINDS[2]] {
        let mut pool = Pool::new(kind, engine, Connector::Nixl);
        assert_eq!(pool.serve("/v1/completions", body).err(), Some(Unpairable::Prompts));
        // Decode alone takes the client's own body.
        assert_eq!(pool.post(pool.decode.addr, "/v1/completions", body.as_bytes()).status, 200);
        pool.settled(0, 0, 1);
    }
}

#[test]
fn whatever_the_size_of_what_is_handed_over() {
    for (kind, engine) in [KINDS[0], KINDS[2]] {
        let mut pool = Pool::new(kind, engine, Connector::Nixl);
        pool.prefill.set_faults(Faults { pd_pad: Some(300_000), ..Faults::default() });
        assert_eq!(pool.serve("/v1/completions", REQUESTS[0].1).expect("a pair").status, 200);
        pool.settled(1, 1, 0);
    }
}

#[test]
fn decode_computes_what_prefill_did_not_hand_over() {
    for (kind, engine) in [KINDS[0], KINDS[2]] {
        let mut pool = Pool::new(kind, engine, Connector::Nixl);
        pool.prefill.set_faults(Faults { pd_hand_nothing: true, ..Faults::default() });
        let answer = pool.serve("/v1/completions", REQUESTS[0].1).expect("a pair");
        assert_eq!(
            text_of(&answer),
            text_of(&pool.post(pool.alone.addr, "/v1/completions", REQUESTS[0].1.as_bytes()))
        );
        pool.settled(0, 0, 1);
    }
}

#[test]
fn an_answer_that_is_final_after_the_context_streams() {
    let mut pool = Pool::new(Kind::Trtllm, Engine::Trtllm, Connector::Nixl);
    pool.prefill.set_faults(Faults { pd_finish: Some(Finish::Stop), ..Faults::default() });
    for (path, body) in &REQUESTS[4..6] {
        let answer = pool.serve(path, body).expect("a pair");
        let mut events = answer.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        let chunk: Value = serde_json::from_str(&events[0]).expect("JSON");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["choices"][0]["finish_reason"], "stop");
        assert!(chunk["choices"][0]["delta"]["content"].is_string(), "{chunk}");
        assert_eq!(events.len() == 2, body.contains("stream_options"), "{events:?}");
    }
    pool.settled(0, 0, 0);
    assert_eq!(json!(pool.decode.stats().executions.total), json!(0));
}
