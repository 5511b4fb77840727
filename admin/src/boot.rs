//! From options to a gateway with its rules in force: the state directory, then the rules file over it. Must
//! never start with a part of the rules, nor with none where there were some and they can't be read. A stored
//! rule whose exact routing lacks something of the environment (the seed) is served without it, and says so.

use crate::change::{Wanted, change};
use crate::disk::Disk;
use crate::gateway::{Boot, Gateway, Outside, upserted};
use crate::hosts::Host;
use crate::refusal::Refusal;
use crate::rules::{History, Origin, RuleSet};
use crate::rules_file::RulesFile;
use crate::run::Options;
use crate::serve::Shared;
use crate::store::{Found, Snapshot, Store};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Boots, with the state directory on `disk`. An error is one sentence with cause and cure.
pub async fn boot(options: &Options, outside: Outside, disk: Box<dyn Disk>) -> Result<Shared, String> {
    let store = Store::open(&options.state_dir, disk)?;
    let file = options.rules_file.as_deref().map(RulesFile::read).transpose()?;
    let (snapshot, boot) = found(&store, file.is_some(), (outside.wall)().as_secs())?;
    let rules = stored_rules(&snapshot, &store.current(), &outside)?;
    let mut gateway = Gateway::new(outside, store, snapshot.generation);
    let damaged = boot.quarantine_path.is_some();
    gateway.boot = Boot { generation: snapshot.generation, ..boot };
    let (rules, changed) = match &file {
        Some(file) => with_file(&rules, file, &gateway.outside)?,
        None => (rules, 0),
    };
    let gateway = Rc::new(RefCell::new(gateway));
    // A number that was given anew must not be given again by the next process.
    let numbered = rules.bindings() != snapshot.bindings;
    let done = match changed > 0 || damaged || numbered {
        true => change(&gateway, |_| Ok(Wanted::rules(rules))).await.map(drop),
        false => gateway.borrow_mut().install(rules),
    };
    done.map_err(|refusal| refusal.to_string())?;
    let booted = gateway.borrow();
    booted.rules.warnings().for_each(|warning| (booted.outside.say)(&warning));
    drop(booted);
    Ok(gateway)
}

/// The snapshot to start from. A damaged one is put aside only if there is something else to start from:
/// else the next start would find nothing and serve nothing.
fn found(store: &Store, has_file: bool, stamp: u64) -> Result<(Snapshot, Boot), String> {
    let boot = |snapshot_found| Boot { snapshot_found, ..Boot::default() };
    match store.load()? {
        Found::Nothing => Ok((Snapshot::default(), boot(false))),
        Found::Current(snapshot) | Found::Interrupted(snapshot) => Ok((snapshot, boot(true))),
        Found::Damaged { previous: None, cause } if !has_file => Err(format!(
            "the state file is damaged and has no previous copy: {cause}; restore it, or move it away and start with --rules FILE"
        )),
        Found::Damaged { previous, cause } => {
            let aside = store.quarantine(stamp)?;
            let source = if previous.is_some() { "its previous copy" } else { "the rules file alone" };
            let note = format!(
                "the state file was damaged ({cause}) and is now {}; started from {source}",
                aside.display()
            );
            let quarantine_path = Some(aside.display().to_string());
            let found = previous.is_some();
            let boot = Boot { snapshot_found: found, notes: vec![note], quarantine_path, ..Boot::default() };
            Ok((previous.unwrap_or_default(), boot))
        }
    }
}

fn stored_rules(snapshot: &Snapshot, path: &Path, outside: &Outside) -> Result<RuleSet, String> {
    let none = RuleSet::numbered(snapshot.bindings.clone());
    let read = kept_rules(none, snapshot, Origin::Kept, outside);
    read.map_err(|refusal| {
        format!(
            "{}: {refusal}; it was written by another version: correct it there or start with that version",
            path.display()
        )
    })
}

/// The rules, hosts and histories of a snapshot, which come from `origin`, over the numbers of `none`.
pub fn kept_rules(
    mut none: RuleSet,
    snapshot: &Snapshot,
    origin: Origin,
    outside: &Outside,
) -> Result<RuleSet, Refusal> {
    none.hosts = snapshot.endpoints.iter().map(Host::read).collect::<Result<_, _>>()?;
    let (mut rules, _) = upserted(&none, &snapshot.rules, &outside.reading(origin))?;
    for (id, history) in &snapshot.history {
        if let Ok(index) = rules.by_id(id) {
            rules.remember(index, History::from_json(history));
        }
    }
    Ok(rules)
}

fn with_file(rules: &RuleSet, file: &RulesFile, outside: &Outside) -> Result<(RuleSet, usize), String> {
    upserted(rules, &file.bodies, &outside.reading(Origin::Asked)).map_err(|refusal| match refusal.place() {
        Some((index, member)) => file.sentence(index, member, &refusal),
        None => format!("{}: {refusal}", file.name),
    })
}

#[cfg(test)]
mod tests;
