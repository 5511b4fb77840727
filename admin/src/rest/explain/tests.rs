//! Statuses and members over real sockets, with real decisions behind them.

use super::*;
use crate::fake::exact::{candidate, decided, missed, receipt, spilled, two_decisions};
use crate::fake::kv::{FakeKv, exact_rule, exact_table};
use crate::fake::{FakePlane, Running};
use std::sync::Arc;
use warmpath_core::receipt::Outcome as Ended;

const PATH: &str = "/netlox/v1/config/ai/explain";

fn serving(table: Table, plane: &Arc<FakePlane>) -> Running {
    Running::serving(table, plane, &Arc::new(FakeKv::default()))
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["decisions"].as_array().unwrap().iter().map(|d| d["id"].as_str().unwrap()).collect()
}

/// The one decision that a gateway which serves `table` tells of `receipt`.
fn told(table: Table, receipt: Receipt) -> Value {
    let id = receipt.id.clone();
    let plane = FakePlane::new();
    plane.reports.lock().unwrap()[0].receipts = vec![receipt];
    let (status, answer) = serving(table, &plane).tcp("GET", &format!("{PATH}?id={id}"), "");
    assert_eq!((status, answer["decisions"].as_array().unwrap().len()), (200, 1));
    answer["decisions"][0].clone()
}

#[test]
fn decisions_come_newest_first_and_what_no_service_took_only_by_its_id() {
    let gateway = serving(exact_table(), &two_decisions());
    let (status, all) = gateway.tcp("GET", PATH, "");
    assert_eq!((status, ids(&all)), (200, vec!["missed", "spilled"]));
    assert_eq!(all["cursor"], 50_000_000_000_u64);
    assert_eq!(ids(&gateway.tcp("GET", &format!("{PATH}?limit=1"), "").1), ["missed"]);
    let later = gateway.tcp("GET", &format!("{PATH}?since=40000000000"), "").1;
    assert_eq!(ids(&later), ["missed"]);
    let none = gateway.tcp("GET", &format!("{PATH}?since=50000000000"), "").1;
    assert_eq!((ids(&none).len(), &none["cursor"]), (0, &json!(50_000_000_000_u64)));
    let lost = gateway.tcp("GET", &format!("{PATH}?id=lost"), "").1["decisions"][0].clone();
    assert_eq!((&lost["status"], &lost["reason"], &lost["rule"]), (&json!(404), &Value::Null, &Value::Null));
}

#[test]
fn an_unknown_id_is_told_what_is_kept_and_a_bad_limit_is_refused() {
    let gateway = serving(exact_table(), &two_decisions());
    let (status, error) = gateway.tcp("GET", &format!("{PATH}?id=nobody"), "");
    assert_eq!((status, &error["reason_code"]), (404, &json!("no_such_request")));
    assert_eq!((&error["member"], &error["value"]), (&json!("id"), &json!("nobody")));
    assert!(error["result"].as_str().unwrap().contains("each shard keeps its last 256"), "{error}");
    let (status, error) = gateway.tcp("GET", &format!("{PATH}?limit=some"), "");
    assert_eq!((status, &error["member"]), (400, &json!("limit")));
}

#[test]
fn a_chosen_endpoint_is_told_with_its_rivals_and_who_was_passed_over() {
    let told = told(exact_table(), spilled());
    let mut head = told.clone();
    head["exact"] = Value::Null;
    assert_eq!(
        head,
        json!({
            "at": 40_000_000_000_u64, "time_ms": 1_700_000_000_000_u64 - 20_000, "age_us": 20_000_000, "shard": 0,
            "id": "spilled", "service_id": 1, "rule": "chat", "model": "m", "endpoint": "127.0.0.1:8001",
            "pair": null, "rank": 1, "tier": "tier15", "reason": "exact_spill", "why": why::selected(
                warmpath_core::decide::Reason::ExactSpill
            ), "status": 200, "outcome": "completed", "exact": null,
        })
    );
    let rival = |index: u16, endpoint: &str, rank: u8, held: u32, load: u32, cap: u32| {
        json!({
            "ep_idx": index, "endpoint": endpoint, "rank": rank,
            "blocks": {"gpu": held, "host": held + 2, "disk": held + 2}, "promised": held + 3,
            "load": load, "cap": cap, "untrusted": false, "unproven": null,
        })
    };
    let mut exact = told["exact"].clone();
    let candidates = exact["candidates"].take();
    assert_eq!(
        candidates[0],
        rival(0, "127.0.0.1:8001", 1, 12, 1, candidates[0]["cap"].as_u64().unwrap() as u32)
    );
    assert_eq!(candidates[1]["endpoint"], "127.0.0.1:8002");
    assert!(candidates[1]["load"].as_u64() >= candidates[1]["cap"].as_u64(), "{candidates}");
    assert_eq!(
        exact,
        json!({
            "prompt_tokens": 650, "prompt_blocks": 40, "overlap_blocks": 12, "promised_blocks": 15,
            "predicted_tokens": 192, "cached_tokens": 192, "finding": "agrees", "missed": null, "missed_why": null,
            "passed_over": {
                "ep_idx": 1, "endpoint": "127.0.0.1:8002", "why": "it had as much load as it may carry",
            },
            "refused": 0, "candidate_count": 3, "candidates": null,
        })
    );
}

#[test]
fn a_better_place_that_was_lost_to_others_is_told() {
    let explanation = decided(&[candidate(0, 0, 20, 1), candidate(1, 0, 12, 1)], 1);
    let exact = told(exact_table(), receipt("raced", 1, explanation))["exact"].clone();
    assert_eq!((&exact["refused"], &exact["overlap_blocks"]), (&json!(1), &json!(12)));
    assert_eq!(exact["passed_over"]["endpoint"], "127.0.0.1:8001");
    assert_eq!(exact["passed_over"]["why"], "other requests took its last room first");
}

#[test]
fn a_miss_is_told_with_cause_and_cure_beside_what_the_selector_did() {
    let told = told(exact_table(), missed());
    assert_eq!((&told["tier"], &told["reason"]), (&json!("tier2"), &json!("least_load")));
    let exact = &told["exact"];
    assert_eq!(exact["missed"], "no_signal");
    assert_eq!(exact["missed_why"], "no endpoint has told of any block yet; see `warmpath ctl kv`");
    assert_eq!((&exact["overlap_blocks"], &exact["predicted_tokens"]), (&Value::Null, &Value::Null));
    assert_eq!((&exact["candidates"], &exact["passed_over"]), (&json!([]), &Value::Null));
}

fn table_over(ports: &[u16]) -> Table {
    Table::next(&Table::default(), vec![exact_rule("chat", 9001, ports, 2)], &mut 0, 0)
}

fn names(told: &Value) -> Vec<&str> {
    let candidates = told["exact"]["candidates"].as_array().unwrap();
    candidates.iter().map(|c| c["endpoint"].as_str().unwrap()).collect()
}

#[test]
fn an_index_that_is_no_more_or_means_another_endpoint_now_is_no_address() {
    assert_eq!(names(&told(table_over(&[8001]), spilled()))[..2], ["127.0.0.1:8001", "#1"]);
    let replaced = told(table_over(&[8009, 8002]), spilled());
    assert_eq!(names(&replaced)[..2], ["127.0.0.1:8001", "#1"], "8002 may not be who it was");
    assert_eq!(replaced["exact"]["passed_over"]["endpoint"], "#1");
    let gone = told(Table::default(), spilled());
    assert_eq!((names(&gone)[1], &gone["rule"]), ("#1", &Value::Null));
}

#[test]
fn a_long_id_is_found_by_the_part_that_is_kept() {
    let long = "x".repeat(ID_MAX);
    let kept = Receipt { id: long.clone(), outcome: Ended::ClientLeft, ..missed() };
    assert!(is_wanted(&kept, Some(&format!("{long}yz")), 0));
    assert!(!is_wanted(&kept, Some(&long[1..]), 0));
    assert!(!is_wanted(&missed(), Some("missed-2"), 0));
}

#[test]
fn what_was_not_counted_is_not_a_number() {
    let mut receipt = missed();
    receipt.exact = receipt.exact.map(|exact| ExactReceipt { prompt_tokens: 0, ..exact });
    let exact = told(exact_table(), receipt)["exact"].clone();
    assert_eq!((&exact["prompt_tokens"], &exact["prompt_blocks"]), (&Value::Null, &Value::Null));
}
