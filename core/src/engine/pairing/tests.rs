//! The dialects beside a full parser: an edit by range must be the same edit done on the parsed body. Owns random
//! bodies, and what every engine's tests ask; what an engine says is in its file below.

mod sglang;
mod trtllm;
mod vllm;

use super::*;
use crate::engine::Engine;
use proptest::prelude::*;
use serde_json::{Map, Value as Tree, json};

/// Settled terms with one room.
fn terms(room: u64) -> PairTerms<'static> {
    PairTerms {
        encoded: b"",
        rooms: Rooms::draw(room, Need::ONE, None),
        bootstrap: "10.0.0.7:0".parse().expect("an address"),
        connector: Connector::Answered,
    }
}

fn peeked(body: &str) -> Members {
    let mut members = Members::new();
    peek(body.as_bytes(), &mut members, JsonLimits::default())
        .unwrap_or_else(|fault| panic!("{fault}: {body}"));
    members
}

fn tree(body: &[u8]) -> Tree {
    serde_json::from_slice(body).unwrap_or_else(|fault| panic!("{fault}: {}", String::from_utf8_lossy(body)))
}

fn pairing(engine: Engine) -> &'static Pairing {
    engine.pairing().expect("an engine with a pair")
}

fn admitted(engine: Engine, body: &str) -> Result<Need, Unpairable> {
    pairing(engine).admit(&Body { bytes: body.as_bytes(), members: &peeked(body) })
}

fn prefill_of(engine: Engine, body: &str, terms: &PairTerms<'_>) -> String {
    let mut out = Vec::new();
    pairing(engine).prefill_body(&Body { bytes: body.as_bytes(), members: &peeked(body) }, terms, &mut out);
    String::from_utf8(out).expect("text")
}

fn decode_of(engine: Engine, body: &str, terms: &PairTerms<'_>, answer: Option<&str>) -> String {
    let mut out = Vec::new();
    let given = answer.map(|answer| match pairing(engine).read_prefill(200, answer.as_bytes(), terms) {
        PrefillEnd::Ready(handed) => Given { answer: answer.as_bytes(), handed },
        other => panic!("{other:?}: {answer}"),
    });
    let members = peeked(body);
    pairing(engine).decode_body(&Body { bytes: body.as_bytes(), members: &members }, terms, given, &mut out);
    String::from_utf8(out).expect("text")
}

/// Names that some dialect edits, a nested or an escaped one among them.
const NAMES: [&str; 17] = [
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "stream",
    "stream_options",
    "kv_transfer_params",
    "disaggregated_params",
    "prompt_token_ids",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "routed_dp_rank",
    "x",
    "",
];

/// A value, whose strings and nested names look like members.
fn value() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::from),
        any::<i32>().prop_map(Tree::from),
        (0..4u64).prop_map(Tree::from),
        "[a-z\"\\\\\u{e9}\u{1f600}\n]{0,6}".prop_map(Tree::from),
        Just(Tree::from(r#"","max_tokens":7,"kv_transfer_params":{"a":1},"x":""#)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..4).prop_map(|entries| {
                entries
                    .into_iter()
                    .map(|(name, value)| (name.to_string(), value))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        ]
    })
}

/// A name as a client may write it.
fn written(name: &str, escaped: bool) -> String {
    match name.chars().next() {
        Some(first) if escaped => format!("\"\\u{:04x}{}\"", first as u32, &name[1..]),
        _ => format!("\"{name}\""),
    }
}

/// A body with its blanks, names in odd forms and, if `repeated`, names that come twice.
fn body(repeated: bool) -> impl Strategy<Value = String> {
    let entry = (prop::sample::select(&NAMES[..]), value(), any::<bool>(), "[ \n\t]{0,2}");
    prop::collection::vec(entry, 0..9).prop_map(move |entries| {
        let mut seen = Vec::new();
        let mut parts = Vec::new();
        for (name, value, escaped, blank) in entries {
            if repeated || !seen.contains(&name) {
                seen.push(name);
                parts.push(format!("{blank}{}{blank}:{blank}{value}{blank}", written(name, escaped)));
            }
        }
        format!(" {{{}}}\n", parts.join(","))
    })
}

/// The edit of a leg done on the parsed body.
type Edit = fn(&mut Map<String, Tree>);

/// What a leg writes is what the edit gives; without repeated names to the last byte of the compact form, so that the
/// order of all members is kept.
fn same_edit(body: &str, out: &str, edit: Edit, repeated: bool) {
    let Tree::Object(mut expected) = tree(body.as_bytes()) else { panic!("{body}") };
    edit(&mut expected);
    let (expected, out) = (Tree::Object(expected), tree(out.as_bytes()));
    assert_eq!(out, expected, "of {body}");
    if !repeated {
        assert_eq!(out.to_string(), expected.to_string(), "of {body}");
    }
}

/// Puts a member behind all others.
fn put(map: &mut Map<String, Tree>, name: &str, value: Tree) {
    map.shift_remove(name);
    map.insert(name.into(), value);
}

#[test]
fn rooms_are_in_range_and_lead_to_their_rank() {
    let pins =
        [None, Some(Pin { rank: 0, of: 1 }), Some(Pin { rank: 3, of: 4 }), Some(Pin { rank: 6, of: 7 })];
    for random in [0, 1, 2, 3, 41, u64::MAX, u64::MAX / 2, 1 << 63, 0x0123_4567_89ab_cdef] {
        for pin in pins {
            for (rooms, listed) in [(1, false), (1, true), (5, false), (5, true), (u32::MAX, true)] {
                let drawn = Rooms::draw(random, Need { rooms, listed }, pin);
                assert!(drawn.first() >= Rooms::BEGIN);
                let step = if listed { pin.map_or(1, |pin| u64::from(pin.of)) } else { 1 };
                assert!(drawn.first() + step * (u64::from(rooms) - 1) < Rooms::END, "{drawn:?}");
                let (rank, of) = pin.map_or((0, 1), |pin| (u64::from(pin.rank), u64::from(pin.of)));
                assert_eq!(drawn.first() % of, rank, "{drawn:?}");
                if listed {
                    assert!(drawn.all().take(9).all(|room| room % of == rank), "{drawn:?}");
                }
            }
        }
    }
    let many = Rooms::draw(77, Need { rooms: 4, listed: true }, Some(Pin { rank: 1, of: 3 }));
    let all: Vec<u64> = many.all().collect();
    assert_eq!(all, [0, 3, 6, 9].map(|more| many.first() + more));
    // All 63 bits are used.
    assert_eq!(Rooms::draw((1 << 63) - (1 << 43), Need::ONE, None).first().leading_zeros(), 1);
}

#[test]
fn receipts_have_the_form_that_vllm_reads() {
    let hex = b"0123456789abcdef0123456789abcdef";
    for (prefill, decode, expected) in [
        ("10.0.0.1:9001", "10.0.0.2:9002", "___prefill_addr_10.0.0.1:9001___decode_addr_10.0.0.2:9002_"),
        ("[fd00::1]:1", "1.2.3.4:65535", "___prefill_addr_[fd00::1]:1___decode_addr_1.2.3.4:65535_"),
    ] {
        let mut out = Vec::new();
        receipt(prefill.parse().expect("v"), decode.parse().expect("v"), hex, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("{expected}0123456789abcdef0123456789abcdef"));
    }
}

#[test]
fn a_body_is_written_in_one_piece_of_memory() {
    let body = format!(r#"{{"prompt":"{}","stream":true,"n":1}}"#, "p".repeat(100_000));
    let state = format!(r#"{{"blocks":[{}0]}}"#, "1,".repeat(50_000));
    let answer = format!(
        r#"{{"kv_transfer_params":{state},"choices":[{{"finish_reason":"length","disaggregated_params":{state}}}]}}"#
    );
    for engine in Engine::ALL.iter().copied().filter(|engine| engine.pairing().is_some()) {
        let members = peeked(&body);
        let (body, terms) = (Body { bytes: body.as_bytes(), members: &members }, terms(1));
        let PrefillEnd::Ready(handed) = pairing(engine).read_prefill(200, answer.as_bytes(), &terms) else {
            panic!("{engine:?}");
        };
        let given = Some(Given { answer: answer.as_bytes(), handed });
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pairing(engine).prefill_body(&body, &terms, &mut first);
        pairing(engine).decode_body(&body, &terms, given, &mut second);
        for out in [first, second] {
            // A vector that had to grow twice would have about twice the room.
            assert!(out.capacity() < out.len() + 1_000, "{engine:?}: {} of {}", out.len(), out.capacity());
        }
    }
}

#[test]
fn an_engine_without_pairs_has_no_dialect() {
    assert!(Engine::Llamacpp.pairing().is_none());
}

/// Statuses other than 200 are the same for all engines.
#[test]
fn refusals_are_the_clients_and_failures_are_not() {
    for engine in Engine::ALL.iter().filter_map(|engine| engine.pairing()) {
        for (status, end) in [
            (400, PrefillEnd::Refused),
            (404, PrefillEnd::Refused),
            (429, PrefillEnd::Refused),
            (500, PrefillEnd::Failed),
            (503, PrefillEnd::Failed),
            (302, PrefillEnd::Failed),
            (204, PrefillEnd::Failed),
        ] {
            assert_eq!(engine.read_prefill(status, b"{}", &terms(1)), end, "{status}");
        }
    }
}
