//! The state of an endpoint that every shard and the admin thread share: the one file of this crate with
//! atomics. Owns its protocol; must never be read for anything that needs two of its values at one instant.
//!
//! Writers: `reserved` by any shard (add and subtract, never set); `health` by the admin thread's probes;
//! `connect_failures` and `ejected_until` by any shard; `idle_limit` by any shard (minimum wins).
//! Readers take each value alone, relaxed: a decision made on a value some nanoseconds old is still sound.

use crate::{MILLISECOND, Nanos, SECOND};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Failed connection attempts in a row that eject an endpoint for [`EJECTION`].
pub const CONNECT_FAILURES_MAX: u32 = 3;

/// How long a passively ejected endpoint gets no request.
pub const EJECTION: Nanos = 5 * SECOND;

/// Upstream connections idle for longer than this are not reused unless a longer limit was learned.
pub const IDLE_LIMIT_START: Nanos = 4 * SECOND;

/// What is shared about one endpoint of one address, whichever rules name it. Outlives rule changes.
#[derive(Debug)]
pub struct EndpointState {
    address: SocketAddr,
    reserved: AtomicU32,
    probed_down: AtomicBool,
    connect_failures: AtomicU32,
    ejected_until: AtomicU64,
    idle_limit: AtomicU64,
}

impl EndpointState {
    /// A healthy endpoint without load.
    pub fn new(address: SocketAddr) -> Self {
        EndpointState {
            address,
            reserved: AtomicU32::new(0),
            probed_down: AtomicBool::new(false),
            connect_failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            idle_limit: AtomicU64::new(IDLE_LIMIT_START),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests now charged to it by all shards.
    pub fn reserved(&self) -> u32 {
        self.reserved.load(Relaxed)
    }

    /// Charges one request unless `bound` is reached already; true if charged. Concurrent callers may see
    /// the bound passed for an instant, never more than one charge each.
    pub fn reserve(&self, bound: u32) -> bool {
        if self.reserved.fetch_add(1, Relaxed) < bound {
            return true;
        }
        self.reserved.fetch_sub(1, Relaxed);
        false
    }

    /// Settles one charge.
    pub fn settle(&self) {
        let before = self.reserved.fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "settled more than was charged");
    }

    /// Whether a probe found it down.
    pub fn probed_down(&self) -> bool {
        self.probed_down.load(Relaxed)
    }

    /// Takes a probe's verdict.
    pub fn set_probed_down(&self, down: bool) {
        self.probed_down.store(down, Relaxed);
    }

    /// Whether it may get a request at `now` as far as health goes.
    pub fn available(&self, now: Nanos) -> bool {
        !self.probed_down() && self.ejected_until.load(Relaxed) <= now
    }

    /// A connection was established: it is not failing.
    pub fn connect_succeeded(&self) {
        if self.connect_failures.load(Relaxed) != 0 {
            self.connect_failures.store(0, Relaxed);
        }
    }

    /// A connection attempt failed; true if this ejected it.
    pub fn connect_failed(&self, now: Nanos) -> bool {
        if self.connect_failures.fetch_add(1, Relaxed) + 1 < CONNECT_FAILURES_MAX {
            return false;
        }
        self.connect_failures.store(0, Relaxed);
        self.ejected_until.store(now + EJECTION, Relaxed);
        true
    }

    /// How long an idle upstream connection to it may still be reused.
    pub fn idle_limit(&self) -> Nanos {
        self.idle_limit.load(Relaxed)
    }

    /// The engine closed a connection that had idled for `idle`: retire idle ones at four fifths of that.
    pub fn learn_idle_limit(&self, idle: Nanos) {
        let limit = (idle / 5 * 4).max(100 * MILLISECOND);
        self.idle_limit.fetch_min(limit, Relaxed);
    }
}
