//! What answers prove of engines' caches, on its way from shards to the event core, which alone writes the index:
//! a bounded mailbox. Owns its protocol; must never make a shard wait, nor allocate once it is made.
//!
//! A ring of places, each with a turn and the words of one message. A shard takes the next place by compare and
//! swap on the tail, writes the words relaxed and then the turn, with release; the event core sees the turn, with
//! acquire, reads the words and passes the place on to the next lap. A full ring takes nothing: the message is
//! dropped and counted, which costs knowledge and never truth.

use crate::Nanos;
use crate::trust::Class;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use Ordering::{Acquire, Relaxed, Release};

/// Keys of one message; those of a longer prompt come in several.
pub const KEYS_MAX: usize = 60;

/// Words of one message: time, where, whose, and the keys.
const WORDS: usize = KEYS_MAX + 3;

/// Messages that wait at most; 512 bytes each.
const PLACES: usize = 512;

/// What is told of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Consecutive ones of a prompt that were found in the cache; so many are before the first.
    Held(u32),
    /// Consecutive ones that counted as held and had to be computed.
    Computed,
    /// Nothing: the answer does not tell. They are the last two that counted as held, the prompt's last full block
    /// apart, and the first that did not, if there is one: the events of the request say which were computed.
    Untold {
        /// Number of the service whose prediction it was.
        service: u32,
        /// What the request has that could be wrong.
        class: Class,
    },
    /// The first block that did not count as held and that the request brings: its event has to come under this name.
    Routed {
        /// Number of the service, whose model profile asks for the proof.
        service: u32,
    },
    /// Blocks that were on their way by other requests, and were found: the last two of them. The events of those
    /// requests say whether they came under these names.
    Brought {
        /// Number of the service whose prediction it was.
        service: u32,
        /// What the request has that could be wrong.
        class: Class,
    },
}

/// Blocks of one prompt that an answer of a rank says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation<'a> {
    /// The source's number.
    pub source: u32,
    /// Its data-parallel rank.
    pub rank: u8,
    /// When the request was sent to it: what left the cache since then may have left it after the proof.
    pub sent: Nanos,
    /// What it says.
    pub shown: Shown,
    /// Their keys; of longer lists the first [`KEYS_MAX`] count.
    pub keys: &'a [u64],
}

impl Shown {
    /// Its kind, and what else there is of it.
    fn packed(self) -> (u64, u64) {
        match self {
            Shown::Held(depth) => (0, depth.into()),
            Shown::Computed => (1, 0),
            Shown::Untold { service, class } => (2, u64::from(service) << 8 | class.place() as u64),
            Shown::Brought { service, class } => (3, u64::from(service) << 8 | class.place() as u64),
            Shown::Routed { service } => (4, service.into()),
        }
    }

    fn of(kind: u64, detail: u64) -> Shown {
        match kind {
            0 => Shown::Held(detail as u32),
            1 => Shown::Computed,
            4 => Shown::Routed { service: detail as u32 },
            _ => {
                let class = Class::all().nth(detail as u8 as usize).unwrap_or_default();
                let service = (detail >> 8) as u32;
                if kind == 2 { Shown::Untold { service, class } } else { Shown::Brought { service, class } }
            }
        }
    }
}

#[derive(Debug)]
struct Place {
    turn: AtomicUsize,
    words: [AtomicU64; WORDS],
}

/// The mailbox. Any number of shards put, one event core takes.
#[derive(Debug)]
pub struct Observations {
    places: Box<[Place]>,
    tail: AtomicUsize,
    head: AtomicUsize,
    dropped: AtomicU64,
}

impl Default for Observations {
    fn default() -> Observations {
        Observations::new(PLACES)
    }
}

impl Observations {
    /// With room for so many messages, 2 at least.
    pub fn new(places: usize) -> Observations {
        let place =
            |at| Place { turn: AtomicUsize::new(at), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        Observations {
            places: (0..places.max(2)).map(place).collect(),
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Shard: hands one over; false if there was no room, which is counted.
    pub fn put(&self, told: &Observation<'_>) -> bool {
        let Some((place, at)) = self.next_free() else {
            self.dropped.fetch_add(1, Relaxed);
            return false;
        };
        let keys = &told.keys[..told.keys.len().min(KEYS_MAX)];
        let (kind, detail) = told.shown.packed();
        let whose = u64::from(told.source) << 32 | u64::from(told.rank) << 16 | kind << 8 | keys.len() as u64;
        let head = [told.sent, whose, detail];
        for (word, value) in place.words.iter().zip(head.iter().chain(keys)) {
            word.store(*value, Relaxed);
        }
        place.turn.store(at + 1, Release);
        true
    }

    /// Event core: takes the oldest, if one is whole, and hands it to `take`. Called by one thread at a time.
    pub fn take(&self, take: impl FnOnce(&Observation<'_>)) -> bool {
        let at = self.head.load(Relaxed);
        let place = &self.places[at % self.places.len()];
        if place.turn.load(Acquire) != at + 1 {
            return false;
        }
        let word = |at: usize| place.words[at].load(Relaxed);
        let (whose, mut keys) = (word(1), [0; KEYS_MAX]);
        let count = (whose as u8 as usize).min(KEYS_MAX);
        keys.iter_mut().zip(&place.words[3..]).take(count).for_each(|(key, word)| *key = word.load(Relaxed));
        let (sent, shown) = (word(0), Shown::of(whose >> 8 & 0xff, word(2)));
        place.turn.store(at + self.places.len(), Release);
        self.head.store(at + 1, Relaxed);
        take(&Observation {
            source: (whose >> 32) as u32,
            rank: (whose >> 16) as u8,
            sent,
            shown,
            keys: &keys[..count],
        });
        true
    }

    /// Messages that found no room since start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// The place at the tail, taken, and its number; `None`: the ring is full.
    fn next_free(&self) -> Option<(&Place, usize)> {
        let mut at = self.tail.load(Relaxed);
        loop {
            let place = &self.places[at % self.places.len()];
            let turn = place.turn.load(Acquire);
            if turn < at + 1 && turn != at {
                return None;
            }
            if turn != at {
                // Another shard took it meanwhile.
                at = self.tail.load(Relaxed);
                continue;
            }
            match self.tail.compare_exchange_weak(at, at + 1, Relaxed, Relaxed) {
                Ok(_) => return Some((place, at)),
                Err(now) => at = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
