//! The families of how far endpoints' caches are trusted. Owns their table; must never judge.

use super::Facts;
use super::family::{Family, Listed, family};
use crate::trust::EndpointTrust;
use std::fmt::Display;
use warmpath_core::trust::Finding;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "warmpath_trust_state",
        "1 with how far an endpoint's cache is trusted.",
        &Listed(&["service", "ep_idx", "endpoint", "state"], |f, p| {
            each(f, |endpoint, own| p.sample(&[endpoint, &[&own.trust.state().word()]].concat(), 1));
        }),
    ),
    family(
        "warmpath_trust_answers",
        "Answers judged since the endpoint was last let in, by what they say against what was predicted.",
        &Listed(&["service", "ep_idx", "endpoint", "finding"], |f, p| {
            each(f, |endpoint, own| {
                for finding in Finding::ALL {
                    p.sample(&[endpoint, &[&finding.word()]].concat(), own.count(finding));
                }
            });
        }),
    ),
    family(
        "warmpath_trust_broken_leg",
        "1 for each leg that may be broken.",
        &Listed(&["service", "ep_idx", "endpoint", "leg"], |f, p| {
            each(f, |endpoint, own| {
                own.legs.iter().for_each(|leg| p.sample(&[endpoint, &[&leg.word()]].concat(), 1));
            });
        }),
    ),
];

/// Hands out every endpoint, known to the event core or not, with what tells it.
fn each(facts: &Facts, mut each: impl FnMut(&[&dyn Display], &EndpointTrust)) {
    for endpoint in facts.kv_endpoints {
        let address = endpoint.source.spec().endpoint;
        let place: [&dyn Display; 3] = [&endpoint.service.number, &endpoint.index, &address];
        each(&place, &EndpointTrust::of(endpoint));
    }
}
