//! SGLang's dialect.

use super::*;

const SGLANG: Engine = Engine::Sglang;

const ROOM: u64 = Rooms::BEGIN + 1;

fn edited(map: &mut Map<String, Tree>) {
    for name in ["routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank"] {
        map.shift_remove(name);
    }
    put(map, "bootstrap_host", json!("10.0.0.7"));
    put(map, "bootstrap_port", json!(8998));
    put(map, "bootstrap_room", json!(ROOM));
}

/// Both legs, which must be the same.
fn legs(body: &str, terms: &PairTerms<'_>) -> String {
    let prefill = prefill_of(SGLANG, body, terms);
    assert_eq!(decode_of(SGLANG, body, terms, None), prefill);
    assert_eq!(decode_of(SGLANG, body, terms, Some("{}")), prefill);
    prefill
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_by_range_are_edits_of_the_parsed_body(body in body(false), twice in body(true)) {
        for (body, repeated) in [(body, false), (twice, true)] {
            same_edit(&body, &legs(&body, &terms(1)), edited, repeated);
        }
    }
}

#[test]
fn the_triple_stands_behind_the_clients_own_bytes() {
    let body = r#"{ "prompt":"\"bootstrap_room\":1}","stream":true, "max_tokens" : 5 } "#;
    let out = legs(body, &terms(1));
    let triple = format!(r#","bootstrap_host":"10.0.0.7","bootstrap_port":8998,"bootstrap_room":{ROOM}}} "#);
    assert_eq!(out, format!("{}{triple}", body.strip_suffix("} ").expect("a brace")));
    assert_eq!(
        legs("{}", &terms(1)),
        format!(r#"{{"bootstrap_host":"10.0.0.7","bootstrap_port":8998,"bootstrap_room":{ROOM}}}"#)
    );
    let own = r#"{"bootstrap_room":7,"bootstrap_host":"evil","bootstrap_port":1,"x":0}"#;
    let bootstrap = "[fd00::7]:9998".parse().expect("an address");
    assert_eq!(
        legs(own, &PairTerms { bootstrap, ..terms(1) }),
        format!(r#"{{"x":0,"bootstrap_host":"[fd00::7]","bootstrap_port":9998,"bootstrap_room":{ROOM}}}"#)
    );
}

#[test]
fn requests_take_a_room_for_each_prompt_and_choice() {
    for (body, rooms, listed) in [
        (r#"{"messages":[{},{}]}"#, 1, false),
        (r#"{"prompt":"a"}"#, 1, false),
        (r#"{"prompt":[1,2,3]}"#, 1, false),
        (r#"{"prompt":[]}"#, 1, false),
        (r#"{"prompt":["a"]}"#, 1, false),
        (r#"{"prompt":["a","b","c"]}"#, 3, true),
        (r#"{"text":["a","b"]}"#, 2, true),
        (r#"{"input_ids":[[1],[2]],"sampling_params":{"n":1}}"#, 2, true),
        (r#"{"prompt":["a","b"],"n":1}"#, 2, true),
        (r#"{"prompt":"a","n":4}"#, 4, false),
        (r#"{"prompt":["a","b"],"n":4}"#, 8, false),
        (r#"{"text":["a","b"],"sampling_params":{"n":3}}"#, 6, false),
        (r#"{"prompt":"a","n":"many"}"#, 1, false),
        (r#"{"prompt":"a","n":99999999999}"#, u32::MAX, false),
    ] {
        assert_eq!(admitted(SGLANG, body), Ok(Need { rooms, listed }), "{body}");
    }
}

#[test]
fn a_batch_lists_its_rooms_and_all_lead_to_the_pinned_rank() {
    let body = r#"{"prompt":["a","b","c"]}"#;
    let need = admitted(SGLANG, body).expect("a pair");
    let rooms = Rooms::draw(12, need, Some(Pin { rank: 2, of: 4 }));
    let out = tree(legs(body, &PairTerms { rooms, ..terms(1) }).as_bytes());
    let first = rooms.first();
    assert_eq!(out["bootstrap_room"], json!([first, first + 4, first + 8]));
    assert_eq!(first % 4, 2);
    assert_eq!(out["bootstrap_host"], json!(["10.0.0.7", "10.0.0.7", "10.0.0.7"]));
    assert_eq!(out["bootstrap_port"], json!([8998, 8998, 8998]));
    // With several choices the engine itself counts on from one room.
    let body = r#"{"prompt":["a","b"],"n":2}"#;
    let rooms = Rooms::draw(12, admitted(SGLANG, body).expect("a pair"), Some(Pin { rank: 2, of: 4 }));
    let out = tree(legs(body, &PairTerms { rooms, ..terms(1) }).as_bytes());
    assert_eq!(out["bootstrap_room"], json!(rooms.first()));
    let all: Vec<u64> = rooms.all().collect();
    assert_eq!(all, [0, 1, 2, 3].map(|more| rooms.first() + more));
}

#[test]
fn a_drained_prefill_hands_over_nothing_but_is_no_failure() {
    for answer in ["{}", "[{},{}]", "data: {}\n\n", ""] {
        let end = pairing(SGLANG).read_prefill(200, answer.as_bytes(), &terms(1));
        assert_eq!(end, PrefillEnd::Ready(Handed::default()), "{answer}");
    }
    assert!(!pairing(SGLANG).decodes_alone());
}

#[test]
fn its_own_form_is_served_by_pairs_too() {
    assert!(pairing(SGLANG).serves(b"/generate") && pairing(SGLANG).serves(b"/v1/chat/completions"));
    assert!(!pairing(SGLANG).serves(b"/generate/x") && !pairing(SGLANG).serves(b"/v1/embeddings"));
    assert!(!pairing(Engine::Vllm).serves(b"/generate") && !pairing(Engine::Trtllm).serves(b""));
}
