//! The live half of a service's capacity gate: its permits and queue, its tenants, the ceiling that follows the engines,
//! and what was decided. Owns who steps the ceiling; the laws are in [`crate::gate`].
//!
//! `due` is moved by compare and swap: whoever moves it steps the ceiling, alone for a second. All else is read alone.

use super::{Gate, Tenants};
use crate::gate::{Adapting, Ceiling, Evidence, Finding};
use crate::rule::GateTerms;
use crate::{MICROSECOND, Nanos};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What the gate decided of a request, as a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Decided {
    /// Let in at once.
    Admitted,
    /// Had to wait, and was let in.
    AdmittedAfterWait,
    /// Refused: nothing is free, and the queue is full or there is none.
    Capacity,
    /// Refused: its tenant has its share.
    TenantShare,
    /// Refused: every endpoint is at its own ceiling.
    NoCapacity,
    /// Refused: its turn did not come in time.
    QueueTimeout,
    /// Refused: its rule was taken back, or maintenance began, while it waited.
    Drained,
    /// Refused: maintenance.
    Maintenance,
    /// The client left while it waited.
    Left,
}

impl Decided {
    /// All, in the order of their discriminants.
    pub const ALL: [Decided; 9] = [
        Decided::Admitted,
        Decided::AdmittedAfterWait,
        Decided::Capacity,
        Decided::TenantShare,
        Decided::NoCapacity,
        Decided::QueueTimeout,
        Decided::Drained,
        Decided::Maintenance,
        Decided::Left,
    ];

    /// As in `loxilb_ai_admission_decisions_total{reason}`.
    pub const fn word(self) -> &'static str {
        match self {
            Decided::Admitted => "admitted",
            Decided::AdmittedAfterWait => "admitted_after_wait",
            Decided::Capacity => "admission_capacity",
            Decided::TenantShare => "admission_tenant_share",
            Decided::NoCapacity => "admission_no_capacity",
            Decided::QueueTimeout => "admission_queue_timeout",
            Decided::Drained => "admission_drained",
            Decided::Maintenance => "gateway_draining",
            Decided::Left => "client_left",
        }
    }
}

/// The gate of one service. Kept while the service's number lives.
#[derive(Debug)]
pub struct Admission {
    /// Its permits, and who waits for one.
    pub gate: Gate,
    /// What each tenant has.
    pub tenants: Tenants,
    ceiling: AtomicU32,
    finding: AtomicU32,
    due: AtomicU64,
    ttft_sum_us: AtomicU64,
    ttft_count: AtomicU64,
    closed: AtomicBool,
    decided: [AtomicU64; Decided::ALL.len()],
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            gate: Gate::default(),
            tenants: Tenants::default(),
            ceiling: AtomicU32::new(u32::MAX),
            finding: AtomicU32::new(0),
            due: AtomicU64::new(0),
            ttft_sum_us: AtomicU64::new(0),
            ttft_count: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            decided: [const { AtomicU64::new(0) }; Decided::ALL.len()],
        }
    }
}

impl Admission {
    /// Sets how many permits may be out at `now`, and tells it: all that the endpoints may have, or less where the
    /// ceiling follows them. `queued` tells what waits within the engines; it is asked once a second.
    pub fn set_limit(
        &self,
        terms: &GateTerms,
        open: &Ceiling,
        queued: impl FnOnce() -> Option<u32>,
        now: Nanos,
    ) -> u32 {
        let limit = match open.full(terms) {
            None => u32::MAX,
            Some(full) if terms.adaptive.value => self.adapt(full, terms.ttft_target, queued, now),
            Some(full) => full,
        };
        self.gate.set_limit(limit);
        limit
    }

    fn adapt(&self, full: u32, target: Nanos, queued: impl FnOnce() -> Option<u32>, now: Nanos) -> u32 {
        let due = self.due.load(Relaxed);
        let known = Adapting { ceiling: self.ceiling.load(Relaxed), finding: self.finding(), due };
        if now < due {
            return known.step(full, &Evidence::default(), target, now).ceiling;
        }
        let begun = if due == 0 { Adapting::new(full, now) } else { known };
        let evidence = || Evidence { queued: queued(), ttft: self.take_ttft() };
        // Moved to the far end while this one steps, so that nobody steps beside it.
        if self.due.compare_exchange(due, Nanos::MAX, Relaxed, Relaxed).is_err() {
            return known.step(full, &Evidence::default(), target, 0).ceiling;
        }
        let next = if due == 0 { begun } else { begun.step(full, &evidence(), target, now) };
        self.ceiling.store(next.ceiling, Relaxed);
        self.finding.store(next.finding as u32, Relaxed);
        self.due.store(next.due, Relaxed);
        next.ceiling
    }

    /// The first byte of an answer came after so long.
    pub fn saw_first_byte(&self, after: Nanos) {
        self.ttft_sum_us.fetch_add(after / MICROSECOND, Relaxed);
        self.ttft_count.fetch_add(1, Relaxed);
    }

    fn take_ttft(&self) -> Option<Nanos> {
        let (sum, count) = (self.ttft_sum_us.swap(0, Relaxed), self.ttft_count.swap(0, Relaxed));
        sum.checked_div(count).map(|mean| mean * MICROSECOND)
    }

    /// What the last step of an adaptive ceiling found.
    pub fn finding(&self) -> Finding {
        let code = self.finding.load(Relaxed) as usize;
        Finding::ALL.get(code).copied().unwrap_or_default()
    }

    /// As in `fc_effective.adapt_state`.
    pub fn adapt_state(&self, terms: &GateTerms, open: &Ceiling) -> &'static str {
        match open.full(terms).filter(|_| terms.adaptive.value) {
            None => "off",
            Some(full) => {
                let ceiling = self.ceiling.load(Relaxed);
                Adapting { ceiling, finding: self.finding(), due: 0 }.state(full)
            }
        }
    }

    /// Lets nobody in any more, or again: maintenance. Who is in stays.
    pub fn close(&self, closed: bool) {
        self.closed.store(closed, Relaxed);
    }

    /// Whether nobody is let in.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Counts a decision.
    pub fn count(&self, decided: Decided) {
        self.decided[decided as usize].fetch_add(1, Relaxed);
    }

    /// How many decisions of a kind there were.
    pub fn counted(&self, decided: Decided) -> u64 {
        self.decided[decided as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;
    use crate::rule::{Role, Said};

    fn terms(adaptive: bool) -> GateTerms {
        GateTerms {
            outstanding: Said::of(Some(10), None, 0),
            adaptive: Said::of(Some(adaptive), None, false),
            ttft_target: SECOND,
            ..GateTerms::default()
        }
    }

    fn open() -> Ceiling {
        let mut open = Ceiling::default();
        open.add(Role::Normal, 1000);
        open
    }

    #[test]
    fn the_limit_is_the_ceiling_of_the_moment() {
        let admission = Admission::default();
        let fixed = |now| admission.set_limit(&terms(false), &open(), || Some(9), now);
        assert_eq!((fixed(1), admission.gate.limit()), (10, 10));
        assert_eq!(admission.set_limit(&GateTerms::default(), &open(), || None, 1), u32::MAX);
    }

    #[test]
    fn it_steps_once_a_second_whoever_asks() {
        let admission = Admission::default();
        let asked = |queued, now| admission.set_limit(&terms(true), &open(), || queued, now);
        assert_eq!(asked(Some(9), SECOND), 10, "it begins with all");
        assert_eq!(asked(Some(9), 2 * SECOND - 1), 10);
        assert_eq!((asked(Some(9), 2 * SECOND), asked(Some(9), 2 * SECOND)), (8, 8));
        assert_eq!(admission.finding(), Finding::Queued);
        admission.saw_first_byte(3 * SECOND);
        assert_eq!((asked(None, 3 * SECOND), admission.finding()), (6, Finding::Ttft));
        admission.saw_first_byte(SECOND / 2);
        assert_eq!((asked(None, 4 * SECOND), admission.finding()), (7, Finding::Clear));
        assert_eq!((asked(None, 5 * SECOND), admission.finding()), (7, Finding::Stale));
    }
}
