//! Handlers of a rule's history: the bodies that were applied, and going back to one.

use crate::answer::Answer;
use crate::change::Wanted;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::rest::forms;
use crate::routes::{Answered, Call, Query, Route};
use crate::rules::{Applied, Entry, means};
use serde_json::{Map, Value, json};

const NUMBER: &str = "the number of a change, as the history tells it";

/// Rows of histories.
pub const ROUTES: &[Route] = &[
    Route::own(
        "/netlox/v1/config/loadbalancer/id/{id}/history",
        history,
        "the bodies that were applied of a rule, the last ten, to the letter",
    )
    .gives(&forms::HISTORY),
    Route::change(
        "POST",
        "/netlox/v1/config/loadbalancer/id/{id}/rollback",
        rollback,
        "apply one of them again; without mode=commit it only tells what would change",
    )
    .gives(&forms::ROLLED_BACK)
    .query(&[Query::must("number", NUMBER), Query::may("mode", "commit, or dry-run")]),
];

fn history(gateway: &Gateway, call: &Call) -> Answered {
    let entry = &gateway.rules.entries()[gateway.rules.by_id(call.param("id"))?];
    let Entry { rule, history, .. } = &**entry;
    let change = |a: &std::sync::Arc<Applied>| json!({"number": a.number, "at": a.at, "body": a.text});
    let changes: Vec<Value> = history.changes().iter().map(change).collect();
    Ok(Answer::json(200, &json!({"id": rule.id, "name": rule.name, "changes": changes})))
}

fn rollback(gateway: &Gateway, call: &Call) -> Result<Wanted, Refusal> {
    let id = call.param("id");
    let entry = &gateway.rules.entries()[gateway.rules.by_id(id)?];
    call.needed("number", NUMBER)?;
    let number = call.number("number", 0)?;
    let applied = entry.history.find(number).ok_or(Refusal::NoChange { id: id.into(), number })?;
    let body = serde_json::from_str(&applied.text).map_err(|e| Refusal::NotJson(e.to_string()))?;
    let rules = gateway.with_text(&body, &applied.text)?;
    let then = &rules.entries()[rules.by_id(id)?];
    let mut answer = json!({
        "result": "Success", "number": number, "mode": "dry-run",
        "differences": differences(&means(entry), &means(then)),
    });
    if !call.commits()? {
        return Ok(Wanted::nothing(Answer::json(200, &answer)));
    }
    answer["mode"] = json!("commit");
    Ok(Wanted { rules: Some(rules), answer: Answer::json(200, &answer), then: None })
}

/// The members in which two rules differ.
fn differences(now: &Value, then: &Value) -> Vec<Value> {
    let (none, path) = (Map::new(), "serviceArguments");
    let members = |rule: &Value| rule[path].as_object().cloned().unwrap_or_else(|| none.clone());
    let (was, is) = (members(now), members(then));
    let names = was.keys().chain(is.keys().filter(|name| !was.contains_key(*name)));
    let differs = names.filter(|name| was.get(*name) != is.get(*name));
    let mut all: Vec<Value> = differs
        .map(|name| json!({"member": format!("{path}.{name}"), "now": was.get(name), "then": is.get(name)}))
        .collect();
    if now["endpoints"] != then["endpoints"] {
        all.push(json!({"member": "endpoints", "now": now["endpoints"], "then": then["endpoints"]}));
    }
    all
}
