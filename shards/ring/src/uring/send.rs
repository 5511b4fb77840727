//! Sends in flight. Owns the payload, and the message header the kernel reads, until the completion; must
//! never move or change either in between. Why one send a socket and `MSG_WAITALL`:
//! kernel-notes/0003-one-send-in-flight.md.
#![allow(unsafe_code)] // a zeroed msghdr

use super::buffers::Buffers;
use crate::Payload;
use crate::payload::rest;
use io_uring::{opcode, squeue, types};

/// `MSG_NOSIGNAL`: `EPIPE` instead of a signal. `MSG_WAITALL`: the kernel goes on after a short send by
/// itself, so that a send costs one completion however slow the reader is (Linux 5.19).
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// A payload on its way.
pub(crate) struct Sending {
    pub(crate) payload: Payload,
    /// Bytes that the kernel has taken.
    pub(crate) done: usize,
    /// Only while both parts are sent by one operation; boxed, so that it stays where the kernel looks.
    pub(crate) frame: Option<Box<Frame>>,
}

/// A message header and the two ranges it points to.
pub(crate) struct Frame {
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

/// Frames for reuse. Boxed, since a frame moves between here and a send while its address must not.
pub(crate) type Frames = Vec<Box<Frame>>;

impl Frame {
    pub(crate) fn new() -> Box<Frame> {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a msghdr is plain integers and pointers, for which zero means absent.
        Box::new(Frame { header: unsafe { std::mem::zeroed() }, parts: [empty; 2] })
    }

    fn aim(&mut self, head: &[u8], body: &[u8]) -> *const libc::msghdr {
        for (part, bytes) in self.parts.iter_mut().zip([head, body]) {
            *part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        self.header.msg_iov = self.parts.as_mut_ptr();
        self.header.msg_iovlen = self.parts.len() as _;
        &self.header
    }
}

impl Sending {
    pub(crate) fn new(payload: Payload) -> Sending {
        Sending { payload, done: 0, frame: None }
    }

    /// The operation that sends what is left: a plain send if that is one part, else a message, in a frame
    /// from `spare`.
    pub(crate) fn entry(&mut self, fd: types::Fd, buffers: &Buffers, spare: &mut Frames) -> squeue::Entry {
        let parts = self.payload.parts(|held| buffers.bytes(held.id, held.len));
        let (head, body) = rest(parts, self.done);
        let one = if body.is_empty() { head } else { body };
        if head.is_empty() || body.is_empty() {
            // Lengths beyond 4 GiB go in several rounds.
            let len = u32::try_from(one.len()).unwrap_or(i32::MAX as u32);
            return opcode::Send::new(fd, one.as_ptr(), len).flags(FLAGS).build();
        }
        let frame = self.frame.get_or_insert_with(|| spare.pop().unwrap_or_else(Frame::new));
        opcode::SendMsg::new(fd, frame.aim(head, body)).flags(FLAGS as u32).build()
    }
}
