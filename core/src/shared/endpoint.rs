//! The state of an endpoint that every shard and the admin thread share. Owns its protocol; must never be
//! read for anything that needs two of its values at one instant.
//!
//! Writers: `reserved` by any shard (add and subtract, never set); `probed_down`, `drained` and `up_since` by the admin thread;
//! `connect_failures` and `ejected_until` by any shard, for rules without a breaker; `breaker` by any shard, for those
//! with one (its own protocol); `transfers_lost` by any shard (added to, set to 0 by one that was made); `idle_limit` by any shard (minimum wins); `load` by the admin thread's scraper.
//! Readers take each value alone, relaxed: a decision made on a value some nanoseconds old is still sound.

use super::{BreakerState, SharedLoad};
use crate::{MILLISECOND, Nanos, SECOND};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Failed connection attempts in a row that eject an endpoint for [`EJECTION`].
pub const CONNECT_FAILURES_MAX: u32 = 3;

/// How long a passively ejected endpoint gets no request.
pub const EJECTION: Nanos = 5 * SECOND;

/// Pairs in a row whose blocks prefill could not hand over, while it seems healthy, from which its way of handing over
/// is taken for exhausted.
pub const TRANSFERS_LOST_MAX: u32 = 3;

/// Upstream connections idle for longer than this are not reused; engines that close earlier lower it.
/// Uvicorn, which serves vLLM and SGLang, closes after 5 s.
pub const IDLE_LIMIT_START: Nanos = 4 * SECOND;

/// What is shared about one endpoint of one address, whichever rules name it. Outlives rule changes.
#[derive(Debug)]
pub struct EndpointState {
    address: SocketAddr,
    reserved: AtomicU32,
    probed_down: AtomicBool,
    drained: AtomicBool,
    connect_failures: AtomicU32,
    ejected_until: AtomicU64,
    breaker: BreakerState,
    transfers_lost: AtomicU32,
    idle_limit: AtomicU64,
    up_since: AtomicU64,
    load: SharedLoad,
}

impl EndpointState {
    /// A healthy endpoint without load.
    pub fn new(address: SocketAddr) -> Self {
        EndpointState {
            address,
            reserved: AtomicU32::new(0),
            probed_down: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            connect_failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            breaker: BreakerState::default(),
            transfers_lost: AtomicU32::new(0),
            idle_limit: AtomicU64::new(IDLE_LIMIT_START),
            up_since: AtomicU64::new(0),
            load: SharedLoad::default(),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the engine itself tells of its load.
    pub fn load(&self) -> &SharedLoad {
        &self.load
    }

    /// Requests now charged to it by all shards.
    pub fn reserved(&self) -> u32 {
        self.reserved.load(Relaxed)
    }

    /// Charges one request unless `bound` is reached already; true if charged. No more than `bound` calls
    /// with that bound are ever charged at once. A caller being refused counts for an instant, so another one
    /// may be refused although a charge was just settled: it takes the next best.
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

    /// Whether the operator takes it out of service: it gets no new request, whatever else is down.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    /// Takes it out of service, or back into it.
    pub fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Relaxed);
    }

    /// Whether failed connection attempts keep it out at `now`.
    pub fn ejected(&self, now: Nanos) -> bool {
        self.ejected_until.load(Relaxed) > now
    }

    /// What rules with a breaker remember of it.
    pub fn breaker(&self) -> &BreakerState {
        &self.breaker
    }

    /// A pair whose prefill it was ended; `made`: decode had its blocks.
    pub fn transfer_ended(&self, made: bool) {
        if !made {
            self.transfers_lost.fetch_add(1, Relaxed);
        } else if self.transfers_lost.load(Relaxed) != 0 {
            self.transfers_lost.store(0, Relaxed);
        }
    }

    /// Whether all pairs lately failed for want of its blocks while probes find it well.
    pub fn transfers_exhausted(&self) -> bool {
        self.transfers_lost.load(Relaxed) >= TRANSFERS_LOST_MAX && !self.probed_down()
    }

    /// Whether it may get a request at `now` as far as its health goes, for rules without a breaker.
    pub fn available(&self, now: Nanos) -> bool {
        !self.probed_down() && !self.ejected(now)
    }

    /// It came up at `now`: it is cold.
    pub fn came_up(&self, now: Nanos) {
        self.up_since.store(now, Relaxed);
    }

    /// How long it has been up, as far as was seen.
    pub fn up_for(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.up_since.load(Relaxed))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn state() -> EndpointState {
        EndpointState::new("127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn charges_balance_and_obey_the_bound() {
        let state = state();
        assert!(!state.reserve(0) && state.reserve(1) && !state.reserve(1) && state.reserve(2));
        assert_eq!(state.reserved(), 2);
        state.settle();
        state.settle();
        assert_eq!(state.reserved(), 0);
        assert!(state.reserve(u32::MAX));
    }

    /// Four threads charge and settle: never are more than the bound charged at once, none is lost.
    #[test]
    fn concurrent_charges_never_pass_the_bound() {
        const BOUND: u32 = 3;
        let (state, held) = (state(), AtomicU32::new(0));
        let charged = |_: usize| {
            let mut charged = 0u32;
            while charged < 5_000 {
                if state.reserve(BOUND) {
                    assert!(held.fetch_add(1, Relaxed) < BOUND);
                    charged += 1;
                    held.fetch_sub(1, Relaxed);
                    state.settle();
                } else {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|i| drop(scope.spawn(move || charged(i))));
        });
        assert_eq!((state.reserved(), held.load(Relaxed)), (0, 0));
    }

    #[test]
    fn three_failures_in_a_row_eject_for_a_while() {
        let state = state();
        assert!(!state.connect_failed(10) && !state.connect_failed(11));
        state.connect_succeeded();
        assert!(!state.connect_failed(12) && !state.connect_failed(13));
        assert!(state.available(13));
        assert!(state.connect_failed(14), "the third in a row");
        assert!(state.ejected(14) && !state.available(14 + EJECTION - 1));
        assert!(state.available(14 + EJECTION));
        assert!(!state.connect_failed(14 + EJECTION), "counted from nothing again");
    }

    #[test]
    fn probes_take_out_and_bring_back() {
        let state = state();
        state.set_probed_down(true);
        assert!(!state.available(0) && !state.ejected(0));
        state.set_probed_down(false);
        assert!(state.available(0));
    }

    #[test]
    fn idle_limits_are_learned_downwards_with_a_floor() {
        let state = state();
        assert_eq!(state.idle_limit(), IDLE_LIMIT_START);
        state.learn_idle_limit(60 * SECOND);
        assert_eq!(state.idle_limit(), IDLE_LIMIT_START);
        state.learn_idle_limit(2 * SECOND);
        assert_eq!(state.idle_limit(), 1600 * MILLISECOND);
        state.learn_idle_limit(0);
        assert_eq!(state.idle_limit(), 100 * MILLISECOND);
    }
}
