//! Handlers of probed hosts: `/config/endpoint` and its kin.

use crate::answer::Answer;
use crate::change::Wanted;
use crate::gateway::Gateway;
use crate::hosts::Host;
use crate::refusal::Refusal;
use crate::rest::forms;
use crate::routes::{Answered, Call, Query, Route};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Rows of probed hosts.
pub const ROUTES: &[Route] = &[
    Route::change("POST", "/netlox/v1/config/endpoint", post, "probe a host whichever rules name it")
        .takes(&forms::HOST),
    Route::own("/netlox/v1/config/endpoint/all", list, "probed hosts and what their probes say")
        .gives(&forms::HOST_LIST),
    Route::change("DELETE", "/netlox/v1/config/endpoint/epipaddress/{ip}", delete, "probe it no more").query(
        &[
            Query::may("name", "the host's name, where an address has several probes"),
            Query::may("probe_type", "likewise: tcp, http or none"),
            Query::may("probe_port", "likewise"),
        ],
    ),
];

fn post(gateway: &Gateway, call: &Call) -> Result<Wanted, Refusal> {
    let host = Host::read(&call.json()?)?;
    let mut rules = gateway.rules.clone();
    rules.hosts.retain(|known| !known.is_same(&host));
    rules.hosts.push(host);
    Ok(Wanted::rules(rules))
}

fn list(gateway: &Gateway, _: &Call) -> Answered {
    let probers = gateway.probers.borrow();
    let shown: Vec<Value> =
        gateway.rules.hosts.iter().map(|host| host.shown(probers.is_down(host))).collect();
    Ok(Answer::json(200, &json!({"Attr": shown})))
}

fn delete(gateway: &Gateway, call: &Call) -> Result<Wanted, Refusal> {
    let text = call.param("ip");
    let bad = |_| Refusal::Argument { name: "ip", value: text.into(), allowed: "an IP address" };
    let ip = text.parse::<IpAddr>().map_err(bad)?.to_canonical();
    let port = call.number("probe_port", 0)?;
    let is_meant = |host: &Host| {
        host.ip == ip
            && call.query("name").is_none_or(|name| name == host.name)
            && call.query("probe_type").is_none_or(|kind| kind == host.kind_word())
            && (port == 0 || host.probe.as_ref().is_some_and(|p| u64::from(p.port) == port))
    };
    let mut rules = gateway.rules.clone();
    let before = rules.hosts.len();
    rules.hosts.retain(|host| !is_meant(host));
    match rules.hosts.len() < before {
        true => Ok(Wanted::rules(rules)),
        false => Err(Refusal::NoHost(text.into())),
    }
}
