//! TensorRT-LLM's launch settings and its own block hashes (public main branch, 2026). Owns them.

use super::{Guess, Launch};
use warmpath_core::engine::trtllm::{V1Block, v1_block_key, v2_block, v2_root};

const V1: &str = "v1_block_key";
const V2: &str = "v2_sha256_64";

pub(super) const LAUNCH: Launch = Launch {
    oldest: None,
    model: |name| format!("--served_model_name {name}"),
    block_size: |tokens| format!("tokens_per_block: {tokens} in kv_cache_config"),
    algorithm: |_| format!("the hash {V1}, its default"),
    root: |_| String::new(),
    events: |_| "enable_block_reuse: true and event_buffer_max_size: 65536 in kv_cache_config".into(),
    replay: String::new,
    usage: "",
    rank: |_| None,
    tells_salt: false,
    guesses: |_| [V1, V2].map(|own| Guess { algo: None, seed: None, dynamo: false, own }).to_vec(),
};

/// The engine's names of a plain prompt's blocks.
pub(super) fn own_keys(own: &str, blocks: &[&[u32]]) -> Option<Vec<u64>> {
    match own {
        V1 => {
            let next = |parent: &mut u64, tokens: &&[u32]| {
                *parent = v1_block_key(&V1Block { parent: *parent, tokens, ..V1Block::default() });
                Some(*parent)
            };
            Some(blocks.iter().scan(0, next).collect())
        }
        V2 => {
            let mut parent = v2_root(None, None);
            let mut next = |tokens: &&[u32]| {
                parent = v2_block(&parent, tokens);
                parent.head()
            };
            Some(blocks.iter().map(&mut next).collect())
        }
        _ => None,
    }
}
