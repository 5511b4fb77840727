//! The admin thread's state and the one way to change it. Owns the order of a change: validate, build the
//! table, prepare the snapshot, install, commit, answer. Must never acknowledge what a crash could undo, nor
//! leave a refused change in force.

use crate::health::run::SharedProbers;
use crate::refusal::Refusal;
use crate::rules::RuleSet;
use crate::store::{Snapshot, Store};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use warmpath_core::Nanos;
use warmpath_core::control::{DataPlane, DrainPhase, InstallFault, KvPlane};
use warmpath_core::table::Table;

/// Questions to the event core that are on their way at once; more wait.
pub const KV_SEATS: usize = 4;

/// What the admin thread takes from outside, so that tests can give their own.
#[derive(Clone)]
pub struct Outside {
    /// The shards.
    pub data_plane: Arc<dyn DataPlane>,
    /// The event core.
    pub kv: Arc<dyn KvPlane>,
    /// The monotonic clock that the shards use.
    pub now: fn() -> Nanos,
    /// Time since the Unix epoch.
    pub wall: fn() -> Duration,
    /// Random bits, for rule ids and the spread of probes.
    pub random: fn() -> u64,
    /// Tells the operator something in one sentence, for example on standard error.
    pub say: fn(&str),
}

/// How this process began; shown by readiness.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// A snapshot was read.
    pub snapshot_found: bool,
    /// What was wrong and what was done about it, for people.
    pub notes: Vec<String>,
    /// Where a damaged snapshot was put.
    pub quarantine_path: Option<String>,
}

/// The state.
pub struct Gateway {
    /// What it works with.
    pub outside: Outside,
    /// The rules in force.
    pub rules: RuleSet,
    /// The table made of them.
    pub table: Arc<Table>,
    /// How far down the gateway is.
    pub phase: DrainPhase,
    /// How it began.
    pub boot: Boot,
    /// Why the last attempt to persist failed, if it did.
    pub persist_fault: Option<String>,
    /// The probers of its endpoints.
    pub probers: SharedProbers,
    /// Who may ask the event core at the same time: few, so that its slowness fills no pool of threads.
    pub kv_seats: Arc<Semaphore>,
    store: Store,
    next_number: u32,
    published: watch::Sender<Arc<Table>>,
}

impl Gateway {
    /// A gateway whose last known generation is `generation`, without rules yet.
    pub fn new(outside: Outside, store: Store, generation: u64) -> Gateway {
        let table = Arc::new(Table { generation, vips: Vec::new() });
        Gateway {
            outside,
            rules: RuleSet::default(),
            published: watch::Sender::new(table.clone()),
            table,
            phase: DrainPhase::Serving,
            boot: Boot::default(),
            persist_fault: None,
            probers: SharedProbers::default(),
            kv_seats: Arc::new(Semaphore::new(KV_SEATS)),
            store,
            next_number: 0,
        }
    }

    /// Creates or replaces one rule.
    pub fn post(&mut self, body: &Value) -> Result<(), Refusal> {
        let mut rules = self.rules.clone();
        match rules.upsert(body, || fresh_id(self.outside.random))?.changed {
            true => self.change(rules),
            false => Err(Refusal::Exists),
        }
    }

    /// Creates or replaces several rules as one change: all or none. Rules that are in force already are
    /// no fault. How many were created or replaced.
    pub fn apply(&mut self, bodies: &[Value]) -> Result<usize, Refusal> {
        let (rules, changed) = upserted(&self.rules, bodies, self.outside.random)?;
        if changed > 0 {
            self.change(rules)?;
        }
        Ok(changed)
    }

    /// Puts `rules` in force and makes them durable, or does neither.
    pub fn change(&mut self, rules: RuleSet) -> Result<(), Refusal> {
        if self.phase != DrainPhase::Serving {
            return Err(Refusal::Draining);
        }
        let table =
            Arc::new(Table::next(&self.table, rules.rules(), &mut self.next_number, (self.outside.now)()));
        let snapshot = Snapshot { generation: table.generation, rules: rules.bodies() };
        self.store.prepare(&snapshot).map_err(|e| self.not_persisted(&e))?;
        if let Err(fault) = self.put_in_force(&table) {
            self.store.abandon();
            return Err(Refusal::Install(fault));
        }
        if let Err(error) = self.store.commit() {
            let refusal = self.not_persisted(&error);
            self.restore(&table);
            return Err(refusal);
        }
        self.persist_fault = None;
        self.rules = rules;
        self.publish(table);
        Ok(())
    }

    /// Puts `rules`, which are on disk already, in force.
    pub fn install(&mut self, rules: RuleSet) -> Result<(), Refusal> {
        let table =
            Arc::new(Table::next(&self.table, rules.rules(), &mut self.next_number, (self.outside.now)()));
        self.put_in_force(&table).map_err(Refusal::Install)?;
        self.rules = rules;
        self.publish(table);
        Ok(())
    }

    /// The tables that are put in force from now on, beginning with the one that is.
    pub fn tables(&self) -> watch::Receiver<Arc<Table>> {
        self.published.subscribe()
    }

    /// Goes one step down, or more.
    pub fn drain(&mut self, phase: DrainPhase) {
        self.phase = self.phase.max(phase);
        self.outside.data_plane.drain(self.phase);
    }

    /// A refused change is in force and perhaps on disk: puts the rules before it back in both places. The
    /// listeners it opened close with the table; those before it are still open, so installing can't fail
    /// for a busy port.
    fn restore(&mut self, refused: &Table) {
        let back =
            Arc::new(Table::next(refused, self.rules.rules(), &mut self.next_number, (self.outside.now)()));
        let snapshot = Snapshot { generation: back.generation, rules: self.rules.bodies() };
        match self.put_in_force(&back) {
            Ok(()) => self.publish(back),
            Err(fault) => self.fault(format!("a refused change is in force: {}", fault.message)),
        }
        if let Err(error) = self.store.prepare(&snapshot).and_then(|()| self.store.commit()) {
            let file = self.store.current();
            self.fault(format!("{}: may hold a refused change: {error}; make it writable", file.display()));
        }
    }

    /// The shards serve by `table`, then the event core follows its sources; a table that the shards refuse
    /// is not followed.
    fn put_in_force(&self, table: &Arc<Table>) -> Result<(), InstallFault> {
        self.outside.data_plane.install(table.clone())?;
        self.outside.kv.follow(table.clone());
        Ok(())
    }

    fn publish(&mut self, table: Arc<Table>) {
        self.table = table.clone();
        self.published.send_replace(table);
    }

    fn not_persisted(&mut self, error: &std::io::Error) -> Refusal {
        let refusal = Refusal::disk(&self.store.current(), error);
        self.fault(refusal.to_string());
        refusal
    }

    fn fault(&mut self, sentence: String) {
        (self.outside.say)(&sentence);
        self.persist_fault = Some(sentence);
    }
}

/// `rules` with `bodies` created or replaced, and how many of them changed something. Two bodies of one key
/// are refused: one of them would silently be lost.
pub fn upserted(rules: &RuleSet, bodies: &[Value], random: fn() -> u64) -> Result<(RuleSet, usize), Refusal> {
    let mut next = rules.clone();
    let mut seen = HashMap::new();
    let mut changed = 0;
    for (index, body) in bodies.iter().enumerate() {
        let done = next.upsert(body, || fresh_id(random)).map_err(|refusal| match refusal {
            Refusal::Body { fault, .. } => Refusal::Body { index: Some(index), fault },
            other => other,
        })?;
        if let Some(first) = seen.insert(done.key, index) {
            return Err(Refusal::Twice { first, index });
        }
        changed += usize::from(done.changed);
    }
    Ok((next, changed))
}

/// A UUID version 4 (RFC 9562 section 5.4).
fn fresh_id(random: fn() -> u64) -> String {
    let high = random() & !0xF000 | 0x4000;
    let low = random() & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests;
