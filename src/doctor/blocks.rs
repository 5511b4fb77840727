//! The blocks that an engine told of while it was looked at, and the chain of them that belongs to given tokens.
//! Owns that search; must never ask an engine nor name a block itself.

use warmpath_events::decode::decode;
use warmpath_events::msgpack::{Item, Reader};
use warmpath_events::residency::{Change, Removal, Residency};
use warmpath_events::trtllm_json::{DrainData, DrainEvent};
use warmpath_events::wire::{Batch, ExtraKey, HashBytes};

/// One block, as its event tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The rank that the batch names, else the socket's.
    pub rank: u32,
    /// The engine's name of it.
    pub hash: u64,
    /// The name of the block before it.
    pub parent: Option<u64>,
    /// The tokens of its units: the first of each pair where they are pairs.
    pub tokens: Vec<u32>,
    /// Whether its units are pairs of tokens.
    pub is_paired: bool,
    /// Tokens behind it that its name covers.
    pub lookahead: usize,
    /// Texts that enter its name beside tokens: adapter, salt.
    pub texts: Vec<String>,
}

/// How hashes stand in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashForm {
    /// Integers.
    Int,
    /// Byte strings of this length.
    Bytes(usize),
}

/// All that was heard.
#[derive(Default)]
pub struct Heard {
    blocks: Vec<Block>,
    batch: Batch,
    /// How hashes stand there, from the first that came.
    pub form: Option<HashForm>,
    /// Stores that name no tokens, or not as many as their blocks have.
    pub unkept: u64,
    /// Why a payload could not be read.
    pub reject: Option<String>,
}

impl Heard {
    /// Takes in a published payload of a rank.
    pub fn take(&mut self, rank: u32, payload: &[u8], naming: HashBytes) {
        if let Err(reject) = decode(payload, naming, &mut self.batch) {
            self.reject = Some(format!("{reject:?}"));
            return;
        }
        self.form = self.form.or_else(|| form(payload));
        let Heard { blocks, batch, unkept, .. } = self;
        let rank = batch.rank.unwrap_or(rank);
        // Each batch for itself: what is held already would not be told again.
        Residency::new(Removal::One, usize::MAX).apply(batch, &mut |change| {
            let Change::Held { hash, content, event, .. } = change else { return };
            let Some(content) = content else {
                *unkept += 1;
                return;
            };
            let adapter = event.lora_name.map(|name| batch.text(name).to_owned());
            let salt = event.salt.map(|salt| batch.text(salt).to_owned());
            let keys = content.extra.iter().filter_map(|key| match key {
                ExtraKey::Text(text) => Some(batch.text(*text).to_owned()),
                _ => None,
            });
            blocks.push(Block {
                rank,
                hash,
                parent: content.parent,
                tokens: content.tokens.iter().step_by(content.width.max(1)).copied().collect(),
                is_paired: content.width == 2,
                lookahead: content.lookahead.len(),
                texts: keys.chain(salt).chain(adapter).collect(),
            });
        });
    }

    /// Takes in drained events.
    pub fn take_drained(&mut self, events: &[DrainEvent]) {
        for event in events {
            let DrainData::Stored { parent_hash, blocks } = &event.data else { continue };
            self.form = self.form.or(Some(HashForm::Int));
            let mut parent = parent_hash.map(|hash| hash.0);
            for block in blocks {
                self.unkept += u64::from(block.tokens.is_empty());
                self.blocks.push(Block {
                    rank: event.rank,
                    hash: block.block_hash.0,
                    parent,
                    tokens: block.tokens.iter().map(|token| token.token_id).collect(),
                    is_paired: false,
                    lookahead: 0,
                    texts: block.cache_salt.iter().cloned().collect(),
                });
                parent = Some(block.block_hash.0);
            }
        }
    }

    /// How many blocks were told of so far.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// The chain of full blocks from `since` on whose tokens are those of `ids`, as far as it goes. `text` must be
    /// among the first block's texts, where it is given. TensorRT-LLM tells of a shorter last block too.
    pub fn chain(&self, since: usize, ids: &[u32], text: Option<&str>) -> Vec<&Block> {
        let mut chain: Vec<&Block> = Vec::new();
        let mut at = 0;
        loop {
            let parent = chain.last().map(|block| block.hash);
            let size = chain.first().map(|first| first.tokens.len());
            let fits = |block: &&Block| {
                block.parent == parent
                    && !block.tokens.is_empty()
                    && size.is_none_or(|size| block.tokens.len() == size)
                    && ids[at..].starts_with(&block.tokens)
                    && (at > 0 || text.is_none_or(|text| block.texts.iter().any(|own| own == text)))
            };
            // Seen twice, the later one stands.
            let Some(next) = self.blocks[since.min(self.blocks.len())..].iter().rev().find(fits) else {
                break;
            };
            at += next.tokens.len();
            chain.push(next);
        }
        chain
    }

    /// First blocks of prompts told of since, with `text` among their texts where it is given.
    pub fn firsts(&self, since: usize, text: Option<&str>) -> impl Iterator<Item = &Block> {
        let own = move |block: &&Block| text.is_none_or(|text| block.texts.iter().any(|own| own == text));
        self.blocks[since.min(self.blocks.len())..].iter().filter(|block| block.parent.is_none()).filter(own)
    }

    /// All tokens of the prompt that begins with `first`.
    pub fn prompt(&self, first: &Block) -> Vec<u32> {
        let (mut tokens, mut hash) = (first.tokens.clone(), first.hash);
        while let Some(next) = self.blocks.iter().rev().find(|block| block.parent == Some(hash)) {
            tokens.extend_from_slice(&next.tokens);
            hash = next.hash;
            if tokens.len() > 1 << 20 {
                break;
            }
        }
        tokens
    }
}

/// The form of the first hash of a payload: a byte string, or a number of more than 32 bits, in a list that is no
/// list of tokens. Read from the bytes themselves, since a decoded event no longer tells.
fn form(payload: &[u8]) -> Option<HashForm> {
    let mut reader = Reader::new(payload);
    let mut left = 1_u64;
    while left > 0 {
        left -= 1;
        match reader.item().ok()? {
            Item::Array(count) => left += u64::from(count),
            Item::Map(count) => left += 2 * u64::from(count),
            Item::Bin(bytes) if bytes.len() >= 8 => return Some(HashForm::Bytes(bytes.len())),
            Item::Uint(number) if number > u64::from(u32::MAX) => return Some(HashForm::Int),
            Item::Negative(number) if number < i64::from(i32::MIN) => return Some(HashForm::Int),
            _ => {}
        }
    }
    None
}
