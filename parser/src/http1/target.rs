//! The request-target: which form it has and where its parts are.
//!
//! Owns RFC 9112 3.2. It must never change or normalise a path: the engine sees the client's bytes.

use super::head::Method;
use super::host;
use crate::{Malformed, Span, scan};

/// Parts of a target, as offsets into the same buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    pub(super) path: Span,
    pub(super) query: Span,
    /// Of an absolute-form only.
    pub(super) authority: Option<Span>,
}

/// Splits the target that `span` names in `buf`. All its bytes are VCHAR without `#`.
#[inline]
pub(super) fn split(buf: &[u8], span: Span, method: Method) -> Result<Target, Malformed> {
    match span.of(buf) {
        [b'/', ..] => Ok(origin(buf, span)),
        [b'*'] if method == Method::Options => Ok(Target { path: span, ..Target::default() }),
        target => absolute(buf, span, scheme_len(target).ok_or(Malformed::TargetForm)?),
    }
}

/// Splits path and query.
#[inline]
fn origin(buf: &[u8], span: Span) -> Target {
    let (path, query) = match scan::find(span.of(buf), b'?') {
        Some(mark) => {
            let mark = span.start as usize + mark;
            (Span::new(span.start as usize, mark), Span::new(mark + 1, span.end as usize))
        }
        None => (span, Span { start: span.end, end: span.end }),
    };
    Target { path, query, authority: None }
}

fn absolute(buf: &[u8], span: Span, scheme: usize) -> Result<Target, Malformed> {
    let start = span.start as usize + scheme;
    let rest = buf.get(start..span.end as usize).unwrap_or_default();
    let length = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = Span::new(start, start + length);
    host::check(authority.of(buf)).ok_or(Malformed::TargetAuthority)?;
    let parts = origin(buf, Span { start: authority.end, end: span.end });
    Ok(Target { authority: Some(authority), ..parts })
}

/// Length of `http://` or `https://`, whatever the case of its letters.
fn scheme_len(target: &[u8]) -> Option<usize> {
    let begins = |scheme: &str| {
        target.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes()))
    };
    ["http://", "https://"].into_iter().find(|scheme| begins(scheme)).map(str::len)
}
