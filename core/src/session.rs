//! Which conversation a request belongs to. Owns the forms of `session_header_name` and what becomes of a key; must
//! never take an id that is made anew for each request for one of a conversation.
//!
//! Where the rule names nothing, the key is `X-Conversation-ID`, else `X-Session-ID`, else the body's `user`. Ids that
//! begin with `auto-` are made by gateways for a request and count for nothing. (The loxilb AI gateway takes request and
//! trace ids for conversations, so that clients that have them lose their stickiness and fill its table.)

use crate::Nanos;
use std::net::{IpAddr, SocketAddr};
use xxhash_rust::xxh64::xxh64;

/// How long a session is kept without a request where the rule does not say: `pd_session_ttl_sec` 0.
pub const TTL_DEFAULT: Nanos = 300 * crate::SECOND;

/// Ids that gateways make begin so.
const MADE: &[u8] = b"auto-";

/// What a rule says of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// Where the key stands.
    pub source: SessionSource,
    /// `pd_session_ttl_sec`: how long a session is kept without a request.
    pub ttl: Nanos,
}

/// `session_header_name`: where the key of a session stands. Where a named one is not there, it is looked for as if
/// nothing was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSource {
    /// Nothing was named: conversation headers, then `user`.
    Conversation,
    /// Nothing was named with `sel` 3: the client's address, without port.
    ClientAddress,
    /// A header, by its whole name in any case.
    Header(String),
    /// `cookie:NAME`, to the letter.
    Cookie(String),
    /// `query:NAME`, to the letter, as it stands in the target.
    Query(String),
    /// `basic-auth`: the user of `Authorization: Basic`.
    BasicUser,
}

impl SessionSource {
    /// That of a `session_header_name` which is not empty; the problem with it else.
    pub fn parse(name: &str) -> Result<SessionSource, &'static str> {
        if name == "basic-auth" {
            return Ok(SessionSource::BasicUser);
        }
        let (kind, rest) = name.split_once(':').unwrap_or(("", name));
        let source = match kind {
            "" => SessionSource::Header(rest.to_string()),
            "cookie" => SessionSource::Cookie(rest.to_string()),
            "query" => SessionSource::Query(rest.to_string()),
            _ => return Err("neither a header's name nor one of its forms"),
        };
        let splits = kind == "query" && rest.contains('&');
        match rest.bytes().all(is_token) && !rest.is_empty() && !splits {
            true => Ok(source),
            false => Err("the name in it is none"),
        }
    }

    /// As in a rule's `session_header_name`.
    pub fn words(&self) -> String {
        match self {
            SessionSource::Conversation | SessionSource::ClientAddress => String::new(),
            SessionSource::Header(name) => name.clone(),
            SessionSource::Cookie(name) => format!("cookie:{name}"),
            SessionSource::Query(name) => format!("query:{name}"),
            SessionSource::BasicUser => "basic-auth".into(),
        }
    }

    /// Whether a key may stand in the body.
    pub fn reads_body(&self) -> bool {
        *self != SessionSource::ClientAddress
    }
}

/// RFC 9110 5.6.2; cookies have the same names (RFC 6265 4.1.1).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The key of a session of a service; `None` where `text` names none.
pub fn key(service: u32, text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let names = !text.is_empty() && !text.starts_with(MADE);
    names.then(|| xxh64(text, u64::from(service)))
}

/// The hash of a client's address and port, and of where it came to: the same for all requests of a connection.
pub fn client_hash(client: SocketAddr, vip: SocketAddr) -> u64 {
    let of = |address: SocketAddr, seed: u64| {
        let hash = match address.ip().to_canonical() {
            IpAddr::V4(ip) => xxh64(&ip.octets(), seed),
            IpAddr::V6(ip) => xxh64(&ip.octets(), seed),
        };
        xxh64(&address.port().to_le_bytes(), hash)
    };
    of(client, of(vip, 0))
}

/// The value of the cookie `name` in the value of a `Cookie` header (RFC 6265 4.2.1).
pub fn cookie<'a>(header: &'a [u8], name: &str) -> Option<&'a [u8]> {
    header.split(|byte| *byte == b';').find_map(|pair| value_of(pair.trim_ascii(), name))
}

/// The value of the parameter `name` in a query, without its question mark, as it stands there.
pub fn query<'a>(query: &'a [u8], name: &str) -> Option<&'a [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| value_of(pair, name))
}

fn value_of<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").filter(|value| !value.is_empty())
}

/// Puts the user of the value of an `Authorization` header into `out`; false where it is no `Basic` one (RFC 7617).
pub fn basic_user(header: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let Some((scheme, credentials)) = header.split_at_checked(6) else { return false };
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return false;
    }
    let (mut bits, mut count) = (0u32, 0u32);
    for byte in credentials.trim_ascii().iter().take_while(|byte| **byte != b'=') {
        let Some(digit) = base64_digit(*byte) else { return false };
        (bits, count) = (bits << 6 | digit, count + 6);
        if count >= 8 {
            count -= 8;
            match (bits >> count) as u8 {
                b':' => return !out.is_empty(),
                byte => out.push(byte),
            }
        }
    }
    false
}

fn base64_digit(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(digit.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_name() {
        let ok = |name| SessionSource::parse(name).unwrap();
        assert_eq!(ok("X-Conversation-Id"), SessionSource::Header("X-Conversation-Id".into()));
        assert_eq!(ok("cookie:sid"), SessionSource::Cookie("sid".into()));
        assert_eq!(ok("query:s"), SessionSource::Query("s".into()));
        assert_eq!(ok("basic-auth"), SessionSource::BasicUser);
        for name in ["X-Conversation-Id", "cookie:sid", "query:s", "basic-auth"] {
            assert_eq!(ok(name).words(), name);
        }
        for name in
            ["", "cookie:", "query:", "a b", "Cookie:sid", "header:x", "query:a=b", "query:a&", "x:", "ü"]
        {
            assert!(SessionSource::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_tell_services_and_texts_apart() {
        assert_eq!(key(1, b" alice "), key(1, b"alice"));
        assert_ne!(key(1, b"alice"), key(2, b"alice"));
        assert_ne!(key(1, b"alice"), key(1, b"bob"));
        for none in [&b""[..], b"  ", b"auto-7f", b" auto-"] {
            assert_eq!(key(1, none), None);
        }
    }

    #[test]
    fn a_connection_has_its_own_hash() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let hash = |client, vip| client_hash(at(client), at(vip));
        let own = hash("10.0.0.1:4000", "10.0.0.9:80");
        assert_eq!(own, hash("[::ffff:10.0.0.1]:4000", "10.0.0.9:80"), "one address, two spellings");
        for (client, vip) in [
            ("10.0.0.1:4001", "10.0.0.9:80"),
            ("10.0.0.2:4000", "10.0.0.9:80"),
            ("10.0.0.1:4000", "10.0.0.9:81"),
            ("[::1]:4000", "10.0.0.9:80"),
        ] {
            assert_ne!(own, hash(client, vip));
        }
    }

    #[test]
    fn cookies_and_parameters_are_found_by_their_whole_name() {
        assert_eq!(cookie(b"a=1; sid=x=y; b=2", "sid"), Some(&b"x=y"[..]));
        assert_eq!(cookie(b"xsid=1;sid2=2;SID=3;sid=;sid=4", "sid"), Some(&b"4"[..]));
        assert_eq!((cookie(b"", "sid"), cookie(b"sid", "sid"), cookie(b"; ;=", "sid")), (None, None, None));
        assert_eq!(query(b"a=1&s=a%20b&s=2", "s"), Some(&b"a%20b"[..]));
        assert_eq!((query(b"ss=1&s", "s"), query(b"", "s")), (None, None));
    }

    #[test]
    fn the_user_of_basic_credentials() {
        let mut out = Vec::new();
        // Of RFC 7617: Aladdin, with a password.
        assert!(basic_user(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", &mut out));
        assert_eq!(out, b"Aladdin");
        assert!(basic_user(b"bAsIc  YTo=", &mut out) && out == b"a");
        for other in
            [&b"Bearer QWxhZGRpbjpv"[..], b"Basic", b"", b"Basic QWxh*", b"Basic QWxhZGRpbg==", b"Basic Og=="]
        {
            assert!(!basic_user(other, &mut out), "{other:?}");
        }
    }
}
