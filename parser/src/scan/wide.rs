//! The byte classes, 16 bytes at a time.
//!
//! Owns the fast twin of `plain`: fixed-width loops that the compiler vectorises on any target, so that no
//! `unsafe` is needed. It must never decide anything that `plain` does not.

use super::plain;

const BLOCK: usize = 16;

/// End of a run of token bytes.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    // Letters, digits and the hyphen are nearly every name; the rest is left to the table.
    match block(bytes, from) {
        Some(first) => match first_set(lanes::not_plain_name(first)) {
            Some(at) if !plain::is_token(first[at]) => from + at,
            Some(at) => plain::end(bytes, from + at, plain::is_token),
            None => plain::end(bytes, from + BLOCK, plain::is_token),
        },
        None => plain::end(bytes, from, plain::is_token),
    }
}

/// End of a run of field value bytes.
#[inline]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, lanes::not_value, plain::is_value)
}

/// End of a run of request-target bytes.
#[inline]
pub(crate) fn target_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, lanes::not_target, plain::is_target)
}

/// End of a run of JSON string bytes that need no attention.
#[inline]
pub(crate) fn string_end(bytes: &[u8], from: usize) -> usize {
    end(bytes, from, lanes::not_string, plain::is_string)
}

#[inline(always)]
fn end(
    bytes: &[u8],
    from: usize,
    outside: impl Fn(&[u8; BLOCK]) -> u128,
    class: impl Fn(u8) -> bool,
) -> usize {
    let mut at = from;
    while let Some(lanes) = block(bytes, at) {
        if let Some(lane) = first_set(outside(lanes)) {
            return at + lane;
        }
        at += BLOCK;
    }
    plain::end(bytes, at, class)
}

#[inline(always)]
fn block(bytes: &[u8], at: usize) -> Option<&[u8; BLOCK]> {
    bytes.get(at..)?.first_chunk()
}

/// The first lane whose byte is set in a mask of 0x00 and 0xff bytes.
#[inline(always)]
fn first_set(mask: u128) -> Option<usize> {
    let (low, high) = (mask as u64, (mask >> 64) as u64);
    match (low | high != 0, low != 0) {
        (false, _) => None,
        (true, true) => Some(low.trailing_zeros() as usize / 8),
        (true, false) => Some(high.trailing_zeros() as usize / 8 % 8 + 8),
    }
}

/// One mask byte for each byte outside a class: loops without branches over a fixed width, which the
/// compiler turns into vector compares.
mod lanes {
    use super::BLOCK;

    #[inline(always)]
    fn mask(block: &[u8; BLOCK], outside: impl Fn(u8) -> bool) -> u128 {
        let mut mask = [0u8; BLOCK];
        for (out, &byte) in mask.iter_mut().zip(block) {
            *out = u8::from(outside(byte)).wrapping_neg();
        }
        u128::from_le_bytes(mask)
    }

    #[inline(always)]
    pub(super) fn not_plain_name(block: &[u8; BLOCK]) -> u128 {
        mask(block, |byte| {
            let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
            let digit = byte.wrapping_sub(b'0') < 10;
            !(letter | digit | (byte == b'-'))
        })
    }

    #[inline(always)]
    pub(super) fn not_value(block: &[u8; BLOCK]) -> u128 {
        mask(block, |byte| ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f))
    }

    #[inline(always)]
    pub(super) fn not_target(block: &[u8; BLOCK]) -> u128 {
        mask(block, |byte| (byte.wrapping_sub(0x21) > 0x7e - 0x21) | (byte == b'#'))
    }

    #[inline(always)]
    pub(super) fn not_string(block: &[u8; BLOCK]) -> u128 {
        mask(block, |byte| (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
    }
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
        for (name, wide, class) in TWINS {
            for length in 0..50 {
                for byte in 0..=255u8 {
                    let at = (byte as usize * 7) % (length + 1);
                    let mut bytes = vec![b'a'; length];
                    if let Some(slot) = bytes.get_mut(at) {
                        *slot = byte;
                    }
                    for from in 0..=length + 1 {
                        let expected = plain::end(&bytes, from, class);
                        assert_eq!(wide(&bytes, from), expected, "{name}: {bytes:?} from {from}");
                    }
                }
            }
        }
    }
}
