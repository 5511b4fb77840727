//! Walk, jump and choice against the naive map.

use crate::model::{Naive, Random};
use crate::*;

/// Prompts that share prefixes: each continues an earlier one from a random block on.
fn prompts(random: &mut Random, count: usize) -> Vec<Vec<u64>> {
    let mut made: Vec<Vec<u64>> = vec![(0..200).map(|_| random.word()).collect()];
    while made.len() < count {
        let from = random.below(made.len());
        let cut = random.below(made[from].len());
        let mut next = made[from][..cut].to_vec();
        next.extend((0..1 + random.below(150)).map(|_| random.word()));
        made.push(next);
    }
    made
}

struct World {
    writer: Writer,
    reader: Reader,
    naive: Naive,
    holders: Vec<Holder>,
    prompts: Vec<Vec<u64>>,
}

impl World {
    fn new(seed: u64, count: usize, blocks: usize) -> World {
        let (mut writer, readers) = index(Plan::for_blocks(blocks, count, 1).unwrap(), seed);
        let holders = (0..count).map(|name| writer.register(name as u64).unwrap()).collect();
        let prompts = prompts(&mut Random(seed), 30);
        World { writer, reader: readers.reader().unwrap(), naive: Naive::default(), holders, prompts }
    }

    fn store(&mut self, holder: Holder, keys: &[u64]) {
        for (depth, key) in keys.iter().enumerate() {
            if self.writer.store(holder, &[*key], depth as u32).refused == 0 {
                self.naive.store(holder.bit(), *key);
            }
        }
    }

    /// Every holder caches the front of some prompts, as an engine does.
    fn fill_prefix_closed(&mut self, random: &mut Random) {
        for holder in self.holders.clone() {
            for _ in 0..4 {
                let prompt = self.prompts[random.below(self.prompts.len())].clone();
                let length = random.below(prompt.len() + 1);
                self.store(holder, &prompt[..length]);
            }
        }
    }

    fn punch_holes(&mut self, random: &mut Random, count: usize) {
        for _ in 0..count {
            let holder = self.holders[random.below(self.holders.len())];
            let prompt = &self.prompts[random.below(self.prompts.len())];
            let key = prompt[random.below(prompt.len())];
            self.writer.remove(holder, &[key]);
            self.naive.remove(holder.bit(), key);
        }
    }

    fn expected(&self, keys: &[u64]) -> Vec<u32> {
        self.holders.iter().map(|holder| self.naive.overlap(keys, holder.bit())).collect()
    }
}

#[test]
fn walk_and_jump_equal_the_naive_map_where_residency_is_prefix_closed() {
    for (seed, count) in [(1, 2), (2, 64), (3, 70), (4, 250), (5, 330)] {
        let mut world = World::new(seed, count, 8_000);
        world.fill_prefix_closed(&mut Random(seed));
        for keys in world.prompts.clone() {
            let expected = world.expected(&keys);
            let mut out = vec![9; world.reader.bits()];
            let view = world.reader.view();
            view.walk(&keys, &view.live(), &mut out);
            assert_eq!(out[..count], expected, "walk, seed {seed}");
            assert!(out[count..].iter().all(|untouched| *untouched == 9));
            out.fill(9);
            view.jump(&keys, &view.live(), &mut out);
            assert_eq!(out[..count], expected, "jump, seed {seed}");
        }
    }
}

#[test]
fn with_holes_a_jump_is_an_upper_bound() {
    let mut lowered = 0;
    for seed in 10..30 {
        let mut world = World::new(seed, 40, 8_000);
        let mut random = Random(seed);
        world.fill_prefix_closed(&mut random);
        world.punch_holes(&mut random, 1_500);
        for keys in world.prompts.clone() {
            let expected = world.expected(&keys);
            let mut out = vec![0; world.reader.bits()];
            let view = world.reader.view();
            view.walk(&keys, &view.live(), &mut out);
            assert_eq!(out[..40], expected);
            view.jump(&keys, &view.live(), &mut out);
            assert!(expected.iter().zip(&out).all(|(exact, bound)| exact <= bound));
            lowered += usize::from(out[..40] != expected);
        }
    }
    assert!(lowered > 50, "the holes must matter: {lowered}");
}

#[test]
fn a_refused_block_is_a_hole_that_no_jump_skips() {
    let mut partial = 0;
    for seed in 40..60 {
        let mut world = World::new(seed, 3, 600);
        world.fill_prefix_closed(&mut Random(seed));
        partial += world.reader.view().partial().bits().count();
        for keys in world.prompts.clone() {
            let expected = world.expected(&keys);
            let mut out = vec![0; world.reader.bits()];
            let view = world.reader.view();
            view.jump(&keys, &view.live(), &mut out);
            assert_eq!(out[..3], expected, "seed {seed}");
        }
    }
    assert!(partial > 10, "{partial}");
}

#[test]
fn only_candidates_are_told_and_a_narrow_answer_is_no_fault() {
    let mut world = World::new(1, 10, 2_000);
    let keys = world.prompts[0].clone();
    for holder in world.holders.clone() {
        world.store(holder, &keys[..holder.bit() + 1]);
    }
    let mut some = HolderSet::empty();
    [2, 7, 400].iter().for_each(|bit| some.insert(*bit));
    let mut out = vec![77; 500];
    let view = world.reader.view();
    view.walk(&keys, &some, &mut out);
    assert_eq!((out[2], out[3], out[7], out[400]), (3, 77, 8, 0));
    let mut narrow = [77; 5];
    view.jump(&keys, &some, &mut narrow);
    assert_eq!(narrow, [77, 77, 3, 77, 77]);
    view.walk(&[], &some, &mut out);
    assert_eq!((out[2], out[7]), (0, 0));
}

#[test]
fn a_view_older_than_a_clear_tells_nothing_of_that_holder() {
    let mut world = World::new(1, 3, 2_000);
    let keys = world.prompts[0].clone();
    for holder in world.holders.clone() {
        world.store(holder, &keys);
    }
    let (all, mut out) = (world.reader.view().live(), vec![0; 64]);
    let view = world.reader.view();
    world.writer.clear(world.holders[1]);
    world.writer.store(world.holders[1], &keys[..50], 0);
    view.walk(&keys, &all, &mut out);
    assert_eq!(out[..3], [200, 0, 200]);
    assert!(view.name(1).is_none() && !view.holders(keys[0]).contains(1));
    drop(view);
    world.reader.view().jump(&keys, &all, &mut out);
    assert_eq!(out[..3], [200, 50, 200]);
}
