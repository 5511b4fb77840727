//! The two queues of a ring. Owns submitting, waiting and reaping; must never interpret a completion.
//! A full submission queue is submitted and filled on; a full completion queue is emptied and the kernel
//! asked for the rest: kernel-notes/0005-cq-overflow.md.
#![allow(unsafe_code)] // entries point to memory that their owners keep in place until they complete

use crate::{Counters, Errno};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno as E;
use std::collections::VecDeque;
use std::time::Duration;

/// How an enter ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// There may be completions.
    Some,
    /// The time is over.
    TimedOut,
}

/// A ring and the entries that did not fit into it yet.
pub(crate) struct Queue {
    ring: IoUring,
    /// In the order they were asked for; not empty only while the kernel takes no submissions.
    backlog: VecDeque<squeue::Entry>,
    wait_flags: EnterFlags,
}

impl Queue {
    pub(crate) fn new(ring: IoUring) -> Queue {
        // A shard that waits for clients does not wait for a disk: kernel-notes/0011.
        let quiet = ring.params().is_feature_no_iowait();
        let wait_flags = if quiet { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        Queue { ring, backlog: VecDeque::new(), wait_flags }
    }

    pub(crate) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Queues an operation. What it points to must stay in place until its final completion: payloads and
    /// frames stay in their connection, buffers in their mapping, the bell's count in its box.
    pub(crate) fn push(&mut self, entry: squeue::Entry, counters: &mut Counters) {
        if self.backlog.is_empty() && self.try_push(&entry) {
            return;
        }
        self.backlog.push_back(entry);
        counters.enters += 1;
        // A failure leaves the entry in the backlog; the next wait meets the same error and reports it.
        let _ = self.ring.submit();
        self.refill();
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: see `push`: whoever queues an operation keeps its memory until the final completion.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    fn refill(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Submits everything, then waits until a completion is there or `timeout` is over (`None`: for ever).
    pub(crate) fn enter(
        &mut self,
        timeout: Option<Duration>,
        counters: &mut Counters,
    ) -> Result<Entered, Errno> {
        self.refill();
        if self.ring.submission().cq_overflow() {
            counters.overflowed += 1;
        }
        counters.enters += 1;
        let limit = timeout.map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = &limit {
            arguments = arguments.timespec(limit);
        }
        let entered = self.ring.submitter().submit_with_args_and_flags(1, &arguments, self.wait_flags);
        let Err(error) = entered else { return Ok(Entered::Some) };
        match E::from_io_error(&error) {
            Some(E::TIME) => Ok(Entered::TimedOut),
            // A signal came first: nothing is lost, the caller looks at the queue and comes again.
            Some(E::INTR) => Ok(Entered::Some),
            // The kernel holds back completions and takes no submission until some were reaped.
            Some(E::BUSY) => Ok(Entered::Some),
            // No memory for a request now: what completes frees some.
            Some(E::AGAIN) if !self.ring.completion().is_empty() => Ok(Entered::Some),
            // EBADR: the kernel had to drop completions, so operations are lost; everything else is a
            // fault of this program or of the ring.
            _ => Err(Errno::from(error)),
        }
    }

    /// Moves all completions into `into`.
    pub(crate) fn reap(&mut self, into: &mut Vec<cqueue::Entry>) {
        into.extend(self.ring.completion());
    }
}
