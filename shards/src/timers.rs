//! A timer wheel. Owns when a connection is looked at next; must never know why.
//!
//! Deadlines move with almost every read and almost never fire, so moving one later costs nothing here: the
//! connection keeps its deadline itself, and arms anew when its entry fires too early. An entry that an
//! earlier one replaced is told by its time and ignored.

use warmpath_core::{MILLISECOND, Nanos};
use warmpath_ring::Sock;

/// Ticks in a turn of the wheel; with [`TICK`], 10.24 s. Later entries go round again.
const SLOTS: usize = 1024;

/// The grain of a timer.
const TICK: Nanos = 10 * MILLISECOND;

/// The entries of one shard.
pub struct Timers {
    slots: Vec<Vec<(Sock, Nanos)>>,
    /// One bit a slot: not empty.
    filled: [u64; SLOTS / 64],
    /// The next tick to look at.
    tick: u64,
    spare: Vec<(Sock, Nanos)>,
}

impl Timers {
    /// An empty wheel that begins at `now`.
    pub fn new(now: Nanos) -> Self {
        Timers {
            slots: vec![Vec::new(); SLOTS],
            filled: [0; SLOTS / 64],
            tick: now / TICK,
            spare: Vec::new(),
        }
    }

    /// Looks at `sock` at `at`, or up to one tick later.
    pub fn arm(&mut self, sock: Sock, at: Nanos) {
        let tick = (at.div_ceil(TICK)).max(self.tick);
        let slot = (tick % SLOTS as u64) as usize;
        self.slots[slot].push((sock, at));
        self.filled[slot / 64] |= 1 << (slot % 64);
    }

    /// Appends the entries due at `now` to `due`, with the time they were armed for.
    pub fn expire(&mut self, now: Nanos, due: &mut Vec<(Sock, Nanos)>) {
        let last = now / TICK;
        while self.tick <= last {
            match self.next_filled() {
                Some(tick) if tick <= last => {
                    self.tick = tick;
                    self.empty_slot((tick % SLOTS as u64) as usize, now, due);
                    self.tick += 1;
                }
                _ => self.tick = last + 1,
            }
        }
    }

    /// Nanoseconds until something may be due; `None` if nothing is armed.
    pub fn until_next(&self, now: Nanos) -> Option<Nanos> {
        self.next_filled().map(|tick| (tick * TICK).saturating_sub(now))
    }

    fn empty_slot(&mut self, slot: usize, now: Nanos, due: &mut Vec<(Sock, Nanos)>) {
        let mut entries = std::mem::replace(&mut self.slots[slot], std::mem::take(&mut self.spare));
        self.filled[slot / 64] &= !(1 << (slot % 64));
        for (sock, at) in entries.drain(..) {
            if at <= now {
                due.push((sock, at));
            } else {
                self.slots[slot].push((sock, at));
                self.filled[slot / 64] |= 1 << (slot % 64);
            }
        }
        self.spare = entries;
    }

    /// The first tick from `self.tick` on whose slot is not empty, within one turn.
    fn next_filled(&self) -> Option<u64> {
        let start = (self.tick % SLOTS as u64) as usize;
        let words = self.filled.len();
        for k in 0..=words {
            let word = (start / 64 + k) % words;
            let mut bits = self.filled[word];
            if k == 0 {
                bits &= u64::MAX << (start % 64);
            } else if k == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.tick + ((slot + SLOTS - start) % SLOTS) as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::SECOND;

    fn sock(slot: u32) -> Sock {
        Sock { slot, generation: 1 }
    }

    fn run(timers: &mut Timers, now: Nanos) -> Vec<u32> {
        let mut due = Vec::new();
        timers.expire(now, &mut due);
        due.iter().map(|(s, _)| s.slot).collect()
    }

    #[test]
    fn fires_in_order_within_a_tick_of_its_time() {
        let mut timers = Timers::new(0);
        timers.arm(sock(1), 35 * MILLISECOND);
        timers.arm(sock(2), 5 * MILLISECOND);
        assert_eq!(timers.until_next(0), Some(10 * MILLISECOND));
        assert!(run(&mut timers, 4 * MILLISECOND).is_empty());
        assert_eq!(run(&mut timers, 10 * MILLISECOND), [2]);
        assert!(run(&mut timers, 34 * MILLISECOND).is_empty());
        assert_eq!(run(&mut timers, 40 * MILLISECOND), [1]);
        assert_eq!(timers.until_next(0), None);
    }

    #[test]
    fn far_entries_go_round_until_they_are_due() {
        let mut timers = Timers::new(7 * SECOND);
        timers.arm(sock(1), 107 * SECOND);
        for second in 8..107 {
            assert!(run(&mut timers, second * SECOND).is_empty(), "second {second}");
            assert!(timers.until_next(second * SECOND).is_some());
        }
        assert_eq!(run(&mut timers, 107 * SECOND), [1]);
    }

    #[test]
    fn an_entry_in_the_past_fires_at_the_next_look() {
        let mut timers = Timers::new(SECOND);
        timers.arm(sock(1), 0);
        assert_eq!(run(&mut timers, SECOND), [1]);
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut timers = Timers::new(0);
        let mut list = Vec::new();
        let mut seed = 7u64;
        let mut now = 0;
        for k in 0..5_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = now + (seed >> 33) % (30 * SECOND);
            timers.arm(sock(k), at);
            list.push((at, k));
            now += (seed >> 40) % (20 * MILLISECOND);
            let fired = run(&mut timers, now);
            let grain = now / TICK * TICK;
            for slot in fired {
                let place = list.iter().position(|(_, k)| *k == slot).expect("fired once");
                assert!(list.swap_remove(place).0 <= now);
            }
            assert!(list.iter().all(|(at, _)| at.div_ceil(TICK) * TICK > grain), "late at {now}");
        }
    }
}
