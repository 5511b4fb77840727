//! The memory that the writer and the readers share, and the protocol on it: the one file of this crate with
//! atomics and with unsafe.
//!
//! Slots. A slot's key goes from 0 to a key once in the life of its segment: the mask is stored first, relaxed,
//! then the key with release; a reader loads the key with acquire, then the mask. A later mask store is a
//! release. A removal clears bits and leaves the key.
//!
//! Segments. Keys are hashed to a segment; the directory says at which *place* of the arena it lives. A rebuilt
//! segment is complete before its place is stored with release. The old place is reused only when no reader
//! that may have seen it is left: a reader pins the epoch for the life of its view (`Pin`), the writer tags what
//! it retires. Between views a reader is offline, so one that sleeps holds nothing back. Neighbouring segments share a
//! place until it has many blocks: an index takes as much memory as it has blocks, and walks meet no more.
//!
//! Clears. Each place has a word set of *valid* holders: bits outside it mean nothing. A clear takes the holder
//! out of every valid set, then counts itself. The writer cleans a place's stale bits before it makes a holder
//! valid there again. A view remembers the count it began with: holders cleared since are zero in its answers,
//! so old and new content of a holder never mix.
//!
//! Places are numbers, not pointers: a fault in the protocol could give a wrong answer, never touch freed memory.
#![allow(unsafe_code)] // prefetch hints, and zeroed memory on huge pages

use crate::holders::HolderSet;
use crate::plan::{FIRST, Plan};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::ops::Range;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// Slots of a bucket. A probe begins at the first slot of one and looks at whole buckets; with one word of holders
/// a bucket is a cache line.
pub(crate) const BUCKET: usize = 4;

/// Buckets after a full one that are asked for at once. A new key is looked for up to a bucket with room: with 77 %
/// of the slots used, in about nine of ten cases that is among the first four.
const FURTHER: usize = 3;

/// The key of an empty slot.
const EMPTY: u64 = 0;

/// What a block key of 0 is stored as.
const ZERO_ALIAS: u64 = 0x6a09_e667_f3bc_c909;

/// What a block key of `u64::MAX` is stored as; MAX stays free for a marker.
const MAX_ALIAS: u64 = 0xbb67_ae85_84ca_a73b;

/// A pin that holds nothing: the reader is between views, or there is none.
const OFFLINE: u64 = u64::MAX;

/// A pin slot that no reader has registered.
const UNREGISTERED: u64 = u64::MAX - 1;

/// The name of a bit without a holder.
pub(crate) const NAMELESS: u64 = u64::MAX;

/// The shared memory of one index.
#[derive(Debug)]
pub(crate) struct Shared {
    pub plan: Plan,
    seed: u64,
    /// The slots, from `origin` on.
    arena: Box<[AtomicU64]>,
    origin: usize,
    /// By segment: its place.
    directory: Box<[AtomicU32]>,
    /// By place: the words of holders whose bits there mean something.
    valid: Box<[AtomicU64]>,
    holders: HolderCells,
    clears: AtomicU64,
    epoch: AtomicU64,
    pins: Box<[PinCell]>,
}

/// By bit or by word: what readers learn of holders.
#[derive(Debug)]
struct HolderCells {
    names: Box<[AtomicU64]>,
    cleared: Box<[AtomicU64]>,
    live: Box<[AtomicU64]>,
    partial: Box<[AtomicU64]>,
}

/// A reader's pin in a cache line of its own: other readers pin theirs all the time.
#[derive(Debug)]
#[repr(align(128))]
struct PinCell(AtomicU64);

/// Where a key belongs: its segment and the slot where the probe starts, the first of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub segment: usize,
    slot: usize,
}

/// One slot of one place: a key and the words of its holders. (Keys apart from words took half as long again at
/// 128 and 256 holders: two places to wait for instead of one.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub place: usize,
    /// Where in the arena its key is; its words follow.
    key: usize,
}

/// What a probe met first.
pub(crate) enum Probe {
    Found(At),
    Empty(At),
}

/// Registers readers. Cheap to clone and to send.
#[derive(Clone, Debug)]
pub struct Readers {
    shared: Arc<Shared>,
}

/// A registered reader's pin; gone, it frees its registration.
#[derive(Debug)]
pub(crate) struct Pin {
    pub shared: Arc<Shared>,
    cell: usize,
}

impl Readers {
    pub(crate) fn new(plan: Plan, seed: u64) -> Readers {
        Readers { shared: Arc::new(Shared::new(plan, seed)) }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Takes a free registration; none if the plan's number of readers is reached.
    pub(crate) fn pin(&self) -> Option<Pin> {
        let free = |cell: &PinCell| cell.0.compare_exchange(UNREGISTERED, OFFLINE, AcqRel, Relaxed).is_ok();
        let cell = self.shared.pins.iter().position(free)?;
        Some(Pin { shared: self.shared(), cell })
    }
}

impl Pin {
    /// Goes online: what is read until [`Pin::leave`] stays in place.
    ///
    /// Either the writer's look at the pins sees this pin, or this reader sees every place stored before it:
    /// both have a sequentially consistent fence between their store and their load.
    pub fn enter(&self) {
        let epoch = self.shared.epoch.load(Acquire);
        self.shared.pins[self.cell].0.store(epoch, Relaxed);
        fence(SeqCst);
    }

    /// Goes offline.
    pub fn leave(&self) {
        self.shared.pins[self.cell].0.store(OFFLINE, Release);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.pins[self.cell].0.store(UNREGISTERED, Release);
    }
}

/// The reader's half.
impl Shared {
    /// The clears so far: what a view begins with.
    pub fn clears(&self) -> u64 {
        self.clears.load(Acquire)
    }

    /// Whether the holder of `bit` was cleared since `seen` clears, as far as anything read before could show
    /// its new content.
    pub fn cleared_since(&self, bit: usize, seen: u64) -> bool {
        fence(Acquire);
        self.clears.load(Relaxed) != seen && self.holders.cleared[bit].load(Relaxed) > seen
    }

    /// Whether any holder was cleared since `seen` clears.
    pub fn any_cleared_since(&self, seen: u64) -> bool {
        fence(Acquire);
        self.clears.load(Relaxed) != seen
    }

    /// The name of the holder that has `bit`, or [`NAMELESS`].
    pub fn name(&self, bit: usize) -> u64 {
        self.holders.names.get(bit).map_or(NAMELESS, |name| name.load(Acquire))
    }

    /// All registered holders.
    pub fn live(&self) -> HolderSet {
        load_set(&self.holders.live)
    }

    /// Holders of which some blocks were not admitted; loaded after everything read before.
    pub fn partial(&self) -> HolderSet {
        fence(Acquire);
        load_set(&self.holders.partial)
    }

    /// Starts the loads of what a lookup of `key` will touch first, and tells where it begins: good for
    /// [`Shared::find_from`] while the reader's view or the writer's call lasts.
    #[inline(always)]
    pub fn ask<const W: usize>(&self, key: u64) -> At {
        let start = self.start::<W>(self.home(stored_key(key)));
        self.ask_bucket::<W>(start);
        start
    }

    /// Looks at the first bucket that [`Shared::ask`] brought and, if the probe will go on from there, starts the
    /// loads of the next ones.
    #[inline(always)]
    pub fn ask_on<const W: usize>(&self, key: u64) {
        let key = stored_key(key);
        let mut at = self.start::<W>(self.home(key));
        if self.look::<W>(at, key).is_none() {
            for nth in 1..=FURTHER {
                at = self.next_bucket::<W>(at, nth);
                self.ask_bucket::<W>(at);
            }
        }
    }

    #[inline(always)]
    fn ask_bucket<const W: usize>(&self, at: At) {
        // It begins at a line or, at some widths, in the middle of one.
        let lines = (BUCKET * self.stride::<W>()).div_ceil(LINE_WORDS);
        (0..lines).for_each(|line| prefetch(&self.arena, at.key + line * LINE_WORDS));
    }

    /// Finds a block; `W` is the words of a set where the caller knows them, or 0.
    #[inline(always)]
    pub fn find<const W: usize>(&self, key: u64) -> Option<At> {
        self.find_from::<W>(self.start::<W>(self.home(stored_key(key))), key)
    }

    /// The same, from where [`Shared::ask`] said.
    #[inline(always)]
    pub fn find_from<const W: usize>(&self, start: At, key: u64) -> Option<At> {
        match self.probe_from::<W>(start, stored_key(key)) {
            Some(Probe::Found(at)) => Some(at),
            _ => None,
        }
    }

    /// One word of the holders of a found block, without what was cleared.
    #[inline(always)]
    pub fn holders<const W: usize>(&self, at: At, word: usize) -> u64 {
        let valid = self.valid[at.place * (self.stride::<W>() - 1) + word].load(Acquire);
        valid & self.arena[at.key + 1 + word].load(Relaxed)
    }

    #[inline(always)]
    pub fn home(&self, key: u64) -> Home {
        let product = u128::from(key ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        let hash = (product >> 64) as u64 ^ product as u64;
        let segment = ((hash >> 32) * self.directory.len() as u64) >> 32;
        self.home_at(segment as usize, hash as usize)
    }

    /// The home of whatever hashes to a slot of a segment.
    #[inline(always)]
    pub fn home_at(&self, segment: usize, slot: usize) -> Home {
        Home { segment, slot: slot & (self.plan.slots - BUCKET) }
    }

    /// Where a segment lives now.
    #[inline(always)]
    pub fn place(&self, segment: usize) -> usize {
        self.directory[segment].load(Acquire) as usize
    }

    /// Looks for a stored key from its home on; nothing if it met neither the key nor an empty slot.
    #[inline(always)]
    pub fn probe<const W: usize>(&self, home: Home, key: u64) -> Option<Probe> {
        self.probe_from::<W>(self.start::<W>(home), key)
    }

    /// Where the probe of a home begins now.
    #[inline(always)]
    fn start<const W: usize>(&self, home: Home) -> At {
        self.slot_at::<W>(self.place(home.segment), home.slot)
    }

    #[inline(always)]
    fn probe_from<const W: usize>(&self, start: At, key: u64) -> Option<Probe> {
        let mut at = start;
        for nth in 1..=self.plan.slots / BUCKET {
            if let Some(met) = self.look::<W>(at, key) {
                return Some(met);
            }
            at = self.next_bucket::<W>(at, nth);
        }
        None
    }

    /// Looks for a stored key in one bucket; nothing if that is full of others.
    #[inline(always)]
    fn look<const W: usize>(&self, at: At, key: u64) -> Option<Probe> {
        let slot = |slot| self.slot_after::<W>(at, slot);
        let load = |slot: At| self.arena[slot.key].load(Acquire);
        if self.stride::<W>() > 2 {
            // One by one: they lie in several lines, and the last may not be needed.
            return (0..BUCKET).map(slot).find_map(|at| match load(at) {
                met if met == key => Some(Probe::Found(at)),
                met => (met == EMPTY).then_some(Probe::Empty(at)),
            });
        }
        let keys: [u64; BUCKET] = std::array::from_fn(|number| load(slot(number)));
        let found = position(&keys, key).map(|number| Probe::Found(slot(number)));
        found.or_else(|| position(&keys, EMPTY).map(|number| Probe::Empty(slot(number))))
    }

    #[inline(always)]
    fn stride<const W: usize>(&self) -> usize {
        1 + if W == 0 { self.plan.words } else { W }
    }

    #[inline(always)]
    fn slot_at<const W: usize>(&self, place: usize, slot: usize) -> At {
        At { place, key: self.origin + (place * self.plan.slots + slot) * self.stride::<W>() }
    }

    /// So many slots after it.
    #[inline(always)]
    fn slot_after<const W: usize>(&self, at: At, slots: usize) -> At {
        At { key: at.key + slots * self.stride::<W>(), ..at }
    }

    /// The bucket that a probe looks at `nth` after its first: `nth` further on, since with steps that grow full
    /// buckets in a row don't make each other's probes longer. After a place's last bucket comes its first.
    #[inline(always)]
    fn next_bucket<const W: usize>(&self, at: At, nth: usize) -> At {
        let next = self.slot_after::<W>(at, nth * BUCKET);
        let end = self.slot_at::<W>(at.place + 1, 0).key;
        if next.key < end { next } else { At { key: next.key - self.plan.slots * self.stride::<W>(), ..at } }
    }
}

/// The writer's half: called by the one writer only. Its own loads are of its own stores.
impl Shared {
    fn new(plan: Plan, seed: u64) -> Shared {
        let words = plan.words;
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let (arena, origin) = arena(plan.places() * plan.slots * (words + 1));
        Shared {
            plan,
            seed,
            arena,
            origin,
            directory: (0..plan.segments).map(|_| AtomicU32::new(FIRST as u32)).collect(),
            valid: (0..plan.places() * words).map(|_| AtomicU64::new(u64::MAX)).collect(),
            holders: HolderCells {
                names: (0..plan.bits()).map(|_| AtomicU64::new(NAMELESS)).collect(),
                cleared: zeros(plan.bits()),
                live: zeros(words),
                partial: zeros(words),
            },
            clears: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            pins: (0..plan.readers).map(|_| PinCell(AtomicU64::new(UNREGISTERED))).collect(),
        }
    }

    /// One word of a slot's bits, stale ones included.
    #[inline(always)]
    pub fn raw<const W: usize>(&self, at: At, word: usize) -> u64 {
        self.arena[at.key + 1 + word].load(Relaxed)
    }

    /// Changes one word of a published slot's bits.
    #[inline(always)]
    pub fn set_raw<const W: usize>(&self, at: At, word: usize, bits: u64) {
        self.arena[at.key + 1 + word].store(bits, Release);
    }

    /// Publishes a block in an empty slot, held by nobody but the holders in `masks`.
    #[inline(always)]
    pub fn publish<const W: usize>(&self, at: At, key: u64, masks: impl Fn(usize) -> u64) {
        for word in 0..self.stride::<W>() - 1 {
            self.arena[at.key + 1 + word].store(masks(word), Relaxed);
        }
        self.arena[at.key].store(key, Release);
    }

    /// The used slots of a place, with their keys.
    pub fn used(&self, place: usize) -> impl Iterator<Item = (At, u64)> + '_ {
        let slots = (0..self.plan.slots).map(move |slot| self.slot_at::<0>(place, slot));
        slots.map(|at| (at, self.arena[at.key].load(Relaxed))).filter(|(_, key)| *key != EMPTY)
    }

    /// The used slots that a probe from a home on looks at, with their keys: all keys of that home are among them.
    pub fn run(&self, home: Home) -> impl Iterator<Item = (At, u64)> + '_ {
        let buckets = (0..self.plan.slots / BUCKET).scan(self.start::<0>(home), move |at, nth| {
            *at = self.next_bucket::<0>(*at, nth);
            Some(*at)
        });
        buckets
            .flat_map(move |bucket| (0..BUCKET).map(move |slot| self.slot_after::<0>(bucket, slot)))
            .map(|at| (at, self.arena[at.key].load(Relaxed)))
            .take_while(|(_, key)| *key != EMPTY)
    }

    /// The empty slot where `key` would go now; none if it is there, or no slot is empty.
    pub fn empty_slot(&self, key: u64) -> Option<At> {
        match self.probe::<0>(self.home(key), key) {
            Some(Probe::Empty(at)) => Some(at),
            _ => None,
        }
    }

    /// Copies some segments' live blocks to a place that no reader looks at, whatever was there, and empties the rest
    /// of it; how many. `filled` is memory for a count a bucket.
    pub fn copy<const W: usize>(
        &self,
        from: usize,
        segments: &Range<usize>,
        to: usize,
        filled: &mut [u8],
    ) -> u32 {
        filled.fill(0);
        let mut copied = 0;
        for slot in 0..self.plan.slots {
            let at = self.slot_at::<W>(from, slot);
            let (key, mut any) = (self.arena[at.key].load(Relaxed), 0);
            (0..self.stride::<W>() - 1).for_each(|word| any |= self.raw::<W>(at, word));
            if key == EMPTY || any == 0 {
                continue;
            }
            let home = self.home(key);
            if !segments.contains(&home.segment) {
                continue;
            }
            let mut bucket = home.slot / BUCKET;
            let mut nth = 0;
            while usize::from(filled[bucket]) == BUCKET {
                nth += 1;
                bucket = (bucket + nth) & (filled.len() - 1);
            }
            let empty = self.slot_at::<W>(to, bucket * BUCKET + usize::from(filled[bucket]));
            self.publish::<W>(empty, key, |word| self.raw::<W>(at, word));
            filled[bucket] += 1;
            copied += 1;
        }
        for (bucket, filled) in filled.iter().enumerate() {
            for slot in usize::from(*filled)..BUCKET {
                self.arena[self.slot_at::<W>(to, bucket * BUCKET + slot).key].store(EMPTY, Relaxed);
            }
        }
        self.validate(to);
        copied
    }

    /// One word of the holders whose bits mean something in a place.
    #[inline(always)]
    pub fn valid(&self, place: usize, word: usize) -> u64 {
        self.valid[place * self.plan.words + word].load(Relaxed)
    }

    /// Makes every holder valid in a place that has no stale bits left.
    pub fn validate(&self, place: usize) {
        for word in 0..self.plan.words {
            self.valid[place * self.plan.words + word].store(u64::MAX, Release);
        }
    }

    /// Takes a holder out of the valid set of a place.
    pub fn invalidate(&self, place: usize, bit: usize) {
        let word = &self.valid[place * self.plan.words + bit / 64];
        word.store(word.load(Relaxed) & !(1 << (bit % 64)), Release);
    }

    /// Counts a clear of `bit`, after it is invalid everywhere and before anything new is stored for it.
    pub fn count_clear(&self, bit: usize) {
        let count = self.clears.load(Relaxed) + 1;
        self.holders.cleared[bit].store(count, Relaxed);
        self.clears.store(count, Release);
    }

    /// Gives a bit its name and shows it as live, or hides it ([`NAMELESS`]).
    pub fn set_name(&self, bit: usize, name: u64) {
        self.holders.names[bit].store(name, Release);
        put_bit(&self.holders.live, bit, name != NAMELESS);
    }

    /// Marks or unmarks a holder as partial; marked before anything deeper is stored.
    pub fn set_partial(&self, bit: usize, partial: bool) {
        put_bit(&self.holders.partial, bit, partial);
    }

    /// Publishes a complete place as the home of segments.
    pub fn move_in(&self, segments: Range<usize>, place: usize) {
        self.directory[segments].iter().for_each(|home| home.store(place as u32, Release));
    }

    /// The tag that a place retires with, after all its segments moved.
    pub fn retire(&self) -> u64 {
        let tag = self.epoch.load(Relaxed);
        self.epoch.store(tag + 1, Release);
        tag
    }

    /// Whether no reader is left that may look at what was retired with `tag`.
    pub fn quiet_since(&self, tag: u64) -> bool {
        fence(SeqCst);
        self.pins.iter().all(|pin| pin.0.load(Acquire) > tag)
    }
}

/// Zeroed words from a huge page's boundary on (small tables: a cache line's), and where that is; on huge pages
/// where the kernel gives them, since a walk's loads are spread over all of it. What lies before is never
/// touched, so it costs address space alone.
#[cfg(not(all(test, loom)))]
fn arena(words: usize) -> (Box<[AtomicU64]>, usize) {
    let align = if words * 8 >= HUGE { HUGE } else { 64 };
    let zeroed = Box::into_raw(vec![0_u64; words + align / 8].into_boxed_slice());
    let start = zeroed.cast::<u8>();
    let skip = start.addr().next_multiple_of(align) - start.addr();
    let length = words * 8 / HUGE * HUGE;
    if length > 0 {
        // SAFETY: the range lies inside the allocation; this advice changes no content. Refusal costs speed only.
        let _ =
            unsafe { rustix::mm::madvise(start.add(skip).cast(), length, rustix::mm::Advice::LinuxHugepage) };
    }
    // SAFETY: an AtomicU64 has the size and bit validity of a u64 and, on the 64-bit targets that the assertion
    // admits, its alignment; the box was just taken apart and is put together once.
    (unsafe { Box::from_raw(zeroed as *mut [AtomicU64]) }, skip / 8)
}

#[cfg(all(test, loom))]
fn arena(words: usize) -> (Box<[AtomicU64]>, usize) {
    ((0..words).map(|_| AtomicU64::new(0)).collect(), 0)
}

/// Bytes of a huge page.
#[cfg(not(all(test, loom)))]
const HUGE: usize = 2 << 20;

#[cfg(not(all(test, loom)))]
const _: () = assert!(align_of::<u64>() == align_of::<AtomicU64>());

/// The first of a bucket's keys that is `key`. Without a branch for each: nobody can predict where it is.
#[inline(always)]
fn position(keys: &[u64; BUCKET], key: u64) -> Option<usize> {
    let equal =
        keys.iter().enumerate().fold(0_u32, |equal, (slot, met)| equal | u32::from(*met == key) << slot);
    (equal != 0).then(|| equal.trailing_zeros() as usize)
}

/// What a block key is stored as.
#[inline(always)]
pub(crate) fn stored_key(key: u64) -> u64 {
    // One branch that is never taken, for both.
    if key.wrapping_add(1) > 1 {
        return key;
    }
    if key == EMPTY { ZERO_ALIAS } else { MAX_ALIAS }
}

/// The key that was stored, of what it is stored as.
pub(crate) fn told_key(stored: u64) -> u64 {
    match stored {
        ZERO_ALIAS => 0,
        MAX_ALIAS => u64::MAX,
        key => key,
    }
}

fn load_set(words: &[AtomicU64]) -> HolderSet {
    let mut set = HolderSet::empty();
    for (to, from) in set.words_mut().iter_mut().zip(words) {
        *to = from.load(Acquire);
    }
    set
}

fn put_bit(words: &[AtomicU64], bit: usize, on: bool) {
    let word = &words[bit / 64];
    let rest = word.load(Relaxed) & !(1 << (bit % 64));
    word.store(rest | u64::from(on) << (bit % 64), Release);
}

/// Asks for a cache line; a hint that changes nothing.
#[inline(always)]
fn prefetch(words: &[AtomicU64], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads no value and cannot fault, whatever the address, so `at` needs no check.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().wrapping_add(at).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, at);
}
