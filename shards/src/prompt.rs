//! From a request to the keys of its prompt's blocks. Owns which members of a body enter, and how far short
//! blocks are thinned out; must never look a key up.

use warmpath_core::decide::exact::Miss;
use warmpath_core::engine::{Contract, Extras, Scratch};
use warmpath_parser::json::{self, Kind, Member, Members};

/// The longest prompt that is hashed on a shard, in tokens: some milliseconds of its time. A longer one is told
/// to be too long, never cut.
pub const TOKENS_MAX: usize = 1 << 20;

/// Tokens between two keys that are looked up, at least, where a rank that holds a block has all before it.
const LOOKUP_TOKENS: usize = 16;

/// Lists longer than this are not kept from one request to the next.
const KEPT_MAX: usize = 1 << 17;

/// The keys of one prompt, in memory that is used again.
#[derive(Default)]
pub struct PromptKeys {
    tokens: Vec<u32>,
    keys: Vec<u64>,
    salt: Vec<u8>,
    scratch: Scratch,
    unit: usize,
}

impl PromptKeys {
    /// The keys of full units, first to last; empty after a miss.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Tokens that each key stands for: a block, or several where blocks are short.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Tokens of the prompt.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens that an engine which holds the first `run` keys' blocks need not compute: all of them, but for the
    /// block of the last token, which every engine computes to have its logits.
    pub fn predicted(&self, run: u32) -> u32 {
        let most = self.tokens.len().saturating_sub(1) / self.unit.max(1);
        let units = most.min(run as usize);
        u32::try_from(units * self.unit).unwrap_or(u32::MAX)
    }

    /// Reads and hashes the prompt of a body that was peeked at.
    pub fn read(&mut self, body: &[u8], members: &Members, contract: &Contract) -> Result<(), Miss> {
        self.forget();
        self.read_tokens(body, members)?;
        if self.tokens.len() > TOKENS_MAX {
            return Err(Miss::TooLong);
        }
        let salt = members.get(Member::CacheSalt).filter(|value| value.kind != Kind::Null);
        if let Some(salt) = salt
            && !json::text(body, salt, &mut self.salt)
        {
            return Err(Miss::Unreadable);
        }
        self.hash(contract)
    }

    fn forget(&mut self) {
        if self.tokens.capacity() > KEPT_MAX {
            *self = PromptKeys::default();
        }
        self.tokens.clear();
        self.keys.clear();
        self.salt.clear();
        self.unit = 1;
    }

    fn read_tokens(&mut self, body: &[u8], members: &Members) -> Result<(), Miss> {
        let Some(prompt) = members.get(Member::Prompt) else {
            return Err(if members.get(Member::Messages).is_some() {
                Miss::Tokenize
            } else {
                Miss::TextEmpty
            });
        };
        match prompt.kind {
            Kind::Array if json::token_ids(body, prompt, &mut self.tokens) => Ok(()),
            Kind::Array => Err(Miss::Batch),
            Kind::String { .. } => Err(Miss::Tokenize),
            _ => Err(Miss::TextEmpty),
        }
    }

    fn hash(&mut self, contract: &Contract) -> Result<(), Miss> {
        let salt = std::str::from_utf8(&self.salt).map_err(|_| Miss::Unreadable)?;
        let extras = Extras { salt: (!salt.is_empty()).then_some(salt), ..Extras::default() };
        let step = step(contract);
        self.unit = step * contract.block_size().tokens();
        let mut chain = contract.chain(&extras, &mut self.scratch).map_err(Miss::Declined)?;
        let (keys, mut number) = (&mut self.keys, 0);
        chain.feed(&self.tokens, |key, _| {
            number += 1;
            if number % step == 0 {
                keys.push(key.0);
            }
        });
        if keys.is_empty() { Err(Miss::Hashes) } else { Ok(()) }
    }
}

/// Every how many blocks one is looked up: each, unless they are short and residency has no holes.
fn step(contract: &Contract) -> usize {
    match contract.engine().is_prefix_closed() {
        true => LOOKUP_TOKENS.div_ceil(contract.block_size().tokens()),
        false => 1,
    }
}
