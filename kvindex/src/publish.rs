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
//! it retires. Between views a reader is offline, so one that sleeps holds nothing back.
//!
//! Clears. Each place has a word set of *valid* holders: bits outside it mean nothing. A clear takes the holder
//! out of every valid set, then counts itself. The writer cleans a place's stale bits before it makes a holder
//! valid there again. A view remembers the count it began with: holders cleared since are zero in its answers,
//! so old and new content of a holder never mix.
//!
//! Places are numbers, not pointers: a fault in the protocol could give a wrong answer, never touch freed memory.
#![allow(unsafe_code)] // prefetch hints, and zeroed memory on huge pages

use crate::holders::HolderSet;
use crate::plan::Plan;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

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
    arena: Box<[AtomicU64]>,
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

/// Where a key belongs: its segment and the slot where the probe starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub segment: usize,
    slot: usize,
}

/// One slot of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub place: usize,
    slot: usize,
}

/// What a probe met first.
pub(crate) enum Probe {
    Found(At),
    Empty(At),
}

/// How keys and masks lie inside a place: a key and its words, slot by slot. (Keys apart from masks took half
/// as long again at 128 and 256 holders: two places to wait for instead of one.)
struct Shape {
    words: usize,
    stride: usize,
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

    /// Starts the loads of what a lookup of `key` will touch first.
    #[inline(always)]
    pub fn prefetch<const W: usize>(&self, key: u64) {
        let shape = self.shape::<W>();
        let home = self.home(stored_key(key));
        let base = self.base(self.place(home.segment), &shape);
        let first = base + home.slot * shape.stride;
        prefetch(&self.arena, first);
        prefetch(&self.arena, first + 2 * shape.stride);
        if shape.words > 1 {
            prefetch(&self.arena, first + 4 * shape.stride);
        }
    }

    /// Finds a block; `W` is the words of a set where the caller knows them, or 0.
    #[inline(always)]
    pub fn find<const W: usize>(&self, key: u64) -> Option<At> {
        let key = stored_key(key);
        match self.probe::<W>(self.home(key), key) {
            Some(Probe::Found(at)) => Some(at),
            _ => None,
        }
    }

    /// One word of the holders of a found block, without what was cleared.
    #[inline(always)]
    pub fn holders<const W: usize>(&self, at: At, word: usize) -> u64 {
        let shape = self.shape::<W>();
        let valid = self.valid[at.place * shape.words + word].load(Acquire);
        valid & self.arena[self.mask(at, &shape) + word].load(Relaxed)
    }

    #[inline(always)]
    pub fn home(&self, key: u64) -> Home {
        let product = u128::from(key ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        let hash = (product >> 64) as u64 ^ product as u64;
        let segment = ((hash >> 32) * self.directory.len() as u64) >> 32;
        Home { segment: segment as usize, slot: hash as usize & (self.plan.slots - 1) }
    }

    /// Where a segment lives now.
    #[inline(always)]
    pub fn place(&self, segment: usize) -> usize {
        self.directory[segment].load(Acquire) as usize
    }

    /// Looks for a stored key from its home on; nothing if it met neither the key nor an empty slot.
    #[inline(always)]
    pub fn probe<const W: usize>(&self, home: Home, key: u64) -> Option<Probe> {
        self.probe_place::<W>(self.place(home.segment), home, key)
    }

    #[inline(always)]
    fn probe_place<const W: usize>(&self, place: usize, home: Home, key: u64) -> Option<Probe> {
        let shape = self.shape::<W>();
        let base = self.base(place, &shape);
        let mut slot = home.slot;
        for _ in 0..self.plan.slots {
            let met = self.arena[base + slot * shape.stride].load(Acquire);
            if met == key {
                return Some(Probe::Found(At { place, slot }));
            }
            if met == EMPTY {
                return Some(Probe::Empty(At { place, slot }));
            }
            slot = (slot + 1) & (self.plan.slots - 1);
        }
        None
    }

    #[inline(always)]
    fn shape<const W: usize>(&self) -> Shape {
        let words = if W == 0 { self.plan.words } else { W };
        Shape { words, stride: words + 1 }
    }

    #[inline(always)]
    fn base(&self, place: usize, shape: &Shape) -> usize {
        place * self.plan.slots * (shape.words + 1)
    }

    #[inline(always)]
    fn mask(&self, at: At, shape: &Shape) -> usize {
        self.base(at.place, shape) + at.slot * shape.stride + 1
    }
}

/// The writer's half: called by the one writer only. Its own loads are of its own stores.
impl Shared {
    fn new(plan: Plan, seed: u64) -> Shared {
        let words = plan.words;
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        Shared {
            plan,
            seed,
            arena: arena(plan.places() * plan.slots * (words + 1)),
            directory: (0..plan.segments).map(|segment| AtomicU32::new(segment as u32)).collect(),
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
        self.arena[self.mask(at, &self.shape::<W>()) + word].load(Relaxed)
    }

    /// Changes one word of a published slot's bits.
    #[inline(always)]
    pub fn set_raw<const W: usize>(&self, at: At, word: usize, bits: u64) {
        self.arena[self.mask(at, &self.shape::<W>()) + word].store(bits, Release);
    }

    /// Publishes a block in an empty slot, held by nobody but the holders in `masks`.
    #[inline(always)]
    pub fn publish<const W: usize>(&self, at: At, key: u64, masks: impl Fn(usize) -> u64) {
        let shape = self.shape::<W>();
        let first = self.mask(at, &shape);
        for word in 0..shape.words {
            self.arena[first + word].store(masks(word), Relaxed);
        }
        self.arena[self.base(at.place, &shape) + at.slot * shape.stride].store(key, Release);
    }

    /// The used slots of a place, with their keys.
    pub fn used(&self, place: usize) -> impl Iterator<Item = (At, u64)> + '_ {
        let shape = self.shape::<0>();
        let base = self.base(place, &shape);
        (0..self.plan.slots)
            .map(move |slot| (At { place, slot }, self.arena[base + slot * shape.stride].load(Relaxed)))
            .filter(|(_, key)| *key != EMPTY)
    }

    /// The first empty slot for `key` in a place that is not published yet.
    pub fn empty_slot(&self, place: usize, key: u64) -> Option<At> {
        match self.probe_place::<0>(place, self.home(key), key) {
            Some(Probe::Empty(at)) => Some(at),
            _ => None,
        }
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

    /// Publishes a complete place as the home of a segment; gives the old place and the tag it retires with.
    pub fn replace(&self, segment: usize, place: usize) -> (usize, u64) {
        let old = self.place(segment);
        self.directory[segment].store(place as u32, Release);
        let tag = self.epoch.load(Relaxed);
        self.epoch.store(tag + 1, Release);
        (old, tag)
    }

    /// Whether no reader is left that may look at what was retired with `tag`.
    pub fn quiet_since(&self, tag: u64) -> bool {
        fence(SeqCst);
        self.pins.iter().all(|pin| pin.0.load(Acquire) > tag)
    }

    /// Empties a place that no reader looks at, and makes every holder valid in it.
    pub fn wipe(&self, place: usize) {
        let shape = self.shape::<0>();
        let base = self.base(place, &shape);
        for slot in 0..self.plan.slots {
            self.arena[base + slot * shape.stride].store(EMPTY, Relaxed);
        }
        self.validate(place);
    }
}

/// Zeroed words, on huge pages where the kernel gives them: a walk's loads are spread over all of it.
#[cfg(not(all(test, loom)))]
fn arena(words: usize) -> Box<[AtomicU64]> {
    let zeroed = Box::into_raw(vec![0_u64; words].into_boxed_slice());
    advise_huge(zeroed);
    // SAFETY: an AtomicU64 has the size and bit validity of a u64 and, on the 64-bit targets that the assertion
    // admits, its alignment; the box was just taken apart and is put together once.
    unsafe { Box::from_raw(zeroed as *mut [AtomicU64]) }
}

#[cfg(all(test, loom))]
fn arena(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(align_of::<u64>() == align_of::<AtomicU64>());

/// Asks for huge pages under the whole pages of a large allocation. Refusal only costs speed.
#[cfg(not(all(test, loom)))]
fn advise_huge(words: *mut [u64]) {
    const HUGE: usize = 2 << 20;
    let start = words.cast::<u8>();
    let skip = start.addr().next_multiple_of(HUGE) - start.addr();
    let length = (words.len() * 8).saturating_sub(skip) / HUGE * HUGE;
    if length > 0 {
        // SAFETY: the range lies inside the allocation; this advice changes no content.
        let _ =
            unsafe { rustix::mm::madvise(start.add(skip).cast(), length, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// What a block key is stored as.
#[inline(always)]
pub(crate) fn stored_key(key: u64) -> u64 {
    match key {
        EMPTY => ZERO_ALIAS,
        u64::MAX => MAX_ALIAS,
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
    if let Some(word) = words.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a live element; a prefetch reads no value and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, at);
}
