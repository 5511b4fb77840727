//! The model: one engine's processes, their caches by rank and tier, and what they say of them. The oracle is
//! the cache after each batch.

use crate::random::Random;
use rmpv::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use warmpath_core::engine::{Contract, Extras, Scratch};

/// How an engine tells of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By hashes that are the same in every process.
    Contract,
    /// By hashes of its own, with tokens.
    Tokens,
    /// By hashes of its own, with tokens, given away once.
    Drained,
}

/// Prompts that share nothing, and blocks of each.
pub const PROMPTS: u64 = 5;
pub const DEPTHS: u64 = 5;

/// A block: prompt and depth.
type Block = (u64, u64);

/// Blocks by tier, as the index has to have them: a bit for each of [`Model::universe`].
pub type Keys = [u32; 3];

/// One rank of the process that runs.
#[derive(Default)]
pub struct Rank {
    /// Copies by medium (0 GPU, 1 host, 2 disk) and block.
    cache: BTreeMap<(usize, Block), u32>,
    pub next_seq: u64,
    pub buffer: VecDeque<(u64, Vec<u8>)>,
    /// Connections that subscribed.
    pub subscribers: Vec<usize>,
    /// One message that is sent after the next.
    pub kept_back: Option<(u64, Vec<u8>)>,
    /// Drained events that nobody took.
    pub pending: Vec<String>,
}

pub struct Model {
    pub kind: Kind,
    pub contract: Contract,
    pub process: u64,
    pub ranks: Vec<Rank>,
    pub buffer_steps: usize,
    /// What each rank's cache was after each sequence (or event id), in every process.
    pub past: HashMap<(usize, u64), Vec<Keys>>,
    /// Blocks that a rank's GPU has room for, as it tells.
    pub room: u64,
    tokens: usize,
    /// Keys by prompt and depth.
    names: Vec<Vec<u64>>,
}

impl Model {
    pub fn new(kind: Kind, contract: Contract, ranks: usize, buffer_steps: usize) -> Model {
        let tokens = contract.block_size().tokens();
        let mut model = Model {
            kind,
            contract,
            process: 0,
            ranks: Vec::new(),
            buffer_steps,
            past: HashMap::new(),
            room: 1_000,
            tokens,
            names: Vec::new(),
        };
        model.names = (0..PROMPTS).map(|prompt| model.chain(prompt)).collect();
        model.start(ranks);
        model
    }

    /// Another process.
    pub fn start(&mut self, ranks: usize) {
        self.process += 1;
        self.ranks = (0..ranks).map(|_| Rank::default()).collect();
        if self.kind == Kind::Drained {
            for rank in 0..ranks {
                let room = self.room;
                self.emit(rank, &format!(r#"{{"type":"created","num_blocks_per_cache_level":[{room},9]}}"#));
            }
        }
    }

    /// The gateway's key of a block.
    pub fn key(&self, (prompt, depth): Block) -> u64 {
        self.names[prompt as usize][depth as usize]
    }

    /// The keys of a prompt, by the request's side.
    fn chain(&self, prompt: u64) -> Vec<u64> {
        let (extras, mut scratch, mut keys) = (Extras::default(), Scratch::default(), Vec::new());
        let mut chain = self.contract.chain(&extras, &mut scratch).expect("plain text");
        let tokens: Vec<u32> = (0..DEPTHS).flat_map(|depth| self.tokens((prompt, depth))).collect();
        chain.feed(&tokens, |key, _| keys.push(key.0));
        keys
    }

    /// All keys there are.
    pub fn universe(&self) -> Vec<u64> {
        (0..PROMPTS).flat_map(|p| (0..DEPTHS).map(move |d| (p, d))).map(|block| self.key(block)).collect()
    }

    /// What a rank holds now.
    pub fn keys(&self, rank: usize) -> Keys {
        let mut keys = [0; 3];
        for (medium, (prompt, depth)) in self.ranks[rank].cache.keys() {
            keys[*medium..].iter_mut().for_each(|tier| *tier |= 1 << (prompt * DEPTHS + depth));
        }
        keys
    }

    fn tokens(&self, (prompt, depth): Block) -> Vec<u32> {
        (0..self.tokens as u64).map(|at| (prompt * 100_000 + depth * 1_000 + at) as u32).collect()
    }

    fn hash(&self, block: Block) -> u64 {
        match self.kind {
            Kind::Contract => self.key(block),
            _ => {
                let mixed = (self.process << 32 | block.0 << 8 | block.1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed | 1 << 62
            }
        }
    }

    /// One step of a published rank: the payload of its next batch.
    pub fn step(&mut self, rank: usize, random: &mut Random) -> (u64, Vec<u8>) {
        let events = (0..1 + random.below(3)).map(|_| self.change(rank, random)).collect();
        let seq = self.ranks[rank].next_seq;
        let payload = encode(self.process, seq, rank, events);
        self.ranks[rank].next_seq += 1;
        self.remember(rank, seq);
        let buffer = &mut self.ranks[rank].buffer;
        buffer.push_back((seq, payload.clone()));
        if buffer.len() > self.buffer_steps {
            buffer.pop_front();
        }
        (seq, payload)
    }

    /// One step of a drained rank.
    pub fn drained_step(&mut self, rank: usize, random: &mut Random) {
        let block = (random.below(PROMPTS), random.below(DEPTHS));
        let held = (0..2).find(|medium| self.ranks[rank].cache.contains_key(&(*medium, block)));
        let is_leaf = |model: &Model| {
            !(0..2).any(|medium| model.ranks[rank].cache.contains_key(&(medium, (block.0, block.1 + 1))))
        };
        let hash = self.hash(block);
        match held {
            Some(medium) if random.below(3) == 0 => {
                self.ranks[rank].cache.remove(&(medium, block));
                let to = 1 - medium;
                self.ranks[rank].cache.insert((to, block), 1);
                self.emit(
                    rank,
                    &format!(
                        r#"{{"type":"updated","block_hash":{hash},"cache_level":{{"type":"event_diff","old_value":{medium},"new_value":{to}}}}}"#
                    ),
                );
            }
            Some(medium) if is_leaf(self) => {
                self.ranks[rank].cache.remove(&(medium, block));
                self.emit(rank, &format!(r#"{{"type":"removed","block_hashes":[{hash}]}}"#));
            }
            Some(_) => {}
            None => self.drained_store(rank, block),
        }
    }

    /// Stores what is missing of a prompt up to a block.
    fn drained_store(&mut self, rank: usize, (prompt, depth): Block) {
        for block in (0..=depth).map(|depth| (prompt, depth)) {
            if (0..2).any(|medium| self.ranks[rank].cache.contains_key(&(medium, block))) {
                continue;
            }
            self.ranks[rank].cache.insert((0, block), 1);
            let parent = block.1.checked_sub(1).map(|depth| self.hash((prompt, depth)));
            let parent = parent.map_or("null".to_owned(), |parent| parent.to_string());
            let tokens: Vec<String> = self
                .tokens(block)
                .iter()
                .map(|id| format!(r#"{{"token_id":{id},"token_extra_id":0}}"#))
                .collect();
            let (hash, tokens) = (self.hash(block), tokens.join(","));
            self.emit(
                rank,
                &format!(
                    r#"{{"type":"stored","parent_hash":{parent},"blocks":[{{"block_hash":{hash},"cache_level":0,"tokens":[{tokens}]}}]}}"#
                ),
            );
        }
    }

    fn emit(&mut self, rank: usize, data: &str) {
        let id = self.ranks[rank].next_seq;
        self.ranks[rank].next_seq += 1;
        let event =
            format!(r#"{{"event_id":{id},"window_size":64,"attention_dp_rank":{rank},"data":{data}}}"#);
        self.ranks[rank].pending.push(event);
        self.remember(rank, id);
    }

    fn remember(&mut self, rank: usize, seq: u64) {
        let keys = self.keys(rank);
        self.past.entry((rank, seq)).or_default().push(keys);
    }

    /// Changes a rank's cache; the event that says so.
    fn change(&mut self, rank: usize, random: &mut Random) -> Value {
        let cache = &self.ranks[rank].cache;
        let held: Vec<(usize, Block)> = cache.keys().copied().collect();
        let any = |random: &mut Random| held[random.below(held.len() as u64) as usize];
        match random.below(100) {
            0 => {
                self.ranks[rank].cache.clear();
                event("AllBlocksCleared", Vec::new())
            }
            1..=30 if !held.is_empty() => {
                let (medium, block) = any(random);
                let cache = &mut self.ranks[rank].cache;
                cache.entry((medium, block)).and_modify(|copies| *copies -= 1);
                cache.retain(|_, copies| *copies > 0);
                self.removed(medium, block)
            }
            31..=45 if !held.is_empty() => {
                let (medium, block) = any(random);
                self.store(rank, (medium + 1).min(2), &[block])
            }
            46..=52 => self.window_event(random),
            _ => {
                let prompt = random.below(PROMPTS);
                let run =
                    (0..DEPTHS).take_while(|depth| held.contains(&(0, (prompt, *depth)))).count() as u64;
                // A whole hit computes the last block again: a second copy.
                let first = run.min(DEPTHS - 1);
                let last = first + random.below(DEPTHS - first);
                let blocks: Vec<Block> = (first..=last).map(|depth| (prompt, depth)).collect();
                self.store(rank, 0, &blocks)
            }
        }
    }

    fn removed(&self, medium: usize, block: Block) -> Value {
        let hash = Value::Array(vec![Value::from(self.hash(block))]);
        event("BlockRemoved", vec![("block_hashes", hash), ("medium", Value::from(MEDIA[medium]))])
    }

    fn store(&mut self, rank: usize, medium: usize, blocks: &[Block]) -> Value {
        for block in blocks {
            *self.ranks[rank].cache.entry((medium, *block)).or_default() += 1;
        }
        let hashes = blocks.iter().map(|block| Value::from(self.hash(*block))).collect();
        let tokens = blocks.iter().flat_map(|block| self.tokens(*block)).map(Value::from).collect();
        let (prompt, depth) = blocks[0];
        let parent = depth.checked_sub(1).map(|depth| self.hash((prompt, depth)));
        event(
            "BlockStored",
            vec![
                ("block_hashes", Value::Array(hashes)),
                ("parent_block_hash", parent.map_or(Value::Nil, Value::from)),
                ("token_ids", Value::Array(tokens)),
                ("block_size", Value::from(self.tokens as u64)),
                ("lora_id", Value::Nil),
                ("medium", Value::from(MEDIA[medium])),
                ("group_idx", Value::from(0)),
                ("kv_cache_spec_kind", Value::from("full_attention")),
            ],
        )
    }

    /// A block of a sliding window, which is not to count.
    fn window_event(&self, random: &mut Random) -> Value {
        let hash = Value::Array(vec![Value::from(self.hash((random.below(PROMPTS), 0)))]);
        event(
            "BlockStored",
            vec![
                ("block_hashes", hash),
                ("parent_block_hash", Value::Nil),
                ("token_ids", Value::Array(vec![Value::from(1); 3 * self.tokens])),
                ("block_size", Value::from(self.tokens as u64)),
                ("medium", Value::from("GPU")),
                ("group_idx", Value::from(1)),
                ("kv_cache_spec_kind", Value::from("sliding_window")),
            ],
        )
    }
}

const MEDIA: [&str; 3] = ["GPU", "CPU", "STORAGE"];

fn event(kind: &str, members: Vec<(&str, Value)>) -> Value {
    let kind = [(Value::from("type"), Value::from(kind))];
    let members = members.into_iter().map(|(name, value)| (Value::from(name), value));
    Value::Map(kind.into_iter().chain(members).collect())
}

fn encode(process: u64, seq: u64, rank: usize, events: Vec<Value>) -> Vec<u8> {
    let time = process as f64 * 1_000_000.0 + seq as f64;
    let batch = Value::Array(vec![Value::F64(time), Value::Array(events), Value::from(rank as u64)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).expect("into memory");
    bytes
}
