//! Load that engines tell: whom to ask, and what came of it. Owns the list of scrapers and their counts; must never ask
//! one endpoint twice because several rules name it, nor any endpoint that no rule needs it of.
//!
//! A sample is written to the endpoint's shared state and goes stale there by itself: a scraper that fails takes nothing
//! back, so that one lost answer changes no decision.

pub mod run;

use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::engine::Engine;
use warmpath_core::engine::telemetry::Telemetry;
use warmpath_core::shared::EndpointState;
use warmpath_core::table::Table;

/// What came of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrape {
    /// A load.
    Read,
    /// No connection, no HTTP, or too late.
    Failed,
    /// A status other than 200: for example a server without its metrics switched on.
    Refused,
    /// A page without what this engine tells its load by.
    Unreadable,
}

impl Scrape {
    /// All of them.
    pub const ALL: [Scrape; 4] = [Scrape::Read, Scrape::Failed, Scrape::Refused, Scrape::Unreadable];

    /// As the label `result` says it.
    pub fn word(self) -> &'static str {
        match self {
            Scrape::Read => "success",
            Scrape::Failed => "error",
            Scrape::Refused => "refused",
            Scrape::Unreadable => "unreadable",
        }
    }
}

/// One scraper.
#[derive(Debug)]
struct Scraper {
    state: Arc<EndpointState>,
    engine: Engine,
    number: u64,
}

/// All scrapers.
#[derive(Debug, Default)]
pub struct Scrapers {
    all: Vec<Scraper>,
    next_number: u64,
    counts: [u64; Scrape::ALL.len()],
}

impl Scrapers {
    /// Follows a new table: one scraper for each endpoint that a rule needs the load of. Those still wanted go on, others
    /// end. The numbers of new ones.
    pub fn follow(&mut self, table: &Table) -> Vec<u64> {
        let before = std::mem::take(&mut self.all);
        let first_new = self.next_number;
        for service in table.services().filter(|service| service.rule.enabled && service.rule.asks_load()) {
            for state in &service.endpoints {
                self.want(state, service.rule.engine, &before);
            }
        }
        self.all.iter().map(|scraper| scraper.number).filter(|number| *number >= first_new).collect()
    }

    /// Rules of different engines over one endpoint are at odds; the first is asked.
    fn want(&mut self, state: &Arc<EndpointState>, engine: Engine, before: &[Scraper]) {
        let same = |scraper: &&Scraper| scraper.state.address() == state.address();
        if self.all.iter().find(same).is_some() {
            return;
        }
        let known = before.iter().find(same).filter(|known| known.engine == engine);
        let number = known.map_or(self.next_number, |known| known.number);
        self.next_number = self.next_number.max(number + 1);
        self.all.push(Scraper { state: state.clone(), engine, number });
    }

    /// Whom a scraper asks, and what; `None` once it is not wanted any more, or where an engine tells nothing.
    pub fn work(&self, number: u64) -> Option<(Arc<EndpointState>, &'static Telemetry)> {
        let scraper = self.all.iter().find(|scraper| scraper.number == number)?;
        Some((scraper.state.clone(), scraper.engine.telemetry()?))
    }

    /// Takes the answer of an endpoint: its status and whole body, or nothing.
    pub fn took(&mut self, number: u64, answer: Option<(u16, &[u8])>, now: Nanos) {
        let Some((state, telemetry)) = self.work(number) else { return };
        let scrape = match answer {
            None => Scrape::Failed,
            Some((200, page)) => match telemetry.read(page) {
                Some(load) => {
                    state.load().tell(load, now);
                    Scrape::Read
                }
                None => Scrape::Unreadable,
            },
            Some(_) => Scrape::Refused,
        };
        self.counts[scrape as usize] += 1;
    }

    /// How many questions came to what, since the start.
    pub fn counts(&self) -> [(Scrape, u64); Scrape::ALL.len()] {
        Scrape::ALL.map(|scrape| (scrape, self.counts[scrape as usize]))
    }
}

#[cfg(test)]
mod tests;
