//! The protocol of `publish.rs` under every interleaving (bounded to three preemptions), on a table of one or
//! two segments of four slots. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p warmpath-kvindex --release --lib loom_tests`.
//!
//! The writer runs on the model's first thread, the reader on the second: loom sees a load race with the last
//! store of its cell, but a store only with the last access, which would be the writer's own probe.

use crate::*;
use loom::thread;

const A: u64 = 0xa1;
const B: u64 = 0xb2;
const C: u64 = 0xc3;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A writer with one holder, and a reader.
fn small(spares: usize) -> (Writer, Holder, Reader) {
    let (mut writer, readers) = index(Plan::exactly(4, 1, spares, 1), 5);
    let holder = writer.register(1).unwrap();
    (writer, holder, readers.reader().unwrap())
}

/// Uses up a segment's slots with a dead key, so that the next new key rebuilds it.
fn churn(writer: &mut Writer, holder: Holder, key: u64) -> usize {
    let refused = writer.store(holder, &[key], 0).refused;
    writer.remove(holder, &[key]);
    refused
}

fn run(reader: &mut Reader, keys: &[u64]) -> u32 {
    let mut out = [0; 64];
    let view = reader.view();
    let mut first = HolderSet::empty();
    first.insert(0);
    view.walk(keys, &first, &mut out);
    out[0]
}

#[test]
fn a_published_block_has_its_holders_and_no_others() {
    explore(|| {
        let (mut writer, first, mut reader) = small(1);
        let second = writer.register(2).unwrap();
        let reading = thread::spawn(move || {
            let seen = reader.view().holders(A).words()[0];
            assert!([0b00, 0b01, 0b11, 0b10].contains(&seen), "{seen:b}");
            reader
        });
        writer.store(first, &[A], 0);
        writer.store(second, &[A], 0);
        writer.remove(first, &[A]);
        let mut reader = reading.join().unwrap();
        assert_eq!(reader.view().holders(A).words()[0], 0b10);
    });
}

#[test]
fn a_block_that_stays_is_found_through_a_rebuild() {
    explore(|| {
        let (mut writer, holder, mut reader) = small(1);
        writer.store(holder, &[A], 0);
        churn(&mut writer, holder, B);
        churn(&mut writer, holder, C);
        let reading = thread::spawn(move || assert_eq!(run(&mut reader, &[A]), 1));
        assert_eq!(churn(&mut writer, holder, 0xd4), 0);
        assert_eq!(writer.stats().rebuilds, 1);
        reading.join().unwrap();
    });
}

/// Segments that share a place part with the second key; the place that they leave is the only spare of what follows.
#[test]
fn a_block_that_stays_is_found_while_segments_part() {
    explore(|| {
        let (mut writer, readers) = index(Plan::exactly(4, 2, 1, 1), 5);
        let (holder, mut reader) = (writer.register(1).unwrap(), readers.reader().unwrap());
        writer.store(holder, &[A], 0);
        let reading = thread::spawn(move || assert_eq!(run(&mut reader, &[A]), 1));
        assert_eq!(writer.store(holder, &[B], 0).added, 1);
        assert_eq!(writer.fills.iter().filter(|fill| fill.end > fill.first).count(), 2);
        // Some find no room while the reader looks.
        let _refused: usize = [C, 0xd4, 0xe5].iter().map(|key| churn(&mut writer, holder, *key)).sum();
        reading.join().unwrap();
        writer.check().unwrap();
    });
}

/// With one spare a second rebuild takes back the place that the reader may have begun in: only if it left. (A is
/// the second key there and the first in every copy, so that a reader of both would miss it.)
#[test]
fn a_retired_place_is_reused_only_when_no_reader_looks() {
    explore(|| {
        let (mut writer, holder, mut reader) = small(1);
        churn(&mut writer, holder, B);
        writer.store(holder, &[A], 0);
        churn(&mut writer, holder, C);
        let reading = thread::spawn(move || assert_eq!(run(&mut reader, &[A]), 1));
        for key in [0xd4, 0xe5, 0xf6] {
            churn(&mut writer, holder, key);
        }
        assert!([1, 2].contains(&writer.stats().rebuilds));
        reading.join().unwrap();
    });
}

/// A slot of a place used before still has its old bits until a key is published in it again. (A is the second
/// key of its place both times, so it comes to the same slot.)
#[test]
fn a_block_published_in_a_used_place_has_none_of_its_old_bits() {
    explore(|| {
        let (mut writer, first, mut reader) = small(1);
        let second = writer.register(2).unwrap();
        assert_eq!(churn(&mut writer, first, B), 0);
        writer.store(second, &[A], 0);
        [C, 0xd4].iter().for_each(|key| assert_eq!(churn(&mut writer, first, *key), 0));
        writer.remove(second, &[A]);
        [0xe5, 0xf7].iter().for_each(|key| assert_eq!(churn(&mut writer, first, *key), 0));
        assert_eq!(writer.stats().rebuilds, 2);
        let reading = thread::spawn(move || {
            let seen = reader.view().holders(A).words()[0];
            assert!([0b00, 0b01].contains(&seen), "{seen:b}");
        });
        writer.store(first, &[A], 0);
        reading.join().unwrap();
    });
}

#[test]
fn a_sleeping_reader_holds_nothing_back() {
    explore(|| {
        let (mut writer, holder, mut reader) = small(1);
        writer.store(holder, &[A], 0);
        assert_eq!(run(&mut reader, &[A]), 1);
        let refused: usize = (0x10..0x1a).map(|key| churn(&mut writer, holder, key)).sum();
        assert_eq!((refused, writer.stats().rebuilds >= 4), (0, true));
        let waking = thread::spawn(move || assert_eq!(run(&mut reader, &[A, B]), 1));
        churn(&mut writer, holder, 0x1b);
        waking.join().unwrap();
    });
}

/// The holder has A, is cleared, then has B: at no time has it both.
#[test]
fn old_and_new_content_of_a_cleared_holder_never_mix() {
    explore(|| {
        let (mut writer, holder, mut reader) = small(1);
        let other = writer.register(2).unwrap();
        writer.store(holder, &[A], 0);
        writer.store(other, &[B], 0);
        let reading = thread::spawn(move || {
            assert_ne!(run(&mut reader, &[A, B]), 2);
            reader
        });
        writer.clear(holder);
        writer.store(holder, &[B], 0);
        let mut reader = reading.join().unwrap();
        assert_eq!((run(&mut reader, &[A]), run(&mut reader, &[B])), (0, 1));
    });
}

/// A bit leased again never gives the new name an overlap of the old holder.
#[test]
fn a_new_name_never_has_the_old_holders_blocks() {
    explore(|| {
        let (mut writer, holder, mut reader) = small(1);
        writer.store(holder, &[A], 0);
        let reading = thread::spawn(move || {
            let view = reader.view();
            let held = view.holders(A).contains(0);
            assert!(!(held && view.name(0) == Some(2)));
        });
        writer.release(holder);
        writer.register(2).unwrap();
        reading.join().unwrap();
    });
}
