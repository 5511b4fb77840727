//! TensorRT-LLM's events in JSON, as `POST /kv_cache_events` drains them (public repository, 2026; the
//! members of a version with hash_algo and cache_salt). Must never number an event.

use serde_json::{Value, json};

use super::super::contract::Tongue;
use crate::engine::blocks::{Block, CacheEvent, Medium};

/// Sliding window of the only attention group: the whole context.
const WINDOW: u64 = super::super::MAX_MODEL_LEN;
/// The priority of a block that no request changed.
const PRIORITY: u64 = 35;

/// What stands in front of every stream.
pub fn created(blocks: usize, host_blocks: usize) -> Value {
    json!({"type": "created", "num_blocks_per_cache_level": [blocks, host_blocks]})
}

/// An event's `data`; a clear is no event of this engine.
pub fn data(what: &CacheEvent) -> Option<Value> {
    match what {
        CacheEvent::Stored { blocks, .. } => {
            let parent = blocks.first().and_then(|block| block.parent).map(|parent| parent.first8());
            let blocks: Vec<Value> = blocks.iter().map(|block| stored_block(block)).collect();
            Some(json!({"type": "stored", "parent_hash": parent, "blocks": blocks}))
        }
        CacheEvent::Removed { blocks, .. } => {
            let hashes: Vec<u64> = blocks.iter().map(|block| block.digest.first8()).collect();
            Some(json!({"type": "removed", "block_hashes": hashes}))
        }
        CacheEvent::Moved { block, to } => {
            let level = |host| u8::from((*to == Medium::Host) == host);
            let levels = json!({"type": "event_diff", "new_value": level(true), "old_value": level(false)});
            Some(json!({
                "type": "updated", "block_hash": block.digest.first8(), "cache_level": levels, "priority": null,
            }))
        }
        CacheEvent::Cleared => None,
    }
}

fn stored_block(block: &Block) -> Value {
    let token = |id: &u32| json!({"type": "unique_token", "token_id": id, "token_extra_id": 0});
    json!({
        "type": "stored_block", "block_hash": block.digest.first8(),
        "tokens": block.tokens.iter().map(token).collect::<Vec<_>>(), "cache_level": 0,
        "priority": PRIORITY, "mm_keys": [], "cache_salt": block.space.salt,
    })
}

/// An event with its number. The rank is told only where there are several.
pub fn numbered(tongue: &Tongue, number: u64, data: Value, rank: usize) -> Value {
    let mut event = json!({"event_id": number, "data": data, "window_size": WINDOW});
    if tongue.ranks > 1 {
        event["attention_dp_rank"] = json!(rank);
    }
    event["hash_algo"] = json!("v1_block_key");
    event
}
