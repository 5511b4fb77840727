//! Requests of two endpoints each, in pools of prefill and decode: besides, no room or handle serves twice, nothing stays
//! pinned in an engine, no leg is replayed alone.

pub mod ask;
pub mod body;
mod encoders;
pub mod engine;
mod exhausted;
mod gate;
mod judge;
pub mod ledger;
mod trie;
pub mod world;

use crate::sim::over_seeds;
use engine::Kind;
use world::{Mix, run};

/// Seeds of the ordinary run, for each kind of engine and of trouble.
const SEEDS: u64 = 20;

fn over(kind: Kind, mix: Mix) {
    let mut total = world::Outcome::default();
    let what = format!("{kind:?} {mix:?}");
    let many = over_seeds("PAIR", SEEDS, &what, |seed| total.add(&run(seed, kind, mix)));
    println!("{what}: {total:?}");
    if many {
        total.assert_covers(kind, mix);
    }
}

#[test]
fn vllm_pairs_of_kind_engines_lose_nothing() {
    over(Kind::Vllm, Mix::Kind);
}

#[test]
fn vllm_pairs_end_as_their_faults_say() {
    over(Kind::Vllm, Mix::Faulty);
}

#[test]
fn vllm_clients_that_leave_leave_nothing_behind() {
    over(Kind::Vllm, Mix::Leaving);
}

#[test]
fn sglang_pairs_of_kind_engines_lose_nothing() {
    over(Kind::Sglang, Mix::Kind);
}

#[test]
fn sglang_pairs_end_as_their_faults_say() {
    over(Kind::Sglang, Mix::Faulty);
}

#[test]
fn sglang_clients_that_leave_leave_nothing_behind() {
    over(Kind::Sglang, Mix::Leaving);
}

#[test]
fn trtllm_pairs_of_kind_engines_lose_nothing() {
    over(Kind::Trtllm, Mix::Kind);
}

#[test]
fn trtllm_pairs_end_as_their_faults_say() {
    over(Kind::Trtllm, Mix::Faulty);
}

#[test]
fn trtllm_clients_that_leave_leave_nothing_behind() {
    over(Kind::Trtllm, Mix::Leaving);
}

#[test]
fn the_gate_loses_no_turn_and_no_charge_of_pairs() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm] {
        over(kind, Mix::Gated);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm] {
        for seed in 0..5 {
            for mix in [Mix::Faulty, Mix::Gated] {
                assert_eq!(run(seed, kind, mix), run(seed, kind, mix), "seed {seed} of {kind:?} {mix:?}");
            }
        }
    }
}
