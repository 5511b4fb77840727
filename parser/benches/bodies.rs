//! The JSON peek beside full parsers, from 1 KB to 1 MB.

mod measure;

use measure::{Contender, compare};
use std::hint::black_box;
use warmpath_parser::http1::{ChunkDecoder, Limits};
use warmpath_parser::json::{JsonLimits, Member, Members, peek};
use warmpath_parser::sse::Framer;

fn main() {
    for size in [1_000, 10_000, 100_000, 1_000_000] {
        body(&format!("ascii {size} B"), &chat(size, "the quick brown fox, \\\"quoted\\\" and\\nbroken. "));
    }
    body("cjk 100000 B", &chat(100_000, "模型推理网关，快速且正确。\\n"));
    body("prose 32000 B", &chat(32_000, "the quick brown fox jumps over the lazy dog and on. "));
    body("token ids 100000 B", &token_ids(100_000));
    stream();
}

/// One streamed token as an engine sends it: a chunk that holds one event.
fn stream() {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(190)
    );
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let (mut framer, mut kept) = (Framer::new(4096), Vec::with_capacity(4096));
    let events = || framer.advance(black_box(event.as_bytes()), &mut kept).consumed as u64;
    let (mut decoder, limits) = (ChunkDecoder::new(), Limits::default());
    let chunks = || {
        let input = black_box(chunk.as_bytes());
        let data = decoder.advance(input, &limits).expect("valid");
        let rest = decoder.advance(&input[data.consumed..], &limits).expect("valid");
        (data.consumed + rest.consumed) as u64
    };
    compare(
        "one event",
        event.len(),
        vec![
            Contender { name: "sse framer", work: Box::new(events) },
            Contender { name: "chunk decoder", work: Box::new(chunks) },
        ],
    );
}

fn body(title: &str, body: &[u8]) {
    let mut members = Members::new();
    let ours = move || {
        peek(black_box(body), &mut members, JsonLimits::default()).expect("valid");
        u64::from(members.get(Member::Model).expect("there").raw.start)
    };
    let ignored = move || {
        serde_json::from_slice::<serde::de::IgnoredAny>(black_box(body)).expect("valid");
        1
    };
    let value = move || {
        let value: serde_json::Value = serde_json::from_slice(black_box(body)).expect("valid");
        value["model"].as_str().expect("there").len() as u64
    };
    let sonic_lazy = move || {
        use sonic_rs::JsonValueTrait;
        let value = sonic_rs::get(black_box(body), ["model"]).expect("valid");
        value.as_str().expect("there").len() as u64
    };
    let sonic_value = move || {
        use sonic_rs::JsonValueTrait;
        let value: sonic_rs::Value = sonic_rs::from_slice(black_box(body)).expect("valid");
        value["model"].as_str().expect("there").len() as u64
    };
    compare(
        title,
        body.len(),
        vec![
            Contender { name: "peek", work: Box::new(ours) },
            Contender { name: "serde ignore", work: Box::new(ignored) },
            Contender { name: "serde Value", work: Box::new(value) },
            Contender { name: "sonic get", work: Box::new(sonic_lazy) },
            Contender { name: "sonic Value", work: Box::new(sonic_value) },
        ],
    );
}

/// A chat whose messages fill `size` bytes; the model comes last, so that nobody can stop early.
fn chat(size: usize, text: &str) -> Vec<u8> {
    let mut body = String::from(r#"{"messages":[{"role":"system","content":"You are terse."}"#);
    while body.len() < size - 100 {
        let words = text.repeat((800 / text.len()).max(1).min((size - body.len()) / text.len() + 1));
        body.push_str(&format!(r#",{{"role":"user","content":"{words}"}}"#));
    }
    body.push_str(r#"],"stream":true,"max_tokens":256,"temperature":0.7,"model":"llama-3.1-8b"}"#);
    body.into_bytes()
}

fn token_ids(size: usize) -> Vec<u8> {
    let mut body = String::from(r#"{"prompt":[1"#);
    for id in (0..).map(|step: u64| step * 7919 % 128_000) {
        if body.len() > size - 50 {
            break;
        }
        body.push_str(&format!(", {id}"));
    }
    body.push_str(r#"],"model":"llama-3.1-8b"}"#);
    body.into_bytes()
}
