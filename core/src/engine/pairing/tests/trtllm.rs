//! TensorRT-LLM's dialect.

use super::*;

const TRTLLM: Engine = Engine::Trtllm;

const STATE: &str = r#"{"first_gen_tokens":[7] , "request_type" : "context_only","ctx_request_id":18446744073709551615,"encoded_opaque_state":"AAEC\/w==","draft_tokens":null,"ctx_dp_rank":0,"from_2027":{"request_type":"context_only"}}"#;

fn answer(finish: &str, ids: &str) -> String {
    format!(
        r#"{{"id":"c","object":"text_completion","prompt_token_ids":{ids},"choices":[{{"text":"\"disaggregated_params\":{{}}","finish_reason":{finish},"disaggregated_params":{STATE}}}]}}"#
    )
}

fn generation_state() -> String {
    STATE.replacen(r#""request_type" : "context_only""#, r#""request_type" : "generation_only""#, 1)
}

fn context(map: &mut Map<String, Tree>) {
    if let Some(slot) = map.get_mut("stream") {
        *slot = json!(false);
    }
    map.shift_remove("stream_options");
    let room = Rooms::BEGIN + 1;
    put(map, "disaggregated_params", json!({"request_type": "context_only", "disagg_request_id": room}));
}

fn generation(map: &mut Map<String, Tree>) {
    if map.contains_key("messages") {
        map.insert("prompt_token_ids".into(), json!([5, 6]));
    } else if let Some(slot) = map.get_mut("prompt") {
        *slot = json!([5, 6]);
    }
    put(map, "disaggregated_params", serde_json::from_str(&generation_state()).expect("a state"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_by_range_are_edits_of_the_parsed_body(body in body(false), twice in body(true)) {
        for (body, repeated) in [(body, false), (twice, true)] {
            let terms = terms(1);
            same_edit(&body, &prefill_of(TRTLLM, &body, &terms), context, repeated);
            let out = decode_of(TRTLLM, &body, &terms, Some(&answer("\"length\"", "[5,6]")));
            same_edit(&body, &out, generation, repeated);
            prop_assert!(out.contains(&generation_state()), "to the letter: {}", out);
            prop_assert_eq!(decode_of(TRTLLM, &body, &terms, None), body);
        }
    }
}

#[test]
fn the_context_leg_changes_no_bound() {
    let body =
        r#"{"model":"m","prompt":"p","max_tokens":50,"min_tokens":9,"stream":true,"stream_options":{}}"#;
    let room = Rooms::BEGIN + 1;
    assert_eq!(
        prefill_of(TRTLLM, body, &terms(1)),
        format!(
            r#"{{"model":"m","prompt":"p","max_tokens":50,"min_tokens":9,"stream":false,"disaggregated_params":{{"request_type":"context_only","disagg_request_id":{room}}}}}"#
        )
    );
}

#[test]
fn prompts_are_handed_on_as_tokens_where_they_are_one_list() {
    let body = r#"{"prompt":"p"}"#;
    for (ids, prompt) in [
        ("[5,6]", json!([5, 6])),
        ("[[5,6]]", json!([5, 6])),
        ("[[5],[6]]", json!("p")),
        ("[]", json!("p")),
        ("[[]]", json!([])),
        ("null", json!("p")),
        ("[\"5\"]", json!("p")),
    ] {
        let out = decode_of(TRTLLM, body, &terms(1), Some(&answer("\"not_finished\"", ids)));
        assert_eq!(tree(out.as_bytes())["prompt"], prompt, "{ids}");
    }
}

#[test]
fn a_state_without_a_type_gets_one() {
    for (state, expected) in [
        ("{}", json!({"request_type": "generation_only"})),
        (r#"{ "x":1 }"#, json!({"x": 1, "request_type": "generation_only"})),
        (r#"{"request_type":1,"request_type":2}"#, json!({"request_type": "generation_only"})),
    ] {
        let answer = format!(r#"{{"choices":[{{"disaggregated_params":{state}}}]}}"#);
        let out = decode_of(TRTLLM, "{}", &terms(1), Some(&answer));
        assert_eq!(tree(out.as_bytes()), json!({"disaggregated_params": expected}), "{state}");
    }
}

#[test]
fn answers_tell_how_the_context_ended() {
    let read = |answer: &str| pairing(TRTLLM).read_prefill(200, answer.as_bytes(), &terms(1));
    for (finish, is_final) in [
        ("\"length\"", false),
        ("\"not_finished\"", false),
        ("null", false),
        ("7", false),
        ("\"stop\"", true),
        ("\"content_filter\"", true),
    ] {
        let end = read(&answer(finish, "[1]"));
        assert_eq!(end == PrefillEnd::Final, is_final, "{finish}: {end:?}");
        assert_eq!(matches!(end, PrefillEnd::Ready(_)), !is_final, "{finish}: {end:?}");
    }
    for nothing in [
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":[{"finish_reason":"length"}]}"#,
        r#"{"choices":[{"finish_reason":"length","disaggregated_params":null}],"disaggregated_params":{}}"#,
    ] {
        assert_eq!(read(nothing), PrefillEnd::Nothing, "{nothing}");
    }
    assert_eq!(read("{"), PrefillEnd::Failed);
}

#[test]
fn what_a_pair_cannot_serve_is_known_before() {
    let carried = Err(Unpairable::Carried(Member::DisaggregatedParams));
    assert_eq!(admitted(TRTLLM, r#"{"disaggregated_params":{"request_type":"context_only"}}"#), carried);
    assert_eq!(admitted(TRTLLM, r#"{"disaggregated_params":null}"#), Ok(Need::ONE));
    assert_eq!(admitted(TRTLLM, r#"{"prompt":["a","b"]}"#), Err(Unpairable::Prompts));
    assert_eq!(admitted(TRTLLM, r#"{"n":2}"#), Err(Unpairable::Choices(Member::N)));
    // The engine refuses what it does not know, and tells the client so.
    assert_eq!(admitted(TRTLLM, r#"{"kv_transfer_params":{"a":1}}"#), Ok(Need::ONE));
}

/// The data of all events.
fn events(body: &str, answer: &str) -> Vec<String> {
    let mut out = Vec::new();
    let members = peeked(body);
    pairing(TRTLLM).early_answer(
        &Body { bytes: body.as_bytes(), members: &members },
        answer.as_bytes(),
        &mut out,
    );
    let text = String::from_utf8(out).expect("text");
    let stripped = text.strip_suffix("\n\n").expect("an end");
    stripped.split("\n\n").map(|event| event.strip_prefix("data: ").expect("one line").to_string()).collect()
}

#[test]
fn a_final_answer_streams_as_chunks() {
    let chat = "{\"id\":\"c1\",\r\n \"object\":\"chat.completion\",\"created\":5,\"model\":\"m\",\"prompt_token_ids\":[1],
        \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"h\\ni\"},\"finish_reason\":\"stop\",
        \"disaggregated_params\":{\"x\":1}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}";
    let chunk = json!({"object": "chat.completion.chunk", "id": "c1", "created": 5, "model": "m", "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": "h\ni"}, "finish_reason": "stop"}]});
    let data = events(r#"{"stream":true}"#, chat);
    assert_eq!(data.len(), 2);
    assert_eq!(tree(data[0].as_bytes()), chunk);
    assert_eq!(data[1], "[DONE]");
    let with_usage = events(r#"{"stream_options":{"include_usage":true}}"#, chat);
    assert_eq!(with_usage.len(), 3);
    assert_eq!(tree(with_usage[0].as_bytes())["usage"], Tree::Null);
    assert_eq!(
        tree(with_usage[1].as_bytes()),
        json!({"object": "chat.completion.chunk", "id": "c1", "created": 5, "model": "m", "choices": [],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    );
    assert_eq!(events(r#"{"stream_options":{"include_usage":false}}"#, chat).len(), 2);
    let text =
        events("{}", r#"{"object":"text_completion","choices":[{"text":"a","finish_reason":"stop"}]}"#);
    assert_eq!(
        tree(text[0].as_bytes()),
        json!({"object": "text_completion", "choices": [{"text": "a", "finish_reason": "stop"}]})
    );
}
