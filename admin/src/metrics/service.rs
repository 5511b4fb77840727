//! Families of what is out of service, and of the bound of client connections. Own their table alone.

use super::Facts;
use super::family::{Counted, Family, Listed, Total, family};
use super::text::Page;
use std::collections::BTreeMap;
use warmpath_core::control::Count;

/// All of them; those of connections as the loxilb AI gateway names them.
pub const FAMILIES: &[Family] = &[
    family(
        "warmpath_maintenance",
        "1 while the gateway is in maintenance.",
        &Total(|f| u64::from(f.maintenance)),
    ),
    family(
        "warmpath_endpoint_drained",
        "1 while the endpoint is out of service, by its host's state or by weight 0 in every rule that names it.",
        &Listed(&["endpoint"], drained),
    ),
    family(
        "loxilb_proxy_context_inflight",
        "Client connections that are served.",
        &Total(|f| f.reports.iter().map(|report| report.clients.saturating_sub(report.held)).sum()),
    ),
    family(
        "loxilb_proxy_accept_bound",
        "Client connections that are served at once (LLB_PD_MAX_TOTAL_INFLIGHT), 0 for no bound.",
        &Total(|f| u64::from(f.connections.unwrap_or(0))),
    ),
    family(
        "loxilb_proxy_accept_blocked_total",
        "Client connections that had to wait until others closed.",
        &Counted(&[Count::AcceptsHeld]),
    ),
];

fn drained(facts: &Facts, page: &mut Page) {
    let mut drained: BTreeMap<_, bool> = BTreeMap::new();
    for service in facts.table.services() {
        for (spec, state) in service.rule.endpoints.iter().zip(&service.endpoints) {
            *drained.entry(state.address()).or_insert(true) &= state.is_drained() || spec.weight == 0;
        }
    }
    drained.iter().for_each(|(address, drained)| page.sample(&[address], u8::from(*drained)));
}
