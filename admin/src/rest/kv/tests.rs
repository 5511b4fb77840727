//! Each status and member of the KV side over real sockets, with an event core that says what it was given.

use super::*;
use crate::fake::disk::MemoryDisk;
use crate::fake::kv::{FakeKv, exact_kv, exact_rule, exact_table};
use crate::fake::{FakePlane, Running, exchange, outside_with, request};
use crate::gateway::KV_SEATS;
use crate::store::Store;
use std::net::TcpStream;

const INVENTORY: &str = "/netlox/v1/config/ai/kv/inventory";
const STATUS: &str = "/netlox/v1/config/ai/kv/status";
const REACQUIRE: &str = "/netlox/v1/config/ai/kv/reacquire";

fn serving(kv: &Arc<FakeKv>) -> Running {
    Running::serving(exact_table(), &FakePlane::new(), kv)
}

fn hold(kv: &FakeKv, source: u32, rank: u8, tier: Tier, keys: impl IntoIterator<Item = u64>) {
    kv.keys.lock().unwrap().insert((source, rank, tier), keys.into_iter().collect());
}

#[test]
fn an_inventory_is_all_ranks_gpu_blocks_unless_said_otherwise() {
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, [7, u64::MAX]);
    hold(&kv, 2, 1, Tier::Gpu, [9]);
    let gateway = serving(&kv);
    let expected = json!({
        "service_id": 1,
        "ep_idx": 0,
        "endpoint": "127.0.0.1:8001",
        "hash_algo": "sha256_sglang",
        "tier": "gpu",
        "fence": null,
        "findings": [],
        "ranks": [
            {"rank": 0, "connected": true, "standing": "complete", "reason": ""},
            {"rank": 1, "connected": true, "standing": "since", "reason": "joined late"},
        ],
        "blocks": [
            {"block_idx": 0, "hash_uint64": 7, "rank": 0},
            {"block_idx": 1, "hash_uint64": u64::MAX, "rank": 0},
            {"block_idx": 2, "hash_uint64": 9, "rank": 1},
        ],
        "total": 3,
    });
    let path = format!("{INVENTORY}?service_id=1&ep_idx=0");
    assert_eq!(gateway.tcp("GET", &path, ""), (200, expected.clone()));
    assert_eq!(gateway.unix("GET", &path, ""), (200, expected));
    let (_, also) = gateway.tcp("GET", &format!("{INVENTORY}?service_id=4&ep_idx=0"), "");
    assert_eq!((&also["service_id"], &also["total"]), (&json!(4), &json!(3)), "the same source");
}

#[test]
fn a_key_is_an_exact_json_integer() {
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, [18_446_744_073_709_551_557]);
    let gateway = serving(&kv);
    let path = format!("{INVENTORY}?service_id=1&ep_idx=0&rank=0");
    let answer =
        exchange(TcpStream::connect(gateway.address).unwrap(), &request("GET", &path, "127.0.0.1", ""));
    assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
    assert!(answer.contains(r#"{"block_idx":0,"hash_uint64":18446744073709551557,"rank":0}"#), "{answer}");
}

#[test]
fn an_endpoint_of_one_rank_says_no_rank_with_its_blocks() {
    let table = Table::next(&Table::default(), vec![exact_rule("one", 9001, &[8001], 1)], &mut 0, 0);
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, [5]);
    let gateway = Running::serving(table, &FakePlane::new(), &kv);
    let (status, answer) = gateway.tcp("GET", &format!("{INVENTORY}?service_id=1&ep_idx=0"), "");
    assert_eq!((status, &answer["blocks"]), (200, &json!([{"block_idx": 0, "hash_uint64": 5}])));
}

#[test]
fn a_fenced_endpoint_says_why_and_a_tier_and_a_rank_are_chosen() {
    let kv = exact_kv();
    hold(&kv, 3, 1, Tier::Host, [1, 2]);
    hold(&kv, 3, 1, Tier::Gpu, [1]);
    let gateway = serving(&kv);
    let ask =
        |tier: &str| gateway.tcp("GET", &format!("{INVENTORY}?service_id=1&ep_idx=1&rank=1&tier={tier}"), "");
    let (status, answer) = ask("host");
    assert_eq!((status, &answer["total"], &answer["tier"]), (200, &json!(2), &json!("host")));
    assert_eq!(answer["blocks"][1], json!({"block_idx": 1, "hash_uint64": 2, "rank": 1}));
    assert_eq!(answer["fence"], "ownership");
    assert_eq!(answer["findings"], json!(["another reader drains it; stop it and take the stream over"]));
    assert_eq!(
        answer["ranks"][1],
        json!({"rank": 1, "connected": false, "standing": "fenced", "reason": ""})
    );
    assert_eq!(ask("gpu").1["total"], 1);
    assert_eq!(ask("disk").1["blocks"], json!([]), "nothing is held there");
}

/// What came page by page: rank and key of each block, length and total of each page.
struct Walk {
    keys: Vec<(u64, u64)>,
    pages: Vec<(usize, u64)>,
}

/// All pages of service 1, endpoint 0.
fn walk(gateway: &Running, limit: usize) -> Walk {
    let (mut keys, mut pages, mut from) = (Vec::new(), Vec::new(), String::new());
    loop {
        let path = format!("{INVENTORY}?service_id=1&ep_idx=0&limit={limit}{from}");
        let (status, answer) = gateway.tcp("GET", &path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        let blocks = answer["blocks"].as_array().unwrap();
        pages.push((blocks.len(), answer["total"].as_u64().unwrap()));
        let key = |b: &Value| (b["rank"].as_u64().unwrap(), b["hash_uint64"].as_u64().unwrap());
        keys.extend(blocks.iter().map(key));
        match answer.get("next") {
            Some(next) => from = format!("&from={}", next.as_str().unwrap()),
            None => return Walk { keys, pages },
        }
    }
}

#[test]
fn pages_follow_each_other_over_the_ranks_and_leave_nothing_out() {
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, 0..10);
    hold(&kv, 2, 1, Tier::Gpu, 100..111);
    let expected: Vec<_> = (0..10).map(|k| (0, k)).chain((100..111).map(|k| (1, k))).collect();
    let gateway = serving(&kv);
    for limit in [1, 3, 7, 10, 11, 20, 21, 22, 100_000] {
        let Walk { keys, pages } = walk(&gateway, limit);
        assert_eq!(keys, expected, "limit {limit}");
        assert!(pages.iter().all(|(length, _)| *length <= limit), "{pages:?}");
        assert!(pages.len() <= 21_usize.div_ceil(limit) + 1, "limit {limit}: {pages:?}");
        assert!(pages.iter().all(|(_, total)| [20, 21].contains(total)), "{pages:?}");
    }
    assert_eq!(walk(&gateway, 3).pages[0], (3, 21), "10 counted, 11 reported");
}

#[test]
fn an_answer_takes_many_pages_of_the_event_core_and_not_endlessly_many() {
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, 0..25_000);
    let gateway = serving(&kv);
    let page = |limit: &str| {
        let path = format!("{INVENTORY}?service_id=1&ep_idx=0{limit}");
        let answer = gateway.tcp("GET", &path, "").1;
        (answer["blocks"].as_array().unwrap().len(), answer["next"].as_str().map(String::from))
    };
    assert_eq!(page("&limit=100000"), (25_000, None));
    assert_eq!(page(""), (10_000, Some("0:10000".into())), "by default");
    *kv.page.lock().unwrap() = Some(2);
    assert_eq!(page(""), (2 * PAGES_MAX, Some(format!("0:{}", 2 * PAGES_MAX))), "one that gives 2 at a time");
}

#[test]
fn a_bad_question_is_told_member_value_and_cure() {
    let gateway = serving(&exact_kv());
    let cases = [
        ("", 400, "missing_argument", "service_id", json!(null)),
        ("service_id=1", 400, "missing_argument", "ep_idx", json!(null)),
        ("service_id=x&ep_idx=0", 400, "bad_argument", "service_id", json!("x")),
        ("service_id=4294967296&ep_idx=0", 400, "bad_argument", "service_id", json!("4294967296")),
        ("service_id=1&ep_idx=-1", 400, "bad_argument", "ep_idx", json!("-1")),
        ("service_id=1&ep_idx=0&rank=2", 400, "bad_argument", "rank", json!("2")),
        ("service_id=1&ep_idx=0&tier=GPU", 400, "bad_argument", "tier", json!("GPU")),
        ("service_id=1&ep_idx=0&limit=0", 400, "bad_argument", "limit", json!("0")),
        ("service_id=1&ep_idx=0&limit=100001", 400, "bad_argument", "limit", json!("100001")),
        ("service_id=1&ep_idx=0&limit=all", 400, "bad_argument", "limit", json!("all")),
        ("service_id=1&ep_idx=0&from=5", 400, "bad_argument", "from", json!("5")),
        ("service_id=1&ep_idx=0&from=2:0", 400, "bad_argument", "from", json!("2:0")),
        ("service_id=1&ep_idx=0&rank=1&from=0:5", 400, "bad_argument", "from", json!("0:5")),
        ("service_id=9&ep_idx=0", 404, "no_such_service", "service_id", json!(9)),
        ("service_id=5&ep_idx=0", 404, "not_exact", "service_id", json!(5)),
        ("service_id=1&ep_idx=2", 404, "no_such_endpoint", "ep_idx", json!(2)),
    ];
    for (query, status, code, member, value) in cases {
        let (got, error) = gateway.tcp("GET", &format!("{INVENTORY}?{query}"), "");
        let said = (got, &error["reason_code"], &error["member"], &error["value"]);
        assert_eq!(said, (status, &json!(code), &json!(member), &value), "{query}");
        assert!(status == 404 || error["allowed"].is_string(), "{query}: {error}");
        assert!(error["result"].as_str().unwrap().len() > 20, "{error}");
    }
    let (status, error) = gateway.tcp("DELETE", INVENTORY, "");
    assert_eq!((status, &error["reason_code"]), (405, &json!("wrong_method")));
}

#[test]
fn an_event_core_that_does_not_answer_is_503() {
    let kv = exact_kv();
    let gateway = serving(&kv);
    let silent = |method, path: &str| {
        let (status, error) = gateway.tcp(method, path, "");
        (status, error["reason_code"].as_str().map(String::from))
    };
    let expected = (503, Some("event_core_silent".to_string()));
    let endpoint = "?service_id=1&ep_idx=1";
    kv.report.lock().unwrap().as_mut().unwrap().sources.pop();
    assert_eq!(silent("GET", &format!("{INVENTORY}{endpoint}")), expected, "a source it does not know yet");
    assert_eq!(silent("POST", &format!("{REACQUIRE}{endpoint}")), expected);
    assert_eq!(gateway.tcp("GET", STATUS, "").1["endpoints"][1]["ranks"], json!([]));
    *kv.report.lock().unwrap() = None;
    assert_eq!(silent("GET", STATUS), expected);
    assert_eq!(gateway.tcp("GET", "/netlox/v1/metrics", "").0, 200);
    let without = Running::start(&FakePlane::new());
    assert_eq!(without.tcp("GET", STATUS, "").0, 503, "a process without an event core");
}

#[test]
fn the_status_is_the_whole_report() {
    let gateway = serving(&exact_kv());
    let (status, answer) = gateway.tcp("GET", STATUS, "");
    assert_eq!(status, 200);
    assert_eq!(answer["index"], json!({"blocks": 31, "capacity": 1_000, "bytes": 65_536, "refused": 39}));
    assert_eq!((&answer["cpu_us"], &answer["proofs_dropped"]), (&json!(1_500_000), &json!(41)));
    let places: Vec<_> = answer["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| [&e["service_id"], &e["ep_idx"], &e["source"]].map(|n| n.as_u64().unwrap()))
        .collect();
    assert_eq!(places, [[1, 0, 2], [1, 1, 3], [4, 0, 2]], "a shared source comes with each of its services");
    let mut first = answer["endpoints"][0].clone();
    let (ranks, trust) = (first["ranks"].take(), first["trust"].take());
    let answers = json!({"agrees": 0, "less": 0, "more": 0, "recount": 0});
    let windows = json!({"judged": 0, "foreign": 0, "mixed": 0, "known": 0, "explained": 0});
    let unknown = json!({
        "state": "unknown", "judged": 0, "agreed": 0, "legs": [], "cures": [], "windows": windows,
        "answers": answers,
    });
    assert_eq!(trust, unknown);
    let fenced = &answer["endpoints"][1]["trust"]["legs"];
    assert_eq!(fenced, &json!(["lost_events", "second_reader"]));
    assert_eq!(
        first,
        json!({
            "service_id": 1, "rule": "chat", "model": "", "ep_idx": 0, "endpoint": "127.0.0.1:8001", "source": 2,
            "engine": "sglang", "hash_algo": "sha256_sglang", "block_size": 16, "capacity": 0,
            "transport": "dial", "version": "0.5.16", "fence": null, "findings": [],
            "trust": null, "ranks": null,
        })
    );
    assert_eq!(
        ranks[1],
        json!({
            "rank": 1, "connected": true, "standing": "since", "reason": "joined late", "sequence": 41,
            "last_event_ms": 1_700_000_000_000_u64 - 3_500, "last_event_age_us": 3_500_000,
            "blocks": {"gpu": 11, "host": 21, "disk": 31}, "reconnects": 2, "receive_errors": 4, "batches": 6,
            "stored": 8, "removed": 10, "cleared": 12, "schema_mismatch": 14, "undecodable": 16,
            "rank_mismatch": 18, "refused": 20, "waiting": 24, "replays": 22, "observed": 24, "learned": 26,
        })
    );
    let never = &answer["endpoints"][1]["ranks"][0];
    assert_eq!((&never["last_event_ms"], &never["sequence"]), (&json!(null), &json!(null)));
    assert_eq!(answer["endpoints"][1]["fence"], "ownership");
}

#[test]
fn only_a_drained_stream_is_taken_over() {
    let kv = exact_kv();
    let gateway = serving(&kv);
    let post = |query: &str| {
        let (status, answer) = gateway.unix("POST", &format!("{REACQUIRE}?{query}"), "");
        (status, answer["reason_code"].as_str().unwrap_or("").to_string())
    };
    assert_eq!(post("service_id=1&ep_idx=0"), (409, "not_drained".into()));
    assert_eq!(post("service_id=1&ep_idx=7"), (404, "no_such_endpoint".into()));
    assert_eq!(post("service_id=1"), (400, "missing_argument".into()));
    assert!(kv.reacquired.lock().unwrap().is_empty());
    assert_eq!(
        gateway.unix("POST", &format!("{REACQUIRE}?service_id=1&ep_idx=1"), ""),
        (200, json!({"result": "Success"}))
    );
    assert_eq!(*kv.reacquired.lock().unwrap(), [3]);
}

#[test]
fn a_gateway_that_goes_down_takes_no_stream_over() {
    let outside = outside_with(&FakePlane::new(), exact_kv());
    let mut gateway = Gateway::new(outside, Store::on(Box::new(MemoryDisk::default())), 0);
    gateway.table = Arc::new(exact_table());
    gateway.phase = DrainPhase::LameDuck;
    let query = vec![("service_id".into(), "1".into()), ("ep_idx".into(), "1".into())];
    let call = Call { query, ..Call::default() };
    assert!(matches!(reacquire(&gateway, &call), Err(Refusal::Draining)));
    assert!(inventory(&gateway, &call).is_ok(), "looking is no harm");
}

#[test]
fn a_slow_event_core_holds_up_those_who_ask_it_and_nobody_else() {
    let kv = exact_kv();
    hold(&kv, 2, 0, Tier::Gpu, [7]);
    let gateway = serving(&kv);
    kv.gate.close();
    let most = std::thread::scope(|scope| {
        let ask = || gateway.tcp("GET", &format!("{INVENTORY}?service_id=1&ep_idx=0&rank=0"), "").0;
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        kv.gate.wait_for(KV_SEATS);
        assert_eq!(gateway.tcp("GET", "/netlox/v1/status/ready", "").0, 200);
        assert_eq!(gateway.unix("GET", "/netlox/v1/config/loadbalancer/all", "").0, 200);
        assert!(asking.iter().all(|thread| !thread.is_finished()), "none was answered meanwhile");
        kv.gate.open();
        assert!(asking.into_iter().all(|thread| thread.join().unwrap() == 200));
        kv.gate.open()
    });
    assert_eq!(most, KV_SEATS, "the others waited for a seat");
}
