//! Where vLLM says what of itself (read at 0.32). Owns its paths, its metrics' names and labels.

use super::{Probe, always, read_models, read_version};
use crate::facts::Facts;
use crate::sources;

pub(super) const PROBES: &[Probe] = &[
    Probe { path: "/version", is_needed: always, read: read_version },
    Probe { path: "/v1/models", is_needed: always, read: read_models },
    // From 0.31 on.
    Probe { path: "/kv_event_sources", is_needed: always, read: read_publishers },
    Probe { path: "/metrics", is_needed: always, read: read_metrics },
];

/// Its labels tell how the cache is cut; a line for each engine of a data-parallel group.
const CACHE: &str = "vllm:cache_config_info";

/// Of the server's process, which ends with its engines.
const START: &str = "process_start_time_seconds ";

fn read_publishers(body: &[u8], facts: &mut Facts) {
    facts.publishers = Some(sources::vllm(body));
}

fn read_metrics(body: &[u8], facts: &mut Facts) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    for line in text.lines() {
        if let Some(seconds) = line.strip_prefix(START) {
            facts.identity = seconds.trim().parse().ok().map(f64::to_bits);
        } else if let Some(labels) = line.strip_prefix(CACHE).and_then(|rest| rest.strip_prefix('{')) {
            read_cache(labels, facts);
        }
    }
}

/// Hybrid models hash by a unit that may be finer than a group's blocks.
fn read_cache(labels: &str, facts: &mut Facts) {
    let number = |name| label(labels, name).and_then(|value| value.parse::<u32>().ok());
    let unit = number("prefix_match_unit").or_else(|| number("hash_block_size"));
    facts.block_size = unit.or_else(|| number("block_size"));
    facts.algorithm = label(labels, "prefix_caching_hash_algo").map(str::to_owned);
    let blocks = number("num_gpu_blocks");
    // Ranks may differ; the largest is the one that no rank passes.
    facts.capacity = facts.capacity.max(blocks);
}

/// The value of one label. Values of these have no quotes in them.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (own, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        if own.trim_start_matches(',').trim() == name {
            return Some(value);
        }
        rest = after;
    }
}
