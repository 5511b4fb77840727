//! What `GET /netlox/v1/metrics` says. Owns the list of the tables of families, a file each;
//! must never emit a sample whose family no table lists.
//!
//! The `loxilb_*` families are those of the loxilb AI gateway, so that its dashboards keep working; the
//! `warmpath_*` families are this gateway's own.

mod attest;
mod exact;
mod family;
mod gate;
mod kv;
mod load;
mod pairs;
mod proxy;
mod service;
mod session;
mod text;
mod trust;

use crate::kv::KvEndpoint;
use crate::telemetry::Scrape;
use family::Family;
use std::time::Duration;
use text::Page;
use warmpath_core::Nanos;
use warmpath_core::attest::{Reason, Status};
use warmpath_core::control::{DrainPhase, KvReport, ShardReport};
use warmpath_core::table::Table;

/// What the samples are taken from: values of one moment.
pub struct Facts<'a> {
    /// The rules in force.
    pub table: &'a Table,
    /// How far down the gateway is.
    pub phase: DrainPhase,
    /// Whether it is in maintenance.
    pub maintenance: bool,
    /// Client connections that are served at once; `None`: all.
    pub connections: Option<u32>,
    /// Now, on the clock of the shards.
    pub now: Nanos,
    /// The same moment since the Unix epoch.
    pub wall: Duration,
    /// Resident memory of the process in bytes; `None` where the system does not tell.
    pub resident: Option<u64>,
    /// A report of each shard.
    pub reports: &'a [ShardReport],
    /// The event core's report, if it answered.
    pub kv: Option<&'a KvReport>,
    /// Endpoints of rules with exact routing, each with its part of that.
    pub kv_endpoints: &'a [KvEndpoint<'a>],
    /// What is proven of rules with a model profile.
    pub attest: &'a AttestFacts,
    /// What questions to engines for their load came to.
    pub scrapes: [(Scrape, u64); Scrape::ALL.len()],
}

/// What is proven of rules with a model profile, as metrics show it.
#[derive(Clone, Debug, Default)]
pub struct AttestFacts {
    /// By the rule's id.
    pub rules: Vec<(String, Status)>,
    /// How often challenges came to what.
    pub echoes: Vec<(&'static str, u64)>,
    /// How often an answer spoke against an engine, by reason.
    pub failures: Vec<(Reason, u64)>,
}
/// All families, in the order of the page.
fn families() -> impl Iterator<Item = &'static Family> {
    let own = proxy::FAMILIES.iter().chain(service::FAMILIES).chain(gate::FAMILIES).chain(session::FAMILIES);
    let own = own.chain(load::FAMILIES).chain(attest::FAMILIES);
    own.chain(exact::FAMILIES).chain(pairs::FAMILIES).chain(kv::LOXILB).chain(kv::OWN).chain(trust::FAMILIES)
}

/// The page, in the Prometheus text format 0.0.4.
pub fn render(facts: &Facts) -> String {
    let mut page = Page::default();
    for family in families() {
        family.write(facts, &mut page);
    }
    page.finish()
}

/// Resident memory of this process, from a text in the form of Linux's `/proc/self/status`.
pub fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod dashboards_tests;
#[cfg(test)]
mod seed_tests;
#[cfg(test)]
mod tests;
