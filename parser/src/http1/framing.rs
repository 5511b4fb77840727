//! How long a body is: the one place that decides it.
//!
//! Owns Content-Length, Transfer-Encoding and RFC 9112 6.3, which request smuggling attacks. Stricter than
//! the RFC wherever it leaves a choice: a message that two readers could frame differently is refused.
//!
//! | Transfer-Encoding | Content-Length | verdict |
//! | --- | --- | --- |
//! | absent | absent | request: no body; response: until close |
//! | absent | one run of digits | that many bytes |
//! | absent | twice, a list, a sign, not digits | refused, even if equal |
//! | `chunked` | absent | chunked; in HTTP/1.0 refused |
//! | any | any | both at once: refused |
//! | other codings, then `chunked` | absent | refused with 501 |
//! | `chunked` twice or not last | absent | refused |
//!
//! A response to HEAD and one with 1xx, 204 or 304 has no body whatever its fields say, but fields that
//! break a rule above are refused all the same.

use super::head::{Method, Version};
use crate::{Malformed, scan};

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// The chunked coding; see [`super::ChunkDecoder`].
    Chunked,
    /// All bytes until the connection closes; responses only.
    UntilClose,
}

impl Framing {
    /// Refuses a body whose declared length is above `bound` bytes; an undeclared one must be counted.
    pub fn within(self, bound: u64) -> Result<(), Malformed> {
        match self {
            Framing::Length(length) if length > bound => Err(Malformed::BodyTooLarge),
            _ => Ok(()),
        }
    }
}

/// What a head said of its body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BodyFields {
    length: Option<u64>,
    codings: Codings,
}

/// The transfer codings seen so far, over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Codings {
    #[default]
    Absent,
    /// Only codings other than `chunked`.
    Unknown,
    /// `chunked` alone.
    Chunked,
    /// Other codings, then `chunked`.
    UnknownThenChunked,
}

impl BodyFields {
    pub(super) fn note_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let length = digits(value)?;
        match self.length.replace(length) {
            Some(_) => Err(Malformed::LengthTwice),
            None => Ok(()),
        }
    }

    pub(super) fn note_codings(&mut self, value: &[u8]) -> Result<(), Malformed> {
        // What nearly every message says; the loop would come to the same.
        if self.codings == Codings::Absent && value.eq_ignore_ascii_case(b"chunked") {
            self.codings = Codings::Chunked;
            return Ok(());
        }
        for coding in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.codings = self.codings.then(coding)?;
        }
        Ok(())
    }

    /// RFC 9112 6.3 for a request.
    pub(super) fn of_request(self, version: Version) -> Result<Framing, Malformed> {
        match (self.chunked(version)?, self.length) {
            (true, _) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::None),
        }
    }

    /// RFC 9112 6.3 for a response with `status` to a request with `method`.
    pub(super) fn of_response(
        self,
        version: Version,
        status: u16,
        method: Method,
    ) -> Result<Framing, Malformed> {
        let chunked = self.chunked(version)?;
        if method == Method::Head || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Framing::None);
        }
        match (chunked, self.length) {
            (true, _) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::UntilClose),
        }
    }

    fn chunked(self, version: Version) -> Result<bool, Malformed> {
        if self.codings == Codings::Absent {
            return Ok(false);
        }
        if self.length.is_some() {
            return Err(Malformed::LengthAndCoding);
        }
        if version == Version::Http10 {
            return Err(Malformed::CodingInHttp10);
        }
        match self.codings {
            Codings::Chunked => Ok(true),
            Codings::UnknownThenChunked => Err(Malformed::CodingUnknown),
            Codings::Absent | Codings::Unknown => Err(Malformed::CodingNotChunked),
        }
    }
}

impl Codings {
    fn then(self, coding: &[u8]) -> Result<Codings, Malformed> {
        if coding.is_empty() || !coding.iter().all(|&byte| scan::is_token(byte)) {
            return Err(Malformed::CodingSyntax);
        }
        match (self, coding.eq_ignore_ascii_case(b"chunked")) {
            (Codings::Chunked | Codings::UnknownThenChunked, _) => Err(Malformed::ChunkedNotLast),
            (Codings::Absent, true) => Ok(Codings::Chunked),
            (Codings::Unknown, true) => Ok(Codings::UnknownThenChunked),
            (_, false) => Ok(Codings::Unknown),
        }
    }
}

/// `1*DIGIT` of RFC 9110 8.6.
fn digits(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::LengthNotDigits);
    }
    value
        .iter()
        .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(Malformed::LengthOverflow)
}
