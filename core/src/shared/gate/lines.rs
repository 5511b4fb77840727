//! Who waits at a gate, a line for each tenant, and whose turn is next. Owns that order: within a line the first that
//! came; among lines the one whose tenant was served the least work while others waited. Where all stand in one line,
//! that is the order in which they came. Must never read a clock, or know what work is measured in.
//!
//! A tenant that comes when others wait begins with as much work as the last that was called: idle time saves nothing
//! up. Once nobody waits all is forgotten.

use super::{Place, Turn};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Tenants whose work is remembered though nobody of theirs waits, before those are forgotten that have no more than a
/// newcomer would.
const REMEMBERED: usize = 1_024;

/// What a turn is for: whose, and how much work it begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The tenant.
    pub tenant: u64,
    /// What is known of it beforehand.
    pub amount: u64,
}

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: HashMap<u64, (Place, Work)>,
    lines: HashMap<u64, BTreeSet<u64>>,
    /// The first of each line, least work first: work, ticket, tenant.
    next: BTreeSet<(u64, u64, u64)>,
    /// Work that tenants were served.
    served: BTreeMap<u64, u64>,
    /// That of the last one called.
    floor: u64,
}

impl Lines {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// One more waits, behind all others of its tenant.
    pub fn join(&mut self, ticket: u64, place: Place, work: Work) {
        self.waiting.insert(ticket, (place, work));
        self.change(work.tenant, |line, _| {
            line.insert(ticket);
        });
    }

    /// One waits no more; false if it did not.
    pub fn leave(&mut self, ticket: u64) -> bool {
        let Some((_, work)) = self.waiting.remove(&ticket) else { return false };
        self.change(work.tenant, |line, _| {
            line.remove(&ticket);
        });
        self.forget();
        true
    }

    /// Takes the one whose turn it is out of its line; its tenant is served that work.
    pub fn call(&mut self) -> Option<Turn> {
        let (served, ticket, tenant) = *self.next.first()?;
        let (place, work) = self.waiting.remove(&ticket)?;
        self.floor = served;
        self.change(tenant, |line, served| {
            line.remove(&ticket);
            *served = served.saturating_add(work.amount);
        });
        self.forget();
        Some(Turn { ticket, place })
    }

    /// A tenant is served more, while somebody waits.
    pub fn serve(&mut self, work: Work) {
        if !self.waiting.is_empty() {
            self.change(work.tenant, |_, served| *served = served.saturating_add(work.amount));
            self.forget();
        }
    }

    /// Changes the line of a tenant, or what it was served, and puts it where it belongs among the others.
    fn change(&mut self, tenant: u64, change: impl FnOnce(&mut BTreeSet<u64>, &mut u64)) {
        let line = self.lines.entry(tenant).or_default();
        let served = self.served.entry(tenant).or_default();
        if let Some(first) = line.first() {
            self.next.remove(&(*served, *first, tenant));
        }
        *served = (*served).max(self.floor);
        change(line, served);
        match line.first() {
            Some(first) => drop(self.next.insert((*served, *first, tenant))),
            None => drop(self.lines.remove(&tenant)),
        }
    }

    fn forget(&mut self) {
        if self.waiting.is_empty() {
            *self = Lines::default();
        } else if self.served.len() > 2 * self.lines.len() + REMEMBERED {
            let (floor, lines) = (self.floor, &self.lines);
            self.served.retain(|tenant, served| *served > floor || lines.contains_key(tenant));
        }
    }
}

#[cfg(test)]
mod tests;
