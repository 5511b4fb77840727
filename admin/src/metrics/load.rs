//! The families of what engines tell of their load. Owns their table; an endpoint whose sample is stale has none.

use super::Facts;
use super::family::{Endpoint, Family, Listed, family};
use warmpath_core::engine::telemetry::Load;
use warmpath_core::shared::{EndpointState, LOAD_STALE};

/// All of them.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_worker_scrape_total",
        "Questions to engines for their load, by what came of them.",
        &Listed(&["result"], |f, p| {
            f.scrapes.iter().for_each(|(scrape, count)| p.sample(&[&scrape.word()], count));
        }),
    ),
    family(
        "warmpath_engine_running_requests",
        "Requests in execution, as the engine says.",
        &Endpoint(|f, state| Some(load(f, state)?.running.into())),
    ),
    family(
        "warmpath_engine_waiting_requests",
        "Requests in the engine's own queue, as it says.",
        &Endpoint(|f, state| Some(load(f, state)?.waiting.into())),
    ),
    family(
        "warmpath_engine_kv_use_permille",
        "Use of the engine's KV cache in thousandths, as it says.",
        &Endpoint(|f, state| Some(load(f, state)?.kv_use_permille?.into())),
    ),
    family(
        "warmpath_engine_kv_capacity_blocks",
        "Blocks that the engine's KV cache has, as it says.",
        &Endpoint(|f, state| Some(load(f, state)?.capacity_blocks?.into())),
    ),
];

fn load(facts: &Facts, state: &EndpointState) -> Option<Load> {
    state.load().told(facts.now, LOAD_STALE)
}
