//! From completions to events. Owns what each result of each operation means; must never wait.
//!
//! A completion without MORE is its operation's last: the count of operations in flight goes down, and a
//! multishot operation that should go on is armed anew: kernel-notes/0004-multishot-rearm.md.
#![allow(unsafe_code)] // an accepted descriptor arrives as a number

use super::conn::Receive;
use super::token::{Op, unpack};
use super::{Uring, peer_address};
use crate::sock::{ACCEPT_PAUSE_NS, accept_needs_pause};
use crate::{Errno, Event, Held, Listener, Sock, clock};
use io_uring::cqueue;
use rustix::io::Errno as E;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{FromRawFd, OwnedFd};

impl Uring {
    /// Turns one completion into state and at most a few events. One whose generation has passed would
    /// change nothing; none is expected, since a slot is kept until its last completion.
    pub(super) fn complete(&mut self, user_data: u64, result: i32, flags: u32) {
        let Some((op, sock)) = unpack(user_data) else { return };
        let last = !cqueue::more(flags);
        match op {
            Op::Receive => self.received(sock, result, cqueue::buffer_select(flags), last),
            Op::Send => self.sent(sock, result),
            Op::Connect => self.connected(sock, result),
            Op::Cancel => self.ended_one(sock),
            Op::Accept => self.accepted(sock.slot as usize, result, last),
            Op::CancelAccept => self.accept_ended_one(sock.slot as usize),
            Op::Bell => self.rang(),
        }
    }

    /// Counts down a connection's operations; a closed one goes with the last of them.
    fn ended_one(&mut self, sock: Sock) {
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.in_flight -= 1;
        if conn.closing && conn.in_flight == 0 {
            self.forget(sock);
        }
    }

    fn received(&mut self, sock: Sock, result: i32, buffer: Option<u16>, last: bool) {
        if let Some(id) = buffer {
            self.buffers.taken();
            self.deliver(sock, id, result);
        }
        if !last {
            return;
        }
        if let Some(conn) = self.conns.get_mut(sock) {
            conn.receive = Receive::Idle;
        }
        if buffer.is_none() {
            self.receive_over(sock, result);
        }
        self.ended_one(sock);
        if self.conns.get_mut(sock).is_some_and(|conn| conn.may_arm()) {
            self.counters.rearmed += 1;
            self.arm(sock);
        }
    }

    /// Hands a filled buffer over, or takes it back if nobody listens or nothing is in it.
    fn deliver(&mut self, sock: Sock, id: u16, result: i32) {
        let open = self.open(sock).is_some();
        match u32::try_from(result) {
            Ok(len) if len > 0 && open => {
                self.ready.push(Event::Received { sock, buffer: Held { id, len } });
            }
            _ => self.buffers.give(id),
        }
    }

    /// A receive ended without a buffer: FIN, an error, a cancel, or no buffer was free.
    fn receive_over(&mut self, sock: Sock, result: i32) {
        let Some(conn) = self.conns.get_mut(sock).filter(|conn| !conn.closing) else { return };
        if result >= 0 {
            conn.ended = true;
            return self.ready.push(Event::Ended { sock });
        }
        match E::from_raw_os_error(-result) {
            // No buffer was left: wait for one. Not armed at once, which would spin.
            E::NOBUFS => {
                self.counters.starved += 1;
                self.buffers.ran_out();
                conn.receive = Receive::Starved;
                self.starved.push_back(sock);
            }
            // Cancelled by a pause, or interrupted: armed anew by the caller if still wanted.
            E::CANCELED | E::INTR | E::AGAIN => {}
            _ => {
                conn.ended = true;
                self.ready.push(Event::Failed { sock, error: Errno(-result) });
            }
        }
    }

    fn sent(&mut self, sock: Sock, result: i32) {
        self.ended_one(sock);
        let Some(conn) = self.conns.get_mut(sock).filter(|conn| !conn.closing) else { return };
        let Some(sending) = &mut conn.sending else { return };
        sending.done += usize::try_from(result).unwrap_or(0);
        let whole = sending.done >= sending.payload.len();
        // Short in spite of MSG_WAITALL: a signal, or an error that the rest will meet.
        let again = result > 0 || [E::INTR, E::AGAIN].iter().any(|e| e.raw_os_error() == -result);
        if !whole && again {
            return self.send_rest(sock);
        }
        let Some(sending) = conn.sending.take() else { return };
        if conn.shutdown_due {
            // A failure means that the connection is gone, which receiving reports.
            let _ = shutdown(&conn.fd, Shutdown::Write);
        }
        self.frames.extend(sending.frame);
        let result = if whole { Ok(()) } else { Err(errno_of(result)) };
        self.ready.push(Event::Sent { sock, payload: sending.payload, result });
    }

    fn connected(&mut self, sock: Sock, result: i32) {
        self.ended_one(sock);
        let Some(conn) = self.conns.get_mut(sock) else { return };
        conn.connecting = None;
        if conn.closing {
            return;
        }
        let result = if result < 0 { Err(errno_of(result)) } else { Ok(()) };
        self.ready.push(Event::Connected { sock, result });
        if result.is_ok() {
            self.arm(sock);
        }
    }

    fn accepted(&mut self, index: usize, result: i32, last: bool) {
        let listener = Listener(index as u32);
        if result >= 0 {
            // SAFETY: the kernel made this descriptor for us just now and nobody else knows it.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            match peer_address(&fd) {
                Ok(peer) => self.welcome(listener, fd, peer),
                Err(error) => self.ready.push(Event::AcceptFailed { listener, error }),
            }
        }
        if !last {
            return;
        }
        if let Some(Some(listening)) = self.listeners.get_mut(index) {
            listening.armed = false;
        }
        if result < 0 && result != -E::CANCELED.raw_os_error() {
            self.accept_failed(listener, errno_of(result));
        }
        self.accept_ended_one(index);
    }

    fn accept_failed(&mut self, listener: Listener, error: Errno) {
        self.ready.push(Event::AcceptFailed { listener, error });
        let Some(Some(listening)) = self.listeners.get_mut(listener.0 as usize) else { return };
        if accept_needs_pause(error) && !listening.closing {
            listening.retry_at = Some(clock::now() + ACCEPT_PAUSE_NS);
            self.resting += 1;
        }
    }

    /// Counts down a listener's operations; goes on accepting, or closes with the last of them.
    fn accept_ended_one(&mut self, index: usize) {
        let Some(Some(listening)) = self.listeners.get_mut(index) else { return };
        listening.in_flight -= 1;
        if listening.closing {
            if listening.in_flight == 0 {
                self.finish_listener(index);
            }
        } else if !listening.armed && listening.retry_at.is_none() {
            self.counters.rearmed += 1;
            self.arm_accept(index);
        }
    }

    fn rang(&mut self) {
        self.bell.silence();
        self.read_bell();
        self.ready.push(Event::Woken);
    }

    /// Takes back events that name a socket just closed.
    pub(super) fn withdraw(&mut self, sock: Sock) {
        let names = |event: &mut Event| event.sock() == Some(sock);
        let withdrawn: Vec<Event> = self.ready.extract_if(.., names).collect();
        for event in withdrawn {
            match event {
                Event::Sent { payload, .. } => self.discard(payload),
                Event::Received { buffer, .. } => self.buffers.give(buffer.id),
                _ => {}
            }
        }
    }
}

/// Frees what a completion carries that will never become an event, when the ring goes.
pub(super) fn abandon(completion: &cqueue::Entry) {
    let accepted = unpack(completion.user_data()).is_some_and(|(op, _)| op == Op::Accept);
    if accepted && completion.result() >= 0 {
        // SAFETY: as in `accepted`: a new descriptor that nobody else knows.
        drop(unsafe { OwnedFd::from_raw_fd(completion.result()) });
    }
}

fn errno_of(result: i32) -> Errno {
    Errno(result.saturating_neg())
}
