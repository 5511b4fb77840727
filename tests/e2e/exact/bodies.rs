//! Large prompts and answers over exact rules. Owns that a prompt counts whole, however its body comes, and that
//! an answer comes whole.

use super::pool::{Told, body, complete, complete_with, engine, exact_rule, gateway, in_step, tokens, warm};
use crate::harness::{Client, Driver, on_both_drivers, post};
use serde_json::json;
use warmpath_perf::engine::Kind::Vllm;

on_both_drivers!(bodies_in_pieces_and_chunks_route_exactly, a_large_answer_comes_whole);

/// 128 Ki tokens: 8,192 blocks.
#[test]
fn a_prompt_of_128_ki_tokens_counts_whole() {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let gateway = gateway(Driver::Uring, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    let prompt: Vec<u32> = (0..131_072).map(|i| i % 100_003).collect();
    warm(&gateway, "pool", &b, &prompt);
    let told = complete(gateway.vip, &prompt);
    told.assert_exact(&b, 8192);
    assert_eq!(told.number("predicted_tokens"), 131_056);
    told.assert_as_predicted();
    let mut other = prompt.clone();
    *other.last_mut().unwrap() += 1;
    let told = complete(gateway.vip, &other);
    told.assert_exact(&b, 8191);
    told.assert_as_predicted();
}

fn bodies_in_pieces_and_chunks_route_exactly(driver: Driver) {
    let (a, b) = (engine(Vllm), engine(Vllm));
    let gateway = gateway(driver, &[exact_rule("pool", Vllm, &[&a, &b], json!({}))]);
    let prompt: Vec<u32> = (0..12_800).map(|i| 10_000 + i * 7 % 80_021).collect();
    warm(&gateway, "pool", &b, &prompt);
    // A text that looks like the members that count, and escapes that hide it.
    let decoy = r#"{"prompt": [1, 2, 3], "model": "x"} \" \\ 日本 "#.repeat(300);
    let whole = body(&prompt, json!({"a_note": decoy, "user": "u"}));
    assert!(whole.len() > 80 * 1024, "{}", whole.len());
    let request = post("/v1/completions", &[], &whole);
    let mut client = gateway.client();
    for piece in request.chunks(1999) {
        client.send(piece);
    }
    let told = Told::new(client.reply());
    told.assert_exact(&b, 800);
    told.assert_as_predicted();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: gateway.test\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    client.send(head.as_bytes());
    for chunk in whole.chunks(4096 + 1) {
        client.send(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
        client.send(chunk);
        client.send(b"\r\n");
    }
    client.send(b"0\r\n\r\n");
    let told = Told::new(client.reply());
    told.assert_exact(&b, 800);
    told.assert_as_predicted();
    assert_eq!(a.stats().executions.total, 0);
}

fn a_large_answer_comes_whole(driver: Driver) {
    let a = engine(Vllm);
    let gateway = gateway(driver, &[exact_rule("pool", Vllm, &[&a], json!({}))]);
    let prompt = tokens(1, 64);
    let long = json!({"max_tokens": 60_000, "ignore_eos": true});
    // The same answer straight from the engine: ids and texts follow from the request.
    let id = ["X-Request-Id: same"];
    let straight = complete_with(a.addr, &prompt, &id, long.clone()).reply;
    in_step(&gateway, "pool", &a);
    let told = complete_with(gateway.vip, &prompt, &id, long);
    told.assert_exact(&a, 4);
    assert!(told.reply.whole && told.reply.body.len() > 256 * 1024, "{}", told.reply.body.len());
    let (mut one, mut other) = (straight.json(), told.reply.json());
    // What may differ: the second that it was made in, and what was cached by then.
    for answer in [&mut one, &mut other] {
        answer["created"] = 0.into();
        answer["usage"] = 0.into();
    }
    assert_eq!(one, other);
    let streamed = json!({"max_tokens": 4_000, "ignore_eos": true, "stream": true});
    let request = post("/v1/completions", &[], &body(&prompt, streamed));
    let told = Told::new(Client::connect(gateway.vip).ask(&request));
    told.assert_exact(&a, 4);
    let events = told.reply.events();
    assert_eq!((events.len(), events.last().map(String::as_str)), (4_001, Some("[DONE]")));
    let text = |event: &String| {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        event["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let said: String = events[..4_000].iter().map(text).collect();
    assert!(one["choices"][0]["text"].as_str().unwrap().starts_with(&said));
}
