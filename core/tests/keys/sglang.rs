//! SGLang's vectors: pages of every size, pairs, wide ids, salts and namespaces.

use crate::file::{File, Outcome, hex32, i64s, texts, u32s, u64s};
use serde_json::Value;
use warmpath_core::block::{BlockKey, BlockSize, Digest};
use warmpath_core::engine::sglang::{
    EVENT_NAMESPACE, STORAGE_NAMESPACE, namespace_seed, renamed, salted_root, wide_page,
};
use warmpath_core::engine::{Algo, BlockExtra, Contract, Engine, Extras, Scratch, Terms, Version};

const CASE: &[&str] =
    &["id", "page_size", "is_bigram", "prior_hash", "token_ids", "page_hashes", "event_i64"];

#[test]
fn vectors_of_0_5_19() {
    let file = File::open("sglang-0.5.19-hashes.json");
    file.cases("cases", CASE, |case| check_case(file.version(), case));
    assert_eq!(file.take("wide_token_error"), "IndexError('token id does not fit in uint32')");
    assert_eq!(file.take("lora_names"), "not in this version");
    check_salt(&file);
    file.finish(15, 0);
}

#[test]
fn vectors_of_0_5_23() {
    let file = File::open("sglang-0.5.23-hashes.json");
    file.cases("cases", CASE, |case| check_case(file.version(), case));
    file.cases("storage_namespace_seed", &["extra_key", "cache_salt", "seed"], |case| {
        check_namespace(STORAGE_NAMESPACE, case)
    });
    file.cases("kv_event_namespace_seed", &["extra_key", "cache_salt", "seed", "namespaced"], |case| {
        check_namespace(EVENT_NAMESPACE, case)
    });
    check_salt(&file);
    file.finish(16 + 7 + 5, 0);
}

pub fn contract(version: &str, page: u64, bigram: bool, dynamo: bool) -> Contract {
    let terms = Terms {
        version: Version::read(version),
        bigram,
        dynamo,
        ..Terms::plain(Algo::Sha256Sglang, BlockSize::new(page).unwrap())
    };
    Engine::Sglang.contract(&terms).unwrap()
}

fn check_case(version: &str, case: &Value) -> Outcome {
    if u64s(&case["token_ids"]).iter().any(|&id| id > u64::from(u32::MAX)) {
        return check_wide(case);
    }
    let (page, pairs) = (case["page_size"].as_u64().unwrap(), case["is_bigram"] == true);
    let contract = contract(version, page, pairs, false);
    let tokens = u32s(&case["token_ids"]);
    let prior = case["prior_hash"].as_str().map(|_| Digest::of_32(hex32(&case["prior_hash"])));
    check_pages(&contract, &tokens, prior.unwrap_or(Digest::NONE), case);
    if prior.is_none() {
        check_chain(&contract, &tokens, case);
    }
    Outcome::Checked
}

/// Page by page, the trailing partial page too, which the engine's function hashes but its cache never holds.
fn check_pages(contract: &Contract, tokens: &[u32], prior: Digest, case: &Value) {
    let (page, mut scratch, mut parent) = (contract.block_size().tokens(), Scratch::default(), prior);
    let (digests, published) = (texts(&case["page_hashes"]), i64s(&case["event_i64"]));
    let units = tokens.len() - contract.overhang();
    assert_eq!(digests.len(), units.div_ceil(page));
    for (index, begin) in (0..units).step_by(page).enumerate() {
        let end = (begin + page).min(units) + contract.overhang();
        parent = contract.digest(&parent, &tokens[begin..end], &BlockExtra::default(), &mut scratch);
        assert_eq!(parent.to_string(), digests[index], "{} page {index}", case["id"]);
        assert_eq!(contract.key(&parent, None).signed(), published[index], "{} page {index}", case["id"]);
    }
}

/// As a prompt: full pages only.
fn check_chain(contract: &Contract, tokens: &[u32], case: &Value) {
    let (mut keys, mut scratch, extras) = (Vec::new(), Scratch::default(), Extras::default());
    contract.chain(&extras, &mut scratch).unwrap().feed(tokens, |key, _| keys.push(key.signed()));
    let full = (tokens.len() - contract.overhang()) / contract.block_size().tokens();
    assert_eq!(keys, i64s(&case["event_i64"])[..full], "{}", case["id"]);
    if contract.block_size().tokens() == 32 && contract.overhang() == 0 {
        check_trtllm_rule(tokens, &keys);
    }
}

/// The rule for TensorRT-LLM is this one at 32 tokens.
fn check_trtllm_rule(tokens: &[u32], signed: &[i64]) {
    let terms = Terms::plain(Algo::BlockhashTrtllm, BlockSize::new(32).unwrap());
    let contract = Engine::Trtllm.contract(&terms).unwrap();
    let (mut keys, mut scratch, extras) = (Vec::new(), Scratch::default(), Extras::default());
    contract.chain(&extras, &mut scratch).unwrap().feed(tokens, |key, _| keys.push(key.signed()));
    assert_eq!(keys, signed);
}

fn check_wide(case: &Value) -> Outcome {
    let mut parent = Digest::NONE;
    let page = case["page_size"].as_u64().unwrap() as usize;
    for (index, ids) in u64s(&case["token_ids"]).chunks(page).enumerate() {
        parent = wide_page(&parent, ids);
        assert_eq!(parent.to_string(), case["page_hashes"][index], "page {index}");
        assert_eq!(BlockKey(parent.head()).signed(), i64s(&case["event_i64"])[index], "page {index}");
    }
    Outcome::Checked
}

fn check_salt(file: &File) {
    let salts = file.take("cache_salt_event_seed");
    assert_eq!(salts.as_object().unwrap().len(), 2, "one rule in words and one salt");
    assert_eq!(salted_root("tenant-a").to_string(), salts["tenant-a"]);
}

fn check_namespace(domain: &str, case: &Value) -> Outcome {
    let seed = namespace_seed(domain, case["extra_key"].as_str(), case["cache_salt"].as_str());
    assert_eq!(seed, case["seed"].as_str().map(|_| hex32(&case["seed"])), "{case}");
    for pair in case["namespaced"].as_array().into_iter().flatten() {
        let key = BlockKey::from_signed(pair["in"].as_i64().unwrap());
        let published = seed.map_or(key, |seed| renamed(key, &seed));
        assert_eq!(published.signed(), pair["out"].as_i64().unwrap(), "{pair}");
    }
    Outcome::Checked
}
