//! The families of exact routing. Owns their table; must never judge what a shard counted.
//!
//! Each attempt to choose an endpoint counts, so that a request that was tried again counts once more. The
//! `loxilb_*` families are those of the loxilb AI gateway: those with `ep_idx` know no service, and are summed
//! over all. Of rules that are gone nothing is left in any of them.

use super::{Facts, Family, family};
use crate::metrics::text::Page;
use std::collections::BTreeMap;
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
        "counter",
        "Requests routed by blocks, by endpoint index, of all rules together.",
        |f, p| each_index(f, p, |c| c.hits),
    ),
    family(
        "loxilb_pd_kv_tier15_spills_total",
        "counter",
        "Of these, in place of an endpoint with more overlap and too much load.",
        |f, p| each_index(f, p, |c| c.spills),
    ),
    family(
        "loxilb_pd_kv_tier15_cold_seeds_total",
        "counter",
        "Of these, to fill a cold endpoint.",
        |f, p| each_index(f, p, |c| c.seeds),
    ),
    family(
        "loxilb_pd_kv_tier15_fallthrough_total",
        "counter",
        "Requests of rules with exact routing that were left to the rule's selector.",
        |f, p| p.sample("", &[], f.reports.iter().flat_map(|r| &r.exact).map(misses).sum::<u64>()),
    ),
    family(
        "loxilb_pd_kv_tier15_miss_reason_total",
        "counter",
        "The same by reason, in the words of the loxilb AI gateway.",
        seed_reasons,
    ),
    family(
        "loxilb_pd_kv_zero_hit_watchdog_total",
        "counter",
        "Lookups in caches that hold something, at the end of a suspiciously long row without a hit.",
        |f, p| {
            each_service(f, |service, sum| {
                p.sample("", &[("service_id", &service.number.to_string())], sum.zero_hits);
            });
        },
    ),
    family(
        "loxilb_ai_pd_tier_selected_total",
        "counter",
        "Requests of rules with sessions or exact routing by the tier that decided, and the rule's model.",
        tiers,
    ),
    family(
        "warmpath_exact_requests_total",
        "counter",
        "Requests routed by blocks: by rule, endpoint, and what decided.",
        requests,
    ),
    family(
        "warmpath_exact_misses_total",
        "counter",
        "Requests of rules with exact routing left to the selector, by rule and why.",
        own_reasons,
    ),
    family(
        "warmpath_exact_prompt_tokens_total",
        "counter",
        "Prompt tokens of requests routed by blocks.",
        |f, p| each_service(f, |service, sum| p.sample("", &rule_labels(service).each(), sum.prompt_tokens)),
    ),
    family(
        "warmpath_exact_predicted_tokens_total",
        "counter",
        "Of these, tokens that the endpoint was expected to have cached.",
        |f, p| {
            each_service(f, |service, sum| p.sample("", &rule_labels(service).each(), sum.predicted_tokens));
        },
    ),
    family(
        "warmpath_exact_cached_tokens_total",
        "counter",
        "Tokens that the engines' answers to these requests say were cached.",
        |f, p| each_service(f, |service, sum| p.sample("", &rule_labels(service).each(), sum.cached_tokens)),
    ),
    family(
        "warmpath_exact_answers_told_total",
        "counter",
        "Answers to requests routed by blocks that tell how much was cached.",
        |f, p| each_service(f, |service, sum| p.sample("", &rule_labels(service).each(), sum.told)),
    ),
    family(
        "warmpath_exact_answers_as_predicted_total",
        "counter",
        "Of these, answers that tell exactly what was expected.",
        |f, p| each_service(f, |service, sum| p.sample("", &rule_labels(service).each(), sum.as_predicted)),
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
fn each_index(facts: &Facts, page: &mut Page, of: fn(&ExactCount) -> u64) {
    let sizes = facts.table.services().filter(|s| s.exact.is_some()).map(|s| s.endpoints.len());
    let mut sums = vec![ExactCount::default(); sizes.max().unwrap_or(0)];
    for report in facts.reports.iter().flat_map(|r| &r.exact) {
        sums.iter_mut().zip(&report.endpoints).for_each(|(sum, count)| add(sum, count));
    }
    for (index, sum) in sums.iter().enumerate() {
        page.sample("", &[("ep_idx", &index.to_string())], of(sum));
    }
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
        page.sample("", &[("reason", word)], sums[word]);
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
            page.sample("", &[("tier", tier), ("model", model)], *count);
        }
    }
}

/// The labels that name a rule.
struct RuleLabels<'a> {
    number: String,
    name: &'a str,
    model: &'a str,
}

fn rule_labels(service: &Service) -> RuleLabels<'_> {
    let rule = &service.rule;
    RuleLabels { number: service.number.to_string(), name: &rule.name, model: &rule.key.model }
}

impl RuleLabels<'_> {
    fn each(&self) -> [(&str, &str); 3] {
        [("service", &self.number), ("rule", self.name), ("model", self.model)]
    }
}

/// What decided tells the requests apart: their sum is all that were routed by blocks.
fn requests(facts: &Facts, page: &mut Page) {
    each_service(facts, |service, sum| {
        let labels = rule_labels(service);
        for (endpoint, count) in service.endpoints.iter().zip(&sum.endpoints) {
            let address = endpoint.address().to_string();
            let ExactCount { hits, spills, seeds, promised } = *count;
            let held = hits.saturating_sub(spills + seeds + promised);
            for (by, count) in [("held", held), ("promised", promised), ("spill", spills), ("seed", seeds)] {
                let own = [("endpoint", address.as_str()), ("by", by)];
                page.sample("", &[labels.each().as_slice(), &own].concat(), count);
            }
        }
    });
}

/// Two reasons may have the same word: a prompt and an extra key can both be too long.
fn own_reasons(facts: &Facts, page: &mut Page) {
    each_service(facts, |service, sum| {
        let mut words: BTreeMap<&str, u64> = BTreeMap::new();
        sum.misses.iter().for_each(|(miss, count)| *words.entry(miss.word()).or_default() += count);
        let labels = rule_labels(service);
        for (word, count) in words {
            page.sample("", &[labels.each().as_slice(), &[("reason", word)]].concat(), count);
        }
    });
}
