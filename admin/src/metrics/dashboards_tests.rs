//! Dashboards and alerts against what is served: every metric that they name is a family, every label is one of its own.

use super::families;
use serde_json::Value;
use std::collections::BTreeSet;

const BOARDS: [&str; 2] =
    [include_str!("../../dashboards/overview.json"), include_str!("../../dashboards/kv.json")];
const ALERTS: &str = include_str!("../../dashboards/alerts.yaml");

/// Words of PromQL that are neither metrics nor labels.
const LANGUAGE: [&str; 6] = ["sum", "by", "rate", "histogram_quantile", "and", "or"];

/// Metrics of an expression, with all labels that it names.
#[derive(Debug, Default, PartialEq)]
struct Named {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

/// Reads an expression word by word: a word before `{`, or with a gateway's prefix, is a metric; words in braces before
/// an operator and in the parentheses of `by` are labels; numbers, durations and texts are none.
fn named(expression: &str) -> Named {
    let plain: String = expression.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
    let (mut found, mut word, mut in_braces, mut after_by) = (Named::default(), String::new(), false, false);
    let (mut in_by, mut in_range) = (false, false);
    for letter in plain.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic()) && !in_range;
        let done = std::mem::take(&mut word);
        if is_name && (in_braces || in_by) {
            found.labels.insert(done);
        } else if is_name && !LANGUAGE.contains(&done.as_str()) {
            found.metrics.insert(done);
        } else if is_name {
            after_by = done == "by";
        }
        match letter {
            '{' => in_braces = true,
            '}' => in_braces = false,
            '[' => in_range = true,
            ']' => in_range = false,
            '(' => (in_by, after_by) = (after_by, false),
            ')' => in_by = false,
            _ => {}
        }
    }
    found
}

/// Names between `{{` and `}}`, as legends and annotations have them.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let inside = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    inside.map(|name| name.trim().trim_start_matches("$labels."))
}

/// What is wrong with an expression and the texts beside it.
fn fault(expression: &str, beside: &str) -> Option<String> {
    let named = named(expression);
    let mut labels = BTreeSet::from(["le"]);
    for metric in &named.metrics {
        let family = families().find(|family| {
            let suffix = metric.strip_prefix(family.name);
            let parts = ["_bucket", "_sum", "_count"];
            suffix.is_some_and(
                |rest| if family.of.is_histogram() { parts.contains(&rest) } else { rest.is_empty() },
            )
        });
        let Some(family) = family else { return Some(format!("{metric} is not served: {expression}")) };
        labels.extend(family.of.labels());
    }
    if named.metrics.is_empty() {
        return Some(format!("no metric in {expression}"));
    }
    let used = named.labels.iter().map(String::as_str).chain(placeholders(beside));
    let foreign: Vec<_> = used.filter(|label| !labels.contains(label)).collect();
    (!foreign.is_empty()).then(|| format!("{foreign:?} are no labels of {:?}", named.metrics))
}

#[test]
fn dashboards_name_what_is_served() {
    for board in BOARDS {
        let board: Value = serde_json::from_str(board).expect("JSON");
        let panels = board["panels"].as_array().expect("panels");
        assert!(panels.len() >= 10);
        for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
            let text = |member: &str| target[member].as_str().expect("a text");
            assert_eq!(fault(text("expr"), text("legendFormat")), None);
        }
    }
}

#[test]
fn alerts_name_what_is_served() {
    let expressions = ALERTS.split("- alert: ").skip(1).map(|alert| {
        let line = alert.lines().find_map(|line| line.trim().strip_prefix("expr: '")).expect("an expression");
        (line.strip_suffix('\'').expect("its end"), alert.split_once("annotations:").expect("annotations").1)
    });
    let expressions: Vec<_> = expressions.collect();
    assert!(expressions.len() >= 10);
    for (expression, beside) in expressions {
        assert_eq!(fault(expression, beside), None);
        assert!(beside.contains("summary: ") && beside.contains("cure: "), "{beside}");
    }
}

#[test]
fn what_is_not_served_is_found_out() {
    let named = named(r#"sum by (rule, le) (rate(warmpath_a_total{b="c}d",e!~"f"}[5m])) > 0.5 * warmpath_g"#);
    let set = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(
        named,
        Named { metrics: set(&["warmpath_a_total", "warmpath_g"]), labels: set(&["rule", "le", "b", "e"]) }
    );
    for (expression, beside) in [
        ("warmpath_never_total", ""),
        ("loxilb_proxy_http_ttfb_seconds", ""),
        ("warmpath_generation{rule=\"a\"}", ""),
        ("sum by (rule) (warmpath_generation)", ""),
        ("warmpath_generation", "{{ $labels.rule }}"),
        ("0 > 1", ""),
    ] {
        assert!(fault(expression, beside).is_some(), "{expression} {beside}");
    }
}
