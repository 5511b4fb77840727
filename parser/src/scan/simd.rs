//! The byte classes, sixteen bytes at a time.
//!
//! Owns the fast twin of `plain`: vector compares through the `wide` crate, so that this crate needs no
//! `unsafe` and no code for one processor. It must never decide anything that `plain` does not.

use super::plain;
use wide::u8x16;

const LANES: usize = 16;

/// End of a run of token bytes.
#[inline(always)]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    // Letters, digits and the hyphen are nearly every name; other token bytes are left to the table.
    let outside = |block: u8x16| {
        let letters = within(block | u8x16::splat(0x20), b'a', b'z');
        !(letters | within(block, b'0', b'9') | equals(block, b'-'))
    };
    let mut at = from;
    loop {
        at = end(bytes, at, b':', outside, plain::is_token);
        match bytes.get(at) {
            // The end of nearly every name needs no look at the table.
            Some(b':') => return at,
            Some(&byte) if plain::is_token(byte) => at += 1,
            _ => return at,
        }
    }
}

/// End of a run of field value bytes.
#[inline(always)]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    let outside = |block| (at_most(block, 0x1f) & !equals(block, b'\t')) | equals(block, 0x7f);
    // CR is outside of this cheap class. To look for it first, as `end` does, costs more than it gains.
    let mut at = from;
    while let Some(block) = block(bytes, at) {
        if let Some(lane) = first(outside(block).to_bitmask()) {
            return at + lane;
        }
        at += LANES;
    }
    plain::end(bytes, at, plain::is_value)
}

/// End of a run of request-target bytes.
#[inline(always)]
pub(crate) fn target_end(bytes: &[u8], from: usize) -> usize {
    let outside = |block| !within(block, 0x21, 0x7e) | equals(block, b'#');
    end(bytes, from, b' ', outside, plain::is_target)
}

/// End of a run of JSON string bytes that need no attention.
#[inline(always)]
pub(crate) fn string_end(bytes: &[u8], from: usize) -> usize {
    let outside = |block| at_most(block, 0x1f) | equals(block, b'"') | equals(block, b'\\');
    // Most runs end soon; in one that has not, four blocks go with one test.
    let near = bytes.get(..from.saturating_add(LONG)).unwrap_or(bytes);
    let at = end(near, from, b'"', outside, plain::is_string);
    if at < near.len() || near.len() == bytes.len() {
        return at;
    }
    end(bytes, clear(bytes, at, outside), b'"', outside, plain::is_string)
}

/// A run of this many bytes is likely to go on.
const LONG: usize = 8 * LANES;

/// A place up to which nothing is `outside`, four blocks at a time.
#[inline(always)]
fn clear(bytes: &[u8], from: usize, outside: impl Fn(u8x16) -> u8x16) -> usize {
    let mut at = from;
    while let Some(blocks) = bytes.get(at..).and_then(|rest| rest.first_chunk::<{ 4 * LANES }>()) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| outside(block(blocks, k * LANES).unwrap_or_default()));
        if ((a | b) | (c | d)).to_bitmask() != 0 {
            break;
        }
        at += 4 * LANES;
    }
    at
}

/// The first place of `byte`, in what is mostly shorter than a call to a general search is worth.
#[inline(always)]
pub(crate) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    let at = end(bytes, 0, byte, |block| equals(block, byte), |other| other != byte);
    (at < bytes.len()).then_some(at)
}

/// First place outside a class. `likely`, itself outside, is what mostly ends a run: its place is known a
/// few cycles before the class is tested, and what follows can begin to be looked at.
#[inline(always)]
fn end(
    bytes: &[u8],
    from: usize,
    likely: u8,
    outside: impl Fn(u8x16) -> u8x16,
    class: impl Fn(u8) -> bool,
) -> usize {
    let mut at = from;
    while let Some(block) = block(bytes, at) {
        let ends = equals(block, likely).to_bitmask();
        let outside = outside(block).to_bitmask();
        if let Some(lane) = first(ends)
            && outside & ((1 << lane) - 1) == 0
        {
            return at + lane;
        }
        if let Some(lane) = first(outside) {
            return at + lane;
        }
        at += LANES;
    }
    plain::end(bytes, at, class)
}

#[inline(always)]
fn block(bytes: &[u8], at: usize) -> Option<u8x16> {
    bytes.get(at..)?.first_chunk().map(|block: &[u8; LANES]| u8x16::new(*block))
}

/// The first lane whose bit is set.
#[inline(always)]
fn first(bits: u32) -> Option<usize> {
    (bits != 0).then(|| bits.trailing_zeros() as usize)
}

#[inline(always)]
fn equals(block: u8x16, byte: u8) -> u8x16 {
    block.simd_eq(u8x16::splat(byte))
}

#[inline(always)]
fn at_most(block: u8x16, bound: u8) -> u8x16 {
    block.min(u8x16::splat(bound)).simd_eq(block)
}

/// Lanes in `first..=last`: one subtraction moves the range to zero.
#[inline(always)]
fn within(block: u8x16, first: u8, last: u8) -> u8x16 {
    at_most(block - u8x16::splat(first), last - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Twin = (&'static str, fn(&[u8], usize) -> usize, fn(u8) -> bool);

    const TWINS: [Twin; 4] = [
        ("token", token_end, plain::is_token),
        ("value", value_end, plain::is_value),
        ("target", target_end, plain::is_target),
        ("string", string_end, plain::is_string),
    ];

    #[test]
    fn both_twins_agree_on_every_byte_at_every_lane_and_length() {
        for (name, fast, class) in TWINS {
            for length in (0..50).chain([127, 128, 129, 192, 193, 270]) {
                for byte in 0..=255u8 {
                    let at = (byte as usize * 7) % (length + 1);
                    let mut bytes = vec![b'a'; length];
                    if let Some(slot) = bytes.get_mut(at) {
                        *slot = byte;
                    }
                    for from in 0..=length + 1 {
                        let expected = plain::end(&bytes, from, class);
                        assert_eq!(fast(&bytes, from), expected, "{name}: {bytes:?} from {from}");
                    }
                }
            }
        }
    }
}
