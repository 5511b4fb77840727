//! The families of sessions and of the prefix trie. Owns their table; must never judge what a shard counted.

use super::Facts;
use super::family::{Family, Listed, Total, family};
use super::text::Page;
use std::collections::BTreeMap;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_pd_sessions_active",
        "Sessions whose endpoints are remembered, of all rules.",
        &Total(|f| f.table.sessions().map_or(0, |sessions| sessions.active(f.now)) as u64),
    ),
    family(
        "loxilb_ai_normal_session_hits_total",
        "Requests that went where the earlier ones of their session did, by the rule's model.",
        &Listed(&["model"], |f, p| hits(f, p, false)),
    ),
    family(
        "loxilb_ai_pd_session_hits_total",
        "The same of pairs, which went to the prefill endpoint of their session.",
        &Listed(&["model"], |f, p| hits(f, p, true)),
    ),
    family(
        "loxilb_pd_trie_nodes",
        "Beginnings of prompts that are remembered with the endpoints they were sent to.",
        &Total(|f| f.table.trie().map_or(0, |trie| trie.nodes(f.now)) as u64),
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
    sums.iter().for_each(|(model, hits)| page.sample(&[model], hits));
}
