//! What the epoll driver knows of one connection, and its system calls. Owns reading and writing of one
//! socket; must never wait.

use crate::payload::rest;
use crate::{Errno, Payload};
use rustix::io::Errno as E;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// A connection, from accept or connect until it is closed.
pub(crate) struct Conn {
    pub(crate) fd: OwnedFd,
    /// The shard wants bytes.
    pub(crate) wanted: bool,
    /// The kernel may have bytes, FIN or an error for us: edge-triggered readiness, kept until a read says no.
    pub(crate) readable: bool,
    /// FIN or an error was reported and is behind the bytes: a short read does not prove that none is left.
    pub(crate) hung_up: bool,
    /// Bytes are over: FIN or an error was handed to the shard.
    pub(crate) ended: bool,
    /// The connection attempt has not ended.
    pub(crate) connecting: bool,
    /// It is on the list of sockets to read.
    pub(crate) queued: bool,
    /// It is on the list of sockets that wait for a buffer.
    pub(crate) starved: bool,
    /// FIN is to be sent when the send in flight has ended.
    pub(crate) shutdown_due: bool,
    /// The payload in flight and how much of it the kernel has taken.
    pub(crate) sending: Option<(Payload, usize)>,
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd,
            wanted: false,
            readable: false,
            hung_up: false,
            ended: false,
            connecting: false,
            queued: false,
            starved: false,
            shutdown_due: false,
            sending: None,
        }
    }

    /// Whether a read is due and not yet on a list.
    pub(crate) fn may_queue(&self) -> bool {
        self.wanted && self.readable && !self.ended && !self.connecting && !self.queued && !self.starved
    }

    /// One read. A read that does not fill the buffer has emptied the socket, unless FIN or an error is
    /// behind it; an edge will tell of what comes later. Saves a read that would only say `EAGAIN`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, E> {
        let room = buffer.len();
        let result = loop {
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Err(E::INTR) => {}
                Err(error) => break Err(error),
                Ok((len, _)) => break Ok(len),
            }
        };
        match result {
            Ok(len) if len < room && !self.hung_up => self.readable = false,
            Err(E::AGAIN) => self.readable = false,
            _ => {}
        }
        result
    }
}

/// Writes what is left of both parts after `done` bytes, counting on in `done`, until the kernel takes no
/// more. `None`: not all was taken, an edge will tell when to go on.
pub(crate) fn write_all(fd: &OwnedFd, parts: (&[u8], &[u8]), done: &mut usize) -> Option<Result<(), Errno>> {
    loop {
        let (head, body) = rest(parts, *done);
        if head.is_empty() && body.is_empty() {
            return Some(Ok(()));
        }
        match write(fd, head, body) {
            Ok(taken) => *done += taken,
            Err(E::INTR) => {}
            Err(E::AGAIN) => return None,
            Err(error) => return Some(Err(Errno::from(error))),
        }
    }
}

fn write(fd: &OwnedFd, head: &[u8], body: &[u8]) -> Result<usize, E> {
    if head.is_empty() || body.is_empty() {
        let one = if head.is_empty() { body } else { head };
        return send(fd, one, SendFlags::NOSIGNAL);
    }
    let both = [IoSlice::new(head), IoSlice::new(body)];
    sendmsg(fd, &both, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}
