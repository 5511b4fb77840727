//! What a shard counts for one service, by endpoint. Owns taking the counts along, by address, when the rule is
//! replaced; must never decide.

use warmpath_core::control::{AnswerCount, ExactCount, ExactReport, PairReport, SessionCount};
use warmpath_core::decide::Reason;
use warmpath_core::decide::exact::{Explanation, Miss, Outcome};
use warmpath_core::table::Service;

/// The counts of one service.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers by endpoint and status class; last, those that the gateway gave itself.
    answers: Vec<[u64; 6]>,
    exact: ExactReport,
    /// Pairs of prefill and decode.
    pub pairs: PairReport,
    sessions: SessionCount,
}

impl Counts {
    /// Those of `service`, which took the place of `before`.
    pub fn new(service: &Service, before: Option<(&Service, &Counts)>) -> Counts {
        let place_before = |endpoint: usize| {
            let (old, _) = before?;
            let address = service.endpoints.get(endpoint)?.address();
            old.endpoints.iter().position(|e| e.address() == address)
        };
        let old = before.map(|(_, counts)| counts);
        let endpoints = 0..service.endpoints.len();
        let mut answers: Vec<[u64; 6]> = Vec::with_capacity(endpoints.len() + 1);
        let mut exact: Vec<ExactCount> = Vec::with_capacity(endpoints.len());
        for place in endpoints.map(place_before) {
            let at = |place: Option<usize>| Some((old?, place?));
            answers.push(at(place).and_then(|(old, at)| old.answers.get(at).copied()).unwrap_or_default());
            let kept = at(place).and_then(|(old, at)| old.exact.endpoints.get(at).copied());
            exact.push(kept.unwrap_or_default());
        }
        answers.push(old.and_then(|old| old.answers.last().copied()).unwrap_or_default());
        let kept = old.map(|old| old.exact.clone()).unwrap_or_default();
        let pairs = old.map(|old| old.pairs.clone()).unwrap_or_default();
        Counts {
            answers,
            exact: ExactReport { service: service.number, endpoints: exact, ..kept },
            pairs: PairReport { service: service.number, ..pairs },
            sessions: SessionCount {
                service: service.number,
                ..old.map(|old| old.sessions).unwrap_or_default()
            },
        }
    }

    /// Counts an answer of an endpoint, or with `None` one that the gateway gave itself.
    pub fn answer(&mut self, endpoint: Option<usize>, status: u16) {
        let own = self.answers.len().saturating_sub(1);
        if let Some(classes) = self.answers.get_mut(endpoint.unwrap_or(own)) {
            classes[usize::from(status / 100).min(5)] += 1;
        }
    }

    /// Counts what exact routing decided, or why it did not.
    pub fn exact(&mut self, explanation: &Explanation) {
        match explanation.outcome {
            Outcome::Missed(miss) => self.miss(miss),
            Outcome::Chosen { reason, .. } => {
                let Some(chosen) = explanation.shown().first() else { return };
                if let Some(count) = self.exact.endpoints.get_mut(usize::from(chosen.endpoint)) {
                    count.hits += 1;
                    count.spills += u64::from(matches!(reason, Reason::ExactSpill | Reason::ExactRelief));
                    count.seeds += u64::from(reason == Reason::ExactSeed);
                    count.promised += u64::from(reason == Reason::ExactPromised);
                }
            }
        }
    }

    /// Counts a lookup at the end of a suspiciously long row without a hit.
    pub fn zero_hits(&mut self) {
        self.exact.zero_hits += 1;
    }

    /// Counts the tokens of a prompt that was routed exactly, and those predicted to be cached.
    pub fn tokens(&mut self, prompt: u32, predicted: u32) {
        self.exact.prompt_tokens += u64::from(prompt);
        self.exact.predicted_tokens += u64::from(predicted);
    }

    /// Counts what the engine says it had cached of a prompt that was routed exactly.
    pub fn told(&mut self, predicted: u32, cached: u32) {
        self.exact.cached_tokens += u64::from(cached);
        self.exact.told += 1;
        self.exact.as_predicted += u64::from(cached == predicted);
    }

    /// A few reasons ever come: a list is searched faster than a map.
    fn miss(&mut self, miss: Miss) {
        match self.exact.misses.iter_mut().find(|(known, _)| *known == miss) {
            Some((_, count)) => *count += 1,
            None => self.exact.misses.push((miss, 1)),
        }
    }

    /// Counts what decided of a request of a service that keeps sessions.
    pub fn decided(&mut self, reason: Reason) {
        match reason.tier() {
            "tier0" => self.sessions.hits += 1,
            "tier1" => self.sessions.trie_hits += 1,
            "tier15" => {}
            _ => self.sessions.others += 1,
        }
    }

    /// What decided.
    pub fn sessions(&self) -> SessionCount {
        self.sessions
    }

    /// How exact routing went.
    pub fn exact_report(&self) -> ExactReport {
        self.exact.clone()
    }

    /// Answers counted so far.
    pub fn answers(&self) -> Vec<AnswerCount> {
        let own = self.answers.len().saturating_sub(1);
        let mut out = Vec::new();
        for (place, classes) in self.answers.iter().enumerate() {
            let endpoint = if place == own { u16::MAX } else { place as u16 };
            for (class, count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
                let (service, class, count) = (self.exact.service, class as u8, *count);
                out.push(AnswerCount { service, endpoint, class, count });
            }
        }
        out
    }
}
