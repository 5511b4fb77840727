//! What the known fields of a head say, gathered line by line.
//!
//! Owns Host, Connection and Expect; hands Content-Length and Transfer-Encoding to `framing`. It must
//! never decide how long a body is.

use super::field::Field;
use super::framing::BodyFields;
use super::head::Version;
use super::host;
use crate::{Malformed, Span, scan};

/// What the Connection lines of a head say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// `close` is listed.
    pub close: bool,
    /// `keep-alive` is listed.
    pub keep_alive: bool,
    /// `upgrade` is listed.
    pub upgrade: bool,
    /// Names that are not `close`, `keep-alive` or `upgrade` are listed: those fields must be removed.
    pub names_fields: bool,
}

impl ConnectionFacts {
    /// Whether the sender lets the connection live on after this message (RFC 9112 9.3).
    #[inline]
    pub fn persists(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    fn note(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return Ok(());
        }
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else if !option.is_empty() {
                self.names_fields = true;
                listable(option)?;
            }
        }
        Ok(())
    }
}

/// Removing what Connection lists must not remove what frames, routes or authenticates the message.
fn listable(option: &[u8]) -> Result<(), Malformed> {
    if !option.iter().all(|&byte| scan::is_token(byte)) {
        return Err(Malformed::ConnectionSyntax);
    }
    if Field::of(option).is_end_to_end() {
        return Err(Malformed::ConnectionNamesEndToEnd);
    }
    Ok(())
}

/// Whether a name is as long as `content-length` or `transfer-encoding` and begins with the same letter.
#[inline(always)]
fn may_imitate(name: &[u8]) -> bool {
    matches!((name.len(), name.first()), (14, Some(b'C' | b'c')) | (17, Some(b'T' | b't')))
}

/// Gateways of the CGI kind hand `_` and `-`, some of them any mark, on as the same byte, so a framing field
/// spelled with another mark would be read behind this proxy and not by it.
fn undisguised(name: &[u8]) -> Result<(), Malformed> {
    let imitates = |framing: &[u8]| {
        name.len() == framing.len()
            && name.iter().zip(framing).all(|(byte, like)| {
                byte.eq_ignore_ascii_case(like) || (*like == b'-' && !byte.is_ascii_alphanumeric())
            })
    };
    if imitates(b"content-length") || imitates(b"transfer-encoding") {
        return Err(Malformed::NameInDisguise);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub(super) body: BodyFields,
    pub(super) connection: ConnectionFacts,
    pub(super) host: Option<Span>,
    pub(super) expect_continue: bool,
}

impl Facts {
    /// Takes in one line of `buf`.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        field: Field,
        name: Span,
        value: Span,
        buf: &[u8],
    ) -> Result<(), Malformed> {
        match field {
            Field::Other if may_imitate(name.of(buf)) => undisguised(name.of(buf)),
            Field::ContentLength
            | Field::TransferEncoding
            | Field::Connection
            | Field::Host
            | Field::Expect => self.note_known(field, value, buf),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn note_known(&mut self, field: Field, span: Span, buf: &[u8]) -> Result<(), Malformed> {
        let value = span.of(buf);
        match field {
            Field::ContentLength => self.body.note_length(value),
            Field::TransferEncoding => self.body.note_codings(value),
            Field::Connection => self.connection.note(value),
            Field::Host => self.note_host(span, value),
            Field::Expect => self.note_expect(value),
            _ => Ok(()),
        }
    }

    fn note_host(&mut self, span: Span, value: &[u8]) -> Result<(), Malformed> {
        if self.host.replace(span).is_some() {
            return Err(Malformed::HostTwice);
        }
        host::check(value).ok_or(Malformed::HostInvalid)
    }

    fn note_expect(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Malformed::ExpectUnknown);
        }
        self.expect_continue = true;
        Ok(())
    }
}
