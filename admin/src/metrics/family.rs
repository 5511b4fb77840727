//! What a metric family is: a name, what it says, and where its samples come from. Owns the form of a family and the
//! sources that several tables share; must never know a name.
//!
//! A source names its labels once; its samples give values in that order. What it is about (an endpoint, a rank, a rule)
//! is walked in one place, so that a family of a table is a line: its name, its help, and the figure it takes.

use super::Facts;
use super::text::Page;
use std::collections::BTreeMap;
use warmpath_core::control::{Count, ShardReport};
use warmpath_core::shared::EndpointState;

/// One family.
pub struct Family {
    /// Its name. One that ends in `_total` is a counter.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// Where its samples come from.
    pub of: &'static dyn Samples,
}

/// A family of a table.
pub const fn family(name: &'static str, help: &'static str, of: &'static dyn Samples) -> Family {
    Family { name, help, of }
}

/// Where samples come from.
pub trait Samples: Sync {
    /// The names of the labels, in the order in which samples give their values.
    fn labels(&self) -> &'static [&'static str];

    /// Whether they are the buckets, sum and count of histograms.
    fn is_histogram(&self) -> bool {
        false
    }

    /// Writes all of them.
    fn write(&self, facts: &Facts, page: &mut Page);
}

impl Family {
    /// As the page's TYPE has it.
    pub fn kind(&self) -> &'static str {
        match (self.of.is_histogram(), self.name.ends_with("_total")) {
            (true, _) => "histogram",
            (false, true) => "counter",
            (false, false) => "gauge",
        }
    }

    /// Writes it.
    pub fn write(&self, facts: &Facts, page: &mut Page) {
        page.family(self.name, self.kind(), self.help, self.of.labels());
        self.of.write(facts, page);
    }
}

/// One sample without labels.
pub struct Total(pub fn(&Facts) -> u64);

impl Samples for Total {
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        page.sample(&[], (self.0)(facts));
    }
}

/// Events of these kinds that all shards counted, in one sample.
pub struct Counted(pub &'static [Count]);

impl Samples for Counted {
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        let counts = facts.reports.iter().flat_map(|report| &report.counts);
        let sum: u64 = counts.filter(|(count, _)| self.0.contains(count)).map(|(_, n)| n).sum();
        page.sample(&[], sum);
    }
}

/// A sample of each shard.
pub struct Shard(pub fn(&ShardReport) -> u64);

impl Samples for Shard {
    fn labels(&self) -> &'static [&'static str] {
        &["shard"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        facts.reports.iter().for_each(|report| page.sample(&[&report.shard], (self.0)(report)));
    }
}

/// A sample of each endpoint that has the figure. By address: rules that name the same one share its state.
pub struct Endpoint(pub fn(&Facts, &EndpointState) -> Option<u64>);

impl Samples for Endpoint {
    fn labels(&self) -> &'static [&'static str] {
        &["endpoint"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        let states = facts.table.services().flat_map(|service| &service.endpoints);
        let states: BTreeMap<_, _> = states.map(|state| (state.address(), state)).collect();
        for (address, state) in states {
            if let Some(value) = (self.0)(facts, state) {
                page.sample(&[&address], value);
            }
        }
    }
}

/// Samples of a kind that one family has alone: their labels, and how they are written.
pub struct Listed(pub &'static [&'static str], pub fn(&Facts, &mut Page));

impl Samples for Listed {
    fn labels(&self) -> &'static [&'static str] {
        self.0
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        (self.1)(facts, page);
    }
}

/// As [`Listed`], of histograms.
pub struct Histograms(pub &'static [&'static str], pub fn(&Facts, &mut Page));

impl Samples for Histograms {
    fn labels(&self) -> &'static [&'static str] {
        self.0
    }

    fn is_histogram(&self) -> bool {
        true
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        (self.1)(facts, page);
    }
}
