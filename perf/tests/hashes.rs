//! Block names of the simulated engines beside vectors that the real releases made. The files are the
//! gateway's (`core/tests/vectors`); the code that must meet them is not.
//!
//! Left out, since the simulated engines take no such request: media, embeddings, lookahead tokens of a
//! drafter (vLLM); pairs of tokens of a drafter, token ids past 32 bits (SGLang); media, extra ids and
//! the v2 hash (TensorRT-LLM).

use std::sync::Arc;

use serde_json::Value;
use warmpath_perf::engine::blocks::{Digest, Lora, Space};
use warmpath_perf::engine::kinds::{HashAlgo, sglang, trtllm, vllm};
use warmpath_perf::engine::version::Version;

const VLLM: [&str; 3] = [
    include_str!("../../core/tests/vectors/vllm-0.23.0-hashes.json"),
    include_str!("../../core/tests/vectors/vllm-0.31.0-hashes.json"),
    include_str!("../../core/tests/vectors/vllm-0.33.0-hashes.json"),
];
const SGLANG: [&str; 2] = [
    include_str!("../../core/tests/vectors/sglang-0.5.19-hashes.json"),
    include_str!("../../core/tests/vectors/sglang-0.5.23-hashes.json"),
];
const TRTLLM: &str = include_str!("../../core/tests/vectors/trtllm-hashes.json");

fn algo(name: &Value) -> HashAlgo {
    use HashAlgo::{Sha256, Sha256Cbor, Xxhash, XxhashCbor};
    let algos = [Sha256, Sha256Cbor, Xxhash, XxhashCbor];
    *algos.iter().find(|algo| algo.name() == name).expect("a known algorithm")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn tokens(case: &Value) -> Vec<u32> {
    list(&case["token_ids"]).iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn space(case: &Value) -> Arc<Space> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let lora = case["lora"].is_object().then(|| Lora {
        id: case["lora"]["id"].as_u64().expect("an id"),
        name: text(&case["lora"]["name"]).expect("a name"),
        path: text(&case["lora"]["path"]).expect("a path"),
    });
    Arc::new(Space { lora, salt: text(&case["cache_salt"]) })
}

#[test]
fn vllm_roots_follow_the_seed() {
    for file in VLLM {
        let file: Value = serde_json::from_str(file).expect("JSON");
        let version = Version::new(file["version"].as_str().expect("a version"));
        for case in list(&file["none_hash"]) {
            let seed = case["PYTHONHASHSEED"].as_str();
            let root = |chance| vllm::hash::root(algo(&case["algo"]), &version, seed, [chance; 32]);
            match case["none_hash"].as_str() {
                Some(expected) => assert_eq!(hex(root(1).bytes()), expected, "{case}"),
                None => assert_ne!(root(1), root(2), "{case}: it is drawn"),
            }
        }
    }
}

#[test]
fn vllm_blocks_have_the_real_names() {
    let mut compared = 0;
    for file in VLLM {
        let file: Value = serde_json::from_str(file).expect("JSON");
        let version = Version::new(file["version"].as_str().expect("a version"));
        let simulated = |case: &&Value| {
            ["mm", "prompt_embeds", "num_hash_lookahead_tokens"].iter().all(|member| case[*member].is_null())
        };
        for case in list(&file["cases"]).iter().filter(simulated) {
            let root =
                vllm::hash::root(algo(&case["algo"]), &version, case["PYTHONHASHSEED"].as_str(), [0; 32]);
            let mut chain = vllm::hash::Chain::new(algo(&case["algo"]), &version, root, space(case));
            let size = case["block_size"].as_u64().expect("a size") as usize;
            let names: Vec<Digest> = tokens(case).chunks_exact(size).map(|block| chain.next(block)).collect();
            let full: Vec<String> = names.iter().map(|name| hex(name.bytes())).collect();
            let id = &case["id"];
            assert_eq!(serde_json::json!(full), case["hashes"], "{} {id} {}", version.text, case["algo"]);
            let published: Vec<u64> = names.iter().map(Digest::last8).collect();
            assert_eq!(serde_json::json!(published), case["event_u64"], "{id}");
            compared += names.len();
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn sglang_pages_have_the_real_names() {
    let mut compared = 0;
    for file in SGLANG {
        let file: Value = serde_json::from_str(file).expect("JSON");
        let version = Version::new(file["version"].as_str().expect("a version"));
        let simulated = |case: &&Value| {
            let wide = list(&case["token_ids"]).iter().any(|id| id.as_u64() > Some(u64::from(u32::MAX)));
            case["is_bigram"] == false && case["prior_hash"].is_null() && !wide
        };
        for case in list(&file["cases"]).iter().filter(simulated) {
            let mut chain = sglang::hash::Chain::new(&version, &Space::default(), [0; 32]);
            let size = case["page_size"].as_u64().expect("a size") as usize;
            let names: Vec<Digest> = tokens(case).chunks(size).map(|page| chain.next(page)).collect();
            let full: Vec<String> = names.iter().map(|name| hex(name.bytes())).collect();
            assert_eq!(serde_json::json!(full), case["page_hashes"], "{}", case["id"]);
            let published: Vec<i64> = names.iter().map(|name| name.first8().cast_signed()).collect();
            assert_eq!(serde_json::json!(published), case["event_i64"], "{}", case["id"]);
            compared += names.len();
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn sglang_name_spaces_have_the_real_seeds() {
    let file: Value = serde_json::from_str(SGLANG[1]).expect("JSON");
    let spaces = list(&file["kv_event_namespace_seed"]);
    let seeded: Vec<&Value> = spaces.iter().filter(|space| space["seed"].is_string()).collect();
    assert!(seeded.len() >= 4);
    for space in seeded {
        let seed = sglang::hash::namespace_seed(space["extra_key"].as_str(), space["cache_salt"].as_str());
        assert_eq!(hex(&seed), space["seed"], "{space}");
    }
}

#[test]
fn trtllm_blocks_have_the_real_keys() {
    let file: Value = serde_json::from_str(TRTLLM).expect("JSON");
    for salt in list(&file["salt_ids"]) {
        let id = trtllm::hash::salt_id(salt["cache_salt"].as_str().expect("a salt"));
        assert_eq!(Some(id), salt["cache_salt_id"].as_u64());
    }
    for case in list(&file["cases"]) {
        let lora = |id| Lora { id, name: String::new(), path: String::new() };
        let salt = case["cache_salt"].as_str().map(str::to_owned);
        let space = Space { lora: case["lora_task_id"].as_u64().map(lora), salt };
        let mut chain = trtllm::hash::Chain::new(&space);
        let size = case["tokens_per_block"].as_u64().expect("a size") as usize;
        let whole = case["partial_last_block_hashed"] == false;
        let tokens = tokens(case);
        let blocks = tokens.chunks(size).filter(|block| !whole || block.len() == size);
        let keys: Vec<u64> = blocks.map(|block| chain.next(block)).collect();
        assert_eq!(serde_json::json!(keys), case["hashes"], "{}", case["id"]);
    }
}
