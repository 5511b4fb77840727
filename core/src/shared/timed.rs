//! A bounded map of words that lapse, of all shards: key to value and time. Owns its protocol; must never make a
//! reader wait, nor grow.
//!
//! Entries stand in sets of [`WAYS`], two neighbouring cache lines, chosen by the key, with a version. Who writes makes
//! the version odd by compare and swap, writes, and makes it even again; who reads takes what stood there between two
//! looks at the same even version, and after [`READS`] looks that were disturbed takes it for absent. So nobody reads half
//! of an entry. A writer that meets another one tries [`ATTEMPTS`] times and then leaves its change undone: what is lost
//! is stickiness or a match, never an answer. A writer that the kernel stops in the middle leaves its set unreadable,
//! and unwritable, until it runs again; all other sets go on.
//!
//! Times are written alone, without the version: who finds an entry lengthens it. Where it was replaced meanwhile, that
//! lengthens another one, once, by as much. Where a set is full the entry that lapses first goes.

use crate::Nanos;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

#[cfg(not(all(test, loom)))]
const WAYS: usize = 5;
/// Loom tries all orders of all accesses: fewer of them show the same.
#[cfg(all(test, loom))]
const WAYS: usize = 1;

/// Looks that a reader takes.
const READS: usize = 4;

/// Compare and swaps that a writer tries for a set.
const ATTEMPTS: usize = 64;

/// The map.
#[derive(Debug)]
pub(super) struct TimedMap {
    sets: Box<[Set]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Set {
    version: AtomicU64,
    entries: [Entry; WAYS],
}

/// Key 0 is nobody's: the entry is free.
#[derive(Debug)]
struct Entry {
    key: AtomicU64,
    value: AtomicU64,
    until: AtomicU64,
}

impl TimedMap {
    /// One of at most `bytes`, a power of two and no less than 128: 25.6 bytes an entry.
    pub fn new(bytes: usize) -> TimedMap {
        let most = (bytes / size_of::<Set>()).clamp(1, 1 << 25);
        let count = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        TimedMap { sets: (0..count).map(|_| Set::new()).collect() }
    }

    /// What it occupies, bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// The value of `key`, if it has not lapsed at `now`; then it lapses at `until`.
    pub fn find(&self, key: u64, until: Nanos, now: Nanos) -> Option<u64> {
        let (set, key) = self.set(key);
        let (place, value, lapses) = set.read(key)?;
        if lapses <= now {
            return None;
        }
        set.entries[place].until.store(until, Relaxed);
        Some(value)
    }

    /// The value of `key`, if it has not lapsed at `now`; it lapses when it would have.
    pub fn peek(&self, key: u64, now: Nanos) -> Option<u64> {
        let (set, key) = self.set(key);
        set.read(key).filter(|(_, _, lapses)| *lapses > now).map(|(_, value, _)| value)
    }

    /// Puts what `change` makes of the value that `key` has (`None`: it has none, or it lapsed), to lapse at `until`.
    /// False: others were in the way.
    pub fn put(&self, key: u64, until: Nanos, now: Nanos, change: impl FnOnce(Option<u64>) -> u64) -> bool {
        let (set, key) = self.set(key);
        set.write(|entries| {
            let place = Set::place(entries, key, now);
            let entry = &entries[place];
            let live = entry.key.load(Relaxed) == key && entry.until.load(Relaxed) > now;
            let value = change(live.then(|| entry.value.load(Relaxed)));
            entry.key.store(key, Relaxed);
            entry.value.store(value, Relaxed);
            entry.until.store(until, Relaxed);
        })
    }

    /// Frees the entry of `key`, if it has this value still.
    pub fn remove(&self, key: u64, value: u64) {
        let (set, key) = self.set(key);
        set.write(|entries| {
            let is_it = |e: &&Entry| e.key.load(Relaxed) == key && e.value.load(Relaxed) == value;
            if let Some(entry) = entries.iter().find(is_it) {
                entry.key.store(0, Relaxed);
            }
        });
    }

    /// Entries that have not lapsed at `now`, counted one by one while others write.
    pub fn live(&self, now: Nanos) -> usize {
        let lives = |e: &&Entry| e.key.load(Relaxed) != 0 && e.until.load(Relaxed) > now;
        self.sets.iter().flat_map(|set| &set.entries).filter(lives).count()
    }

    /// Keys are hashes; 0, that of a free entry, is taken for 1.
    fn set(&self, key: u64) -> (&Set, u64) {
        let at = (key >> 32) as usize & (self.sets.len() - 1);
        (&self.sets[at], key.max(1))
    }
}

impl Set {
    fn new() -> Set {
        let entry = |_| Entry { key: AtomicU64::new(0), value: AtomicU64::new(0), until: AtomicU64::new(0) };
        Set { version: AtomicU64::new(0), entries: std::array::from_fn(entry) }
    }

    /// Place, value and time of an entry, as they were together.
    fn read(&self, key: u64) -> Option<(usize, u64, Nanos)> {
        for _ in 0..READS {
            let before = self.version.load(Acquire);
            let found = self.entries.iter().position(|e| e.key.load(Relaxed) == key).map(|place| {
                let entry = &self.entries[place];
                (place, entry.value.load(Relaxed), entry.until.load(Relaxed))
            });
            fence(Acquire);
            if before.is_multiple_of(2) && self.version.load(Relaxed) == before {
                return found;
            }
        }
        None
    }

    fn write(&self, change: impl FnOnce(&[Entry; WAYS])) -> bool {
        for _ in 0..ATTEMPTS {
            let before = self.version.load(Relaxed);
            let taken = before.is_multiple_of(2)
                && self.version.compare_exchange(before, before + 1, Acquire, Relaxed).is_ok();
            if taken {
                fence(Release);
                change(&self.entries);
                self.version.store(before + 2, Release);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// That of the key, else a free one, else the one that lapses first.
    fn place(entries: &[Entry; WAYS], key: u64, now: Nanos) -> usize {
        let rank = |entry: &Entry| match entry.key.load(Relaxed) {
            own if own == key => (0, 0),
            0 => (1, 0),
            _ if entry.until.load(Relaxed) <= now => (1, 0),
            _ => (2, entry.until.load(Relaxed)),
        };
        (0..WAYS).min_by_key(|place| rank(&entries[*place])).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
