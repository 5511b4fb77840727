//! Shapes that no capture has: other orders, additions of later versions, and damage.

use super::*;
use crate::wire::{Medium, Tokens};
use rmpv::Value;

fn payload(events: Vec<Value>) -> Vec<u8> {
    encoded(&Value::Array(vec![Value::F64(1.5), Value::Array(events), Value::from(3)]))
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("into memory");
    bytes
}

fn list(values: &[u64]) -> Value {
    Value::Array(values.iter().map(|value| Value::from(*value)).collect())
}

fn map(pairs: Vec<(&str, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

fn stored(hash: Value) -> Vec<(&'static str, Value)> {
    vec![
        ("type", Value::from("BlockStored")),
        ("block_hashes", Value::Array(vec![hash])),
        ("parent_block_hash", Value::Nil),
        ("token_ids", list(&[1, 2])),
        ("block_size", Value::from(2)),
    ]
}

fn read(payload: &[u8], naming: HashBytes) -> Result<Batch, Reject> {
    let mut batch = Batch::default();
    decode(payload, naming, &mut batch).map(|()| batch)
}

fn only_stored(batch: &Batch) -> Stored {
    match batch.events.as_slice() {
        [Event::Stored(stored)] => *stored,
        other => panic!("one stored event, not {other:?}"),
    }
}

#[test]
fn members_in_any_order_and_unknown_ones_are_read() {
    let mut pairs = stored(Value::from(9));
    pairs.reverse();
    pairs.insert(0, ("some_later_member", map(vec![("deep", list(&[1, 2, 3]))])));
    let batch = read(&payload(vec![map(pairs)]), HashBytes::Last).expect("a batch");
    let stored = only_stored(&batch);
    assert_eq!((batch.hashes(stored.hashes), stored.block_size), (&[9][..], 2));
    assert_eq!((batch.time, batch.rank), (1.5, Some(3)));
}

#[test]
fn later_array_members_and_batch_members_are_passed_over() {
    let event = Value::Array(vec![
        Value::from("BlockRemoved"),
        list(&[7]),
        Value::Nil,
        Value::from(2),
        Value::from("x"),
    ]);
    let batch =
        Value::Array(vec![Value::from(4), Value::Array(vec![event]), Value::Nil, map(vec![]), Value::Nil]);
    let batch = read(&encoded(&batch), HashBytes::Last).expect("a batch");
    let [Event::Removed(removed)] = batch.events.as_slice() else { panic!("one removal") };
    assert_eq!((batch.hashes(removed.hashes), removed.place.group, batch.rank), (&[7][..], Some(2), None));
}

#[test]
fn both_forms_may_stand_in_one_batch_and_unknown_kinds_are_counted() {
    let array = Value::Array(vec![Value::from("AllBlocksCleared")]);
    let later =
        map(vec![("type", Value::from("BlockMoved")), ("block_hashes", Value::from("of another type"))]);
    let batch =
        read(&payload(vec![array, later, map(stored(Value::from(1)))]), HashBytes::Last).expect("a batch");
    assert!(matches!(batch.events.as_slice(), [Event::Cleared, Event::Stored(_)]));
    assert_eq!(batch.unknown, 1);
}

#[test]
fn hashes_of_every_form_are_named_and_floats_are_refused() {
    let bytes: Vec<u8> = (1..=32).collect();
    let name = |hash: Value, naming| {
        let batch = read(&payload(vec![map(stored(hash))]), naming)?;
        Ok::<_, Reject>(batch.hashes(only_stored(&batch).hashes)[0])
    };
    assert_eq!(name(Value::from(-5), HashBytes::First), Ok(u64::MAX - 4));
    assert_eq!(name(Value::from(u64::MAX), HashBytes::Last), Ok(u64::MAX));
    assert_eq!(name(Value::from(bytes.clone()), HashBytes::Last), Ok(0x191a_1b1c_1d1e_1f20));
    assert_eq!(name(Value::from(bytes), HashBytes::First), Ok(0x0102_0304_0506_0708));
    assert_eq!(name(Value::from(vec![1_u8; 7]), HashBytes::Last), Err(Reject::Hash));
    assert_eq!(name(Value::F64(5.0), HashBytes::Last), Err(Reject::Hash));
    assert_eq!(name(Value::from("5"), HashBytes::Last), Err(Reject::Hash));
    assert_eq!(name(Value::Nil, HashBytes::Last), Err(Reject::Hash));
}

#[test]
fn tokens_that_are_not_32_bit_leave_the_hashes_known() {
    for tokens in [list(&[1, 1 << 32]), Value::Array(vec![Value::from(-1), Value::from(2)])] {
        let mut pairs = stored(Value::from(9));
        pairs[3].1 = tokens;
        let batch = read(&payload(vec![map(pairs)]), HashBytes::First).expect("a batch");
        assert_eq!(only_stored(&batch).tokens, Tokens::Unkept);
        assert!(batch.tokens.is_empty());
    }
}

#[test]
fn pairs_mixed_with_ids_are_not_kept() {
    let mut pairs = stored(Value::from(9));
    pairs[3].1 = Value::Array(vec![list(&[1, 2]), Value::from(3)]);
    let batch = read(&payload(vec![map(pairs)]), HashBytes::First).expect("a batch");
    assert_eq!(only_stored(&batch).tokens, Tokens::Unkept);
}

#[test]
fn media_have_names_of_both_engines() {
    for (name, medium) in [
        ("CPU_PINNED", Medium::Cpu),
        ("DISK", Medium::Disk),
        ("EXTERNAL", Medium::External),
        ("TAPE", Medium::Other),
    ] {
        let mut pairs = stored(Value::from(9));
        pairs.push(("medium", Value::from(name)));
        let batch = read(&payload(vec![map(pairs)]), HashBytes::First).expect("a batch");
        assert_eq!(only_stored(&batch).place.medium, Some(medium));
    }
}

#[test]
fn a_known_member_of_another_type_rejects_the_whole_payload() {
    for (member, value) in [
        ("block_size", Value::from(0)),
        ("block_size", Value::from(1_u64 << 32)),
        ("token_ids", Value::from("1 2")),
        ("token_ids", Value::Array(vec![Value::F64(1.0)])),
        ("medium", Value::from(1)),
        ("group_idx", Value::from(-1)),
        ("lora_id", Value::F64(1.0)),
        ("extra_keys", Value::from(1)),
        ("lookahead_token_ids", Value::from(1)),
    ] {
        let mut pairs = stored(Value::from(9));
        pairs.retain(|(name, _)| *name != member);
        pairs.push((member, value));
        let mut batch = Batch::default();
        let good = map(stored(Value::from(1)));
        let verdict = decode(&payload(vec![good, map(pairs)]), HashBytes::Last, &mut batch);
        assert_eq!(verdict, Err(Reject::Member(member)));
        assert!(batch.events.is_empty() && batch.hashes.is_empty());
    }
}

#[test]
fn what_is_no_batch_is_rejected() {
    assert_eq!(read(&encoded(&list(&[1])), HashBytes::Last).err(), Some(Reject::Batch));
    assert_eq!(read(&encoded(&list(&[1, 2])), HashBytes::Last).err(), Some(Reject::Batch));
    assert_eq!(read(&payload(vec![Value::from(1)]), HashBytes::Last).err(), Some(Reject::Event));
    assert_eq!(read(&payload(vec![Value::Array(vec![])]), HashBytes::Last).err(), Some(Reject::Event));
    assert_eq!(read(&payload(vec![map(vec![])]), HashBytes::Last).err(), Some(Reject::Event));
    let long = [payload(vec![]), vec![0]].concat();
    assert_eq!(read(&long, HashBytes::Last).err(), Some(Reject::Trailing));
}

#[test]
fn every_prefix_and_every_damaged_byte_is_judged_without_panic() {
    let mut pairs = stored(Value::from(u64::MAX));
    pairs.push(("extra_keys", Value::Array(vec![Value::Array(vec![Value::from("a"), list(&[1, 2])])])));
    pairs.push(("lookahead_token_ids", Value::Array(vec![list(&[8])])));
    let whole = payload(vec![map(pairs), Value::Array(vec![Value::from("BlockRemoved"), list(&[1])])]);
    for end in 0..whole.len() {
        assert!(read(&whole[..end], HashBytes::Last).is_err(), "prefix of {end}");
        for flip in 1..=255 {
            let mut damaged = whole.clone();
            damaged[end] ^= flip;
            let _ = read(&damaged, HashBytes::First);
        }
    }
}

/// Pieces of any length, also in the midst of long lists, of every form.
#[test]
fn a_payload_in_pieces_is_the_same_batch() {
    let long: Vec<u64> = (0..10_000).map(|id| id * 7_919).collect();
    let ids: Vec<u64> = (0..9_000).map(|id| id % 70_000).collect();
    let pairs = Value::Array((0..5_000).map(|id| list(&[id, id + 1])).collect());
    let events = vec![
        map(vec![("type", Value::from("BlockRemoved")), ("block_hashes", list(&long))]),
        Value::Array(vec![
            Value::from("BlockStored"),
            list(&long[..600]),
            Value::Nil,
            list(&ids),
            Value::from(15),
            Value::Nil,
            Value::from("GPU"),
            map(vec![("cache_salt", Value::from("s"))]),
        ]),
        map(vec![
            ("type", Value::from("BlockStored")),
            ("token_ids", pairs),
            ("block_size", Value::from(16)),
            ("block_hashes", list(&[1, 2])),
        ]),
        Value::Array(vec![Value::from("AllBlocksCleared")]),
    ];
    let whole = payload(events);
    let expected = read(&whole, HashBytes::Last).expect("a batch");
    for bytes in [1, 100, 3_000, 50_000, 1 << 20] {
        let (mut batch, mut at, mut pieces) = (Batch::default(), Progress::default(), 1);
        while !decode_some(&whole, HashBytes::Last, &mut batch, &mut at, bytes).expect("a batch") {
            pieces += 1;
        }
        assert_eq!(batch, expected, "{bytes}");
        assert!(pieces <= whole.len() && (pieces >= 4 || bytes >= 50_000), "{pieces} pieces of {bytes}");
    }
    let (mut batch, mut at) = (Batch::default(), Progress::default());
    let damaged = &whole[..whole.len() - 1];
    let verdict = loop {
        match decode_some(damaged, HashBytes::Last, &mut batch, &mut at, 1_000) {
            Ok(false) => {}
            other => break other,
        }
    };
    assert!(verdict.is_err() && batch.events.is_empty() && batch.hashes.is_empty());
}
