//! From a rule body (JSON) to a [`Rule`]. Owns the table of members; must never accept a body in part.
//!
//! The body is that of the loxilb AI gateway (`{"serviceArguments": {…}, "endpoints": […]}`). Every member
//! of it has a row in `table.rs`; what this gateway does not serve is accepted at its default, where it means
//! nothing, and refused otherwise. Checks run from coarse to fine: kinds and names, contradictions, what is
//! served, what the values mean together. An absent `weight` (1), an absent `mode` (4) and endpoints of
//! another address family than the VIP are accepted here and refused by that gateway.

mod body_fault;
mod build;
mod document;
mod exact;
mod gate;
mod given;
mod members;
mod nearest;
mod probe;
mod readback;
mod schema;
mod shapes;
mod table;

pub use body_fault::BodyFault;
pub use document::document;
pub use readback::readback;
pub use schema::schema;
pub use shapes::contradictions;

use super::{Rule, RuleKey};
use crate::environment::Environment;
use crate::fleet::ENDPOINTS_MAX;
use body_fault::Class;
use given::Given;
use serde_json::Value;
use std::net::SocketAddr;

/// A rule that was accepted before, as far as the environment still allows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    /// The rule.
    pub rule: Rule,
    /// Why it is without the exact routing that its body asks for, if it is.
    pub without_exact: Option<BodyFault>,
}

/// The rule that `body` describes. `fresh_id` makes an id where the body gives none.
pub fn parse(
    body: &Value,
    environment: &Environment,
    fresh_id: impl FnOnce() -> String,
) -> Result<Rule, BodyFault> {
    let restored = restore(body, environment, fresh_id)?;
    match restored.without_exact {
        None => Ok(restored.rule),
        Some(fault) => Err(fault),
    }
}

/// [`parse`] for a body that was accepted by an earlier process: where only the environment's part of exact
/// routing is missing now, the rule comes without it rather than not at all.
pub fn restore(
    body: &Value,
    environment: &Environment,
    fresh_id: impl FnOnce() -> String,
) -> Result<Restored, BodyFault> {
    let (top, service) = objects(body)?;
    let paths = endpoint_paths(&top);
    let endpoints = endpoints_of(&top, &paths)?;
    shapes::check(&service, &endpoints)?;
    for given in [top, service].iter().chain(&endpoints) {
        given.served()?;
    }
    let mut rule = build::rule(&service, &endpoints, environment, fresh_id)?;
    rule.gate = gate::gate(&service, &endpoints, environment);
    let without_exact = match exact::exact(&service, environment) {
        Ok(exact) => {
            rule.exact = exact;
            None
        }
        Err(fault) if fault.is_precondition() => Some(fault),
        Err(fault) => return Err(fault),
    };
    Ok(Restored { rule, without_exact })
}

/// Which rule `body` is about, and the addresses of its endpoints: all that counts of a body that only adds
/// endpoints to a rule or takes some away (`oper` 1 and 2). Names and kinds of its members are checked, not whether
/// they make up a rule.
pub fn outline(body: &Value) -> Result<(RuleKey, Vec<SocketAddr>), BodyFault> {
    let (top, service) = objects(body)?;
    let paths = endpoint_paths(&top);
    let endpoints = endpoints_of(&top, &paths)?;
    let addresses = build::endpoint_specs(&endpoints)?.iter().map(|endpoint| endpoint.address).collect();
    Ok((build::key(&service)?, addresses))
}

/// The body and its `serviceArguments`, with names and kinds checked.
fn objects(body: &Value) -> Result<(Given<'_>, Given<'_>), BodyFault> {
    let top = Given::new(body, table::BODY, "", &[("serviceArguments", table::SERVICE)])?;
    let service = Given::new(
        top.value("serviceArguments").unwrap_or(&Value::Null),
        table::SERVICE,
        "serviceArguments",
        &[("endpoints[]", table::ENDPOINT), ("the body itself", table::BODY)],
    )?;
    check_count(top.list("endpoints").len(), &top)?;
    Ok((top, service))
}

fn endpoint_paths(top: &Given) -> Vec<String> {
    (0..top.list("endpoints").len()).map(|i| format!("endpoints[{i}]")).collect()
}

fn endpoints_of<'a>(top: &Given<'a>, paths: &'a [String]) -> Result<Vec<Given<'a>>, BodyFault> {
    let elsewhere = [("serviceArguments", table::SERVICE)];
    let list = top.list("endpoints").iter().zip(paths);
    list.map(|(e, path)| Given::new(e, table::ENDPOINT, path, &elsewhere)).collect()
}

fn check_count(count: usize, top: &Given) -> Result<(), BodyFault> {
    if (1..=ENDPOINTS_MAX).contains(&count) {
        return Ok(());
    }
    let problem = format!("{count} endpoints");
    Err(top.fault(Class::OutOfRange, "endpoints", &problem, format!("use 1 to {ENDPOINTS_MAX}")))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod exact_tests;

#[cfg(test)]
mod table_tests;
