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
    /// Something cleared is still to be swept.
    is_sweeping: bool,
    /// Segments swept so far.
    swept: u64,
}

/// A clear that is still to be swept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// What will have been swept when it is over.
    until: u64,
}

impl Index {
    pub fn new(writer: Writer) -> Index {
        Index { writer, scratch: Scratch::default(), now: 0, is_sweeping: false, swept: 0 }
    }

    pub fn register(&mut self, name: u64) -> Option<Holder> {
        self.writer.register(name)
    }

    pub fn release(&mut self, holder: Holder) {
        self.writer.release(holder);
        self.is_sweeping = true;
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

    /// Visible at once; whether something is left of it, to be swept later.
    pub fn clear(&mut self, holder: Holder) -> bool {
        let is_stale = self.writer.held(holder) > 0;
        self.writer.clear(holder);
        self.is_sweeping |= is_stale;
        is_stale
    }

    /// Whether anything is still to be swept.
    pub fn is_sweeping(&self) -> bool {
        self.is_sweeping
    }

    /// Sweeps so many segments.
    pub fn sweep(&mut self, segments: usize) {
        self.is_sweeping = self.writer.sweep(segments) > 0;
        self.swept += segments as u64;
    }

    /// The sweep of all that is cleared by now; `None`: nothing is left to sweep. Whoever stores before it is over
    /// sweeps each segment that it comes to, at once. Sweeping goes round: later clears make none wait longer.
    pub fn sweep_under_way(&mut self) -> Option<Sweep> {
        let stale = self.writer.sweep(0) as u64;
        self.is_sweeping = stale > 0;
        self.is_sweeping.then_some(Sweep { until: self.swept + stale })
    }

    /// Whether that sweep is over.
    pub fn is_swept(&self, sweep: Sweep) -> bool {
        !self.is_sweeping || self.swept >= sweep.until
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
