//! Canonical CBOR (RFC 8949, 4.2.1: shortest heads, definite lengths), as far as vLLM's block hashes need it:
//! what vLLM 0.23 to 0.33 gets from cbor2 with `canonical=True`. Owns these bytes.

use super::form::Form;
use super::preimage::Preimage;
use crate::block::Digest;

/// The CBOR form of a preimage.
pub(super) struct Cbor;

const UNSIGNED: u8 = 0x00;
const NEGATIVE: u8 = 0x20;
const BYTES: u8 = 0x40;
const TEXT: u8 = 0x60;
const ARRAY: u8 = 0x80;
const NULL: u8 = 0xf6;

impl Form for Cbor {
    fn begin(_: &mut Preimage) {}

    fn end(_: &mut Preimage) {}

    #[inline(always)]
    fn open(out: &mut Preimage, items: usize) {
        head(out, ARRAY, items as u64);
    }

    fn close(_: &mut Preimage, _: usize) {}

    #[inline(always)]
    fn none(out: &mut Preimage) {
        out.byte(NULL);
    }

    fn text(out: &mut Preimage, text: &str) {
        head(out, TEXT, text.len() as u64);
        out.put(text.as_bytes());
    }

    fn bytes(out: &mut Preimage, bytes: &[u8]) {
        head(out, BYTES, bytes.len() as u64);
        out.put(bytes);
    }

    #[inline(always)]
    fn digest(out: &mut Preimage, digest: &Digest) {
        head(out, BYTES, digest.as_bytes().len() as u64);
        out.digest(digest);
    }

    fn int(out: &mut Preimage, value: i64) {
        match u64::try_from(value) {
            Ok(value) => head(out, UNSIGNED, value),
            Err(_) => head(out, NEGATIVE, !value.cast_unsigned()),
        }
    }

    /// The hot loop of exact routing. Each id is written as one 8-byte word of which 1, 2, 3 or 5 bytes count:
    /// ids of mixed width, as prompts have them, cost no mispredicted branch.
    #[inline(always)]
    fn tokens(out: &mut Preimage, tokens: &[u32]) {
        for tokens in tokens.chunks(CHUNK) {
            let Some(room) = out.room(ROOM).first_chunk_mut::<ROOM>() else { return };
            let mut at = 0;
            for &token in tokens {
                let size = (token | 1).ilog2() as usize + usize::from(token > 23);
                let shape = &SHAPES[size % SHAPES.len()];
                let word = shape.head | u64::from(token) << shape.shift;
                // Never cut short: a chunk's items end within MASK. It spares the check of bounds.
                let place = at & MASK;
                room[place..place + 8].copy_from_slice(&word.to_be_bytes());
                at += usize::from(shape.width);
            }
            out.advance(at);
        }
    }
}

/// Ids written between two looks at the buffer; items of 5 bytes.
const CHUNK: usize = 16;
const MASK: usize = 127;
const ROOM: usize = MASK + 1 + 8;
const _: () = assert!(CHUNK * 5 <= MASK);

/// How an unsigned integer of one size is written.
#[derive(Clone, Copy)]
struct Shape {
    /// The head in the word's first byte; nothing where the value is its own head.
    head: u64,
    /// Brings the value behind the head.
    shift: u8,
    /// Bytes of the word that count.
    width: u8,
}

/// By the integer's binary logarithm, plus one if it is over 23 and so needs a head of its own.
static SHAPES: [Shape; 64] = {
    let mut shapes = [Shape { head: 0x1a << 56, shift: 24, width: 5 }; 64];
    let mut size = 0;
    while size <= 16 {
        shapes[size] = match size {
            0..=4 => Shape { head: 0, shift: 56, width: 1 },
            5..=8 => Shape { head: 0x18 << 56, shift: 48, width: 2 },
            _ => Shape { head: 0x19 << 56, shift: 40, width: 3 },
        };
        size += 1;
    }
    shapes
};

/// A data item's head: major type and its argument in the shortest form.
#[inline(always)]
fn head(out: &mut Preimage, major: u8, argument: u64) {
    match argument {
        0..=23 => out.byte(major | argument as u8),
        24..=0xff => out.put(&[major | 24, argument as u8]),
        0x100..=0xffff => {
            out.byte(major | 25);
            out.put(&(argument as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.byte(major | 26);
            out.put(&(argument as u32).to_be_bytes());
        }
        _ => {
            out.byte(major | 27);
            out.put(&argument.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ciborium::Value;
    use proptest::prelude::*;

    fn oracle(value: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes).unwrap();
        bytes
    }

    /// Integers whose encodings have every length.
    fn spread() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift)
    }

    proptest! {
        #[test]
        fn ciborium_writes_the_same(
            tokens in prop::collection::vec(spread().prop_map(|v| v as u32), 0..300),
            bytes in prop::collection::vec(any::<u8>(), 0..70_000),
            text in "\\PC{0,300}",
            int in spread().prop_map(|v| v.cast_signed()),
        ) {
            let mut out = Preimage::default();
            Cbor::open(&mut out, 6);
            Cbor::bytes(&mut out, &bytes);
            Cbor::open(&mut out, tokens.len());
            Cbor::tokens(&mut out, &tokens);
            Cbor::text(&mut out, &text);
            Cbor::none(&mut out);
            Cbor::int(&mut out, int);
            Cbor::int(&mut out, !int);
            let ids = tokens.iter().map(|&t| Value::from(t)).collect();
            let value = Value::Array(vec![
                Value::Bytes(bytes), Value::Array(ids), Value::Text(text), Value::Null,
                Value::from(int), Value::from(!int),
            ]);
            prop_assert_eq!(out.written(), oracle(&value));
        }
    }

    #[test]
    fn every_boundary_of_an_integer_is_shortest() {
        let ends = [0, 23, 24, 255, 256, 65_535, 65_536, (1i64 << 32) - 1, 1 << 32, i64::MAX];
        for value in ends.into_iter().flat_map(|v| [v, !v]) {
            let mut out = Preimage::default();
            Cbor::int(&mut out, value);
            assert_eq!(out.written(), oracle(&Value::from(value)), "{value}");
        }
    }
}
