//! The whole flow in the simulated network, over seeds: every request is answered exactly once or ends in a
//! known way, bytes are equal, charges and memory balance, nothing stays open.
//!
//! `FLOW_SEEDS=100000 cargo test --release -p warmpath-shards --test flow` runs more (`FLOW_FROM=n` begins
//! there); a failure names its seed, `FLOW_SEED=n` runs that one alone. `tests/long/run` goes on for ever.

mod breaker;
mod client;
mod engine;
mod gate;
mod http;
mod scene;
mod sessions;
mod world;

use world::{Mix, run};

/// Seeds of the ordinary run.
const SEEDS: u64 = 60;

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    match number("FLOW_SEED") {
        Some(seed) => vec![seed],
        None => {
            let from = number("FLOW_FROM").unwrap_or(0);
            (from..from + number("FLOW_SEEDS").unwrap_or(SEEDS)).collect()
        }
    }
}

fn over_seeds(mix: Mix) {
    let mut total = world::Outcome::default();
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| run(seed, mix));
        match outcome {
            Ok(outcome) => total.add(&outcome),
            Err(panic) => {
                eprintln!("seed {seed} of {mix:?} failed; run it alone with FLOW_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{mix:?}: {total:?}");
    total.assert_covers(mix);
}

#[test]
fn kind_clients_and_engines_lose_nothing() {
    over_seeds(Mix::Kind);
}

#[test]
fn faulty_engines_cost_one_request_each() {
    over_seeds(Mix::Faulty);
}

#[test]
fn clients_that_leave_leave_nothing_behind() {
    over_seeds(Mix::Leaving);
}

#[test]
fn large_bodies_share_little_memory() {
    over_seeds(Mix::Large);
}

#[test]
fn the_gate_lets_in_what_it_may_and_loses_no_turn() {
    over_seeds(Mix::Gated);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        for mix in [Mix::Faulty, Mix::Gated] {
            assert_eq!(run(seed, mix), run(seed, mix), "seed {seed} of {mix:?}");
        }
    }
}
