//! ZMTP 3.1 without I/O: the SUB and DEALER ends of a connection to an engine's sockets.
//!
//! Owns greeting, NULL handshake, frames, commands and heartbeats ([ZMTP 3.1, RFC 37](https://rfc.zeromq.org/spec/37/);
//! 3.0 is RFC 23). Must never read a socket or a clock: bytes and times are arguments. For any input, split in
//! any way, the messages and the verdict are the same, nothing panics, and what a peer can make us hold is
//! bounded by [`Limits`].
//!
//! ```
//! use warmpath_events::zmtp::{Connection, Limits, Role};
//!
//! let now = 0; // nanoseconds of a monotonic clock
//! let mut ours = Connection::new(Role::Sub(Vec::new()), Limits::default(), now);
//! assert_eq!(ours.output().len(), 64); // the greeting: to be written to the socket
//! assert!(ours.receive(now, b"HTTP/1.1 400 Bad Request", &mut |_| ()).is_err());
//! ```

mod command;
mod connection;
mod frame;
mod greeting;

pub use connection::{Connection, NotReady, Role};

use warmpath_core::{Nanos, SECOND};

/// What one peer may make us hold. A peer that passes a bound is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one frame's body.
    pub frame_bytes: u64,
    /// Frames of one message.
    pub frames: usize,
    /// Bytes of all bodies of one message.
    pub message_bytes: u64,
    /// Bytes of one command's body.
    pub command_bytes: u64,
    /// Bytes that may wait for a socket that takes nothing before answers to heartbeats count as a flood.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes: 64 << 20,
            frames: 16,
            message_bytes: (64 << 20) + (64 << 10),
            command_bytes: 64 << 10,
            output_bytes: 64 << 10,
        }
    }
}

/// How often a 3.1 peer is asked for a sign of life.
pub const PING_EVERY: Nanos = 5 * SECOND;
/// How long a 3.1 peer, or any peer before the handshake's end, may be silent.
pub const DEAD_AFTER: Nanos = 15 * SECOND;

/// Why a connection must be closed. The first one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The first ten bytes are not a ZMTP signature.
    Signature,
    /// A major version below 3.
    Version(u8),
    /// A security mechanism other than NULL.
    Mechanism,
    /// Reserved bits of a frame's flags, or a command that claims more frames.
    Flags,
    /// A frame or command over its bound.
    TooLong,
    /// A message over its bound of frames or bytes.
    TooLarge,
    /// A message before the handshake's end.
    Early,
    /// A command that breaks its grammar or comes out of turn.
    Command,
    /// A socket type that does not talk to ours.
    SocketType,
    /// The peer refused the handshake with an ERROR command.
    Refused,
    /// Silence beyond [`DEAD_AFTER`].
    Silent,
    /// Heartbeats sent faster than their answers are taken.
    Flood,
}

/// A message as it came: one or more frames.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a mut Vec<u8>,
    ends: &'a [usize],
}

impl<'a> Message<'a> {
    /// From all bodies in a row and the end of each.
    pub(crate) fn new(bytes: &'a mut Vec<u8>, ends: &'a [usize]) -> Self {
        Message { bytes, ends }
    }

    /// How many frames it has, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a message has at least one frame")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The body of a frame, counted from 0.
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = self.place(index)?;
        self.bytes.get(start..end)
    }

    /// All bodies in order.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.frame(index))
    }

    /// Where in all bytes a frame begins and ends.
    pub(crate) fn place(&self, index: usize) -> Option<(usize, usize)> {
        let end = *self.ends.get(index)?;
        Some((index.checked_sub(1).map_or(0, |before| self.ends[before]), end))
    }

    /// All bodies in a row, to be taken by whoever keeps a long message.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
