//! Promised blocks, of the whole gateway: between a decision and the engine's event that a block is stored, the
//! block is on its way. Owns the table of promises; must never make anybody wait, nor grow.
//!
//! A promise is one word: a tag of the block's key, where it goes, and when the promise lapses. Words stand in
//! buckets of 16, two neighbouring cache lines, chosen by the key. Each word is read and written alone, relaxed: nothing
//! is said by two words together that a wrong answer could break, since a false promise costs no more than an
//! overlap that is not there. Writers replace words by compare and swap and give up after [`ATTEMPTS`], so that
//! all are wait-free; where a bucket is full the promise next to lapse goes, so that a block is promised to 16
//! destinations at most, the newest.
//!
//! A prompt is promised at some depths ([`depths`]) beyond what its destination holds. A key names its block and
//! all before it, so one promise at a depth stands for all blocks up to it. It counts where it follows on what
//! is held or has a neighbour at the depth before: a tag has 24 bits, so a full bucket of other keys shows a
//! promise that was not made once in two million looks, and two in a row of one destination once in 10^12.

use super::RANKS_MAX;
use crate::{MILLISECOND, Nanos, SECOND};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// After this a promise that nothing came of lapses.
pub const PROMISE_LIFE: Nanos = 30 * SECOND;

/// How long a promise is kept after the first byte of the answer: by then the engine has told of the blocks.
pub const PROMISE_AFTER_ANSWER: Nanos = 200 * MILLISECOND;

/// Depths at which a prompt is promised at most.
pub const DEPTHS_MAX: usize = 252;

/// Destinations that one look tells of at most: twice what a bucket holds.
const FOUND_MAX: usize = 2 * WAYS;

/// Compare and swaps that a writer tries for one word.
const ATTEMPTS: usize = 4;

/// Buckets that each new promise of a prompt rids of what has lapsed.
const SWEPT: usize = 4;

const WAYS: usize = 16;

/// The clock of the words. They have 18 bits of it, seven hours: a word that stood for so long unswept, which
/// takes a gateway without traffic, would count once more for half a minute.
const TICK: Nanos = 100 * MILLISECOND;
const TICKS: u64 = 1 << 18;

/// The farthest that a live promise may lapse ahead, a second of clocks that differ included.
const AHEAD_MAX: u64 = (PROMISE_LIFE + SECOND) / TICK;

/// Where blocks go: a source and its data-parallel rank (beyond the last: any rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The source's number. Its last 18 bits tell sources apart.
    pub source: u32,
    /// The rank.
    pub rank: u8,
}

impl Destination {
    /// As in a word; never 0, so that no word is.
    fn code(self) -> u64 {
        let rank = if usize::from(self.rank) < RANKS_MAX { u64::from(self.rank) + 1 } else { 15 };
        u64::from(self.source & 0x3ffff) << 4 | rank
    }
}

/// Depths, in leading blocks, at which a prompt of `blocks` is promised beyond the first `held`: each of the
/// first 16, then ever fewer, and the last. Up to the last they are the same for every prompt.
pub fn depths(held: u32, blocks: u32) -> impl Iterator<Item = u32> {
    let next = move |depth: u32| {
        let stride = match depth {
            0..16 => 1,
            16..1024 => 16,
            1024..8192 => 64,
            8192..65_536 => 1024,
            65_536..1_048_576 => 1 << 18,
            _ => return (depth < blocks).then_some(blocks),
        };
        (depth < blocks).then(|| ((depth / stride + 1) * stride).min(blocks))
    };
    std::iter::successors(next(held), move |depth| next(*depth))
}

/// The keys at those depths: what must be kept of a request to end its promise.
pub fn promised_keys(keys: &[u64], held: u32) -> impl Iterator<Item = u64> {
    depths(held, keys.len() as u32).map(|depth| keys[depth as usize - 1])
}

/// The table of promises.
#[derive(Debug)]
pub struct Promises {
    buckets: Box<[Bucket]>,
    sweep: AtomicUsize,
}

#[derive(Debug)]
#[repr(align(128))]
struct Bucket([AtomicU64; WAYS]);

impl Promises {
    /// One of at most `bytes`, a power of two and no less than 128: 8 bytes a promise of one block.
    pub fn new(bytes: usize) -> Promises {
        let most = (bytes / size_of::<[u64; WAYS]>()).clamp(1, 1 << 25);
        let count = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        let bucket = |_| Bucket(std::array::from_fn(|_| AtomicU64::new(0)));
        Promises { buckets: (0..count).map(bucket).collect(), sweep: AtomicUsize::new(0) }
    }

    /// What it occupies, bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Promises blocks ([`promised_keys`]) to `to`; what is promised already is promised for longer.
    pub fn make(&self, keys: impl IntoIterator<Item = u64>, to: Destination, now: Nanos) {
        let expiry = expiry(now, PROMISE_LIFE);
        for key in keys {
            let (bucket, name) = self.find(key, to.code());
            bucket.put(name, expiry, now);
        }
        let from = self.sweep.fetch_add(SWEPT, Relaxed);
        for at in from..from.wrapping_add(SWEPT) {
            self.buckets[at & (self.buckets.len() - 1)].sweep(now);
        }
    }

    /// The answer has begun: the blocks are stored, and what was promised of them lapses soon.
    pub fn answered(&self, keys: impl IntoIterator<Item = u64>, to: Destination, now: Nanos) {
        let expiry = expiry(now, PROMISE_AFTER_ANSWER);
        for key in keys {
            let (bucket, name) = self.find(key, to.code());
            bucket.shorten(name, expiry, now);
        }
    }

    /// The request that was promised at `made` failed: ends what nobody has promised again since.
    pub fn failed(&self, keys: impl IntoIterator<Item = u64>, to: Destination, made: Nanos) {
        for key in keys {
            let (bucket, name) = self.find(key, to.code());
            bucket.remove(name << 18 | expiry(made, PROMISE_LIFE));
        }
    }

    /// Who was promised blocks of a prompt. `held`: the longest run that anybody holds; beyond it the look ends
    /// where two depths in a row are promised to nobody.
    pub fn look(&self, keys: &[u64], held: u32, now: Nanos) -> Promised {
        let mut promised = Promised::default();
        let (mut before, mut bare) = (0, 0);
        for depth in depths(0, keys.len() as u32) {
            let (bucket, name) = self.find(keys[depth as usize - 1], 0);
            let mut found = false;
            for word in bucket.0.iter().map(|word| word.load(Relaxed)) {
                if word >> 40 == name >> 22 && is_live(word, now) {
                    promised.note((word >> 18 & 0x3f_ffff) as u32, before, depth);
                    found = true;
                }
            }
            bare = if found || depth <= held { 0 } else { bare + 1 };
            if bare == 2 {
                break;
            }
            before = depth;
        }
        promised
    }

    /// The bucket of a key, and the name under which it is promised: tag and destination.
    fn find(&self, key: u64, code: u64) -> (&Bucket, u64) {
        let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (mixed >> 32) as usize & (self.buckets.len() - 1);
        (&self.buckets[at], (mixed >> 8 & 0xff_ffff) << 22 | code)
    }
}

impl Bucket {
    fn put(&self, name: u64, expiry: u64, now: Nanos) {
        for _ in 0..ATTEMPTS {
            let (word, known) = self.place_for(name, now);
            if is_live(known, now) && known >> 18 == name && ahead(known, now) >= ahead(expiry, now) {
                return;
            }
            let new = name << 18 | expiry;
            if word.compare_exchange(known, new, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The word of that name, or the one that matters least: empty or lapsed, else next to lapse.
    fn place_for(&self, name: u64, now: Nanos) -> (&AtomicU64, u64) {
        let mut least = (&self.0[0], self.0[0].load(Relaxed));
        for word in &self.0 {
            let known = word.load(Relaxed);
            if known >> 18 == name {
                return (word, known);
            }
            if remaining(known, now) < remaining(least.1, now) {
                least = (word, known);
            }
        }
        least
    }

    fn shorten(&self, name: u64, expiry: u64, now: Nanos) {
        for word in &self.0 {
            let known = word.load(Relaxed);
            if known >> 18 == name && remaining(known, now) > ahead(expiry, now) {
                // Lost to another writer: it was promised anew, or has lapsed.
                let _ = word.compare_exchange(known, name << 18 | expiry, Relaxed, Relaxed);
            }
        }
    }

    fn remove(&self, made: u64) {
        for word in &self.0 {
            // Not this word, or promised anew meanwhile: it stays.
            let _ = word.compare_exchange(made, 0, Relaxed, Relaxed);
        }
    }

    fn sweep(&self, now: Nanos) {
        for word in &self.0 {
            let known = word.load(Relaxed);
            if known != 0 && !is_live(known, now) {
                let _ = word.compare_exchange(known, 0, Relaxed, Relaxed);
            }
        }
    }
}

/// The tick by which a promise of `life` has lapsed.
fn expiry(now: Nanos, life: Nanos) -> u64 {
    (now + life).div_ceil(TICK) % TICKS
}

/// Ticks until the word lapses, if it is one; its other bits don't matter.
fn ahead(word: u64, now: Nanos) -> u64 {
    (word % TICKS + TICKS - now / TICK % TICKS) % TICKS
}

fn is_live(word: u64, now: Nanos) -> bool {
    word != 0 && (1..=AHEAD_MAX).contains(&ahead(word, now))
}

/// Ticks that a word still counts for.
fn remaining(word: u64, now: Nanos) -> u64 {
    if is_live(word, now) { ahead(word, now) } else { 0 }
}

/// What a look found: the destinations with the deepest promises.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promised {
    rows: [Row; FOUND_MAX],
    len: usize,
}

/// Promises of one destination, in a row of neighbouring depths.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    code: u32,
    /// The depth before the first one.
    after: u32,
    /// The last one.
    last: u32,
    /// Whether it has two or more.
    is_long: bool,
    /// The last one of a long row before this.
    earlier: u32,
}

impl Promised {
    /// Leading blocks that `to` has or will have, where it holds the first `held`.
    pub fn run(&self, to: Destination, held: u32) -> u32 {
        let row = self.rows[..self.len].iter().find(|row| u64::from(row.code) == to.code());
        row.map_or(held, |row| match row.is_long || row.after <= held {
            true => row.last.max(held),
            false => row.earlier.max(held),
        })
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn note(&mut self, code: u32, before: u32, depth: u32) {
        let new = Row { code, after: before, last: depth, is_long: false, earlier: 0 };
        match self.rows[..self.len].iter_mut().find(|row| row.code == code) {
            // Twice in one bucket: two writers at once.
            Some(row) if row.last == depth => {}
            Some(row) if row.last == before => (row.last, row.is_long) = (depth, true),
            Some(row) => {
                let earlier = if row.is_long { row.last } else { row.earlier };
                *row = Row { earlier, ..new };
            }
            None if self.len < FOUND_MAX => {
                self.rows[self.len] = new;
                self.len += 1;
            }
            None => {
                if let Some(row) = self.rows.iter_mut().min_by_key(|row| row.last).filter(|r| r.last < depth)
                {
                    *row = new;
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
