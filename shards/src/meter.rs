//! How much CPU time a turn of the loop takes, and which stage takes most of it. Owns when the CPU clock is
//! read; must never read it for each event.
//!
//! The thread's CPU clock is a system call (600 ns in a virtual machine), the wall clock is not (25 ns). An
//! event cannot use more CPU time than passes by the wall, so short events are taken by the wall, and the CPU
//! clock is asked only about long ones: was it work, or was the thread taken off its core?

use warmpath_core::{MICROSECOND, MILLISECOND, Nanos};

/// An event shorter than this is taken by the wall. The scheduler takes a core away for longer than this.
const LONG: Nanos = 50 * MICROSECOND;

/// A reading of the CPU clock older than this is renewed when a turn begins: less than a thousandth of
/// the time goes into reading, and a long event seems at most this much longer than it was. (At a tenth of this
/// event streams paid a reading for nearly each of their events.)
const STALE: Nanos = MILLISECOND;

/// The measure of a shard's turns. Times are `wall` clock and, by `cpu`, the thread's CPU clock.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    read: Reading,
    /// When the last event ended.
    since: Nanos,
    /// What this turn used so far.
    turn: Nanos,
    longest: Nanos,
    stage: &'static str,
}

/// The last look at the CPU clock.
#[derive(Debug, Default)]
struct Reading {
    at: Nanos,
    cpu: Nanos,
}

impl Meter {
    /// A turn begins.
    #[inline]
    pub fn begin(&mut self, wall: Nanos, cpu: impl FnOnce() -> Nanos) {
        if wall.saturating_sub(self.read.at) >= STALE {
            self.read = Reading { at: wall, cpu: cpu() };
        }
        (self.since, self.turn, self.longest, self.stage) = (wall, 0, 0, "");
    }

    /// An event of `stage` ended: all since the last one was its.
    #[inline]
    pub fn note(&mut self, stage: &'static str, wall: Nanos, cpu: impl FnOnce() -> Nanos) {
        let passed = wall.saturating_sub(self.since);
        let used = if passed < LONG { passed } else { self.used(passed, wall, cpu()) };
        if used > self.longest {
            (self.longest, self.stage) = (used, stage);
        }
        self.since = wall;
        self.turn += used;
    }

    /// What the turn used, and the stage of the event that used most.
    pub fn end(&self) -> (Nanos, &'static str) {
        (self.turn, self.stage)
    }

    /// CPU time of an event during which `passed` went by.
    #[cold]
    fn used(&mut self, passed: Nanos, wall: Nanos, cpu: Nanos) -> Nanos {
        let used = cpu.saturating_sub(self.read.cpu).min(passed);
        self.read = Reading { at: wall, cpu };
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = MICROSECOND;

    /// A meter whose turn begins at 1 s by the wall, after 1 ms of CPU time.
    fn begun() -> Meter {
        let mut meter = Meter::default();
        meter.begin(1_000_000 * US, || 1_000 * US);
        meter
    }

    fn unread() -> Nanos {
        panic!("the CPU clock was read")
    }

    #[test]
    fn short_events_count_by_the_wall_and_read_no_cpu_clock() {
        let mut meter = begun();
        meter.note("intake", 1_000_010 * US, unread);
        meter.note("relay", 1_000_059 * US, unread);
        meter.note("timers", 1_000_060 * US, unread);
        assert_eq!(meter.end(), (60 * US, "relay"));
    }

    #[test]
    fn a_thread_that_was_taken_off_its_core_used_what_the_cpu_clock_says() {
        let mut meter = begun();
        meter.note("intake", 1_004_000 * US, || 1_007 * US);
        meter.note("relay", 1_004_020 * US, unread);
        assert_eq!(meter.end(), (27 * US, "relay"));
    }

    #[test]
    fn long_work_counts_whole_and_later_work_from_there() {
        let mut meter = begun();
        meter.note("intake", 1_000_300 * US, || 1_300 * US);
        meter.note("relay", 1_000_700 * US, || 1_400 * US);
        assert_eq!(meter.end(), (400 * US, "intake"));
    }

    #[test]
    fn an_event_never_counts_more_than_passed_though_the_reading_is_older() {
        let mut meter = begun();
        meter.note("intake", 1_000_040 * US, unread);
        meter.note("relay", 1_000_100 * US, || 1_100 * US);
        assert_eq!(meter.end(), (100 * US, "relay"));
    }

    #[test]
    fn a_reading_is_renewed_when_stale_and_only_then() {
        let mut meter = begun();
        meter.begin(1_000_099 * US, unread);
        meter.begin(1_500_000 * US, || 50_000 * US);
        meter.note("relay", 1_504_000 * US, || 50_010 * US);
        assert_eq!(meter.end(), (10 * US, "relay"), "what was used before the turn is not the turn's");
    }

    #[test]
    fn a_turn_begins_at_nothing() {
        let mut meter = begun();
        meter.note("intake", 1_000_040 * US, unread);
        meter.begin(1_000_050 * US, unread);
        assert_eq!(meter.end(), (0, ""));
    }
}
