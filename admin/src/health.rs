//! Active health: whom to probe, how often, and what a row of results means. Owns the verdict; must never
//! take the last endpoint out of a rule by itself (the table does not believe probes that leave nobody).

use warmpath_core::table::{Service, Table};

/// Whether probes find all of a rule's endpoints down, so that the table does not believe them.
pub fn disbelieved(service: &Service) -> bool {
    let mut serving = service.rule.endpoints.iter().zip(&service.endpoints).filter(|(e, _)| e.weight > 0);
    service.rule.probe.is_some() && serving.clone().count() > 0 && serving.all(|(_, s)| s.probed_down())
}

/// Sentences about rules whose endpoints are all probed down.
pub fn warnings(table: &Table) -> Vec<String> {
    let services = table.vips.iter().flat_map(|v| &v.services);
    services
        .filter(|s| disbelieved(s))
        .map(|s| {
            format!(
                "rule {} ({}): probes find every endpoint down; they are used all the same",
                s.rule.key.vip, s.rule.name
            )
        })
        .collect()
}
