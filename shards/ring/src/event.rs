//! What a driver tells a shard. Owns the closed list of outcomes; must never grow a callback.

use crate::{Held, Listener, Payload, Sock};
use std::fmt;
use std::net::SocketAddr;

/// The end, or one result, of an operation that a shard asked for.
#[derive(Debug)]
pub enum Event {
    /// A client connected. Receiving is not armed yet.
    Accepted {
        /// The listener it came to.
        listener: Listener,
        /// The new socket.
        sock: Sock,
        /// The client's address.
        peer: SocketAddr,
    },
    /// Accepting failed: descriptors used up, or the client had reset its connection before
    /// (`ECONNABORTED`). The driver goes on accepting, after a pause if needed.
    AcceptFailed {
        /// The listener concerned.
        listener: Listener,
        /// Why.
        error: Errno,
    },
    /// A listener is closed; its queue was empty.
    ListenerClosed {
        /// The listener; its handle may be reused from now on.
        listener: Listener,
    },
    /// A connection attempt ended.
    Connected {
        /// The socket that [`crate::Ring::connect`] gave.
        sock: Sock,
        /// Established, or why not.
        result: Result<(), Errno>,
    },
    /// Bytes arrived.
    Received {
        /// From where.
        sock: Sock,
        /// The buffer; never empty.
        buffer: Held,
    },
    /// The other side sent FIN. No more bytes will come.
    Ended {
        /// Which socket.
        sock: Sock,
    },
    /// Receiving failed: the connection is dead (reset, timed out).
    Failed {
        /// Which socket.
        sock: Sock,
        /// Why.
        error: Errno,
    },
    /// A send ended.
    Sent {
        /// On which socket.
        sock: Sock,
        /// The payload, given back for reuse. A held buffer in it is still held.
        payload: Payload,
        /// All of it was taken by the kernel, or why not.
        result: Result<(), Errno>,
    },
    /// Another thread woke this shard.
    Woken,
}

impl Event {
    /// The socket it is about; `None` for events of listeners and wakes.
    pub fn sock(&self) -> Option<Sock> {
        match self {
            Event::Accepted { sock, .. }
            | Event::Connected { sock, .. }
            | Event::Received { sock, .. }
            | Event::Ended { sock }
            | Event::Failed { sock, .. }
            | Event::Sent { sock, .. } => Some(*sock),
            Event::AcceptFailed { .. } | Event::ListenerClosed { .. } | Event::Woken => None,
        }
    }
}

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl From<rustix::io::Errno> for Errno {
    fn from(e: rustix::io::Errno) -> Self {
        Errno(e.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Self {
        Errno(e.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
