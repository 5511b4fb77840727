//! Token ids in a JSON array.
//!
//! Owns their reading, without a tree and without a copy of the text. What is no plain list of ids is refused
//! whole, never read in part.

use super::peek::{Kind, Value};

/// Pushes the ids of an array of whole numbers from 0 to 2^32 - 1, as `prompt` may be; false, and nothing
/// pushed, if the value is anything else: a list of lists, a fraction, an exponent, a negative zero.
///
/// `body` was peeked at, so the array is valid JSON.
pub fn token_ids(body: &[u8], value: Value, out: &mut Vec<u32>) -> bool {
    if value.kind != Kind::Array {
        return false;
    }
    let before = out.len();
    let is_list = read(value.raw.of(body), out);
    if !is_list {
        out.truncate(before);
    }
    is_list
}

/// Reads `[1, 2, 3]`; stops at the first byte that no list of ids has.
fn read(array: &[u8], out: &mut Vec<u32>) -> bool {
    let Some(inner) = array.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) else { return false };
    let mut id: u64 = 0;
    let mut digits = 0;
    let mut separated = true;
    for byte in inner {
        match byte {
            b'0'..=b'9' if separated || digits > 0 => {
                id = id * 10 + u64::from(byte - b'0');
                digits += 1;
                separated = false;
                if id > u64::from(u32::MAX) {
                    return false;
                }
            }
            b',' => {
                if digits > 0 {
                    out.push(id as u32);
                }
                (id, digits, separated) = (0, 0, true);
            }
            b' ' | b'\t' | b'\r' | b'\n' => {
                if digits > 0 {
                    out.push(id as u32);
                    (id, digits) = (0, 0);
                }
            }
            _ => return false,
        }
    }
    if digits > 0 {
        out.push(id as u32);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{JsonLimits, Member, Members, peek};

    fn ids(prompt: &str) -> Option<Vec<u32>> {
        let body = format!(r#"{{"model":"m","prompt":{prompt}}}"#);
        let mut members = Members::new();
        peek(body.as_bytes(), &mut members, JsonLimits::default()).expect("valid JSON");
        let mut out = vec![7];
        let read = token_ids(body.as_bytes(), members.get(Member::Prompt)?, &mut out);
        assert!(read || out == [7], "nothing is pushed of what is refused");
        read.then(|| out.split_off(1))
    }

    #[test]
    fn lists_of_ids_are_read_however_they_are_spaced() {
        assert_eq!(ids("[1,22,333]"), Some(vec![1, 22, 333]));
        assert_eq!(ids("[ 0 ,\t4294967295\r\n, 5]"), Some(vec![0, u32::MAX, 5]));
        assert_eq!(ids("[]"), Some(vec![]));
        assert_eq!(ids("[9 ]"), Some(vec![9]));
    }

    #[test]
    fn what_is_no_list_of_ids_is_refused_whole() {
        for other in [
            "[1,-2]",
            "[1,2.0]",
            "[1,2e3]",
            "[4294967296]",
            "[18446744073709551617]",
            "[[1,2],[3]]",
            "[\"1\"]",
        ] {
            assert_eq!(ids(other), None, "{other}");
        }
        for other in ["\"text\"", "7", "null", "{\"a\":1}", "[-0]", "[true]"] {
            assert_eq!(ids(other), None, "{other}");
        }
    }

    /// Against a full parser, over lists with a few odd elements.
    #[test]
    fn equal_to_a_full_parser() {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        for _ in 0..2_000 {
            let count = next() % 9;
            let element = |next: &mut dyn FnMut() -> u64| match next() % 40 {
                0 => "-1".to_string(),
                1 => "1.5".to_string(),
                2 => "99999999999".to_string(),
                _ => (next() % 200_000 * (next() % 3) * 9_000 % (1 << 32)).to_string(),
            };
            let list: Vec<String> = (0..count).map(|_| element(&mut next)).collect();
            let text = format!("[{}]", list.join([",", ", ", " ,\n"][(next() % 3) as usize]));
            let expected: Option<Vec<u32>> = serde_json::from_str(&text).ok();
            assert_eq!(ids(&text), expected, "{text}");
        }
    }
}
