//! The page against a strict reader of the format, and its figures against reports.

use super::*;
use crate::fake::body;
use crate::fake::kv::{exact_report, exact_rule};
use crate::kv::endpoints;
use crate::telemetry::Scrape;
use std::collections::{HashMap, HashSet};
use warmpath_core::control::{
    AnswerCount, Count, ExactCount, ExactReport, FIRST_BYTE_BUCKETS_US, RequestStage, SessionCount,
    SourceReport, StageTimes,
};
use warmpath_core::decide::exact::Miss;
use warmpath_core::engine::Decline;
use warmpath_core::engine::telemetry::Load;
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::parse;
use warmpath_core::shared::Fence;

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

/// The names of labels as written; that of a bucket's bound is left out.
fn label_names(labels: &str) -> Vec<String> {
    let plain = labels.replace("\\\\", "").replace("\\\"", "");
    let between = plain.split('"').step_by(2).map(|between| between.trim_matches([',', '=']).to_owned());
    between.filter(|name| !name.is_empty() && *name != "le").collect()
}

fn report(shard: usize) -> ShardReport {
    let mut report = ShardReport { shard, clients: 3, active: 1, generation: 7, ..ShardReport::default() };
    report.counts = vec![(Count::Chunked, 5), (Count::Requests, 11), (Count::BytesOut, 1000)];
    report.counts.extend([
        (Count::BreakerOpenings, 4),
        (Count::BreakerClosings, 3),
        (Count::BreakerHeals, 5),
    ]);
    report.answers = vec![
        AnswerCount { service: 1, endpoint: 0, class: 2, count: 9 },
        AnswerCount { service: 1, endpoint: u16::MAX, class: 5, count: 2 },
        AnswerCount { service: 99, endpoint: 0, class: 2, count: 100 },
    ];
    report.first_byte_us[0] = 4;
    report.first_byte_us[FIRST_BYTE_BUCKETS_US.len()] = 1;
    report.first_byte_us_sum = 61_000_500;
    report.sessions = vec![
        SessionCount { service: 1, hits: 21, trie_hits: 2, others: 3 },
        SessionCount { service: 99, hits: 1, ..SessionCount::default() },
    ];
    let mut parse = StageTimes::default();
    [1_500, 1_500, 70_000_000_000].into_iter().for_each(|nanos| parse.note(nanos));
    report.stages = vec![(RequestStage::Parse, parse)];
    report.turn_us[3] = 10;
    report.turn_us[23] = 1;
    report.turn_us_max = 9_000_000;
    report.exact = vec![
        ExactReport {
            service: 2,
            endpoints: vec![exact_count(20, 3, 2, 1), exact_count(5, 0, 0, 0)],
            misses: vec![
                (Miss::NoSignal, 4),
                (Miss::TooLong, 1),
                (Miss::Declined(Decline::TooLong.into()), 2),
                (Miss::Shallow, 8),
            ],
            zero_hits: 6,
            prompt_tokens: 1_000,
            predicted_tokens: 640,
            cached_tokens: 600,
            told: 30,
            as_predicted: 29,
        },
        ExactReport { service: 5, endpoints: vec![exact_count(7, 1, 0, 0)], ..ExactReport::default() },
    ];
    report
}

fn exact_count(hits: u64, spills: u64, seeds: u64, promised: u64) -> ExactCount {
    ExactCount { hits, spills, seeds, promised }
}

fn page() -> String {
    page_with(|_| {})
}

/// The page of a plain rule and two exact ones that share a source, after `change` to the event core's
/// report, at one minute by both clocks.
fn page_with(change: impl FnOnce(&mut KvReport)) -> String {
    let mut given = body("na\"me\\", 9001);
    given["serviceArguments"]["model_name"] = "m".into();
    given["serviceArguments"]["cb_enable"] = true.into();
    given["serviceArguments"]["fc_mode"] = "enforce".into();
    given["serviceArguments"]["fc_max_outstanding"] = 9.into();
    given["serviceArguments"]["session_header_name"] = "X-Conversation-Id".into();
    let plain = parse(&given, &Environment::default(), || "id".into()).unwrap();
    let exact = [exact_rule("ex\"act", 9002, &[8001, 8002], 2), exact_rule("shares", 9003, &[8001], 2)];
    let mut pairs = body("pairs", 9004);
    pairs["serviceArguments"]["pd_disagg_mode"] = true.into();
    pairs["endpoints"][0]["ep_role"] = 1.into();
    let mut decode = pairs["endpoints"][0].clone();
    (decode["targetPort"], decode["ep_role"]) = (8009.into(), 2.into());
    pairs["endpoints"].as_array_mut().unwrap().push(decode);
    let pairs = parse(&pairs, &Environment::default(), || "id".into()).unwrap();
    let rules = [plain].into_iter().chain(exact).chain([pairs]).collect();
    let table = Table::next(&Table::default(), rules, &mut 0, 0);
    let load = Load { running: 3, waiting: 4, kv_use_permille: Some(500), capacity_blocks: Some(6) };
    table
        .services()
        .flat_map(|service| &service.endpoints)
        .for_each(|state| state.load().tell(load, 59_000_000_000));
    let (reports, mut kv) = ([report(0), report(1)], exact_report());
    for (source, number) in kv.sources.iter_mut().zip([3, 4]) {
        source.source = number;
    }
    table.services().for_each(|service| service.pin(Some(7), 0, 60_000_000_000));
    change(&mut kv);
    render(&Facts {
        table: &table,
        phase: DrainPhase::Serving,
        maintenance: false,
        connections: Some(9),
        now: 60_000_000_000,
        wall: Duration::from_secs(1_700_000_000),
        resident: Some(4096),
        reports: &reports,
        kv: Some(&kv),
        kv_endpoints: &endpoints(&table, Some(&kv)),
        attest: &attested(),
        scrapes: Scrape::ALL.map(|scrape| (scrape, 7)),
    })
}

/// One rule with a profile and without endpoints, and some answers.
fn attested() -> AttestFacts {
    let cadence = warmpath_core::attest::Cadence::default();
    let binding = warmpath_core::attest::Binding::new(1, cadence, Default::default(), []);
    AttestFacts {
        rules: vec![("chat".into(), binding.status(0))],
        echoes: vec![("named", 3)],
        failures: vec![(warmpath_core::attest::Reason::TokenMismatch, 2)],
    }
}

/// A moment at which nothing is known.
fn nothing() -> Facts<'static> {
    static EMPTY: Table = Table { generation: 0, vips: Vec::new() };
    static NONE: AttestFacts = AttestFacts { rules: Vec::new(), echoes: Vec::new(), failures: Vec::new() };
    Facts {
        table: &EMPTY,
        phase: DrainPhase::Serving,
        maintenance: false,
        connections: Some(9),
        now: 0,
        wall: Duration::ZERO,
        resident: None,
        reports: &[],
        kv: None,
        kv_endpoints: &[],
        attest: &NONE,
        scrapes: Scrape::ALL.map(|scrape| (scrape, 0)),
    }
}

fn value(samples: &[Sample], name: &str, labels: &str) -> f64 {
    let found = samples.iter().find(|(n, l, _)| n == name && l == labels);
    found.unwrap_or_else(|| panic!("{name}{{{labels}}} is missing")).2
}

#[test]
fn the_page_is_well_formed_and_every_family_has_samples() {
    let (families, samples) = read(&page());
    let listed: Vec<_> = super::families().map(|f| f.name.to_string()).collect();
    assert_eq!(families, listed);
    for family in super::families() {
        let own = samples.iter().filter(|(name, ..)| {
            let suffix = name.strip_prefix(family.name);
            suffix.is_some_and(|suffix| ["", "_bucket", "_sum", "_count"].contains(&suffix))
        });
        let names: HashSet<Vec<String>> = own.map(|(_, labels, _)| label_names(labels)).collect();
        let named = family.of.labels().iter().map(|name| name.to_string()).collect();
        assert_eq!(names, HashSet::from([named]), "{}", family.name);
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
    assert_eq!(value("loxilb_pd_cb_flips_total", ""), 14.0);
    assert_eq!(value("loxilb_ai_normal_session_hits_total", "model=\"m\""), 42.0);
    assert_eq!(value("loxilb_pd_sessions_active", ""), 1.0);
    let tiers = ["tier0", "tier1", "tier15", "tier2"]
        .map(|tier| value("loxilb_ai_pd_tier_selected_total", &format!("tier=\"{tier}\",model=\"m\"")));
    assert_eq!(tiers, [42.0, 4.0, 0.0, 6.0]);
    assert_eq!(value("loxilb_pd_cb_proactive_heal_total", ""), 10.0);
    assert_eq!(value("warmpath_endpoint_breaker", "endpoint=\"127.0.0.1:8000\",state=\"closed\""), 1.0);
    assert_eq!(value("warmpath_resident_memory_bytes", ""), 4096.0);
}

#[test]
fn the_event_cores_families_have_the_labels_of_the_loxilb_gateway() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    let of = |service: u32, ep: u32| format!("service=\"{service}\",ep=\"{ep}\"");
    assert_eq!(value("loxilb_pd_ep_info", "service=\"2\",ep_idx=\"1\",ep=\"127.0.0.1:8002\""), 1.0);
    for service in [2, 5] {
        assert_eq!(value("loxilb_pd_kv_blocks", &format!("service=\"{service}\",ep_idx=\"0\"")), 21.0);
        assert_eq!(value("loxilb_kv_subscriber_connected", &of(service, 0)), 1.0);
        assert_eq!(value("loxilb_kv_subscriber_reconnect_total", &of(service, 0)), 3.0);
        assert_eq!(value("loxilb_kv_subscriber_recv_error_total", &of(service, 0)), 7.0);
        let last = value("loxilb_kv_subscriber_last_event_timestamp_seconds", &of(service, 0));
        assert_eq!(last, 1_700_000_000.0 - 2.5, "of the rank that spoke last");
        for (reason, count) in [("schema_mismatch", 27.0), ("decode_error", 31.0), ("rank_mismatch", 35.0)] {
            let labels = format!("{},reason=\"{reason}\"", of(service, 0));
            assert_eq!(value("loxilb_kv_subscriber_wire_reject_total", &labels), count);
        }
        assert_eq!(value("loxilb_kv_inv_cap_evictions_total", &of(service, 0)), 39.0);
        assert_eq!(value("loxilb_kv_inventory_fresh", &of(service, 0)), 1.0);
    }
    assert_eq!(value("loxilb_kv_subscriber_connected", &of(2, 1)), 0.0);
    assert_eq!(value("loxilb_kv_inventory_fresh", &of(2, 1)), 0.0);
    let silent = |(name, labels, _): &Sample| name.contains("last_event") && *labels == of(2, 1);
    assert!(!samples.iter().any(silent), "no event, no time");
}

#[test]
fn the_event_cores_own_families_tell_ranks_and_tiers_apart() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    for (name, figure) in [
        ("index_blocks", 31.0),
        ("index_capacity_blocks", 1_000.0),
        ("index_bytes", 65_536.0),
        ("index_refused_total", 39.0),
        ("cpu_seconds_total", 1.5),
    ] {
        assert_eq!(value(&format!("warmpath_kv_{name}"), ""), figure);
    }
    let second = "service=\"5\",ep_idx=\"0\",endpoint=\"127.0.0.1:8001\",rank=\"1\"";
    assert_eq!(value("warmpath_kv_connected", second), 1.0);
    assert_eq!(value("warmpath_kv_standing", &format!("{second},standing=\"since\"")), 1.0);
    for (tier, blocks) in [("gpu", 11.0), ("host", 21.0), ("disk", 31.0)] {
        assert_eq!(value("warmpath_kv_blocks", &format!("{second},tier=\"{tier}\"")), blocks);
    }
    for (name, count) in
        [("batches", 6.0), ("stored", 8.0), ("removed", 10.0), ("cleared", 12.0), ("replays", 22.0)]
    {
        assert_eq!(value(&format!("warmpath_kv_{name}_total"), second), count);
    }
    let fenced = "service=\"2\",ep_idx=\"1\",endpoint=\"127.0.0.1:8002\",fence=\"ownership\"";
    assert_eq!(value("warmpath_kv_fenced", fenced), 1.0);
    let free = "service=\"2\",ep_idx=\"0\",endpoint=\"127.0.0.1:8001\",fence=\"\"";
    assert_eq!(value("warmpath_kv_fenced", free), 0.0);
    let info = "service=\"2\",ep_idx=\"1\",endpoint=\"127.0.0.1:8002\",rule=\"ex\\\"act\",model=\"\",\
                engine=\"sglang\",version=\"1.2\\\"\\\\\\nrc\",hash_algo=\"sha256_sglang\",transport=\"drain\"";
    assert_eq!(value("warmpath_kv_source_info", info), 1.0);
}

#[test]
fn exact_routing_is_counted_in_the_words_of_the_loxilb_gateway() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    for (index, hits, spills, seeds) in [(0, 54.0, 8.0, 4.0), (1, 10.0, 0.0, 0.0)] {
        let index = format!("ep_idx=\"{index}\"");
        assert_eq!(value("loxilb_pd_kv_tier15_hits_total", &index), hits, "both rules, both shards");
        assert_eq!(value("loxilb_pd_kv_tier15_spills_total", &index), spills);
        assert_eq!(value("loxilb_pd_kv_tier15_cold_seeds_total", &index), seeds);
    }
    assert_eq!(value("loxilb_pd_kv_tier15_fallthrough_total", ""), 30.0);
    let reasons = [("no_worker", 8.0), ("hashes", 6.0), ("shallow", 16.0)];
    for word in ["mode_off", "warmup", "text_empty", "model_empty", "tokenize", "excluded"] {
        assert_eq!(value("loxilb_pd_kv_tier15_miss_reason_total", &format!("reason=\"{word}\"")), 0.0);
    }
    for (word, count) in reasons {
        assert_eq!(value("loxilb_pd_kv_tier15_miss_reason_total", &format!("reason=\"{word}\"")), count);
    }
    let words = samples.iter().filter(|(name, ..)| name == "loxilb_pd_kv_tier15_miss_reason_total");
    assert_eq!(words.count(), 9);
    assert_eq!(value("loxilb_pd_kv_zero_hit_watchdog_total", "service_id=\"2\""), 12.0);
    assert_eq!(value("loxilb_pd_kv_zero_hit_watchdog_total", "service_id=\"5\""), 0.0);
    assert_eq!(value("loxilb_ai_pd_tier_selected_total", "tier=\"tier15\",model=\"\""), 64.0);
    assert_eq!(value("loxilb_ai_pd_tier_selected_total", "tier=\"tier2\",model=\"\""), 30.0);
}

#[test]
fn exact_routings_own_families_tell_rules_endpoints_and_reasons_apart() {
    let (_, samples) = read(&page());
    let value = |name: &str, labels: &str| value(&samples, name, labels);
    let rule = "service=\"2\",rule=\"ex\\\"act\",model=\"\"";
    let first = format!("{rule},endpoint=\"127.0.0.1:8001\"");
    for (by, count) in [("held", 28.0), ("promised", 2.0), ("spill", 6.0), ("seed", 4.0)] {
        assert_eq!(value("warmpath_exact_requests_total", &format!("{first},by=\"{by}\"")), count);
    }
    for (reason, count) in [("no_signal", 8.0), ("too_long", 6.0), ("shallow", 16.0)] {
        assert_eq!(value("warmpath_exact_misses_total", &format!("{rule},reason=\"{reason}\"")), count);
    }
    assert_eq!(value("warmpath_exact_prompt_tokens_total", rule), 2_000.0);
    assert_eq!(value("warmpath_exact_predicted_tokens_total", rule), 1_280.0);
    assert_eq!(value("warmpath_exact_cached_tokens_total", rule), 1_200.0);
    assert_eq!(value("warmpath_exact_answers_told_total", rule), 60.0);
    assert_eq!(value("warmpath_exact_answers_as_predicted_total", rule), 58.0);
    let other = "service=\"5\",rule=\"shares\",model=\"\"";
    assert_eq!(value("warmpath_exact_prompt_tokens_total", other), 0.0);
}

#[test]
fn every_miss_falls_to_a_listed_word_of_the_loxilb_gateway() {
    let report = ShardReport {
        exact: vec![ExactReport {
            misses: crate::why::every_miss().map(|miss| (miss, 1)).collect(),
            ..ExactReport::default()
        }],
        ..ShardReport::default()
    };
    let facts = Facts { reports: &[report], ..nothing() };
    let (_, samples) = read(&render(&facts));
    let of = |name: &str| samples.iter().filter(|s| s.0 == name).map(|s| s.2).sum::<f64>();
    assert_eq!(of("loxilb_pd_kv_tier15_miss_reason_total"), crate::why::every_miss().count() as f64);
    assert_eq!(of("loxilb_pd_kv_tier15_fallthrough_total"), crate::why::every_miss().count() as f64);
}

#[test]
fn an_endpoint_is_connected_and_fresh_only_if_every_rank_is() {
    type Change = fn(&mut SourceReport);
    let cases: [(Change, f64, f64); 7] = [
        (|_| {}, 1.0, 1.0),
        (|s| s.ranks[1].connected = false, 0.0, 0.0),
        (|s| s.ranks[0].standing = "unproven", 1.0, 0.0),
        (|s| s.ranks[1].standing = "empty", 1.0, 0.0),
        (|s| s.ranks[1].standing = "complete", 1.0, 1.0),
        (|s| s.fence = Some(Fence::Drift), 1.0, 0.0),
        (|s| s.ranks.clear(), 0.0, 0.0),
    ];
    for (at, (change, connected, fresh)) in cases.into_iter().enumerate() {
        let (_, samples) = read(&page_with(|kv| change(&mut kv.sources[0])));
        let value = |name: &str| value(&samples, name, "service=\"2\",ep=\"0\"");
        assert_eq!(value("loxilb_kv_subscriber_connected"), connected, "case {at}");
        assert_eq!(value("loxilb_kv_inventory_fresh"), fresh, "case {at}");
    }
}

#[test]
fn without_an_event_core_its_families_are_empty_and_addresses_are_still_told() {
    let table = Table::next(&Table::default(), vec![exact_rule("a", 9001, &[8001], 1)], &mut 0, 0);
    let facts = Facts { table: &table, kv_endpoints: &endpoints(&table, None), ..nothing() };
    let (_, samples) = read(&render(&facts));
    let mut named: Vec<_> = samples.iter().map(|(name, ..)| name.as_str()).collect();
    named.retain(|name| name.contains("_kv_") || name.starts_with("loxilb_pd_ep"));
    named.retain(|name| !name.contains("_tier15_") && !name.contains("_zero_hit_"));
    assert_eq!(named, ["loxilb_pd_ep_info", "warmpath_kv_source_info"]);
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
    let parse = "shard=\"1\",stage=\"parse\"";
    assert_eq!(value("warmpath_stage_seconds_bucket", &format!("{parse},le=\"0.000001\"")), 0.0);
    assert_eq!(value("warmpath_stage_seconds_bucket", &format!("{parse},le=\"0.000002\"")), 2.0);
    assert_eq!(value("warmpath_stage_seconds_bucket", &format!("{parse},le=\"60\"")), 2.0);
    assert_eq!(value("warmpath_stage_seconds_count", parse), 3.0);
    assert_eq!(value("warmpath_stage_seconds_sum", parse), 70.000003);
}

#[test]
fn resident_memory_is_read_from_the_kernels_text() {
    assert_eq!(resident("Name:\twarmpath\nVmRSS:\t   12 kB\nThreads:\t1\n"), Some(12288));
    assert_eq!(resident("Name:\twarmpath\n"), None);
}
