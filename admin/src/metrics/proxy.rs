//! The families of rules, endpoints and shards. Owns their table; must never judge what a shard counted.

use super::Facts;
use super::family::{Counted, Endpoint, Family, Histograms, Listed, Shard, Total, family};
use super::text::Page;
use crate::rest::status::count_word;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use warmpath_core::control::{Count, DrainPhase, FIRST_BYTE_BUCKETS_US, STAGE_BUCKETS_US, ShardReport};

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_proxy_active_connections",
        "Client connections now open.",
        &Total(|f| sum(f, |report| report.clients)),
    ),
    family(
        "loxilb_proxy_http_ttfb_seconds",
        "From the whole request head to the first byte of the endpoint's answer.",
        &Histograms(&[], first_byte),
    ),
    family(
        "loxilb_proxy_http_responses_total",
        "Answers to clients.",
        &Total(|f| by_class(f).values().sum()),
    ),
    family(
        "loxilb_proxy_http_responses_by_status_total",
        "Answers to clients by hundreds of their status.",
        &Listed(&["status_class"], |f, p| {
            by_class(f).iter().for_each(|(class, count)| p.sample(&[&class_word(*class)], count));
        }),
    ),
    family(
        "loxilb_proxy_chunked_responses_total",
        "Answers relayed with chunked framing.",
        &Counted(&[Count::Chunked]),
    ),
    family(
        "warmpath_serving",
        "1 while new requests are welcome, 0 while going down.",
        &Total(|f| u64::from(f.phase == DrainPhase::Serving)),
    ),
    family("warmpath_rules", "Rules in force.", &Total(|f| f.table.services().count() as u64)),
    family(
        "loxilb_ai_engine_info",
        "1 for each rule, with the kind of its engines.",
        &Listed(&["service", "engine"], |f, p| {
            f.table
                .services()
                .for_each(|service| p.sample(&[&service.number, &service.rule.engine.name()], 1));
        }),
    ),
    family(
        "warmpath_generation",
        "Number of the table that was published last.",
        &Total(|f| f.table.generation),
    ),
    family(
        "warmpath_resident_memory_bytes",
        "Resident memory of the process.",
        &Listed(&[], |f, p| f.resident.iter().for_each(|bytes| p.sample(&[], bytes))),
    ),
    family(
        "warmpath_shard_generation",
        "Number of the table that the shard serves by.",
        &Shard(|report| report.generation),
    ),
    family(
        "warmpath_shard_clients",
        "Client connections now open, by shard.",
        &Shard(|report| report.clients),
    ),
    family(
        "warmpath_shard_upstreams",
        "Upstream connections now open, in use or pooled.",
        &Shard(|report| report.upstreams),
    ),
    family("warmpath_shard_active_requests", "Requests in flight, by shard.", &Shard(|report| report.active)),
    family(
        "warmpath_shard_sent_bytes_total",
        "Bytes of answers relayed to clients.",
        &Shard(|report| count_of(report, Count::BytesOut)),
    ),
    family(
        "warmpath_shard_events_total",
        "Events of the request's way, by shard.",
        &Listed(&["shard", "event"], events),
    ),
    family(
        "warmpath_shard_turn_seconds",
        "CPU time of the turns of the shard's loop, from first event to last (no sum is kept).",
        &Histograms(&["shard"], turns),
    ),
    family(
        "warmpath_stage_seconds",
        "Time of a request's stages on the shard, of one pass in 16; of dial and first_byte, of all.",
        &Histograms(&["shard", "stage"], stages),
    ),
    family(
        "warmpath_shard_longest_turn_microseconds",
        "CPU time of the longest turn.",
        &Shard(|report| report.turn_us_max),
    ),
    family(
        "warmpath_answers_total",
        "Answers by rule, endpoint (empty: the gateway's own) and hundreds of their status.",
        &Listed(&["service", "rule", "model", "endpoint", "status_class"], answers),
    ),
    family(
        "warmpath_endpoint_in_flight",
        "Requests charged to the endpoint by all shards.",
        &Endpoint(|_, state| Some(state.reserved().into())),
    ),
    family(
        "warmpath_endpoint_available",
        "1 unless a probe, failed connection attempts or its breaker took the endpoint out of one of its rules.",
        &Listed(&["endpoint"], available),
    ),
    family(
        "warmpath_endpoint_probed_down",
        "1 while probes find the endpoint down.",
        &Endpoint(|_, state| Some(state.probed_down().into())),
    ),
    family(
        "loxilb_pd_cb_flips_total",
        "Breakers of endpoints opened, or closed again.",
        &Counted(&[Count::BreakerOpenings, Count::BreakerClosings]),
    ),
    family(
        "loxilb_pd_cb_proactive_heal_total",
        "Open breakers whose time was over, so that trials began.",
        &Counted(&[Count::BreakerHeals]),
    ),
    family(
        "warmpath_endpoint_breaker",
        "1 for the state (closed, open or half_open) of the breaker of an endpoint whose rule has one.",
        &Listed(&["endpoint", "state"], breakers),
    ),
];

fn sum(facts: &Facts, of: fn(&ShardReport) -> u64) -> u64 {
    facts.reports.iter().map(of).sum()
}

fn count_of(report: &ShardReport, count: Count) -> u64 {
    report.counts.iter().filter(|(c, _)| *c == count).map(|(_, n)| n).sum()
}

fn class_word(class: u8) -> String {
    format!("{class}xx")
}

fn by_class(facts: &Facts) -> BTreeMap<u8, u64> {
    let mut classes: BTreeMap<u8, u64> = (1..=5).map(|c| (c, 0)).collect();
    for answer in facts.reports.iter().flat_map(|r| &r.answers) {
        *classes.entry(answer.class).or_default() += answer.count;
    }
    classes
}

/// An endpoint of several rules is available where it is to all of them.
fn available(facts: &Facts, page: &mut Page) {
    let mut healthy: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    for service in facts.table.services() {
        for endpoint in &service.endpoints {
            *healthy.entry(endpoint.address()).or_insert(true) &= service.is_healthy(endpoint, facts.now);
        }
    }
    healthy.iter().for_each(|(address, healthy)| page.sample(&[address], u8::from(*healthy)));
}

fn breakers(facts: &Facts, page: &mut Page) {
    let with_breaker = facts.table.services().filter(|service| service.rule.breaker.is_some());
    let states: BTreeMap<SocketAddr, &'static str> = with_breaker
        .flat_map(|service| &service.endpoints)
        .map(|e| (e.address(), e.breaker().now().state(facts.now).word()))
        .collect();
    states.iter().for_each(|(address, state)| page.sample(&[address, state], 1));
}

fn first_byte(facts: &Facts, page: &mut Page) {
    let counts: [u64; FIRST_BYTE_BUCKETS_US.len() + 1] =
        std::array::from_fn(|at| facts.reports.iter().map(|report| report.first_byte_us[at]).sum());
    page.histogram(&[], &FIRST_BYTE_BUCKETS_US, &counts, Some(sum(facts, |r| r.first_byte_us_sum)));
}

fn turns(facts: &Facts, page: &mut Page) {
    for report in facts.reports {
        let bounds: Vec<u64> = (0..report.turn_us.len() - 1).map(|power| 1 << power).collect();
        page.histogram(&[&report.shard], &bounds, &report.turn_us, None);
    }
}

fn stages(facts: &Facts, page: &mut Page) {
    for report in facts.reports {
        for (stage, times) in &report.stages {
            let sum = Some(times.sum / 1_000);
            page.histogram(&[&report.shard, &stage.word()], &STAGE_BUCKETS_US, &times.buckets, sum);
        }
    }
}

fn events(facts: &Facts, page: &mut Page) {
    for report in facts.reports {
        for count in Count::ALL.into_iter().filter(|c| *c != Count::BytesOut) {
            page.sample(&[&report.shard, &count_word(count)], count_of(report, count));
        }
    }
}

/// Answers of rules in force. Those of rules that are gone stay in the sums of the proxy families.
fn answers(facts: &Facts, page: &mut Page) {
    let mut sums: BTreeMap<(u32, u16, u8), u64> = BTreeMap::new();
    for a in facts.reports.iter().flat_map(|r| &r.answers) {
        *sums.entry((a.service, a.endpoint, a.class)).or_default() += a.count;
    }
    for service in facts.table.services() {
        let rule = &service.rule;
        let indices = (0..service.endpoints.len() as u16).chain([u16::MAX]);
        for index in indices.collect::<BTreeSet<u16>>() {
            let endpoint = service.endpoints.get(index as usize).map(|e| e.address().to_string());
            let of = (service.number, index, 0)..=(service.number, index, u8::MAX);
            for ((_, _, class), count) in sums.range(of) {
                let endpoint = endpoint.as_deref().unwrap_or("");
                let class = class_word(*class);
                page.sample(&[&service.number, &rule.name, &rule.key.model, &endpoint, &class], count);
            }
        }
    }
}
