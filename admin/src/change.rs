//! A change of the rules, from what is wanted to its acknowledgement. Owns the order of its steps: wait for the
//! change before it, validate, build the table, prepare the snapshot, install, commit, answer. Must never
//! acknowledge what a crash could undo, leave a refused change in force, or wait for a disk on the admin thread.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::routes::Answered;
use crate::rules::RuleSet;
use crate::serve::Shared;
use crate::store::{Snapshot, Store};
use std::io;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use tokio::task::{spawn_blocking, spawn_local};
use warmpath_core::table::Table;

/// What a request wants, and its answer once that is in force and durable.
pub struct Wanted {
    /// All rules; `None` if they are in force already.
    pub rules: Option<RuleSet>,
    /// The answer.
    pub answer: Answer,
    /// What is done when the change was made.
    pub then: Option<fn(&mut Gateway)>,
}

impl Wanted {
    /// Nothing: the answer alone.
    pub fn nothing(answer: Answer) -> Wanted {
        Wanted { rules: None, answer, then: None }
    }

    /// These rules, answered as every accepted change is.
    pub fn rules(rules: RuleSet) -> Wanted {
        Wanted { rules: Some(rules), answer: Answer::success(), then: None }
    }
}

/// Makes the change that `want` asks for, given the state that the change before it left.
pub async fn change(gateway: &Shared, want: impl FnOnce(&Gateway) -> Result<Wanted, Refusal>) -> Answered {
    let turn = gateway.borrow().turn.clone();
    let turn = turn.lock_owned().await;
    let wanted = want(&gateway.borrow())?;
    if let Some(rules) = wanted.rules {
        // In a task of its own: it is made to its end even if the one who asked hangs up.
        let made = spawn_local(make(gateway.clone(), rules, turn)).await;
        made.unwrap_or_else(|ended| Err(gateway.borrow_mut().not_persisted(&ended.into())))?;
    }
    if let Some(then) = wanted.then {
        then(&mut gateway.borrow_mut());
    }
    Ok(wanted.answer)
}

/// Puts `rules` in force and makes them durable, or does neither.
async fn make(gateway: Shared, rules: RuleSet, _turn: OwnedMutexGuard<()>) -> Result<(), Refusal> {
    let store = gateway.borrow().store.clone();
    gateway.borrow().check_serving()?;
    let table = gateway.borrow_mut().next_table(&rules);
    let snapshot = Snapshot::of(table.generation, &rules);
    let prepared = beside(&store, move |store| store.prepare(&snapshot)).await;
    prepared.map_err(|e| gateway.borrow_mut().not_persisted(&e))?;
    let installed = install(&gateway, &table);
    if installed.is_err() {
        // What is left over of it does no harm.
        let _ = beside(&store, Store::abandon).await;
        return installed;
    }
    if let Err(error) = beside(&store, Store::commit).await {
        let refusal = gateway.borrow_mut().not_persisted(&error);
        restore(&gateway, &store, &table).await;
        return Err(refusal);
    }
    gateway.borrow_mut().accept(rules, table);
    Ok(())
}

/// Puts `table` in force, unless the gateway began to go down meanwhile.
fn install(gateway: &Shared, table: &Arc<Table>) -> Result<(), Refusal> {
    let gateway = gateway.borrow();
    gateway.check_serving()?;
    gateway.put_in_force(table).map_err(Refusal::Install)
}

/// A refused change is in force and perhaps on disk: puts the rules before it back in both places.
async fn restore(gateway: &Shared, store: &Arc<Store>, refused: &Table) {
    let snapshot = gateway.borrow_mut().reinstall(refused);
    let written = beside(store, move |store| store.prepare(&snapshot).and_then(|()| store.commit())).await;
    if let Err(error) = written {
        let file = store.current();
        let sentence = format!("{}: may hold a refused change: {error}; make it writable", file.display());
        gateway.borrow_mut().fault(sentence);
    }
}

/// Does `work` on a thread for what may block: a slow disk delays the change, not probes and other requests.
async fn beside(
    store: &Arc<Store>,
    work: impl FnOnce(&Store) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let store = store.clone();
    spawn_blocking(move || work(&store)).await?
}

#[cfg(test)]
mod tests;
