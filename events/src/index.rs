//! The index as the event core writes it: holders that hold or don't. Owns the calls to its writer; must never
//! count copies, which residency does.

use warmpath_core::Nanos;
use warmpath_core::engine::Scratch;
use warmpath_kvindex::{Cursor, Holder, Stats, Write, Writer};

/// How often the writer looks on for one page: some milliseconds of the event core's time at most.
const LOOKS: usize = 16;

/// The one writer, and memory to hash in.
pub(crate) struct Index {
    writer: Writer,
    pub scratch: Scratch,
    /// The time, as of the event core's turn.
    pub now: Nanos,
}

impl Index {
    pub fn new(writer: Writer) -> Index {
        Index { writer, scratch: Scratch::default(), now: 0 }
    }

    pub fn register(&mut self, name: u64) -> Option<Holder> {
        self.writer.register(name)
    }

    pub fn release(&mut self, holder: Holder) {
        self.writer.release(holder);
    }

    /// Consecutive blocks of a prompt, from block `depth` on. How many found no room.
    pub fn store(&mut self, holder: Holder, keys: &[u64], depth: u32) -> usize {
        self.writer.store(holder, keys, depth).refused
    }

    /// One block. Whether this holder did not hold it before, and does now.
    pub fn add(&mut self, holder: Holder, key: u64, depth: u32) -> bool {
        self.writer.store(holder, &[key], depth).added > 0
    }

    /// Stores and removals in their order. How many found no room.
    pub fn write(&mut self, holder: Holder, writes: &[Write]) -> usize {
        self.writer.write(holder, writes).0.refused
    }

    /// Visible at once; what is left of it is swept later.
    pub fn clear(&mut self, holder: Holder) {
        self.writer.clear(holder);
    }

    /// Sweeps so many segments; whether some are left.
    pub fn sweep(&mut self, segments: usize) -> bool {
        self.writer.sweep(segments) > 0
    }

    /// A page of a holder's keys, and where the next one begins.
    pub fn page(&self, holder: Holder, from: u64, limit: usize) -> (Vec<u64>, Option<u64>) {
        let (mut keys, mut at) = (Vec::new(), Some(Cursor::from(from)));
        for _ in 0..LOOKS {
            let Some(cursor) = at.filter(|_| keys.len() < limit) else { break };
            let (more, next) = self.writer.keys_of(holder, cursor, limit - keys.len());
            keys.extend(more);
            at = next;
        }
        (keys, at.map(u64::from))
    }

    pub fn held(&self, holder: Holder) -> usize {
        self.writer.held(holder)
    }

    pub fn stats(&self) -> Stats {
        self.writer.stats()
    }

    pub fn bytes(&self) -> usize {
        self.writer.plan().reader_bytes()
    }
}
