//! What came of a replay, in figures. Owns how they are counted; must never round before they are printed.

use super::trace::{Nanos, Trace};
use serde::Serialize;
use std::collections::BTreeMap;
use warmpath_core::decide::Reason;

/// The figures of one policy over one fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Requests answered.
    pub answered: u64,
    /// Requests that found nobody.
    pub refused: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Of them found in the cache of the engine that answered.
    pub hit_tokens: u64,
    /// From a request's arrival to its first token.
    pub first_token: Spread,
    /// Between two tokens of one answer, in the mean of each.
    pub between_tokens: Spread,
    /// Largest ÷ mean over the endpoints: requests.
    pub imbalance_requests: f64,
    /// The same of requests at each over time.
    pub imbalance_load: f64,
    /// The same of the time in which each had something to do.
    pub imbalance_busy: f64,
    /// Share of the time in which an endpoint had something to do, in the mean.
    pub utilization: f64,
    /// Requests by what decided.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// A distribution of times, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50_ms: f64,
    /// 90 %.
    pub p90_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
}

impl Spread {
    /// That of `times`, by the nearest rank.
    fn of(mut times: Vec<Nanos>) -> Spread {
        times.sort_unstable();
        let at = |percent: usize| {
            let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(place).map_or(0.0, |time| *time as f64 / 1e6)
        };
        Spread { p50_ms: at(50), p90_ms: at(90), p99_ms: at(99) }
    }
}

/// Counts while a replay runs.
pub struct Meter {
    answers: Vec<u32>,
    prompt_tokens: u64,
    sent: Vec<Option<Sent>>,
    refused: u64,
    hit_tokens: u64,
    firsts: Vec<Nanos>,
    between: Vec<Nanos>,
    endpoints: Vec<AtEndpoint>,
    reasons: BTreeMap<&'static str, u64>,
    ends: Nanos,
    begins: Nanos,
}

#[derive(Clone, Copy)]
struct Sent {
    at: Nanos,
    endpoint: usize,
    first: Nanos,
}

#[derive(Clone, Copy, Default)]
struct AtEndpoint {
    requests: u64,
    /// Sum of the times of all its requests.
    load: u128,
    busy: Nanos,
}

impl Meter {
    /// One for a trace and so many endpoints.
    pub fn new(trace: &Trace, fleet: usize) -> Meter {
        Meter {
            answers: trace.arrivals.iter().map(|arrival| arrival.answer).collect(),
            prompt_tokens: trace.arrivals.iter().map(|arrival| u64::from(arrival.prompt)).sum(),
            sent: vec![None; trace.arrivals.len()],
            refused: 0,
            hit_tokens: 0,
            firsts: Vec::new(),
            between: Vec::new(),
            endpoints: vec![AtEndpoint::default(); fleet],
            reasons: BTreeMap::new(),
            ends: 0,
            begins: Nanos::MAX,
        }
    }

    /// Nobody was there for a request.
    pub fn refused(&mut self) {
        self.refused += 1;
    }

    /// A request goes to an endpoint.
    pub fn sent(&mut self, number: usize, endpoint: usize, reason: Reason, now: Nanos) {
        self.sent[number] = Some(Sent { at: now, endpoint, first: now });
        self.endpoints[endpoint].requests += 1;
        *self.reasons.entry(reason.word()).or_default() += 1;
        self.begins = self.begins.min(now);
    }

    /// An engine begins with a request, and finds so many tokens.
    pub fn begun(&mut self, hit: u32) {
        self.hit_tokens += u64::from(hit);
    }

    /// Its first token.
    pub fn first(&mut self, number: usize, now: Nanos) {
        if let Some(sent) = &mut self.sent[number] {
            sent.first = now;
            self.firsts.push(now - sent.at);
        }
    }

    /// Its last one.
    pub fn done(&mut self, number: usize, now: Nanos) {
        if let Some(sent) = self.sent[number].take() {
            self.endpoints[sent.endpoint].load += u128::from(now - sent.at);
            if let Some(gaps @ 1..) = self.answers[number].checked_sub(1) {
                self.between.push((now - sent.first) / u64::from(gaps));
            }
            self.ends = self.ends.max(now);
        }
    }

    /// An engine has something to do for so long.
    pub fn busy(&mut self, endpoint: usize, time: Nanos) {
        self.endpoints[endpoint].busy += time;
    }

    /// All figures.
    pub fn outcome(self) -> Outcome {
        let all = self.ends.saturating_sub(self.begins).max(1) as f64;
        let busy: Nanos = self.endpoints.iter().map(|endpoint| endpoint.busy).sum();
        let imbalance = |of: fn(&AtEndpoint) -> f64| imbalance(self.endpoints.iter().map(of));
        Outcome {
            answered: self.firsts.len() as u64,
            refused: self.refused,
            prompt_tokens: self.prompt_tokens,
            hit_tokens: self.hit_tokens,
            imbalance_requests: imbalance(|endpoint| endpoint.requests as f64),
            imbalance_load: imbalance(|endpoint| endpoint.load as f64),
            imbalance_busy: imbalance(|endpoint| endpoint.busy as f64),
            utilization: busy as f64 / all / self.endpoints.len().max(1) as f64,
            first_token: Spread::of(self.firsts),
            between_tokens: Spread::of(self.between),
            reasons: self.reasons,
        }
    }
}

/// Largest ÷ mean; 1 where all are 0.
fn imbalance(of: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, count) = of.clone().fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    let most = of.fold(0.0, f64::max);
    if sum > 0.0 { most * count / sum } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_by_the_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(|n| n * 1_000_000).collect());
        assert_eq!((spread.p50_ms, spread.p90_ms, spread.p99_ms), (100.0, 180.0, 198.0));
        assert_eq!(Spread::of(vec![]), Spread::default());
        assert_eq!(Spread::of(vec![5_000_000]).p99_ms, 5.0);
    }

    #[test]
    fn imbalance_is_largest_by_mean() {
        assert_eq!(imbalance([1.0, 3.0].into_iter()), 1.5);
        assert_eq!(imbalance([0.0; 2].into_iter()), 1.0);
    }
}
