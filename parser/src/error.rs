//! Why bytes are refused: one variant for each rule.
//!
//! Owns the mapping from a rule to its status code, its RFC section and its sentence. It must never carry
//! bytes of the message, so that a fault can be logged and counted without care.

use std::fmt;

/// An HTTP/1.1 message that breaks a rule. The connection must be closed after the answer: where the
/// message ends is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// A line ends in LF without CR. Refused everywhere: a peer that disagrees could be desynchronised.
    BareLf,
    /// A CR is not followed by LF.
    BareCr,
    /// More than one empty line before the request line.
    EmptyLines,
    /// The method is empty or holds a byte that no token has.
    MethodNotToken,
    /// The method is longer than [`crate::http1::METHOD_BYTES`].
    MethodTooLong,
    /// CONNECT: this proxy opens no tunnels.
    MethodConnect,
    /// TRACE: it would echo credentials.
    MethodTrace,
    /// The request-target is empty: two spaces, or none, after the method.
    TargetEmpty,
    /// The request-target holds a control byte or one outside ASCII.
    TargetByte,
    /// The request-target holds `#`.
    TargetFragment,
    /// The request-target has no form that fits the method.
    TargetForm,
    /// The authority of an absolute-form target is empty, has user information or a bad port.
    TargetAuthority,
    /// The request-target is longer than the bound.
    TargetTooLong,
    /// The request line does not end in `HTTP/d.d`, or the status line does not begin so.
    VersionMalformed,
    /// A well-formed version other than 1.0 and 1.1.
    VersionUnsupported,
    /// The HTTP/2 connection preface.
    Http2Preface,
    /// Whitespace between the start line and the first field.
    SpaceBeforeFirstField,
    /// A field name is empty or holds a byte that no token has.
    NameNotToken,
    /// Whitespace between a field name and its colon.
    SpaceBeforeColon,
    /// A field name that is Content-Length or Transfer-Encoding for readers who take another mark, mostly `_`, for `-`.
    NameInDisguise,
    /// A field line continues on the next line (obs-fold).
    ObsFold,
    /// A field value holds NUL or another control byte.
    ValueByte,
    /// The head is longer than the bound.
    HeadTooLarge,
    /// More field lines than the bound.
    TooManyHeaders,
    /// HTTP/1.1 without Host.
    HostMissing,
    /// More than one Host.
    HostTwice,
    /// Host is not `uri-host [ ":" port ]`, or is empty.
    HostInvalid,
    /// Content-Length is not one run of digits.
    LengthNotDigits,
    /// Content-Length does not fit 64 bits.
    LengthOverflow,
    /// More than one Content-Length, even when equal: this proxy never folds them.
    LengthTwice,
    /// Transfer-Encoding is not a list of coding names.
    CodingSyntax,
    /// The last transfer coding is not `chunked`.
    CodingNotChunked,
    /// `chunked` appears twice, or before another coding.
    ChunkedNotLast,
    /// A transfer coding under `chunked` that this proxy does not decode.
    CodingUnknown,
    /// Transfer-Encoding together with Content-Length.
    LengthAndCoding,
    /// Transfer-Encoding in an HTTP/1.0 message.
    CodingInHttp10,
    /// Connection is not a list of tokens.
    ConnectionSyntax,
    /// Connection names a field meant for the origin (Host, Content-Length, Authorization, …).
    ConnectionNamesEndToEnd,
    /// Expect asks for something other than `100-continue`.
    ExpectUnknown,
    /// The status line has no three-digit code followed by a space or the line end.
    StatusMalformed,
    /// The status code is outside 100 to 599.
    StatusOutOfRange,
    /// 101 although no upgrade was asked for.
    SwitchingProtocols,
    /// A chunk size has no digits, or begins with a sign, a space or `0x`.
    ChunkSizeEmpty,
    /// A byte after the chunk size that is neither hexadecimal, `;` nor CR.
    ChunkSizeByte,
    /// A chunk size of more than 16 digits.
    ChunkSizeTooLong,
    /// A chunk line is longer than the bound.
    ChunkLineTooLong,
    /// Chunk extensions of one body add up to more than four chunk lines.
    ChunkExtensionsTooLong,
    /// A control byte in a chunk extension.
    ChunkExtensionByte,
    /// Chunk data is not followed by CRLF.
    ChunkDataEnd,
    /// The trailer section is longer than the bound.
    TrailerTooLarge,
    /// A trailer that frames, routes or authenticates a message.
    TrailerForbidden,
    /// A body longer than the bound.
    BodyTooLarge,
}

impl Malformed {
    /// Every rule, in the order of the declaration.
    pub const ALL: &'static [Malformed] = {
        use Malformed::*;
        &[
            BareLf,
            BareCr,
            EmptyLines,
            MethodNotToken,
            MethodTooLong,
            MethodConnect,
            MethodTrace,
            TargetEmpty,
            TargetByte,
            TargetFragment,
            TargetForm,
            TargetAuthority,
            TargetTooLong,
            VersionMalformed,
            VersionUnsupported,
            Http2Preface,
            SpaceBeforeFirstField,
            NameNotToken,
            SpaceBeforeColon,
            NameInDisguise,
            ObsFold,
            ValueByte,
            HeadTooLarge,
            TooManyHeaders,
            HostMissing,
            HostTwice,
            HostInvalid,
            LengthNotDigits,
            LengthOverflow,
            LengthTwice,
            CodingSyntax,
            CodingNotChunked,
            ChunkedNotLast,
            CodingUnknown,
            LengthAndCoding,
            CodingInHttp10,
            ConnectionSyntax,
            ConnectionNamesEndToEnd,
            ExpectUnknown,
            StatusMalformed,
            StatusOutOfRange,
            SwitchingProtocols,
            ChunkSizeEmpty,
            ChunkSizeByte,
            ChunkSizeTooLong,
            ChunkLineTooLong,
            ChunkExtensionsTooLong,
            ChunkExtensionByte,
            ChunkDataEnd,
            TrailerTooLarge,
            TrailerForbidden,
            BodyTooLarge,
        ]
    };

    /// The status code to answer a faulty *request* with. A faulty *response* is always 502.
    pub fn status(self) -> u16 {
        self.facts().0
    }

    /// The RFC section that the message breaks, or that lets a recipient set the bound.
    pub fn rule(self) -> &'static str {
        self.facts().1
    }

    /// The cause, in a few words.
    pub fn cause(self) -> &'static str {
        self.facts().2
    }

    fn facts(self) -> (u16, &'static str, &'static str) {
        use Malformed::*;
        match self {
            BareLf => (400, "RFC 9112 2.2", "a line ends in LF without CR"),
            BareCr => (400, "RFC 9112 2.2", "a CR is not followed by LF"),
            EmptyLines => (400, "RFC 9112 2.2", "more than one empty line before the request line"),
            MethodNotToken => (400, "RFC 9112 3.1", "the method is not a token"),
            MethodTooLong => (501, "RFC 9112 3", "the method is longer than any known one"),
            MethodConnect => (501, "RFC 9110 9.3.6", "CONNECT is not offered"),
            MethodTrace => (501, "RFC 9110 9.3.8", "TRACE is not offered"),
            TargetEmpty => (400, "RFC 9112 3.2", "the request-target is empty"),
            TargetByte => (400, "RFC 9112 3.2", "the request-target holds a byte that no URI has"),
            TargetFragment => (400, "RFC 9112 3.2", "the request-target holds a fragment"),
            TargetForm => (400, "RFC 9112 3.2", "the request-target does not fit the method"),
            TargetAuthority => (400, "RFC 9112 3.2.2", "the authority of the request-target is invalid"),
            TargetTooLong => (414, "RFC 9112 3", "the request-target is longer than the bound"),
            VersionMalformed => (400, "RFC 9112 2.3", "the protocol version is not HTTP/digit.digit"),
            VersionUnsupported => (505, "RFC 9110 15.6.6", "only HTTP/1.0 and HTTP/1.1 are spoken here"),
            Http2Preface => (505, "RFC 9113 3.4", "an HTTP/2 preface came to an HTTP/1.1 port"),
            SpaceBeforeFirstField => (400, "RFC 9112 2.2", "whitespace before the first field"),
            NameNotToken => (400, "RFC 9110 5.1", "a field name is not a token"),
            SpaceBeforeColon => (400, "RFC 9112 5.1", "whitespace between a field name and its colon"),
            NameInDisguise => {
                (400, "RFC 9112 11.2", "a field name imitates a framing field with another mark for -")
            }
            ObsFold => (400, "RFC 9112 5.2", "a field value is folded over lines"),
            ValueByte => (400, "RFC 9110 5.5", "a field value holds a control byte"),
            HeadTooLarge => (431, "RFC 6585 5", "the head is larger than the bound"),
            TooManyHeaders => (431, "RFC 6585 5", "more header fields than the bound"),
            HostMissing => (400, "RFC 9112 3.2", "an HTTP/1.1 request without Host"),
            HostTwice => (400, "RFC 9112 3.2", "more than one Host"),
            HostInvalid => (400, "RFC 9112 3.2", "Host is not a host and an optional port"),
            LengthNotDigits => (400, "RFC 9112 6.3", "Content-Length is not a decimal number"),
            LengthOverflow => (400, "RFC 9110 8.6", "Content-Length does not fit 64 bits"),
            LengthTwice => (400, "RFC 9112 6.3", "more than one Content-Length"),
            CodingSyntax => (400, "RFC 9112 6.1", "Transfer-Encoding is not a list of codings"),
            CodingNotChunked => (400, "RFC 9112 6.3", "the last transfer coding is not chunked"),
            ChunkedNotLast => (400, "RFC 9112 6.1", "chunked is applied twice or not last"),
            CodingUnknown => (501, "RFC 9112 6.1", "a transfer coding that is not supported"),
            LengthAndCoding => (400, "RFC 9112 6.1", "Transfer-Encoding together with Content-Length"),
            CodingInHttp10 => (400, "RFC 9112 6.1", "Transfer-Encoding in an HTTP/1.0 message"),
            ConnectionSyntax => (400, "RFC 9110 7.6.1", "Connection is not a list of tokens"),
            ConnectionNamesEndToEnd => (400, "RFC 9110 7.6.1", "Connection names an end-to-end field"),
            ExpectUnknown => (417, "RFC 9110 10.1.1", "an expectation other than 100-continue"),
            StatusMalformed => (400, "RFC 9112 4", "the status line has no three-digit code"),
            StatusOutOfRange => (400, "RFC 9110 15", "the status code is outside 100 to 599"),
            SwitchingProtocols => (400, "RFC 9110 15.2.2", "101 without a request to upgrade"),
            ChunkSizeEmpty => (400, "RFC 9112 7.1", "a chunk size does not begin with a digit"),
            ChunkSizeByte => (400, "RFC 9112 7.1", "a chunk size is followed by a stray byte"),
            ChunkSizeTooLong => (400, "RFC 9112 7.1", "a chunk size has more than 16 digits"),
            ChunkLineTooLong => (400, "RFC 9112 7.1.1", "a chunk line is longer than the bound"),
            ChunkExtensionsTooLong => (400, "RFC 9112 7.1.1", "too many bytes of chunk extensions"),
            ChunkExtensionByte => (400, "RFC 9112 7.1.1", "a control byte in a chunk extension"),
            ChunkDataEnd => (400, "RFC 9112 7.1", "chunk data is not followed by CRLF"),
            TrailerTooLarge => (431, "RFC 6585 5", "the trailer section is larger than the bound"),
            TrailerForbidden => (400, "RFC 9110 6.5.1", "a trailer that frames or routes the message"),
            BodyTooLarge => (413, "RFC 9110 15.5.14", "the body is larger than the bound"),
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, rule, cause) = self.facts();
        write!(f, "{cause} ({rule})")
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_an_error_status_a_section_and_its_own_sentence() {
        let mut sentences = std::collections::HashSet::new();
        for fault in Malformed::ALL {
            assert!((400..=505).contains(&fault.status()), "{fault:?}");
            assert!(fault.rule().starts_with("RFC "), "{fault:?}");
            assert!(sentences.insert(fault.to_string()), "{fault:?} repeats a sentence");
        }
        assert_eq!(
            *Malformed::ALL.last().unwrap() as usize + 1,
            Malformed::ALL.len(),
            "a variant is not in ALL"
        );
    }
}
