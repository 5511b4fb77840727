//! The clocks of the drivers. Owns the choice of clock; must never hold state.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`: arbitrary zero, one for all threads, never steps back.
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of `CLOCK_THREAD_CPUTIME_ID`: the CPU time of this thread since it began.
pub(crate) fn cpu_time() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both fields are never negative on these clocks.
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

    #[test]
    fn cpu_time_is_the_threads_own_and_stands_still_while_it_sleeps() {
        let (begun, used) = (super::now(), super::cpu_time());
        while super::cpu_time() < used + 20_000_000 {}
        let others = std::thread::spawn(super::cpu_time).join().unwrap();
        assert!(others < 20_000_000, "a new thread has used {others} ns");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (passed, used) = (super::now() - begun, super::cpu_time() - used);
        assert!(passed >= used + 10_000_000, "{used} ns of {passed} ns");
    }
}
