//! Proof that the vectors hold a contract in every point: a second, plain implementation of each hash passes
//! them, and with any one named mistake in it some vector fails. A mistake made in the product therefore fails
//! the product's own tests.

use crate::file::{File, hex, u32s, u64s};
use ciborium::Value as Cbor;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// A mistake in reading vLLM's contract.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    KeyByteOrder,
    KeyFromFirstBytes,
    AbsentForNull,
    ParentMissing,
    ParentAsHexText,
    SeedAsBytes,
    SeedAsNumber,
    UnsetSeedIsZeros,
    PartialBlockNamed,
    TagsForgotten,
    TagsTooEarly,
    SaltInEveryBlock,
    SaltBeforeAdapter,
    AdapterPathLeftOut,
    MediaOffsetFromPrompt,
    LookaheadForgotten,
    LookaheadBlockTooEarly,
}

const VLLM_MISTAKES: &[Mistake] = &[
    Mistake::KeyByteOrder,
    Mistake::KeyFromFirstBytes,
    Mistake::AbsentForNull,
    Mistake::ParentMissing,
    Mistake::ParentAsHexText,
    Mistake::SeedAsBytes,
    Mistake::SeedAsNumber,
    Mistake::UnsetSeedIsZeros,
    Mistake::PartialBlockNamed,
    Mistake::TagsForgotten,
    Mistake::TagsTooEarly,
    Mistake::SaltInEveryBlock,
    Mistake::SaltBeforeAdapter,
    Mistake::AdapterPathLeftOut,
    Mistake::MediaOffsetFromPrompt,
    Mistake::LookaheadForgotten,
    Mistake::LookaheadBlockTooEarly,
];

#[test]
fn each_mistake_about_vllm_fails_a_vector() {
    let failed = |mistake| {
        let files = ["vllm-0.23.0-hashes.json", "vllm-0.31.0-hashes.json", "vllm-0.33.0-hashes.json"];
        files.into_iter().map(|name| vllm_failures(&File::open(name), mistake)).sum::<usize>()
    };
    assert_eq!(failed(Mistake::None), 0);
    for &mistake in VLLM_MISTAKES {
        let failed = failed(mistake);
        println!("{mistake:?}: {failed} vectors fail");
        assert!(failed > 0, "no vector tells {mistake:?} from the contract");
    }
}

fn vllm_failures(file: &File, mistake: Mistake) -> usize {
    let cases = file.root["cases"].as_array().unwrap();
    let cases =
        cases.iter().filter(|case| case["algo"] == "sha256_cbor" && case.get("prompt_embeds").is_none());
    cases.filter(|case| vllm_keys(file.version(), case, mistake) != u64s(&case["event_u64"])).count()
}

fn sha256(value: &Cbor) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    Sha256::digest(bytes).to_vec()
}

fn vllm_root(case: &Value, mistake: Mistake) -> Vec<u8> {
    match (case["PYTHONHASHSEED"].as_str(), mistake) {
        (None, Mistake::UnsetSeedIsZeros) => vec![0; 32],
        (Some(seed), Mistake::SeedAsBytes) => sha256(&Cbor::Bytes(seed.into())),
        (Some(seed), Mistake::SeedAsNumber) => sha256(&Cbor::from(seed.parse::<u64>().unwrap_or(0))),
        (seed, _) => sha256(&Cbor::from(seed.unwrap_or("vllm-none-hash"))),
    }
}

fn vllm_keys(version: &str, case: &Value, mistake: Mistake) -> Vec<u64> {
    let size = case["block_size"].as_u64().unwrap() as usize;
    let ahead = case["num_hash_lookahead_tokens"].as_u64().unwrap_or(0) as usize;
    let tokens = u32s(&case["token_ids"]);
    let root = vllm_root(case, mistake);
    let (mut parent, mut keys) = (root.clone(), Vec::new());
    for (index, block) in tokens.chunks(size).enumerate() {
        let next = &tokens[(index * size + block.len()).min(tokens.len())..];
        let complete = block.len() == size || mistake == Mistake::PartialBlockNamed;
        if !complete || next.len() < ahead && mistake != Mistake::LookaheadBlockTooEarly {
            break;
        }
        let mut extra = vllm_extra(version, case, index * size, size, mistake);
        if ahead > 0 && mistake != Mistake::LookaheadForgotten {
            let following = next[..ahead.min(next.len())].iter().map(|&id| Cbor::from(id));
            extra = Cbor::Array(std::iter::once(extra).chain(following).collect());
        }
        let before = match mistake {
            Mistake::ParentMissing => Cbor::Bytes(root.clone()),
            Mistake::ParentAsHexText => Cbor::Text(parent.iter().map(|byte| format!("{byte:02x}")).collect()),
            _ => Cbor::Bytes(parent.clone()),
        };
        let mut parts = vec![before, Cbor::Array(block.iter().map(|&id| Cbor::from(id)).collect())];
        if !(extra.is_null() && mistake == Mistake::AbsentForNull) {
            parts.push(extra);
        }
        parent = sha256(&Cbor::Array(parts));
        keys.push(vllm_key(&parent, mistake));
    }
    keys
}

fn vllm_key(digest: &[u8], mistake: Mistake) -> u64 {
    let last: [u8; 8] = digest[24..].try_into().unwrap();
    match mistake {
        Mistake::KeyByteOrder => u64::from_le_bytes(last),
        Mistake::KeyFromFirstBytes => u64::from_be_bytes(digest[..8].try_into().unwrap()),
        _ => u64::from_be_bytes(last),
    }
}

fn vllm_extra(version: &str, case: &Value, begin: usize, size: usize, mistake: Mistake) -> Cbor {
    let tagged = match mistake {
        Mistake::TagsForgotten => false,
        Mistake::TagsTooEarly => true,
        _ => version != "0.23.0",
    };
    let key = |tag: &str, mut values: Vec<Cbor>| {
        if tagged {
            values.insert(0, tag.into());
        }
        if values.len() == 1 { values.remove(0) } else { Cbor::Array(values) }
    };
    let text = |value: &Value| Cbor::from(value.as_str().unwrap());
    let mut keys = Vec::new();
    if let Some(lora) = case.get("lora") {
        let with_path = tagged && mistake != Mistake::AdapterPathLeftOut;
        let path = with_path.then(|| text(&lora["path"]));
        keys.push(key("lora", [Some(text(&lora["name"])), path].into_iter().flatten().collect()));
    }
    for item in case["mm"].as_array().into_iter().flatten() {
        let (offset, length) = (item["offset"].as_i64().unwrap(), item["length"].as_i64().unwrap());
        let (begin, end) = (begin as i64, (begin + size) as i64);
        if offset < end && offset + length > begin {
            let from = if mistake == Mistake::MediaOffsetFromPrompt { 0 } else { begin };
            keys.push(key("mm", vec![text(&item["identifier"]), Cbor::from(offset - from)]));
        }
    }
    if case.get("cache_salt").is_some() && (begin == 0 || mistake == Mistake::SaltInEveryBlock) {
        let at = if mistake == Mistake::SaltBeforeAdapter { 0 } else { keys.len() };
        keys.insert(at, key("cache_salt", vec![text(&case["cache_salt"])]));
    }
    if keys.is_empty() { Cbor::Null } else { Cbor::Array(keys) }
}

/// SGLang's rule with its choices laid open.
#[derive(Clone, Copy)]
struct Pages {
    big_endian: bool,
    last_bytes: bool,
    little_key: bool,
    chained: bool,
    hex_parent: bool,
    zero_root: bool,
    pairs: bool,
    partial: bool,
}

#[test]
fn each_mistake_about_sglang_fails_a_vector() {
    let right = Pages {
        big_endian: false,
        last_bytes: false,
        little_key: false,
        chained: true,
        hex_parent: false,
        zero_root: false,
        pairs: true,
        partial: true,
    };
    let failed = |pages| {
        let files = ["sglang-0.5.19-hashes.json", "sglang-0.5.23-hashes.json"];
        files.into_iter().map(|name| sglang_failures(&File::open(name), pages)).sum::<usize>()
    };
    assert_eq!(failed(right), 0);
    let mistakes: BTreeMap<&str, Pages> = [
        ("words big-endian", Pages { big_endian: true, ..right }),
        ("key from the last bytes", Pages { last_bytes: true, ..right }),
        ("key little-endian", Pages { little_key: true, ..right }),
        ("parent missing", Pages { chained: false, ..right }),
        ("parent as hexadecimal", Pages { hex_parent: true, ..right }),
        ("first page with a parent of zeros", Pages { zero_root: true, ..right }),
        ("pairs read as tokens", Pages { pairs: false, ..right }),
        ("trailing partial page dropped", Pages { partial: false, ..right }),
    ]
    .into();
    for (mistake, pages) in mistakes {
        assert!(failed(pages) > 0, "no vector tells {mistake} from the contract");
    }
}

fn sglang_failures(file: &File, pages: Pages) -> usize {
    let narrow = |case: &&Value| u64s(&case["token_ids"]).iter().all(|&id| id < 1 << 32);
    let cases = file.root["cases"].as_array().unwrap().iter().filter(narrow);
    cases.filter(|case| Value::from(sglang_keys(case, pages)) != case["event_i64"]).count()
}

fn sglang_keys(case: &Value, pages: Pages) -> Vec<i64> {
    let tokens = u32s(&case["token_ids"]);
    let units: Vec<Vec<u32>> = match case["is_bigram"] == true && pages.pairs {
        true => tokens.windows(2).map(<[u32]>::to_vec).collect(),
        false => tokens.iter().map(|&id| vec![id]).collect(),
    };
    let page = case["page_size"].as_u64().unwrap() as usize;
    let root = if pages.zero_root { vec![0; 32] } else { Vec::new() };
    let prior = case["prior_hash"].as_str().map_or_else(|| root.clone(), |_| hex(&case["prior_hash"]));
    let (mut parent, mut keys) = (prior, Vec::new());
    for units in units.chunks(page).filter(|units| pages.partial || units.len() == page) {
        let mut hash = Sha256::new();
        match (pages.chained || keys.is_empty(), pages.hex_parent) {
            (false, _) => {}
            (true, false) => hash.update(&parent),
            (true, true) => hash.update(parent.iter().map(|b| format!("{b:02x}")).collect::<String>()),
        }
        for word in units.iter().flatten() {
            hash.update(if pages.big_endian { word.to_be_bytes() } else { word.to_le_bytes() });
        }
        parent = hash.finalize().to_vec();
        let at = if pages.last_bytes { 24 } else { 0 };
        let bytes = parent[at..at + 8].try_into().unwrap();
        keys.push(if pages.little_key { i64::from_le_bytes(bytes) } else { i64::from_be_bytes(bytes) });
    }
    keys
}
