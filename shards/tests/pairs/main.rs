//! Whole pairs of prefill and decode in the simulated network, over seeds: every client gets exactly one answer or one
//! typed error within its deadlines, every charge is settled, nothing stays pinned in an engine or open, no room or
//! handle serves twice, no leg is replayed alone.
//!
//! `PAIR_SEEDS=100000 cargo test --release -p warmpath-shards --test pairs` runs more (`PAIR_FROM=n` begins there); a
//! failure names its seed, `PAIR_SEED=n` runs that one alone.

mod body;
mod client;
mod engine;
#[path = "../flow/http.rs"]
mod http;
mod judge;
mod ledger;
mod trie;
mod world;

use engine::Kind;
use world::{Mix, run};

/// Seeds of the ordinary run, for each kind of engine and of trouble.
const SEEDS: u64 = 12;

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    match number("PAIR_SEED") {
        Some(seed) => vec![seed],
        None => {
            let from = number("PAIR_FROM").unwrap_or(0);
            (from..from + number("PAIR_SEEDS").unwrap_or(SEEDS)).collect()
        }
    }
}

fn over_seeds(kind: Kind, mix: Mix) {
    let mut total = world::Outcome::default();
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| run(seed, kind, mix));
        match outcome {
            Ok(outcome) => total.add(&outcome),
            Err(panic) => {
                eprintln!("seed {seed} of {kind:?} {mix:?} failed; run it alone with PAIR_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{kind:?} {mix:?}: {total:?}");
    if std::env::var("PAIR_SEED").is_err() {
        total.assert_covers(kind, mix);
    }
}

#[test]
fn vllm_pairs_of_kind_engines_lose_nothing() {
    over_seeds(Kind::Vllm, Mix::Kind);
}

#[test]
fn vllm_pairs_end_as_their_faults_say() {
    over_seeds(Kind::Vllm, Mix::Faulty);
}

#[test]
fn vllm_clients_that_leave_leave_nothing_behind() {
    over_seeds(Kind::Vllm, Mix::Leaving);
}

#[test]
fn sglang_pairs_of_kind_engines_lose_nothing() {
    over_seeds(Kind::Sglang, Mix::Kind);
}

#[test]
fn sglang_pairs_end_as_their_faults_say() {
    over_seeds(Kind::Sglang, Mix::Faulty);
}

#[test]
fn sglang_clients_that_leave_leave_nothing_behind() {
    over_seeds(Kind::Sglang, Mix::Leaving);
}

#[test]
fn trtllm_pairs_of_kind_engines_lose_nothing() {
    over_seeds(Kind::Trtllm, Mix::Kind);
}

#[test]
fn trtllm_pairs_end_as_their_faults_say() {
    over_seeds(Kind::Trtllm, Mix::Faulty);
}

#[test]
fn trtllm_clients_that_leave_leave_nothing_behind() {
    over_seeds(Kind::Trtllm, Mix::Leaving);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm] {
        for seed in 0..5 {
            assert_eq!(run(seed, kind, Mix::Faulty), run(seed, kind, Mix::Faulty), "seed {seed} of {kind:?}");
        }
    }
}
