//! One index fed the whole stream, timed. Owns what is counted: one block stored, removed or looked up, a second
//! of the CPU time of the whole process (threads of the index included), and the resident memory that it took.

use crate::index::{Index, told};
use crate::stream::{Request, Stream};
use rustix::time::{ClockId, clock_gettime};

/// Requests that are looked up before their events are applied, as requests that arrive together are.
const SLICE: usize = 50;

/// What a replay found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Million blocks stored or removed a CPU second.
    pub events: f64,
    /// Million blocks looked up a CPU second.
    pub lookups: f64,
    /// Bytes of resident memory a distinct block, at the end.
    pub bytes: f64,
    /// Leading blocks found, over all lookups: equal where indexes agree.
    pub found: u64,
}

impl Figures {
    /// Four words, for the process that asked.
    pub fn print(&self) -> String {
        format!("{} {} {} {}", self.events, self.lookups, self.bytes, self.found)
    }

    /// Reads what [`Figures::print`] made.
    pub fn parse(line: &str) -> Option<Figures> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.trim().parse::<f64>().ok();
        let (events, lookups, bytes) = (number()?, number()?, number()?);
        Some(Figures { events, lookups, bytes, found: number()? as u64 })
    }
}

/// Feeds `make`'s index.
///
/// A lookup counts the blocks that the answer covers and the one that ended it, whatever the index looked at.
pub fn replay<I: Index>(
    stream: &Stream,
    make: impl FnOnce() -> Result<I, String>,
) -> Result<Figures, String> {
    let requests: Vec<Request<'_>> = stream.requests().collect();
    let before = resident_bytes();
    let mut index = make()?;
    let (mut told_blocks, mut told_seconds, mut looked, mut look_seconds, mut found) = (0, 0.0, 0, 0.0, 0);
    for slice in requests.chunks(SLICE) {
        let event = |request: &Request<'_>| {
            told(request).map(|told| index.event(request.engine, told)).collect::<Vec<_>>()
        };
        let events: Vec<I::Event> = slice.iter().flat_map(event).collect();
        let queries: Vec<I::Query> = slice.iter().map(|request| index.query(request)).collect();
        told_blocks += slice.iter().map(|r| r.removed.len() + r.keys.len() - r.from).sum::<usize>();
        let start = cpu_seconds();
        let runs: u64 = queries.iter().map(|query| u64::from(index.look(query))).sum();
        look_seconds += cpu_seconds() - start;
        let start = cpu_seconds();
        events.into_iter().for_each(|event| index.apply(event));
        index.settle();
        told_seconds += cpu_seconds() - start;
        found += runs;
        looked += runs + queries.len() as u64;
    }
    let bytes = resident_bytes() - before;
    Ok(Figures {
        events: told_blocks as f64 / told_seconds / 1e6,
        lookups: looked as f64 / look_seconds / 1e6,
        bytes: bytes / stream.header.distinct_end.max(1) as f64,
        found,
    })
}

/// CPU time of all threads.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident set of this process; 0 where the kernel does not tell.
fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|count| count.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}
