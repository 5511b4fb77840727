//! What the verb prints, against a running admin thread.

use super::*;
use crate::ctl::tests::ctl;
use crate::fake::exact::{missed, spilled, two_decisions};
use crate::fake::kv::{FakeKv, exact_rule, exact_table};
use crate::fake::{FakePlane, Running};
use serde_json::json;
use std::sync::Arc;
use warmpath_core::table::Table;

fn serving(table: Table, plane: &Arc<FakePlane>) -> Running {
    Running::serving(table, plane, &Arc::new(FakeKv::default()))
}

fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_last_decisions_have_a_line_each_newest_first() {
    let gateway = serving(exact_table(), &two_decisions());
    let text = ctl(&gateway, &["explain"]).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[0], COLUMNS.map(|(head, _)| head));
    assert_eq!(
        lines[1],
        [
            "10.00 s ago",
            "missed",
            "chat",
            "m",
            "127.0.0.1:8002",
            "-",
            "tier2",
            "least_load",
            "650",
            "-",
            "-",
            "no_signal"
        ]
    );
    assert_eq!(
        lines[2],
        [
            "20.00 s ago",
            "spilled",
            "chat",
            "m",
            "127.0.0.1:8001",
            "1",
            "tier15",
            "exact_spill",
            "650",
            "12/40",
            "192",
            "-"
        ]
    );
    assert_eq!(ctl(&gateway, &["explain", "-n", "1"]).unwrap().lines().count(), 2);
    let json: Value = serde_json::from_str(&ctl(&gateway, &["-o", "json", "explain"]).unwrap()).unwrap();
    assert_eq!(json["decisions"].as_array().unwrap().len(), 2);
}

#[test]
fn one_id_is_told_with_its_candidates_and_who_was_passed_over() {
    let gateway = serving(exact_table(), &two_decisions());
    let text = ctl(&gateway, &["explain", "spilled"]).unwrap();
    for line in [
        "spilled, 20.00 s ago\n  rule chat, model m, status 200, completed\n",
        "  127.0.0.1:8001 rank 1, tier15 by exact_spill: an endpoint that holds more has ",
        "  prompt: 650 tokens, 40 blocks; 12 blocks held, 15 held or on their way, 192 tokens predicted ",
        "  passed over: 127.0.0.1:8002: it had as much load as it may carry\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let rows: Vec<Vec<&str>> = text.lines().skip_while(|l| !l.contains("CANDIDATE")).map(cells).collect();
    assert_eq!(rows[0], ["CANDIDATE", "RANK", "GPU", "HOST", "DISK", "PROMISED", "LOAD", "CAP"]);
    assert_eq!(
        (rows[1][..7].to_vec(), rows[1][8]),
        (vec!["127.0.0.1:8001", "1", "12", "14", "14", "15", "1"], "chosen")
    );
    assert_eq!((rows[2][0], rows[2][6], rows[2][8]), ("127.0.0.1:8002", "30", "passed over"));
}

#[test]
fn a_miss_is_told_with_its_sentence_and_wide_tells_all_so() {
    let gateway = serving(exact_table(), &two_decisions());
    let text = ctl(&gateway, &["explain", "--wide"]).unwrap();
    assert!(
        text.contains("  missed: no_signal: no endpoint has told of any block yet; see `warmpath ctl kv`\n")
    );
    assert!(text.contains("tier2 by least_load: this endpoint had the fewest requests in flight\n"));
    assert_eq!(text.matches("\n\n").count(), 1, "one empty line between two: {text}");
    assert!(text.find("missed,") < text.find("spilled,"));
}

#[test]
fn what_no_service_took_was_given_to_no_endpoint() {
    let gateway = serving(exact_table(), &two_decisions());
    let text = ctl(&gateway, &["explain", "lost"]).unwrap();
    assert_eq!(
        text,
        "lost, 15.00 s ago\n  rule -, model m, status 404, answered\n  no endpoint was chosen\n"
    );
}

#[test]
fn an_unknown_id_is_refused_with_what_is_kept() {
    let gateway = serving(exact_table(), &two_decisions());
    let sentence = ctl(&gateway, &["explain", "nobody"]).unwrap_err();
    assert!(sentence.contains("\"nobody\"") && sentence.contains("last 256"), "{sentence}");
}

#[test]
fn an_endpoint_or_rule_that_vanished_is_a_number() {
    let plane = two_decisions();
    let rules = vec![exact_rule("chat", 9001, &[8001], 2)];
    let gateway = serving(Table::next(&Table::default(), rules, &mut 0, 0), &plane);
    let text = ctl(&gateway, &["explain", "spilled"]).unwrap();
    assert!(text.contains("passed over: #1: it had "), "{text}");
    drop(gateway);
    let text = ctl(&serving(Table::default(), &plane), &["explain"]).unwrap();
    assert_eq!(cells(text.lines().nth(1).unwrap())[2], "#1");
}

#[test]
fn what_comes_is_new_once_and_printed_oldest_first() {
    let mut follow = Follow::new(&STREAM, 5);
    assert_eq!(follow.path(), "/netlox/v1/config/ai/explain?limit=5");
    let [old, new] = [spilled(), missed()].map(|r| json!({"at": r.at, "shard": 0, "id": r.id}));
    let answer = json!({"decisions": [new, old], "cursor": 50_000_000_000_u64});
    let fresh = follow.fresh(&answer);
    assert_eq!(fresh.iter().map(|r| r["id"].as_str().unwrap()).collect::<Vec<_>>(), ["spilled", "missed"]);
    assert_eq!(follow.path(), "/netlox/v1/config/ai/explain?since=49000000000&limit=1000");
    assert_eq!(follow.fresh(&json!({"decisions": [new], "cursor": 50_000_000_000_u64})).len(), 0);
}
