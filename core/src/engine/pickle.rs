//! Python's pickle, protocol 5, as CPython's C pickler writes the few values of a block's preimage. Owns these
//! bytes and the cases in which they can't be known from outside: pickle writes an object that it has met
//! before as a reference, so the bytes depend on which equal strings are one object in the engine.

use super::form::Form;
use super::preimage::Preimage;
use crate::block::Digest;

/// The pickle form of a preimage.
pub(super) struct Pickle;

/// A preimage up to this long is one frame; CPython begins a new frame beyond 64 KiB.
pub(super) const ONE_FRAME: usize = 64 * 1024;

/// The most bytes that a token id takes (`LONG1`, its length, five bytes).
pub(super) const WIDEST_TOKEN: usize = 7;

const PROTO_5: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
/// Where the frame's length stands: behind [`PROTO_5`] and [`FRAME`].
const FRAME_LENGTH_AT: usize = 3;
const FRAME_BEGIN: usize = FRAME_LENGTH_AT + 8;
const STOP: u8 = b'.';
const MEMOIZE: u8 = 0x94;
const NONE: u8 = b'N';
const MARK: u8 = b'(';
const EMPTY_TUPLE: u8 = b')';
/// `TUPLE1`; `TUPLE2` and `TUPLE3` follow.
const TUPLE1: u8 = 0x85;
const TUPLE: u8 = b't';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const SHORT_BINBYTES: u8 = b'C';
const BINBYTES: u8 = b'B';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;

impl Form for Pickle {
    fn begin(out: &mut Preimage) {
        out.put(&PROTO_5);
        out.byte(FRAME);
        out.put(&[0; 8]);
    }

    fn end(out: &mut Preimage) {
        out.byte(STOP);
        out.patch(FRAME_LENGTH_AT, (out.len() - FRAME_BEGIN) as u64);
    }

    fn open(out: &mut Preimage, items: usize) {
        if items > 3 {
            out.byte(MARK);
        }
    }

    fn close(out: &mut Preimage, items: usize) {
        match items {
            // The empty tuple is a constant and never remembered.
            0 => return out.byte(EMPTY_TUPLE),
            1..=3 => out.byte(TUPLE1 + items as u8 - 1),
            _ => out.byte(TUPLE),
        }
        out.byte(MEMOIZE);
    }

    fn none(out: &mut Preimage) {
        out.byte(NONE);
    }

    fn text(out: &mut Preimage, text: &str) {
        sized(out, SHORT_BINUNICODE, BINUNICODE, text.as_bytes());
    }

    fn bytes(out: &mut Preimage, bytes: &[u8]) {
        sized(out, SHORT_BINBYTES, BINBYTES, bytes);
    }

    fn digest(out: &mut Preimage, digest: &Digest) {
        out.put(&[SHORT_BINBYTES, digest.as_bytes().len() as u8]);
        out.digest(digest);
        out.byte(MEMOIZE);
    }

    fn int(out: &mut Preimage, value: i64) {
        if let Ok(value) = u8::try_from(value) {
            out.put(&[BININT1, value]);
        } else if let Ok(value) = u16::try_from(value) {
            out.byte(BININT2);
            out.put(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            out.byte(BININT);
            out.put(&value.to_le_bytes());
        } else {
            // As few bytes as hold the value and its sign bit.
            let width = (72 - (value ^ (value >> 63)).leading_zeros() as usize) / 8;
            out.put(&[LONG1, width as u8]);
            out.put(&value.to_le_bytes()[..width]);
        }
    }

    fn tokens(out: &mut Preimage, tokens: &[u32]) {
        for &token in tokens {
            Self::int(out, i64::from(token));
        }
    }
}

fn sized(out: &mut Preimage, short: u8, long: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(len) => out.put(&[short, len]),
        Err(_) => {
            out.byte(long);
            out.put(&(bytes.len() as u32).to_le_bytes());
        }
    }
    out.put(bytes);
    out.byte(MEMOIZE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(out: &Preimage) -> String {
        out.written().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What CPython 3.12 answers to `pickle.dumps(value, 5)`.
    #[test]
    fn integers_are_as_cpython_writes_them() {
        for (value, bytes) in [
            (0, "4b00"),
            (255, "4bff"),
            (256, "4d0001"),
            (65_535, "4dffff"),
            (65_536, "4a00000100"),
            (i64::from(i32::MAX), "4affffff7f"),
            (-1, "4affffffff"),
            (-6, "4afaffffff"),
            (1 << 31, "8a050000008000"),
            (0xffff_ffff, "8a05ffffffff00"),
            (-(1 << 31) - 1, "8a05ffffff7fff"),
            ((1 << 39) - 1, "8a05ffffffff7f"),
            (1 << 39, "8a06000000008000"),
            (i64::MAX, "8a08ffffffffffffff7f"),
            (i64::MIN, "8a080000000000000080"),
        ] {
            let mut out = Preimage::default();
            Pickle::int(&mut out, value);
            assert_eq!(hex(&out), bytes, "{value}");
        }
    }

    #[test]
    fn tuples_of_every_length_close_as_cpython_does() {
        for (items, bytes) in
            [(0, "29"), (1, "4e8594"), (2, "4e4e8694"), (3, "4e4e4e8794"), (4, "284e4e4e4e7494")]
        {
            let mut out = Preimage::default();
            Pickle::open(&mut out, items);
            (0..items).for_each(|_| Pickle::none(&mut out));
            Pickle::close(&mut out, items);
            assert_eq!(hex(&out), bytes, "{items} items");
        }
    }

    #[test]
    fn texts_over_255_bytes_have_the_long_head() {
        let mut out = Preimage::default();
        Pickle::begin(&mut out);
        Pickle::text(&mut out, &"a".repeat(256));
        Pickle::end(&mut out);
        assert!(hex(&out).starts_with("80059507010000000000005800010000616161"), "{}", hex(&out));
        assert!(hex(&out).ends_with("61942e"));
    }
}
