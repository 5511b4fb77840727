//! Positions in the caller's buffer.
//!
//! Owns the one way this crate names bytes: a half-open range of 32-bit offsets. It must never hold a
//! reference, so that a head parsed from a buffer outlives a move of that buffer.

/// A half-open byte range `start..end` in a buffer that the caller keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset one past the last byte; never below `start` when made by this crate.
    pub end: u32,
}

impl Span {
    /// The range `start..end`. Offsets must fit 32 bits; every parser bounds its input below that.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        Span { start: narrow(start), end: narrow(end) }
    }

    /// The bytes this span names. Total: a span that does not fit `buf` is clamped to it.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        let end = (self.end as usize).min(buf.len());
        let start = (self.start as usize).min(end);
        buf.get(start..end).unwrap_or_default()
    }

    /// Length in bytes; zero for a reversed range.
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether the span names no byte.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The span as a `usize` range, for slicing.
    #[inline]
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[inline]
pub(crate) fn narrow(offset: usize) -> u32 {
    debug_assert!(u32::try_from(offset).is_ok(), "an offset past 4 GiB");
    offset as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_past_the_buffer_is_clamped() {
        assert_eq!(Span::new(1, 3).of(b"abcd"), b"bc");
        assert_eq!(Span::new(3, 9).of(b"abcd"), b"d");
        assert_eq!(Span::new(7, 9).of(b"abcd"), b"");
        assert_eq!(Span { start: 3, end: 1 }.of(b"abcd"), b"");
        assert_eq!(Span { start: 3, end: 1 }.len(), 0);
    }
}
