//! The families of what engines tell of their load. Owns their table; an endpoint whose sample is stale has none.

use super::{Facts, Family, family};
use crate::metrics::text::Page;
use std::collections::BTreeMap;
use warmpath_core::engine::telemetry::Load;
use warmpath_core::shared::LOAD_STALE;

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_worker_scrape_total",
        "counter",
        "Questions to engines for their load, by what came of them.",
        |f, p| {
            for (scrape, count) in f.scrapes {
                p.sample("", &[("result", scrape.word())], count);
            }
        },
    ),
    family(
        "warmpath_engine_running_requests",
        "gauge",
        "Requests in execution, as the engine says.",
        |f, p| {
            each_endpoint(f, p, |load| Some(load.running));
        },
    ),
    family(
        "warmpath_engine_waiting_requests",
        "gauge",
        "Requests in the engine's own queue, as it says.",
        |f, p| each_endpoint(f, p, |load| Some(load.waiting)),
    ),
    family(
        "warmpath_engine_kv_use_permille",
        "gauge",
        "Use of the engine's KV cache in thousandths, as it says.",
        |f, p| each_endpoint(f, p, |load| load.kv_use_permille.map(u32::from)),
    ),
    family(
        "warmpath_engine_kv_capacity_blocks",
        "gauge",
        "Blocks that the engine's KV cache has, as it says.",
        |f, p| each_endpoint(f, p, |load| load.capacity_blocks),
    ),
];

/// Once for each address, however many rules name it.
fn each_endpoint(facts: &Facts, page: &mut Page, value: fn(Load) -> Option<u32>) {
    let states = facts.table.services().flat_map(|service| &service.endpoints);
    let by_address: BTreeMap<_, _> = states.map(|state| (state.address(), state)).collect();
    for (address, state) in by_address {
        if let Some(value) = state.load().told(facts.now, LOAD_STALE).and_then(value) {
            page.sample("", &[("endpoint", &address.to_string())], value);
        }
    }
}
