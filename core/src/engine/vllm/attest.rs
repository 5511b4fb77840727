//! What vLLM is asked before it is routed to by blocks that a profile vouches for (0.32, captured). Owns its paths, its
//! metrics' names and labels.

use crate::attest::{Reason, Told};
use crate::engine::attest::{Page, Questions, number, object, read_models, read_version, text};
use crate::engine::Version;
use crate::engine::telemetry::samples;

pub(super) const QUESTIONS: Questions = Questions {
    pages: &[
        Page { path: "/version", is_vital: true, read: read_version },
        Page { path: "/v1/models", is_vital: true, read: read_models },
        Page { path: "/metrics", is_vital: true, read: read_metrics },
        // From 0.31 on.
        Page { path: "/kv_event_sources", is_vital: false, read: read_sources },
        // In development mode alone.
        Page { path: "/server_info?config_format=json", is_vital: false, read: read_info },
    ],
    tokenize: Some("/tokenize"),
    // Arrays until 0.23, maps from 0.24 on.
    contract: |version| match version {
        Some(version) if version < Version::new(0, 24, 0) => "vllm-kv-array-v1",
        _ => "vllm-kv-map-v2",
    },
    tells_hash: true,
    lacks,
};

/// A server without this line keeps no cache of prefixes that its metrics know of.
fn lacks(told: &Told) -> Option<Reason> {
    let is_told = told.block_size.is_some() && told.algorithm.is_some();
    (!is_told).then_some(Reason::ProbeSchemaMismatch)
}

/// Hybrid models hash by a unit that may be finer than a group's blocks.
fn read_metrics(body: &[u8], told: &mut Told) -> bool {
    let mut is_found = false;
    for sample in samples(body) {
        match sample.name {
            // Of the server's process, which ends with its engines.
            "process_start_time_seconds" => told.started = Some(sample.value.to_bits()),
            "vllm:cache_config_info" => {
                let number = |name| sample.label(name).and_then(|value| value.parse().ok());
                let unit = number("prefix_match_unit").or_else(|| number("hash_block_size"));
                told.block_size = unit.or_else(|| number("block_size"));
                told.algorithm = sample.label("prefix_caching_hash_algo").map(str::to_owned);
                is_found = true;
            }
            _ => {}
        }
    }
    is_found
}

/// A map from rank to publisher, `{}` where nothing is published.
fn read_sources(body: &[u8], told: &mut Told) -> bool {
    let Some(answer) = object(body) else { return false };
    let first = &answer["0"];
    let is_on = first["publisher"] == "zmq" && first["enable_kv_cache_events"] != false;
    told.publishes = Some(is_on);
    if is_on {
        // Where, the event core reads for itself: several engines of one machine have ports that no rule can say.
        told.ranks = answer.as_object().and_then(|ranks| u32::try_from(ranks.len()).ok());
    }
    true
}

fn read_info(body: &[u8], told: &mut Told) -> bool {
    let Some(answer) = object(body) else { return false };
    let config = &answer["vllm_config"];
    told.revision = text(&config["model_config"]["revision"]);
    let dtype = text(&config["model_config"]["dtype"]);
    told.dtype = dtype.map(|own| own.trim_start_matches("torch.").to_owned());
    told.ranks = told.ranks.or_else(|| number(&config["parallel_config"]["data_parallel_size"]));
    true
}
