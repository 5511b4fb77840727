//! What `GET /netlox/v1/metrics` says. Owns the one table of families (name, type, help, where its samples
//! come from); must never emit a sample whose family the table does not list.
//!
//! The `loxilb_*` families are those of the loxilb AI gateway, so that its dashboards keep working; the
//! `warmpath_*` families are this gateway's own.

mod attest;
mod exact;
mod gate;
mod kv;
mod load;
mod pairs;
mod session;
mod text;

use crate::kv::KvEndpoint;
use crate::rest::status::count_word;
use crate::telemetry::Scrape;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use text::Page;
use warmpath_core::Nanos;
use warmpath_core::attest::{Reason, Status};
use warmpath_core::control::{Count, DrainPhase, FIRST_BYTE_BUCKETS_US, KvReport, ShardReport};
use warmpath_core::shared::EndpointState;
use warmpath_core::table::Table;

/// What the samples are taken from: values of one moment.
pub struct Facts<'a> {
    /// The rules in force.
    pub table: &'a Table,
    /// How far down the gateway is.
    pub phase: DrainPhase,
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

/// One family.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Facts, &mut Page),
}

const fn family(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Facts, &mut Page),
) -> Family {
    Family { name, kind, help, samples }
}

/// All families, in the order of the page.
fn families() -> impl Iterator<Item = &'static Family> {
    let own = FAMILIES.iter().chain(gate::FAMILIES).chain(session::FAMILIES).chain(load::FAMILIES);
    own.chain(attest::FAMILIES).chain(exact::FAMILIES).chain(pairs::FAMILIES).chain(kv::LOXILB).chain(kv::OWN)
}

/// Those of rules, endpoints and shards.
const FAMILIES: &[Family] = &[
    family("loxilb_proxy_active_connections", "gauge", "Client connections now open.", |f, p| {
        p.sample("", &[], sum(f, |r| r.clients));
    }),
    family(
        "loxilb_proxy_http_ttfb_seconds",
        "histogram",
        "From the whole request head to the first byte of the endpoint's answer.",
        first_byte,
    ),
    family("loxilb_proxy_http_responses_total", "counter", "Answers to clients.", |f, p| {
        p.sample("", &[], by_class(f).values().sum::<u64>());
    }),
    family(
        "loxilb_proxy_http_responses_by_status_total",
        "counter",
        "Answers to clients by hundreds of their status.",
        |f, p| {
            for (class, count) in by_class(f) {
                p.sample("", &[("status_class", &class_word(class))], count);
            }
        },
    ),
    family(
        "loxilb_proxy_chunked_responses_total",
        "counter",
        "Answers relayed with chunked framing.",
        |f, p| {
            p.sample("", &[], sum(f, |r| count_of(r, Count::Chunked)));
        },
    ),
    family("warmpath_serving", "gauge", "1 while new requests are welcome, 0 while going down.", |f, p| {
        p.sample("", &[], u64::from(f.phase == DrainPhase::Serving));
    }),
    family("warmpath_rules", "gauge", "Rules in force.", |f, p| {
        p.sample("", &[], f.table.vips.iter().map(|v| v.services.len()).sum::<usize>());
    }),
    family("warmpath_generation", "gauge", "Number of the table that was published last.", |f, p| {
        p.sample("", &[], f.table.generation);
    }),
    family("warmpath_resident_memory_bytes", "gauge", "Resident memory of the process.", |f, p| {
        if let Some(bytes) = f.resident {
            p.sample("", &[], bytes);
        }
    }),
    family("warmpath_shard_generation", "gauge", "Number of the table that the shard serves by.", |f, p| {
        each_shard(f, p, |r| r.generation);
    }),
    family("warmpath_shard_clients", "gauge", "Client connections now open, by shard.", |f, p| {
        each_shard(f, p, |r| r.clients);
    }),
    family(
        "warmpath_shard_upstreams",
        "gauge",
        "Upstream connections now open, in use or pooled.",
        |f, p| {
            each_shard(f, p, |r| r.upstreams);
        },
    ),
    family("warmpath_shard_active_requests", "gauge", "Requests in flight, by shard.", |f, p| {
        each_shard(f, p, |r| r.active);
    }),
    family("warmpath_shard_sent_bytes_total", "counter", "Bytes of answers relayed to clients.", |f, p| {
        each_shard(f, p, |r| count_of(r, Count::BytesOut));
    }),
    family("warmpath_shard_events_total", "counter", "Events of the request's way, by shard.", events),
    family(
        "warmpath_shard_turn_seconds",
        "histogram",
        "CPU time of the turns of the shard's loop, from first event to last (no sum is kept).",
        turns,
    ),
    family("warmpath_shard_longest_turn_microseconds", "gauge", "CPU time of the longest turn.", |f, p| {
        each_shard(f, p, |r| r.turn_us_max);
    }),
    family(
        "warmpath_answers_total",
        "counter",
        "Answers by rule, endpoint (empty: the gateway's own) and hundreds of their status.",
        answers,
    ),
    family(
        "warmpath_endpoint_in_flight",
        "gauge",
        "Requests charged to the endpoint by all shards.",
        |f, p| {
            each_endpoint(f, p, |e| u64::from(e.reserved()));
        },
    ),
    family(
        "warmpath_endpoint_available",
        "gauge",
        "1 unless a probe, failed connection attempts or its breaker took the endpoint out of one of its rules.",
        available,
    ),
    family("warmpath_endpoint_probed_down", "gauge", "1 while probes find the endpoint down.", |f, p| {
        each_endpoint(f, p, |e| u64::from(e.probed_down()));
    }),
    family(
        "loxilb_pd_cb_flips_total",
        "counter",
        "Breakers of endpoints opened, or closed again.",
        |f, p| {
            p.sample(
                "",
                &[],
                sum(f, |r| count_of(r, Count::BreakerOpenings) + count_of(r, Count::BreakerClosings)),
            );
        },
    ),
    family(
        "loxilb_pd_cb_proactive_heal_total",
        "counter",
        "Open breakers whose time was over, so that trials began.",
        |f, p| p.sample("", &[], sum(f, |r| count_of(r, Count::BreakerHeals))),
    ),
    family(
        "warmpath_endpoint_breaker",
        "gauge",
        "1 for the state (closed, open or half_open) of the breaker of an endpoint whose rule has one.",
        breakers,
    ),
];

/// The page, in the Prometheus text format 0.0.4.
pub fn render(facts: &Facts) -> String {
    let mut page = Page::default();
    for family in families() {
        page.family(family.name, family.kind, family.help);
        (family.samples)(facts, &mut page);
    }
    page.finish()
}

/// Resident memory of this process, from a text in the form of Linux's `/proc/self/status`.
pub fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

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

fn each_shard(facts: &Facts, page: &mut Page, of: impl Fn(&ShardReport) -> u64) {
    for report in facts.reports {
        page.sample("", &[("shard", &report.shard.to_string())], of(report));
    }
}

/// Endpoints by address: rules that name the same one share its state.
fn each_endpoint(facts: &Facts, page: &mut Page, of: impl Fn(&EndpointState) -> u64) {
    let services = facts.table.vips.iter().flat_map(|v| &v.services);
    let states: BTreeMap<SocketAddr, &Arc<EndpointState>> =
        services.flat_map(|s| &s.endpoints).map(|e| (e.address(), e)).collect();
    for (address, state) in states {
        page.sample("", &[("endpoint", &address.to_string())], of(state));
    }
}

/// An endpoint of several rules is available where it is to all of them.
fn available(facts: &Facts, page: &mut Page) {
    let mut healthy: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    for service in facts.table.services() {
        for endpoint in &service.endpoints {
            *healthy.entry(endpoint.address()).or_insert(true) &= service.is_healthy(endpoint, facts.now);
        }
    }
    for (address, healthy) in healthy {
        page.sample("", &[("endpoint", &address.to_string())], u64::from(healthy));
    }
}

fn breakers(facts: &Facts, page: &mut Page) {
    let with_breaker = facts.table.services().filter(|service| service.rule.breaker.is_some());
    let states: BTreeMap<SocketAddr, &'static str> = with_breaker
        .flat_map(|service| &service.endpoints)
        .map(|e| (e.address(), e.breaker().now().state(facts.now).word()))
        .collect();
    for (address, state) in states {
        page.sample("", &[("endpoint", &address.to_string()), ("state", state)], 1);
    }
}

fn first_byte(facts: &Facts, page: &mut Page) {
    let mut below = 0;
    for (i, bound) in FIRST_BYTE_BUCKETS_US.iter().enumerate() {
        below += facts.reports.iter().map(|r| r.first_byte_us[i]).sum::<u64>();
        page.sample("_bucket", &[("le", &seconds(*bound))], below);
    }
    below += facts.reports.iter().map(|r| r.first_byte_us[FIRST_BYTE_BUCKETS_US.len()]).sum::<u64>();
    page.sample("_bucket", &[("le", "+Inf")], below);
    page.sample("_sum", &[], seconds(sum(facts, |r| r.first_byte_us_sum)));
    page.sample("_count", &[], below);
}

fn turns(facts: &Facts, page: &mut Page) {
    for report in facts.reports {
        let shard = report.shard.to_string();
        let mut below = 0;
        let last = report.turn_us.len() - 1;
        for (power, count) in report.turn_us.iter().enumerate() {
            below += count;
            let bound = if power == last { "+Inf".into() } else { seconds(1 << power) };
            page.sample("_bucket", &[("shard", &shard), ("le", &bound)], below);
        }
        page.sample("_count", &[("shard", &shard)], below);
    }
}

fn events(facts: &Facts, page: &mut Page) {
    for report in facts.reports {
        let shard = report.shard.to_string();
        for count in Count::ALL.into_iter().filter(|c| *c != Count::BytesOut) {
            let labels = [("shard", shard.as_str()), ("event", count_word(count))];
            page.sample("", &labels, count_of(report, count));
        }
    }
}

/// Answers of rules in force. Those of rules that are gone stay in the sums of the proxy families.
fn answers(facts: &Facts, page: &mut Page) {
    let mut sums: BTreeMap<(u32, u16, u8), u64> = BTreeMap::new();
    for a in facts.reports.iter().flat_map(|r| &r.answers) {
        *sums.entry((a.service, a.endpoint, a.class)).or_default() += a.count;
    }
    for service in facts.table.vips.iter().flat_map(|v| &v.services) {
        let number = service.number.to_string();
        let indices = (0..service.endpoints.len() as u16).chain([u16::MAX]);
        for index in indices.collect::<BTreeSet<u16>>() {
            let endpoint = service.endpoints.get(index as usize).map(|e| e.address().to_string());
            for ((_, _, class), count) in
                sums.range((service.number, index, 0)..=(service.number, index, u8::MAX))
            {
                let labels = [
                    ("service", number.as_str()),
                    ("rule", &service.rule.name),
                    ("model", &service.rule.key.model),
                    ("endpoint", endpoint.as_deref().unwrap_or("")),
                    ("status_class", &class_word(*class)),
                ];
                page.sample("", &labels, *count);
            }
        }
    }
}

/// Microseconds as seconds, exact.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests;
