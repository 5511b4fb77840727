//! What is kept of a prompt's beginning: enough to go on naming blocks behind it. Owns the key, under which only
//! the same text in the same scheme is found again, and the value; the store is in `shared`.
//!
//! No token ids are kept but those behind the last full block: the keys are what a decision needs, and ids are
//! eight times as many bytes.

use crate::tokenizer::Boundary;
use std::hash::{Hash, Hasher};
use warmpath_core::block::BlockKey;
use warmpath_core::engine::{self, Contract, Decline, Extras, Scratch, ToolForm};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A keyed hash of 128 bits over all that decides the value, and the text's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    hash: u128,
    length: u64,
}

impl Key {
    /// Bits that choose the part, unlike those that choose a slot in it.
    pub(crate) fn spread(&self) -> u64 {
        (self.hash >> 64) as u64
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}

/// A prompt's beginning, up to and with a safe token.
#[derive(Debug)]
pub(crate) struct Prefix {
    /// How many tokens it has.
    pub(crate) tokens: u64,
    /// Those behind the last full block.
    pub(crate) pending: Box<[u32]>,
    /// The keys of its full blocks.
    pub(crate) keys: Box<[BlockKey]>,
    /// Where the chain stands.
    pub(crate) chain: engine::Checkpoint,
}

impl Prefix {
    /// What it takes in a store, table and order included.
    pub(crate) fn bytes(&self) -> usize {
        const BESIDE: usize = size_of::<Prefix>() + 3 * size_of::<Key>() + 64;
        BESIDE + size_of_val(&*self.pending) + size_of_val(&*self.keys)
    }
}

/// A contract, the name under which its checkpoints are kept, and what else depends on the engines' version.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    contract: Contract,
    plain: u128,
    tools: Option<ToolForm>,
}

impl Scheme {
    /// The scheme of a contract.
    pub fn new(contract: Contract) -> Scheme {
        let plain = name(&contract, &Extras::default(), &mut Scratch::default());
        // A plain prompt is declined by no contract.
        Scheme { contract, plain: plain.unwrap_or_default(), tools: None }
    }

    /// The same, for engines that make this of the definitions of tools.
    pub fn with_tools(self, tools: Option<ToolForm>) -> Scheme {
        Scheme { tools, ..self }
    }

    /// What the engines make of the definitions of tools; `None`: not verified.
    pub fn tools(&self) -> Option<ToolForm> {
        self.tools
    }

    /// The contract.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    pub(crate) fn name(&self, extras: &Extras<'_>, scratch: &mut Scratch) -> Result<u128, Decline> {
        if extras.is_plain() { Ok(self.plain) } else { name(&self.contract, extras, scratch) }
    }
}

/// A hash of everything beside text that decides keys: two schemes that name one block differently have
/// different names. The block of a probe tells that of recipe, seed, version and extras at once.
fn name(contract: &Contract, extras: &Extras<'_>, scratch: &mut Scratch) -> Result<u128, Decline> {
    let size = contract.block_size().tokens();
    let block = extras.of_block(0, size);
    let start = contract.start(&block)?;
    let probe: Vec<u32> = (0..).take(size + contract.overhang()).collect();
    let digest = contract.digest(&start.digest, &probe, &block, scratch);
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(contract.engine().name().as_bytes());
    bytes.extend_from_slice(contract.algo().name().as_bytes());
    bytes.extend_from_slice(&(size as u64).to_le_bytes());
    bytes.extend_from_slice(&(contract.overhang() as u64).to_le_bytes());
    bytes.extend_from_slice(start.digest.as_bytes());
    bytes.extend_from_slice(&contract.key(&digest, start.namespace.as_ref()).0.to_le_bytes());
    bytes.extend_from_slice(digest.as_bytes());
    Ok(xxh3_128_with_seed(&bytes, 0))
}

/// A keyed hash of pieces, told apart by where they end.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    secret: u64,
    hash: u128,
}

/// Odd, of random bits: multiplying by it loses nothing.
const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

impl Fold {
    pub(crate) fn new(secret: u64, begin: u64) -> Fold {
        Fold { secret, hash: u128::from(begin) }
    }

    /// Half of the state is the seed of the next hash, and all of it is mixed in behind.
    pub(crate) fn fold(&mut self, bytes: &[u8]) {
        let seed = self.secret ^ (self.hash >> 64) as u64;
        self.hash = xxh3_128_with_seed(bytes, seed) ^ self.hash.wrapping_mul(SPREAD).rotate_left(64);
    }

    /// The key of what was folded, which ends at this byte.
    pub(crate) fn key(&self, end: usize) -> Key {
        Key { hash: self.hash, length: end as u64 }
    }
}

/// The keys of all cuts of one text, each from the one before it: text is hashed once.
pub(crate) struct Hashing<'t> {
    text: &'t str,
    fold: Fold,
    at: usize,
    /// Bytes of the whole text before this one.
    before: usize,
}

impl<'t> Hashing<'t> {
    /// Begins with what is not text: the model, the scheme, and tokens put before the text.
    pub(crate) fn new(secret: u64, model: u64, scheme: u128, before: &[u32], text: &'t str) -> Hashing<'t> {
        let mut fold = Fold::new(secret, model);
        fold.fold(&scheme.to_le_bytes());
        let before: Vec<u8> = before.iter().flat_map(|id| id.to_le_bytes()).collect();
        fold.fold(&before);
        Hashing { text, fold, at: 0, before: 0 }
    }

    /// Goes on behind a cut of the whole text, whose key is known; `text` begins with the cut's token.
    pub(crate) fn behind(secret: u64, key: Key, cut: Boundary, text: &'t str) -> Hashing<'t> {
        Hashing { text, fold: Fold { secret, hash: key.hash }, at: cut.end - cut.start, before: cut.start }
    }

    /// The key of the text up to the end of a cut. Cuts come in order.
    pub(crate) fn key(&mut self, cut: &Boundary) -> Key {
        let text = self.text;
        if cut.end > self.at {
            self.fold.fold(text.get(self.at..cut.end).unwrap_or_default().as_bytes());
            self.at = cut.end;
        }
        self.fold.key(self.before + cut.end)
    }
}

#[cfg(test)]
impl Key {
    pub(crate) fn of_test(n: u64) -> Key {
        Key { hash: xxh3_128_with_seed(&n.to_le_bytes(), 1), length: n }
    }
}

#[cfg(test)]
impl Prefix {
    pub(crate) fn of_test(tokens: u64) -> Prefix {
        let chain = engine::Checkpoint { digest: warmpath_core::block::Digest::NONE, blocks: 0 };
        Prefix { tokens, pending: Box::default(), keys: vec![BlockKey(tokens); 16].into(), chain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmpath_core::block::BlockSize;
    use warmpath_core::engine::{Algo, Engine, Lora, Seed, Terms, Version};

    fn contract(engine: Engine, algo: Algo, change: impl Fn(&mut Terms<'_>)) -> Contract {
        let version = Some(Version::new(0, 33, 0));
        let mut terms = Terms { version, seed: Seed::Given("0"), ..Terms::plain(algo, BlockSize::SIXTEEN) };
        change(&mut terms);
        engine.contract(&terms).expect("a contract")
    }

    #[test]
    fn whatever_changes_a_block_s_name_changes_the_scheme_s() {
        let vllm =
            |change: &dyn Fn(&mut Terms<'_>)| Scheme::new(contract(Engine::Vllm, Algo::Sha256Cbor, change));
        let lora = Extras { lora: Some(Lora { name: "a", path: Some("/a") }), ..Extras::default() };
        let salt = Extras { salt: Some("s"), ..Extras::default() };
        let plain = Extras::default();
        let mut scratch = Scratch::default();
        let mut name = |scheme: &Scheme, extras| scheme.name(extras, &mut scratch).expect("a name");
        let names = [
            name(&vllm(&|_| ()), &plain),
            name(&vllm(&|_| ()), &lora),
            name(&vllm(&|_| ()), &salt),
            name(&vllm(&|terms| terms.seed = Seed::Given("1")), &plain),
            name(&vllm(&|terms| terms.lookahead = 1), &plain),
            name(&vllm(&|terms| terms.block_size = BlockSize::THIRTY_TWO), &plain),
            name(&Scheme::new(contract(Engine::Vllm, Algo::XxhashCbor, |_| ())), &plain),
            name(&Scheme::new(contract(Engine::Vllm, Algo::Tokens, |_| ())), &plain),
            name(&Scheme::new(contract(Engine::Vllm, Algo::Tokens, |terms| terms.secret = 1)), &plain),
            name(&Scheme::new(contract(Engine::Sglang, Algo::Sha256Sglang, |_| ())), &plain),
        ];
        let mut unlike = names.to_vec();
        unlike.sort_unstable();
        unlike.dedup();
        assert_eq!(unlike.len(), names.len());
        assert_eq!(names[0], name(&vllm(&|_| ()), &plain));
    }

    #[test]
    fn a_key_tells_text_model_scheme_tokens_before_and_secret() {
        let cut = |end| Boundary { start: 0, end, id: 0 };
        let key = |secret, model, scheme, before: &[u32], text: &str| {
            let mut hashing = Hashing::new(secret, model, scheme, before, text);
            hashing.key(&cut(2));
            hashing.key(&cut(text.len()))
        };
        let keys = [
            key(0, 0, 0, &[], "abcd"),
            key(1, 0, 0, &[], "abcd"),
            key(0, 1, 0, &[], "abcd"),
            key(0, 0, 1, &[], "abcd"),
            key(0, 0, 0, &[0], "abcd"),
            key(0, 0, 0, &[], "abce"),
            key(0, 0, 0, &[], "bacd"),
            key(0, 0, 0, &[], "abcdd"),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[at + 1..].iter().all(|other| one.hash != other.hash), "{at}");
        }
        assert_eq!(keys[0], key(0, 0, 0, &[], "abcd"));
    }
}
