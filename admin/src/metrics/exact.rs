//! The families of exact routing. Owns their table; must never judge what a shard counted.
//!
//! Each attempt to choose an endpoint counts, so that a request that was tried again counts once more. The
//! `loxilb_*` families are those of the loxilb AI gateway: those with `ep_idx` know no service, and are summed
//! over all. Of rules that are gone nothing is left in any of them.

use super::Facts;
use super::family::{Family, Listed, Samples, Total, family};
use super::text::Page;
use std::collections::BTreeMap;
use std::fmt::Display;
use warmpath_core::control::{ExactCount, ExactReport};
use warmpath_core::decide::Reason;
use warmpath_core::table::Service;

/// The label values of `loxilb_pd_kv_tier15_miss_reason_total`, which are fixed.
const SEED_WORDS: [&str; 9] = [
    "mode_off",
    "warmup",
    "text_empty",
    "model_empty",
    "tokenize",
    "hashes",
    "no_worker",
    "excluded",
    "shallow",
];

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_pd_kv_tier15_hits_total",
        "Requests routed by blocks, by endpoint index, of all rules together.",
        &Index(|c| c.hits),
    ),
    family(
        "loxilb_pd_kv_tier15_spills_total",
        "Of these, in place of an endpoint with more overlap and too much load.",
        &Index(|c| c.spills),
    ),
    family("loxilb_pd_kv_tier15_cold_seeds_total", "Of these, to fill a cold endpoint.", &Index(|c| c.seeds)),
    family(
        "loxilb_pd_kv_tier15_fallthrough_total",
        "Requests of rules with exact routing that were left to the rule's selector.",
        &Total(|f| f.reports.iter().flat_map(|report| &report.exact).map(misses).sum()),
    ),
    family(
        "loxilb_pd_kv_tier15_miss_reason_total",
        "The same by reason, in the words of the loxilb AI gateway.",
        &Listed(&["reason"], seed_reasons),
    ),
    family(
        "loxilb_pd_kv_zero_hit_watchdog_total",
        "Lookups in caches that hold something, at the end of a suspiciously long row without a hit.",
        &Listed(&["service_id"], |f, p| {
            each_service(f, |service, sum| p.sample(&[&service.number], sum.zero_hits));
        }),
    ),
    family(
        "loxilb_ai_pd_tier_selected_total",
        "Requests of rules with sessions or exact routing by the tier that decided, and the rule's model.",
        &Listed(&["tier", "model"], tiers),
    ),
    family(
        "warmpath_exact_requests_total",
        "Requests routed by blocks: by rule, endpoint, and what decided.",
        &Listed(&["service", "rule", "model", "endpoint", "by"], requests),
    ),
    family(
        "warmpath_exact_misses_total",
        "Requests of rules with exact routing left to the selector, by rule and why.",
        &Listed(&["service", "rule", "model", "reason"], own_reasons),
    ),
    family(
        "warmpath_exact_prompt_tokens_total",
        "Prompt tokens of requests routed by blocks.",
        &Rule(|sum| sum.prompt_tokens),
    ),
    family(
        "warmpath_exact_predicted_tokens_total",
        "Of these, tokens that the endpoint was expected to have cached.",
        &Rule(|sum| sum.predicted_tokens),
    ),
    family(
        "warmpath_exact_cached_tokens_total",
        "Tokens that the engines' answers to these requests say were cached.",
        &Rule(|sum| sum.cached_tokens),
    ),
    family(
        "warmpath_exact_answers_told_total",
        "Answers to requests routed by blocks that tell how much was cached.",
        &Rule(|sum| sum.told),
    ),
    family(
        "warmpath_exact_answers_as_predicted_total",
        "Of these, answers that tell exactly what was expected.",
        &Rule(|sum| sum.as_predicted),
    ),
];

fn misses(report: &ExactReport) -> u64 {
    report.misses.iter().map(|(_, count)| count).sum()
}

fn add(sum: &mut ExactCount, count: &ExactCount) {
    sum.hits += count.hits;
    sum.spills += count.spills;
    sum.seeds += count.seeds;
    sum.promised += count.promised;
}

/// A sample for each endpoint index that a rule with exact routing has.
struct Index(fn(&ExactCount) -> u64);

impl Samples for Index {
    fn labels(&self) -> &'static [&'static str] {
        &["ep_idx"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        let sizes = facts.table.services().filter(|s| s.exact.is_some()).map(|s| s.endpoints.len());
        let mut sums = vec![ExactCount::default(); sizes.max().unwrap_or(0)];
        for report in facts.reports.iter().flat_map(|r| &r.exact) {
            sums.iter_mut().zip(&report.endpoints).for_each(|(sum, count)| add(sum, count));
        }
        sums.iter().enumerate().for_each(|(index, sum)| page.sample(&[&index], (self.0)(sum)));
    }
}

/// A sample for each rule with exact routing.
struct Rule(fn(&ExactReport) -> u64);

impl Samples for Rule {
    fn labels(&self) -> &'static [&'static str] {
        &["service", "rule", "model"]
    }

    fn write(&self, facts: &Facts, page: &mut Page) {
        each_service(facts, |service, sum| page.sample(&rule_values(service), (self.0)(sum)));
    }
}

/// What tells a rule: `service`, `rule`, `model`.
fn rule_values(service: &Service) -> [&dyn Display; 3] {
    [&service.number, &service.rule.name, &service.rule.key.model]
}

/// Hands out each service with exact routing, in the order of their numbers, with what all shards counted.
fn each_service(facts: &Facts, mut each: impl FnMut(&Service, &ExactReport)) {
    let mut services: Vec<_> = facts.table.services().filter(|s| s.exact.is_some()).collect();
    services.sort_by_key(|service| service.number);
    for service in services {
        let mut sum = ExactReport { service: service.number, ..ExactReport::default() };
        sum.endpoints.resize(service.endpoints.len(), ExactCount::default());
        let reports = facts.reports.iter().flat_map(|r| &r.exact);
        for report in reports.filter(|r| r.service == service.number) {
            sum.endpoints.iter_mut().zip(&report.endpoints).for_each(|(sum, count)| add(sum, count));
            sum.misses.extend(&report.misses);
            sum.zero_hits += report.zero_hits;
            sum.prompt_tokens += report.prompt_tokens;
            sum.predicted_tokens += report.predicted_tokens;
            sum.cached_tokens += report.cached_tokens;
            sum.told += report.told;
            sum.as_predicted += report.as_predicted;
        }
        each(service, &sum);
    }
}

fn seed_reasons(facts: &Facts, page: &mut Page) {
    let mut sums: BTreeMap<&str, u64> = SEED_WORDS.map(|word| (word, 0)).into();
    for (miss, count) in facts.reports.iter().flat_map(|r| &r.exact).flat_map(|r| &r.misses) {
        *sums.entry(miss.seed_word()).or_default() += count;
    }
    for word in SEED_WORDS {
        page.sample(&[&word], sums[word]);
    }
}

/// In the order of their numbers: session, prefix trie, blocks, selector or load.
const TIERS: [&str; 4] =
    [Reason::Session.tier(), Reason::PrefixTrie.tier(), Reason::Exact.tier(), Reason::LeastLoad.tier()];

/// Of rules that keep sessions or route by blocks. What blocks left is what the selector decided of the latter.
fn tiers(facts: &Facts, page: &mut Page) {
    let mut sums: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    each_service(facts, |service, sum| {
        let [_, _, exact, selector] = sums.entry(service.rule.key.model.clone()).or_default();
        *exact += sum.endpoints.iter().map(|c| c.hits).sum::<u64>();
        *selector += misses(sum);
    });
    for service in facts.table.services().filter(|service| service.sessions.is_some()) {
        let [session, trie, _, others] = sums.entry(service.rule.key.model.clone()).or_default();
        let counts = facts.reports.iter().flat_map(|report| &report.sessions);
        for count in counts.filter(|count| count.service == service.number) {
            *session += count.hits;
            *trie += count.trie_hits;
            *others += if service.exact.is_some() { 0 } else { count.others };
        }
    }
    for (model, counts) in &sums {
        for (tier, count) in TIERS.iter().zip(counts) {
            page.sample(&[tier, model], count);
        }
    }
}

/// What decided tells the requests apart: their sum is all that were routed by blocks.
fn requests(facts: &Facts, page: &mut Page) {
    each_service(facts, |service, sum| {
        for (endpoint, count) in service.endpoints.iter().zip(&sum.endpoints) {
            let ExactCount { hits, spills, seeds, promised } = *count;
            let held = hits.saturating_sub(spills + seeds + promised);
            for (by, count) in [("held", held), ("promised", promised), ("spill", spills), ("seed", seeds)] {
                let own: [&dyn Display; 2] = [&endpoint.address(), &by];
                page.sample(&[rule_values(service).as_slice(), &own].concat(), count);
            }
        }
    });
}

/// Two reasons may have the same word: a prompt and an extra key can both be too long.
fn own_reasons(facts: &Facts, page: &mut Page) {
    each_service(facts, |service, sum| {
        let mut words: BTreeMap<&str, u64> = BTreeMap::new();
        sum.misses.iter().for_each(|(miss, count)| *words.entry(miss.word()).or_default() += count);
        for (word, count) in &words {
            page.sample(&[rule_values(service).as_slice(), &[word]].concat(), count);
        }
    });
}
