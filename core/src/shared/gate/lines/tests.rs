//! Tenants of different appetite at one queue, by seed.

use super::*;
use std::collections::VecDeque;

const PLACE: Place = Place { shard: 0, slot: 0, generation: 0 };

fn work(tenant: u64, amount: u64) -> Work {
    Work { tenant, amount }
}

fn called(lines: &mut Lines) -> Vec<u64> {
    std::iter::from_fn(|| lines.call()).map(|turn| turn.ticket).collect()
}

#[test]
fn one_line_is_served_in_the_order_it_came() {
    let mut lines = Lines::default();
    (0..6).for_each(|ticket| lines.join(ticket, PLACE, Work::default()));
    assert!(lines.leave(2) && !lines.leave(2));
    assert_eq!((called(&mut lines), lines.len()), (vec![0, 1, 3, 4, 5], 0));
}

#[test]
fn who_was_served_less_goes_first_and_a_line_keeps_its_order() {
    let mut lines = Lines::default();
    (0..4).for_each(|ticket| lines.join(ticket, PLACE, work(1, 100)));
    (4..7).for_each(|ticket| lines.join(ticket, PLACE, work(2, 50)));
    // 1 has 100 after its first turn, 2 has 100 after two.
    assert_eq!(called(&mut lines), [0, 4, 5, 1, 6, 2, 3]);
}

#[test]
fn what_an_answer_turns_out_to_be_counts_too() {
    let mut lines = Lines::default();
    for tenant in [1, 2] {
        (0..2).for_each(|n| lines.join(tenant * 10 + n, PLACE, work(tenant, 1)));
    }
    assert_eq!(lines.call().map(|turn| turn.ticket), Some(10));
    lines.serve(work(1, 1_000));
    assert_eq!(called(&mut lines), [20, 21, 11]);
}

#[test]
fn who_comes_late_has_saved_nothing_up_and_owes_nothing_of_a_quiet_time() {
    let mut lines = Lines::default();
    (0..10).for_each(|ticket| lines.join(ticket, PLACE, work(1, 100)));
    (0..5).for_each(|_| _ = lines.call());
    (10..15).for_each(|ticket| lines.join(ticket, PLACE, work(2, 100)));
    // 2 begins where 1 was called last: it is one turn ahead, not five.
    assert_eq!(called(&mut lines), [10, 5, 11, 6, 12, 7, 13, 8, 14, 9]);
    lines.serve(work(1, 1_000_000));
    lines.join(20, PLACE, work(1, 1));
    lines.join(21, PLACE, work(2, 1));
    assert_eq!(called(&mut lines), [20, 21], "once nobody waited all is forgotten");
}

#[test]
fn tenants_that_are_gone_are_forgotten() {
    let mut lines = Lines::default();
    lines.join(0, PLACE, work(u64::MAX, 1));
    lines.join(1, PLACE, work(u64::MAX, 1));
    for tenant in 0..100_000 {
        lines.join(2 + tenant, PLACE, work(tenant, 1));
        lines.leave(2 + tenant);
    }
    assert!(lines.served.len() <= REMEMBERED + 4, "{}", lines.served.len());
    assert_eq!(called(&mut lines), [0, 1]);
}

/// Eight permits; a heavy tenant that keeps 60 long requests waiting, and light ones that ask now and then. Whatever the
/// seed, each turn is called once, lines keep their order, and no light request waits for more than one heavy one a permit
/// beside what was under way.
#[test]
fn a_heavy_tenant_starves_no_light_one() {
    const PERMITS: usize = 8;
    for seed in 0..300u64 {
        let mut random = Random(seed);
        let mut lines = Lines::default();
        let (mut ticket, mut called, mut joined) = (0, Vec::new(), Vec::new());
        let mut running: VecDeque<(u64, u64)> = VecDeque::new();
        let mut ahead: HashMap<u64, usize> = HashMap::new();
        for _ in 0..2_000 {
            while lines.lines.get(&0).map_or(0, BTreeSet::len) < 60 {
                lines.join(ticket, PLACE, work(0, 2_000));
                joined.push((ticket, 0));
                ticket += 1;
            }
            let light = 1 + random.below(3);
            // One of its own at a time: its own do not wait for each other.
            if random.below(4) == 0 && !lines.lines.contains_key(&light) {
                lines.join(ticket, PLACE, work(light, 20));
                joined.push((ticket, light));
                ahead.insert(ticket, 0);
                ticket += 1;
            }
            if running.len() == PERMITS {
                let (tenant, output) = running.pop_front().unwrap();
                lines.serve(work(tenant, output));
            }
            let turn = lines.call().expect("somebody waits");
            let tenant = joined[turn.ticket as usize].1;
            running
                .push_back((tenant, if tenant == 0 { 500 + random.below(1_000) } else { random.below(30) }));
            called.push((turn.ticket, tenant));
            ahead.remove(&turn.ticket);
            if tenant == 0 {
                ahead.values_mut().for_each(|heavy| *heavy += 1);
            }
            assert!(
                ahead.values().all(|heavy| *heavy <= 1),
                "seed {seed}: a light one was overtaken {ahead:?}"
            );
        }
        called.extend(
            std::iter::from_fn(|| lines.call()).map(|turn| (turn.ticket, joined[turn.ticket as usize].1)),
        );
        assert_eq!(called.len(), joined.len(), "seed {seed}: a turn was lost");
        for tenant in 0..4 {
            let own: Vec<u64> =
                called.iter().filter(|(_, of)| *of == tenant).map(|(ticket, _)| *ticket).collect();
            assert!(own.is_sorted(), "seed {seed}: tenant {tenant} overtook itself");
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
