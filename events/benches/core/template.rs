//! A vLLM batch whose names are filled in: publishing must not be what is measured. Owns its layout.

use crate::peer::batch;
use rmpv::Value;

/// Blocks stored in a batch, and removed in it.
pub const STORED: usize = 64;

/// The first of 64 numbers whose removal says nothing.
pub const NEVER_HELD: u64 = 1_000;

/// The bytes as a publisher sends them, and where its sequence, payload and names are.
pub struct Template {
    bytes: Vec<u8>,
    payload: usize,
    stored: Vec<usize>,
    removed: Vec<usize>,
}

/// Where a live message has its sequence: behind an empty topic's head and its own.
const SEQ: usize = 9 + 9;

impl Template {
    pub fn new(blocks_an_event: usize) -> Template {
        let payload = payload(1, Some(1 + STORED as u64), blocks_an_event);
        let bytes = batch(0, &payload);
        let place = |number: u64| {
            let name = key(number).to_be_bytes();
            bytes.windows(8).position(|eight| eight == name).expect("a name of eight bytes")
        };
        let stored = (1..=STORED as u64).map(place).collect();
        let removed = (1 + STORED as u64..=2 * STORED as u64).map(place).collect();
        Template { stored, removed, payload: bytes.len() - payload.len(), bytes }
    }

    /// A live message that stores 64 blocks from `first` on, and removes as many; [`NEVER_HELD`] ones say nothing.
    pub fn fill(&mut self, seq: u64, first: u64, old: u64) -> &[u8] {
        self.bytes[SEQ..SEQ + 8].copy_from_slice(&seq.to_be_bytes());
        for (base, places) in [(first, &self.stored), (old, &self.removed)] {
            for (at, place) in places.iter().enumerate() {
                self.bytes[*place..*place + 8].copy_from_slice(&key(base + at as u64).to_be_bytes());
            }
        }
        &self.bytes
    }

    /// The payload of a batch that stores 64 blocks from `first` on.
    pub fn payload(&mut self, first: u64) -> Vec<u8> {
        self.fill(0, first, NEVER_HELD);
        self.bytes[self.payload..].to_vec()
    }
}

/// The name of a number's block.
pub fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

/// A batch that stores 64 blocks, and removes as many.
fn payload(first: u64, old: Option<u64>, blocks_an_event: usize) -> Vec<u8> {
    let mut events = Vec::new();
    for at in (0..STORED).step_by(blocks_an_event) {
        let numbers = |base: u64| (base + at as u64..).take(blocks_an_event).map(|it| Value::from(key(it)));
        if let Some(old) = old {
            let names = Value::Array(numbers(old).collect());
            events.push(event("BlockRemoved", vec![("block_hashes", names), ("medium", Value::from("GPU"))]));
        }
        let tokens = (0..blocks_an_event as u64 * 16).map(|at| Value::from(1_000 + at)).collect();
        events.push(event(
            "BlockStored",
            vec![
                ("block_hashes", Value::Array(numbers(first).collect())),
                ("parent_block_hash", Value::Nil),
                ("token_ids", Value::Array(tokens)),
                ("block_size", Value::from(16)),
                ("lora_id", Value::Nil),
                ("medium", Value::from("GPU")),
            ],
        ));
    }
    encoded(events)
}

fn event(kind: &str, members: Vec<(&str, Value)>) -> Value {
    let kind = [(Value::from("type"), Value::from(kind))];
    let members = members.into_iter().map(|(name, value)| (Value::from(name), value));
    Value::Map(kind.into_iter().chain(members).collect())
}

fn encoded(events: Vec<Value>) -> Vec<u8> {
    let batch = Value::Array(vec![Value::F64(1.5), Value::Array(events), Value::from(0)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).expect("into memory");
    bytes
}
