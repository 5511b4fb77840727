//! A run's result as a table for people and as JSON for programs, from the same figures.
//! Must never round a failure away.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::record::Record;
use super::{Pace, Plan};

/// Quantiles of one time, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Values measured.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// Quantiles of a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Quantiles {
            count: histogram.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1000.0,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// "closed loop, 16 connections" or "open loop, 100 requests/s".
    pub pace: String,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Good answers.
    pub good: u64,
    /// Failed requests.
    pub failed: u64,
    /// Failures by kind.
    pub failures: BTreeMap<String, u64>,
    /// Milliseconds to the latest failure of each kind, counted as latency is.
    pub longest_failure_ms: BTreeMap<String, f64>,
    /// Good answers per second.
    pub per_second: f64,
    /// Bytes of good answers.
    pub bytes: u64,
    /// Milliseconds to the first event (streams) or to the last byte (whole answers).
    pub ttft_ms: Quantiles,
    /// Milliseconds to the last byte.
    pub end_to_end_ms: Quantiles,
    /// Milliseconds between the events of a stream.
    pub inter_token_ms: Quantiles,
    /// Open loop: milliseconds by which the generator itself began requests late; part of the above.
    pub generator_late_ms: Quantiles,
}

impl Report {
    /// The result of a record.
    pub fn of(plan: &Plan, record: &Record, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        Report {
            pace: match plan.pace {
                Pace::Closed { connections } => format!("closed loop, {connections} connections"),
                Pace::Open { rate } => format!("open loop, {rate} requests/s"),
            },
            seconds,
            good: record.good,
            failed: record.failed_total(),
            failures: record.failures.clone(),
            longest_failure_ms: milliseconds(&record.longest),
            per_second: record.good as f64 / seconds.max(1e-9),
            bytes: record.bytes,
            ttft_ms: Quantiles::of(&record.ttft),
            end_to_end_ms: Quantiles::of(&record.end),
            inter_token_ms: Quantiles::of(&record.gap),
            generator_late_ms: Quantiles::of(&record.late),
        }
    }
}

fn milliseconds(times: &BTreeMap<String, Duration>) -> BTreeMap<String, f64> {
    times.iter().map(|(name, time)| (name.clone(), time.as_secs_f64() * 1000.0)).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} for {:.1} s", self.pace, self.seconds)?;
        let megabytes = self.bytes as f64 / 1e6;
        writeln!(
            f,
            "{} good answers ({:.1}/s, {megabytes:.1} MB), {} failed",
            self.good, self.per_second, self.failed
        )?;
        for (name, count) in &self.failures {
            let longest = self.longest_failure_ms.get(name).copied().unwrap_or_default();
            writeln!(f, "  {count} {name}, known after {longest:.1} ms at most")?;
        }
        writeln!(
            f,
            "{:16}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "milliseconds", "p50", "p90", "p99", "p99.9", "max"
        )?;
        let rows = [
            ("first token", self.ttft_ms),
            ("end to end", self.end_to_end_ms),
            ("between tokens", self.inter_token_ms),
            ("generator late", self.generator_late_ms),
        ];
        for (name, q) in rows.into_iter().filter(|(_, q)| q.count > 0) {
            writeln!(
                f,
                "{name:16}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}",
                q.p50, q.p90, q.p99, q.p999, q.max
            )?;
        }
        Ok(())
    }
}
