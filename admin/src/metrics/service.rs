//! Families of what is out of service, and of the bound of client connections. Own their table alone.

use super::{Family, count_of, family, sum};
use std::collections::BTreeMap;
use warmpath_core::control::Count;

/// All of them; those of connections as the loxilb AI gateway names them.
pub(super) const FAMILIES: &[Family] = &[
    family("warmpath_maintenance", "gauge", "1 while the gateway is in maintenance.", |f, p| {
        p.sample("", &[], u8::from(f.maintenance));
    }),
    family(
        "warmpath_endpoint_drained",
        "gauge",
        "1 while the endpoint is out of service, by its host's state or by weight 0 in every rule that names it.",
        |f, p| {
            let mut drained: BTreeMap<_, bool> = BTreeMap::new();
            for service in f.table.services() {
                for (spec, state) in service.rule.endpoints.iter().zip(&service.endpoints) {
                    let own = state.is_drained() || spec.weight == 0;
                    let all = drained.entry(state.address()).or_insert(true);
                    *all &= own;
                }
            }
            for (address, drained) in drained {
                p.sample("", &[("endpoint", &address.to_string())], u8::from(drained));
            }
        },
    ),
    family("loxilb_proxy_context_inflight", "gauge", "Client connections that are served.", |f, p| {
        p.sample("", &[], sum(f, |r| r.clients.saturating_sub(r.held)));
    }),
    family(
        "loxilb_proxy_accept_bound",
        "gauge",
        "Client connections that are served at once (LLB_PD_MAX_TOTAL_INFLIGHT), 0 for no bound.",
        |f, p| p.sample("", &[], f.connections.unwrap_or(0)),
    ),
    family(
        "loxilb_proxy_accept_blocked_total",
        "counter",
        "Client connections that had to wait until others closed.",
        |f, p| {
            p.sample("", &[], sum(f, |r| count_of(r, Count::AcceptsHeld)));
        },
    ),
];
