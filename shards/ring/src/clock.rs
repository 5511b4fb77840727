//! The one clock of the drivers. Owns the choice of clock; must never hold state.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`: arbitrary zero, one for all threads, never steps back.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Both fields are never negative on this clock.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Nanoseconds of CPU that the calling thread has used.
pub fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The instant `timeout` from now; far beyond any uptime it is cut off.
pub(crate) fn deadline(timeout: Duration) -> u64 {
    now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// How long it is until `instant`; nothing if that has passed.
pub(crate) fn until(instant: u64) -> Duration {
    Duration::from_nanos(instant.saturating_sub(now()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn never_steps_back() {
        let first = super::now();
        assert!(first > 0);
        assert!(super::now() >= first);
    }
}
