//! The text of a JSON string.
//!
//! Owns unescaping (RFC 8259 7). It must never split a character, and a surrogate without its partner,
//! which names no character, becomes U+FFFD.

use super::peek::{Kind, Value};

/// Pushes the text of a string value; false, and nothing pushed, if the value is not a string.
pub fn text(body: &[u8], value: Value, out: &mut Vec<u8>) -> bool {
    prefix_text(body, value, usize::MAX, out)
}

/// Pushes at most the first `limit` bytes of a string's text, never part of a character; false, and nothing
/// pushed, if the value is not a string.
pub fn prefix_text(body: &[u8], value: Value, limit: usize, out: &mut Vec<u8>) -> bool {
    if !matches!(value.kind, Kind::String { .. }) {
        return false;
    }
    unescape(value.inner().of(body), limit, out);
    true
}

/// Unescapes what stands between the quotes of a valid string.
fn unescape(inner: &[u8], limit: usize, out: &mut Vec<u8>) {
    let mut left = limit;
    let mut rest = inner;
    loop {
        let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (plain, escaped) = rest.split_at_checked(run).unwrap_or((rest, b""));
        let fitting = whole_characters(plain, left);
        out.extend_from_slice(fitting);
        left -= fitting.len();
        if fitting.len() < plain.len() || escaped.is_empty() {
            return;
        }
        let (character, after) = escape(escaped);
        if character.len_utf8() > left {
            return;
        }
        left -= character.len_utf8();
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = after;
    }
}

/// Whether what stands between the quotes of a valid string unescapes to `text`.
pub(super) fn means(inner: &[u8], text: &str) -> bool {
    let mut left = text.as_bytes();
    let mut rest = inner;
    loop {
        let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (plain, escaped) = rest.split_at_checked(run).unwrap_or((rest, b""));
        let Some(after_plain) = left.strip_prefix(plain) else { return false };
        if escaped.is_empty() {
            return after_plain.is_empty();
        }
        let (character, after) = escape(escaped);
        let Some(after_character) = after_plain.strip_prefix(character.encode_utf8(&mut [0; 4]).as_bytes())
        else {
            return false;
        };
        (left, rest) = (after_character, after);
    }
}

/// The longest beginning of at most `limit` bytes that ends between characters.
fn whole_characters(text: &[u8], limit: usize) -> &[u8] {
    let mut end = limit.min(text.len());
    while end > 0 && text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The character of the escape at the front, and what follows it.
fn escape(escaped: &[u8]) -> (char, &[u8]) {
    let (mark, after) = match escaped {
        [b'\\', mark, after @ ..] => (*mark, after),
        _ => return (char::REPLACEMENT_CHARACTER, b""),
    };
    let character = match mark {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(after),
        other => char::from(other),
    };
    (character, after)
}

/// The character of four hexadecimal digits, or of a pair of surrogates.
fn unicode(digits: &[u8]) -> (char, &[u8]) {
    let Some((unit, after)) = code_unit(digits) else { return (char::REPLACEMENT_CHARACTER, b"") };
    if let Some(character) = char::from_u32(unit) {
        return (character, after);
    }
    if let (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, after_pair))) =
        (unit, after.strip_prefix(b"\\u").and_then(code_unit))
    {
        let scalar = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        return (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), after_pair);
    }
    (char::REPLACEMENT_CHARACTER, after)
}

fn code_unit(digits: &[u8]) -> Option<(u32, &[u8])> {
    let (four, after) = digits.split_at_checked(4)?;
    let unit = u32::from_str_radix(std::str::from_utf8(four).ok()?, 16).ok()?;
    Some((unit, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(inner: &str, limit: usize) -> String {
        let mut out = Vec::new();
        unescape(inner.as_bytes(), limit, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes() {
        assert_eq!(plain(r#"a\"\\\/\b\f\n\r\t\u0041z"#, usize::MAX), "a\"\\/\u{8}\u{c}\n\r\tAz");
        assert_eq!(plain(r"\ud83d\ude00!", usize::MAX), "\u{1f600}!");
    }

    #[test]
    fn meaning_is_equality_of_the_unescaped_text() {
        for inner in [
            r"model",
            r"\u006dodel",
            r"m\u006Fdel",
            r"mode\u006c",
            r"",
            r"model\n",
            r"mode",
            r"modell",
            r"\ud83d\ude00",
        ] {
            for text in ["model", "", "model\n", "mode", "modell", "\u{1f600}", "x"] {
                assert_eq!(means(inner.as_bytes(), text), plain(inner, usize::MAX) == text, "{inner} {text}");
            }
        }
    }

    #[test]
    fn lone_surrogates_become_the_replacement_character() {
        assert_eq!(plain(r"\ud83dx", usize::MAX), "\u{fffd}x");
        assert_eq!(plain(r"\ude00\ud83d", usize::MAX), "\u{fffd}\u{fffd}");
        assert_eq!(plain(r"\ud83d\u0041", usize::MAX), "\u{fffd}A");
        assert_eq!(plain(r"\ud83d\ud83d\ude00", usize::MAX), "\u{fffd}\u{1f600}");
    }

    #[test]
    fn every_limit_gives_the_longest_beginning_that_fits() {
        let inner = "aä\\u00e4€\\u20ac\u{1f600}\\ud83d\\ude00\\n.";
        let whole = plain(inner, usize::MAX);
        for limit in 0..=whole.len() + 1 {
            let mut end = limit.min(whole.len());
            while !whole.is_char_boundary(end) {
                end -= 1;
            }
            assert_eq!(plain(inner, limit), whole[..end], "{limit}");
        }
    }
}
