//! The handler of PATCH on a rule: a merge patch (RFC 7396) of the few members that may change one by one. Must never
//! create a rule, nor change one in part.

use super::load_balancer::selected;
use crate::change::Wanted;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::routes::Call;
use serde_json::{Map, Value};

/// What a patch may name. Everything else is changed by a POST of the whole rule.
pub const PATCHABLE: [&str; 15] = [
    "name",
    "sel",
    "adminStateUp",
    "connectionLimit",
    "inactiveTimeOut",
    "timeoutMemberConnect",
    "timeoutMemberData",
    "timeoutTcpInspect",
    "monitor",
    "probetype",
    "probeport",
    "probereq",
    "proberesp",
    "probeTimeout",
    "probeRetries",
];

/// Changes members of a rule that is there.
pub fn patch(gateway: &Gateway, call: &Call) -> Result<Wanted, Refusal> {
    let index = selected(&gateway.rules, call)?;
    let given = call.json()?;
    let mut body = gateway.rules.entries()[index].body.clone();
    let service = members(&given)?;
    if let Some(Value::Object(own)) = body.get_mut("serviceArguments") {
        for (name, value) in service {
            match value {
                Value::Null => own.shift_remove(name),
                value => own.insert(name.clone(), value.clone()),
            };
        }
    }
    Ok(Wanted::rules(gateway.with(&body)?))
}

/// The members of a patch, all of which may be patched.
fn members(given: &Value) -> Result<&Map<String, Value>, Refusal> {
    let top = given.as_object().ok_or_else(|| Refusal::NotJson("an object is expected".into()))?;
    if let Some(other) = top.keys().find(|name| *name != "serviceArguments") {
        return Err(Refusal::NotPatchable { member: bounded(other) });
    }
    let Some(Value::Object(service)) = top.get("serviceArguments") else {
        return Err(Refusal::NotJson("an object serviceArguments is expected".into()));
    };
    let may = |name: &&String| PATCHABLE.contains(&name.as_str());
    match service.keys().find(|name| !may(name)) {
        None => Ok(service),
        Some(other) => Err(Refusal::NotPatchable { member: format!("serviceArguments.{}", bounded(other)) }),
    }
}

fn bounded(name: &str) -> String {
    name.chars().take(64).collect()
}
