//! TensorRT-LLM's own names for blocks, which the gateway translates: both hash families, salts, media, and the
//! blocks of example events.

use crate::file::{File, Outcome, hex32, texts, u32s, u64s};
use serde_json::Value;
use warmpath_core::engine::trtllm::{V1Block, salt_id, v1_block_key, v2_block, v2_root};

#[test]
fn vectors() {
    let file = File::open("trtllm-hashes.json");
    file.cases(
        "cases",
        &[
            "id",
            "tokens_per_block",
            "token_ids",
            "lora_task_id",
            "cache_salt",
            "cache_salt_id",
            "partial_last_block_hashed",
            "hashes",
            "cpp_agrees",
        ],
        check_v1,
    );
    file.cases("salt_ids", &["cache_salt", "cache_salt_id", "how"], check_salt);
    file.cases(
        "v2",
        &[
            "id",
            "tokens_per_block",
            "token_ids",
            "lora_id",
            "salt_id",
            "root_key",
            "v2_sha256",
            "v2_sha256_64",
        ],
        check_v2,
    );
    file.cases(
        "mm",
        &[
            "id",
            "token_ids",
            "parent",
            "lora_task_id",
            "token_extra_ids",
            "mm_keys",
            "hash",
            "hex",
            "as_i64",
            "cpp_agrees",
        ],
        check_media,
    );
    file.finish(13 + 5 + 4 + 4, 0);
}

fn salt_of(text: &Value) -> Option<u64> {
    text.as_str().map(|salt| salt_id(blake3::hash(salt.as_bytes()).as_bytes()))
}

fn check_v1(case: &Value) -> Outcome {
    let (tokens, size) = (u32s(&case["token_ids"]), case["tokens_per_block"].as_u64().unwrap() as usize);
    let salt = salt_of(&case["cache_salt"]);
    assert_eq!(salt, case["cache_salt_id"].as_u64());
    let mut parent = 0;
    let mut keys = Vec::new();
    for block in tokens.chunks(size) {
        if block.len() < size && case["partial_last_block_hashed"] == false {
            break;
        }
        let lora = case["lora_task_id"].as_u64();
        parent = v1_block_key(&V1Block { parent, tokens: block, lora, salt, ..V1Block::default() });
        keys.push(parent);
    }
    assert_eq!(keys, u64s(&case["hashes"]), "{}", case["id"]);
    Outcome::Checked
}

fn check_salt(case: &Value) -> Outcome {
    assert_eq!(salt_of(&case["cache_salt"]), case["cache_salt_id"].as_u64(), "{case}");
    Outcome::Checked
}

fn check_v2(case: &Value) -> Outcome {
    let mut parent = v2_root(case["lora_id"].as_u64(), case["salt_id"].as_u64());
    assert_eq!(parent.to_string(), case["root_key"], "{}", case["id"]);
    let (mut digests, mut keys) = (Vec::new(), Vec::new());
    for block in u32s(&case["token_ids"]).chunks(case["tokens_per_block"].as_u64().unwrap() as usize) {
        parent = v2_block(&parent, block);
        digests.push(parent.to_string());
        keys.push(parent.head());
    }
    assert_eq!(digests, texts(&case["v2_sha256"]), "{}", case["id"]);
    assert_eq!(keys, u64s(&case["v2_sha256_64"]), "{}", case["id"]);
    Outcome::Checked
}

fn check_media(case: &Value) -> Outcome {
    let items = case["mm_keys"].as_array().unwrap();
    let media: Vec<_> =
        items.iter().map(|item| (hex32(&item["hash"]), item["start_offset"].as_u64().unwrap())).collect();
    let extra_ids = case["token_extra_ids"].as_array().map(|_| u64s(&case["token_extra_ids"]));
    let key = v1_block_key(&V1Block {
        parent: case["parent"].as_u64().unwrap(),
        tokens: &u32s(&case["token_ids"]),
        extra_ids: extra_ids.as_deref(),
        lora: case["lora_task_id"].as_u64(),
        salt: None,
        media: &media,
    });
    assert_eq!(key, case["hash"].as_u64().unwrap(), "{}", case["id"]);
    assert_eq!(
        (format!("{key:016x}"), key.cast_signed()),
        (case["hex"].as_str().unwrap().to_owned(), case["as_i64"].as_i64().unwrap())
    );
    Outcome::Checked
}
