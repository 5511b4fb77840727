//! The table against a naive one, its bounds, its clock, and threads at once.

use super::*;
use std::collections::HashMap;

/// SplitMix64, also the keys of a prompt.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn prompt(number: u64, blocks: usize) -> Vec<u64> {
    (0..blocks as u64).map(|block| mix(number << 32 | block)).collect()
}

fn to(source: u32) -> Destination {
    Destination { source, rank: 0 }
}

fn promise(table: &Promises, keys: &[u64], held: u32, to: Destination, now: Nanos) {
    table.make(promised_keys(keys, held), to, now);
}

#[test]
fn depths_are_few_and_end_with_the_last() {
    let of = |held, blocks| depths(held, blocks).collect::<Vec<u32>>();
    assert_eq!(of(0, 5), [1, 2, 3, 4, 5]);
    assert_eq!(of(14, 50), [15, 16, 32, 48, 50]);
    assert_eq!((of(0, 0), of(7, 7), of(9, 7)), (vec![], vec![], vec![]));
    assert_eq!(of(40, 41), [41]);
    assert_eq!(of(0, 8192).len(), 191);
    assert_eq!(of(0, u32::MAX).len(), DEPTHS_MAX);
    for blocks in (0..3000).chain([8191, 8193, 65_537, 1_048_577]) {
        let all = of(0, blocks);
        assert!(all.is_sorted_by(|a, b| a < b) && all.last().copied().unwrap_or(0) == blocks);
        let held = blocks / 3;
        let beyond: Vec<u32> = all.into_iter().filter(|depth| *depth > held).collect();
        assert_eq!(of(held, blocks), beyond, "the same whatever is held");
    }
}

#[test]
fn a_promise_is_found_by_its_prompt_and_by_longer_ones() {
    let table = Promises::new(1 << 16);
    let long = prompt(1, 900);
    promise(&table, &long[..500], 0, to(3), 0);
    assert_eq!(table.look(&long[..500], 0, 1).run(to(3), 0), 500);
    assert_eq!(table.look(&long, 0, 1).run(to(3), 0), 496, "the last depth that both have");
    assert_eq!(table.look(&long[..40], 0, 1).run(to(3), 0), 32);
    assert_eq!(table.look(&long, 0, 1).run(to(4), 7), 7, "another source: what it holds");
    assert_eq!(table.look(&long, 0, 1).run(Destination { source: 3, rank: 1 }, 0), 0, "another rank");
    assert!(table.look(&prompt(2, 900), 0, 1).is_empty());
}

#[test]
fn what_is_held_is_not_promised_and_goes_before_what_is() {
    let table = Promises::new(1 << 16);
    let keys = prompt(1, 65);
    promise(&table, &keys, 64, to(3), 0);
    let promised = table.look(&keys, 64, 1);
    assert_eq!((promised.run(to(3), 64), promised.run(to(3), 63)), (65, 63), "one alone must follow on");
    promise(&table, &keys, 40, to(4), 0);
    let promised = table.look(&keys, 64, 1);
    assert_eq!((promised.run(to(4), 40), promised.run(to(4), 0)), (65, 65), "48, 64 and 65 are neighbours");
    assert_eq!(table.look(&keys, 0, 1).run(to(4), 40), 40, "nobody holds anything: the look ends early");
}

#[test]
fn a_promise_ends_when_answered_failed_or_late() {
    let keys = prompt(1, 100);
    let table = Promises::new(1 << 16);
    let run = |now| table.look(&keys, 0, now).run(to(1), 0);
    let made = 12_345 * MILLISECOND;
    promise(&table, &keys, 0, to(1), made);
    assert_eq!((run(made + PROMISE_LIFE - TICK), run(made + PROMISE_LIFE + TICK)), (100, 0));
    table.answered(promised_keys(&keys, 0), to(1), made + SECOND);
    let after = made + SECOND + PROMISE_AFTER_ANSWER;
    assert_eq!((run(after - TICK), run(after + TICK)), (100, 0));
    promise(&table, &keys, 0, to(1), after);
    table.failed(promised_keys(&keys, 0), to(2), after);
    assert_eq!(run(after), 100, "another's failure");
    promise(&table, &keys[..50], 0, to(1), after + SECOND);
    table.failed(promised_keys(&keys, 0), to(1), after);
    assert_eq!(run(after + SECOND), 48, "what was promised again stays");
    table.failed(promised_keys(&keys[..50], 0), to(1), after + SECOND);
    assert!(table.look(&keys, 0, after + SECOND).is_empty());
}

/// Ends of the words' clock: a promise made shortly before the wrap lives its life, and a word that lapsed is
/// swept long before its tick comes round.
#[test]
fn the_clock_wraps() {
    let keys = prompt(1, 20);
    for wraps in [1, 2, 77] {
        for before in [0, 1, 5, 299, 300, 301, 400] {
            let table = Promises::new(1 << 12);
            let made = (wraps * TICKS - before) * TICK + 7;
            promise(&table, &keys, 0, to(1), made);
            let run = |now| table.look(&keys, 0, now).run(to(1), 0);
            assert_eq!((run(made), run(made + PROMISE_LIFE)), (20, 20));
            assert_eq!(run(made + PROMISE_LIFE + TICK), 0);
            let later = made + PROMISE_LIFE + SECOND;
            for other in 0..table.buckets.len() as u64 / SWEPT as u64 {
                promise(&table, &prompt(2 + other, 1), 0, to(2), later);
            }
            assert_eq!(run(made + TICKS * TICK), 0, "swept");
        }
    }
}

/// Random promises, answers, failures and looks against a map that forgets nothing.
#[test]
fn it_does_as_a_map_does() {
    for seed in 0..100 {
        let table = Promises::new(1 << 16);
        let mut model: HashMap<(u64, Destination), u64> = HashMap::new();
        let mut draws = mix(seed);
        let mut draw = |end: u64| {
            draws = mix(draws);
            draws % end
        };
        let mut now = draw(1 << 50);
        let mut made: Vec<(Vec<u64>, Destination, Nanos)> = Vec::new();
        for _ in 0..60 {
            now += draw(3 * SECOND);
            let keys = prompt(seed << 8 | draw(3), 1 + draw(120) as usize);
            let someone = Destination { source: draw(3) as u32, rank: draw(2) as u8 };
            let tick = |at: Nanos| at / TICK + u64::from(at / TICK * TICK < at);
            match draw(4) {
                0 | 1 => {
                    let held = draw(20) as u32;
                    let keys: Vec<u64> = promised_keys(&keys, held).collect();
                    table.make(keys.iter().copied(), someone, now);
                    for key in &keys {
                        let expiry = model.entry((*key, someone)).or_default();
                        *expiry = (*expiry).max(tick(now + PROMISE_LIFE));
                    }
                    made.push((keys, someone, now));
                }
                2 if !made.is_empty() => {
                    let (keys, someone, _) = &made[draw(made.len() as u64) as usize];
                    table.answered(keys.iter().copied(), *someone, now);
                    for key in keys {
                        let expiry = model.get_mut(&(*key, *someone)).unwrap();
                        *expiry = (*expiry).min(tick(now + PROMISE_AFTER_ANSWER));
                    }
                }
                3 if !made.is_empty() => {
                    let (keys, someone, at) = &made[draw(made.len() as u64) as usize];
                    table.failed(keys.iter().copied(), *someone, *at);
                    for key in keys {
                        let expiry = model.get_mut(&(*key, *someone)).unwrap();
                        *expiry = if *expiry == tick(at + PROMISE_LIFE) { 0 } else { *expiry };
                    }
                }
                _ => {}
            }
            let held = draw(120) as u32;
            let promised = table.look(&keys, u32::MAX, now);
            for source in 0..3 {
                for rank in 0..2 {
                    let someone = Destination { source, rank };
                    let is = |key: u64| model.get(&(key, someone)).is_some_and(|expiry| *expiry > now / TICK);
                    let expected = naive_run(&keys, held, is);
                    assert_eq!(promised.run(someone, held), expected, "seed {seed} {someone:?} {held}");
                }
            }
        }
    }
}

/// The deepest promise that has a neighbour before it, or, being the last row of all, follows on what is held.
fn naive_run(keys: &[u64], held: u32, is_promised: impl Fn(u64) -> bool) -> u32 {
    let all: Vec<u32> = std::iter::once(0).chain(depths(0, keys.len() as u32)).collect();
    let promised: Vec<bool> = all.iter().map(|d| *d > 0 && is_promised(keys[*d as usize - 1])).collect();
    let mut run = held;
    let Some(last) = promised.iter().rposition(|p| *p) else { return run };
    for at in 1..all.len() {
        let follows = promised[at - 1] || (at == last && all[at - 1] <= held);
        if promised[at] && follows {
            run = run.max(all[at]);
        }
    }
    run
}

#[test]
fn it_has_a_size_and_the_newest_stay() {
    let bytes = |size| Promises::new(size).bytes();
    assert_eq!((bytes(0), bytes(128), bytes(255)), (128, 128, 128));
    assert_eq!((bytes(1 << 16), bytes((1 << 17) - 1)), (1 << 16, 1 << 16));
    assert_eq!(size_of::<Bucket>() / WAYS, 8, "bytes a promise");
    let table = Promises::new(128);
    for source in 0..20 {
        promise(&table, &prompt(1, 1), 0, to(source), Nanos::from(source) * SECOND);
    }
    let promised = table.look(&prompt(1, 1), 0, 20 * SECOND);
    let found: Vec<u32> = (0..20).filter(|source| promised.run(to(*source), 0) == 1).collect();
    assert_eq!(found, (4..20).collect::<Vec<_>>());
}

/// A look follows more destinations than a bucket holds, and prefers the deep ones.
#[test]
fn a_look_follows_the_deepest() {
    let mut promised = Promised::default();
    for source in 0..FOUND_MAX as u32 {
        promised.note(to(source).code() as u32, 0, 1);
    }
    promised.note(to(0).code() as u32, 1, 2);
    promised.note(to(99).code() as u32, 1, 2);
    assert_eq!((promised.run(to(99), 1), promised.run(to(0), 0), promised.run(to(1), 0)), (2, 2, 0));
}

/// Keys of other prompts are taken for promised ones no more often than 24 bits of tag allow.
#[test]
fn strangers_are_rarely_found() {
    let table = Promises::new(1 << 12);
    for number in 0..200 {
        promise(&table, &prompt(number, 16), 0, to(number as u32), 0);
    }
    let strangers = (1000..21_000).filter(|number| !table.look(&prompt(*number, 16), 16, 1).is_empty());
    // 320,000 looks at 16 words each of 24 bits: 0.3 expected.
    assert!(strangers.count() <= 3);
}

/// Four threads promise, look, answer and fail on a table much too small: nothing but words that somebody wrote
/// is found, and after all is over and lapsed the table is empty.
#[test]
fn threads_at_once_leave_no_foreign_words() {
    let table = Promises::new(512);
    let work = |thread: u64| {
        for round in 0..2_000u64 {
            let keys = prompt(mix(thread << 32 | round) % 8, 20);
            let someone = to((round % 5) as u32);
            let now = round * MILLISECOND;
            promise(&table, &keys, 0, someone, now);
            let promised = table.look(&keys, 20, now);
            for row in &promised.rows[..promised.len] {
                assert!((0..5).any(|source| to(source).code() == u64::from(row.code)));
            }
            match round % 3 {
                0 => table.failed(promised_keys(&keys, 0), someone, now),
                1 => table.answered(promised_keys(&keys, 0), someone, now),
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    let later = 2 * SECOND + PROMISE_LIFE + SECOND;
    table.make([], to(0), later);
    assert!(table.buckets.iter().flat_map(|b| &b.0).all(|word| word.load(Relaxed) == 0));
}
