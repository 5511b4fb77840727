//! Handlers of rules: `/config/loadbalancer` and its kin.

use crate::answer::Answer;
use crate::change::Wanted;
use crate::gateway::{Gateway, upserted_texts};
use crate::health::disbelieved;
use crate::refusal::Refusal;
use crate::rest::patch::patch;
use crate::rest::{forms, gate};
use crate::routes::{Answered, Call, Handler, Query, Route};
use crate::rules::{Entry, Origin, RuleSet, Selection, address, address_of};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::net::SocketAddr;
use warmpath_core::control::ShardReport;
use warmpath_core::rule::body::readback;
use warmpath_core::table::{Service, Table};

const LIST: &str = "/netlox/v1/config/loadbalancer/all";
const NAME: &str = "/netlox/v1/config/loadbalancer/name/{name}";
const ID: &str = "/netlox/v1/config/loadbalancer/id/{id}";
/// A rule by its address.
pub const RULE: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/{protocol}";
const RANGE_RULE: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/portmax/{portmax}/protocol/{protocol}";
const HOST_RANGE_RULE: &str = "/netlox/v1/config/loadbalancer/hosturl/{host}/externalipaddress/{ip}/port/{port}/portmax/{portmax}/protocol/{protocol}";
const SOCKMAP: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/{protocol}/sockmapreset";
const HOST_RULE: &str =
    "/netlox/v1/config/loadbalancer/hosturl/{host}/externalipaddress/{ip}/port/{port}/protocol/{protocol}";
const RULE_STATUS: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/{protocol}/status";
const RULE_STATS: &str =
    "/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/{protocol}/stats";

/// What tells a rule from others of its address.
const WHICH: &[Query] = &[
    Query::may("model_name", "the rule's model_name, where several rules share the address"),
    Query::may("path_prefix", "the rule's path_prefix, likewise"),
    Query::may("bgp", "taken and without effect, since nothing is announced"),
];

/// Rows of rules.
pub const ROUTES: &[Route] = &[
    Route::change(
        "POST",
        "/netlox/v1/config/loadbalancer",
        post,
        "create a rule or replace the one of its key",
    )
    .takes(&forms::RULE),
    Route::own(LIST, list, "all rules").gives(&forms::RULE_LIST),
    Route::change("DELETE", LIST, delete_all, "delete all rules"),
    Route::own(RULE, get, "one rule").query(WHICH),
    Route::change("DELETE", RULE, delete, "delete one rule").query(WHICH),
    Route::change(
        "PATCH",
        RULE,
        patch,
        "change names, selector, time limits or probes of a rule that is there",
    )
    .takes(&forms::PATCH)
    .query(WHICH),
    Route::own(RANGE_RULE, get, "one rule whose range of ports is its port alone").query(WHICH),
    Route::change("DELETE", RANGE_RULE, delete, "delete it").query(WHICH),
    Route::own(HOST_RANGE_RULE, get, "the same of a host").query(WHICH),
    Route::change("DELETE", HOST_RANGE_RULE, delete, "delete it").query(WHICH),
    Route::new(
        "POST",
        SOCKMAP,
        Handler::Own(sockmap_reset),
        "close connections relayed by the kernel: none is",
    )
    .gives(&forms::DROPPED)
    .query(WHICH),
    Route::own(HOST_RULE, get, "one rule of a host").query(WHICH),
    Route::change("DELETE", HOST_RULE, delete, "delete one rule of a host").query(WHICH),
    Route::own(RULE_STATUS, status, "health of one rule's endpoints").query(WHICH),
    Route::reports(RULE_STATS, stats, "answers of one rule by endpoint and status class").query(WHICH),
    Route::own(NAME, get_by_name, "the rule of this name"),
    Route::change("DELETE", NAME, delete_by_name, "delete it"),
    Route::own(ID, get_by_id, "the rule of this id"),
    Route::change("DELETE", ID, delete_by_id, "delete it"),
    Route::change("POST", "/netlox/v1/rules", apply, "create or replace a list of rules: all or none")
        .takes(&forms::RULES)
        .gives(&forms::APPLIED),
];

/// A change that a request asks for.
type Asked = Result<Wanted, Refusal>;

/// Creates a rule, or replaces the one of the same key.
pub fn post(gateway: &Gateway, call: &Call) -> Asked {
    Ok(Wanted::rules(gateway.with_text(&call.json()?, &call.text())?))
}

/// Creates or replaces a list of rules as one change: all or none. Those in force already are no fault.
pub fn apply(gateway: &Gateway, call: &Call) -> Asked {
    let Value::Array(bodies) = call.json()? else {
        return Err(Refusal::NotJson("an array of rule bodies is expected".into()));
    };
    let raw: Vec<&RawValue> =
        serde_json::from_slice(&call.body).map_err(|e| Refusal::NotJson(e.to_string()))?;
    let texts: Vec<String> = raw.iter().map(|body| body.get().to_string()).collect();
    let reading = gateway.outside.reading(Origin::Asked);
    let (rules, changed) = upserted_texts(&gateway.rules, &bodies, &texts, &reading)?;
    let answer = Answer::json(200, &json!({"result": "Success", "changed": changed}));
    Ok(Wanted { rules: (changed > 0).then_some(rules), answer, then: None })
}

/// All rules.
pub fn list(gateway: &Gateway, _: &Call) -> Answered {
    let shown: Vec<_> = gateway.rules.entries().iter().map(|e| shown(gateway, e)).collect();
    Ok(Answer::json(200, &json!({"lbAttr": shown})))
}

/// The rule at an address.
pub fn get(gateway: &Gateway, call: &Call) -> Answered {
    let index = selected(&gateway.rules, call)?;
    one(gateway, index)
}

/// The rule of a name.
pub fn get_by_name(gateway: &Gateway, call: &Call) -> Answered {
    let index = gateway.rules.by_name(call.param("name"))?;
    one(gateway, index)
}

/// The rule of an id.
pub fn get_by_id(gateway: &Gateway, call: &Call) -> Answered {
    let index = gateway.rules.by_id(call.param("id"))?;
    one(gateway, index)
}

/// Deletes the rule at an address.
pub fn delete(gateway: &Gateway, call: &Call) -> Asked {
    let index = selected(&gateway.rules, call)?;
    Ok(without(gateway, index))
}

/// Deletes the rule of a name.
pub fn delete_by_name(gateway: &Gateway, call: &Call) -> Asked {
    let index = gateway.rules.by_name(call.param("name"))?;
    Ok(without(gateway, index))
}

/// Deletes the rule of an id.
pub fn delete_by_id(gateway: &Gateway, call: &Call) -> Asked {
    let index = gateway.rules.by_id(call.param("id"))?;
    Ok(without(gateway, index))
}

/// Deletes all rules.
pub fn delete_all(gateway: &Gateway, _: &Call) -> Asked {
    Ok(Wanted::rules(gateway.rules.emptied()))
}

/// Health of a rule's endpoints.
pub fn status(gateway: &Gateway, call: &Call) -> Answered {
    let entry = &gateway.rules.entries()[selected(&gateway.rules, call)?];
    let service = service_of(&gateway.table, entry);
    let now = (gateway.outside.now)();
    let endpoints: Vec<_> = service
        .iter()
        .flat_map(|s| s.rule.endpoints.iter().zip(&s.endpoints).map(move |(spec, state)| (s, spec, state)))
        .map(|(s, spec, state)| {
            json!({
                "endpoint": spec.address.to_string(),
                "available": spec.weight > 0 && s.is_healthy(state, now),
                "breaker": s.rule.breaker.map(|_| state.breaker().now().state(now).word()),
                "probed_down": state.probed_down(),
                "transfer_path_exhausted": s.roles.is_some() && state.transfers_exhausted(),
                "draining": spec.weight == 0,
                "in_flight": state.reserved(),
                "probes": probes(gateway, spec.address),
            })
        })
        .collect();
    let answer = json!({
        "id": entry.rule.id,
        "name": entry.rule.name,
        "service": service.map(|s| s.number),
        "enabled": entry.rule.enabled,
        "probes_disbelieved": service.is_some_and(disbelieved),
        "endpoints": endpoints,
    });
    Ok(Answer::json(200, &answer))
}

/// What each prober of an endpoint found.
fn probes(gateway: &Gateway, endpoint: SocketAddr) -> Vec<Value> {
    let probers = gateway.probers.borrow();
    let found = probers
        .of(endpoint)
        .map(|p| json!({"at": p.target.at.to_string(), "down": p.verdict.down, "last_fault": p.last_fault}));
    found.collect()
}

/// Answers of a rule, by endpoint and status class.
pub fn stats(gateway: &Gateway, call: &Call, reports: &[ShardReport]) -> Answered {
    let entry = &gateway.rules.entries()[selected(&gateway.rules, call)?];
    let service = service_of(&gateway.table, entry);
    let number = service.map_or(0, |s| s.number);
    let answers = reports.iter().flat_map(|r| &r.answers).filter(|a| a.service == number);
    let mut sums = std::collections::BTreeMap::new();
    for answer in answers {
        *sums.entry((answer.endpoint, answer.class)).or_insert(0) += answer.count;
    }
    let rows: Vec<_> = sums
        .iter()
        .map(|((endpoint, class), count)| {
            let address = entry.rule.endpoints.get(*endpoint as usize).map(|e| e.address.to_string());
            json!({"endpoint": address, "status_class": format!("{class}xx"), "answers": count})
        })
        .collect();
    Ok(Answer::json(200, &json!({"id": entry.rule.id, "name": entry.rule.name, "answers": rows})))
}

/// The service that carries a rule in `table`.
fn service_of<'a>(table: &'a Table, entry: &Entry) -> Option<&'a Service> {
    let services = &table.vip(entry.rule.key.vip)?.services;
    services.iter().find(|s| s.rule.key == entry.rule.key).map(|s| &**s)
}

/// Closes the connections that the kernel relays by itself, of which this gateway has none.
fn sockmap_reset(gateway: &Gateway, call: &Call) -> Answered {
    selected(&gateway.rules, call)?;
    Ok(Answer::json(200, &json!({"droppedConnections": 0})))
}

/// The rule that a path and its query mean.
pub fn selected(rules: &RuleSet, call: &Call) -> Result<usize, Refusal> {
    let host = call.param("host");
    let (port, end) = (call.param("port"), call.param("portmax"));
    if !matches!(end, "" | "0") && end != port {
        return Err(Refusal::NoRule(format!("ports {port} to {end}; no rule has a range of ports")));
    }
    rules.select(&Selection {
        vip: address(call.param("ip"), port, call.param("protocol"))?,
        host: (!host.is_empty()).then_some(host),
        model: call.query("model_name"),
        path: call.query("path_prefix"),
    })
}

fn one(gateway: &Gateway, index: usize) -> Answered {
    Ok(Answer::json(200, &shown(gateway, &gateway.rules.entries()[index])))
}

fn without(gateway: &Gateway, index: usize) -> Wanted {
    let mut rules = gateway.rules.clone();
    rules.remove(index);
    Wanted::rules(rules)
}

/// The rule's readback, with the live `state` of each endpoint.
fn shown(gateway: &Gateway, entry: &Entry) -> Value {
    let mut body = readback(&entry.rule, &entry.body);
    let Some(service) = service_of(&gateway.table, entry) else { return body };
    let now = (gateway.outside.now)();
    if let Some(gate) = gate::effective(service, now) {
        body["fc_effective"] = gate;
    }
    for endpoint in body.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(address) = address_of(endpoint) else { continue };
        let state = service.endpoints.iter().find(|s| s.address() == address);
        let word = match state {
            Some(state) if state.is_drained() => "draining",
            Some(state) if service.is_healthy(state, now) => "active",
            _ => "inactive",
        };
        endpoint["state"] = word.into();
    }
    body
}
