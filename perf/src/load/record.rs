//! What a run measured: histograms of times in microseconds, answers and failures by kind.
//! Must never drop a failure or fold it into the times.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::client::Timed;
use crate::Error;

/// Longest time told apart: an hour, in microseconds.
const LONGEST: u64 = 3_600_000_000;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// The connection ended before any byte of the answer.
    Closed,
    /// The connection ended within the answer.
    Cut,
    /// Not answered in time.
    Timeout,
    /// The answer breaks HTTP; how.
    Framing(&'static str),
    /// The answer is not what was asked for; how.
    Content(&'static str),
    /// A status other than 200.
    Status(u16),
    /// An error event within a stream.
    StreamError,
    /// Due while too many were in flight, so not sent.
    Unsent,
}

impl Failure {
    /// The name under which it is counted.
    pub fn name(&self) -> String {
        match self {
            Failure::Connect => "no connection".into(),
            Failure::Closed => "closed without an answer".into(),
            Failure::Cut => "answer cut".into(),
            Failure::Timeout => "timeout".into(),
            Failure::Framing(how) => format!("framing: {how}"),
            Failure::Content(how) => format!("content: {how}"),
            Failure::Status(status) => format!("status {status}"),
            Failure::StreamError => "error event in stream".into(),
            Failure::Unsent => "not sent, too many in flight".into(),
        }
    }
}

/// The measurements of a run.
#[derive(Debug, Clone)]
pub struct Record {
    /// To the first event of a stream, or the last byte of a whole answer.
    pub ttft: Histogram<u64>,
    /// To the last byte.
    pub end: Histogram<u64>,
    /// Between events of a stream.
    pub gap: Histogram<u64>,
    /// Open loop: how late the generator itself began a request.
    pub late: Histogram<u64>,
    /// Good answers.
    pub good: u64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Failures by name.
    pub failures: BTreeMap<String, u64>,
    /// The longest time to a failure, by name.
    pub longest: BTreeMap<String, Duration>,
}

impl Record {
    /// An empty record.
    pub fn new() -> Result<Self, Error> {
        let new = || {
            Histogram::new_with_bounds(1, LONGEST, 3)
                .map_err(|e| Error::new(format!("a histogram could not be made ({e})")))
        };
        Ok(Record {
            ttft: new()?,
            end: new()?,
            gap: new()?,
            late: new()?,
            good: 0,
            bytes: 0,
            failures: BTreeMap::new(),
            longest: BTreeMap::new(),
        })
    }

    /// Adds a good answer to a request whose time began at `from`.
    pub fn answered(&mut self, timed: &Timed, from: Instant) {
        self.good += 1;
        self.bytes += timed.bytes;
        add(&mut self.ttft, timed.first.saturating_duration_since(from));
        add(&mut self.end, timed.end.saturating_duration_since(from));
        timed.gaps.iter().for_each(|&gap| add(&mut self.gap, gap));
    }

    /// Adds a failure, known after so long a time.
    pub fn failed(&mut self, failure: &Failure, after: Duration) {
        *self.failures.entry(failure.name()).or_default() += 1;
        let longest = self.longest.entry(failure.name()).or_default();
        *longest = after.max(*longest);
    }

    /// Adds the generator's own delay.
    pub fn late(&mut self, by: Duration) {
        add(&mut self.late, by);
    }

    /// All failures.
    pub fn failed_total(&self) -> u64 {
        self.failures.values().sum()
    }
}

fn add(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
}
