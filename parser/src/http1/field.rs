//! The field names this proxy acts on.
//!
//! Owns one table from name to `Field`. Matching is exact but for the case of letters; a longer name that
//! begins like a known one is `Other`. It must never look at values.

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A field name this proxy acts on, or `Other`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Field {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)+
            /// Any other name.
            #[default]
            Other,
        }

        const NAMES: &[(&str, Field)] = &[$(($name, Field::$variant)),+];
    };
}

fields! {
    Host = "host",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Connection = "connection",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    Te = "te",
    Trailer = "trailer",
    Upgrade = "upgrade",
    Expect = "expect",
    ContentType = "content-type",
    XForwardedFor = "x-forwarded-for",
    XForwardedProto = "x-forwarded-proto",
    XForwardedHost = "x-forwarded-host",
    XForwardedPort = "x-forwarded-port",
    XRequestId = "x-request-id",
    XModel = "x-model",
    XConversationId = "x-conversation-id",
    XSessionId = "x-session-id",
    XApiKey = "x-api-key",
    Authorization = "authorization",
    Via = "via",
    MaxForwards = "max-forwards",
    Date = "date",
    Server = "server",
    ContentEncoding = "content-encoding",
    Cookie = "cookie",
    RetryAfter = "retry-after",
}

impl Field {
    /// The field whose name equals `name`, whatever the case of its letters.
    #[inline]
    pub fn of(name: &[u8]) -> Field {
        let key = Key::of(name);
        let bucket = BUCKETS.get(name.len()).copied().unwrap_or_default();
        let mut at = bucket.first;
        while at < bucket.end {
            match TABLE.get(usize::from(at)) {
                Some((known, field)) if *known == key => return *field,
                _ => at += 1,
            }
        }
        Field::Other
    }

    /// Fields of one hop, which a proxy consumes and never forwards (RFC 9110 7.6.1; `Keep-Alive`,
    /// `Proxy-*` by RFC 9110 11.7 and old practice). `TE: trailers` is the caller's to make anew.
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        use Field::*;
        const SET: u64 = Connection.bit()
            | KeepAlive.bit()
            | ProxyConnection.bit()
            | ProxyAuthenticate.bit()
            | ProxyAuthorization.bit()
            | Te.bit()
            | Trailer.bit()
            | TransferEncoding.bit()
            | Upgrade.bit();
        self.bit() & SET != 0
    }

    /// Fields that frame, route or authenticate a message, so that neither Connection nor a trailer may
    /// name them. All known ones but those of one hop and plain notes.
    pub(crate) fn is_end_to_end(self) -> bool {
        use Field::*;
        !self.is_hop_by_hop() && !matches!(self, Other | Date | Server | Via | RetryAfter)
    }

    #[inline]
    pub(super) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// The longest known name, in bytes.
pub(crate) const LONGEST: usize = 19;

/// A name of up to 24 bytes, folded to lower case by setting bit 5. For token bytes that is exact on the
/// letters and the hyphen of the table: no other token byte folds onto one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u64, u64, u64);

impl Key {
    #[inline(always)]
    fn of(name: &[u8]) -> Key {
        Key(word(name, 0), word(name, 8), word(name, 16))
    }
}

#[inline(always)]
const fn word(name: &[u8], from: usize) -> u64 {
    let Some((_, rest)) = name.split_at_checked(from) else { return 0 };
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*eight) | 0x2020_2020_2020_2020;
    }
    let mut word = 0;
    let mut at = 0;
    while at < rest.len() {
        word |= (rest[at] as u64 | 0x20) << (8 * at);
        at += 1;
    }
    word
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    first: u8,
    end: u8,
}

/// The table in order of length, so that a name meets only those of its own length.
static TABLE: [(Key, Field); NAMES.len()] = {
    let mut table = [(Key(0, 0, 0), Field::Other); NAMES.len()];
    let mut filled = 0;
    let mut length = 0;
    while length <= LONGEST {
        let mut at = 0;
        while at < NAMES.len() {
            let name = NAMES[at].0.as_bytes();
            if name.len() == length {
                table[filled] = (Key(word(name, 0), word(name, 8), word(name, 16)), NAMES[at].1);
                filled += 1;
            }
            at += 1;
        }
        length += 1;
    }
    table
};

static BUCKETS: [Bucket; LONGEST + 1] = {
    let mut buckets = [Bucket { first: 0, end: 0 }; LONGEST + 1];
    let mut filled = 0;
    let mut length = 0;
    while length <= LONGEST {
        buckets[length].first = filled;
        let mut at = 0;
        while at < NAMES.len() {
            if NAMES[at].0.len() == length {
                filled += 1;
            }
            at += 1;
        }
        buckets[length].end = filled;
        length += 1;
    }
    buckets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_and_never_by_prefix() {
        for (name, field) in NAMES {
            assert!(name.len() <= LONGEST);
            assert_eq!(Field::of(name.as_bytes()), *field);
            assert_eq!(Field::of(name.to_ascii_uppercase().as_bytes()), *field);
            assert_eq!(Field::of(format!("{name}-x").as_bytes()), Field::Other);
            assert_eq!(Field::of(&name.as_bytes()[1..]), Field::Other);
        }
        for other in
            ["", "x", "x-model-foo", "hos\u{4f}", "content_length", "content-lengt~", &"x".repeat(99)]
        {
            let expected = if other.eq_ignore_ascii_case("host") { Field::Host } else { Field::Other };
            assert_eq!(Field::of(other.as_bytes()), expected, "{other}");
        }
    }

    #[test]
    fn no_token_byte_folds_onto_another_name() {
        for (name, field) in NAMES {
            for at in 0..name.len() {
                for byte in (0..=255u8).filter(|&byte| crate::scan::is_token(byte)) {
                    let mut changed = name.as_bytes().to_vec();
                    changed[at] = byte;
                    let same = changed.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(Field::of(&changed) == *field, same, "{changed:?}");
                }
            }
        }
    }
}
