//! Where TensorRT-LLM says what of itself (public main branch, 2026). Owns its paths and members.

use super::{Probe, always, json, number, read_models, read_version, text};
use crate::facts::Facts;

/// Gives each event away once.
pub(super) const EVENTS: &str = "/kv_cache_events";

/// The engine's hash whose events tell all that keys are made from; other hashes leave tokens out.
pub(super) const HASH: &str = "v1_block_key";

pub(super) const PROBES: &[Probe] = &[
    Probe { path: "/server_info", is_needed: always, read: read_info },
    Probe { path: "/version", is_needed: always, read: read_version },
    Probe { path: "/v1/models", is_needed: always, read: read_models },
];

/// Old versions have neither member and are taken at the rule's word.
fn read_info(body: &[u8], facts: &mut Facts) {
    let info = json(body);
    facts.algorithm = text(&info["kv_cache_hash_algo"]);
    facts.block_size = number(&info["tokens_per_block"]);
}
