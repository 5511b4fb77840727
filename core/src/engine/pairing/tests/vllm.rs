//! vLLM's dialect.

use super::*;
use crate::engine::pairing::encode::{self, EncodeEnd};

const VLLM: Engine = Engine::Vllm;

fn edited(map: &mut Map<String, Tree>) {
    map.insert("max_tokens".into(), json!(1));
    for (name, value) in [("max_completion_tokens", json!(1)), ("stream", json!(false))] {
        if let Some(slot) = map.get_mut(name) {
            *slot = value;
        }
    }
    map.shift_remove("stream_options");
    if map.get("min_tokens").and_then(Tree::as_f64).is_some_and(|tokens| tokens > 1.0) {
        map.shift_remove("min_tokens");
    }
    put(
        map,
        "kv_transfer_params",
        json!({"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
            "remote_block_ids": null, "remote_host": null, "remote_port": null}),
    );
}

const STATE: &str = r#"{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2],[3]],
    "remote_engine_id":"e\u0031","remote_port":5600,"remote_registration_generation":1e3,"new_in_0.40":{"a":[]}}"#;

fn answer() -> String {
    format!(
        r#"{{"id":"x","choices":[{{"text":"\"kv_transfer_params\":{{}}","finish_reason":"length"}}],"kv_transfer_params":{STATE},"usage":{{}}}}"#
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_by_range_are_edits_of_the_parsed_body(body in body(false), twice in body(true)) {
        for (body, repeated) in [(body, false), (twice, true)] {
            let terms = terms(1);
            same_edit(&body, &prefill_of(VLLM, &body, &terms), edited, repeated);
            let with_state: Edit = |map| {
                put(map, "kv_transfer_params", serde_json::from_str(STATE).expect("a state"));
            };
            let out = decode_of(VLLM, &body, &terms, Some(&answer()));
            same_edit(&body, &out, with_state, repeated);
            prop_assert!(out.contains(STATE), "to the letter");
            prop_assert_eq!(decode_of(VLLM, &body, &terms, None), body);
        }
    }
}

#[test]
fn the_prefill_leg_is_one_whole_token() {
    let body = r#"{"model":"m","prompt":"say \"max_tokens\":9,\"stream\":true","max_tokens":50, "max_completion_tokens": 60 ,"min_tokens":5,"stream":true,"stream_options":{"include_usage":true,"max_tokens":7},"temperature":0}"#;
    let expected = r#"{"model":"m","prompt":"say \"max_tokens\":9,\"stream\":true","max_tokens":1, "max_completion_tokens": 1 ,"stream":false,"temperature":0,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}"#;
    assert_eq!(prefill_of(VLLM, body, &terms(1)), expected);
    for (min_tokens, stays) in
        [("0", true), ("1", true), ("2", false), ("1e3", false), ("\"5\"", true), ("-1", true)]
    {
        let body = format!(r#"{{"min_tokens":{min_tokens}}}"#);
        let out = prefill_of(VLLM, &body, &terms(1));
        assert_eq!(out.contains(&format!(r#""min_tokens":{min_tokens}"#)), stays, "{out}");
    }
    // Absent members stay absent, but for the bound.
    let bare = prefill_of(VLLM, r#"{"prompt":"a"}"#, &terms(1));
    assert!(bare.starts_with(r#"{"prompt":"a","max_tokens":1,"kv_transfer_params":{"#), "{bare}");
}

#[test]
fn what_a_pair_cannot_serve_is_known_before() {
    use Member::*;
    for (body, expected) in [
        (r#"{"prompt":"a"}"#, Ok(Need::ONE)),
        (r#"{"prompt":["a"],"n":1,"best_of":null,"max_tokens":null}"#, Ok(Need::ONE)),
        (r#"{"prompt":[1,2,3]}"#, Ok(Need::ONE)),
        (r#"{"prompt":[[1,2,3]]}"#, Ok(Need::ONE)),
        (r#"{"kv_transfer_params":null}"#, Ok(Need::ONE)),
        (r#"{"kv_transfer_params":{ }}"#, Ok(Need::ONE)),
        (r#"{"prompt":["a","b"]}"#, Err(Unpairable::Prompts)),
        (r#"{"prompt":[[1],[2]]}"#, Err(Unpairable::Prompts)),
        (r#"{"n":2}"#, Err(Unpairable::Choices(N))),
        (r#"{"best_of":3}"#, Err(Unpairable::Choices(BestOf))),
        (r#"{"n":"two"}"#, Err(Unpairable::Odd(N))),
        (r#"{"max_tokens":0}"#, Err(Unpairable::Odd(MaxTokens))),
        (r#"{"max_tokens":-5}"#, Err(Unpairable::Odd(MaxTokens))),
        (r#"{"max_completion_tokens":1.5}"#, Err(Unpairable::Odd(MaxCompletionTokens))),
        (r#"{"kv_transfer_params":{"do_remote_prefill":true}}"#, Err(Unpairable::Carried(KvTransferParams))),
        (r#"{"kv_transfer_params":[]}"#, Err(Unpairable::Carried(KvTransferParams))),
        (r#"{"n":1,"kv_transfer_params":{},"n":4}"#, Err(Unpairable::Choices(N))),
    ] {
        assert_eq!(admitted(VLLM, body), expected, "{body}");
        assert_eq!(
            expected.is_err_and(Unpairable::is_refused),
            body.contains("remote") || body.contains("[]")
        );
    }
}

#[test]
fn answers_tell_how_prefill_ended() {
    let read = |answer: &str| pairing(VLLM).read_prefill(200, answer.as_bytes(), &terms(1));
    let state = r#"{"kv_transfer_params":{"a":1},"choices":[]}"#;
    let span = Span::new(22, 29);
    assert_eq!(read(state), PrefillEnd::Ready(Handed { state: Some(span), prompt: None }));
    for nothing in [
        r#"{"kv_transfer_params":null}"#,
        r#"{"choices":[{"kv_transfer_params":{"a":1},"text":"\"kv_transfer_params\":{}"}]}"#,
        r#"{"kv_transfer_params":{"a":1},"kv_transfer_params":null}"#,
    ] {
        assert_eq!(read(nothing), PrefillEnd::Nothing, "{nothing}");
    }
    for broken in ["", "[]", r#"{"kv_transfer_params":{"a":1}"#, "data: {}"] {
        assert_eq!(read(broken), PrefillEnd::Failed, "{broken}");
    }
    // However large it is.
    let large =
        format!(r#"{{"kv_transfer_params":{{"remote_block_ids":[[{}0]]}}}}"#, "123456,".repeat(100_000));
    let out = decode_of(VLLM, r#"{"prompt":"p"}"#, &terms(1), Some(&large));
    assert_eq!(out, format!(r#"{{"prompt":"p",{}"#, &large[1..]));
}

#[test]
fn mooncake_legs_share_a_transfer() {
    let terms = PairTerms { connector: Connector::Mooncake { engine: "e\"1" }, ..terms(5) };
    let room = format!("xfer-{:016x}", terms.rooms.first());
    let body = r#"{"prompt":"p","max_tokens":9}"#;
    let prefill = tree(prefill_of(VLLM, body, &terms).as_bytes());
    assert_eq!(
        prefill["kv_transfer_params"],
        json!({"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": room})
    );
    let ended = r#"{"choices":[{"finish_reason":"length"}],"kv_transfer_params":null}"#;
    assert_eq!(
        tree(decode_of(VLLM, body, &terms, Some(ended)).as_bytes()),
        json!({"prompt": "p", "max_tokens": 9, "kv_transfer_params": {"do_remote_decode": false,
            "do_remote_prefill": true, "remote_bootstrap_addr": "http://10.0.0.7:8998",
            "remote_engine_id": "e\"1", "transfer_id": room}})
    );
    let stopped = br#"{"choices":[{"finish_reason":"stop"}]}"#;
    assert_eq!(pairing(VLLM).read_prefill(200, stopped, &terms), PrefillEnd::Nothing);
}

const CHAT: &str = r#"{"model":"m","n":1,"max_tokens":9,"max_completion_tokens":9,"stream":true,"stream_options":{},
    "mm_processor_kwargs":{"a":1},"messages":[{"role":"system","content":"{\"type\":\"image_url\"}"},
    {"role":"user","content":[{"type":"text","text":"\"type\":\"image_url\""},
    {"type":"image_url","image_url":{"url":"data:1"}},{"image_url":{"url":"data:4"},"type":"\u0069mage_url"},
    {"type":"image_url","image_url":{"url":"data:1"}},"odd",{"type":7}]},{"role":"user","content":[
    {"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]}],"ec_transfer_params":null}"#;

fn encoder() -> encode::EncodeLegs {
    match pairing(VLLM).encoding {
        encode::Encoding::Legs(legs) => legs,
        _ => panic!("vLLM has encoders"),
    }
}

#[test]
fn each_medium_goes_to_an_encoder_once_and_alone() {
    let members = peeked(CHAT);
    let body = Body { bytes: CHAT.as_bytes(), members: &members };
    let parts = encode::media(&body);
    let texts: Vec<Tree> = parts.iter().map(|part| tree(part.of(body.bytes))).collect();
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}});
    assert_eq!(texts, [image("data:1"), image("data:4"), audio]);
    let mut out = Vec::new();
    encoder().body(&body, parts[1], &mut out);
    let asked = json!({"model": "m", "n": 1, "max_tokens": 1, "max_completion_tokens": 1, "stream": false,
        "mm_processor_kwargs": {"a": 1}, "messages": [{"role": "user", "content": [image("data:4")]}]});
    assert_eq!(tree(&out), asked);
}

#[test]
fn texts_have_no_media_and_many_media_are_left_to_prefill() {
    for body in
        [r#"{"prompt":"x"}"#, r#"{"messages":"x"}"#, r#"{"messages":[{"content":null},7,{"content":"x"}]}"#]
    {
        let members = peeked(body);
        assert!(encode::media(&Body { bytes: body.as_bytes(), members: &members }).is_empty(), "{body}");
    }
    let parts: Vec<String> = (0..100).map(|n| format!(r#"{{"type":"video_url","n":{n}}}"#)).collect();
    let body = format!(r#"{{"messages":[{{"content":[{}]}}]}}"#, parts.join(","));
    let members = peeked(&body);
    assert_eq!(encode::media(&Body { bytes: body.as_bytes(), members: &members }).len(), 64);
}

#[test]
fn what_encoders_hand_over_is_told_to_prefill_to_the_letter() {
    let answer = r#"{"choices":[],"ec_transfer_params": { "h\u0031" : {"peer_port":1e3, "new":[]} } }"#;
    let EncodeEnd::Ready(Some(handed)) = encoder().read(200, answer.as_bytes()) else { panic!("{answer}") };
    let encoded = handed.of(answer.as_bytes());
    let told =
        prefill_of(VLLM, r#"{"prompt":"x","ec_transfer_params":{}}"#, &PairTerms { encoded, ..terms(3) });
    assert!(told.contains(r#""ec_transfer_params":{ "h\u0031" : {"peer_port":1e3, "new":[]} }"#), "{told}");
    assert_eq!(told.matches("ec_transfer_params").count(), 1, "{told}");
    for (status, answer, end) in [
        (200, r#"{"ec_transfer_params":null}"#, EncodeEnd::Ready(None)),
        (200, r#"{"ec_transfer_params":{}}"#, EncodeEnd::Ready(None)),
        (200, "no JSON", EncodeEnd::Failed),
        (422, "{}", EncodeEnd::Refused),
        (503, "{}", EncodeEnd::Failed),
    ] {
        assert_eq!(encoder().read(status, answer.as_bytes()), end, "{status} {answer}");
    }
    let own = r#"{"prompt":"x","ec_transfer_params":{"h":{"peer_host":"10.0.0.1"}}}"#;
    assert_eq!(admitted(VLLM, own), Err(Unpairable::Carried(Member::EcTransferParams)));
}
