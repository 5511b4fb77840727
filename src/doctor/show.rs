//! Reports as a table for people or as JSON for programs. Owns their layout; must never decide what a row means.

use super::row::{Leg, Report, Row, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;

/// Columns of a line of text.
const WIDTH: usize = 118;
/// Where the third column begins: two columns of words with a blank behind each.
const INDENT: usize = 23;

/// A table for each report.
pub fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let _ = writeln!(out, "{} ({}, rule {})", report.endpoint, report.kind, report.rule);
        for row in &report.rows {
            line(&mut out, row);
        }
        wrapped(&mut out, "  ", &sentence(report));
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

/// What it comes to.
fn sentence(report: &Report) -> String {
    let words = |legs: Vec<&Row>| legs.iter().map(|row| row.leg.word()).collect::<Vec<_>>().join(", ");
    let failing = words(report.rows.iter().filter(|row| row.is_in_the_way()).collect());
    let open = words(report.rows.iter().filter(|row| row.verdict == Verdict::NotRun).collect());
    match (failing.is_empty(), open.is_empty()) {
        (false, _) => format!("exact routing would not work: {failing}"),
        (true, false) if is_text_open(report) => {
            format!("exact routing works for prompts of token ids; not tried: {open}")
        }
        (true, false) => format!("exact routing works; not tried: {open}"),
        (true, true) => "exact routing works".into(),
    }
}

/// Whether it was not tried what becomes of text.
fn is_text_open(report: &Report) -> bool {
    let is_text = |row: &&Row| matches!(row.leg, Leg::Tokenizer | Leg::Template);
    report.rows.iter().filter(is_text).any(|row| row.verdict == Verdict::NotRun)
}

fn line(out: &mut String, row: &Row) {
    let head = format!("  {:<10} {:<9} ", row.leg.word(), row.verdict.word());
    wrapped(out, &head, &row.seen);
    for (side, cure) in [("engine", &row.engine), ("gateway", &row.rule)] {
        if let (Some(cure), true) = (cure, row.verdict != Verdict::Equal) {
            wrapped(out, &format!("{:INDENT$}", ""), &format!("{side}: {cure}"));
        }
    }
}

/// `head` and then `text`, whose further lines begin under its first.
fn wrapped(out: &mut String, head: &str, text: &str) {
    let (mut line, mut empty) = (head.to_owned(), true);
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            (line, empty) = (" ".repeat(INDENT), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The same as one JSON object.
pub fn json(reports: &[Report]) -> Value {
    let row = |row: &Row| {
        json!({
            "leg": row.leg.word(), "verdict": row.verdict.word(), "seen": row.seen,
            "engine": row.engine, "gateway": row.rule, "in_the_way": row.is_in_the_way(),
        })
    };
    let report = |report: &Report| {
        json!({
            "endpoint": report.endpoint, "kind": report.kind, "rule": report.rule,
            "exact_routing_works": report.in_the_way().next().is_none(),
            "legs": report.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    json!({"endpoints": reports.iter().map(report).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::row::Leg;

    fn report(rows: Vec<Row>) -> Report {
        let (kind, is_by_tokens) = ("vllm", false);
        Report { endpoint: "a:1".into(), kind, rule: "r".into(), is_by_tokens, family: None, rows }
    }

    #[test]
    fn long_sentences_are_wrapped_under_their_first_word_and_cures_stand_below() {
        let row =
            Row::not_equal(Leg::BlockSize, "word ".repeat(40)).engine("--block-size 16").rule("kvBlockSize");
        let table = table(&[report(vec![row])]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "a:1 (vllm, rule r)");
        assert!(lines[1].starts_with("  block_size not_equal word word"), "{table}");
        assert!(lines[2].starts_with(&format!("{:INDENT$}word", "")), "{table}");
        let end = "engine: --block-size 16\n                       gateway: kvBlockSize\n  \
                   exact routing would not work: block_size";
        assert!(table.ends_with(end), "{table}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
        let open = |leg| super::table(&[report(vec![Row::equal(Leg::Root, "0"), Row::not_run(leg, "why")])]);
        assert!(open(Leg::Salt).ends_with("exact routing works; not tried: salt"));
        assert!(open(Leg::Template).ends_with("works for prompts of token ids; not tried: template"));
    }
}
