//! What TensorRT-LLM is asked before it is routed to by blocks that a profile vouches for (public main branch, 2026). Owns
//! its paths and members.

use crate::attest::{Reason, Told};
use crate::engine::attest::{Page, Questions, number, object, read_models, read_version, text};

pub(super) const QUESTIONS: Questions = Questions {
    pages: &[
        Page { path: "/server_info", is_vital: true, read: read_info },
        Page { path: "/version", is_vital: true, read: read_version },
        Page { path: "/v1/models", is_vital: true, read: read_models },
    ],
    // `/_internal/tokenize` knows no chat and no special tokens.
    tokenize: None,
    contract: |_| "trtllm-kv-http-v1",
    tells_hash: false,
    lacks,
};

/// Versions that don't describe their events are taken at a rule's word, but not at a profile's.
fn lacks(told: &Told) -> Option<Reason> {
    let is_told = told.algorithm.as_deref() == Some("v1_block_key") && told.block_size.is_some();
    (!is_told).then_some(Reason::IdentityMismatch)
}

fn read_info(body: &[u8], told: &mut Told) -> bool {
    let Some(info) = object(body) else { return false };
    told.algorithm = text(&info["kv_cache_hash_algo"]);
    told.block_size = number(&info["tokens_per_block"]);
    true
}
