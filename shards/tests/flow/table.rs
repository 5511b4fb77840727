//! The table of all ends: every selector and tier, every engine, streamed or not, by every failure, at one shard and at
//! four. Owns `ends.md`, which says in each cell what must come; `UPDATE=1` writes it anew, to be read before it is kept.
//!
//! In every cell there is one answer or one typed error, a request after it is served, and at the end nothing is charged,
//! held, open, or under way in an engine, and nobody broke a handshake.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::ledger::Ledger;
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::Shared;
use crate::sim::client::Came;
use crate::sim::scene::Scene;
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;

/// What happens, by its column.
const FAILURES: [(&str, &str); 8] = [
    ("refuses", "ok"),
    ("resets at the head", "reset-before"),
    ("resets in the body", "reset-mid"),
    ("400", "400"),
    ("500", "500"),
    ("stalls", "hang"),
    ("no HTTP", "garbage"),
    ("client leaves", "hang"),
];

/// How a plain pool chooses: its name, and the rule's arguments.
fn plain_ways() -> Vec<(&'static str, Value)> {
    let session = json!({"sel": 0, "session_header_name": "X-Conversation-ID"});
    vec![
        ("0 rr", json!({"sel": 0})),
        ("1 hash", json!({"sel": 1})),
        ("2 wrr", json!({"sel": 2})),
        ("3 persist", json!({"sel": 3})),
        ("4 lc", json!({"sel": 4})),
        ("8 chwbl", json!({"sel": 8})),
        ("9 gpuaware", json!({"sel": 9})),
        ("10 wrr-hash", json!({"sel": 10})),
        ("session", session),
    ]
}

/// Which leg of a row's requests fails, and how they are chosen.
struct Row {
    engine: &'static str,
    kind: Kind,
    way: &'static str,
    /// Whose failure it is.
    part: Part,
    arguments: Value,
}

fn rows() -> Vec<Row> {
    let kinds = [("vllm", Kind::Vllm), ("sglang", Kind::Sglang), ("trtllm", Kind::Trtllm)];
    let mut rows = Vec::new();
    for (engine, kind) in kinds.into_iter().chain([("llamacpp", Kind::Vllm)]) {
        for (way, mut arguments) in plain_ways() {
            arguments["kvEngineType"] = engine.into();
            arguments["first_byte_timeout_ms"] = 2_000.into();
            rows.push(Row { engine, kind, way, part: Part::Normal, arguments });
        }
    }
    for (engine, kind) in kinds {
        for way in ["tier 0 session", "tier 1 trie", "tier 2 load"] {
            for part in [Part::Encode, Part::Prefill, Part::Decode] {
                if part == Part::Encode && kind != Kind::Vllm {
                    continue;
                }
                let mut arguments = arguments(kind, way == "tier 1 trie");
                arguments["first_byte_timeout_ms"] = 2_000.into();
                rows.push(Row { engine, kind, way, part, arguments });
            }
        }
    }
    rows
}

impl Row {
    /// Two engines of each role that it has.
    fn engines(&self) -> Vec<(SocketAddr, Part)> {
        let parts: &[Part] = match self.part {
            Part::Normal => &[Part::Normal],
            Part::Encode => &[Part::Encode, Part::Prefill, Part::Decode],
            _ => &[Part::Prefill, Part::Decode],
        };
        parts.iter().flat_map(|part| (0..2).map(|number| (engine_at(*part, number), *part))).collect()
    }

    /// A request whose failing leg does `word`.
    fn ask(&self, word: &str, stream: bool) -> Ask {
        let at = |part: Part| if part == self.part { word.to_owned() } else { "ok".to_owned() };
        let wish = Wish {
            lead: "a beginning that all of them have ".repeat(30),
            stream,
            prefill: at(Part::Prefill),
            decode: at(Part::Decode),
            encode: at(Part::Encode),
            whole: if self.part == Part::Normal { word.to_owned() } else { String::new() },
            images: if self.part == Part::Encode { 2 } else { 0 },
            out: 40,
            state: 10,
            ..Wish::default()
        };
        let session = self.way.contains("session");
        let lines = if session { "X-Conversation-ID: one\r\n".into() } else { String::new() };
        Ask { wish, lines, ..Ask::default() }
    }

    /// One cell: what came, and which tier or selector decided.
    fn cell(&self, failure: (&str, &str), stream: bool, shards: usize) -> (String, &'static str) {
        let engines = self.engines();
        let at: Vec<SocketAddr> = engines.iter().map(|(at, _)| *at).collect();
        let ledger: Shared<Ledger> = Rc::default();
        let part_of = |at| engines.iter().find(|(own, _)| *own == at).expect("one of them").1;
        let mut scene = Scene::new(shards, &at, |at| Paired::new(self.kind, part_of(at), at, &ledger));
        scene.install(&self.arguments, endpoints(&engines));
        let good = || self.ask("ok", false);
        assert_eq!(scene.ask(0, good()), Came::Answer(200), "{failure:?}: the first");
        let shard = shards - 1;
        let mut ask = self.ask(failure.1, stream);
        if failure.0 == "refuses" {
            let served = scene.served();
            let own = |at: &usize| engines[*at].1 == self.part;
            let last = (0..engines.len()).filter(own).max_by_key(|at| served[*at]).expect("one of them");
            scene.refuses(last, true);
        } else if failure.0 == "client leaves" {
            ask.leave_within = Some(1_000_000_000);
        }
        let came = words(&scene.ask(shard, ask));
        let receipt = scene.report(shard).receipts.last().and_then(|receipt| receipt.reason);
        let decided = receipt.map_or("none", |reason| reason.word());
        // Whoever failed is not asked for long, and whoever did not serves.
        scene.pass(31_000_000_000);
        assert_eq!(scene.ask(0, good()), Came::Answer(200), "{failure:?}: the next");
        scene.assert_quiet();
        let ledger = ledger.borrow();
        assert_eq!(ledger.running, 0, "{failure:?}: legs run on");
        assert!(ledger.violations.is_empty(), "{failure:?}: {:?}", ledger.violations);
        (came, decided)
    }

    /// A line of the table.
    fn line(&self, out: &mut String) {
        let leg = match self.part {
            Part::Normal => "the engine",
            Part::Encode => "the encoder",
            Part::Prefill => "prefill",
            Part::Decode => "decode",
        };
        let mut cells = Vec::new();
        let mut decided = "none";
        for failure in FAILURES {
            let [whole, stream] = [false, true].map(|stream| {
                let (one, by) = self.cell(failure, stream, 1);
                let (four, _) = self.cell(failure, stream, 4);
                assert_eq!(one, four, "{} {} {leg} {failure:?}: shards differ", self.engine, self.way);
                decided = by;
                one
            });
            cells.push(if whole == stream { whole } else { format!("{whole}; stream: {stream}") });
        }
        let cells = cells.join(" | ");
        let _ = writeln!(out, "| {} | {} | {decided} | {leg} | {cells} |", self.engine, self.way);
    }
}

fn words(came: &Came) -> String {
    match came {
        Came::Answer(status) => status.to_string(),
        Came::Refusal(status, code) => format!("{status} `{code}`"),
        Came::ErrorEvent => "error event".into(),
        Came::Cut => "cut".into(),
        Came::Left => "left".into(),
        other => format!("{other:?}"),
    }
}

/// Cells that there can't be.
const NONE: &str = "
Not in the table, since there is no such cell:

- llama.cpp with prefill and decode apart: the rule is refused (`core/src/rule/body/shapes/kv.rs`).
- Tier 1 on plain pools: `pd_cache_aware_mode` needs `pd_disagg_mode`; the rule is refused.
- Encoders of TensorRT-LLM: the rule is refused. Of SGLang: prefill asks them, no leg of the gateway goes there.
- Tiers of decode but session and load: decode endpoints are never chosen by blocks or beginnings.

Tier 1.5 chooses an endpoint by an index and then goes the way of any other choice: `shards/tests/exact` and
`tests/e2e/exact/pairs.rs` have its ends.
";

#[test]
fn every_way_ends_as_the_table_says_whatever_fails() {
    let mut table = String::from(
        "# How requests end\n\nWritten by `shards/tests/flow/table.rs`, in the simulator, alike at one shard and at four. One \
         engine of two of the role fails\nthe second request as its column says; the first and the last are served by 200.\n\n",
    );
    let columns: Vec<&str> = FAILURES.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(table, "| engine | way | decided by | fails | {} |", columns.join(" | "));
    let _ = writeln!(table, "|{}", "---|".repeat(4 + columns.len()));
    rows().iter().for_each(|row| row.line(&mut table));
    table.push_str(NONE);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flow/ends.md");
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(path, &table).expect("the table is written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    for (line, (now, then)) in table.lines().zip(kept.lines()).enumerate() {
        assert_eq!(now, then, "line {} of ends.md", line + 1);
    }
    assert_eq!(table, kept);
}
