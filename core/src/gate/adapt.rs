//! The ceiling follows what the engines can do: one step a second. Owns the law; must never see a single request.

use crate::{Nanos, SECOND};

/// The time between two steps.
const STEP: Nanos = SECOND;

/// A ceiling that moves between a quarter of the full one and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapting {
    /// The ceiling now.
    pub ceiling: u32,
    /// What the last step found.
    pub finding: Finding,
    /// When the next step is due.
    pub due: Nanos,
}

/// What was seen of the engines since the step before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Requests that wait within the engines; `None`: no engine told in time.
    pub queued: Option<u32>,
    /// Mean time to first byte; `None`: nothing was answered.
    pub ttft: Option<Nanos>,
}

/// Why the ceiling is as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finding {
    /// Nothing is in its way: it rises to the full one.
    #[default]
    Clear,
    /// Requests wait within the engines.
    Queued,
    /// First bytes take longer than the rule wants.
    Ttft,
    /// Nothing is known: it stays where it is.
    Stale,
}

impl Finding {
    /// All, by their codes.
    pub const ALL: [Finding; 4] = [Finding::Clear, Finding::Queued, Finding::Ttft, Finding::Stale];

    /// As in `fc_effective.adapt_reason`.
    pub const fn word(self) -> &'static str {
        match self {
            Finding::Clear => "clear",
            Finding::Queued => "queued",
            Finding::Ttft => "ttft",
            Finding::Stale => "stale",
        }
    }
}

impl Adapting {
    /// Begins at the full ceiling.
    pub fn new(full: u32, now: Nanos) -> Adapting {
        Adapting { ceiling: full, finding: Finding::Clear, due: now.saturating_add(STEP) }
    }

    /// The same at `now`, after the steps that are due: the first by `evidence`, those that nobody came for as if all
    /// had been clear, since nothing was under way. `ttft_target` 0: first bytes are not looked at.
    pub fn step(self, full: u32, evidence: &Evidence, ttft_target: Nanos, now: Nanos) -> Adapting {
        let least = full.div_ceil(4).max(1);
        let within = |ceiling: u32| ceiling.clamp(least, full.max(least));
        if now < self.due {
            return Adapting { ceiling: within(self.ceiling), ..self };
        }
        let missed = (now - self.due) / STEP;
        let finding = find(evidence, ttft_target);
        let moved = match finding {
            Finding::Queued | Finding::Ttft => (u64::from(self.ceiling) * 4 / 5) as u32,
            Finding::Stale => self.ceiling,
            Finding::Clear => self.ceiling.saturating_add(u32::try_from(missed + 1).unwrap_or(u32::MAX)),
        };
        Adapting { ceiling: within(moved), finding, due: now.saturating_add(STEP) }
    }

    /// As in `fc_effective.adapt_state`.
    pub fn state(&self, full: u32) -> &'static str {
        match self.finding {
            Finding::Stale => "frozen",
            _ if self.ceiling < full => "tightened",
            _ => "open",
        }
    }
}

fn find(evidence: &Evidence, ttft_target: Nanos) -> Finding {
    let slow = ttft_target > 0 && evidence.ttft.is_some_and(|ttft| ttft > ttft_target);
    match evidence.queued {
        Some(1..) => Finding::Queued,
        _ if slow => Finding::Ttft,
        Some(0) => Finding::Clear,
        // First bytes in time say that all is well, if they are looked at.
        None if ttft_target > 0 && evidence.ttft.is_some() => Finding::Clear,
        None => Finding::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: Evidence = Evidence { queued: Some(3), ttft: None };
    const CLEAR: Evidence = Evidence { queued: Some(0), ttft: None };

    /// Steps at each second from 1 on; the ceilings after them.
    fn run(full: u32, evidence: impl Fn(u64) -> Evidence, target: Nanos, steps: u64) -> Vec<u32> {
        let mut state = Adapting::new(full, 0);
        let mut seen = Vec::new();
        for second in 1..=steps {
            state = state.step(full, &evidence(second), target, second * SECOND);
            seen.push(state.ceiling);
        }
        seen
    }

    #[test]
    fn queues_take_a_fifth_each_second_down_to_a_quarter_and_clear_seconds_give_one_back() {
        assert_eq!(run(100, |_| QUEUED, 0, 8), [80, 64, 51, 40, 32, 25, 25, 25]);
        let then_clear = |second| if second <= 2 { QUEUED } else { CLEAR };
        assert_eq!(run(100, then_clear, 0, 5), [80, 64, 65, 66, 67]);
        assert_eq!(run(3, |_| QUEUED, 0, 3), [2, 1, 1]);
        assert_eq!(run(100, |_| CLEAR, 0, 2), [100, 100]);
    }

    #[test]
    fn slow_first_bytes_take_too_and_only_where_a_target_is_set() {
        let slow = Evidence { queued: None, ttft: Some(2 * SECOND) };
        assert_eq!(run(100, |_| slow, SECOND, 2), [80, 64]);
        assert_eq!(run(100, |_| slow, 0, 2), [100, 100]);
        let both = Evidence { queued: Some(0), ttft: Some(2 * SECOND) };
        assert_eq!(run(10, |_| both, SECOND, 1), [8]);
    }

    #[test]
    fn without_news_it_stays_and_a_long_quiet_gives_back_a_second_each() {
        let news = |second| if second == 1 { QUEUED } else { Evidence::default() };
        assert_eq!(run(100, news, SECOND, 4), [80, 80, 80, 80]);
        let state = Adapting::new(100, 0).step(100, &QUEUED, 0, SECOND);
        assert_eq!((state.ceiling, state.state(100), state.finding.word()), (80, "tightened", "queued"));
        assert_eq!(state.step(100, &CLEAR, 0, 11 * SECOND).ceiling, 90);
        assert_eq!(state.step(100, &CLEAR, 0, SECOND + 5).ceiling, 80, "not due yet");
        assert_eq!(state.step(40, &CLEAR, 0, SECOND + 5).ceiling, 40, "the full one fell below");
    }
}
