//! TensorRT-LLM's `v1_block_key` (public repository, 2026): a 64-bit mix of the parent's key, the
//! tokens and the adapter; a salt enters the first block only. Must never key media.

use crate::engine::blocks::Space;

/// The keys of one prompt's blocks.
#[derive(Debug, Clone)]
pub struct Chain {
    parent: u64,
    lora: Option<u64>,
    salt: Option<u64>,
}

impl Chain {
    /// A chain in a name space.
    pub fn new(space: &Space) -> Self {
        Chain {
            parent: 0,
            lora: space.lora.as_ref().map(|lora| lora.id),
            salt: space.salt.as_deref().map(salt_id),
        }
    }

    /// The next block's key. A block whose key is 0 would look like no parent, there as here.
    pub fn next(&mut self, tokens: &[u32]) -> u64 {
        let mut seed = tokens.len() as u64 ^ self.parent.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        if let Some(salt) = self.salt.filter(|_| self.parent == 0) {
            seed = mix64(salt, seed);
        }
        seed = tokens.iter().fold(seed, |seed, &token| mix32(token, seed));
        self.parent = self.lora.map_or(seed, |lora| mix64(lora, seed));
        self.parent
    }
}

/// A salt's number: the first eight bytes of its BLAKE3, little-endian.
pub fn salt_id(salt: &str) -> u64 {
    let hash = blake3::hash(salt.as_bytes());
    hash.as_bytes()[..8].iter().rev().fold(0, |id, &byte| id << 8 | u64::from(byte))
}

fn mix32(value: u32, seed: u64) -> u64 {
    let mut v = value;
    v = ((v >> 16) ^ v).wrapping_mul(0x045d_9f3b);
    v = ((v >> 16) ^ v).wrapping_mul(0x045d_9f3b);
    v = (v >> 16) ^ v;
    combine(u64::from(v.wrapping_add(0x9e37_79b9)), seed)
}

fn mix64(value: u64, seed: u64) -> u64 {
    let mut v = value;
    v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^= v >> 31;
    combine(v.wrapping_add(0x9e37_79b9), seed)
}

fn combine(value: u64, seed: u64) -> u64 {
    seed ^ value.wrapping_add(seed << 6).wrapping_add(seed >> 2)
}
