//! TensorRT-LLM. The gateway names its blocks by tokens (`blockhash_trtllm`, SGLang's rule over 32 tokens); the
//! engine's own names, which events carry, are only translated. Owns both, and the engine's hashes as facts to
//! check a stream by: `v1_block_key` and `v2_sha256` as on the public main branch in 2026.

mod attest;
mod launch;
mod pairing;

use super::answers::Answers;
use super::Algo;
use super::contract::{ContractFault, Terms};
use super::launch::LaunchFlags;
use super::preimage::Preimage;
use super::telemetry::{self, Telemetry};
use crate::block::{BlockSize, Digest};

/// What it answers.
pub(super) const ANSWERS: Answers = Answers {
    name: "trtllm",
    algorithms: |_| ALGORITHMS,
    rule_default: Some(Algo::BlockhashTrtllm),
    block_size: BLOCK,
    // Events are drained over HTTP, where requests go.
    event_port: false,
    // The context server hands over by an opaque state.
    bootstrap_port: false,
    // Blocks are given up leaves first, so that what lies before a block is there while the block is.
    prefix_closed: true,
    pairing: Some(pairing::PAIRING),
    // Iteration statistics, with `enable_iter_perf_stats`: JSON, no Prometheus text. Each is handed out once, so that a
    // second reader of the page sees the others.
    telemetry: Some(Telemetry { path: "/metrics", read: telemetry::iterations, lookups: None }),
    questions: Some(attest::QUESTIONS),
    launch: Some(launch::line),
    probe_folder: "trtllm",
    // Tokens of a block are an option of `kv_cache_config`, in a file.
    flags: LaunchFlags { max_len: Some("--max-seq-len"), ..LaunchFlags::NONE },
    check,
    recipe: |terms| Ok(super::sglang::recipe(terms)),
    ..Answers::SILENT
};

const ALGORITHMS: &[Algo] = &[Algo::BlockhashTrtllm, Algo::Tokens];
/// `tokens_per_block` of the contract, the engine's default.
const BLOCK: BlockSize = BlockSize::THIRTY_TWO;

/// Golden-ratio increment and multipliers of the engine's mixing.
const GOLDEN: u32 = 0x9e37_79b9;
const MIX32: u32 = 0x045d_9f3b;
const MIX64_A: u64 = 0xbf58_476d_1ce4_e5b9;
const MIX64_B: u64 = 0x94d0_49bb_1331_11eb;

fn check(terms: &Terms<'_>) -> Result<(), ContractFault> {
    if terms.algo == Algo::BlockhashTrtllm && terms.block_size != BLOCK {
        let (tokens, only) = (terms.block_size.tokens(), BLOCK.tokens());
        return Err(ContractFault::BlockSize { tokens, least: only, most: only });
    }
    if terms.lookahead > 0 || terms.bigram || terms.dynamo {
        let name = "look-ahead hashing, pairs of tokens or the dynamo format";
        return Err(ContractFault::Feature { name, needs: "vLLM or SGLang" });
    }
    Ok(())
}

/// What `v1_block_key` names a block by.
#[derive(Clone, Copy, Debug, Default)]
pub struct V1Block<'a> {
    /// The parent's key, 0 for a first block. The engine can't tell a parent whose key is 0 from none.
    pub parent: u64,
    /// Token ids.
    pub tokens: &'a [u32],
    /// One more id for each token (prompt tuning), or none at all.
    pub extra_ids: Option<&'a [u64]>,
    /// The adapter's task id, in every block.
    pub lora: Option<u64>,
    /// [`salt_id`] of the salt; enters only where there is no parent.
    pub salt: Option<u64>,
    /// Digest and first position of each media item that the block overlaps.
    pub media: &'a [([u8; 32], u64)],
}

/// The engine's default name for a block.
pub fn v1_block_key(block: &V1Block<'_>) -> u64 {
    let mut key = block.tokens.len() as u64 ^ block.parent.wrapping_mul(MIX64_A);
    if let (0, Some(salt)) = (block.parent, block.salt) {
        key = mix64(salt, key);
    }
    for (i, &token) in block.tokens.iter().enumerate() {
        key = mix32(token, key);
        if let Some(extra) = block.extra_ids {
            key = mix64(extra.get(i).copied().unwrap_or(0), key);
        }
    }
    if let Some(lora) = block.lora {
        key = mix64(lora, key);
    }
    for (digest, position) in block.media {
        key = digest.as_chunks::<4>().0.iter().fold(key, |key, word| mix32(u32::from_le_bytes(*word), key));
        key = mix64(*position, key);
    }
    key
}

/// How the engine shortens a salt: the first 8 bytes, little-endian, of the salt's BLAKE3 digest.
pub fn salt_id(blake3: &[u8; 32]) -> u64 {
    blake3.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// The parent of a first block under `v2_sha256`.
pub fn v2_root(lora: Option<u64>, salt: Option<u64>) -> Digest {
    let mut out = Preimage::default();
    out.byte(u8::from(lora.is_some()) | u8::from(salt.is_some()) << 1);
    for id in [lora, salt].into_iter().flatten() {
        out.put(&id.to_le_bytes());
    }
    out.sha256()
}

/// The name of a block under `v2_sha256`; its first 8 bytes ([`Digest::head`]) are `v2_sha256_64`.
pub fn v2_block(parent: &Digest, tokens: &[u32]) -> Digest {
    let mut out = Preimage::default();
    out.digest(parent);
    tokens.iter().for_each(|token| out.put(&token.to_le_bytes()));
    out.sha256()
}

/// The increment wraps at 32 bits, before the rest goes on in 64.
fn mix32(value: u32, seed: u64) -> u64 {
    let value = ((value >> 16) ^ value).wrapping_mul(MIX32);
    let value = ((value >> 16) ^ value).wrapping_mul(MIX32);
    let value = ((value >> 16) ^ value).wrapping_add(GOLDEN);
    stir(u64::from(value), seed)
}

fn mix64(value: u64, seed: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(MIX64_A);
    let value = (value ^ (value >> 27)).wrapping_mul(MIX64_B);
    stir((value ^ (value >> 31)).wrapping_add(GOLDEN.into()), seed)
}

fn stir(value: u64, seed: u64) -> u64 {
    seed ^ value.wrapping_add(seed << 6).wrapping_add(seed >> 2)
}
