//! What the driver knows of one connection and one listener. Owns their state; must never touch the kernel.

use super::send::Sending;
use rustix::net::SocketAddrAny;
use std::os::fd::OwnedFd;

/// A connection, from accept or connect until the final completion of its last operation.
pub(crate) struct Conn {
    pub(crate) fd: OwnedFd,
    /// Operations in the kernel or in the submission queue, cancels included.
    pub(crate) in_flight: u8,
    /// The shard wants bytes.
    pub(crate) wanted: bool,
    /// Where the receive operation stands.
    pub(crate) receive: Receive,
    /// FIN or an error came: receiving is over.
    pub(crate) ended: bool,
    /// The shard has forgotten it: no event may name it.
    pub(crate) closing: bool,
    /// FIN is to be sent when the send in flight has ended.
    pub(crate) shutdown_due: bool,
    /// Where the connection attempt goes, until it has ended; the kernel reads it.
    pub(crate) connecting: Option<Box<SocketAddrAny>>,
    pub(crate) sending: Option<Sending>,
}

/// Where a receive operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receive {
    /// Not in the kernel.
    Idle,
    /// In the kernel, delivering.
    Armed,
    /// In the kernel, a cancel is on its way to it.
    Cancelling,
    /// On the wait list for buffers.
    Starved,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd,
            in_flight: 0,
            wanted: false,
            receive: Receive::Idle,
            ended: false,
            closing: false,
            shutdown_due: false,
            connecting: None,
            sending: None,
        }
    }

    /// Whether a receive operation should go to the kernel now.
    pub(crate) fn may_arm(&self) -> bool {
        let open = !self.ended && !self.closing && self.connecting.is_none();
        self.wanted && open && self.receive == Receive::Idle
    }
}

/// A listener.
pub(crate) struct Listening {
    pub(crate) fd: OwnedFd,
    /// The accept operation is in the kernel.
    pub(crate) armed: bool,
    /// Operations in flight, cancels included.
    pub(crate) in_flight: u8,
    /// Being closed: when nothing is in flight any more, its queue is emptied and it goes.
    pub(crate) closing: bool,
    /// When to accept again after descriptors ran out, in the clock's nanoseconds.
    pub(crate) retry_at: Option<u64>,
}
