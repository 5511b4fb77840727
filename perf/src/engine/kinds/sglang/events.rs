//! SGLang's KV events in MessagePack (0.5.18 and 0.5.19: arrays; 0.5.23: maps; compared with captured
//! frames), in the format `default`. Must never decide what happened.

use super::super::contract::Tongue;
use crate::engine::blocks::{CacheEvent, Digest, Medium, Run};
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
    let as_map = tongue.version.at_least(0, 5, 23);
    match what {
        CacheEvent::Stored { blocks, medium, .. } => stored(writer, tongue, blocks, *medium, as_map),
        CacheEvent::Moved { block, to } => stored(writer, tongue, &vec![block.clone()], *to, as_map),
        CacheEvent::Removed { blocks, medium } => {
            let members = [("block_hashes", Some(hashes(blocks))), ("medium", Some(medium_name(*medium)))];
            event(writer, "BlockRemoved", &members, as_map);
        }
        CacheEvent::Cleared => event(writer, "AllBlocksCleared", &[], as_map),
    }
}

fn stored(writer: &mut Writer, tongue: &Tongue, blocks: &Run, medium: Medium, as_map: bool) {
    let Some(first) = blocks.first() else { return };
    let tokens: Vec<u32> = blocks.iter().flat_map(|block| block.tokens.iter().copied()).collect();
    let mut members: Vec<Member> = vec![
        ("block_hashes", Some(hashes(blocks))),
        (
            "parent_block_hash",
            Some(value(|w| match &first.parent {
                Some(parent) => name(w, parent),
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
        ("lora_id", Some(value(|w| _ = w.nil()))),
        ("medium", Some(medium_name(medium))),
    ];
    let salt = first.space.salt.as_deref();
    if as_map {
        let lora = first.space.lora.as_ref();
        members.push(("cache_salt", salt.map(|salt| value(|w| _ = w.text(salt)))));
        members.push(("lora_name", lora.map(|lora| value(|w| _ = w.text(&lora.name)))));
    } else if let Some(salt) = salt {
        let options = value(|w| _ = w.map(1, false).text("cache_salt").text(salt));
        members.push(("options", Some(options)));
    }
    event(writer, "BlockStored", &members, as_map);
}

fn hashes(blocks: &Run) -> Writer {
    value(|w| {
        w.array(blocks.len());
        blocks.iter().for_each(|block| name(w, &block.digest));
    })
}

/// The first eight bytes as a signed number.
fn name(writer: &mut Writer, digest: &Digest) {
    writer.int(digest.first8().cast_signed());
}

fn medium_name(medium: Medium) -> Writer {
    value(|w| _ = w.text(if medium == Medium::Gpu { "GPU" } else { "CPU_PINNED" }))
}
