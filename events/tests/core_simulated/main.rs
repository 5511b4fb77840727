//! The whole event core over the simulated ring, against model engines as oracle.
//!
//! At every turn the index claims only what an engine process had after the batch applied last, and all of it
//! where the event core says so; after quiet it is the engine's cache, for every rank and tier. Deterministic: a
//! seed is a whole run. `EVENTS_SEEDS=n` runs more of them.

mod engine;
mod model;
mod pages;
mod peer;
#[path = "../simulated/random.rs"]
mod random;
mod world;

use engine::Faults;
use model::Kind;
use world::{Seen, World};

fn seeds() -> u64 {
    std::env::var("EVENTS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(25)
}

const ALL: Faults =
    Faults { drop: 300, duplicate: 80, reorder: 40, cut: 50, dark: 25, restart: 25, replay: 800, thief: 0 };

/// A slice that takes every batch whole.
const WHOLE: usize = 1 << 20;

fn run(kind: Kind, faults: Faults, salt: u64, seen: &mut Seen) {
    run_with(kind, (true, WHOLE), faults, salt, seen);
}

fn run_with(kind: Kind, (replay, slice): (bool, usize), faults: Faults, salt: u64, seen: &mut Seen) {
    for seed in 0..seeds() {
        let mut world = World::new(seed ^ salt << 32, kind, (replay, slice), faults);
        world.chaos(15, seen);
        world.quiet(seen);
        world.check_equal(seen);
    }
}

#[test]
fn named_by_the_engines_hashes_the_index_is_the_engines_cache() {
    let mut seen = Seen::default();
    run(Kind::Contract, ALL, 1, &mut seen);
    assert!(seen.complete > seeds() && seen.restarts > seeds() && seen.hosts > seeds(), "{seen:?}");
}

#[test]
fn named_by_tokens_the_index_is_the_engines_cache() {
    let mut seen = Seen::default();
    run(Kind::Tokens, ALL, 2, &mut seen);
    assert!(seen.complete > seeds() && seen.restarts > seeds() && seen.hosts > seeds(), "{seen:?}");
}

/// Processes that are replaced, also twice, while nothing gets through.
#[test]
fn restarts_in_the_dark_are_found_out() {
    let faults = Faults { dark: 80, restart: 80, drop: 500, ..Faults::default() };
    let mut seen = Seen::default();
    run(Kind::Contract, faults, 3, &mut seen);
    assert!(seen.restarts > 4 * seeds(), "{seen:?}");
}

#[test]
fn losses_alone_are_all_made_good() {
    let faults = Faults { drop: 1_000, duplicate: 100, cut: 60, dark: 20, ..Faults::default() };
    let mut seen = Seen::default();
    run(Kind::Tokens, faults, 4, &mut seen);
    assert_eq!(seen.complete, seen.ranks, "{seen:?}");
}

/// Only the engine's start tells whether what is held outlives a connection.
#[test]
fn without_replay_the_index_is_a_true_part() {
    let mut seen = Seen::default();
    run_with(Kind::Contract, (false, WHOLE), ALL, 6, &mut seen);
    assert!(seen.restarts > seeds(), "{seen:?}");
}

/// Answers prove blocks that no event told of; none is claimed any more once it may have left.
#[test]
fn what_answers_prove_is_a_true_part_too() {
    let calm = Faults { drop: 0, cut: 0, dark: 0, restart: 0, ..ALL };
    for (kind, faults, salt, slice) in [
        (Kind::Contract, ALL, 11, WHOLE),
        (Kind::Tokens, ALL, 12, WHOLE),
        (Kind::Contract, calm, 13, WHOLE),
        (Kind::Tokens, calm, 14, WHOLE),
        (Kind::Contract, ALL, 15, 40),
        (Kind::Tokens, ALL, 16, 40),
    ] {
        let mut seen = Seen::default();
        for seed in 0..seeds() {
            let mut world = World::new(seed ^ salt << 32, kind, (false, slice), faults).with_proofs();
            world.chaos(15, &mut seen);
            world.quiet(&mut seen);
            world.check_equal(&mut seen);
        }
        assert!(seen.learned > 4 * seeds(), "{seen:?}");
    }
}

#[test]
fn a_drained_engine_is_followed_and_a_second_reader_found_out() {
    let faults = Faults { thief: 100, cut: 20, restart: 30, dark: 10, ..Faults::default() };
    let mut seen = Seen::default();
    run(Kind::Drained, faults, 5, &mut seen);
    assert!(
        seen.complete > seeds() / 2 && seen.fenced > seeds() / 4 && seen.thefts > seeds() / 2,
        "{seen:?}"
    );
}

/// Slices of half an event, so that nearly every batch waits and what was taken is applied while connections break,
/// engines restart and replays begin.
#[test]
fn batches_in_slices_come_to_the_same() {
    let mut seen = Seen::default();
    run_with(Kind::Tokens, (true, 40), ALL, 7, &mut seen);
    run_with(Kind::Contract, (false, 40), ALL, 8, &mut seen);
    assert!(seen.waited > 100 * seeds() && seen.complete > seeds() && seen.restarts > seeds(), "{seen:?}");
}
