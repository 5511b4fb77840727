//! The seam between a shard and the kernel, and its three drivers.
//!
//! Owns: sockets by slot and generation, the buffers that bytes are received into, the operations in
//! flight, and time. A shard asks for operations through [`Ring`] and learns of their ends as [`Event`]s;
//! nothing is ever called back from inside an operation. Must never: know HTTP, rules or engines.
//!
//! Drivers: [`uring`] (production), [`epoll`] (where io_uring is missing or forbidden), and [`sim`]
//! (virtual time, seeded network, for tests). The contract below is the same for all three.
//!
//! The contract:
//! * One send in flight a socket. A send ends in exactly one [`Event::Sent`], after the whole payload
//!   was taken by the kernel or the socket failed; the payload comes back in it for reuse.
//! * Receiving stays armed until [`Ring::pause`]; each [`Event::Received`] hands over one [`Held`] buffer,
//!   which the shard gives back by [`Ring::release`] or by sending it.
//! * After [`Ring::close`] the driver makes no event that names that socket; events that a wait has already
//!   handed over may still do, and the generation tells them apart. Slot, descriptor and payload live on
//!   inside the driver until the kernel's last completion for them, and only then serve again.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod clock;
pub mod epoll;
pub mod event;
pub mod payload;
pub mod sim;
mod slots;
pub mod sock;
mod tcp_info;
pub mod uring;
mod wake;

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use epoll::Epoll;
pub use event::{Errno, Event};
pub use payload::{Body, Held, Payload};
pub use sock::{Listener, Sock};
pub use uring::probe::{Probe, Verdict};
pub use uring::{SetupFault, Uring, probe, why_not_uring};

/// What a shard asks of the kernel. Statically dispatched: a shard is generic over its driver.
pub trait Ring {
    /// Takes over a listening socket (see [`sock::listen`]) and keeps accepting from it.
    fn listen(&mut self, socket: OwnedFd) -> Result<Listener, Errno>;

    /// Stops accepting: what the queue already holds is still accepted (closing a listener would reset
    /// it), then the listener is closed and [`Event::ListenerClosed`] tells so.
    fn close_listener(&mut self, listener: Listener);

    /// Begins a connection (non-blocking, no delay). Its end is one [`Event::Connected`].
    fn connect(&mut self, to: SocketAddr) -> Result<Sock, Errno>;

    /// Receives from `sock` until paused, ended or failed. Asking again while armed does nothing; asking
    /// before [`Event::Connected`] takes effect when the connection is there.
    fn receive(&mut self, sock: Sock);

    /// Stops receiving. What the kernel had already completed may still arrive as events.
    fn pause(&mut self, sock: Sock);

    /// Sends a payload whole. The caller must not have another send in flight on `sock`, and must have seen
    /// it connected. On a closed socket the payload is dropped, its held buffer given back, and no event comes.
    fn send(&mut self, sock: Sock, payload: Payload);

    /// Sends FIN after what was sent, the send in flight included; the other direction stays open.
    fn shutdown_write(&mut self, sock: Sock);

    /// Forgets the socket: cancels what is in flight and closes it as soon as that has ended, which is in the
    /// next wait at the earliest. What a send in flight has not yet handed to the kernel is lost.
    fn close(&mut self, sock: Sock);

    /// Bytes sent on `sock` that the other side's kernel acknowledged, one more for its SYN; `None` if
    /// unknown. Tells whether a request ever reached the other side. A system call: for rare questions.
    fn acknowledged(&mut self, sock: Sock) -> Option<u64>;

    /// Lets the kernel find out that the other side is gone: unacknowledged bytes, or probes of an idle
    /// connection without an answer, for about `silence` (whole seconds, at least 3) end it. For peers that
    /// are only listened to.
    fn keep_alive(&mut self, _sock: Sock, _silence: Duration) {}

    /// The received bytes of a held buffer.
    fn bytes(&self, held: &Held) -> &[u8];

    /// The same, to be changed in place (a transport that decrypts).
    fn bytes_mut(&mut self, held: &Held) -> &mut [u8];

    /// Gives a held buffer back.
    fn release(&mut self, held: Held);

    /// A payload of a head and a range of a held buffer after it. A short range is copied behind the head
    /// and its buffer given back at once: one part costs less to send than two (kernel-notes/0003).
    fn join(&mut self, mut head: Vec<u8>, buffer: Held, range: Range<u32>) -> Payload {
        if range.len() > COPIED_MAX {
            return Payload { head, body: Body::Held { buffer, range } };
        }
        head.extend_from_slice(&self.bytes(&buffer)[range.start as usize..range.end as usize]);
        self.release(buffer);
        Payload::head(head)
    }

    /// Submits what was asked, waits for events at most `timeout` (`None`: until one comes), appends them.
    /// Returns with no event when the time is over. An error is the ring itself failing, not a socket.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno>;

    /// Nanoseconds of a monotonic clock whose zero is arbitrary but one for the whole process.
    fn now(&self) -> u64;

    /// Nanoseconds of CPU time that the calling thread has used, in user space and in the kernel. A system
    /// call: for rare questions. In virtual time nothing uses any.
    fn cpu_time(&self) -> u64;

    /// A handle by which other threads make [`Ring::wait`] return with [`Event::Woken`].
    fn waker(&self) -> Arc<dyn Wake>;

    /// What happened so far, for metrics.
    fn counters(&self) -> Counters;
}

/// Bytes up to which [`Ring::join`] copies; the gain ends near 8 KiB.
pub const COPIED_MAX: usize = 4096;

/// Wakes a shard from another thread. Must not block.
pub trait Wake: Send + Sync {
    /// Makes the shard's next or current wait return.
    fn wake(&self);
}

/// Sizes of a driver's tables. The defaults suit a shard; tests shrink them to reach the rare paths.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Submission queue entries; more than 1,024 meets the locked-memory limit of unprivileged
    /// users: kernel-notes/0006.
    pub submissions: u32,
    /// Completion queue entries, sized apart from the submissions.
    pub completions: u32,
    /// Receive buffers; a power of two.
    pub buffers: u16,
    /// Bytes of one receive buffer.
    pub buffer_bytes: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { submissions: 1024, completions: 8192, buffers: 1024, buffer_bytes: 16 * 1024 }
    }
}

/// Counts of a driver's rare paths. All only grow, except `buffers_free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times a receive found no free buffer and its socket had to wait for one.
    pub starved: u64,
    /// Times the completion queue overflowed and the kernel kept completions back.
    pub overflowed: u64,
    /// Times a multishot operation ended early and was armed anew.
    pub rearmed: u64,
    /// Sockets now known to the driver, closing ones included.
    pub sockets: u64,
    /// Receive buffers now free.
    pub buffers_free: u64,
    /// System calls made to submit and wait.
    pub enters: u64,
}
