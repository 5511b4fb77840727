//! Counts, shelves and content, on events built by hand.

use super::*;
use crate::wire::{Run, Tokens};

const GPU: Shelf = Shelf { group: 0, medium: Medium::Gpu };

#[derive(Debug, PartialEq, Eq)]
enum Saw {
    Held(u64, Option<(Option<u64>, Vec<u32>)>),
    Gone(u64),
    Again(u64),
    Unknown(u64),
    Cleared,
}

fn residency() -> Residency {
    Residency::new(Removal::One, 100)
}

fn stored(batch: &mut Batch, hashes: &[u64], parent: Option<u64>, tokens: &[u32], block_size: u32) -> Stored {
    let (from, at) = (batch.hashes.len(), batch.tokens.len());
    batch.hashes.extend(hashes);
    batch.tokens.extend(tokens);
    Stored {
        hashes: Run::between(from, batch.hashes.len()),
        parent,
        tokens: Tokens::Single(Run::between(at, batch.tokens.len())),
        block_size,
        ..Stored::default()
    }
}

fn removed(batch: &mut Batch, hashes: &[u64]) -> Event {
    let from = batch.hashes.len();
    batch.hashes.extend(hashes);
    Event::Removed(Removed { hashes: Run::between(from, batch.hashes.len()), place: Place::default() })
}

fn apply(residency: &mut Residency, batch: &Batch) -> Vec<Saw> {
    let mut saw = Vec::new();
    residency.apply(batch, &mut |change| {
        saw.push(match change {
            Change::Held { hash, content, .. } => {
                Saw::Held(hash, content.map(|content| (content.parent, content.tokens.to_vec())))
            }
            Change::Gone { hash, .. } => Saw::Gone(hash),
            Change::Again { hash, .. } => Saw::Again(hash),
            Change::Unknown { hash, .. } => Saw::Unknown(hash),
            Change::Cleared(_) => Saw::Cleared,
        });
    });
    saw
}

#[test]
fn a_block_stored_twice_is_gone_when_removed_twice() {
    let mut residency = residency();
    assert!(residency.store(GPU, 7, 0));
    assert!(!residency.store(GPU, 7, 0));
    assert_eq!(residency.copies(GPU, 7), 2);
    assert!(!residency.remove(GPU, 7));
    assert!(residency.remove(GPU, 7));
    assert_eq!((residency.len(), residency.counts().repeated), (0, 1));
}

#[test]
fn an_engine_that_counts_no_copies_removes_all() {
    let mut residency = Residency::new(Removal::All, 100);
    residency.store(GPU, 7, 0);
    residency.store(GPU, 7, 0);
    assert!(residency.remove(GPU, 7));
    assert!(residency.is_empty());
}

#[test]
fn groups_and_media_are_held_apart() {
    let mut residency = residency();
    let cpu = Shelf { group: 0, medium: Medium::Cpu };
    let window = Shelf { group: 1, medium: Medium::Gpu };
    assert!([GPU, cpu, window].into_iter().all(|shelf| residency.store(shelf, 7, 0)));
    assert!(residency.remove(cpu, 7));
    assert_eq!((residency.on(GPU), residency.on(cpu), residency.on(window)), (1, 0, 1));
}

#[test]
fn a_removal_before_any_store_changes_nothing() {
    let mut residency = residency();
    assert!(!residency.remove(GPU, 7));
    assert!(residency.store(GPU, 7, 0));
    assert_eq!((residency.len(), residency.counts().unmatched), (1, 1));
}

#[test]
fn blocks_come_with_their_parent_and_tokens() {
    let (mut batch, mut residency) = (Batch::default(), residency());
    let event = stored(&mut batch, &[1, 2], Some(9), &[10, 11, 12, 13], 2);
    batch.events.push(Event::Stored(event));
    let first = Saw::Held(1, Some((Some(9), vec![10, 11])));
    let second = Saw::Held(2, Some((Some(1), vec![12, 13])));
    assert_eq!(apply(&mut residency, &batch), [first, second]);
}

#[test]
fn pairs_come_two_ids_a_unit() {
    let (mut batch, mut residency) = (Batch::default(), residency());
    let mut event = stored(&mut batch, &[1, 2], None, &[10, 11, 11, 12, 12, 13, 13, 14], 2);
    event.tokens = Tokens::Pairs(event.tokens.run().expect("tokens").0);
    batch.events.push(Event::Stored(event));
    let first = Saw::Held(1, Some((None, vec![10, 11, 11, 12])));
    let second = Saw::Held(2, Some((Some(1), vec![12, 13, 13, 14])));
    assert_eq!(apply(&mut residency, &batch), [first, second]);
}

#[test]
fn a_masked_group_tells_no_content() {
    let (mut batch, mut residency) = (Batch::default(), residency());
    let event = stored(&mut batch, &[1], Some(9), &[0; 12], 4);
    batch.events.push(Event::Stored(event));
    assert_eq!(apply(&mut residency, &batch), [Saw::Held(1, None)]);
}

#[test]
fn events_of_a_batch_apply_in_order() {
    let (mut batch, mut residency) = (Batch::default(), residency());
    residency.store(GPU, 5, 0);
    let gone = removed(&mut batch, &[5, 6]);
    let first = stored(&mut batch, &[6], None, &[], 4);
    let second = stored(&mut batch, &[8], None, &[], 4);
    batch.events.extend([gone, Event::Stored(first), Event::Cleared, Event::Stored(second)]);
    let saw = apply(&mut residency, &batch);
    assert_eq!(saw, [Saw::Gone(5), Saw::Unknown(6), Saw::Held(6, None), Saw::Cleared, Saw::Held(8, None)]);
    assert_eq!(residency.blocks().collect::<Vec<_>>(), [(GPU, 8, 1)]);
}

#[test]
fn at_the_limit_new_blocks_are_refused_and_held_ones_still_counted() {
    let mut residency = Residency::new(Removal::One, 2);
    residency.store(GPU, 1, 0);
    residency.store(GPU, 2, 0);
    assert!(!residency.store(GPU, 3, 0));
    assert!(!residency.store(GPU, 2, 0));
    assert!(residency.remove(GPU, 1));
    assert!(residency.store(GPU, 3, 0));
    assert_eq!((residency.len(), residency.counts().refused), (2, 1));
}
