//! The families of the event core. Owns their table; must never show a source that no rule in force names.
//!
//! The `loxilb_*` families are those of the loxilb AI gateway, with its label values: `service` is the
//! service's number, `ep` and `ep_idx` the endpoint's index in it, and ranks are taken together.
//! `loxilb_pd_ep_info` tells the address.

use super::{Facts, Family, family, seconds};
use crate::kv::KvEndpoint;
use crate::metrics::text::Page;
use crate::trust::EndpointTrust;
use std::time::Duration;
use warmpath_core::control::{KvReport, RankReport, SourceReport};
use warmpath_core::shared::Tier;
use warmpath_core::trust::Finding;

/// Families in the terms of the loxilb AI gateway.
pub const LOXILB: &[Family] = &[
    family("loxilb_pd_ep_info", "gauge", "Address of an endpoint of a rule with exact routing.", ep_info),
    family("loxilb_pd_kv_blocks", "gauge", "Blocks on the GPU, all ranks together.", |f, p| {
        each_source(f, p, "ep_idx", |s| sum(s, |r| r.blocks[Tier::Gpu as usize]));
    }),
    family("loxilb_kv_subscriber_connected", "gauge", "1 while the events of every rank come.", |f, p| {
        each_source(f, p, "ep", |s| u64::from(all(s, |r| r.connected)));
    }),
    family(
        "loxilb_kv_subscriber_reconnect_total",
        "counter",
        "Connections to the event stream lost or refused.",
        |f, p| each_source(f, p, "ep", |s| sum(s, |r| r.reconnects)),
    ),
    family("loxilb_kv_subscriber_recv_error_total", "counter", "Errors on the event stream.", |f, p| {
        each_source(f, p, "ep", |s| sum(s, |r| r.receive_errors));
    }),
    family(
        "loxilb_kv_subscriber_last_event_timestamp_seconds",
        "gauge",
        "Unix time of the last event of any rank; absent before the first.",
        last_event,
    ),
    family(
        "loxilb_kv_subscriber_wire_reject_total",
        "counter",
        "Batches that were refused as they came, by reason.",
        wire_rejects,
    ),
    family(
        "loxilb_kv_inv_cap_evictions_total",
        "counter",
        "Blocks that are held and not known for want of room in the index (none is evicted for another).",
        |f, p| each_source(f, p, "ep", |s| sum(s, |r| r.refused)),
    ),
    family(
        "loxilb_kv_inventory_fresh",
        "gauge",
        "1 while every rank is connected, proven (standing complete or since) and not fenced.",
        fresh,
    ),
];

/// This gateway's own.
pub const OWN: &[Family] = &[
    family("warmpath_kv_index_blocks", "gauge", "Distinct blocks in the index.", |f, p| {
        index(f, p, |r| r.index_blocks);
    }),
    family(
        "warmpath_kv_index_capacity_blocks",
        "gauge",
        "Distinct blocks that the index takes whatever their depth.",
        |f, p| index(f, p, |r| r.index_capacity),
    ),
    family("warmpath_kv_index_bytes", "gauge", "Memory given to the index.", |f, p| {
        index(f, p, |r| r.index_bytes);
    }),
    family("warmpath_kv_index_refused_total", "counter", "Blocks not admitted to the index.", |f, p| {
        index(f, p, |r| r.refused);
    }),
    family("warmpath_kv_cpu_seconds_total", "counter", "CPU time of the event core.", |f, p| {
        if let Some(report) = f.kv {
            p.sample("", &[], seconds(report.cpu / 1_000));
        }
    }),
    family(
        "warmpath_kv_source_info",
        "gauge",
        "1 for each endpoint of a rule with exact routing: what it is and how its events come.",
        source_info,
    ),
    family(
        "warmpath_kv_fenced",
        "gauge",
        "1 while the endpoint is left out of exact routing, and why.",
        fenced,
    ),
    family("warmpath_kv_connected", "gauge", "1 while the events of the rank come.", |f, p| {
        each_rank(f, p, |r| u64::from(r.connected));
    }),
    family("warmpath_kv_standing", "gauge", "1 with what the blocks of the rank are worth.", |f, p| {
        ranks(f, |labels, r| p.sample("", &[labels, &[("standing", r.standing)]].concat(), 1));
    }),
    family(
        "warmpath_kv_blocks",
        "gauge",
        "Blocks held by rank and tier; each tier includes what is nearer to the GPU.",
        |f, p| {
            ranks(f, |labels, r| {
                for tier in Tier::ALL {
                    p.sample("", &[labels, &[("tier", tier.word())]].concat(), r.blocks[tier as usize]);
                }
            });
        },
    ),
    family("warmpath_kv_batches_total", "counter", "Batches of events applied.", |f, p| {
        each_rank(f, p, |r| r.batches);
    }),
    family("warmpath_kv_stored_total", "counter", "Blocks stored.", |f, p| each_rank(f, p, |r| r.stored)),
    family("warmpath_kv_removed_total", "counter", "Blocks removed.", |f, p| each_rank(f, p, |r| r.removed)),
    family("warmpath_kv_cleared_total", "counter", "Times that all was forgotten.", |f, p| {
        each_rank(f, p, |r| r.cleared);
    }),
    family("warmpath_kv_replays_total", "counter", "Replays asked for.", |f, p| {
        each_rank(f, p, |r| r.replays);
    }),
    family(
        "warmpath_kv_observed_blocks",
        "gauge",
        "Blocks that count as held because answers proved them so, and no event yet.",
        |f, p| each_rank(f, p, |r| r.observed),
    ),
    family("warmpath_kv_learned_total", "counter", "Blocks that answers proved held.", |f, p| {
        each_rank(f, p, |r| r.learned);
    }),
    family(
        "warmpath_kv_proofs_dropped_total",
        "counter",
        "Proofs of answers that found no room on their way to the event core.",
        |f, p| index(f, p, |r| r.proofs_dropped),
    ),
    family("warmpath_trust_state", "gauge", "1 with how far an endpoint's cache is trusted.", |f, p| {
        trusts(f, |labels, own| {
            p.sample("", &[labels, &[("state", own.trust.state().word())]].concat(), 1);
        });
    }),
    family(
        "warmpath_trust_answers",
        "gauge",
        "Answers judged since the endpoint was last let in, by what they say against what was predicted.",
        |f, p| {
            trusts(f, |labels, own| {
                for finding in Finding::ALL {
                    let labels = [labels, &[("finding", finding.word())]].concat();
                    p.sample("", &labels, own.count(finding));
                }
            });
        },
    ),
    family("warmpath_trust_broken_leg", "gauge", "1 for each leg that may be broken.", |f, p| {
        trusts(f, |labels, own| {
            for leg in own.legs.iter() {
                p.sample("", &[labels, &[("leg", leg.word())]].concat(), 1);
            }
        });
    }),
];

fn index(facts: &Facts, page: &mut Page, of: fn(&KvReport) -> u64) {
    if let Some(report) = facts.kv {
        page.sample("", &[], of(report));
    }
}

fn sum(source: &SourceReport, of: fn(&RankReport) -> u64) -> u64 {
    source.ranks.iter().map(of).sum()
}

/// Whether it is so for every rank, of which there is one at least.
fn all(source: &SourceReport, of: fn(&RankReport) -> bool) -> bool {
    !source.ranks.is_empty() && source.ranks.iter().all(of)
}

fn is_fresh(endpoint: &KvEndpoint, source: &SourceReport) -> bool {
    endpoint.fence.is_none() && all(source, |r| r.connected && ["complete", "since"].contains(&r.standing))
}

fn fresh(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let Some(source) = endpoint.report else { continue };
        let (service, index) = numbers(endpoint);
        page.sample("", &[("service", &service), ("ep", &index)], u64::from(is_fresh(endpoint, source)));
    }
}

/// One sample for each endpoint that the event core knows; the index label is called `index_label`.
fn each_source(facts: &Facts, page: &mut Page, index_label: &str, of: impl Fn(&SourceReport) -> u64) {
    for endpoint in facts.kv_endpoints {
        let Some(source) = endpoint.report else { continue };
        let (service, index) = numbers(endpoint);
        page.sample("", &[("service", &service), (index_label, &index)], of(source));
    }
}

fn numbers(endpoint: &KvEndpoint) -> (String, String) {
    (endpoint.service.number.to_string(), endpoint.index.to_string())
}

fn ep_info(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let (service, index) = numbers(endpoint);
        let address = endpoint.source.spec().endpoint.to_string();
        page.sample("", &[("service", &service), ("ep_idx", &index), ("ep", &address)], 1);
    }
}

fn last_event(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let ranks = endpoint.report.iter().flat_map(|s| &s.ranks);
        let Some(last) = ranks.map(|r| r.last_event).filter(|at| *at > 0).max() else { continue };
        let age = Duration::from_nanos(facts.now.saturating_sub(last));
        let (service, index) = numbers(endpoint);
        let at = seconds(facts.wall.saturating_sub(age).as_micros() as u64);
        page.sample("", &[("service", &service), ("ep", &index)], at);
    }
}

fn wire_rejects(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let Some(source) = endpoint.report else { continue };
        let (service, index) = numbers(endpoint);
        for (reason, count) in [
            ("schema_mismatch", sum(source, |r| r.schema_mismatch)),
            ("decode_error", sum(source, |r| r.undecodable)),
            ("rank_mismatch", sum(source, |r| r.rank_mismatch)),
        ] {
            page.sample("", &[("service", service.as_str()), ("ep", &index), ("reason", reason)], count);
        }
    }
}

fn source_info(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        let (service, index) = numbers(endpoint);
        let (rule, spec) = (&endpoint.service.rule, endpoint.source.spec());
        let labels = [
            ("service", service.as_str()),
            ("ep_idx", &index),
            ("endpoint", &spec.endpoint.to_string()),
            ("rule", &rule.name),
            ("model", &rule.key.model),
            ("engine", spec.engine().name()),
            ("version", endpoint.report.map_or("", |s| &s.version)),
            ("hash_algo", spec.contract.algo().name()),
            ("transport", endpoint.report.map_or("", |s| s.transport)),
        ];
        page.sample("", &labels, 1);
    }
}

fn fenced(facts: &Facts, page: &mut Page) {
    for endpoint in facts.kv_endpoints {
        if endpoint.report.is_none() {
            continue;
        }
        let (service, index) = numbers(endpoint);
        let address = endpoint.source.spec().endpoint.to_string();
        let labels = [
            ("service", service.as_str()),
            ("ep_idx", &index),
            ("endpoint", &address),
            ("fence", endpoint.fence.map_or("", |fence| fence.word())),
        ];
        page.sample("", &labels, u64::from(endpoint.fence.is_some()));
    }
}

/// Hands out every endpoint, known to the event core or not, with the labels that tell it.
fn trusts(facts: &Facts, mut each: impl FnMut(&[(&str, &str)], &EndpointTrust)) {
    for endpoint in facts.kv_endpoints {
        let (service, index) = numbers(endpoint);
        let address = endpoint.source.spec().endpoint.to_string();
        let labels = [("service", service.as_str()), ("ep_idx", &index), ("endpoint", &address)];
        each(&labels, &EndpointTrust::of(endpoint));
    }
}

/// Hands out every rank that the event core knows, with the labels that tell it.
fn ranks(facts: &Facts, mut each: impl FnMut(&[(&str, &str)], &RankReport)) {
    for endpoint in facts.kv_endpoints {
        let (service, index) = numbers(endpoint);
        let address = endpoint.source.spec().endpoint.to_string();
        let reports = endpoint.report.iter().flat_map(|s| s.ranks.iter().enumerate());
        for (number, report) in reports {
            let number = number.to_string();
            let labels = [
                ("service", service.as_str()),
                ("ep_idx", &index),
                ("endpoint", &address),
                ("rank", &number),
            ];
            each(&labels, report);
        }
    }
}

fn each_rank(facts: &Facts, page: &mut Page, of: fn(&RankReport) -> u64) {
    ranks(facts, |labels, report| page.sample("", labels, of(report)));
}
