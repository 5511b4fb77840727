//! The admin thread's state. Owns the rules and table in force, how far down the gateway is, and what is
//! told of it; must never touch a file: [`crate::change`] does, in its order.

use crate::attest::run::SharedAttestor;
use crate::health::run::SharedProbers;
use crate::out_of_service::OutOfService;
use crate::refusal::Refusal;
use crate::rules::{Origin, Reading, RuleSet};
use crate::store::{Snapshot, Store};
use crate::telemetry::run::SharedScrapers;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use warmpath_core::Nanos;
use warmpath_core::control::{DataPlane, DrainPhase, InstallFault, KvPlane};
use warmpath_core::environment::Environment;
use warmpath_core::table::Table;

/// Questions to the event core that are on their way at once; more wait.
pub const KV_SEATS: usize = 4;

/// What the admin thread takes from outside, so that tests can give their own.
#[derive(Clone)]
pub struct Outside {
    /// The shards.
    pub data_plane: Arc<dyn DataPlane>,
    /// What the process's environment says of exact routing.
    pub environment: Arc<Environment>,
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

impl Outside {
    /// How bodies of this origin are read.
    pub fn reading(&self, origin: Origin) -> Reading<'_> {
        let registry = self.data_plane.registry();
        let at = (self.wall)().as_secs();
        Reading { environment: &self.environment, random: self.random, origin, registry, at }
    }
}

/// How this process began; shown by readiness.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// A snapshot was read.
    pub snapshot_found: bool,
    /// The generation of that snapshot.
    pub generation: u64,
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
    /// When rules were restored last, and to which generation.
    pub last_restore: Option<(Duration, u64)>,
    /// What the operator has taken out of service.
    pub out_of_service: OutOfService,
    /// Whether metrics are served.
    pub serves_metrics: bool,
    /// The probers of its endpoints.
    pub probers: SharedProbers,
    /// What is proven of rules with a model profile.
    pub attestor: SharedAttestor,
    /// The scrapers of its endpoints' load.
    pub scrapers: SharedScrapers,
    /// Who may ask the event core at the same time: few, so that its slowness fills no pool of threads.
    pub kv_seats: Arc<Semaphore>,
    /// Where its rules are kept.
    pub(crate) store: Arc<Store>,
    /// Held while a change is made; the others wait in the order they came.
    pub(crate) turn: Arc<Mutex<()>>,
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
            last_restore: None,
            out_of_service: OutOfService::default(),
            serves_metrics: true,
            probers: SharedProbers::default(),
            attestor: SharedAttestor::default(),
            scrapers: SharedScrapers::default(),
            kv_seats: Arc::new(Semaphore::new(KV_SEATS)),
            store: Arc::new(store),
            turn: Arc::default(),
            next_number: 0,
        }
    }

    /// The rules with one created or replaced.
    pub fn with(&self, body: &Value) -> Result<RuleSet, Refusal> {
        self.with_text(body, &body.to_string())
    }

    /// The same with a body that was given as `text`.
    pub fn with_text(&self, body: &Value, text: &str) -> Result<RuleSet, Refusal> {
        let mut rules = self.rules.clone();
        match rules.upsert(body, text, &self.outside.reading(Origin::Asked))?.changed {
            true => Ok(rules),
            false => Err(Refusal::Exists),
        }
    }

    /// Refuses changes once the gateway is going down.
    pub fn check_serving(&self) -> Result<(), Refusal> {
        if self.phase == DrainPhase::Serving { Ok(()) } else { Err(Refusal::Draining) }
    }

    /// The table after this one, made of `rules`.
    pub fn next_table(&mut self, rules: &RuleSet) -> Arc<Table> {
        let now = (self.outside.now)();
        let next = Table::next(&self.table, rules.rules(), &mut self.next_number, now);
        self.out_of_service.apply(&next, now);
        Arc::new(next)
    }

    /// Makes the table in force obey what is out of service.
    pub fn obey(&self) {
        self.out_of_service.apply(&self.table, (self.outside.now)());
    }

    /// Takes over what is in force and durable.
    pub fn accept(&mut self, rules: RuleSet, table: Arc<Table>) {
        self.persist_fault = None;
        self.rules = rules;
        self.publish(table);
    }

    /// Puts `rules`, which are on disk already, in force.
    pub fn install(&mut self, rules: RuleSet) -> Result<(), Refusal> {
        let table = self.next_table(&rules);
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

    /// Puts the rules before a refused change in force again; what to write of them. The listeners it opened
    /// close with its table. Once the gateway closes its listeners, none may be opened again.
    pub fn reinstall(&mut self, refused: &Table) -> Snapshot {
        let back =
            Arc::new(Table::next(refused, self.rules.rules(), &mut self.next_number, (self.outside.now)()));
        let snapshot = Snapshot::of(back.generation, &self.rules);
        if self.phase < DrainPhase::Closing {
            match self.put_in_force(&back) {
                Ok(()) => self.publish(back),
                Err(fault) => self.fault(format!("a refused change is in force: {}", fault.message)),
            }
        }
        snapshot
    }

    /// The shards serve by `table`, then the event core follows its sources; a table that the shards refuse
    /// is not followed.
    pub fn put_in_force(&self, table: &Arc<Table>) -> Result<(), InstallFault> {
        self.outside.data_plane.install(table.clone())?;
        self.outside.kv.follow(table.clone());
        Ok(())
    }

    fn publish(&mut self, table: Arc<Table>) {
        self.probers.borrow_mut().hosts = self.rules.hosts.clone();
        self.table = table.clone();
        self.published.send_replace(table);
    }

    /// Tells the operator that a change can't be kept; the refusal for the one who asked for it.
    pub fn not_persisted(&mut self, error: &std::io::Error) -> Refusal {
        let refusal = Refusal::disk(&self.store.current(), error);
        self.fault(refusal.to_string());
        refusal
    }

    /// Tells the operator that what is on disk is not what it should be.
    pub fn fault(&mut self, sentence: String) {
        (self.outside.say)(&sentence);
        self.persist_fault = Some(sentence);
    }
}

/// `rules` with `bodies` created or replaced, and how many of them changed something. Two bodies of one key
/// are refused: one of them would silently be lost.
pub fn upserted(
    rules: &RuleSet,
    bodies: &[Value],
    reading: &Reading<'_>,
) -> Result<(RuleSet, usize), Refusal> {
    let texts: Vec<String> = bodies.iter().map(Value::to_string).collect();
    upserted_texts(rules, bodies, &texts, reading)
}

/// The same with bodies that were given as `texts`.
pub fn upserted_texts(
    rules: &RuleSet,
    bodies: &[Value],
    texts: &[String],
    reading: &Reading<'_>,
) -> Result<(RuleSet, usize), Refusal> {
    let mut next = rules.clone();
    let mut seen = HashMap::new();
    let mut changed = 0;
    for (index, (body, text)) in bodies.iter().zip(texts).enumerate() {
        let done = next.upsert(body, text, reading).map_err(|refusal| match refusal {
            Refusal::Body { fault, .. } => Refusal::Body { index: Some(index), fault },
            Refusal::Profile { fault, .. } => Refusal::Profile { index: Some(index), fault },
            other => other,
        })?;
        if let Some(first) = seen.insert(done.key, index) {
            return Err(Refusal::Twice { first, index });
        }
        changed += usize::from(done.changed);
    }
    Ok((next, changed))
}
