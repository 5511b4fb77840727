//! Whether what is known of an endpoint's cache may route requests: what its answers say against what was
//! predicted. Owns the states, what moves between them, and what an answer proves; must never read a clock or a
//! counter (the shared word is in `shared`, the cause in `legs.rs`).
//!
//! An endpoint of which nothing was proven is unknown, and routes: silence demotes nobody. From 20 judged answers
//! on, of which under half agree, it takes requests by load alone. Then one request now and again is routed to it by
//! its blocks all the same: three answers in a row that agree let it in again.

pub mod counters;
mod legs;

pub use legs::{Leg, Legs, Names, Seen, Tried, legs};

use crate::{Nanos, SECOND};

/// Answers that are remembered.
pub const WINDOW: u8 = 32;

/// Fewer judged answers demote nobody.
pub const JUDGED_MIN: u8 = 20;

/// Answers in a row that agree, after which an endpoint is let in again.
pub const RECOVERY: u8 = 3;

/// How often a request is routed by its blocks to an endpoint that is not trusted.
pub const PROBE_EVERY: Nanos = 5 * SECOND;

/// How far an endpoint is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing was proven yet.
    #[default]
    Unknown,
    /// Half of its judged answers agree, or more.
    Trusted,
    /// Fewer do, of too few to demote it, or they just began to agree again.
    Doubted,
    /// Its blocks route nothing.
    LoadOnly,
}

impl State {
    /// All, as their discriminants go.
    pub const ALL: [State; 4] = [State::Unknown, State::Trusted, State::Doubted, State::LoadOnly];

    /// As in status, metrics and explanations.
    pub const fn word(self) -> &'static str {
        ["unknown", "trusted", "doubted", "load_only"][self as usize]
    }
}

/// What is remembered of one endpoint of one rule, as a value that fits a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    state: State,
    /// The last judged answers, newest in the lowest bit; 1: it agreed.
    outcomes: u32,
    /// How many of them there are.
    judged: u8,
    /// The newest of them that agree in a row.
    row: u8,
}

impl Trust {
    /// From its word.
    pub const fn of(word: u64) -> Trust {
        Trust {
            state: State::ALL[(word >> 32 & 3) as usize],
            outcomes: word as u32,
            judged: (word >> 40) as u8,
            row: (word >> 48) as u8,
        }
    }

    /// As a word; 0 is the beginning.
    pub const fn word(self) -> u64 {
        self.outcomes as u64
            | (self.state as u64) << 32
            | (self.judged as u64) << 40
            | (self.row as u64) << 48
    }

    /// How far it goes.
    pub const fn state(self) -> State {
        self.state
    }

    /// Judged answers that are remembered, and those of them that agree.
    pub const fn judged(self) -> (u32, u32) {
        (self.judged as u32, self.outcomes.count_ones())
    }

    /// After one more judged answer.
    #[must_use]
    pub fn after(self, agrees: bool) -> Trust {
        let row = if agrees { self.row.saturating_add(1) } else { 0 };
        if self.state == State::LoadOnly {
            return match row >= RECOVERY {
                // What it was demoted for is over: it begins with the answers that showed that.
                true => Trust { state: State::Trusted, outcomes: (1 << RECOVERY) - 1, judged: RECOVERY, row },
                false => Trust { row, ..self.pushed(agrees) },
            };
        }
        let next = Trust { row, ..self.pushed(agrees) };
        let (judged, agreed) = next.judged();
        let state = match agreed * 2 >= judged {
            true => State::Trusted,
            false if next.judged >= JUDGED_MIN => State::LoadOnly,
            false => State::Doubted,
        };
        Trust { state, ..next }
    }

    fn pushed(self, agrees: bool) -> Trust {
        let outcomes = self.outcomes << 1 | u32::from(agrees);
        Trust { outcomes, judged: self.judged.saturating_add(1).min(WINDOW), ..self }
    }
}

/// What an answer says against what was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// The engine found in its cache what was predicted, to less than a block.
    Agrees,
    /// It had to compute blocks that were counted as held.
    Less,
    /// It found blocks that nobody had told of, although all that it holds was known.
    More,
    /// It did not find what was predicted, and its prompt has another number of tokens.
    Recount,
}

impl Finding {
    /// All, as their discriminants go.
    pub const ALL: [Finding; 4] = [Finding::Agrees, Finding::Less, Finding::More, Finding::Recount];

    /// As in status, metrics and explanations.
    pub const fn word(self) -> &'static str {
        ["agrees", "less", "more", "recount"][self as usize]
    }

    /// Whether it speaks for the endpoint.
    pub const fn agrees(self) -> bool {
        matches!(self, Finding::Agrees)
    }
}

/// One answer beside what was known when its request was sent. All but `counted` in tokens of blocks that no last
/// token keeps from being cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Held on the GPU, as the events tell.
    pub predicted: u32,
    /// By how much less than that another rank holds, where nobody knows which rank answered.
    pub spread: u32,
    /// Held anywhere.
    pub reach: u32,
    /// Held anywhere or on its way by other requests.
    pub promised: u32,
    /// Found in the cache, as the engine says.
    pub cached: u32,
    /// Tokens that a key stands for.
    pub unit: u32,
    /// Tokens of the prompt here and there, where the engine told.
    pub counted: Option<(u32, u32)>,
    /// All that the rank holds is known, or ought to be: more than predicted is a contradiction.
    pub is_all_known: bool,
}

/// What an answer proves; `None`: nothing, for or against.
pub fn judge(answer: &Answer) -> Option<Finding> {
    let Answer { predicted, spread, reach, promised, cached, unit, .. } = *answer;
    let recount = answer.counted.is_some_and(|(here, there)| here != there).then_some(Finding::Recount);
    if predicted == 0 && cached < unit.max(1) {
        return recount;
    }
    let least = predicted.saturating_sub(spread);
    if cached.saturating_add(unit) <= least {
        return recount.or(Some(Finding::Less));
    }
    if cached.saturating_add(unit) <= predicted {
        // Less than one rank holds and not less than another: what lies between them proves nothing.
        let is_least = least > 0 && cached < least.saturating_add(unit);
        return recount.or(is_least.then_some(Finding::Agrees));
    }
    if cached < reach.max(predicted).saturating_add(unit) {
        return Some(Finding::Agrees);
    }
    // Other requests brought it, of which the events have not come: it says nothing of their names.
    let is_explained = cached < promised.saturating_add(unit) || !answer.is_all_known;
    recount.or((!is_explained).then_some(Finding::More))
}

/// Whether an answer found just what was on its way to its endpoint: whether that came, and under the names computed
/// here, the events have to tell.
pub fn is_brought(answer: &Answer) -> bool {
    let Answer { predicted, reach, promised, cached, unit, .. } = *answer;
    let counts_alike = answer.counted.is_none_or(|(here, there)| here == there);
    let is_more = cached >= reach.max(predicted).saturating_add(unit);
    counts_alike && answer.is_all_known && is_more && cached.abs_diff(promised) < unit
}

/// How a request gave its prompt, as far as that can break by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Given {
    /// As token ids.
    #[default]
    Ids,
    /// As text.
    Text,
    /// As a chat, through the template.
    Chat,
}

/// What keeps its blocks apart from those of equal tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Apart {
    /// Nothing.
    #[default]
    Plain,
    /// A salt.
    Salt,
    /// An adapter, with or without a salt.
    Adapter,
}

/// What a request has that could be what is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class {
    /// How it gave its prompt.
    pub given: Given,
    /// What keeps its blocks apart.
    pub apart: Apart,
}

impl Class {
    /// Classes there are.
    pub const COUNT: usize = 9;

    /// Its place among them.
    pub const fn place(self) -> usize {
        self.given as usize * 3 + self.apart as usize
    }

    /// All of them, by place.
    pub fn all() -> impl Iterator<Item = Class> {
        let given = [Given::Ids, Given::Text, Given::Chat];
        let apart = [Apart::Plain, Apart::Salt, Apart::Adapter];
        given.into_iter().flat_map(move |given| apart.map(|apart| Class { given, apart }))
    }
}

/// How often each finding was made, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symptoms(pub [[u32; Finding::ALL.len()]; Class::COUNT]);

impl Symptoms {
    /// Of those classes that fit, how often.
    pub fn count(&self, fits: impl Fn(Class) -> bool, finding: Finding) -> u32 {
        Class::all().filter(|class| fits(*class)).map(|class| self.0[class.place()][finding as usize]).sum()
    }
}

#[cfg(test)]
mod tests;
