//! Predictions that neither answers nor events judged, judged by an engine's own counters over a window. Owns what has
//! to be true of a window so that it proves anything; must never scrape, nor believe a window with a request in it that
//! was not sent from here.
//!
//! A window lasts from one moment without requests in flight to a later one. All its requests are known if the engine
//! looked up as many prompt tokens in it as were sent. Then what it found is what was predicted, or is not.

use super::{Answer, Class, Finding, judge};

/// Requests to one endpoint under one rule whose answers told nothing of the cache, as sums that only grow. All but
/// `requests` in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untold {
    /// By the place of their class.
    pub requests: [u64; Class::COUNT],
    /// Of their prompts.
    pub tokens: u64,
    /// Held on the GPU, as events told: [`Answer::predicted`].
    pub predicted: u64,
    /// [`Answer::reach`].
    pub reach: u64,
    /// [`Answer::promised`].
    pub promised: u64,
    /// One block for each of them: what a prediction may be wrong by.
    pub units: u64,
    /// Requests of which not all was known that their endpoint held.
    pub unsure: u64,
}

impl Untold {
    /// What came since `before`.
    fn since(&self, before: &Untold) -> Untold {
        let requests = std::array::from_fn(|at| self.requests[at].wrapping_sub(before.requests[at]));
        Untold {
            requests,
            tokens: self.tokens.wrapping_sub(before.tokens),
            predicted: self.predicted.wrapping_sub(before.predicted),
            reach: self.reach.wrapping_sub(before.reach),
            promised: self.promised.wrapping_sub(before.promised),
            units: self.units.wrapping_sub(before.units),
            unsure: self.unsure.wrapping_sub(before.unsure),
        }
    }
}

/// One end of a window: nothing was in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Prompt tokens that the engine looked up in its cache.
    pub queries: u64,
    /// Prompt tokens that it found there.
    pub hits: u64,
    /// What was sent to it.
    pub untold: Untold,
    /// Answers that answers and events judged.
    pub judged: u64,
}

/// What came of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Its requests, all of one class, are judged as one answer.
    Judged(Class, Finding),
    /// It proves nothing, for this reason.
    Open(Open),
}

/// Why a window proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The engine looked up other tokens than those that were sent under the rule: it has other clients, or was
    /// started anew.
    Foreign,
    /// Its requests are of several classes: what is broken could not be named.
    Mixed,
    /// Answers or events judged requests of it.
    Known,
    /// Nothing was predicted, or what is on its way explains what was found.
    Explained,
}

impl Open {
    /// All of them, as their discriminants go.
    pub const ALL: [Open; 4] = [Open::Foreign, Open::Mixed, Open::Known, Open::Explained];

    /// As in status.
    pub const fn word(self) -> &'static str {
        ["foreign", "mixed", "known", "explained"][self as usize]
    }
}

/// Judges the window between two edges.
pub fn judge_window(before: &Edge, after: &Edge) -> Window {
    let sent = after.untold.since(&before.untold);
    let looked_up = after.queries.checked_sub(before.queries);
    let (Some(found), true) = (after.hits.checked_sub(before.hits), looked_up == Some(sent.tokens)) else {
        return Window::Open(Open::Foreign);
    };
    if after.judged != before.judged {
        return Window::Open(Open::Known);
    }
    let mut classes = Class::all().filter(|class| sent.requests[class.place()] > 0);
    let (Some(class), None) = (classes.next(), classes.next()) else { return Window::Open(Open::Mixed) };
    let finding = answer(&sent, found).as_ref().and_then(judge);
    finding.map_or(Window::Open(Open::Explained), |finding| Window::Judged(class, finding))
}

/// All requests of a window as one; `None`: more than an answer can say.
fn answer(sent: &Untold, found: u64) -> Option<Answer> {
    let small = |sum: u64| u32::try_from(sum).ok();
    Some(Answer {
        predicted: small(sent.predicted)?,
        reach: small(sent.reach)?,
        promised: small(sent.promised)?,
        cached: small(found)?,
        unit: small(sent.units)?,
        is_all_known: sent.unsure == 0,
        ..Answer::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Given;

    const CHAT: Class = Class { given: Given::Chat, apart: crate::trust::Apart::Plain };

    /// An edge after so many chats of 100 tokens, of which 64 in blocks of 16 were predicted each.
    fn edge(requests: u64, hits: u64) -> Edge {
        let mut untold = Untold {
            tokens: requests * 100,
            predicted: requests * 64,
            reach: requests * 64,
            promised: requests * 64,
            units: requests * 16,
            ..Untold::default()
        };
        untold.requests[CHAT.place()] = requests;
        Edge { queries: 7_000 + requests * 100, hits, untold, judged: 3 }
    }

    #[test]
    fn a_window_that_is_all_known_is_judged_by_what_was_found() {
        let from = |hits| judge_window(&edge(5, 320), &edge(8, hits));
        assert_eq!(from(320 + 192), Window::Judged(CHAT, Finding::Agrees));
        assert_eq!(from(320 + 192 - 48), Window::Judged(CHAT, Finding::Less), "a block less of each");
        assert_eq!(from(320 + 192 + 48), Window::Judged(CHAT, Finding::More));
        assert_eq!(from(320 + 192 + 47), Window::Judged(CHAT, Finding::Agrees));
        assert_eq!(from(320), Window::Judged(CHAT, Finding::Less));
    }

    #[test]
    fn a_window_that_is_not_proves_nothing() {
        let (before, after) = (edge(5, 320), edge(8, 320));
        let other = |change: fn(&mut Edge)| {
            let mut after = after;
            change(&mut after);
            judge_window(&before, &after)
        };
        assert_eq!(other(|edge| edge.queries += 1), Window::Open(Open::Foreign), "somebody else's");
        assert_eq!(
            other(|edge| (edge.queries, edge.hits) = (300, 0)),
            Window::Open(Open::Foreign),
            "a new process"
        );
        assert_eq!(other(|edge| edge.judged += 1), Window::Open(Open::Known));
        assert_eq!(other(|edge| edge.untold.requests[0] += 1), Window::Open(Open::Mixed));
        assert_eq!(
            other(|edge| edge.untold.predicted = u64::from(u32::MAX) + 321),
            Window::Open(Open::Explained)
        );
        assert_eq!(judge_window(&before, &before), Window::Open(Open::Mixed), "nothing was sent");
        // More than known, where not all was known, or where it was on its way.
        let more = |change: fn(&mut Edge)| {
            let mut after = edge(8, 320 + 192 + 100);
            change(&mut after);
            judge_window(&before, &after)
        };
        assert_eq!(more(|edge| edge.untold.unsure = 1), Window::Open(Open::Explained));
        assert_eq!(more(|edge| edge.untold.promised += 100), Window::Open(Open::Explained));
    }
}
