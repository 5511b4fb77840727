//! Handlers of maintenance and of hosts that are taken out of service. Own their JSON and what may still be changed
//! meanwhile; must never end a request.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::out_of_service::{DRAIN_SEC, Drain, Host};
use crate::refusal::Refusal;
use crate::routes::{Answered, Call, Handler, Route};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use warmpath_core::control::ShardReport;

const MAINTENANCE: &str = "/netlox/v1/maintenance";
const HOST_STATE: &str = "/netlox/v1/config/endpointhoststate";

/// Rows of maintenance.
pub const ROUTES: &[Route] = &[
    Route::reports(MAINTENANCE, get, "whether the gateway is in maintenance, and what still runs"),
    Route::new("PUT", MAINTENANCE, Handler::Switch(put), "begin or end maintenance"),
    Route::own(HOST_STATE, hosts, "hosts that are out of service, and what still runs there"),
    Route::new("POST", HOST_STATE, Handler::Switch(set_host), "take a host out of service, or back into it"),
];

/// Changes of the configuration that are made in maintenance too: what maintenance may be for.
const IN_MAINTENANCE: [&str; 2] = ["/netlox/v1/config/restore", "/netlox/v1/config/persist"];

/// The longest time for what runs: a day.
const DRAIN_SEC_MAX: u64 = 86_400;

/// Words of a host's state, the loxilb ones first, and whether it is then in service.
const STATES: [(&str, bool); 5] =
    [("green", true), ("yellow", false), ("red", false), ("active", true), ("draining", false)];

/// Refuses a change of the configuration in maintenance.
pub fn check_change(gateway: &Gateway, route: &Route) -> Result<(), Refusal> {
    let refused = gateway.out_of_service.maintenance.is_some() && !IN_MAINTENANCE.contains(&route.path);
    if refused { Err(Refusal::Maintenance) } else { Ok(()) }
}

/// Why the gateway is not ready, as far as maintenance goes.
pub fn reason(gateway: &Gateway) -> Option<String> {
    let drain = gateway.out_of_service.maintenance?;
    Some(format!(
        "maintenance: changes are refused, and new requests of rules with fc_mode enforce; what runs was given {} s",
        drain.seconds
    ))
}

/// Sentences about hosts that are out of service.
pub fn warnings(gateway: &Gateway) -> Vec<String> {
    let now = (gateway.outside.now)();
    let sentence = |(host, drain): (Host, Drain)| {
        let running = running_at(gateway, host);
        let late = if drain.is_exceeded(running, now) { ", longer than it was given" } else { "" };
        format!("host {host} is out of service: {running} requests still run there{late}")
    };
    gateway.out_of_service.hosts().map(sentence).collect()
}

/// What maintenance is, as readiness shows it too.
pub fn state(gateway: &Gateway, reports: &[ShardReport]) -> Map<String, Value> {
    let drain = gateway.out_of_service.maintenance;
    let running: u64 = reports.iter().map(|report| report.active).sum();
    let refusing = gateway.table.services().any(|service| service.is_closed());
    let exceeded = drain.is_some_and(|drain| drain.is_exceeded(running, (gateway.outside.now)()));
    Map::from_iter([
        ("maintenance_state".into(), if drain.is_some() { "maintenance" } else { "active" }.into()),
        ("refusing_new_inference".into(), refusing.into()),
        ("in_flight_requests".into(), running.into()),
        ("drain_timeout_seconds".into(), drain.map(|drain| drain.seconds).into()),
        ("drain_deadline_exceeded".into(), exceeded.into()),
    ])
}

fn get(gateway: &Gateway, _: &Call, reports: &[ShardReport]) -> Answered {
    Ok(Answer::json(200, &Value::Object(state(gateway, reports))))
}

fn put(gateway: &mut Gateway, call: &Call) -> Answered {
    let body = members(call, &["enabled", "drain_timeout_seconds"])?;
    let enabled = match body.get("enabled") {
        Some(Value::Bool(enabled)) => *enabled,
        other => return Err(argument("enabled", other, "true or false")),
    };
    let drain = drain(&body, gateway)?;
    gateway.out_of_service.maintenance = enabled.then_some(drain);
    gateway.obey();
    Ok(Answer::success())
}

fn set_host(gateway: &mut Gateway, call: &Call) -> Answered {
    let body = members(call, &["hostName", "state", "drain_timeout_seconds"])?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let host = text("hostName").and_then(Host::parse).ok_or_else(|| {
        argument("hostName", body.get("hostName"), "an endpoint's address, or address and port")
    })?;
    let state = STATES.iter().find(|(word, _)| Some(*word) == text("state"));
    let (_, serves) = state
        .ok_or_else(|| argument("state", body.get("state"), "green or active, yellow, red or draining"))?;
    let drain = drain(&body, gateway)?;
    if endpoints(gateway, host).is_empty() && !gateway.out_of_service.knows(host) {
        return Err(Refusal::NoEndpointAt(host.to_string()));
    }
    gateway.out_of_service.set(host, (!serves).then_some(drain));
    gateway.obey();
    Ok(Answer::success())
}

fn hosts(gateway: &Gateway, _: &Call) -> Answered {
    let now = (gateway.outside.now)();
    let shown = gateway.out_of_service.hosts().map(|(host, drain)| {
        let running = running_at(gateway, host);
        json!({
            "hostName": host.to_string(),
            "state": "draining",
            "in_flight_requests": running,
            "drain_timeout_seconds": drain.seconds,
            "drain_deadline_exceeded": drain.is_exceeded(running, now),
        })
    });
    Ok(Answer::json(200, &json!({"hosts": shown.collect::<Vec<_>>()})))
}

/// The endpoints of a host, each once, with the requests charged to it.
fn endpoints(gateway: &Gateway, host: Host) -> BTreeMap<SocketAddr, u64> {
    let states = gateway.table.services().flat_map(|service| &service.endpoints);
    let own = states.filter(|state| host.covers(state.address()));
    own.map(|state| (state.address(), u64::from(state.reserved()))).collect()
}

fn running_at(gateway: &Gateway, host: Host) -> u64 {
    endpoints(gateway, host).values().sum()
}

/// A body that has no members but these.
fn members(call: &Call, known: &[&'static str]) -> Result<Map<String, Value>, Refusal> {
    let Value::Object(body) = call.json()? else {
        return Err(Refusal::NotJson("an object is expected".into()));
    };
    match body.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(body),
        Some(name) => Err(Refusal::UnknownMember { name: name.clone(), known: known.join(", ") }),
    }
}

fn drain(body: &Map<String, Value>, gateway: &Gateway) -> Result<Drain, Refusal> {
    let seconds = match body.get("drain_timeout_seconds") {
        None => Some(DRAIN_SEC),
        Some(given) => given.as_u64().filter(|seconds| *seconds <= DRAIN_SEC_MAX),
    };
    let bad = || {
        argument("drain_timeout_seconds", body.get("drain_timeout_seconds"), "a whole number from 0 to 86400")
    };
    Ok(Drain::begun(seconds.ok_or_else(bad)?, (gateway.outside.now)()))
}

fn argument(name: &'static str, value: Option<&Value>, allowed: &'static str) -> Refusal {
    let value = value.map_or("nothing".into(), |value| value.to_string().chars().take(64).collect());
    Refusal::Argument { name, value, allowed }
}
