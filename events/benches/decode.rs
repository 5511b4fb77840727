//! Events decoded a second on one core: vLLM's map form with 1 and with 64 blocks an event, beside a generic
//! reader of the same bytes (`rmpv`), alone and with the counts of residency.

use rmpv::Value;
use std::hint::black_box;
use std::time::Instant;
use warmpath_events::decode::decode;
use warmpath_events::residency::{Removal, Residency};
use warmpath_events::wire::{Batch, HashBytes};

/// Tokens of one block.
const BLOCK: u64 = 16;

fn main() {
    for blocks in [1, 64] {
        compare(blocks);
    }
}

struct Contender<'a> {
    name: &'static str,
    work: Box<dyn FnMut() -> usize + 'a>,
    best: f64,
}

/// Rounds of the contenders in turn; the best of each counts.
fn compare(blocks: u64) {
    let payload = payload(blocks);
    let (stored, removed) = (payload.as_slice(), removal(blocks));
    let mut contenders = [decoding(stored), applying(stored, &removed), generic(stored)];
    let (rounds, calls) = if is_measuring() { (60, 20_000 / blocks) } else { (1, 1) };
    for _ in 0..rounds {
        for contender in &mut contenders {
            let begun = Instant::now();
            for _ in 0..calls {
                black_box((contender.work)());
            }
            contender.best = contender.best.min(begun.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    for contender in &contenders {
        let events = 1e9 / contender.best;
        println!(
            "{blocks:>3} blocks ({} bytes)  {:<24} {:>9.0} ns  {:>10.0} events/s  {:>11.0} blocks/s  {:>6.2}x",
            stored.len(),
            contender.name,
            contender.best,
            events,
            events * blocks as f64,
            contender.best / contenders[0].best,
        );
    }
}

/// `cargo bench` measures; anything else only proves that the contenders run.
fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

fn decoding(payload: &[u8]) -> Contender<'_> {
    let mut batch = Batch::default();
    let work = move || {
        decode(black_box(payload), HashBytes::Last, &mut batch).expect("a batch");
        batch.events.len()
    };
    Contender { name: "decode", work: Box::new(work), best: f64::INFINITY }
}

/// A store and its removal, two events a call, so that the counts stay small.
fn applying<'a>(stored: &'a [u8], removed: &'a [u8]) -> Contender<'a> {
    let (mut batch, mut residency) = (Batch::default(), Residency::new(Removal::One, usize::MAX));
    let work = move || {
        let mut changes = 0;
        for payload in [stored, removed] {
            decode(black_box(payload), HashBytes::Last, &mut batch).expect("a batch");
            residency.apply(&batch, &mut |_| changes += 1);
        }
        changes
    };
    Contender { name: "store and remove applied", work: Box::new(work), best: f64::INFINITY }
}

fn generic(payload: &[u8]) -> Contender<'_> {
    let work = move || {
        let value = rmpv::decode::read_value(&mut black_box(payload)).expect("a value");
        value.as_array().map_or(0, Vec::len)
    };
    Contender { name: "rmpv, untyped", work: Box::new(work), best: f64::INFINITY }
}

fn hashes(blocks: u64) -> Value {
    let name = |block: u64| Value::from((block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Value::Array((0..blocks).map(name).collect())
}

/// As vLLM 0.32 sends a plain request's blocks.
fn payload(blocks: u64) -> Vec<u8> {
    let tokens = (0..blocks * BLOCK).map(|at| Value::from(at * 7_919 % 151_936)).collect();
    event(vec![
        ("type", Value::from("BlockStored")),
        ("block_hashes", hashes(blocks)),
        ("parent_block_hash", Value::from(u64::MAX - 5)),
        ("token_ids", Value::Array(tokens)),
        ("block_size", Value::from(BLOCK)),
        ("lora_id", Value::Nil),
        ("medium", Value::from("GPU")),
        ("lora_name", Value::Nil),
        ("extra_keys", Value::Array(vec![Value::Nil; blocks as usize])),
        ("group_idx", Value::from(0)),
        ("kv_cache_spec_kind", Value::from("full_attention")),
    ])
}

fn removal(blocks: u64) -> Vec<u8> {
    event(vec![
        ("type", Value::from("BlockRemoved")),
        ("block_hashes", hashes(blocks)),
        ("medium", Value::from("GPU")),
        ("group_idx", Value::from(0)),
    ])
}

fn event(members: Vec<(&str, Value)>) -> Vec<u8> {
    let event = Value::Map(members.into_iter().map(|(name, value)| (Value::from(name), value)).collect());
    let batch = Value::Array(vec![Value::F64(1_700_000_000.25), Value::Array(vec![event]), Value::from(0)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).expect("into memory");
    bytes
}
