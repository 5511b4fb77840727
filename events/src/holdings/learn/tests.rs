//! Proofs beside events: whatever comes in between, no block is claimed that may have left.

use super::super::tests::{Bench, EVENTS, bytes, lines};
use super::*;
use crate::wire::{Batch, Event, HashBytes, Place, Removed, Run, Stored};
use serde_json::Value;
use warmpath_core::engine::{Algo, Engine, Extras, Scratch, Seed};
use warmpath_core::shared::{Shown, Tier};
use warmpath_core::trust::{Seen, Tried};

fn told(keys: &[u64]) -> Observation<'_> {
    Observation { source: 1, rank: 0, sent: 10, shown: Shown::Held(0), keys }
}

fn keys(bench: &Bench, tokens: &[u32]) -> Vec<u64> {
    let (mut scratch, mut keys) = (Scratch::default(), Vec::new());
    let extras = Extras::default();
    let mut chain = bench.contract.chain(&extras, &mut scratch).expect("nameable");
    chain.feed(tokens, |key, _| keys.push(key.0));
    keys
}

fn apply(bench: &mut Bench, event: impl FnOnce(Run) -> Event, hashes: &[u64]) {
    let mut batch = Batch::default();
    batch.hashes.extend(hashes);
    batch.events.push(event(Run::between(0, hashes.len())));
    let (holdings, index) = (&mut bench.holdings, &mut bench.index);
    bench.residency.apply(&batch, &mut |change| holdings.change(change, index));
    bench.settle();
}

fn remove(bench: &mut Bench, hashes: &[u64]) {
    apply(bench, |hashes| Event::Removed(Removed { hashes, place: Place::default() }), hashes);
}

fn store(bench: &mut Bench, hashes: &[u64]) {
    apply(bench, |hashes| Event::Stored(Stored { hashes, block_size: 32, ..Stored::default() }), hashes);
}

fn prompt() -> Vec<u32> {
    (0..160).collect()
}

fn run(bench: &mut Bench) -> usize {
    bench.overlap(&prompt(), &Extras::default(), Tier::Gpu)
}

#[test]
fn what_is_proven_counts_until_a_removal() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 32);
    bench.index.now = 20;
    let keys = keys(&bench, &prompt());
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    assert_eq!((run(&mut bench), bench.holdings.observed.len()), (5, 5));
    remove(&mut bench, &keys[3..4]);
    assert_eq!(run(&mut bench), 3);
    // The answer of a request that was sent before the removal came proves nothing of that block.
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    assert_eq!(run(&mut bench), 3);
    bench.holdings.learn(&Observation { sent: 21, ..told(&keys) }, 0, &mut bench.index);
    assert_eq!((run(&mut bench), bench.holdings.observed.learned), (5, 6));
    bench.holdings.clear(Some(&bench.residency), &mut bench.index);
    assert_eq!((run(&mut bench), bench.holdings.observed.len()), (0, 0));
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    assert_eq!(run(&mut bench), 0, "it was sent before the clear");
}

/// The engine may have had a copy before: then the first removal leaves one that is not claimed, never the other way.
#[test]
fn from_a_store_on_events_count() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 32);
    let keys = keys(&bench, &prompt());
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    store(&mut bench, &keys[..2]);
    assert_eq!((run(&mut bench), bench.holdings.observed.len()), (5, 3));
    remove(&mut bench, &keys[1..2]);
    assert_eq!(run(&mut bench), 1);
    // What events know is not proven over again: their removal takes it.
    bench.holdings.learn(&Observation { sent: 100, ..told(&keys[..1]) }, 0, &mut bench.index);
    assert_eq!(bench.holdings.observed.len(), 3);
    remove(&mut bench, &keys[..1]);
    assert_eq!(run(&mut bench), 0);
}

#[test]
fn an_answer_that_computed_a_block_ends_the_proof_and_not_the_events() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 32);
    let keys = keys(&bench, &prompt());
    store(&mut bench, &keys[..1]);
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    bench.holdings.unlearn(&told(&keys), &mut bench.index);
    assert_eq!((run(&mut bench), bench.holdings.observed.len()), (1, 0));
}

/// A removal names the engine's own hash, which a proven block is not known by.
#[test]
fn by_tokens_a_removal_of_an_unknown_block_ends_all_proofs() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Tokens, 32);
    let lines: Vec<Value> = lines(EVENTS).collect();
    let first = lines.iter().find(|line| line["seq"] == 0).expect("a message");
    bench.batch(&bytes(&first["payload_hex"]), HashBytes::Last);
    let known = bench.holdings.blocks(&bench.index)[0];
    let keys = keys(&bench, &prompt());
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    assert_eq!(run(&mut bench), 5);
    // A block that is known by its hash leaves by itself.
    let (_, own, _) = bench.residency.blocks().next().expect("a block");
    remove(&mut bench, &[own]);
    assert_eq!((run(&mut bench), bench.holdings.blocks(&bench.index)[0]), (5, known - 1 + 5));
    remove(&mut bench, &[0xdead]);
    assert_eq!((run(&mut bench), bench.holdings.blocks(&bench.index)[0]), (0, known - 1));
}

#[test]
fn a_tier_that_is_made_later_has_what_was_proven() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 32);
    let keys = keys(&bench, &prompt());
    bench.holdings.learn(&told(&keys), 0, &mut bench.index);
    let place = Place { medium: Some(crate::wire::Medium::Cpu), ..Place::default() };
    let stored = |hashes| Event::Stored(Stored { hashes, block_size: 32, place, ..Stored::default() });
    apply(&mut bench, stored, &[7]);
    assert_eq!(bench.holdings.blocks(&bench.index), [5, 6, 0]);
    remove(&mut bench, &keys[..1]);
    assert_eq!(bench.holdings.blocks(&bench.index), [4, 5, 0]);
}

/// What leaves the GPU for the host's memory is told in two events, of which the second names a block that events knew
/// nothing of on the GPU.
#[test]
fn a_proven_block_that_moves_to_the_host_is_claimed_there_alone() {
    let mut bench = Bench::new(Engine::Vllm, Algo::Sha256Cbor, 32);
    let keys = keys(&bench, &prompt());
    bench.holdings.learn(&told(&keys[..2]), 0, &mut bench.index);
    let place = Place { medium: Some(crate::wire::Medium::Cpu), ..Place::default() };
    let stored = |hashes| Event::Stored(Stored { hashes, block_size: 32, place, ..Stored::default() });
    apply(&mut bench, stored, &keys[..1]);
    remove(&mut bench, &keys[..1]);
    assert_eq!(bench.holdings.blocks(&bench.index), [1, 2, 0]);
}

/// First blocks of a captured engine (vLLM 0.32, seed 0, `sha256_cbor`), as contracts of other terms see them.
#[test]
fn captured_names_prove_or_disprove_a_contract() {
    let seen = |algo, seed: Seed<'_>, given: Option<&str>| {
        let mut bench = Bench::seeded(Engine::Vllm, algo, 32, seed);
        for line in lines(EVENTS).filter(|line| line["seq"].as_u64().is_some_and(|seq| seq < 8)) {
            bench.batch(&bytes(&line["payload_hex"]), HashBytes::Last);
        }
        let names = &bench.holdings.names;
        (names.plain, names.salted, names.tried(bench.source.spec(), given))
    };
    let same = |same| Seen { same, other: 0 };
    let (plain, salted, tried) = seen(Algo::Sha256Cbor, Seed::Given("0"), Some("0"));
    assert!(plain.same > 2 && plain.other == 0 && salted == same(1), "{plain:?} {salted:?}");
    assert_eq!(tried, Tried::Nothing);
    let (plain, _, tried) = seen(Algo::Sha256Cbor, Seed::Given("7"), Some("7"));
    assert!(plain.same == 0 && plain.other > 2, "{plain:?}");
    assert_eq!(tried, Tried::Seed("0"));
    assert_eq!(seen(Algo::Sha256, Seed::Given("0"), Some("0")).2, Tried::Algorithm("sha256_cbor"));
    assert_eq!(seen(Algo::Xxhash, Seed::Given("9"), Some("9")).2, Tried::Nothing, "both are wrong");
    assert_eq!(seen(Algo::Tokens, Seed::Unset, None).0, same(0), "names of its own need no proof");
}
