//! Predictions that no answer judged, judged by the events of the request. Owns what one rank stored lately and what is
//! asked of it; must never write the index.
//!
//! A request computes the blocks that it did not find, and its engine stores them: anew, or once more where it has them
//! already. So if the last blocks that counted as held are stored once more, they were not found; if the first that did
//! not count is stored and they are not, they were. Two of them must be stored: one alone may be the last full block of
//! another request, which every engine computes. Where neither happened, nothing was proven.
//!
//! Blocks that were on their way by other requests and were found are asked after too: their events must have come
//! under these names. Where they never do, the engine has blocks that nobody was told of.

use std::collections::VecDeque;
use warmpath_core::shared::Observation;
use warmpath_core::trust::{Class, Finding};
use warmpath_core::{MILLISECOND, Nanos, SECOND};

/// Stored blocks that are remembered, while anything is asked.
const STORED_KEPT: usize = 1 << 12;

/// Questions that wait at most; more are not asked.
const WAITING_MAX: usize = 256;

/// How long after an answer its events may come.
const GRACE: Nanos = 250 * MILLISECOND;

/// How long after an answer the events of others may come, and how long before its request they may have.
const GRACE_OF_OTHERS: Nanos = 2 * SECOND;

/// Nothing is remembered after so long without a question.
const REMEMBERED: Nanos = 60 * SECOND;

/// One prediction.
#[derive(Clone, Copy, Debug)]
struct Question {
    due: Nanos,
    sent: Nanos,
    held: [u64; 2],
    next: Option<u64>,
    service: u32,
    class: Class,
}

/// Blocks that others brought.
#[derive(Clone, Copy, Debug)]
struct Brought {
    due: Nanos,
    since: Nanos,
    keys: [u64; 2],
    service: u32,
    class: Class,
}

/// A block that a routed request brings.
#[derive(Clone, Copy, Debug)]
struct Routed {
    due: Nanos,
    sent: Nanos,
    key: u64,
    service: u32,
}

/// One rank's.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    stored: VecDeque<(Nanos, u64)>,
    /// All that was stored from here on is remembered; `None`: nothing is.
    since: Option<Nanos>,
    asked: Nanos,
    waiting: VecDeque<Question>,
    brought: VecDeque<Brought>,
    routed: VecDeque<Routed>,
}

impl Questions {
    /// Asks whether the blocks that counted as held were computed.
    pub fn ask(&mut self, told: &Observation<'_>, service: u32, class: Class, now: Nanos) {
        self.asked = now;
        self.since.get_or_insert(now);
        let [before, last, next @ ..] = told.keys else { return };
        if self.waiting.len() < WAITING_MAX {
            let (held, next) = ([*before, *last], next.first().copied());
            self.waiting.push_back(Question {
                due: now + GRACE,
                sent: told.sent,
                held,
                next,
                service,
                class,
            });
        }
    }

    /// Asks whether the blocks that others brought came under these names.
    pub fn ask_brought(&mut self, told: &Observation<'_>, service: u32, class: Class, now: Nanos) {
        self.asked = now;
        self.since.get_or_insert(now);
        let Ok(keys) = told.keys.try_into() else { return };
        if self.brought.len() < WAITING_MAX {
            let (due, since) = (now + GRACE_OF_OTHERS, told.sent.saturating_sub(GRACE_OF_OTHERS));
            self.brought.push_back(Brought { due, since, keys, service, class });
        }
    }

    /// Asks whether a block that a request brings came under this name.
    pub fn ask_routed(&mut self, told: &Observation<'_>, service: u32, now: Nanos) {
        self.asked = now;
        self.since.get_or_insert(now);
        if let (Some(key), true) = (told.keys.first(), self.routed.len() < WAITING_MAX) {
            self.routed.push_back(Routed { due: now + GRACE, sent: told.sent, key: *key, service });
        }
    }

    /// Services whose requests brought a block under the name that was asked after, of those that are due.
    pub fn named(&mut self, now: Nanos, mut each: impl FnMut(u32)) {
        while let Some(routed) = self.routed.front().copied().filter(|routed| now >= routed.due) {
            self.routed.pop_front();
            if self.was_stored(routed.key, routed.sent) {
                each(routed.service);
            }
        }
    }

    /// A block was stored, or stored once more.
    #[inline]
    pub fn stored(&mut self, now: Nanos, key: u64) {
        if self.since.is_none() {
            return;
        }
        if self.stored.len() == STORED_KEPT
            && let Some((at, _)) = self.stored.pop_front()
        {
            self.since = Some(at + 1);
        }
        self.stored.push_back((now, key));
    }

    /// Answers what is due.
    pub fn answer(&mut self, now: Nanos, mut each: impl FnMut(u32, Class, Finding)) {
        while let Some(question) = self.waiting.front().copied().filter(|question| now >= question.due) {
            self.waiting.pop_front();
            if let Some(finding) = self.found(&question) {
                each(question.service, question.class, finding);
            }
        }
        while let Some(brought) = self.brought.front().copied().filter(|brought| now >= brought.due) {
            self.brought.pop_front();
            if let Some(finding) = self.came(&brought) {
                each(brought.service, brought.class, finding);
            }
        }
        if self.since.is_some() && now >= self.asked + REMEMBERED {
            *self = Questions::default();
        }
    }

    /// Whether all that was stored since then is remembered.
    fn remembers(&self, then: Nanos) -> bool {
        self.since.is_some_and(|since| then >= since)
    }

    fn was_stored(&self, key: u64, since: Nanos) -> bool {
        let mut recent = self.stored.iter().rev().take_while(|(at, _)| *at >= since);
        recent.any(|(_, own)| *own == key)
    }

    fn came(&self, brought: &Brought) -> Option<Finding> {
        if !self.remembers(brought.since) {
            return None;
        }
        match brought.keys.map(|key| self.was_stored(key, brought.since)) {
            [true, true] => Some(Finding::Agrees),
            [false, false] => Some(Finding::More),
            _ => None,
        }
    }

    fn found(&self, question: &Question) -> Option<Finding> {
        if !self.remembers(question.sent) {
            return None;
        }
        let since = |key: u64| self.was_stored(key, question.sent);
        match (question.held.map(since), question.next) {
            ([true, true], _) => Some(Finding::Less),
            ([false, false], Some(next)) if since(next) => Some(Finding::Agrees),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::shared::Shown;

    /// Asks of blocks 1 and 2 that count as held, and 3 that does not, by a request sent at second 10.
    fn answers(stored: &[(Nanos, u64)], keys: &[u64]) -> Vec<Finding> {
        let mut questions = Questions::default();
        let class = Class::default();
        let told =
            |sent| Observation { source: 1, rank: 0, sent, shown: Shown::Untold { service: 7, class }, keys };
        questions.ask(&told(0), 7, class, 5 * SECOND);
        stored.iter().for_each(|(at, key)| questions.stored(at * SECOND, *key));
        questions.ask(&told(10 * SECOND), 7, class, 12 * SECOND);
        let mut found = Vec::new();
        questions.answer(12 * SECOND + GRACE - 1, |_, _, finding| found.push(finding));
        assert_eq!(found, [], "of the first nothing is remembered; the second is not due");
        questions.answer(12 * SECOND + GRACE, |service, _, finding| {
            assert_eq!(service, 7);
            found.push(finding);
        });
        found
    }

    #[test]
    fn events_since_the_request_was_sent_judge_it() {
        assert_eq!(answers(&[(11, 3)], &[1, 2, 3]), [Finding::Agrees]);
        assert_eq!(answers(&[(11, 1), (11, 2), (11, 3)], &[1, 2, 3]), [Finding::Less]);
        assert_eq!(answers(&[(11, 1), (11, 2)], &[1, 2]), [Finding::Less]);
        // Before it was sent; the last full block of another request; nothing at all; a hit of all there is.
        assert_eq!(answers(&[(9, 1), (9, 2), (11, 3)], &[1, 2, 3]), [Finding::Agrees]);
        assert_eq!(answers(&[(11, 2), (11, 3)], &[1, 2, 3]), []);
        assert_eq!(answers(&[], &[1, 2, 3]), []);
        assert_eq!(answers(&[], &[1, 2]), []);
    }

    #[test]
    fn what_others_brought_must_come_under_its_names() {
        let came = |stored: &[(Nanos, u64)]| {
            let (mut questions, class) = (Questions::default(), Class::default());
            let shown = Shown::Brought { service: 7, class };
            let told = |sent| Observation { source: 1, rank: 0, sent, shown, keys: &[1, 2] };
            questions.ask_brought(&told(0), 7, class, SECOND);
            stored.iter().for_each(|(at, key)| questions.stored(at * SECOND, *key));
            questions.ask_brought(&told(10 * SECOND), 7, class, 11 * SECOND);
            let mut found = Vec::new();
            questions.answer(13 * SECOND - 1, |_, _, finding| found.push(finding));
            assert_eq!(found, [], "of the first nothing is remembered; the second is not due");
            questions.answer(13 * SECOND, |_, _, finding| found.push(finding));
            found
        };
        assert_eq!(came(&[(9, 1), (9, 2)]), [Finding::Agrees], "between the decision and its being sent");
        assert_eq!(came(&[(11, 1), (12, 2)]), [Finding::Agrees]);
        assert_eq!(came(&[(7, 1), (7, 2)]), [Finding::More], "long before: it would have been known");
        assert_eq!(came(&[(11, 3), (11, 4)]), [Finding::More], "under other names");
        assert_eq!(came(&[(11, 2)]), []);
    }

    #[test]
    fn a_routed_request_vouches_for_the_name_of_a_block_that_it_brought_itself() {
        let named = |stored: &[(Nanos, u64)]| {
            let (mut questions, shown) = (Questions::default(), Shown::Routed { service: 7 });
            let told = |sent, keys| Observation { source: 1, rank: 0, sent, shown, keys };
            questions.ask_routed(&told(0, &[1]), 7, SECOND);
            questions.named(SECOND + GRACE, |_| panic!("it never came"));
            stored.iter().for_each(|(at, key)| questions.stored(at * SECOND, *key));
            questions.ask_routed(&told(10 * SECOND, &[3]), 7, 12 * SECOND);
            let mut found = Vec::new();
            questions.named(12 * SECOND + GRACE - 1, |_| panic!("it is not due"));
            questions.named(12 * SECOND + GRACE, |service| found.push(service));
            found
        };
        assert_eq!(
            [named(&[(11, 3)]), named(&[(9, 3)]), named(&[(11, 4)]), named(&[])],
            [vec![7], vec![], vec![], vec![]]
        );
    }

    #[test]
    fn what_is_not_remembered_any_more_proves_nothing() {
        let many: Vec<(Nanos, u64)> = (0..STORED_KEPT as u64).map(|at| (11, 100 + at)).collect();
        assert_eq!(answers(&[&[(11, 3)], &many[..]].concat(), &[1, 2, 3]), []);
        assert_eq!(answers(&[&many[1..], &[(11, 3)]].concat(), &[1, 2, 3]), [Finding::Agrees]);
        let mut questions = Questions::default();
        questions.stored(1, 1);
        assert!(questions.stored.is_empty(), "nothing was ever asked");
    }
}
