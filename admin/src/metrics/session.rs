//! The families of sessions and of the prefix trie. Owns their table; must never judge what a shard counted.

use super::{Facts, Family, family};
use crate::metrics::text::Page;
use std::collections::BTreeMap;
use std::sync::Arc;
use warmpath_core::session::Keeps;
use warmpath_core::table::Service;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_pd_sessions_active",
        "gauge",
        "Sessions whose endpoints are remembered, of all rules.",
        |f, p| p.sample("", &[], f.table.sessions().map_or(0, |sessions| sessions.active(f.now))),
    ),
    family(
        "loxilb_ai_normal_session_hits_total",
        "counter",
        "Requests that went where the earlier ones of their session did, by the rule's model.",
        |f, p| hits(f, p, Keeps::Endpoint),
    ),
    family(
        "loxilb_ai_pd_session_hits_total",
        "counter",
        "The same of rules with prefill and decode endpoints: those that went to their session's prefill endpoint.",
        |f, p| hits(f, p, Keeps::Pair),
    ),
    family(
        "loxilb_pd_trie_nodes",
        "gauge",
        "Beginnings of prompts that are remembered with the endpoints they were sent to.",
        |f, p| p.sample("", &[], f.table.trie().map_or(0, |trie| trie.nodes(f.now))),
    ),
];

fn hits(facts: &Facts, page: &mut Page, keeps: Keeps) {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let keeps =
        |service: &&Arc<Service>| service.rule.session.as_ref().is_some_and(|terms| terms.keeps == keeps);
    for service in facts.table.services().filter(keeps) {
        let counts = facts.reports.iter().flat_map(|report| &report.sessions);
        let hits = counts.filter(|count| count.service == service.number).map(|count| count.hits);
        *sums.entry(&service.rule.key.model).or_default() += hits.sum::<u64>();
    }
    for (model, hits) in sums {
        page.sample("", &[("model", model)], hits);
    }
}
