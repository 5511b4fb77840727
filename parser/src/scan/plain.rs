//! The byte classes, by their definition.
//!
//! Owns what a token, a field value, a request-target and a JSON string may hold. It must never be clever:
//! it is the oracle of `simd`.

/// `tchar` of RFC 9110 5.6.2.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Field value bytes of RFC 9110 5.5: HTAB, SP, VCHAR, obs-text.
#[inline]
pub(crate) fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// Request-target bytes: VCHAR without `#`. Wider than RFC 3986 by the characters that clients send
/// unescaped (`"<>\^{|}` and the grave accent); none of them can end a line or a target.
#[inline]
pub(crate) fn is_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// Bytes inside a JSON string that need no attention: all but `"`, `\` and controls (RFC 8259 7).
#[inline]
pub(crate) fn is_string(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// First offset at or after `from` whose byte is not in `class`; the length if there is none.
#[inline]
pub(super) fn end(bytes: &[u8], from: usize, class: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from.min(bytes.len()) + rest.iter().position(|&byte| !class(byte)).unwrap_or(rest.len())
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric()
            || matches!(
                c,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};
