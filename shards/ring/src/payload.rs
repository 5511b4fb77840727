//! Bytes on their way out, and bytes just received. Owns who holds which buffer; must never copy.

use std::ops::Range;

/// A receive buffer with bytes in it, lent to the shard. Exactly one exists for a filled buffer: it is
/// given back by [`crate::Ring::release`], also when it came back inside a sent payload.
#[derive(Debug)]
#[must_use = "a held buffer must be released or sent"]
pub struct Held {
    pub(crate) id: u16,
    pub(crate) len: u32,
}

impl Held {
    /// Bytes in it, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// What one send carries: owned bytes, then a body. Either may be empty, not both.
#[derive(Debug, Default)]
pub struct Payload {
    /// Sent first; usually a message head.
    pub head: Vec<u8>,
    /// Sent after it.
    pub body: Body,
}

/// The second part of a payload.
#[derive(Debug, Default)]
pub enum Body {
    /// Nothing.
    #[default]
    None,
    /// A range of a receive buffer, sent from where it was received.
    Held {
        /// The buffer.
        buffer: Held,
        /// Which of its bytes.
        range: Range<u32>,
    },
    /// A range of owned bytes.
    Owned {
        /// The bytes.
        bytes: Vec<u8>,
        /// Which of them.
        range: Range<usize>,
    },
    /// Bytes that live for ever.
    Static(&'static [u8]),
}

impl Payload {
    /// Only a head.
    pub fn head(head: Vec<u8>) -> Payload {
        Payload { head, body: Body::None }
    }

    /// A range of a receive buffer, with nothing before it.
    pub fn held(buffer: Held, range: Range<u32>) -> Payload {
        Payload { head: Vec::new(), body: Body::Held { buffer, range } }
    }

    /// Bytes that it carries.
    pub fn len(&self) -> usize {
        self.head.len()
            + match &self.body {
                Body::None => 0,
                Body::Held { range, .. } => (range.end - range.start) as usize,
                Body::Owned { range, .. } => range.end - range.start,
                Body::Static(bytes) => bytes.len(),
            }
    }

    /// Whether it carries nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its two parts as slices; `held` tells the bytes of a held buffer.
    pub(crate) fn parts<'a>(&'a self, held: impl FnOnce(&Held) -> &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let body = match &self.body {
            Body::None => &[],
            Body::Held { buffer, range } => &held(buffer)[range.start as usize..range.end as usize],
            Body::Owned { bytes, range } => &bytes[range.clone()],
            Body::Static(bytes) => bytes,
        };
        (&self.head, body)
    }
}

/// What is left of two parts after `done` bytes of them were sent.
pub(crate) fn rest<'a>(parts: (&'a [u8], &'a [u8]), done: usize) -> (&'a [u8], &'a [u8]) {
    let (head, body) = parts;
    if done < head.len() { (&head[done..], body) } else { (&[], &body[done - head.len()..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_rest_cut_at_every_byte() {
        let payload =
            Payload { head: b"head".to_vec(), body: Body::Owned { bytes: b"xbodyx".to_vec(), range: 1..5 } };
        assert_eq!(payload.len(), 8);
        for done in 0..=payload.len() {
            let (head, body) = rest(payload.parts(|_| &[]), done);
            assert_eq!([head, body].concat(), b"headbody"[done..]);
        }
    }
}
