//! TensorRT-LLM's `/kv_cache_events` bodies to typed events. Owns the JSON shapes of all versions; must never
//! pass a hash through a float, nor judge an event's order.
//!
//! Early versions lack `window_size` and `attention_dp_rank`; `mm_keys`, `cache_salt` and `hash_algo` (beside
//! or inside `data`) exist in newer ones only. Members that are not known are passed over.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A name of a block: exact integers of either sign, bit for bit, or the first 8 bytes, big-endian, of a
/// hexadecimal digest (`v2_sha256`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hash(pub u64);

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainEvent {
    /// Consecutive for each attention rank.
    pub id: u64,
    /// `attention_dp_rank`; 0 if absent.
    pub rank: u32,
    /// Tokens of the attention window that it is about; 0 if absent.
    pub window: u32,
    /// `hash_algo`, if the event names one.
    pub algorithm: Option<String>,
    /// What happened.
    pub data: DrainData,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainData {
    /// The cache came to be, empty.
    Created {
        /// Blocks of each level, the GPU first.
        num_blocks_per_cache_level: Vec<u64>,
    },
    /// Blocks are now held, in the order of their chain.
    Stored {
        /// The block before the first.
        parent_hash: Option<Hash>,
        /// The blocks.
        blocks: Vec<StoredBlock>,
    },
    /// Blocks are no longer held.
    Removed {
        /// Which.
        block_hashes: Vec<Hash>,
    },
    /// A block moved, or its priority changed.
    Updated {
        /// Which.
        block_hash: Hash,
        /// Its level before and after; absent if only the priority changed.
        cache_level: Option<Moved>,
    },
    /// A kind that is not known here.
    Unknown,
}

/// One block of a `stored` event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredBlock {
    /// Its name.
    pub block_hash: Hash,
    /// Its tokens; empty where the engine does not tell (salted or LoRA blocks of KV manager v2).
    #[serde(default)]
    pub tokens: Vec<UniqueToken>,
    /// 0 is the GPU, 1 the host.
    #[serde(default)]
    pub cache_level: u32,
    /// Media in it.
    #[serde(default)]
    pub mm_keys: Option<Vec<MediaKey>>,
    /// The request's salt.
    #[serde(default)]
    pub cache_salt: Option<String>,
}

impl StoredBlock {
    /// Whether its tokens alone make its name: no media, salt or extra ids.
    pub fn is_plain(&self) -> bool {
        let no_media = self.mm_keys.as_ref().is_none_or(Vec::is_empty);
        no_media && self.cache_salt.is_none() && self.tokens.iter().all(|token| token.token_extra_id == 0)
    }
}

/// A token and what tells it from others of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct UniqueToken {
    /// Its id.
    pub token_id: u32,
    /// 0 for plain text.
    #[serde(default)]
    pub token_extra_id: u64,
}

/// A media item in a block.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MediaKey {
    /// A hexadecimal digest or an identifier.
    pub hash: String,
    /// Where it starts.
    pub start_offset: i64,
}

/// A block's cache level before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Moved {
    /// Before.
    pub old_value: u32,
    /// After.
    pub new_value: u32,
}

/// A body that is not a list of events; the engine has given its events away, so the state must be cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// Reads one answer of `/kv_cache_events`.
pub fn parse(body: &[u8]) -> Result<Vec<DrainEvent>, Malformed> {
    let events: Vec<Raw> = serde_json::from_slice(body).map_err(|error| Malformed(error.to_string()))?;
    events.into_iter().map(DrainEvent::try_from).collect()
}

#[derive(Deserialize)]
struct Raw {
    event_id: u64,
    attention_dp_rank: Option<u32>,
    window_size: Option<u32>,
    hash_algo: Option<String>,
    data: RawData,
}

/// `data` of every kind in one: read directly, without the tree that a tagged enum needs, which would also
/// put integers at the mercy of features that other crates turn on.
#[derive(Deserialize)]
struct RawData {
    r#type: String,
    hash_algo: Option<String>,
    num_blocks_per_cache_level: Option<Vec<u64>>,
    parent_hash: Option<Hash>,
    blocks: Option<Vec<StoredBlock>>,
    block_hashes: Option<Vec<Hash>>,
    block_hash: Option<Hash>,
    cache_level: Option<Moved>,
}

impl TryFrom<Raw> for DrainEvent {
    type Error = Malformed;

    fn try_from(raw: Raw) -> Result<Self, Malformed> {
        let algorithm = raw.hash_algo.or_else(|| raw.data.hash_algo.clone());
        let data = DrainData::try_from(raw.data)?;
        let (rank, window) = (raw.attention_dp_rank.unwrap_or(0), raw.window_size.unwrap_or(0));
        Ok(DrainEvent { id: raw.event_id, rank, window, algorithm, data })
    }
}

impl TryFrom<RawData> for DrainData {
    type Error = Malformed;

    fn try_from(raw: RawData) -> Result<Self, Malformed> {
        let lacks = |member: &str| Malformed(format!("{} without {member}", raw.r#type));
        Ok(match raw.r#type.as_str() {
            "created" => DrainData::Created {
                num_blocks_per_cache_level: raw.num_blocks_per_cache_level.unwrap_or_default(),
            },
            "stored" => DrainData::Stored {
                parent_hash: raw.parent_hash,
                blocks: raw.blocks.ok_or_else(|| lacks("blocks"))?,
            },
            "removed" => {
                DrainData::Removed { block_hashes: raw.block_hashes.ok_or_else(|| lacks("block_hashes"))? }
            }
            "updated" => DrainData::Updated {
                block_hash: raw.block_hash.ok_or_else(|| lacks("block_hash"))?,
                cache_level: raw.cache_level,
            },
            _ => DrainData::Unknown,
        })
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = Hash;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a 64-bit integer or a hexadecimal digest")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Hash, E> {
        Ok(Hash(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Hash, E> {
        Ok(Hash(value.cast_unsigned()))
    }

    fn visit_str<E: Error>(self, digest: &str) -> Result<Hash, E> {
        let is_hex = digest.len() >= 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let head = digest.get(..16).filter(|_| is_hex).ok_or_else(|| E::custom("not a digest"))?;
        u64::from_str_radix(head, 16).map(Hash).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests;
