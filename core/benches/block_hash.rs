//! What one block of 16 tokens costs to name, by each hash, in a chain as a prompt makes it (row H1: 105 ns for
//! `sha256_cbor`, 30 ns for `xxhash_cbor`). Contenders take turns in short slices, so that a busy machine
//! disturbs all alike; the median slice counts, beside the quiet and the disturbed end.

use std::hint::black_box;
use std::time::Instant;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Contract, Engine, Extras, Scratch, Seed, Terms, Version};

/// Blocks in a prompt: a slice of some 20 µs, rarely cut by the scheduler.
const BLOCKS: usize = 256;

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let slices = if measuring { 3_000 } else { 1 };
    let contenders = [
        contender("sha256_cbor", Engine::Vllm, Algo::Sha256Cbor),
        contender("xxhash_cbor", Engine::Vllm, Algo::XxhashCbor),
        contender("sha256 (pickle)", Engine::Vllm, Algo::Sha256),
        contender("xxhash (pickle)", Engine::Vllm, Algo::Xxhash),
        contender("sha256_sglang", Engine::Sglang, Algo::Sha256Sglang),
        contender("tokens", Engine::Vllm, Algo::Tokens),
    ];
    for (title, tokens) in [("ids over 65,535", wide()), ("ids of a chat", mixed())] {
        let mut nanos = vec![Vec::with_capacity(slices); contenders.len()];
        let mut scratch = Scratch::default();
        for _ in 0..slices {
            for ((_, contract), nanos) in contenders.iter().zip(&mut nanos) {
                nanos.push(slice(contract, &tokens, &mut scratch));
            }
        }
        for ((name, _), nanos) in contenders.iter().zip(&mut nanos) {
            nanos.sort_by(f64::total_cmp);
            let at = |share: usize| nanos[nanos.len() * share / 100];
            println!(
                "{title:<16} {name:<16} {:>7.1} ns/block  p10 {:>7.1}  p90 {:>7.1}",
                at(50),
                at(10),
                at(90)
            );
        }
    }
}

fn contender(name: &'static str, engine: Engine, algo: Algo) -> (&'static str, Contract) {
    let block_size = BlockSize::new(16).expect("a size");
    let terms = Terms {
        version: Some(Version::new(0, 33, 0)),
        seed: Seed::Given("0"),
        ..Terms::plain(algo, block_size)
    };
    (name, engine.contract(&terms).expect("a contract"))
}

/// Nanoseconds for one block of one prompt.
fn slice(contract: &Contract, tokens: &[u32], scratch: &mut Scratch) -> f64 {
    let extras = Extras::default();
    let begun = Instant::now();
    let mut chain = contract.chain(&extras, scratch).expect("a plain prompt");
    let mut sum = 0;
    chain.feed(black_box(tokens), |key, _| sum ^= key.0);
    black_box(sum);
    begun.elapsed().as_nanos() as f64 / BLOCKS as f64
}

/// The longest form of every id.
fn wide() -> Vec<u32> {
    (0..16 * BLOCKS as u32).map(|i| 65_536 + i.wrapping_mul(7919) % 80_000).collect()
}

/// Mostly small ids, as tokenizers give to frequent words: widths that no branch predictor can guess.
fn mixed() -> Vec<u32> {
    let mut state = 1u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..16 * BLOCKS).map(|_| (draw() % 150_000) >> (draw() % 12)).collect()
}
