//! The map beside a list, and under threads.

use super::*;

/// A key of the set `at`.
fn key(at: u64, name: u64) -> u64 {
    at << 32 | name
}

#[test]
fn what_is_put_is_found_until_it_lapses_and_finding_lengthens_it() {
    let map = TimedMap::new(1 << 12);
    assert_eq!((map.bytes(), TimedMap::new(0).bytes(), TimedMap::new(5000).bytes()), (4096, 128, 4096));
    assert!(map.put(key(1, 7), 10, 0, |before| before.map_or(5, |_| 0)));
    assert_eq!(map.find(key(1, 7), 20, 9), Some(5));
    assert_eq!(map.find(key(1, 8), 20, 9), None, "another key of the set");
    assert_eq!((map.peek(key(1, 7), 19), map.peek(key(1, 7), 20)), (Some(5), None));
    assert_eq!((map.find(key(1, 7), 30, 19), map.live(29), map.live(30)), (Some(5), 1, 0));
    assert_eq!(map.find(key(1, 7), 40, 30), None, "it lapsed");
    assert!(map.put(key(1, 7), 50, 31, |before| before.map_or(6, |_| 0)), "what lapsed is no value");
    assert!(map.put(key(1, 7), 50, 31, |before| before.map_or(0, |value| value + 1)));
    assert_eq!(map.find(key(1, 7), 50, 31), Some(7));
    map.remove(key(1, 7), 8);
    assert_eq!(map.find(key(1, 7), 50, 31), Some(7), "it has another value meanwhile");
    map.remove(key(1, 7), 7);
    assert_eq!((map.find(key(1, 7), 50, 31), map.live(31)), (None, 0));
    assert!(map.put(0, 50, 31, |_| 9) && map.find(0, 50, 31) == Some(9) && map.live(31) == 1);
}

#[test]
fn a_full_set_loses_what_lapses_first() {
    let map = TimedMap::new(0);
    let put = |name, until, now| assert!(map.put(name, until, now, |_| name));
    (1..=5).for_each(|name| put(name, 100 + name, 0));
    assert_eq!(map.find(1, 200, 0), Some(1), "used last");
    put(6, 106, 0);
    let found = |now| (1..=7).filter(|name| map.find(*name, 300, now).is_some()).collect::<Vec<_>>();
    assert_eq!(found(0), [1, 3, 4, 5, 6]);
    (3..=6).for_each(|name| put(name, 50, 1));
    put(7, 400, 60);
    assert_eq!(found(60), [1, 7]);
}

/// Four threads write values that say their key, to a map of one set: nobody ever reads half an entry.
#[test]
fn nobody_reads_half_an_entry() {
    let map = TimedMap::new(0);
    let run = |seed: u64| {
        let mut found = 0u32;
        for round in 0..30_000u64 {
            // Each thread finds what it put itself too, however the others run.
            let own = (round / 4 * 7 + seed) % 9;
            let name = 1 + if round % 4 == 2 { (own + 4) % 9 } else { own };
            match round % 4 {
                0 => drop(map.put(name, u64::MAX, 0, |_| name * 1_000_003)),
                3 => map.remove(name, name * 1_000_003),
                _ => {
                    if let Some(value) = map.find(name, u64::MAX, 0) {
                        assert_eq!(value, name * 1_000_003);
                        found += 1;
                    }
                }
            }
        }
        found
    };
    let found: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(found > 0);
    assert!(map.live(0) <= WAYS);
}
