//! `events replay` against every recorded capture: the inventory it prints is what a naive reading of the
//! capture's decoded members gives. Owns that reading; must never use a crate of ours for it.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VECTORS: &str = "events/tests/vectors";

fn replay(file: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.args(["events", "replay"]).arg(file).args(flags).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(file: &Path, flags: &[&str]) -> Value {
    let done = replay(file, &[flags, &["--json"]].concat());
    assert_eq!(done.status.code(), Some(0), "{}: {}", file.display(), text(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("one object of JSON")
}

fn captures(end: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(VECTORS).expect("the vectors").map(|file| file.expect("a file").path());
    files.filter(|file| file.to_str().expect("text").ends_with(end)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Rank, medium, group.
type Place = (Option<u64>, String, u64);
/// Copies of each block, in each place.
type Held = BTreeMap<Place, BTreeMap<String, u64>>;
/// Line, kind, block.
type Odd = BTreeSet<(u64, String, String)>;

/// A member of an event, in an array by the capture's own list of names or, last, in a map.
fn member<'a>(event: &'a Value, fields: &'a Value, name: &str) -> &'a Value {
    let Some(array) = event.as_array() else { return &event[name] };
    let names = list(&fields[array[0].as_str().expect("a kind")]);
    let at = names.iter().position(|known| known == name);
    at.and_then(|at| array.get(at + 1)).unwrap_or(&Value::Null)
}

fn digits(hash: &Value, first: bool) -> String {
    if let Some(bytes) = hash["bytes"].as_str() {
        return if first { bytes[..16].into() } else { bytes[bytes.len() - 16..].into() };
    }
    let number = hash.as_u64().unwrap_or_else(|| hash.as_i64().expect("an integer") as u64);
    format!("{number:016x}")
}

/// One publisher's cache.
#[derive(Default)]
struct Naive {
    held: Held,
    odd: Odd,
}

impl Naive {
    fn event(&mut self, line: u64, rank: &Value, event: &Value, fields: &Value, first: bool) {
        let kind = if event.is_array() { &event[0] } else { &event["type"] };
        let medium = match member(event, fields, "medium").as_str() {
            None => "GPU",
            Some("CPU_PINNED") => "CPU",
            Some("DISK") => "STORAGE",
            Some(name) => name,
        };
        let group = member(event, fields, "group_idx").as_u64().unwrap_or(0);
        if kind == "AllBlocksCleared" {
            self.held.retain(|(of, ..), _| *of != rank.as_u64());
            return;
        }
        let blocks = self.held.entry((rank.as_u64(), medium.into(), group)).or_default();
        for hash in list(member(event, fields, "block_hashes")) {
            let hash = digits(hash, first);
            let copies = blocks.entry(hash.clone()).or_default();
            match kind.as_str() {
                Some("BlockStored") => {
                    if *copies > 0 {
                        self.odd.insert((line, "stored_twice".into(), hash));
                    }
                    *copies += 1;
                }
                Some("BlockRemoved") if *copies == 0 => {
                    self.odd.insert((line, "removed_not_held".into(), hash));
                }
                Some("BlockRemoved") => *copies -= 1,
                kind => panic!("{kind:?}"),
            }
        }
        blocks.retain(|_, copies| *copies > 0);
    }
}

/// Endpoint and topic, in the order in which they first speak.
fn read(file: &Path, first: bool) -> Vec<((Value, Value), Naive)> {
    let content = std::fs::read_to_string(file).expect("a capture");
    let lines: Vec<Value> = content.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut publishers: Vec<((Value, Value), Naive)> = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.get("payload_hex").is_some()) {
        let name = (line["endpoint"].clone(), line["topic"].clone());
        let at = publishers.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            publishers.push((name, Naive::default()));
            publishers.len() - 1
        });
        for event in list(&line["decoded"][1]) {
            let rank = &line["decoded"][2];
            publishers[at].1.event(index as u64 + 1, rank, event, &lines[0]["fields"], first);
        }
    }
    publishers
}

/// The printed inventory; keys must be ascending and as many as told.
fn printed(publisher: &Value) -> BTreeMap<Place, (u64, Vec<String>)> {
    let row = |row: &Value| {
        let keys: Vec<String> =
            list(&row["keys"]).iter().map(|key| key.as_str().expect("text").into()).collect();
        assert!(keys.is_sorted() && row["blocks"] == keys.len(), "{row}");
        let medium = row["medium"].as_str().expect("text").to_owned();
        let place = (row["rank"].as_u64(), medium, row["group"].as_u64().expect("a number"));
        (place, (row["copies"].as_u64().expect("a number"), keys))
    };
    list(&publisher["inventory"]).iter().map(row).collect()
}

fn expected(held: &Held) -> BTreeMap<Place, (u64, Vec<String>)> {
    let held = held.iter().filter(|(_, blocks)| !blocks.is_empty());
    held.map(|(place, blocks)| (place.clone(), (blocks.values().sum(), blocks.keys().cloned().collect())))
        .collect()
}

fn printed_odd(report: &Value, publisher: usize) -> Odd {
    let of = list(&report["anomalies"]).iter().filter(|anomaly| anomaly["publisher"] == publisher);
    of.flat_map(|anomaly| {
        let (line, kind) =
            (anomaly["line"].as_u64().expect("a line"), anomaly["kind"].as_str().expect("text"));
        list(&anomaly["keys"]).iter().map(move |key| (line, kind.into(), key.as_str().expect("text").into()))
    })
    .collect()
}

#[test]
fn every_capture_leaves_what_a_naive_reading_of_it_gives() {
    let files = captures(".jsonl");
    let (mut blocks, mut odd, mut publishers) = (0, 0, 0);
    // The kind decides which end of a byte string names a block, so each capture is read both ways.
    let both = files.iter().flat_map(|file| [(file, "vllm"), (file, "sglang")]);
    for (file, kind) in both {
        let report = report(file, &["--kind", kind]);
        let naive = read(file, kind == "sglang");
        assert_eq!(list(&report["publishers"]).len(), naive.len());
        for (at, ((endpoint, topic), naive)) in naive.iter().enumerate() {
            let publisher = &report["publishers"][at];
            assert_eq!((&publisher["endpoint"], &publisher["topic"]), (endpoint, topic));
            assert_eq!(publisher["standing"], "complete", "no capture has a gap");
            let held = expected(&naive.held);
            assert_eq!(printed(publisher), held, "{} {topic}", file.display());
            assert_eq!(printed_odd(&report, at), naive.odd, "{} {topic}", file.display());
            blocks += held.values().map(|(_, keys)| keys.len()).sum::<usize>();
            odd += naive.odd.len();
        }
        publishers += naive.len();
    }
    assert_eq!((files.len(), publishers), (8, 30));
    assert!(blocks > 100 && odd > 100, "{blocks} blocks, {odd} oddities");
}

#[test]
fn the_drained_example_leaves_what_a_naive_reading_of_it_gives() {
    let file = &captures("trtllm-events-example.json")[0];
    let example: Value = serde_json::from_slice(&std::fs::read(file).expect("a file")).expect("JSON");
    let mut level_of: BTreeMap<u64, u64> = BTreeMap::new();
    for event in list(&example["kv_cache_events"]) {
        let data = &event["data"];
        for block in list(&data["blocks"]) {
            let level = block["cache_level"].as_u64().expect("a level");
            level_of.insert(block["block_hash"].as_u64().expect("a hash"), level);
        }
        for hash in list(&data["block_hashes"]) {
            level_of.remove(&hash.as_u64().expect("a hash"));
        }
        if let Some(level) = data["cache_level"]["new_value"].as_u64() {
            level_of.insert(data["block_hash"].as_u64().expect("a hash"), level);
        }
    }
    assert!(level_of.values().all(|level| *level == 0) && !level_of.is_empty(), "{level_of:?}");
    let keys: Vec<String> = level_of.keys().map(|hash| format!("{hash:016x}")).collect();
    let report = report(file, &[]);
    let place = (Some(0), "GPU".to_owned(), 4096);
    let held = BTreeMap::from([(place, (keys.len() as u64, keys))]);
    assert_eq!(printed(&report["publishers"][0]), held);
    assert_eq!((&report["anomalies"], &report["publishers"][0]["last"]), (&json!([]), &json!(4)));
}

/// A file of this name with this content, for one test.
fn file(name: &str, content: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("a folder for temporary files");
    path
}

/// `[1.5, [[KIND, [hash], …]], 0]` of one block of one token, as a line of a capture.
fn line(seq: u64, kind: &str, hash: u8) -> String {
    let mut bytes = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x91, 0x95, 0xa0 | kind.len() as u8];
    bytes.extend(kind.bytes());
    match kind {
        "BlockStored" => bytes.extend([0x91, hash, 0xc0, 0x91, 1, 1, 0]),
        _ => bytes.extend([0x91, hash, 0xc0, 0xc0, 0xc0, 0]),
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"seq\": {seq}, \"payload_hex\": \"{hex}\"}}\n")
}

#[test]
fn whatever_is_not_in_order_is_told_and_fails_only_if_that_is_wanted() {
    let lines = [
        line(5, "BlockStored", 1),
        line(6, "BlockStored", 2),
        line(6, "BlockStored", 2),
        line(7, "BlockMoved", 9),
        line(10, "BlockStored", 3),
        "\n".into(),
        "{\"seq\": 11, \"payload_hex\": \"c1\"}\n".into(),
        line(12, "BlockStored", 4),
        line(3, "BlockStored", 5),
        line(4, "BlockRemoved", 6),
    ];
    let file = file("odd.jsonl", &lines.concat());
    let report = report(&file, &[]);
    let told: Vec<Value> =
        list(&report["anomalies"]).iter().map(|a| json!([a["line"], a["seq"], a["kind"]])).collect();
    let expected = [
        json!([3, 6, "repeated"]),
        json!([4, 7, "unknown_event"]),
        json!([5, 10, "gap"]),
        json!([7, 11, "undecodable"]),
        json!([9, 3, "regression"]),
        json!([10, 4, "removed_not_held"]),
    ];
    assert_eq!(told, expected);
    assert_eq!(report["anomalies"][2]["text"], "batches 8 to 9 are missing; what was known is cleared");
    let publisher = &report["publishers"][0];
    assert_eq!((&publisher["standing"], &publisher["since"]), (&json!("since"), &json!(3)));
    assert_eq!(publisher["inventory"][0]["keys"], json!(["0000000000000005"]), "the rest was cleared");

    let done = replay(&file, &["--strict", "--keys", "0"]);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(text(&done.stderr).lines().count(), 1, "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("6 not in order"), "{}", text(&done.stderr));
    let out = text(&done.stdout);
    assert!(out.contains("6 not in order") && out.contains("line 9  publisher topic \"\"  seq 3"), "{out}");
    assert!(!out.contains("\n    0000000000000005"), "--keys 0 prints no keys: {out}");
    let keys = text(&replay(&file, &["--keys", "1"]).stdout);
    assert!(keys.contains("\n    0000000000000005\n"), "{keys}");
}

#[test]
fn drained_answers_of_several_lines_are_followed_by_rank() {
    let event = |id: u64, rank: u64, data: Value| {
        let mut event = json!({"event_id": id, "attention_dp_rank": rank, "window_size": 8});
        event["data"] = data;
        event
    };
    let stored = |hash: u64| json!({"type": "stored", "parent_hash": null, "blocks": [{"block_hash": hash}]});
    let removed = |hash: u64| json!({"type": "removed", "block_hashes": [hash]});
    let created = json!({"type": "created", "num_blocks_per_cache_level": [9]});
    let lines = [
        json!([event(0, 0, created.clone()), event(0, 1, created), event(1, 0, stored(7))]),
        json!([event(2, 0, stored(7)), event(1, 1, stored(8)), event(2, 1, json!({"type": "later"}))]),
        json!([event(3, 0, removed(9)), event(5, 1, stored(9))]),
    ];
    let file = file("drained.jsonl", &lines.map(|line| line.to_string() + "\n").concat());
    let report = report(&file, &[]);
    let told: Vec<Value> = list(&report["anomalies"])
        .iter()
        .map(|a| json!([a["line"], a["publisher"], a["seq"], a["kind"]]))
        .collect();
    let expected = [
        json!([2, 0, 2, "stored_twice"]),
        json!([2, 1, 2, "unknown_event"]),
        json!([3, 0, 3, "removed_not_held"]),
        json!([3, 1, 5, "gap"]),
    ];
    assert_eq!(told, expected);
    let standings: Vec<&Value> = list(&report["publishers"]).iter().map(|p| &p["standing"]).collect();
    assert_eq!(standings, ["complete", "fenced"]);
    assert_eq!(report["publishers"][0]["inventory"][0]["keys"], json!(["0000000000000007"]));
    assert_eq!(report["publishers"][1]["inventory"], json!([]));
}

#[test]
fn what_is_no_capture_is_refused_with_its_line() {
    let bad = file("bad.jsonl", &(line(0, "BlockStored", 1) + "{\"seq\": 1, \"payload_hex\": \"9x\"}\n"));
    let none = file("none.jsonl", "{\"note\": 1}\n");
    for (file, part) in [
        (&bad, "bad.jsonl, line 2: payload_hex has no hexadecimal digit at 2"),
        (&none, "none.jsonl has no batch"),
        (&PathBuf::from("no-such.jsonl"), "no-such.jsonl: "),
    ] {
        let failed = replay(file, &["--json"]);
        let told = text(&failed.stderr);
        assert_eq!((failed.status.code(), text(&failed.stdout).as_str()), (Some(1), ""), "{told}");
        assert!(told.contains(part) && told.lines().count() == 1, "{told}");
    }
}
