//! Handlers of snapshots: all that the operator wants as one document, taken, restored and written anew. Must never
//! restore a part of one.

use crate::answer::Answer;
use crate::boot::kept_rules;
use crate::change::Wanted;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::rest::forms;
use crate::routes::{Answered, Call, Query, Route};
use crate::rules::{Entry, Origin, RuleSet, means};
use crate::store::Snapshot;
use serde_json::{Value, json};

/// Bytes of a snapshot that is restored: many rules.
const SNAPSHOT_MAX: usize = 64 << 20;

/// Rows of snapshots.
pub const ROUTES: &[Route] = &[
    Route::own("/netlox/v1/config/snapshot", snapshot, "rules and probed hosts as one document")
        .gives(&forms::SNAPSHOT),
    Route::change(
        "POST",
        "/netlox/v1/config/restore",
        restore,
        "replace all of them by those of a snapshot; without mode=commit it only tells what would change",
    )
    .takes(&forms::SNAPSHOT)
    .gives(&forms::RESTORED)
    .query(&[Query::may("mode", "commit, or dry-run")])
    .up_to(SNAPSHOT_MAX),
    Route::change("POST", "/netlox/v1/config/persist", persist, "write what is in force to the disk anew"),
];

fn snapshot(gateway: &Gateway, _: &Call) -> Answered {
    let snapshot = Snapshot::of(gateway.table.generation, &gateway.rules);
    Ok(Answer::json(200, &snapshot.document()))
}

fn restore(gateway: &Gateway, call: &Call) -> Result<Wanted, Refusal> {
    let given = Snapshot::from_document(&call.json()?).map_err(Refusal::NoSnapshot)?;
    let none = gateway.rules.renumbered(&given.bindings);
    let mut rules = kept_rules(none, &given, Origin::Restored, &gateway.outside)?;
    let report = compare(&gateway.rules, &mut rules, (gateway.outside.wall)().as_secs());
    let answer = |mode: &str| {
        let mut answer = report.clone();
        answer["result"] = json!("Success");
        answer["mode"] = json!(mode);
        answer["warnings"] = rules.warnings().collect();
        Answer::json(200, &answer)
    };
    if !call.commits()? {
        return Ok(Wanted::nothing(answer("dry-run")));
    }
    let then = |gateway: &mut Gateway| {
        gateway.last_restore = Some(((gateway.outside.wall)(), gateway.table.generation));
    };
    Ok(Wanted { answer: answer("commit"), rules: Some(rules), then: Some(then) })
}

fn persist(gateway: &Gateway, _: &Call) -> Result<Wanted, Refusal> {
    Ok(Wanted::rules(gateway.rules.clone()))
}

/// What becomes of each rule. Those of the same key go on with their history, to which a change is added.
fn compare(now: &RuleSet, then: &mut RuleSet, at: u64) -> Value {
    let (mut created, mut replaced, mut unchanged) = (Vec::new(), Vec::new(), 0);
    for index in 0..then.entries().len() {
        let entry = then.entries()[index].clone();
        let before = now.entries().iter().find(|e| e.rule.key == entry.rule.key);
        let mut history = before.map(|e| e.history.clone()).unwrap_or_default();
        match before {
            Some(before) if means(before) == means(&entry) => unchanged += 1,
            before => {
                let list = if before.is_some() { &mut replaced } else { &mut created };
                list.push(words(&entry));
                history.push(at, &entry.body.to_string());
            }
        }
        then.remember(index, history);
    }
    let goes = |e: &&std::sync::Arc<Entry>| !then.entries().iter().any(|other| other.rule.key == e.rule.key);
    let deleted: Vec<Value> = now.entries().iter().filter(goes).map(|e| words(e)).collect();
    json!({"created": created, "replaced": replaced, "deleted": deleted, "unchanged": unchanged,
        "endpoints": then.hosts.len()})
}

fn words(entry: &Entry) -> Value {
    let rule = &entry.rule;
    json!({"id": rule.id, "name": rule.name, "address": rule.key.vip.to_string(), "model_name": rule.key.model})
}
