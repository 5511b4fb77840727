//! How another thread ends a driver's wait. Owns the eventfd and the flag that saves repeated writes;
//! must never carry data: mailboxes do that. Measured in kernel-notes/0007-eventfd-wake.md.

use crate::{Errno, Wake};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An eventfd with a memory of whether it is already rung.
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    /// A silent bell. Non-blocking, so that a wake never waits; a ring's read of it waits all the same.
    pub(crate) fn new() -> Result<Arc<Bell>, Errno> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Bell { fd, rung: AtomicBool::new(false) }))
    }

    /// Makes the bell ring anew at the next wake. Called after the eventfd was read and before the shard
    /// looks at its mailboxes: a wake that finds the flag still set was posted before that look.
    pub(crate) fn silence(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Wake for Bell {
    fn wake(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // A write of one can only fail when the counter is at its limit: then the bell rings anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(bell: &Bell) -> Option<u64> {
        let mut count = [0u8; 8];
        rustix::io::read(bell, &mut count).ok().map(|_| u64::from_ne_bytes(count))
    }

    #[test]
    fn many_wakes_are_one_write() {
        let bell = Bell::new().unwrap();
        for _ in 0..5 {
            bell.wake();
        }
        assert_eq!(reads(&bell), Some(1));
        bell.silence();
        assert_eq!(reads(&bell), None);
        bell.wake();
        assert_eq!(reads(&bell), Some(1));
    }
}
