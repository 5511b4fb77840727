//! The page against a strict reader of the format, and its figures against reports.

use super::*;
use crate::fake::body;
use std::collections::HashMap;
use warmpath_core::control::AnswerCount;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::parse;

/// A sample as the reader sees it: name, labels as written, value.
type Sample = (String, String, f64);

/// Reads a page by the rules of the format: HELP and TYPE once, before the samples of their family; names
/// and labels well formed; no series twice; histogram buckets cumulative, ending in +Inf equal to the count.
fn read(page: &str) -> (Vec<String>, Vec<Sample>) {
    let (mut families, mut samples, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
    let mut kind = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("HELP without text");
            assert!(!families.contains(&name.to_string()), "{name} twice");
            assert!(help.ends_with('.') || help.ends_with(')'), "{name}: {help}");
            families.push(name.to_string());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, given) = rest.split_once(' ').expect("TYPE without kind");
            assert_eq!(families.last().map(String::as_str), Some(name));
            assert!(["counter", "gauge", "histogram"].contains(&given));
            assert_eq!(name.ends_with("_total"), given == "counter", "{name}");
            kind = given;
        } else {
            let sample = read_sample(line);
            let family = families.last().expect("a sample without a family");
            let suffix = sample.0.strip_prefix(family.as_str()).expect("a sample of another family");
            match kind {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            let series = format!("{}{{{}}}", sample.0, sample.1);
            assert_eq!(seen.insert(series, ()), None, "{line} twice");
            samples.push(sample);
        }
    }
    (families, samples)
}

fn read_sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a sample without a value");
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').expect("labels without an end")),
        None => (series, ""),
    };
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
    (name.into(), labels.into(), value.parse().expect("no number"))
}

fn report(shard: usize) -> ShardReport {
    let mut report = ShardReport { shard, clients: 3, active: 1, generation: 7, ..ShardReport::default() };
    report.counts = vec![(Count::Chunked, 5), (Count::Requests, 11), (Count::BytesOut, 1000)];
    report.answers = vec![
        AnswerCount { service: 1, endpoint: 0, class: 2, count: 9 },
        AnswerCount { service: 1, endpoint: u16::MAX, class: 5, count: 2 },
        AnswerCount { service: 99, endpoint: 0, class: 2, count: 100 },
    ];
    report.first_byte_us[0] = 4;
    report.first_byte_us[FIRST_BYTE_BUCKETS_US.len()] = 1;
    report.first_byte_us_sum = 61_000_500;
    report.turn_us[3] = 10;
    report.turn_us[23] = 1;
    report.turn_us_max = 9_000_000;
    report
}

fn page() -> String {
    let mut given = body("na\"me\\", 9001);
    given["serviceArguments"]["model_name"] = "m".into();
    let rule = parse(&given, &Environment::default(), || "id".into()).unwrap();
    let table = Table::next(&Table::default(), vec![rule], &mut 0, 0);
    let reports = [report(0), report(1)];
    let facts =
        Facts { table: &table, phase: DrainPhase::Serving, now: 0, resident: Some(4096), reports: &reports };
    render(&facts)
}

fn value(samples: &[Sample], name: &str, labels: &str) -> f64 {
    let found = samples.iter().find(|(n, l, _)| n == name && l == labels);
    found.unwrap_or_else(|| panic!("{name}{{{labels}}} is missing")).2
}

#[test]
fn the_page_is_well_formed_and_every_family_has_samples() {
    let (families, samples) = read(&page());
    let listed: Vec<_> = FAMILIES.iter().map(|f| f.name.to_string()).collect();
    assert_eq!(families, listed);
    for family in &listed {
        assert!(samples.iter().any(|(n, ..)| n.starts_with(family.as_str())), "{family} has no sample");
    }
}

#[test]
fn the_figures_are_the_sums_of_the_reports() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    assert_eq!(value("loxilb_proxy_active_connections", ""), 6.0);
    assert_eq!(value("loxilb_proxy_chunked_responses_total", ""), 10.0);
    assert_eq!(value("loxilb_proxy_http_responses_total", ""), 222.0);
    assert_eq!(value("loxilb_proxy_http_responses_by_status_total", "status_class=\"5xx\""), 4.0);
    assert_eq!(value("loxilb_proxy_http_responses_by_status_total", "status_class=\"1xx\""), 0.0);
    assert_eq!(value("warmpath_shard_events_total", "shard=\"1\",event=\"requests\""), 11.0);
    assert_eq!(value("warmpath_shard_events_total", "shard=\"1\",event=\"replays\""), 0.0);
    let rule = "service=\"1\",rule=\"na\\\"me\\\\\",model=\"m\"";
    let served = format!("{rule},endpoint=\"127.0.0.1:8000\",status_class=\"2xx\"");
    assert_eq!(value("warmpath_answers_total", &served), 18.0);
    assert_eq!(value("warmpath_answers_total", &format!("{rule},endpoint=\"\",status_class=\"5xx\"")), 4.0);
    assert_eq!(value("warmpath_endpoint_available", "endpoint=\"127.0.0.1:8000\""), 1.0);
    assert_eq!(value("warmpath_resident_memory_bytes", ""), 4096.0);
}

#[test]
fn histograms_are_cumulative_and_in_seconds() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    assert_eq!(value("loxilb_proxy_http_ttfb_seconds_bucket", "le=\"0.0005\""), 8.0);
    assert_eq!(value("loxilb_proxy_http_ttfb_seconds_bucket", "le=\"60\""), 8.0);
    assert_eq!(value("loxilb_proxy_http_ttfb_seconds_bucket", "le=\"+Inf\""), 10.0);
    assert_eq!(value("loxilb_proxy_http_ttfb_seconds_count", ""), 10.0);
    assert_eq!(value("loxilb_proxy_http_ttfb_seconds_sum", ""), 122.001);
    assert_eq!(value("warmpath_shard_turn_seconds_bucket", "shard=\"0\",le=\"0.000004\""), 0.0);
    assert_eq!(value("warmpath_shard_turn_seconds_bucket", "shard=\"0\",le=\"0.000008\""), 10.0);
    assert_eq!(value("warmpath_shard_turn_seconds_bucket", "shard=\"0\",le=\"+Inf\""), 11.0);
    assert_eq!(value("warmpath_shard_turn_seconds_count", "shard=\"0\""), 11.0);
}

#[test]
fn resident_memory_is_read_from_the_kernels_text() {
    assert_eq!(resident("Name:\twarmpath\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12288));
    assert_eq!(resident("Name:\twarmpath\n"), None);
}
