//! Handlers of attestation: `kvexactstatus`. Own which rules it is of; must never decide what is proven.

use crate::answer::Answer;
use crate::attest::show;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::routes::{Answered, Call, Query, Route};
use crate::rules::address;
use serde_json::{Value, json};

const STATUS: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/{protocol}/kvexactstatus";
const ALL: &str = "/netlox/v1/config/ai/kv/exactstatus";

const WHICH: &[Query] = &[Query::may("model_name", "the rule of this model alone")];

/// The rows of the table.
pub const ROUTES: &[Route] = &[
    Route::own(
        STATUS,
        of_rule,
        "what is proven of the rules of an address that have exact routing, and what is not",
    )
    .query(WHICH),
    Route::own(ALL, of_all, "the same of all rules"),
];

/// The rules at an address; 404 where none has exact routing.
fn of_rule(gateway: &Gateway, call: &Call) -> Answered {
    let vip = address(call.param("ip"), call.param("port"), call.param("protocol"))?;
    let services = gateway.table.vip(vip).map(|vip| &vip.services[..]).unwrap_or_default();
    let rows: Vec<Value> = services
        .iter()
        .filter(|service| call.query("model_name").is_none_or(|model| service.rule.key.model == model))
        .filter_map(|service| show::row(gateway, service))
        .collect();
    match rows.is_empty() {
        true => Err(Refusal::NoRule("no rule with exact routing is at this address for this model".into())),
        false => Ok(body(&rows)),
    }
}

fn of_all(gateway: &Gateway, _: &Call) -> Answered {
    let rows = gateway.table.services().filter_map(|service| show::row(gateway, service));
    Ok(body(&rows.collect::<Vec<_>>()))
}

fn body(rows: &[Value]) -> Answer {
    Answer::json(200, &json!({"kvExactStatusAttr": rows, "vocabularyVersion": show::VOCABULARY}))
}
