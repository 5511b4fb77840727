//! The families of sessions and of the prefix trie. Owns their table; must never judge what a shard counted.

use super::{Facts, Family, family};
use crate::metrics::text::Page;
use std::collections::BTreeMap;

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
        |f, p| hits(f, p, false),
    ),
    family(
        "loxilb_ai_pd_session_hits_total",
        "counter",
        "The same of pairs, which went to the prefill endpoint of their session.",
        |f, p| hits(f, p, true),
    ),
    family(
        "loxilb_pd_trie_nodes",
        "gauge",
        "Beginnings of prompts that are remembered with the endpoints they were sent to.",
        |f, p| p.sample("", &[], f.table.trie().map_or(0, |trie| trie.nodes(f.now))),
    ),
];

fn hits(facts: &Facts, page: &mut Page, of_pairs: bool) {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let wanted = facts.table.services().filter(|service| service.sessions.is_some());
    for service in wanted.filter(|service| service.roles.is_some() == of_pairs) {
        let counts = facts.reports.iter().flat_map(|report| &report.sessions);
        let hits = counts.filter(|count| count.service == service.number).map(|count| count.hits);
        *sums.entry(&service.rule.key.model).or_default() += hits.sum::<u64>();
    }
    for (model, hits) in sums {
        page.sample("", &[("model", model)], hits);
    }
}
