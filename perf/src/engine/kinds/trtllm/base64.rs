//! Base64 with padding (RFC 4648 4), for opaque states. Must never accept what is not its own form.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let group = |part: &[u8]| {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(part.get(at).copied().unwrap_or(0)));
        let digit = |at: usize| match at <= part.len() {
            true => char::from(DIGITS[(word >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(group).collect()
}

/// Reads bytes; `None` if the text is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    for group in text.as_bytes().chunks(4) {
        let padding = group.iter().rev().take_while(|digit| **digit == b'=').count();
        if padding > 2 {
            return None;
        }
        let value = |digit: &u8| DIGITS.iter().position(|own| own == digit);
        let word = group
            .iter()
            .take(4 - padding)
            .try_fold(0u32, |word, digit| Some(word << 6 | value(digit)? as u32))?;
        let bytes = (word << (6 * padding as u32)).to_be_bytes();
        out.extend_from_slice(bytes.get(1..4 - padding)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_standard_both_ways() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Z===", "====", "Zm9!", "Zm=v"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
