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
    #[allow(clippy::len_without_is_empty)]
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
}
