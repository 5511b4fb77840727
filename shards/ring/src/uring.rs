//! The io_uring driver. Owns the connections, the listeners and which operation of each is in flight; must
//! never block but in [`Ring::wait`], and never free what the kernel may still use.
//!
//! A turn is: publish returned buffers, serve the sockets that wait for one, one enter that submits all that
//! was asked and waits, then reap. Completions become events in `uring/complete.rs`. Every operation counts
//! in its socket's `in_flight` until its final completion; a slot, descriptor and payload are freed at zero.
//!
//! The ring belongs to the thread that makes it: kernel-notes/0001-defer-taskrun.md. Why no runtime is
//! under it: kernel-notes/0013-runtime-choice.md.

pub(crate) mod buffers;
mod complete;
pub(crate) mod conn;
pub mod probe;
pub(crate) mod queue;
mod send;
pub mod setup;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use crate::slots::Slots;
use crate::sock::{keep_alive, peer_address, stream_socket};
use crate::tcp_info::bytes_acknowledged;
use crate::wake::Bell;
use crate::{Body, Counters, Errno, Event, Held, Listener, Payload, Ring, Sizes, Sock, Wake, clock};
use buffers::{Buffers, GROUP};
use conn::{Conn, Listening, Receive};
use io_uring::{cqueue, opcode, types};
pub use probe::probe;
use queue::{Entered, Queue};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{Shutdown, SocketFlags, shutdown, sockopt};
use send::{Frames, Sending};
pub use setup::{SetupFault, why_not_uring};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use token::{Op, pack};

/// The io_uring driver, see the file's head. Not to be moved to another thread.
pub struct Uring {
    // The order of fields is the order of drop: the kernel lets go of all memory before it is freed.
    queue: Queue,
    conns: Slots<Conn>,
    listeners: Vec<Option<Listening>>,
    buffers: Buffers,
    /// Sockets whose receive found no buffer, first come first served.
    starved: VecDeque<Sock>,
    /// Events that did not come from a completion, and those of the completions just reaped.
    ready: Vec<Event>,
    reaped: Vec<cqueue::Entry>,
    frames: Frames,
    bell: Arc<Bell>,
    /// Where the kernel puts the bell's count.
    bell_count: Box<[u8; 8]>,
    /// Listeners that rest after a failed accept.
    resting: u32,
    counters: Counters,
    /// Only the thread that made a `SINGLE_ISSUER` ring may enter it.
    not_send: std::marker::PhantomData<*mut ()>,
}

impl Uring {
    /// A driver for the calling thread. `sizes.buffers` must be a power of two; `sizes.submissions` is cut
    /// to `sizes.completions`. The error tells why the kernel refuses, with its cure.
    pub fn new(sizes: Sizes) -> Result<Uring, SetupFault> {
        assert!(sizes.buffers.is_power_of_two(), "sizes.buffers must be a power of two");
        let ring = setup::make_ring(&sizes)?;
        let buffers = Buffers::new(&ring, &sizes).map_err(SetupFault::from_errno)?;
        let bell = Bell::new().map_err(SetupFault::Other)?;
        let mut uring = Uring {
            queue: Queue::new(ring),
            conns: Slots::new(),
            listeners: Vec::new(),
            buffers,
            starved: VecDeque::new(),
            ready: Vec::new(),
            reaped: Vec::new(),
            frames: Frames::new(),
            bell,
            bell_count: Box::new([0; 8]),
            resting: 0,
            counters: Counters::default(),
            not_send: std::marker::PhantomData,
        };
        uring.read_bell();
        Ok(uring)
    }

    /// The connection that `sock` names, unless the shard has closed it.
    fn open(&mut self, sock: Sock) -> Option<&mut Conn> {
        self.conns.get_mut(sock).filter(|conn| !conn.closing)
    }

    fn push(&mut self, entry: io_uring::squeue::Entry) {
        self.queue.push(entry, &mut self.counters);
    }

    fn read_bell(&mut self) {
        let fd = types::Fd(self.bell.as_fd().as_raw_fd());
        let read = opcode::Read::new(fd, self.bell_count.as_mut_ptr(), 8).build();
        self.push(read.user_data(pack(Op::Bell, Sock { slot: 0, generation: 0 })));
    }

    /// Arms a receive if one is due; without a free buffer the socket joins the wait list, since the kernel
    /// would end the operation at once, data or not.
    fn arm(&mut self, sock: Sock) {
        let free = self.buffers.idle() > 0;
        let Some(conn) = self.conns.get_mut(sock).filter(|conn| conn.may_arm()) else { return };
        if !free {
            conn.receive = Receive::Starved;
            self.starved.push_back(sock);
            self.counters.starved += 1;
            return;
        }
        conn.receive = Receive::Armed;
        conn.in_flight += 1;
        let fd = types::Fd(conn.fd.as_raw_fd());
        self.push(opcode::RecvMulti::new(fd, GROUP).build().user_data(pack(Op::Receive, sock)));
    }

    /// Arms as many waiting sockets as there are free buffers. Returns whether more wait though buffers are
    /// free: those just armed may turn out to have no data, so the next turn must not sleep.
    fn serve_starved(&mut self) -> bool {
        let mut budget = self.buffers.free();
        while budget > 0 {
            let Some(sock) = self.starved.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(sock).filter(|conn| conn.receive == Receive::Starved) else {
                continue;
            };
            conn.receive = Receive::Idle;
            if conn.may_arm() {
                budget -= 1;
                self.counters.rearmed += 1;
                self.arm(sock);
            }
        }
        self.buffers.free() > 0 && !self.starved.is_empty()
    }

    fn arm_accept(&mut self, index: usize) {
        let Some(Some(listening)) = self.listeners.get_mut(index) else { return };
        listening.armed = true;
        listening.in_flight += 1;
        let fd = types::Fd(listening.fd.as_raw_fd());
        let flags = (SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).bits() as i32;
        let name = Sock { slot: index as u32, generation: 0 };
        self.push(opcode::AcceptMulti::new(fd).flags(flags).build().user_data(pack(Op::Accept, name)));
    }

    /// Arms the listeners whose rest is over; tells when the next one's is.
    fn wake_listeners(&mut self) -> Option<u64> {
        if self.resting == 0 {
            return None;
        }
        let now = clock::now();
        let mut next = None;
        for index in 0..self.listeners.len() {
            let Some(listening) = &mut self.listeners[index] else { continue };
            match listening.retry_at {
                Some(at) if at <= now => {
                    listening.retry_at = None;
                    self.resting -= 1;
                    self.arm_accept(index);
                }
                Some(at) => next = Some(next.map_or(at, |other: u64| other.min(at))),
                None => {}
            }
        }
        next
    }

    /// Sends what is left of the payload in flight.
    fn send_rest(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        let Some(sending) = &mut conn.sending else { return };
        let entry = sending.entry(types::Fd(conn.fd.as_raw_fd()), &self.buffers, &mut self.frames);
        conn.in_flight += 1;
        self.push(entry.user_data(pack(Op::Send, sock)));
    }

    /// Frees what a payload holds that nobody will get back.
    fn discard(&mut self, payload: Payload) {
        if let Body::Held { buffer, .. } = payload.body {
            self.buffers.give(buffer.id);
        }
    }

    /// Frees a closed connection of which nothing is in flight any more.
    fn forget(&mut self, sock: Sock) {
        let Some(conn) = self.conns.remove(sock) else { return };
        debug_assert!(conn.closing && conn.in_flight == 0);
        if let Some(sending) = conn.sending {
            self.frames.extend(sending.frame);
            self.discard(sending.payload);
        }
    }

    /// Empties the queue of a listener whose accept has ended, then closes it: kernel-notes/0010.
    fn finish_listener(&mut self, index: usize) {
        let Some(listening) = self.listeners[index].take() else { return };
        let listener = Listener(index as u32);
        while let Ok((fd, peer)) = crate::sock::accept_now(&listening.fd) {
            self.welcome(listener, fd, peer);
        }
        drop(listening.fd);
        self.ready.push(Event::ListenerClosed { listener });
    }

    fn welcome(&mut self, listener: Listener, fd: OwnedFd, peer: SocketAddr) {
        // Without a free slot, which takes 16 million connections, the new one is refused by closing it.
        if let Some(sock) = self.conns.insert(Conn::new(fd)) {
            self.ready.push(Event::Accepted { listener, sock, peer });
        }
    }

    /// One turn; see the file's head.
    fn turn(&mut self, limit: Option<Duration>) -> Result<Entered, Errno> {
        self.buffers.publish();
        let more_to_serve = self.serve_starved();
        let limit = if more_to_serve || !self.ready.is_empty() { Some(Duration::ZERO) } else { limit };
        let entered = self.queue.enter(limit, &mut self.counters)?;
        let mut reaped = std::mem::take(&mut self.reaped);
        self.queue.reap(&mut reaped);
        for completion in reaped.drain(..) {
            self.complete(completion.user_data(), completion.result(), completion.flags());
        }
        self.reaped = reaped;
        // A zero limit of ours is not the caller's time being over.
        Ok(if more_to_serve { Entered::Some } else { entered })
    }
}

impl Ring for Uring {
    fn listen(&mut self, socket: OwnedFd) -> Result<Listener, Errno> {
        // Accepted sockets inherit it, which saves a call for each; `sock::listen` has set it already.
        sockopt::set_tcp_nodelay(&socket, true)?;
        let listening = Listening { fd: socket, armed: false, in_flight: 0, closing: false, retry_at: None };
        let index = match self.listeners.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.listeners.push(None);
                self.listeners.len() - 1
            }
        };
        self.listeners[index] = Some(listening);
        self.arm_accept(index);
        Ok(Listener(index as u32))
    }

    fn close_listener(&mut self, listener: Listener) {
        let index = listener.0 as usize;
        let Some(Some(listening)) = self.listeners.get_mut(index) else { return };
        if listening.closing {
            return;
        }
        listening.closing = true;
        if listening.retry_at.take().is_some() {
            self.resting -= 1;
        }
        if listening.in_flight == 0 {
            return self.finish_listener(index);
        }
        listening.in_flight += 1;
        let name = Sock { slot: listener.0, generation: 0 };
        let cancel = opcode::AsyncCancel::new(pack(Op::Accept, name)).build();
        self.push(cancel.user_data(pack(Op::CancelAccept, name)));
    }

    fn connect(&mut self, to: SocketAddr) -> Result<Sock, Errno> {
        let fd = stream_socket(to)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        let address = Box::new(to.as_any());
        let (start, len) = (address.as_ptr().cast(), address.addr_len());
        let entry = opcode::Connect::new(types::Fd(fd.as_raw_fd()), start, len).build();
        let mut conn = Conn::new(fd);
        conn.connecting = Some(address);
        conn.in_flight = 1;
        let full = Errno(rustix::io::Errno::MFILE.raw_os_error());
        let sock = self.conns.insert(conn).ok_or(full)?;
        self.push(entry.user_data(pack(Op::Connect, sock)));
        Ok(sock)
    }

    fn receive(&mut self, sock: Sock) {
        let Some(conn) = self.open(sock) else { return };
        conn.wanted = true;
        self.arm(sock);
    }

    fn pause(&mut self, sock: Sock) {
        let Some(conn) = self.open(sock) else { return };
        conn.wanted = false;
        if conn.receive != Receive::Armed {
            return;
        }
        conn.receive = Receive::Cancelling;
        conn.in_flight += 1;
        let cancel = opcode::AsyncCancel::new(pack(Op::Receive, sock)).build();
        self.push(cancel.user_data(pack(Op::Cancel, sock)));
    }

    fn send(&mut self, sock: Sock, payload: Payload) {
        let Some(conn) = self.open(sock) else { return self.discard(payload) };
        assert!(conn.sending.is_none(), "one send in flight a socket");
        if payload.is_empty() {
            return self.ready.push(Event::Sent { sock, payload, result: Ok(()) });
        }
        conn.sending = Some(Sending::new(payload));
        self.send_rest(sock);
    }

    fn shutdown_write(&mut self, sock: Sock) {
        let Some(conn) = self.open(sock) else { return };
        conn.shutdown_due = true;
        if conn.sending.is_none() {
            // A failure means that the connection is gone, which receiving reports.
            let _ = shutdown(&conn.fd, Shutdown::Write);
        }
    }

    fn keep_alive(&mut self, sock: Sock, silence: Duration) {
        if let Some(conn) = self.open(sock) {
            // A socket that refuses is dead, which receiving reports.
            let _ = keep_alive(&conn.fd, silence);
        }
    }

    fn acknowledged(&mut self, sock: Sock) -> Option<u64> {
        bytes_acknowledged(self.open(sock)?.fd.as_fd())
    }

    fn close(&mut self, sock: Sock) {
        let Some(conn) = self.open(sock) else { return };
        conn.closing = true;
        let busy = conn.in_flight > 0;
        let fd = types::Fd(conn.fd.as_raw_fd());
        self.withdraw(sock);
        if !busy {
            return self.forget(sock);
        }
        if let Some(conn) = self.conns.get_mut(sock) {
            conn.in_flight += 1;
        }
        // One cancel for all: the receive, a send, a connection attempt.
        let all = types::CancelBuilder::fd(fd).all();
        self.push(opcode::AsyncCancel2::new(all).build().user_data(pack(Op::Cancel, sock)));
    }

    fn bytes(&self, held: &Held) -> &[u8] {
        self.buffers.bytes(held.id, held.len)
    }

    fn bytes_mut(&mut self, held: &Held) -> &mut [u8] {
        self.buffers.bytes_mut(held.id, held.len)
    }

    fn release(&mut self, held: Held) {
        self.buffers.give(held.id);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        let deadline = timeout.map(clock::deadline);
        loop {
            let until = match (deadline, self.wake_listeners()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let entered = self.turn(until.map(clock::until))?;
            if !self.ready.is_empty() {
                events.append(&mut self.ready);
                return Ok(());
            }
            if entered == Entered::TimedOut && deadline.is_some_and(|at| at <= clock::now()) {
                return Ok(());
            }
        }
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn cpu_time(&self) -> u64 {
        clock::cpu_time()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.bell.clone()
    }

    fn counters(&self) -> Counters {
        let sockets = self.conns.len() as u64;
        Counters { sockets, buffers_free: u64::from(self.buffers.idle()), ..self.counters }
    }
}

impl Drop for Uring {
    /// Ends every operation before the sockets go, so that none outlives the ring; connections accepted
    /// meanwhile would have no owner and are closed.
    fn drop(&mut self) {
        let all = types::CancelBuilder::any();
        let patience = types::Timespec::new().sec(1);
        let _ = self.queue.ring().submitter().submit();
        let _ = self.queue.ring().submitter().register_sync_cancel(Some(patience), all);
        for _ in 0..64 {
            let _ = self.queue.enter(Some(Duration::ZERO), &mut self.counters);
            let mut reaped = std::mem::take(&mut self.reaped);
            self.queue.reap(&mut reaped);
            let over = reaped.is_empty();
            reaped.drain(..).for_each(|completion| complete::abandon(&completion));
            self.reaped = reaped;
            if over {
                break;
            }
        }
    }
}
