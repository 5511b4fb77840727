//! How far one endpoint of one rule is trusted, of all shards. Owns the protocol: the word is read with one load,
//! and changed by compare and swap by whoever judged an answer; counts are added to alone, relaxed, and only people
//! read them.

use crate::Nanos;
use crate::trust::counters::{Open, Untold};
use crate::trust::{Answer, Class, Finding, PROBE_EVERY, State, Symptoms, Trust};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Compare and swaps that one answer tries: where so many others were judged meanwhile, it is not missed.
const ATTEMPTS: usize = 8;

/// The memory of one endpoint of one rule. Lives as long as the rule names the endpoint's source.
#[derive(Debug)]
pub struct TrustState {
    word: AtomicU64,
    probe_at: AtomicU64,
    demotions: AtomicU32,
    symptoms: [[AtomicU32; Finding::ALL.len()]; Class::COUNT],
    untold: UntoldSums,
    /// Windows of the engine's counters that were judged, and those that proved nothing, by reason.
    windows: [AtomicU32; Open::ALL.len() + 1],
}

/// [`Untold`], as the shards add to it.
#[derive(Debug, Default)]
struct UntoldSums {
    requests: [AtomicU64; Class::COUNT],
    tokens: AtomicU64,
    predicted: AtomicU64,
    reach: AtomicU64,
    promised: AtomicU64,
    units: AtomicU64,
    unsure: AtomicU64,
}

impl Default for TrustState {
    fn default() -> TrustState {
        TrustState {
            word: AtomicU64::new(0),
            probe_at: AtomicU64::new(0),
            demotions: AtomicU32::new(0),
            symptoms: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0))),
            untold: UntoldSums::default(),
            windows: Default::default(),
        }
    }
}

impl TrustState {
    /// How far it is trusted now.
    pub fn state(&self) -> State {
        self.now().state()
    }

    /// All that is remembered.
    pub fn now(&self) -> Trust {
        Trust::of(self.word.load(Relaxed))
    }

    /// Shard: an answer of this class was judged. What it was demoted for is forgotten once it is let in again.
    pub fn judged(&self, class: Class, finding: Finding) {
        self.symptoms[class.place()][finding as usize].fetch_add(1, Relaxed);
        for _ in 0..ATTEMPTS {
            let known = self.word.load(Relaxed);
            let next = Trust::of(known).after(finding.agrees());
            if self.word.compare_exchange(known, next.word(), Relaxed, Relaxed).is_ok() {
                match [Trust::of(known), next].map(|trust| trust.state() == State::LoadOnly) {
                    [true, false] => self.symptoms.iter().flatten().for_each(|count| count.store(0, Relaxed)),
                    [false, true] => {
                        self.demotions.fetch_add(1, Relaxed);
                    }
                    _ => {}
                }
                return;
            }
        }
    }

    /// How often it began to take requests by load alone.
    pub fn demotions(&self) -> u32 {
        self.demotions.load(Relaxed)
    }

    /// Shard: whether a request may be routed by blocks to an endpoint that takes requests by load alone, to see
    /// whether it is right again. True once every [`PROBE_EVERY`], for one shard.
    pub fn take_probe(&self, now: Nanos) -> bool {
        let due = self.probe_at.load(Relaxed);
        now >= due && self.probe_at.compare_exchange(due, now + PROBE_EVERY, Relaxed, Relaxed).is_ok()
    }

    /// Shard: an answer to so many prompt tokens told nothing of the cache.
    pub fn was_untold(&self, class: Class, tokens: u32, predicted: &Answer) {
        let sums = &self.untold;
        sums.requests[class.place()].fetch_add(1, Relaxed);
        let of = [
            (&sums.tokens, tokens),
            (&sums.predicted, predicted.predicted),
            (&sums.reach, predicted.reach),
            (&sums.promised, predicted.promised),
            (&sums.units, predicted.unit),
            (&sums.unsure, u32::from(!predicted.is_all_known)),
        ];
        for (sum, more) in of {
            sum.fetch_add(more.into(), Relaxed);
        }
    }

    /// Admin: what was sent and told nothing, so far. Of one moment only while nothing is in flight.
    pub fn untold(&self) -> Untold {
        let sums = &self.untold;
        Untold {
            requests: std::array::from_fn(|at| sums.requests[at].load(Relaxed)),
            tokens: sums.tokens.load(Relaxed),
            predicted: sums.predicted.load(Relaxed),
            reach: sums.reach.load(Relaxed),
            promised: sums.promised.load(Relaxed),
            units: sums.units.load(Relaxed),
            unsure: sums.unsure.load(Relaxed),
        }
    }

    /// Admin: a window of the engine's counters was judged, or proved nothing.
    pub fn window(&self, open: Option<Open>) {
        self.windows[open.map_or(Open::ALL.len(), |open| open as usize)].fetch_add(1, Relaxed);
    }

    /// Windows that were judged, and those that proved nothing by the place of their reason.
    pub fn windows(&self) -> (u32, [u32; Open::ALL.len()]) {
        let judged = self.windows[Open::ALL.len()].load(Relaxed);
        (judged, std::array::from_fn(|at| self.windows[at].load(Relaxed)))
    }

    /// How often each finding was made since it was last let in.
    pub fn symptoms(&self) -> Symptoms {
        Symptoms(std::array::from_fn(|class| {
            std::array::from_fn(|finding| self.symptoms[class][finding].load(Relaxed))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;
    use crate::trust::Given;

    #[test]
    fn answers_move_it_and_what_they_showed_is_forgotten_with_its_recovery() {
        let (trust, class) = (TrustState::default(), Class { given: Given::Chat, ..Class::default() });
        (0..20).for_each(|_| trust.judged(class, Finding::Recount));
        assert_eq!(trust.state(), State::LoadOnly);
        assert_eq!(trust.symptoms().count(|_| true, Finding::Recount), 20);
        (0..3).for_each(|_| trust.judged(Class::default(), Finding::Agrees));
        assert_eq!((trust.state(), trust.symptoms()), (State::Trusted, Symptoms::default()));
        assert_eq!(trust.demotions(), 1);
    }

    #[test]
    fn one_probe_each_five_seconds() {
        let trust = TrustState::default();
        let taken =
            [0, 1, 5 * SECOND - 1, 5 * SECOND, 6 * SECOND, 11 * SECOND].map(|at| trust.take_probe(at));
        assert_eq!(taken, [true, false, false, true, false, true]);
    }
}
