//! The reader against `rmpv`, on values of every form and on damaged bytes.

use super::*;
use rmpv::Value;

/// xorshift64*: the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

fn number(random: &mut Random) -> u64 {
    let shift = random.below(64);
    random.next() >> shift
}

fn value(random: &mut Random, depth: u64) -> Value {
    let bound = if random.below(20) == 0 { 70_000 } else { 40 };
    let length = random.below(bound) as usize;
    match random.below(if depth == 0 { 9 } else { 11 }) {
        0 => Value::Nil,
        1 => Value::Boolean(random.below(2) == 0),
        2 | 3 => Value::from(number(random)),
        4 => Value::from(number(random).cast_signed().wrapping_neg()),
        5 => Value::F64(random.next() as f64 / 7.0),
        6 => Value::from("é".repeat(length)),
        7 => Value::from(vec![5_u8; length]),
        8 => Value::Ext(random.next() as i8, vec![1; [1, 2, 4, 8, 16, length][length % 6]]),
        9 => Value::Array((0..random.below(20)).map(|_| value(random, depth - 1)).collect()),
        _ => {
            let pairs = random.below(20);
            Value::Map((0..pairs).map(|_| (value(random, 0), value(random, depth - 1))).collect())
        }
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Value, Fault> {
    Ok(match reader.item()? {
        Item::Nil => Value::Nil,
        Item::Bool(it) => Value::Boolean(it),
        Item::Uint(it) => Value::from(it),
        Item::Negative(it) => Value::from(it),
        Item::Float(it) => Value::F64(it),
        Item::Str(it) => Value::from(it),
        Item::Bin(it) => Value::from(it),
        Item::Ext(kind, data) => Value::Ext(kind, data.to_vec()),
        Item::Array(count) => Value::Array((0..count).map(|_| read(reader)).collect::<Result<_, _>>()?),
        Item::Map(pairs) => {
            Value::Map((0..pairs).map(|_| Ok((read(reader)?, read(reader)?))).collect::<Result<_, _>>()?)
        }
    })
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("into memory");
    bytes
}

#[test]
fn values_of_every_form_read_as_rmpv_wrote_them() {
    let mut random = Random(7);
    for _ in 0..3_000 {
        let value = value(&mut random, 3);
        let bytes = encoded(&value);
        let mut reader = Reader::new(&bytes);
        assert_eq!(read(&mut reader), Ok(value));
        assert_eq!(reader.left(), 0);
        let mut skipping = Reader::new(&bytes);
        assert_eq!((skipping.skip(), skipping.left()), (Ok(()), 0));
    }
}

#[test]
fn every_first_byte_is_judged_as_rmpv_judges_it() {
    for tag in 0..=255_u8 {
        let bytes: Vec<u8> = [tag].into_iter().chain([1; 300]).collect();
        let mut rest = bytes.as_slice();
        let theirs = rmpv::decode::read_value(&mut rest);
        let mut reader = Reader::new(&bytes);
        match read(&mut reader) {
            // rmpv keeps the narrow float apart and reads the reserved byte as nil.
            Ok(_) if tag == 0xca => assert!(matches!(theirs, Ok(Value::F32(_)))),
            Err(fault) if tag == 0xc1 => assert_eq!(fault, Fault::Format),
            Ok(ours) => assert_eq!((Some(ours), reader.left()), (theirs.ok(), rest.len()), "tag {tag:#x}"),
            Err(_) => assert!(theirs.is_err(), "tag {tag:#x}"),
        }
    }
}

#[test]
fn damaged_bytes_never_read_otherwise_than_rmpv_reads_them() {
    let mut random = Random(11);
    for _ in 0..20_000 {
        let mut bytes = encoded(&value(&mut random, 2));
        bytes.truncate(200);
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        let mut reader = Reader::new(&bytes);
        let Ok(ours) = read(&mut reader) else { continue };
        if bytes.contains(&0xca) {
            continue; // rmpv keeps the narrow float apart.
        }
        let mut rest = bytes.as_slice();
        let theirs = rmpv::decode::read_value(&mut rest).expect("accepted by ours");
        assert_eq!((encoded(&ours), reader.left()), (encoded(&theirs), rest.len()));
    }
}

#[test]
fn every_prefix_is_short() {
    let mut random = Random(3);
    for _ in 0..200 {
        let bytes = encoded(&value(&mut random, 2));
        for end in 0..bytes.len().min(500) {
            let mut reader = Reader::new(&bytes[..end]);
            assert!(matches!(reader.skip(), Err(Fault::Short | Fault::Text)), "{end} of {}", bytes.len());
        }
    }
}

#[test]
fn faults_are_named() {
    assert_eq!(Reader::new(&[0xc1]).item(), Err(Fault::Format));
    assert_eq!(Reader::new(&[0xa2, 0xc3, 0x28]).item(), Err(Fault::Text));
    assert_eq!(Reader::new(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1]).item(), Err(Fault::Short));
    assert_eq!(Reader::new(&[0xdf, 0x80, 0, 0, 0, 1, 1]).item(), Err(Fault::Short));
    let deep = [[0x91; DEPTH].as_slice(), &[0x90]].concat();
    assert_eq!(Reader::new(&deep).skip(), Ok(()));
    let deeper = [[0x91; DEPTH + 1].as_slice(), &[0x90]].concat();
    assert_eq!(Reader::new(&deeper).skip(), Err(Fault::Deep));
}

#[test]
fn a_run_of_ids_is_read_like_single_ones_and_ends_before_anything_else() {
    let mut random = Random(5);
    for _ in 0..2_000 {
        let ids: Vec<u32> = (0..random.below(50)).map(|_| (number(&mut random) >> 32) as u32).collect();
        let mut bytes: Vec<u8> = ids.iter().flat_map(|id| encoded(&Value::from(*id))).collect();
        let other = value(&mut random, 1);
        bytes.extend(encoded(&other));
        let (mut reader, mut read_ids) = (Reader::new(&bytes), Vec::new());
        let count = ids.len() as u32;
        let is_id = other.as_u64().is_some_and(|other| u32::try_from(other).is_ok());
        assert_eq!(reader.u32s(count + 1, &mut read_ids), count + u32::from(is_id));
        assert_eq!(read_ids[..ids.len()], ids);
        assert!(is_id || read(&mut reader) == Ok(other));
    }
    let mut short = Reader::new(&[0xcd, 1]);
    assert_eq!((short.u32s(1, &mut Vec::new()), short.item()), (0, Err(Fault::Short)));
}

#[test]
fn a_name_is_read_whole_or_not_at_all() {
    let mut reader = Reader::new(&[0xa3, b'G', b'P', b'U', 0xa2, 0xc3, 0x28, 0xc0]);
    assert_eq!(reader.name(), Some(&b"GPU"[..]));
    assert_eq!(reader.name(), Some(&[0xc3, 0x28][..]), "not UTF-8, and not looked at");
    assert_eq!((reader.name(), reader.item()), (None, Ok(Item::Nil)));
    let mut short = Reader::new(&[0xa3, b'G', b'P']);
    assert_eq!((short.name(), short.left()), (None, 3));
    let mut long = Reader::new(&[0xd9, 1, b'x']);
    assert_eq!((long.name(), long.item()), (None, Ok(Item::Str("x"))));
}
