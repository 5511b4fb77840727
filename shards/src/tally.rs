//! What a shard counts. Owns its counters, histograms and last receipts, all its own memory; must never
//! allocate on the way of a request.

use crate::exchange::{Exchange, Word};
use std::net::SocketAddr;
use warmpath_core::Nanos;
use warmpath_core::control::{Count, FIRST_BYTE_BUCKETS_US, ShardReport};
use warmpath_core::decide::Reason;
use warmpath_core::receipt::{ExactReceipt, ID_MAX, KEPT, Outcome, PairReceipt, Receipt};

/// The counters of one shard.
pub struct Tally {
    counts: [u64; Count::ALL.len()],
    first_byte_us: [u64; FIRST_BYTE_BUCKETS_US.len() + 1],
    first_byte_us_sum: u64,
    turn_us: [u64; 24],
    turn_us_max: u64,
    turn_max_stage: &'static str,
    records: Vec<Record>,
    /// Beside each record; apart, so that a request without one writes a byte.
    exact: Vec<Option<ExactReceipt>>,
    pairs: Vec<Option<PairReceipt>>,
    next_record: usize,
}

/// A receipt in a fixed size.
#[derive(Clone, Copy)]
struct Record {
    at: Nanos,
    id: Word<ID_MAX>,
    model: Word<128>,
    service: u32,
    endpoint: Option<SocketAddr>,
    reason: Option<Reason>,
    status: u16,
    outcome: Outcome,
    streamed: bool,
    first_byte: Nanos,
    total: Nanos,
    bytes_out: u64,
    retries: u8,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            counts: [0; Count::ALL.len()],
            first_byte_us: Default::default(),
            first_byte_us_sum: 0,
            turn_us: [0; 24],
            turn_us_max: 0,
            turn_max_stage: "",
            records: Vec::with_capacity(KEPT),
            exact: vec![None; KEPT],
            pairs: vec![None; KEPT],
            next_record: 0,
        }
    }
}

impl Tally {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }

    /// Counts many.
    #[inline]
    pub fn add(&mut self, what: Count, many: u64) {
        self.counts[what as usize] += many;
    }

    /// Sets a count that something else keeps.
    pub fn set(&mut self, what: Count, value: u64) {
        self.counts[what as usize] = value;
    }

    /// How many were counted.
    pub fn of(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// Takes the CPU time of a loop turn, and the stage of the event that used most of it.
    #[inline]
    pub fn turn(&mut self, nanos: Nanos, stage: &'static str) {
        let us = nanos / 1000;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.turn_us[bucket.min(self.turn_us.len() - 1)] += 1;
        if us > self.turn_us_max {
            self.turn_us_max = us;
            self.turn_max_stage = stage;
        }
    }

    /// Takes the time to an answer's first byte.
    pub fn first_byte(&mut self, nanos: Nanos) {
        let us = nanos / 1000;
        let bucket = FIRST_BYTE_BUCKETS_US.partition_point(|bound| *bound < us);
        self.first_byte_us[bucket] += 1;
        self.first_byte_us_sum += us;
    }

    /// Keeps the receipt of a finished exchange.
    pub fn receipt(&mut self, exchange: &Exchange, outcome: Outcome, status: u16, now: Nanos) {
        let route = &exchange.route;
        let service = route.service.as_ref();
        let times = &exchange.times;
        let record = Record {
            at: now,
            id: exchange.facts.id,
            model: exchange.facts.model,
            service: service.map_or(0, |s| s.service.number),
            endpoint: service
                .filter(|_| route.reason.is_some())
                .and_then(|s| s.service.endpoints.get(route.endpoint))
                .map(|e| e.address()),
            reason: route.reason,
            status,
            outcome,
            streamed: exchange.answer.streamed,
            first_byte: times.first_byte.saturating_sub(times.begun),
            total: now.saturating_sub(times.begun),
            bytes_out: exchange.answer.bytes_out,
            retries: route.retries,
        };
        self.exact[self.next_record] = route.explained.map(|explanation| ExactReceipt {
            explanation,
            rank: route.rank.as_ref().and_then(|rank| rank.rank()),
            prompt_tokens: route.prompt_tokens,
            predicted_tokens: route.predicted_tokens,
            cached_tokens: exchange.answer.usage.and_then(|usage| usage.cached_tokens()),
            engine_tokens: exchange.answer.usage.and_then(|usage| usage.prompt_tokens()),
            finding: route.finding,
        });
        let complete = exchange.answer.complete && status < 400;
        self.pairs[self.next_record] = exchange.pair.as_ref().and_then(|pair| pair.receipt(complete));
        match self.records.get_mut(self.next_record) {
            Some(place) => *place = record,
            None => self.records.push(record),
        }
        self.next_record = (self.next_record + 1) % KEPT;
    }

    /// Fills in what this counts.
    pub fn report(&self, report: &mut ShardReport) {
        report.counts = Count::ALL.iter().map(|c| (*c, self.of(*c))).collect();
        report.first_byte_us = self.first_byte_us;
        report.first_byte_us_sum = self.first_byte_us_sum;
        report.turn_us = self.turn_us;
        report.turn_us_max = self.turn_us_max;
        report.turn_max_stage = self.turn_max_stage;
        let all: Vec<_> = self.records.iter().zip(self.exact.iter().zip(&self.pairs)).collect();
        let (newer, older) = all.split_at(self.next_record.min(all.len()));
        let receipts = older.iter().chain(newer);
        report.receipts = receipts.map(|(record, (exact, pair))| record.receipt(**exact, **pair)).collect();
    }
}

impl Record {
    fn receipt(&self, exact: Option<ExactReceipt>, pair: Option<PairReceipt>) -> Receipt {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Receipt {
            at: self.at,
            id: text(self.id.bytes()),
            service: self.service,
            model: text(self.model.bytes()),
            endpoint: self.endpoint,
            reason: self.reason,
            exact,
            pair,
            status: self.status,
            outcome: self.outcome,
            streamed: self.streamed,
            first_byte: self.first_byte,
            total: self.total,
            bytes_out: self.bytes_out,
            retries: self.retries,
        }
    }
}
