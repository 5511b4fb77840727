//! vLLM's KV events in MessagePack by version (0.23 to 0.33, compared with captured frames). Of one
//! full-attention group, as a plain model has. Must never decide what happened.

use super::super::contract::Tongue;
use crate::engine::blocks::{Block, CacheEvent, Digest, Medium, Run};
use crate::engine::publish::msgpack::{Member, Writer, event, value};

/// A batch: `[time, events, rank]`.
pub fn batch(tongue: &Tongue, time: f64, rank: usize, events: &[CacheEvent]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(3).float(time).array(events.len());
    events.iter().for_each(|event| one(&mut writer, tongue, event));
    writer.uint(rank as u64);
    writer.finish()
}

fn one(writer: &mut Writer, tongue: &Tongue, what: &CacheEvent) {
    let as_map = tongue.version.at_least(0, 24, 0);
    match what {
        CacheEvent::Stored { blocks, medium, session } => {
            event(writer, "BlockStored", &stored(tongue, blocks, *medium, session.as_deref()), as_map);
        }
        CacheEvent::Removed { blocks, medium } => {
            event(writer, "BlockRemoved", &removed(tongue, blocks, *medium), as_map);
        }
        CacheEvent::Moved { block, to } => {
            let blocks = vec![block.clone()];
            event(writer, "BlockStored", &stored(tongue, &blocks, *to, None), as_map);
        }
        CacheEvent::Cleared => event(writer, "AllBlocksCleared", &[], as_map),
    }
}

/// Members in the order of the type; those that a version does not know are not listed. The host's blocks
/// are told without parent and tokens up to 0.25, in full with their locality from then on (public text
/// of the offloading connector; the release of the change was not checked).
fn stored(tongue: &Tongue, blocks: &Run, medium: Medium, session: Option<&str>) -> Vec<Member> {
    let version = &tongue.version;
    let full = medium == Medium::Gpu || version.at_least(0, 26, 0);
    let first = blocks.first().filter(|_| full);
    let lora = first.and_then(|block| block.space.lora.as_ref());
    let tokens: Vec<u32> = match full {
        true => blocks.iter().flat_map(|block| block.tokens.iter().copied()).collect(),
        false => Vec::new(),
    };
    let mut members = vec![
        ("block_hashes", Some(hashes(tongue, blocks))),
        (
            "parent_block_hash",
            Some(value(|w| match first.and_then(|block| block.parent) {
                Some(parent) => name(w, tongue, &parent),
                None => _ = w.nil(),
            })),
        ),
        (
            "token_ids",
            Some(value(|w| {
                w.array(tokens.len());
                tokens.iter().for_each(|&token| _ = w.uint(u64::from(token)));
            })),
        ),
        ("block_size", Some(value(|w| _ = w.uint(tongue.block_size as u64)))),
        (
            "lora_id",
            Some(value(|w| match lora {
                Some(lora) => _ = w.uint(lora.id),
                None => _ = w.nil(),
            })),
        ),
        ("medium", Some(medium_name(medium))),
        ("lora_name", Some(value(|w| _ = w.maybe_text(lora.map(|lora| lora.name.as_str()))))),
        (
            "extra_keys",
            full.then(|| {
                value(|w| {
                    w.array(blocks.len());
                    blocks.iter().for_each(|block| extra_keys(w, block));
                })
            }),
        ),
        ("group_idx", full.then(|| value(|w| _ = w.uint(0)))),
        ("kv_cache_spec_kind", full.then(|| value(|w| _ = w.text("full_attention")))),
        ("kv_cache_spec_sliding_window", None),
    ];
    if version.at_least(0, 26, 0) {
        members.push(("locality", locality(medium)));
    }
    if version.at_least(0, 29, 0) {
        members.push(("ownership", None));
    }
    if version.at_least(0, 30, 0) {
        members.push(("session_id", session.map(|session| value(|w| _ = w.text(session)))));
    }
    if version.at_least(0, 33, 0) {
        members.push(("lookahead_token_ids", None));
    }
    members
}

fn removed(tongue: &Tongue, blocks: &Run, medium: Medium) -> Vec<Member> {
    let full = medium == Medium::Gpu || tongue.version.at_least(0, 26, 0);
    let mut members = vec![
        ("block_hashes", Some(hashes(tongue, blocks))),
        ("medium", Some(medium_name(medium))),
        ("group_idx", full.then(|| value(|w| _ = w.uint(0)))),
    ];
    if tongue.version.at_least(0, 26, 0) {
        members.push(("locality", locality(medium)));
    }
    if tongue.version.at_least(0, 29, 0) {
        members.push(("ownership", None));
    }
    members
}

fn hashes(tongue: &Tongue, blocks: &Run) -> Writer {
    value(|w| {
        w.array(blocks.len());
        blocks.iter().for_each(|block| name(w, tongue, &block.digest));
    })
}

/// The last eight bytes as a number, or all of them (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
fn name(writer: &mut Writer, tongue: &Tongue, digest: &Digest) {
    match tongue.hash_bytes {
        true => writer.bytes(digest.bytes()),
        false => writer.uint(digest.last8()),
    };
}

fn medium_name(medium: Medium) -> Writer {
    value(|w| _ = w.text(if medium == Medium::Gpu { "GPU" } else { "CPU" }))
}

fn locality(medium: Medium) -> Option<Writer> {
    (medium == Medium::Host).then(|| value(|w| _ = w.text("LOCAL")))
}

/// Untagged in every version: the adapter's name, then the first block's salt; nil without any.
fn extra_keys(writer: &mut Writer, block: &Block) {
    let lora = block.space.lora.as_ref().map(|lora| lora.name.as_str());
    let salt = block.space.salt.as_deref().filter(|_| block.depth == 0);
    let keys: Vec<&str> = lora.into_iter().chain(salt).collect();
    if keys.is_empty() {
        writer.nil();
        return;
    }
    writer.array(keys.len());
    keys.iter().for_each(|key| _ = writer.text(key));
}
