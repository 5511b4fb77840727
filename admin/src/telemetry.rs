//! What engines tell of their load and of their caches: whom to ask, when, and what came of it. Owns the list of scrapers
//! and their counts; must never ask one endpoint twice because several rules name it, nor any that no rule needs it of.
//!
//! One page answers both questions. A load is written to the endpoint's shared state and goes stale there by itself: a
//! scraper that fails takes nothing back, so that one lost answer changes no decision.

pub mod run;

use crate::trust::counters::Watched;
use std::sync::Arc;
use warmpath_core::engine::Engine;
use warmpath_core::engine::telemetry::Telemetry;
use warmpath_core::shared::EndpointState;
use warmpath_core::table::{Service, Table};
use warmpath_core::trust::counters::Edge;
use warmpath_core::{Nanos, SECOND};

/// How often it is looked whether counters are worth a question.
const LOOK_EACH: Nanos = 2 * SECOND;

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
    /// When its load is to be asked for next; `None`: no rule needs it.
    load_due: Option<Nanos>,
    /// Rules that its counters may judge.
    watched: Vec<Watched>,
}

impl Scraper {
    fn is_idle(&self) -> bool {
        self.state.reserved() == 0
    }

    fn wants_counters(&self) -> bool {
        self.is_idle() && self.watched.iter().any(Watched::has_news)
    }
}

impl Scraper {
    fn read(&mut self, asked: &Question, page: &[u8], now: Nanos) -> Scrape {
        if let Some(told) = asked.telemetry.lookups(page).filter(|_| self.is_idle()) {
            for watched in &mut self.watched {
                let edge = asked.edges.iter().find(|(service, _)| *service == watched.service());
                edge.iter().for_each(|(_, edge)| watched.took(*edge, told));
            }
        }
        match asked.telemetry.read(page) {
            Some(load) if asked.of_load => {
                self.state.load().tell(load, now);
                Scrape::Read
            }
            Some(_) => Scrape::Read,
            None => Scrape::Unreadable,
        }
    }
}

/// A question to an endpoint, and what was so when it was asked.
#[derive(Debug)]
pub struct Question {
    /// Whom.
    pub state: Arc<EndpointState>,
    /// Where, and how the answer is read.
    pub telemetry: &'static Telemetry,
    /// Whether its load is wanted.
    of_load: bool,
    /// Of each service that watches, by its number, if nothing was in flight.
    edges: Vec<(u32, Edge)>,
}

/// All scrapers.
#[derive(Debug, Default)]
pub struct Scrapers {
    all: Vec<Scraper>,
    next_number: u64,
    counts: [u64; Scrape::ALL.len()],
}

impl Scrapers {
    /// Follows a new table: one scraper for each endpoint that a rule needs the load or the counters of. Those still wanted
    /// go on, others end. The numbers of new ones.
    pub fn follow(&mut self, table: &Table) -> Vec<u64> {
        let before = std::mem::take(&mut self.all);
        let first_new = self.next_number;
        for service in table.services().filter(|service| service.rule.enabled) {
            self.want(service, &before);
        }
        self.all.iter().map(|scraper| scraper.number).filter(|number| *number >= first_new).collect()
    }

    fn want(&mut self, service: &Service, before: &[Scraper]) {
        let (rule, engine) = (&service.rule, service.rule.engine);
        let tells_lookups = engine.telemetry().is_some_and(Telemetry::tells_lookups);
        let exact = service.exact.as_ref().filter(|_| tells_lookups);
        for (index, state) in service.endpoints.iter().enumerate() {
            let trust = exact.and_then(|exact| exact.trust.get(index));
            if trust.is_none() && !rule.asks_load() {
                continue;
            }
            // Rules of different engines over one endpoint are at odds; the first is asked.
            let scraper = self.scraper(state, engine, before);
            let known = before.iter().find(|known| known.number == scraper.number);
            if rule.asks_load() {
                scraper.load_due = Some(known.and_then(|known| known.load_due).unwrap_or(0));
            }
            if let Some(trust) = trust.filter(|_| scraper.engine == engine) {
                let mut watched = Watched::new(service.number, trust.clone());
                watched.follow(known.map_or(&[], |known| &known.watched));
                scraper.watched.push(watched);
            }
        }
    }

    /// That of an endpoint: listed by an earlier rule, going on from `before`, or new.
    fn scraper(&mut self, state: &Arc<EndpointState>, engine: Engine, before: &[Scraper]) -> &mut Scraper {
        let same = |scraper: &Scraper| scraper.state.address() == state.address();
        let at = self.all.iter().position(same).unwrap_or_else(|| {
            let known = before.iter().find(|known| same(known) && known.engine == engine);
            let number = known.map_or(self.next_number, |known| known.number);
            self.next_number = self.next_number.max(number + 1);
            let watched = Vec::new();
            self.all.push(Scraper { state: state.clone(), engine, number, load_due: None, watched });
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    /// How long a scraper has nothing to look at from `now` on; `None` once it is not wanted any more.
    pub fn rest(&self, number: u64, now: Nanos) -> Option<Nanos> {
        let scraper = self.all.iter().find(|scraper| scraper.number == number)?;
        let load = scraper.load_due.map_or(Nanos::MAX, |due| due.saturating_sub(now));
        Some(if scraper.watched.is_empty() { load } else { load.min(LOOK_EACH) })
    }

    /// What a scraper is to ask at this moment, if anything. Its load is due again at `next`.
    pub fn question(&mut self, number: u64, now: Nanos, next: Nanos) -> Option<Question> {
        let scraper = self.all.iter_mut().find(|scraper| scraper.number == number)?;
        let telemetry = scraper.engine.telemetry()?;
        let of_load = scraper.load_due.is_some_and(|due| due <= now);
        if !of_load && !scraper.wants_counters() {
            return None;
        }
        scraper.load_due = scraper.load_due.map(|due| if of_load { next } else { due });
        let edges = match scraper.is_idle() {
            true => scraper.watched.iter().map(|watched| (watched.service(), watched.now())).collect(),
            false => Vec::new(),
        };
        Some(Question { state: scraper.state.clone(), telemetry, of_load, edges })
    }

    /// Takes the answer of an endpoint: its status and whole body, or nothing.
    pub fn took(&mut self, number: u64, asked: &Question, answer: Option<(u16, &[u8])>, now: Nanos) {
        let Some(scraper) = self.all.iter_mut().find(|scraper| scraper.number == number) else { return };
        let scrape = match answer {
            None => Scrape::Failed,
            Some((200, page)) => scraper.read(asked, page, now),
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
