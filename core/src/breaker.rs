//! The circuit breaker of an endpoint: whether requests still go to it after how the last ones ended. Owns the state
//! machine as plain values; must never read a clock or hold what is shared ([`crate::shared::BreakerState`] does).
//!
//! Closed, it counts two rows. Attempts without an answer (not connected, nothing in time, closed or garbled before a
//! head) end with any answer; answers of 5xx end with one below 400, while one of 4xx, the client's own fault, counts for
//! neither. Either row opens it at its threshold. Open, nobody is let through until the time is over; then one trial at a
//! time. An answer below 400 to a trial closes it, a failure opens it anew. An answer of 4xx closes it where what was
//! missing were answers; where it opened for answers of 5xx, 4xx proves nothing and the next request is the next trial.
//! What ends while it is open, of requests let through before, says nothing new.

use crate::{MILLISECOND, Nanos, SECOND};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTerms {
    /// Attempts without an answer, in a row, that open it; 1 to 255.
    pub failures: u8,
    /// Answers of 5xx in a row that open it (`LLB_PD_ORIGIN_ERR_THRESHOLD`); 0: they never do.
    pub origin_errors: u8,
    /// How long nobody is let through once it opened.
    pub open: Nanos,
}

impl BreakerTerms {
    /// Those of `cb_enable`.
    pub const fn plain(origin_errors: u8) -> BreakerTerms {
        BreakerTerms { failures: 5, origin_errors, open: 30 * SECOND }
    }

    /// Those of prefill and decode endpoints, which have one whatever `cb_enable` says.
    pub const fn pair(origin_errors: u8) -> BreakerTerms {
        BreakerTerms { failures: 3, origin_errors, open: 30 * SECOND }
    }
}

/// How an attempt at an endpoint ended, as far as its health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer below 400.
    Answered,
    /// An answer of 4xx.
    Objected,
    /// An answer of 5xx.
    OriginError,
    /// Not connected, nothing in time, closed or garbled before a head.
    Unanswered,
}

impl Outcome {
    /// That of an answer with this status.
    pub const fn of(status: u16) -> Outcome {
        match status {
            0..400 => Outcome::Answered,
            400..500 => Outcome::Objected,
            _ => Outcome::OriginError,
        }
    }
}

/// Why it opened last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Attempts without an answer.
    #[default]
    Unanswered,
    /// Answers of 5xx.
    OriginErrors,
}

impl Cause {
    /// As people read it.
    pub const fn words(self) -> &'static str {
        match self {
            Cause::Unanswered => "attempts without an answer",
            Cause::OriginErrors => "answers of 5xx",
        }
    }
}

/// Its state, as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All requests are let through.
    Closed,
    /// None is.
    Open,
    /// One at a time is.
    HalfOpen,
}

impl State {
    /// As in status.
    pub const fn word(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half_open",
        }
    }
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that anybody has to hear of.
    None,
    /// It opened, from closed or from a trial.
    Opened,
    /// A trial closed it.
    Closed,
}

/// What is remembered of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    mode: Mode,
    cause: Cause,
    /// Attempts without an answer in a row.
    failures: u8,
    /// Answers of 5xx in a row.
    origin_errors: u8,
    /// Milliseconds of the clock until which it is open; 44 bits, 557 years.
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Closed,
    Open,
    /// A trial may go.
    HalfOpen,
    /// A trial is on its way.
    Trial,
}

const UNTIL_BITS: u32 = 44;

impl Breaker {
    /// What a word says.
    pub const fn of(word: u64) -> Breaker {
        let mode = match word & 3 {
            0 => Mode::Closed,
            1 => Mode::Open,
            2 => Mode::HalfOpen,
            _ => Mode::Trial,
        };
        let cause = if word >> 2 & 1 == 0 { Cause::Unanswered } else { Cause::OriginErrors };
        Breaker {
            mode,
            cause,
            failures: (word >> 4) as u8,
            origin_errors: (word >> 12) as u8,
            until_ms: word >> (u64::BITS - UNTIL_BITS),
        }
    }

    /// The same as a word; 0 is closed, with nothing counted.
    pub const fn word(self) -> u64 {
        self.mode as u64
            | (self.cause as u64) << 2
            | (self.failures as u64) << 4
            | (self.origin_errors as u64) << 12
            | self.until_ms << (u64::BITS - UNTIL_BITS)
    }

    /// Its state at `now`: an open one whose time is over is half open.
    pub const fn state(self, now: Nanos) -> State {
        match self.mode {
            Mode::Closed => State::Closed,
            Mode::Open if self.until_ms * MILLISECOND > now => State::Open,
            Mode::Open | Mode::HalfOpen | Mode::Trial => State::HalfOpen,
        }
    }

    /// Why it opened last.
    pub const fn cause(self) -> Cause {
        self.cause
    }

    /// Whether it lets all requests through.
    pub const fn is_closed(self) -> bool {
        matches!(self.mode, Mode::Closed)
    }

    /// Whether a request may be let through at `now`. Unless it is closed, the request has to take the trial.
    pub fn admits(self, now: Nanos) -> bool {
        self.mode != Mode::Trial && self.state(now) != State::Open
    }

    /// The trial taken by one request, if there is one to take; whether it is the first since the breaker opened.
    pub fn trial(self, now: Nanos) -> Option<(Breaker, bool)> {
        let due = !self.is_closed() && self.admits(now);
        due.then_some((Breaker { mode: Mode::Trial, ..self }, self.mode == Mode::Open))
    }

    /// The trial's request ended before it could prove anything.
    pub fn without_trial(self) -> Breaker {
        match self.mode {
            Mode::Trial => Breaker { mode: Mode::HalfOpen, ..self },
            _ => self,
        }
    }

    /// After an attempt that was let through as it was closed.
    pub fn after(self, outcome: Outcome, terms: BreakerTerms, now: Nanos) -> (Breaker, Change) {
        if !self.is_closed() {
            return (self, Change::None);
        }
        let (failures, origin_errors) = match outcome {
            Outcome::Answered => (0, 0),
            Outcome::Objected => (0, self.origin_errors),
            Outcome::OriginError => (0, self.origin_errors.saturating_add(1)),
            Outcome::Unanswered => (self.failures.saturating_add(1), self.origin_errors),
        };
        let counted = Breaker { failures, origin_errors, ..self };
        if failures >= terms.failures.max(1) {
            return (counted.opened(Cause::Unanswered, terms, now), Change::Opened);
        }
        if terms.origin_errors > 0 && origin_errors >= terms.origin_errors {
            return (counted.opened(Cause::OriginErrors, terms, now), Change::Opened);
        }
        (counted, Change::None)
    }

    /// After the trial.
    pub fn after_trial(self, outcome: Outcome, terms: BreakerTerms, now: Nanos) -> (Breaker, Change) {
        if self.mode != Mode::Trial {
            return (self, Change::None);
        }
        match (outcome, self.cause) {
            (Outcome::Answered, _) | (Outcome::Objected, Cause::Unanswered) => {
                (Breaker::default(), Change::Closed)
            }
            (Outcome::Objected, Cause::OriginErrors) => (self.without_trial(), Change::None),
            (Outcome::Unanswered, _) => (self.opened(Cause::Unanswered, terms, now), Change::Opened),
            (Outcome::OriginError, _) if terms.origin_errors == 0 => (Breaker::default(), Change::Closed),
            (Outcome::OriginError, _) => (self.opened(Cause::OriginErrors, terms, now), Change::Opened),
        }
    }

    fn opened(self, cause: Cause, terms: BreakerTerms, now: Nanos) -> Breaker {
        let until_ms = ((now + terms.open).div_ceil(MILLISECOND)).min((1 << UNTIL_BITS) - 1);
        Breaker { mode: Mode::Open, cause, failures: 0, origin_errors: 0, until_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Answered, Objected, OriginError, Unanswered};
    use super::*;

    const TERMS: BreakerTerms = BreakerTerms::pair(3);

    /// The state after each of `outcomes`, one a second, each let through as the state allows.
    fn run(terms: BreakerTerms, outcomes: &[Outcome]) -> Vec<State> {
        let (mut breaker, mut now) = (Breaker::default(), 0);
        let mut states = Vec::new();
        for outcome in outcomes {
            now += SECOND;
            breaker = match breaker.trial(now) {
                Some((trial, _)) => trial.after_trial(*outcome, terms, now).0,
                None => breaker.after(*outcome, terms, now).0,
            };
            assert_eq!(Breaker::of(breaker.word()), breaker, "a word keeps it");
            states.push(breaker.state(now));
        }
        states
    }

    fn opens(terms: BreakerTerms, outcomes: &[Outcome]) -> bool {
        run(terms, outcomes).last() == Some(&State::Open)
    }

    #[test]
    fn rows_open_it_and_what_ends_a_row_does_not() {
        for (outcomes, open) in [
            (&[Unanswered, Unanswered][..], false),
            (&[Unanswered, Unanswered, Unanswered], true),
            (&[Unanswered, Unanswered, Answered, Unanswered], false),
            (&[Unanswered, Unanswered, Objected, Unanswered], false),
            (&[Unanswered, Unanswered, OriginError, Unanswered], false),
            (&[OriginError, OriginError], false),
            (&[OriginError, OriginError, OriginError], true),
            (&[OriginError, OriginError, Objected, OriginError], true),
            (&[OriginError, OriginError, Answered, OriginError], false),
            (&[OriginError, Unanswered, OriginError, Unanswered, OriginError], true),
            (&[Objected; 100], false),
            (&[Answered; 3], false),
        ] {
            assert_eq!(opens(TERMS, outcomes), open, "{outcomes:?}");
        }
    }

    #[test]
    fn thresholds_are_the_terms() {
        let plain = BreakerTerms::plain(0);
        assert!(!opens(plain, &[Unanswered; 4]) && opens(plain, &[Unanswered; 5]));
        assert!(!opens(plain, &[OriginError; 255]), "0 never opens for answers");
        assert!(!opens(BreakerTerms::plain(7), &[OriginError; 6]));
        assert!(opens(BreakerTerms::plain(7), &[OriginError; 7]));
    }

    fn open(cause: Outcome) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            breaker = breaker.after(cause, TERMS, SECOND).0;
        }
        breaker
    }

    #[test]
    fn an_open_one_lets_one_trial_through_when_its_time_is_over() {
        let breaker = open(Unanswered);
        let due = SECOND + TERMS.open;
        assert_eq!((breaker.state(due - 1), breaker.admits(due - 1)), (State::Open, false));
        assert_eq!(breaker.trial(due - 1), None);
        assert_eq!((breaker.state(due), breaker.admits(due)), (State::HalfOpen, true));
        let (trial, first) = breaker.trial(due).unwrap();
        assert!(first && trial.state(due) == State::HalfOpen);
        assert!(!trial.admits(due + TERMS.open) && trial.trial(due).is_none(), "one at a time");
        let again = trial.without_trial();
        assert!(again.admits(due) && again.trial(due) == Some((trial, false)));
        assert_eq!(Breaker::default().trial(due), None, "a closed one needs none");
    }

    #[test]
    fn a_trial_decides_by_why_it_opened() {
        let (gone, failing) = (open(Unanswered), open(OriginError));
        for (opened, outcome, state, change) in [
            (gone, Answered, State::Closed, Change::Closed),
            (gone, Objected, State::Closed, Change::Closed),
            (gone, OriginError, State::Open, Change::Opened),
            (gone, Unanswered, State::Open, Change::Opened),
            (failing, Answered, State::Closed, Change::Closed),
            (failing, Objected, State::HalfOpen, Change::None),
            (failing, OriginError, State::Open, Change::Opened),
            (failing, Unanswered, State::Open, Change::Opened),
        ] {
            let due = SECOND + TERMS.open;
            let (trial, _) = opened.trial(due).unwrap();
            let (after, told) = trial.after_trial(outcome, TERMS, due);
            assert_eq!((after.state(due), told), (state, change), "{outcome:?} after {:?}", opened.cause());
            assert_eq!(after.state(due + TERMS.open - 1), state, "open for its whole time again");
        }
        let due = SECOND + TERMS.open;
        let (trial, _) = gone.trial(due).unwrap();
        let unheeding = BreakerTerms { origin_errors: 0, ..TERMS };
        assert_eq!(trial.after_trial(OriginError, unheeding, due).1, Change::Closed, "it answers");
    }

    #[test]
    fn what_was_let_through_before_says_nothing_once_it_is_open() {
        let breaker = open(Unanswered);
        for outcome in [Answered, Objected, OriginError, Unanswered] {
            assert_eq!(breaker.after(outcome, TERMS, 9 * SECOND), (breaker, Change::None));
            let (trial, _) = breaker.trial(SECOND + TERMS.open).unwrap();
            assert_eq!(trial.after(outcome, TERMS, 40 * SECOND), (trial, Change::None));
            assert_eq!(breaker.after_trial(outcome, TERMS, 9 * SECOND), (breaker, Change::None));
        }
        assert_eq!(breaker.without_trial(), breaker);
    }

    #[test]
    fn statuses_are_judged_by_their_hundreds() {
        let judged = [200, 204, 302, 399, 400, 404, 429, 499, 500, 503, 599].map(Outcome::of);
        assert_eq!(judged[..4], [Answered; 4]);
        assert_eq!(judged[4..8], [Objected; 4]);
        assert_eq!(judged[8..], [OriginError; 3]);
    }
}
