//! What one exact decision saw, as a value of fixed size that a shard can keep many of. Owns its choice of
//! what to show; must never decide anything.

use super::{Candidate, Choice, Miss, Place, Question, Ranking};
use crate::attest;
use crate::decide::Reason;

/// Candidates that an explanation shows.
pub const SHOWN_MAX: usize = 8;

/// A candidate as the decision saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Index of the endpoint in the rule.
    pub endpoint: u16,
    /// Data-parallel rank, or [`super::ANY_RANK`].
    pub rank: u8,
    /// Leading blocks on the GPU, on the GPU or in the host's memory, and anywhere.
    pub runs: [u32; 3],
    /// Leading blocks there or on their way.
    pub promised: u32,
    /// The endpoint's requests in flight.
    pub load: u32,
    /// What it was allowed to carry; `u32::MAX`: anything.
    pub cap: u32,
    /// It takes requests by load alone, since its answers contradict what was predicted.
    pub untrusted: bool,
    /// This is not proven of it, under a rule with a model profile.
    pub unproven: Option<attest::Reason>,
}

impl Shown {
    fn new(candidate: &Candidate, cap: u32) -> Shown {
        let Candidate { endpoint, rank, runs, promised, load, untrusted, unproven, .. } = *candidate;
        Shown { endpoint, rank, runs, promised, load, cap, untrusted, unproven }
    }
}

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was reserved with one of the list, which is the first shown.
    Chosen {
        /// What decided.
        reason: Reason,
        /// The endpoint whose overlap was passed over.
        instead_of: Option<u16>,
        /// Worth of the overlap, thousandths of a block; of a seeded endpoint that of whose place it took.
        score: u64,
        /// Places of the list that were refused before it.
        refused: u16,
    },
    /// It went on to the next tier.
    Missed(Miss),
}

/// Why a request went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What came of it.
    pub outcome: Outcome,
    /// Full blocks of the prompt; 0 where it came to none.
    pub blocks: u32,
    /// How many candidates could be chosen from.
    pub candidates: u16,
    len: u8,
    shown: [Shown; SHOWN_MAX],
}

impl Explanation {
    /// Of a request that came to no question.
    pub fn unasked(miss: Miss) -> Explanation {
        let shown = [Shown::default(); SHOWN_MAX];
        Explanation { outcome: Outcome::Missed(miss), blocks: 0, candidates: 0, len: 0, shown }
    }

    /// Of a miss of [`super::rank`], or of a list of which nobody could be reserved with ([`Miss::Bounded`]).
    pub fn missed(question: &Question, ranking: &Ranking, miss: Miss) -> Explanation {
        let mut explanation = Explanation { blocks: question.blocks, ..Explanation::unasked(miss) };
        explanation.show_all(question, ranking);
        explanation
    }

    /// Of a request that was reserved with place `taken` of the list.
    pub fn chosen(question: &Question, ranking: &Ranking, taken: usize) -> Explanation {
        let Some(choice) = ranking.choices.get(taken) else {
            return Explanation::missed(question, ranking, Miss::Bounded);
        };
        let Choice { candidate, bound, reason, instead_of, score } = *choice;
        let refused = u16::try_from(taken).unwrap_or(u16::MAX);
        let outcome = Outcome::Chosen { reason, instead_of, score, refused };
        let mut explanation =
            Explanation { outcome, ..Explanation::missed(question, ranking, Miss::Bounded) };
        explanation.len = 0;
        explanation.show(question, usize::from(candidate), bound);
        explanation.show_all(question, ranking);
        explanation
    }

    /// The candidates shown: who was chosen, who has the most overlap, then by the list.
    pub fn shown(&self) -> &[Shown] {
        &self.shown[..usize::from(self.len)]
    }

    fn show_all(&mut self, question: &Question, ranking: &Ranking) {
        self.candidates = ranking.count;
        let shallow = ranking.places.iter().filter(|_| ranking.choices.is_empty());
        let places = ranking.plain.iter().chain(shallow);
        let places = places.map(|place: &Place| (place.index(), place.bound));
        let choices = ranking.choices.iter().map(|c| (usize::from(c.candidate), c.bound));
        for (index, cap) in places.chain(choices) {
            self.show(question, index, cap);
        }
    }

    fn show(&mut self, question: &Question, index: usize, cap: u32) {
        let Some(candidate) = question.candidates.get(index) else { return };
        let alike = |s: &Shown| (s.endpoint, s.rank) == (candidate.endpoint, candidate.rank);
        if !self.shown().iter().any(alike)
            && let Some(next) = self.shown.get_mut(usize::from(self.len))
        {
            *next = Shown::new(candidate, cap);
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 of a shard are some 80 KB.
    #[test]
    fn an_explanation_is_small() {
        assert!(size_of::<Explanation>() <= 344, "{}", size_of::<Explanation>());
    }
}
