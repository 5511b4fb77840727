//! What the verbs print, and how endpoints are named, against a running admin thread.

use super::*;
use crate::ctl::tests::ctl;
use crate::fake::kv::{FakeKv, exact_kv, exact_table};
use crate::fake::{FakePlane, Running};
use serde_json::json;
use std::sync::Arc;
use warmpath_core::shared::Tier;

fn serving(kv: &Arc<FakeKv>) -> Running {
    Running::serving(exact_table(), &FakePlane::new(), kv)
}

fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn every_endpoint_and_rank_has_a_row_and_findings_follow() {
    let gateway = serving(&exact_kv());
    let text = ctl(&gateway, &["kv"]).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "index: 31 of 1000 blocks, 0 MiB, 39 refused");
    assert_eq!(
        cells(lines[1]),
        [
            "SERVICE",
            "RULE",
            "EP",
            "ENDPOINT",
            "RANK",
            "STANDING",
            "CONNECTED",
            "GPU",
            "HOST",
            "DISK",
            "LAST EVENT",
            "TRUST",
            "FENCE",
            "FINDINGS"
        ]
    );
    assert_eq!(
        cells(lines[3]),
        [
            "1",
            "chat",
            "0",
            "127.0.0.1:8001",
            "1",
            "since",
            "yes",
            "11",
            "21",
            "31",
            "3.50 s ago",
            "unknown",
            "-",
            "-"
        ]
    );
    assert_eq!(
        cells(lines[4]),
        [
            "1",
            "chat",
            "1",
            "127.0.0.1:8002",
            "0",
            "fenced",
            "no",
            "0",
            "0",
            "0",
            "never",
            "unknown",
            "ownership",
            "1"
        ]
    );
    assert_eq!(cells(lines[6])[..3], ["4", "also", "0"]);
    assert_eq!(
        lines[8..],
        [
            "broken: chat 127.0.0.1:8002: lost_events or second_reader",
            "cure of lost_events: give the engine a replay endpoint and larger buffers, and look at what stands \
             between it and the gateway",
            "cure of second_reader: end the other reader of its events, then `warmpath ctl kv reacquire`",
            "finding: chat 127.0.0.1:8002: another reader drains it; stop it and take the stream over"
        ]
    );
    let json: Value = serde_json::from_str(&ctl(&gateway, &["-o", "json", "kv"]).unwrap()).unwrap();
    assert_eq!(json["endpoints"].as_array().unwrap().len(), 3);
}

#[test]
fn an_endpoint_that_the_event_core_does_not_know_yet_has_a_row_of_dashes() {
    let kv = exact_kv();
    kv.report.lock().unwrap().as_mut().unwrap().sources.clear();
    let text = ctl(&serving(&kv), &["kv"]).unwrap();
    let row = text.lines().nth(2).unwrap();
    assert_eq!(cells(row)[4..], ["-", "-", "-", "-", "-", "-", "never", "unknown", "-", "-"]);
}

#[test]
fn an_inventory_is_asked_for_by_name_or_number() {
    let kv = exact_kv();
    kv.keys.lock().unwrap().insert((2, 0, Tier::Gpu), vec![255, u64::MAX, 1]);
    let gateway = serving(&kv);
    let text = ctl(&gateway, &["kv", "inventory", "chat", "127.0.0.1:8001", "--limit", "2"]).unwrap();
    assert_eq!(
        text,
        "127.0.0.1:8001: 2 of 14 gpu blocks, sha256_sglang\nrank 0: complete\nrank 1: since (joined late)\n\
         BLOCK  RANK  KEY\n0      0     00000000000000ff\n1      0     ffffffffffffffff\nmore: --from 0:2\n"
    );
    assert_eq!(ctl(&gateway, &["kv", "inventory", "1", "0", "--limit", "2"]).unwrap(), text);
    assert_eq!(ctl(&gateway, &["kv", "inventory", "chat", "0", "--limit", "2"]).unwrap(), text);
    let last = ctl(&gateway, &["kv", "inventory", "1", "0", "--rank", "0", "--from", "0:2"]).unwrap();
    assert!(last.ends_with("0      0     0000000000000001\n") && last.contains(": 1 of 3 gpu"), "{last}");
    let json = ctl(&gateway, &["-o", "json", "kv", "inventory", "also", "0"]).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["total"], &json["service_id"]), (&json!(3), &json!(4)));
}

#[test]
fn what_can_not_be_asked_is_said() {
    let gateway = serving(&exact_kv());
    let fails = |words: &[&str]| ctl(&gateway, words).unwrap_err();
    let sentence = fails(&["kv", "inventory", "chat", "10.9.9.9:1"]);
    assert!(sentence.contains("10.9.9.9:1") && sentence.contains("`warmpath ctl kv`"), "{sentence}");
    let sentence = fails(&["kv", "inventory", "9", "0"]);
    assert!(sentence.contains("refused (404)") && sentence.contains('9'), "{sentence}");
    let sentence = fails(&["kv", "inventory", "1", "0", "--tier", "tape"]);
    assert!(sentence.contains("tape") && sentence.contains("gpu, host or disk"), "{sentence}");
    let sentence = ctl(&Running::start(&FakePlane::new()), &["kv"]).unwrap_err();
    assert!(sentence.contains("refused (503)") && sentence.contains("event core"), "{sentence}");
}

#[test]
fn a_stream_is_taken_over_or_the_reason_told() {
    let kv = exact_kv();
    let gateway = serving(&kv);
    assert_eq!(
        ctl(&gateway, &["kv", "reacquire", "chat", "127.0.0.1:8002"]).unwrap(),
        "the stream of chat 127.0.0.1:8002 is taken over\n"
    );
    assert_eq!(*kv.reacquired.lock().unwrap(), [3]);
    let sentence = ctl(&gateway, &["kv", "reacquire", "also", "0"]).unwrap_err();
    assert!(sentence.contains("refused (409)") && sentence.contains("127.0.0.1:8001"), "{sentence}");
}

#[test]
fn ages_read_well() {
    let of = |us: u64| age(&json!(us));
    assert_eq!((of(0), of(1_500), of(59_000_000)), ("now".into(), "1.5 ms ago".into(), "59.00 s ago".into()));
    assert_eq!((of(60_000_000), of(7_200_000_000)), ("1 min ago".into(), "2 h ago".into()));
    assert_eq!(age(&json!(null)), "never");
}
