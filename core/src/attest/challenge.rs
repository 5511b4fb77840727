//! A prompt that nobody sent before, and the names that its blocks must come under. Owns its words and the judgement of
//! what was heard; must never send it, nor make a nonce of its own.

use super::Unanswered;
use crate::engine::{Contract, Extras, Scratch};
use crate::profile::Api;
use serde_json::{Value, json};

/// What stands behind the nonce, with which a challenge begins.
const PHRASE: &str = " is asked so that the names of its blocks can be attested.";

/// What fills it up.
const FILLER: &str = " The quick brown fox jumps over the lazy dog.";

/// Blocks, from the last full one back, that must come under their names. Each name covers all before it.
const BLOCKS: usize = 2;

/// Tokens at least: blocks may be as short as one token, and the last ones have to be fresh by the nonce.
const TOKENS: usize = 64;

/// Bytes of the longest challenge that is made.
const LONGEST: usize = 64 << 10;

/// A block that an engine told of, with what stands beside its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The rank whose events told it.
    pub rank: u8,
    /// The key that the index has for it; `None`: it could not be named.
    pub key: Option<u64>,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Whether tokens alone name it: no adapter, salt or media.
    pub is_plain: bool,
}

/// What came of a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// One rank told of its blocks, under the very names.
    Named(u8),
    /// The tokens are those expected, the names or what else enters them are not.
    OtherNames,
    /// The blocks have other tokens.
    OtherTokens,
    /// More than one rank told of it.
    SeveralRanks,
    /// No event of it came in time; whether requests wait in the engine.
    Silent {
        /// Its own metrics say so.
        is_busy: bool,
    },
    /// The request itself was not answered.
    Unanswered(Unanswered),
}

/// One challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Where to `POST` it.
    pub path: &'static str,
    /// The body of its request.
    pub body: Vec<u8>,
    /// The tokens of the whole prompt.
    tokens: Vec<u32>,
    size: usize,
    keys: Vec<u64>,
    /// So many blocks, from the first on, are cached by a prefill of the prompt.
    proving: usize,
}

impl Challenge {
    /// The challenge of this nonce (32 hexadecimal digits), for blocks of the contract. `encode` gives the tokens that
    /// the gateway makes of a body. `None`: it can't, or nothing that it can would fill two blocks.
    pub fn compose(
        api: Api,
        model: &str,
        nonce: &str,
        contract: &Contract,
        mut encode: impl FnMut(&[u8]) -> Option<Vec<u32>>,
    ) -> Option<Challenge> {
        let size = contract.block_size().tokens();
        // The last token is never cached (TensorRT-LLM leaves its block out), and some names look ahead.
        let least = (BLOCKS * size + contract.overhang()).max(TOKENS);
        let mut text = format!("{nonce}{PHRASE}");
        while text.len() < LONGEST {
            let body = body(api, model, &text).to_string().into_bytes();
            let tokens = encode(&body)?;
            if tokens.len() > least {
                let keys = keys(contract, &tokens)?;
                let proving = (tokens.len() - 1 - contract.overhang()) / size;
                return Some(Challenge { path: path(api), body, tokens, size, keys, proving });
            }
            text += &FILLER.repeat((least - tokens.len()) / FILLER.len() + 1);
        }
        None
    }

    /// What to listen for.
    pub fn listens_for(&self) -> Listening {
        let first = self.tokens[..self.size.min(self.tokens.len())].to_vec();
        Listening { first, keys: self.keys.clone() }
    }

    /// What was heard so far proves; `None`: not all of it came yet.
    pub fn judge(&self, heard: &[Heard]) -> Option<Echo> {
        let rank = heard.first()?.rank;
        if heard.iter().any(|block| block.rank != rank) {
            return Some(Echo::SeveralRanks);
        }
        let mut named = vec![false; self.keys.len()];
        for block in heard {
            let at = block.key.and_then(|key| self.keys.iter().position(|own| *own == key));
            match at {
                Some(at) if !self.is_chunk(at, block) => return Some(Echo::OtherTokens),
                Some(at) if block.is_plain => named[at] = true,
                _ if (0..named.len()).any(|at| self.is_chunk(at, block)) => return Some(Echo::OtherNames),
                _ => return Some(Echo::OtherTokens),
            }
        }
        let is_whole = named[self.proving.saturating_sub(BLOCKS)..self.proving].iter().all(|named| *named);
        is_whole.then_some(Echo::Named(rank))
    }

    fn is_chunk(&self, at: usize, block: &Heard) -> bool {
        let own = self.tokens.get(at * self.size..(at + 1) * self.size);
        own.is_some() && block.tokens.get(..self.size) == own
    }
}

/// By what the events of one prompt are told from others: its names, or that its first block is much like the one
/// expected, and what is stored behind that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// The tokens of the first block.
    pub first: Vec<u32>,
    /// The keys of all.
    pub keys: Vec<u64>,
}

impl Listening {
    /// Whether a first block is so much like the expected one that the difference is news.
    pub fn is_like(&self, tokens: &[u32]) -> bool {
        let same = self.first.iter().zip(tokens).filter(|(own, other)| own == other).count();
        same * 2 >= self.first.len().max(1)
    }
}

fn body(api: Api, model: &str, text: &str) -> Value {
    match api {
        Api::Completions => json!({"model": model, "prompt": text, "max_tokens": 1, "temperature": 0}),
        Api::Chat => json!({
            "model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1, "temperature": 0,
        }),
    }
}

fn path(api: Api) -> &'static str {
    match api {
        Api::Completions => "/v1/completions",
        Api::Chat => "/v1/chat/completions",
    }
}

/// The keys of its full blocks.
fn keys(contract: &Contract, tokens: &[u32]) -> Option<Vec<u64>> {
    let (extras, mut scratch) = (Extras::default(), Scratch::default());
    let mut keys = Vec::new();
    contract.chain(&extras, &mut scratch).ok()?.feed(tokens, |key, _| keys.push(key.0));
    Some(keys)
}
