//! `uri-host [ ":" port ]` of RFC 9110 7.2.
//!
//! Owns the check of an authority, in Host and in an absolute-form target. It must never resolve or
//! compare names.

/// Whether `authority` is a non-empty host with an optional port; user information is refused.
pub(super) fn check(authority: &[u8]) -> Option<()> {
    let (host, port) = match authority.strip_prefix(b"[") {
        Some(rest) => split_literal(rest)?,
        None => split_name(authority)?,
    };
    (!host.is_empty() && is_port(port)).then_some(())
}

/// The address between the brackets and what follows the colon.
fn split_literal(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let close = memchr::memchr(b']', rest)?;
    let (address, after) = (rest.get(..close)?, rest.get(close + 1..)?);
    let port = match after {
        [] => after,
        [b':', port @ ..] => port,
        _ => return None,
    };
    is_address(address).then_some((address, port))
}

/// An IPv6 address, or the `v1.x` form of RFC 3986 3.2.2. Zone identifiers are refused.
fn is_address(address: &[u8]) -> bool {
    match std::str::from_utf8(address) {
        Ok(text) => text.parse::<std::net::Ipv6Addr>().is_ok(),
        Err(_) => false,
    }
}

fn split_name(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let plain = authority.iter().position(|&byte| !PLAIN[usize::from(byte)]).unwrap_or(authority.len());
    let (name, rest) = authority.split_at_checked(plain)?;
    match rest {
        [] => Some((name, rest)),
        [b':', port @ ..] => Some((name, port)),
        _ => split_reg_name(authority),
    }
}

#[cold]
fn split_reg_name(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len());
    let (name, port) = authority.split_at_checked(end)?;
    is_reg_name(name).then_some((name, port.get(1..).unwrap_or_default()))
}

/// What nearly every host is made of.
static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
        byte += 1;
    }
    table
};

/// `reg-name`: unreserved, sub-delims and percent-encoded bytes.
fn is_reg_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            [byte, after @ ..] if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte) => after,
            _ => return false,
        }
    }
}

/// `*DIGIT`, not above 65535. Empty is allowed (RFC 3986 3.2.3).
fn is_port(port: &[u8]) -> bool {
    port.len() <= 5
        && port.iter().all(u8::is_ascii_digit)
        && port.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0')) <= 65535
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for good in
            ["a", "a.b-c_d:80", "127.0.0.1:8080", "[::1]", "[::1]:443", "a:", "a%2e", "a,b", "x:65535"]
        {
            assert!(check(good.as_bytes()).is_some(), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "u@a",
            "a:x",
            "a:65536",
            "a:1:2",
            "[::1",
            "[]",
            "[::1]80",
            "[::1%25eth0]",
            "a%2",
            "a?b",
            "a#b",
            "http://a",
            "a\u{e4}",
            "[g::]",
            "a:-1",
            "a:123456",
        ] {
            assert!(check(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
