//! Endpoints added to a rule or taken from it (`oper` 1 and 2 of a body). Owns what becomes of the stored body; must
//! never leave a rule without endpoints: it goes with its last one.

use super::{Reading, RuleSet, Upserted};
use crate::refusal::Refusal;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use warmpath_core::rule::RuleKey;
use warmpath_core::rule::body;

/// `oper` of a body that adds its endpoints.
pub const ATTACH: i64 = 1;
/// `oper` of a body that takes its endpoints away.
pub const DETACH: i64 = 2;

/// `oper` of a body; 0 creates or replaces.
pub fn oper(given: &Value) -> i64 {
    given["serviceArguments"]["oper"].as_i64().unwrap_or(0)
}

impl RuleSet {
    /// Adds the endpoints of `given` to its rule; those it has already are described anew. Creates it if there is none.
    pub(super) fn attach(&mut self, given: &Value, reading: &Reading<'_>) -> Result<Upserted, Refusal> {
        let (key, addresses) = body::outline(given).map_err(Refusal::body)?;
        let Ok(at) = self.place(&key) else { return self.replace(given, &given.to_string(), reading) };
        let mut next = self.entries[at].body.clone();
        let given = given["endpoints"].as_array().into_iter().flatten();
        for (endpoint, address) in given.zip(addresses) {
            let Some(list) = endpoints(&mut next) else { continue };
            match list.iter_mut().find(|known| address_of(known) == Some(address)) {
                Some(known) => *known = endpoint.clone(),
                None => list.push(endpoint.clone()),
            }
        }
        self.replace(&next, &next.to_string(), reading)
    }

    /// Takes the endpoints of `given` from its rule.
    pub(super) fn detach(&mut self, given: &Value, reading: &Reading<'_>) -> Result<Upserted, Refusal> {
        let (key, addresses) = body::outline(given).map_err(Refusal::body)?;
        let at = self.place(&key).map_err(|_| Refusal::NoRule(words(&key)))?;
        let mut next = self.entries[at].body.clone();
        let mut left = 0;
        if let Some(list) = endpoints(&mut next) {
            for endpoint in addresses {
                let known = list.iter().position(|known| address_of(known) == Some(endpoint));
                list.remove(known.ok_or(Refusal::NotAttached { vip: key.vip, endpoint })?);
            }
            left = list.len();
        }
        if left == 0 {
            self.remove(at);
            return Ok(Upserted { key, changed: true });
        }
        self.replace(&next, &next.to_string(), reading)
    }
}

fn words(key: &RuleKey) -> String {
    format!("{}/tcp host {:?} path {:?} model_name {:?}", key.vip, key.host, key.path, key.model)
}

fn endpoints(body: &mut Value) -> Option<&mut Vec<Value>> {
    body.get_mut("endpoints").and_then(Value::as_array_mut)
}

/// The address of an endpoint of a body; IPv4 written as IPv6 is IPv4.
pub fn address_of(endpoint: &Value) -> Option<SocketAddr> {
    let ip: IpAddr = endpoint.get("endpointIP")?.as_str()?.parse().ok()?;
    let port = u16::try_from(endpoint.get("targetPort")?.as_u64()?).ok()?;
    Some(SocketAddr::new(ip.to_canonical(), port))
}
