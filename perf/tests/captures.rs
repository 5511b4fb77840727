//! The simulated engines' answers beside captures of real ones (`tests/captures/`): member names,
//! nesting, status, media type, header set, metric names and labels. Values are not compared.

mod peer;

use std::collections::BTreeSet;

use peer::Peer;
use serde_json::Value;
use warmpath_perf::engine::{self, Config, Kind};

const VLLM: &str = include_str!("captures/vllm-0.32.0.json");
const VLLM_METRICS: &str = include_str!("captures/vllm-0.32.0-metrics.txt");
const LLAMACPP: &str = include_str!("captures/llamacpp-b11434.json");
const LLAMACPP_METRICS: &str = include_str!("captures/llamacpp-b11434-metrics.txt");

/// Filled on purpose, null in the capture: see `kinds/vllm.rs`.
const EXTRA: &str = ".usage.prompt_tokens_details.cached_tokens";

#[test]
fn vllm_answers_have_the_real_shape() {
    compare(Kind::Vllm, VLLM, |path, sim, real| assert_eq!(sim, real, "{path}"));
}

#[test]
fn llamacpp_answers_have_the_real_shape() {
    compare(Kind::Llamacpp, LLAMACPP, |path, sim, real| match path {
        "/props" => assert!(sim.is_subset(real), "{:?}", sim.difference(real)),
        _ => assert_eq!(sim, real, "{path}"),
    });
}

#[test]
fn metric_names_and_labels_are_real() {
    for (kind, real) in [(Kind::Vllm, VLLM_METRICS), (Kind::Llamacpp, LLAMACPP_METRICS)] {
        let engine = engine::start(Config { models: vec!["tiny".into()], ..Config::of(kind) }).unwrap();
        let text = Peer::connect(engine.addr).get("/metrics").text();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.len() > 8);
        for sample in samples {
            let (name, labels) = name_and_labels(sample);
            let known = real.lines().filter_map(|line| line.split_once(' ')).find(|(n, _)| *n == name);
            let (_, known) = known.unwrap_or_else(|| panic!("{name} is no metric of the real engine"));
            let known: BTreeSet<&str> = known.split(',').filter(|l| !l.is_empty()).collect();
            let subset = name == "vllm:cache_config_info";
            assert!(if subset { labels.is_subset(&known) } else { labels == known }, "{sample}");
        }
    }
}

fn name_and_labels(sample: &str) -> (&str, BTreeSet<&str>) {
    let Some((name, rest)) = sample.split_once('{') else {
        return (sample.split(' ').next().unwrap_or_default(), BTreeSet::new());
    };
    let labels = rest.split('}').next().unwrap_or_default();
    (name, labels.split(',').filter_map(|label| label.split('=').next()).collect())
}

/// Sends each captured request to a simulated engine and shows both answers' shapes to `check`.
fn compare(kind: Kind, capture: &str, check: impl Fn(&str, &BTreeSet<String>, &BTreeSet<String>)) {
    let capture: Value = serde_json::from_str(capture).expect("the capture is JSON");
    let engine =
        engine::start(Config { models: vec!["tiny".into()], ..Config::of(kind) }).expect("a free port");
    let mut peer = Peer::connect(engine.addr);
    for entry in capture["http"].as_array().expect("entries") {
        let path = entry["path"].as_str().expect("a path");
        let response = match entry["request"].is_null() {
            true => peer.get(path),
            false => peer.post(path, &entry["request"].to_string()),
        };
        assert_eq!(Value::from(response.status), entry["status"], "{path}");
        assert_eq!(response.header("content-type").unwrap_or(""), entry["content_type"], "{path}");
        for name in entry["headers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            // The capture's client asked for the close; Vary comes from a CORS default.
            let matters = !matches!(name, "connection" | "vary");
            assert!(!matters || response.header(name).is_some(), "{path} lacks {name}");
        }
        if entry["response"] == "" {
            assert_eq!(response.text(), "", "{path}");
            continue;
        }
        let (sim, real) = (shape(&response.json()), shape(&entry["response"]));
        check(path, &sim, &real);
    }
}

/// The dotted names of all members, array items as `[]`.
fn shape(value: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    walk(value, "", &mut names);
    names.remove(EXTRA);
    names
}

fn walk(value: &Value, at: &str, names: &mut BTreeSet<String>) {
    names.insert(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, v)| walk(v, &format!("{at}.{name}"), names))
        }
        Value::Array(items) => items.iter().for_each(|v| walk(v, &format!("{at}[]"), names)),
        _ => {}
    }
}
