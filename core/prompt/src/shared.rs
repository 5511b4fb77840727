//! The only locks and atomics of this crate: the checkpoints that all shards share, and the word whether a fast
//! tokenizer is still trusted. Owns their bounds and their protocol; a part's lock is held for a lookup or an
//! insertion, never while something is encoded, hashed or freed.

use crate::checkpoint::{Key, Prefix};
use crate::turn::Turn;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts of a store; two threads meet in one of them once in so many times.
const PARTS: usize = 16;

/// How many entries an insertion may spare because they were used since the last time.
const SPARED: usize = 8;

/// Checkpoints of all models and rules, bounded in bytes.
pub struct Checkpoints {
    parts: Box<[Mutex<Part>]>,
    part_bytes: usize,
    secret: u64,
}

#[derive(Default)]
struct Part {
    entries: HashMap<Key, Entry, BuildHasherDefault<Plain>>,
    /// Keys in the order in which they are looked at for eviction.
    order: VecDeque<Key>,
    bytes: usize,
}

struct Entry {
    kept: Kept,
    used: bool,
}

/// What a key stands for.
#[derive(Clone)]
pub(crate) enum Kept {
    /// Tokens and keys of a text's beginning.
    Prefix(Arc<Prefix>),
    /// Where a conversation's rendering goes on.
    Turn(Arc<Turn>),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Prefix(prefix) => prefix.bytes(),
            Kept::Turn(turn) => turn.bytes(),
        }
    }
}

impl From<Prefix> for Kept {
    fn from(prefix: Prefix) -> Kept {
        Kept::Prefix(Arc::new(prefix))
    }
}

impl From<Turn> for Kept {
    fn from(turn: Turn) -> Kept {
        Kept::Turn(Arc::new(turn))
    }
}

impl Checkpoints {
    /// A store of at most `bytes`, whose keys are hashed under `secret`, drawn once in a process's life.
    pub fn new(bytes: usize, secret: u64) -> Checkpoints {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Checkpoints { parts, part_bytes: bytes / PARTS, secret }
    }

    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// Bytes that the checkpoints take now.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| lock(part).bytes).sum()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| lock(part).entries.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Prefix>> {
        match self.find(key)? {
            Kept::Prefix(prefix) => Some(prefix),
            Kept::Turn(_) => None,
        }
    }

    pub(crate) fn turn(&self, key: &Key) -> Option<Arc<Turn>> {
        match self.find(key)? {
            Kept::Turn(turn) => Some(turn),
            Kept::Prefix(_) => None,
        }
    }

    fn find(&self, key: &Key) -> Option<Kept> {
        let mut part = lock(self.part(key));
        let entry = part.entries.get_mut(key)?;
        entry.used = true;
        Some(entry.kept.clone())
    }

    /// Takes a checkpoint in and drops others for it, oldest first, those used since once spared. One that is
    /// there already stays, one larger than a part is left out.
    pub(crate) fn insert(&self, key: Key, kept: impl Into<Kept>) {
        let kept = kept.into();
        let bytes = kept.bytes();
        if bytes > self.part_bytes {
            return;
        }
        let mut evicted = Vec::new();
        let mut part = lock(self.part(&key));
        if part.entries.contains_key(&key) {
            return;
        }
        part.make_room(self.part_bytes - bytes, &mut evicted);
        part.bytes += bytes;
        part.order.push_back(key);
        part.entries.insert(key, Entry { kept, used: false });
        drop(part);
    }

    fn part(&self, key: &Key) -> &Mutex<Part> {
        &self.parts[key.spread() as usize % PARTS]
    }
}

impl Part {
    fn make_room(&mut self, most: usize, evicted: &mut Vec<Kept>) {
        let mut spared = 0;
        while self.bytes > most {
            let Some(key) = self.order.pop_front() else { return };
            if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.used && spared < SPARED) {
                entry.used = false;
                spared += 1;
                self.order.push_back(key);
            } else if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.kept.bytes();
                evicted.push(entry.kept);
            }
        }
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys are hashes already.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The next number of a tokenizer, by which threads tell theirs apart; 16 million go by before one comes again.
pub(crate) fn numbered() -> u32 {
    static READ: AtomicU32 = AtomicU32::new(0);
    1 + READ.fetch_add(1, Ordering::Relaxed) % 0xff_ffff
}

/// Whether a fast tokenizer, or going on with a rendering, is trusted. It ends once and for all; each reader decides by itself, so relaxed.
#[derive(Default)]
pub(crate) struct Trust {
    ended: AtomicBool,
}

impl Trust {
    pub(crate) fn holds(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Key {
        Key::of_test(n)
    }

    fn prefix(tokens: u64) -> Prefix {
        Prefix::of_test(tokens)
    }

    #[test]
    fn a_store_keeps_within_its_bytes_and_spares_what_is_used() {
        let room = 40 * prefix(0).bytes();
        let store = Checkpoints::new(PARTS * room, 0);
        for n in 0..10_000 {
            store.insert(key(n), prefix(n));
            assert!(store.get(&key(0)).is_some(), "used every time, gone at {n}");
        }
        assert!(store.bytes() <= PARTS * room, "{}", store.bytes());
        assert!(store.len() > 30 * PARTS, "{}", store.len());
        assert_eq!(store.get(&key(9_999)).map(|prefix| prefix.tokens), Some(9_999));
        assert!(store.get(&key(1)).is_none());
    }

    #[test]
    fn what_is_there_stays_and_what_is_too_large_is_left_out() {
        let store = Checkpoints::new(PARTS * prefix(0).bytes(), 0);
        store.insert(key(1), prefix(1));
        store.insert(key(1), prefix(2));
        assert_eq!(store.get(&key(1)).map(|prefix| prefix.tokens), Some(1));
        let none = Checkpoints::new(0, 0);
        none.insert(key(1), prefix(1));
        assert!(none.is_empty());
    }

    #[test]
    fn threads_share_a_store() {
        let store = Checkpoints::new(PARTS * 20 * prefix(0).bytes(), 0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..2_000 {
                        store.insert(key(n * 4 + thread), prefix(n * 4 + thread));
                        if let Some(found) = store.get(&key(n)) {
                            assert_eq!(found.tokens, n);
                        }
                    }
                });
            }
        });
        assert_eq!(store.bytes(), store.len() * prefix(0).bytes());
    }
}
