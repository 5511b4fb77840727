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
    XDataParallelRank = "x-data-parallel-rank",
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
    #[inline(always)]
    pub fn of(name: &[u8]) -> Field {
        let Some(bucket) = BUCKETS.get(name.len()) else { return Field::Other };
        let ends = ends(name);
        for (known, field) in
            TABLE.get(usize::from(bucket.first)..usize::from(bucket.end)).unwrap_or_default()
        {
            if known.ends == ends && (is_all_ends(name) || known.name.as_bytes().eq_ignore_ascii_case(name)) {
                return *field;
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
pub(crate) const LONGEST: usize = 20;

/// A name and what tells it from nearly all others of its length.
#[derive(Clone, Copy)]
struct Known {
    ends: Ends,
    name: &'static str,
}

/// The first and the last bytes of a name with bit 5 set, which folds the case of letters. For token bytes
/// that is exact on the letters and the hyphen of the table: no other token byte folds onto one of them.
type Ends = (u64, u64);

const FOLD: u64 = 0x2020_2020_2020_2020;

#[inline(always)]
const fn ends(name: &[u8]) -> Ends {
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first) | FOLD, u64::from_le_bytes(*last) | FOLD);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first) as u64, u32::from_le_bytes(*last) as u64);
        return (first | FOLD, last | FOLD);
    }
    (0, 0)
}

/// Whether the ends are the whole name, so that equal ends prove equal names of the same length.
#[inline(always)]
fn is_all_ends(name: &[u8]) -> bool {
    matches!(name.len(), 4..=16)
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    first: u8,
    end: u8,
}

/// The table in order of length, so that a name meets only those of its own length.
static TABLE: [(Known, Field); NAMES.len()] = {
    let mut table = [(Known { ends: (0, 0), name: "" }, Field::Other); NAMES.len()];
    let mut filled = 0;
    let mut length = 0;
    while length <= LONGEST {
        let mut at = 0;
        while at < NAMES.len() {
            let name = NAMES[at].0;
            if name.len() == length {
                table[filled] = (Known { ends: ends(name.as_bytes()), name }, NAMES[at].1);
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
