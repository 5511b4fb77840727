//! The families of the event core. Owns their table; must never show a source that no rule in force names.
//!
//! The `loxilb_*` families are those of the loxilb AI gateway, with its label values: `service` is the
//! service's number, `ep` and `ep_idx` the endpoint's index in it, and ranks are taken together.
//! `loxilb_pd_ep_info` tells the address.

use super::Facts;
use super::family::{Family, Listed, Samples, family};
use super::text::{Page, seconds};
use crate::kv::KvEndpoint;
use std::fmt::Display;
use std::time::Duration;
use warmpath_core::control::{KvReport, RankReport, SourceReport};
use warmpath_core::shared::Tier;

/// Families in the terms of the loxilb AI gateway.
pub const LOXILB: &[Family] = &[
    family(
        "loxilb_pd_ep_info",
        "Address of an endpoint of a rule with exact routing.",
        &Listed(&["service", "ep_idx", "ep"], ep_info),
    ),
    family(
        "loxilb_pd_kv_blocks",
        "Blocks on the GPU, all ranks together.",
        &Source(EP_IDX, |s| sum(s, |r| r.blocks[Tier::Gpu as usize])),
    ),
    family(
        "loxilb_kv_subscriber_connected",
        "1 while the events of every rank come.",
        &Source(EP, |s| u64::from(all(s, |r| r.connected))),
    ),
    family(
        "loxilb_kv_subscriber_reconnect_total",
        "Connections to the event stream lost or refused.",
        &Source(EP, |s| sum(s, |r| r.reconnects)),
    ),
    family(
        "loxilb_kv_subscriber_recv_error_total",
        "Errors on the event stream.",
        &Source(EP, |s| sum(s, |r| r.receive_errors)),
    ),
    family(
        "loxilb_kv_subscriber_last_event_timestamp_seconds",
        "Unix time of the last event of any rank; absent before the first.",
        &Listed(EP, last_event),
    ),
    family(
        "loxilb_kv_subscriber_wire_reject_total",
        "Batches that were refused as they came, by reason.",
        &Listed(&["service", "ep", "reason"], wire_rejects),
    ),
    family(
        "loxilb_kv_inv_cap_evictions_total",
        "Blocks that are held and not known for want of room in the index (none is evicted for another).",
        &Source(EP, |s| sum(s, |r| r.refused)),
    ),
    family(
        "loxilb_kv_inventory_fresh",
        "1 while every rank is connected, proven (standing complete or since) and not fenced.",
        &Listed(EP, fresh),
    ),
];

/// This gateway's own.
pub const OWN: &[Family] = &[
    family("warmpath_kv_index_blocks", "Distinct blocks in the index.", &Core(|r| r.index_blocks)),
    family(
        "warmpath_kv_index_capacity_blocks",
        "Distinct blocks that the index takes whatever their depth.",
        &Core(|r| r.index_capacity),
    ),
    family("warmpath_kv_index_bytes", "Memory given to the index.", &Core(|r| r.index_bytes)),
    family("warmpath_kv_index_refused_total", "Blocks not admitted to the index.", &Core(|r| r.refused)),
    family(
        "warmpath_kv_cpu_seconds_total",
        "CPU time of the event core.",
        &Listed(&[], |f, p| {
            f.kv.iter().for_each(|report| p.sample(&[], seconds(report.cpu / 1_000)));
        }),
    ),
    family(
        "warmpath_kv_source_info",
        "1 for each endpoint of a rule with exact routing: what it is and how its events come.",
        &Listed(
            &[
                "service",
                "ep_idx",
                "endpoint",
                "rule",
                "model",
                "engine",
                "version",
                "hash_algo",
                "transport",
            ],
            source_info,
        ),
    ),
    family(
        "warmpath_kv_fenced",
        "1 while the endpoint is left out of exact routing, and why.",
        &Listed(&["service", "ep_idx", "endpoint", "fence"], fenced),
    ),
    family(
        "warmpath_kv_connected",
        "1 while the events of the rank come.",
        &Rank(|r| u64::from(r.connected)),
    ),
    family(
        "warmpath_kv_standing",
        "1 with what the blocks of the rank are worth.",
        &Listed(&["service", "ep_idx", "endpoint", "rank", "standing"], |f, p| {
            ranks(f, |rank, report| p.sample(&[rank, &[&report.standing]].concat(), 1))
        }),
    ),
    family(
        "warmpath_kv_blocks",
        "Blocks held by rank and tier; each tier includes what is nearer to the GPU.",
        &Listed(&["service", "ep_idx", "endpoint", "rank", "tier"], |f, p| {
            ranks(f, |rank, report| {
                for tier in Tier::ALL {
                    p.sample(&[rank, &[&tier.word()]].concat(), report.blocks[tier as usize]);
                }
            });
        }),
    ),
    family("warmpath_kv_batches_total", "Batches of events applied.", &Rank(|r| r.batches)),
    family("warmpath_kv_stored_total", "Blocks stored.", &Rank(|r| r.stored)),
    family("warmpath_kv_removed_total", "Blocks removed.", &Rank(|r| r.removed)),
    family("warmpath_kv_cleared_total", "Times that all was forgotten.", &Rank(|r| r.cleared)),
    family("warmpath_kv_replays_total", "Replays asked for.", &Rank(|r| r.replays)),
    family(
        "warmpath_kv_observed_blocks",
        "Blocks that count as held because answers proved them so, and no event yet.",
        &Rank(|r| r.observed),
    ),
    family("warmpath_kv_learned_total", "Blocks that answers proved held.", &Rank(|r| r.learned)),
    family(
        "warmpath_kv_proofs_dropped_total",
        "Proofs of answers that found no room on their way to the event core.",
        &Core(|r| r.proofs_dropped),
    ),
];

/// The endpoint of a service, by its index.
const EP: &[&str] = &["service", "ep"];
const EP_IDX: &[&str] = &["service", "ep_idx"];

/// A figure of the event core, if it answered.
struct Core(fn(&KvReport) -> u64);

impl Samples for Core {
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        facts.kv.iter().for_each(|report| page.sample(&[], (self.0)(report)));
    }
}

/// A figure of each endpoint that the event core knows.
struct Source(&'static [&'static str], fn(&SourceReport) -> u64);

impl Samples for Source {
    fn labels(&self) -> &'static [&'static str] {
        self.0
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        known(facts).for_each(|(endpoint, source)| page.sample(&place(endpoint), (self.1)(source)));
    }
}

/// A figure of each rank that the event core knows.
struct Rank(fn(&RankReport) -> u64);

impl Samples for Rank {
    fn labels(&self) -> &'static [&'static str] {
        &["service", "ep_idx", "endpoint", "rank"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        ranks(facts, |rank, report| page.sample(rank, (self.0)(report)));
    }
}

/// Endpoints that the event core knows.
fn known<'a>(facts: &'a Facts) -> impl Iterator<Item = (&'a KvEndpoint<'a>, &'a SourceReport)> {
    facts.kv_endpoints.iter().filter_map(|endpoint| Some((endpoint, endpoint.report?)))
}

/// An endpoint by the number of its service and its index in it.
fn place<'a>(endpoint: &'a KvEndpoint) -> [&'a dyn Display; 2] {
    [&endpoint.service.number, &endpoint.index]
}

/// Hands out every rank that the event core knows, with what tells it.
fn ranks(facts: &Facts, mut each: impl FnMut(&[&dyn Display], &RankReport)) {
    for (endpoint, source) in known(facts) {
        let address = endpoint.source.spec().endpoint;
        for (rank, report) in source.ranks.iter().enumerate() {
            each(&[&endpoint.service.number, &endpoint.index, &address, &rank], report);
        }
    }
}

fn sum(source: &SourceReport, of: fn(&RankReport) -> u64) -> u64 {
    source.ranks.iter().map(of).sum()
}

/// Whether it is so for every rank, of which there is one at least.
fn all(source: &SourceReport, of: fn(&RankReport) -> bool) -> bool {
    !source.ranks.is_empty() && source.ranks.iter().all(of)
}

fn fresh(facts: &Facts, page: &mut Page) {
    let is_proven = |r: &RankReport| r.connected && ["complete", "since"].contains(&r.standing);
    for (endpoint, source) in known(facts) {
        page.sample(&place(endpoint), u8::from(endpoint.fence.is_none() && all(source, is_proven)));
    }
}

fn ep_info(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        page.sample(&[&endpoint.service.number, &endpoint.index, &endpoint.source.spec().endpoint], 1);
    }
}

fn last_event(facts: &Facts, page: &mut Page) {
    for (endpoint, source) in known(facts) {
        let last = source.ranks.iter().map(|rank| rank.last_event).filter(|at| *at > 0).max();
        let Some(last) = last else { continue };
        let age = Duration::from_nanos(facts.now.saturating_sub(last));
        let at = facts.wall.saturating_sub(age).as_micros() as u64;
        page.sample(&place(endpoint), seconds(at));
    }
}

fn wire_rejects(facts: &Facts, page: &mut Page) {
    for (endpoint, source) in known(facts) {
        for (reason, count) in [
            ("schema_mismatch", sum(source, |r| r.schema_mismatch)),
            ("decode_error", sum(source, |r| r.undecodable)),
            ("rank_mismatch", sum(source, |r| r.rank_mismatch)),
        ] {
            page.sample(&[place(endpoint).as_slice(), &[&reason]].concat(), count);
        }
    }
}

fn source_info(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let (rule, spec) = (&endpoint.service.rule, endpoint.source.spec());
        let own: [&dyn Display; 7] = [
            &spec.endpoint,
            &rule.name,
            &rule.key.model,
            &spec.engine().name(),
            &endpoint.report.map_or("", |source| &source.version),
            &spec.contract.algo().name(),
            &endpoint.report.map_or("", |source| source.transport),
        ];
        page.sample(&[place(endpoint).as_slice(), &own].concat(), 1);
    }
}

fn fenced(facts: &Facts, page: &mut Page) {
    for (endpoint, _) in known(facts) {
        let why = endpoint.fence.map_or("", |fence| fence.word());
        let own: [&dyn Display; 2] = [&endpoint.source.spec().endpoint, &why];
        page.sample(&[place(endpoint).as_slice(), &own].concat(), u8::from(endpoint.fence.is_some()));
    }
}
