//! The writer against the naive map, and what a map has not: bounds, leases, readers that stay.

use crate::model::{Naive, Random, key_of};
use crate::*;

fn small(holders: usize, blocks: usize) -> (Writer, Reader) {
    let (writer, readers) = index(Plan::for_blocks(blocks, holders, 2).unwrap(), 7);
    (writer, readers.reader().unwrap())
}

fn register(writer: &mut Writer, count: usize) -> Vec<Holder> {
    (0..count).map(|name| writer.register(name as u64).unwrap()).collect()
}

/// One random step on both; keys that found no room are no part of the model.
fn step(random: &mut Random, writer: &mut Writer, naive: &mut Naive, holders: &[Holder], world: usize) {
    let holder = holders[random.below(holders.len())];
    let keys: Vec<u64> = (0..1 + random.below(40)).map(|_| key_of(random.below(world))).collect();
    match random.below(100) {
        0..55 => {
            for (depth, key) in keys.iter().enumerate() {
                if writer.store(holder, &[*key], depth as u32).refused == 0 {
                    naive.store(holder.bit(), *key);
                }
            }
        }
        55..80 => {
            writer.remove(holder, &keys);
            keys.iter().for_each(|key| naive.remove(holder.bit(), *key));
        }
        80..95 => {
            let write =
                |key: &u64| if key.is_multiple_of(3) { Write::Remove(*key) } else { Write::Store(*key, 0) };
            let writes: Vec<Write> = keys.iter().map(write).collect();
            let before = naive.held(holder.bit());
            let parts: Vec<_> = match writer.plan().slots {
                // Roomy: whole runs. Small: one by one, so that the model learns of each refusal.
                256 => vec![&writes[..]],
                _ => writes.chunks(1).collect(),
            };
            let (mut added, mut gone) = (0, 0);
            for part in parts {
                let (stored, removed) = writer.write(holder, part);
                (added, gone) = (added + stored.added, gone + removed.gone);
                for write in part.iter().filter(|_| stored.refused == 0) {
                    match *write {
                        Write::Store(key, _) => naive.store(holder.bit(), key),
                        Write::Remove(key) => naive.remove(holder.bit(), key),
                    }
                }
            }
            assert_eq!(before + added - gone, naive.held(holder.bit()));
        }
        95..98 => {
            writer.sweep(random.below(4));
        }
        _ => {
            writer.clear(holder);
            naive.clear(holder.bit());
        }
    }
}

fn compare(writer: &Writer, reader: &mut Reader, naive: &Naive, holders: &[Holder], world: usize) {
    writer.check().unwrap();
    let view = reader.view();
    for key in (0..world).map(key_of) {
        assert_eq!(view.holders(key), naive.holders(key), "key {key:#x}");
    }
    for holder in holders.iter().take(5) {
        assert_eq!(writer.held(*holder), naive.held(holder.bit()));
    }
}

fn random_run(seed: u64, count: usize, plan: Plan, steps: usize) -> Stats {
    let (mut writer, readers) = index(plan, seed);
    let mut reader = readers.reader().unwrap();
    let (mut random, mut naive) = (Random(seed), Naive::default());
    let holders = register(&mut writer, count);
    let world = 300;
    for _ in 0..steps {
        step(&mut random, &mut writer, &mut naive, &holders, world);
        compare(&writer, &mut reader, &naive, &holders, world);
    }
    writer.stats()
}

#[test]
fn equals_the_naive_map_with_room_for_all() {
    for (seed, count) in [(1, 3), (2, 64), (3, 130), (4, 250), (5, 400)] {
        assert_eq!(random_run(seed, count, Plan::exactly(256, 4, 2, count), 120).refused, 0, "seed {seed}");
    }
}

#[test]
fn equals_the_naive_map_while_segments_are_rebuilt_and_blocks_refused() {
    let runs: Vec<Stats> =
        (10..16).map(|seed| random_run(seed, 5, Plan::exactly(16, 4, 2, 5), 300)).collect();
    assert!(runs.iter().all(|stats| stats.rebuilds > 5), "{runs:?}");
    assert!(runs.iter().any(|stats| stats.refused > 0), "{runs:?}");
}

#[test]
fn segments_that_fill_up_alike_are_rebuilt_one_after_the_other() {
    let (mut writer, _) = small(1, 40_000);
    let holder = register(&mut writer, 1)[0];
    let (segments, room) = (writer.plan().segments, writer.plan().limits.rebuild);
    // With so much of it held all the time, each segment has a place of its own.
    let stay: Vec<u64> =
        (0..writer.plan().capacity() * 3 / 5).map(|number| key_of(1 << 32 | number)).collect();
    assert_eq!(writer.store(holder, &stay, 0).refused, 0);
    assert_eq!(places(&writer), segments);
    let keys: Vec<u64> = (0..4 * segments * room).map(key_of).collect();
    let mut rebuilds = Vec::new();
    // Of 2,000 more; a sixteenth of what would fill all segments is stored between two looks.
    for sixteenth in keys.chunks(segments * room / 16) {
        for some in sixteenth.chunks(2_000) {
            writer.store(holder, some, 0);
            writer.remove(holder, some);
        }
        rebuilds.push(writer.stats().rebuilds);
    }
    let most = rebuilds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(rebuilds[63] > 3 * segments as u64, "{rebuilds:?}");
    assert!(most < segments as u64 / 3, "{most} of {segments}: {rebuilds:?}");
    writer.check().unwrap();
}

/// Places that segments live in.
fn places(writer: &Writer) -> usize {
    writer.fills.iter().filter(|fill| fill.end > fill.first).count()
}

#[test]
fn an_index_takes_as_many_places_as_it_has_blocks_for_and_more_one_after_the_other() {
    let (mut writer, mut reader) = small(1, 400_000);
    let holder = register(&mut writer, 1)[0];
    let plan = writer.plan();
    let keys: Vec<u64> = (0..plan.capacity() * 9 / 10).map(key_of).collect();
    let (mut stored, mut last, mut most) = (0, places(&writer), 0);
    assert_eq!(last, 1);
    for some in keys.chunks(plan.capacity() / 100) {
        assert_eq!(writer.store(holder, some, u32::MAX).refused, 0, "of every depth, behind {stored}");
        stored += some.len();
        let used = places(&writer);
        assert!(used * plan.slots <= 16 * stored + plan.slots, "{used} places for {stored}");
        (last, most) = (used, most.max(used - last));
    }
    assert_eq!(last, plan.segments);
    assert!(most <= plan.segments / 8, "{most} of {} at once", plan.segments);
    writer.check().unwrap();
    let view = reader.view();
    assert!(keys.iter().all(|key| view.holders(*key).contains(holder.bit())));
}

#[test]
fn a_small_and_changing_content_takes_few_places_for_ever() {
    let (mut writer, _) = small(1, 400_000);
    let holder = register(&mut writer, 1)[0];
    for round in 0..400_usize {
        let keys: Vec<u64> = (0..2_000).map(|number| key_of(round << 16 | number)).collect();
        writer.store(holder, &keys, 0);
        writer.remove(holder, &keys);
    }
    assert!(places(&writer) <= 2 && writer.stats().rebuilds > 20, "{} {:?}", places(&writer), writer.stats());
    writer.check().unwrap();
}

#[test]
fn a_block_stored_again_is_still_one_and_goes_with_one_removal() {
    let (mut writer, mut reader) = small(2, 100);
    let holders = register(&mut writer, 2);
    for holder in &holders {
        assert_eq!(writer.store(*holder, &[5, 6], 0), Stored { added: 2, ..Stored::default() });
        assert_eq!(writer.store(*holder, &[5], 0), Stored { again: 1, ..Stored::default() });
    }
    assert_eq!(writer.remove(holders[0], &[5, 5]), Removed { gone: 1, unknown: 1 });
    assert_eq!(reader.view().holders(5).bits().collect::<Vec<_>>(), [1]);
    assert_eq!((writer.held(holders[0]), writer.held(holders[1])), (1, 2));
    writer.check().unwrap();
}

#[test]
fn a_full_index_refuses_deep_blocks_first_and_marks_the_holder_partial() {
    let (mut writer, mut reader) = small(64, 4_000);
    let holders = register(&mut writer, 2);
    let mut random = Random(3);
    let (mut shallow, mut deep) = (Stored::default(), Stored::default());
    let first: Vec<u64> = (0..3_600).map(|_| random.word()).collect();
    writer.store(holders[0], &first, 0);
    assert!(reader.view().partial().is_empty());
    for _ in 0..800 {
        let stored = writer.store(holders[1], &[random.word()], 30_000);
        deep = Stored { refused: deep.refused + stored.refused, added: deep.added + stored.added, ..deep };
        let stored = writer.store(holders[0], &[random.word()], 0);
        shallow = Stored { refused: shallow.refused + stored.refused, ..shallow };
    }
    assert!(deep.refused > 300 && shallow.refused < 10, "{deep:?} {shallow:?}");
    assert!(reader.view().partial().contains(holders[1].bit()));
    assert_eq!(writer.stats().refused, (deep.refused + shallow.refused) as u64);
    let shared = writer.store(holders[1], &first, 40_000);
    assert_eq!(shared.added, first.len(), "a block that another holder has needs no room");
    writer.clear(holders[1]);
    assert!(!reader.view().partial().contains(holders[1].bit()));
    writer.check().unwrap();
}

#[test]
fn a_clear_is_seen_before_any_sweep_and_only_by_its_holder() {
    let (mut writer, mut reader) = small(64, 4_000);
    let holders = register(&mut writer, 2);
    let keys: Vec<u64> = (0..500).map(key_of).collect();
    for holder in [holders[0], holders[1], holders[0]] {
        writer.store(holder, &keys, 0);
    }
    writer.clear(holders[0]);
    for key in &keys {
        assert_eq!(reader.view().holders(*key).bits().collect::<Vec<_>>(), [1]);
    }
    assert_eq!(writer.remove(holders[0], &keys[..1]).unknown, 1);
    assert_eq!(writer.held(holders[0]), 0);
    writer.store(holders[0], &keys[..1], 0);
    assert_eq!(writer.remove(holders[0], &keys[..1]).gone, 1);
    let before = writer.stats().stale_places;
    assert_eq!(writer.sweep(1), before - 1);
    while writer.sweep(10) > 0 {}
    writer.check().unwrap();
}

#[test]
fn a_bit_leased_again_starts_empty_under_its_new_name() {
    let (mut writer, mut reader) = small(64, 1_000);
    let holders = register(&mut writer, 64);
    assert_eq!(writer.register(99), None, "all bits are leased");
    writer.store(holders[5], &[1, 2, 3], 0);
    writer.release(holders[5]);
    let view = reader.view();
    assert_eq!((view.name(5), view.live().contains(5)), (None, false));
    drop(view);
    let again = writer.register(99).unwrap();
    assert_eq!((again.bit(), reader.view().name(5)), (5, Some(99)));
    assert!(reader.view().holders(1).is_empty());
    assert_eq!(writer.store(holders[5], &[7], 0), Stored::default(), "the old lease is over");
    assert_eq!(writer.store(again, &[1], 0).added, 1);
    writer.check().unwrap();
}

#[test]
fn a_reader_that_stays_online_stops_no_store_while_slots_last_and_sees_its_blocks() {
    let (mut writer, mut reader) = small(64, 1_000);
    let holders = register(&mut writer, 2);
    let kept: Vec<u64> = (0..100).map(key_of).collect();
    writer.store(holders[0], &kept, 0);
    let mut random = Random(1);
    let mut churn = |writer: &mut Writer| {
        (0..2_000).map(|_| random.word()).fold(0, |refused, key| {
            let stored = writer.store(holders[1], &[key], 0);
            writer.remove(holders[1], &[key]);
            refused + stored.refused
        })
    };
    let view = reader.view();
    assert!(churn(&mut writer) > 0, "places run out under a view that stays");
    assert!(kept.iter().all(|key| view.holders(*key).contains(0)));
    drop(view);
    churn(&mut writer);
    assert_eq!(churn(&mut writer), 0, "and come back when it goes");
    writer.check().unwrap();
}

#[test]
fn registrations_are_bounded_and_come_back() {
    let (_writer, readers) = index(Plan::for_blocks(100, 1, 2).unwrap(), 1);
    let (first, _second) = (readers.reader(), readers.reader());
    assert!(first.is_some() && readers.reader().is_none());
    drop(first);
    assert!(readers.reader().is_some());
}

/// Real threads: blocks that are always held are always found, blocks of a cleared holder are old or new.
#[test]
fn readers_of_a_churning_index_never_miss_what_is_always_there() {
    let (mut writer, readers) = index(Plan::for_blocks(2_000, 64, 2).unwrap(), 7);
    let holders = register(&mut writer, 3);
    let kept: Vec<u64> = (0..64).map(key_of).collect();
    writer.store(holders[0], &kept, 0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut reader = readers.reader().unwrap();
            let all = reader.view().live();
            let (mut out, mut looks) = (vec![0; 64], 0_u64);
            while !done.load(std::sync::atomic::Ordering::Relaxed) || looks < 100 {
                reader.view().walk(&kept, &all, &mut out);
                assert_eq!(out[0], 64);
                looks += 1;
            }
        });
        let mut random = Random(9);
        let mut round = 0;
        // A reader that has no CPU in the midst of a view holds rebuilds back.
        while round < 400 || writer.stats().rebuilds <= 10 {
            round += 1;
            let keys: Vec<u64> = (0..300).map(|_| random.word()).collect();
            writer.store(holders[1], &keys, 0);
            writer.store(holders[2], &kept, 0);
            if round % 3 == 0 {
                writer.clear(holders[2]);
            }
            writer.remove(holders[1], &keys);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        watch.join().unwrap();
    });
    writer.check().unwrap();
}
