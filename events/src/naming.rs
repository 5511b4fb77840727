//! What the index calls an engine's blocks: by the engine's own hash, or by a key made here from token ids. Owns
//! the translation of one rank's hashes; must never know where a block is held.
//!
//! Keys of the gateway's own are chained: the key of a block needs its parent's, so a block behind one that has
//! no key has none either. Two of the engine's blocks may come to one key (adapters of one name and two paths):
//! with either of them the key goes, which claims too little.

use crate::residency::Content;
use crate::trtllm_json::StoredBlock;
use crate::wire::{Batch, ExtraKey, Stored};
use std::collections::{HashMap, HashSet};
use warmpath_core::block::Digest;
use warmpath_core::engine::{BlockExtra, Contract, Lora, Media, Scratch};

/// One rank's names.
pub(crate) struct Naming {
    contract: Contract,
    own: Own,
}

/// Keys made here, by the engine's hash.
enum Own {
    /// The engine's hash is the key, except of blocks that don't count.
    None(HashSet<u64>),
    /// The key is all that the next block is chained to.
    Keys(HashMap<u64, u64>),
    /// The key is a part of the digest that the next block is chained to.
    Digests(HashMap<u64, Digest>),
}

impl Own {
    fn of(contract: &Contract) -> Own {
        match contract.start(&BlockExtra::default()) {
            _ if !contract.is_by_tokens() => Own::None(HashSet::new()),
            Ok(start) if start.digest.as_bytes().len() == 8 => Own::Keys(HashMap::new()),
            _ => Own::Digests(HashMap::new()),
        }
    }

    fn digest(&self, hash: u64) -> Option<Digest> {
        match self {
            Own::None(_) => None,
            Own::Keys(keys) => keys.get(&hash).map(|key| Digest::of_64(*key)),
            Own::Digests(digests) => digests.get(&hash).copied(),
        }
    }
}

impl Naming {
    pub fn new(contract: Contract) -> Naming {
        Naming { own: Own::of(&contract), contract }
    }

    /// The key of a block that was named before.
    pub fn key(&self, hash: u64) -> Option<u64> {
        match &self.own {
            Own::None(excluded) => (!excluded.contains(&hash)).then_some(hash),
            own => own.digest(hash).map(|digest| self.contract.key(&digest, None).0),
        }
    }

    /// Names a published block; `None`: it has no key.
    pub fn name(
        &mut self,
        hash: u64,
        event: &Stored,
        content: Option<&Content<'_>>,
        scratch: &mut Scratch,
    ) -> Option<u64> {
        if let Own::None(_) = self.own {
            return self.key(hash);
        }
        // A block that is copied to another medium has its name already.
        let (None, Some(content)) = (self.key(hash), content) else { return self.key(hash) };
        let (lora, salt) = (event.lora_name, event.salt.filter(|_| content.parent.is_none()));
        let parts = Parts::of(content.batch, content.extra, lora.is_some())?;
        let extra = BlockExtra {
            lora: lora.map(|name| Lora { name: content.batch.text(name), path: None }),
            media: &parts.media,
            salt: parts.salt.or(salt.map(|salt| content.batch.text(salt))),
            embeds: parts.embeds,
            ..BlockExtra::default()
        };
        let tokens = spanned(content);
        self.chain(hash, content.parent, &tokens, &extra, scratch)
    }

    /// Names a drained block: blocks with salt, media or extra ids have no key here.
    pub fn name_drained(
        &mut self,
        parent: Option<u64>,
        block: &StoredBlock,
        scratch: &mut Scratch,
    ) -> Option<u64> {
        if !block.is_plain() {
            return None;
        }
        let tokens: Vec<u32> = block.tokens.iter().map(|token| token.token_id).collect();
        self.chain(block.block_hash.0, parent, &tokens, &BlockExtra::default(), scratch)
    }

    /// A held block of another size than the rule's: it has no key.
    pub fn exclude(&mut self, hash: u64) {
        if let Own::None(excluded) = &mut self.own {
            excluded.insert(hash);
        }
    }

    /// A block is held nowhere any more.
    pub fn forget(&mut self, hash: u64) {
        match &mut self.own {
            // Almost always empty, and a set hashes before it looks.
            Own::None(excluded) if excluded.is_empty() => {}
            Own::None(excluded) => drop(excluded.remove(&hash)),
            Own::Keys(keys) => drop(keys.remove(&hash)),
            Own::Digests(digests) => drop(digests.remove(&hash)),
        }
    }

    pub fn clear(&mut self) {
        self.own = Own::of(&self.contract);
    }

    fn chain(
        &mut self,
        hash: u64,
        parent: Option<u64>,
        tokens: &[u32],
        extra: &BlockExtra<'_>,
        scratch: &mut Scratch,
    ) -> Option<u64> {
        let contract = &self.contract;
        if tokens.len() != contract.block_size().tokens() + contract.overhang() {
            return None;
        }
        let start = contract.start(extra).ok()?.digest;
        let parent = match parent {
            None => start,
            Some(parent) => self.own.digest(parent)?,
        };
        let digest = contract.digest(&parent, tokens, extra, scratch);
        let key = contract.key(&digest, None).0;
        match &mut self.own {
            Own::None(_) => {}
            Own::Keys(keys) => drop(keys.insert(hash, key)),
            Own::Digests(digests) => drop(digests.insert(hash, digest)),
        }
        Some(key)
    }
}

/// The ids that enter a block's key: its own and those behind it. Pairs are a token and the next one each.
pub(crate) fn spanned(content: &Content<'_>) -> Vec<u32> {
    if content.width == 1 {
        return [content.tokens, content.lookahead].concat();
    }
    let firsts = content.tokens.iter().step_by(content.width).copied();
    firsts.chain(content.tokens.last().copied()).collect()
}

/// What an event's extra keys mean by their place: adapter, media, salt, embeddings.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    pub media: Vec<Media<'a>>,
    pub salt: Option<&'a str>,
    pub embeds: Option<&'a [u8; 32]>,
}

impl<'a> Parts<'a> {
    pub fn of(batch: &'a Batch, keys: &'a [ExtraKey], has_lora: bool) -> Option<Parts<'a>> {
        let mut parts = Parts::default();
        for (at, key) in keys.iter().enumerate() {
            match key {
                ExtraKey::Text(_) if at == 0 && has_lora => {}
                ExtraKey::Text(text) if parts.salt.is_none() => parts.salt = Some(batch.text(*text)),
                ExtraKey::Media { id, offset } => {
                    parts.media.push(Media { identifier: batch.text(*id), offset: *offset, length: 0 });
                }
                ExtraKey::Bytes(bytes) => parts.embeds = Some(batch.bytes(*bytes).try_into().ok()?),
                ExtraKey::Text(_) | ExtraKey::Other => return None,
            }
        }
        Some(parts)
    }
}
