//! A line for the operator when a prefill engine seems well and yet hands nothing over, and when it does again. Owns what
//! was said; must never count (the shards do).

use crate::serve::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use warmpath_core::rule::Role;
use warmpath_core::shared::EndpointState;
use warmpath_core::table::{Service, Table};

/// How often endpoints are looked at.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// The prefill endpoints whose way of handing over was told to be exhausted.
#[derive(Debug, Default)]
pub struct Voice {
    told: BTreeSet<SocketAddr>,
}

impl Voice {
    /// What to say now: a line for each prefill endpoint that changed since the last look.
    pub fn look(&mut self, table: &Table) -> Vec<String> {
        let mut endpoints: BTreeMap<SocketAddr, (&Service, &EndpointState)> = BTreeMap::new();
        for service in table.services().filter(|service| service.roles.is_some()) {
            let own = service.rule.endpoints.iter().zip(&service.endpoints);
            for (_, endpoint) in own.filter(|(spec, _)| spec.role == Role::Prefill) {
                endpoints.entry(endpoint.address()).or_insert((service, endpoint));
            }
        }
        self.told.retain(|address| endpoints.contains_key(address));
        let changed = |(address, (service, endpoint)): (SocketAddr, (&Service, &EndpointState))| {
            let exhausted = endpoint.transfers_exhausted();
            let changed = match exhausted {
                true => self.told.insert(address),
                false => self.told.remove(&address),
            };
            changed.then(|| sentence(service, address, exhausted))
        };
        endpoints.into_iter().filter_map(changed).collect()
    }
}

/// Scripts search the log for the tag. The cure is what the engine's operators found (SGLang 0.5.18, over TCP).
fn sentence(service: &Service, address: SocketAddr, exhausted: bool) -> String {
    let rule = &service.rule.name;
    match exhausted {
        true => format!(
            "[PD_TRANSFER] transfer_path_exhausted: prefill endpoint {address} of rule {rule:?} answers its probes, but \
             all of its last pairs failed for want of its blocks; restart that engine. SGLang over TCP opens a \
             connection for each transfer, which fill the local ports of its host as TIME-WAIT: set \
             net.ipv4.tcp_tw_reuse=1 there, or transfer by RDMA"
        ),
        false => format!("[PD_TRANSFER] prefill endpoint {address} of rule {rule:?} hands over again"),
    }
}

/// Looks again and again.
pub async fn watch(gateway: Shared) {
    let mut voice = Voice::default();
    let mut next = Instant::now();
    loop {
        next += LOOK_EACH;
        sleep_until(next).await;
        let gateway = gateway.borrow();
        let lines = voice.look(&gateway.table);
        lines.iter().for_each(|line| (gateway.outside.say)(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::body;
    use serde_json::json;
    use warmpath_core::environment::Environment;
    use warmpath_core::rule::body::parse;

    #[test]
    fn an_exhausted_path_is_told_once_with_its_cure_and_its_end_too() {
        let mut body = body("chat", 80);
        body["serviceArguments"]["pd_disagg_mode"] = json!(true);
        body["serviceArguments"]["kvEngineType"] = json!("sglang");
        body["endpoints"] = json!([
            {"endpointIP": "10.0.0.1", "targetPort": 1, "ep_role": 1},
            {"endpointIP": "10.0.0.2", "targetPort": 1, "ep_role": 2},
        ]);
        let rule = parse(&body, &Environment::default(), || "id".into()).unwrap();
        let table = Table::next(&Table::default(), vec![rule], &mut 0, 0);
        let (mut voice, service) = (Voice::default(), &table.vips[0].services[0]);
        let prefill = &service.endpoints[0];
        for _ in 0..2 {
            prefill.transfer_ended(false);
        }
        assert!(voice.look(&table).is_empty());
        prefill.transfer_ended(false);
        prefill.set_probed_down(true);
        assert!(voice.look(&table).is_empty(), "an engine that is down has another trouble");
        prefill.set_probed_down(false);
        let told = voice.look(&table);
        assert!(
            told.len() == 1 && told[0].contains("transfer_path_exhausted: prefill endpoint 10.0.0.1:1"),
            "{told:?}"
        );
        assert!(told[0].contains("restart that engine") && voice.look(&table).is_empty());
        prefill.transfer_ended(true);
        assert!(voice.look(&table)[0].ends_with("hands over again"));
        service.endpoints[1].transfer_ended(false);
        assert!(voice.look(&table).is_empty());
    }
}
