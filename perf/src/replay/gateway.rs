//! The gateway of a replay: a rule as an operator writes it, and the table, index, promises, charges and decisions
//! that serve it. Owns asking them in the order in which a shard does; must never weigh an endpoint itself.

use super::policy::Policy;
use crate::Error;
use crate::engine::blocks::CacheEvent;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use warmpath_core::block::BlockSize;
use warmpath_core::decide::exact::{self, Question, Ranking};
use warmpath_core::decide::tuning::Tuning;
use warmpath_core::decide::{Facts, Reason, Turn, decide};
use warmpath_core::environment::Environment;
use warmpath_core::fleet::{EndpointView, Excluded};
use warmpath_core::rule::body;
use warmpath_core::shared::{Destination, Promises, Tier, promised_keys};
use warmpath_core::table::{Service, Table};
use warmpath_core::{MILLISECOND, Nanos};
use warmpath_kvindex::{Holder, Plan, Writer, index};
use warmpath_shards::overlap::{Overlap, Prompt};

/// Bytes of promises: what a gateway with default memory has.
const PROMISE_BYTES: usize = 8 << 20;

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Index of the endpoint.
    pub endpoint: usize,
    /// What decided.
    pub reason: Reason,
    /// Leading blocks that the endpoint was known to hold.
    pub held: u32,
}

/// One gateway, with one rule.
pub struct Gateway {
    service: Arc<Service>,
    writer: Writer,
    holders: Vec<Holder>,
    /// Copies of each block that each engine holds: vLLM stores and removes them one by one.
    copies: Vec<HashMap<u64, u32>>,
    overlap: Overlap,
    promises: Arc<Promises>,
    tuning: Tuning,
    block_size: BlockSize,
    ranking: Ranking,
    turn: Turn,
    view: Vec<EndpointView>,
}

impl Gateway {
    /// One for `fleet` endpoints with caches of `blocks` blocks of `block_tokens` tokens.
    pub fn new(policy: &Policy, fleet: usize, block_tokens: u32, blocks: usize) -> Result<Gateway, Error> {
        let block_size = BlockSize::new(u64::from(block_tokens))
            .ok_or_else(|| Error::new(format!("blocks of {block_tokens} tokens; a block has 1 to 4096")))?;
        let rule =
            body::parse(&rule(policy, fleet, block_tokens), &Environment::default(), || "replay".into())
                .map_err(|fault| Error::new(format!("the rule of the replay: {fault}")))?;
        let mut number = 1;
        let table = Table::next(&Table::default(), vec![rule], &mut number, 0);
        let service = table.services().next().cloned().ok_or_else(|| Error::new("the table has no rule"))?;
        // The index is told of a block some time after its engine dropped another: it needs a little more room.
        let plan = Plan::for_blocks(fleet * blocks.saturating_add(blocks / 8).max(1024), fleet, 1)
            .map_err(|fault| Error::new(format!("an index for {fleet} endpoints: {fault:?}")))?;
        let (mut writer, readers) = index(plan, 0);
        let reader = readers.reader().ok_or_else(|| Error::new("the index has no reader"))?;
        let promises = Arc::new(Promises::new(PROMISE_BYTES));
        let holders = match &service.exact {
            None => Vec::new(),
            Some(exact) => exact
                .sources
                .iter()
                .filter_map(|source| {
                    let holder = writer.register(source.holder_name(0, Tier::Gpu))?;
                    source.set_bit(0, Tier::Gpu, Some(holder.bit()));
                    source.set_capacity(u32::try_from(blocks).unwrap_or(u32::MAX));
                    Some(holder)
                })
                .collect(),
        };
        Ok(Gateway {
            overlap: Overlap::new(reader, promises.clone()),
            tuning: policy.tuning().copied().unwrap_or_default(),
            copies: vec![HashMap::new(); fleet],
            service,
            writer,
            holders,
            promises,
            block_size,
            ranking: Ranking::default(),
            turn: Turn::default(),
            view: Vec::new(),
        })
    }

    /// Chooses and charges an endpoint for a prompt. `affinity`: what hashing selectors go by.
    pub fn choose(&mut self, keys: &[u64], affinity: u64, now: Nanos) -> Option<Choice> {
        self.service.view(now, &mut self.view);
        let choice = match self.by_blocks(keys, now) {
            Some(choice) => choice,
            None => self.by_selector(affinity, now)?,
        };
        if let Some(to) = self.destination(choice.endpoint) {
            self.promises.make(promised_keys(keys, choice.held), to, now);
        }
        Some(choice)
    }

    fn by_blocks(&mut self, keys: &[u64], now: Nanos) -> Option<Choice> {
        let (terms, exact) = self.service.rule.exact.as_ref().zip(self.service.exact.as_ref())?;
        let prompt = Prompt { keys, terms, exact, fleet: &self.view, rank: None, now };
        let question = Question {
            candidates: self.overlap.candidates(&prompt),
            blocks: u32::try_from(keys.len()).unwrap_or(u32::MAX),
            block_size: self.block_size,
            excluded: Excluded::default(),
            single_pool: true,
            tuning: &self.tuning,
        };
        exact::rank(&question, || exact.state.hit(), &mut self.ranking).ok()?;
        self.ranking.choices().iter().find_map(|choice| {
            let candidate = question.candidates.get(usize::from(choice.candidate))?;
            let endpoint = usize::from(candidate.endpoint);
            self.service.reserve(endpoint, choice.bound, now)?;
            Some(Choice { endpoint, reason: choice.reason, held: candidate.runs[0] })
        })
    }

    fn by_selector(&mut self, affinity: u64, now: Nanos) -> Option<Choice> {
        let mut facts = Facts { prefix: Some(affinity), ..Facts::default() };
        loop {
            let chosen = decide(&self.service, &facts, &self.view, &mut self.turn)?;
            if self.service.reserve(chosen.endpoint, chosen.load_bound, now).is_some() {
                return Some(Choice { endpoint: chosen.endpoint, reason: chosen.reason, held: 0 });
            }
            facts.excluded.add(chosen.endpoint);
        }
    }

    /// The first byte of an answer came: what was promised of its prompt is there.
    pub fn answered(&self, keys: &[u64], choice: Choice, now: Nanos) {
        if let Some(to) = self.destination(choice.endpoint) {
            self.promises.answered(promised_keys(keys, choice.held), to, now);
        }
    }

    /// The answer ended.
    pub fn settle(&self, endpoint: usize) {
        self.service.endpoints[endpoint].settle();
    }

    /// Requests charged now to all endpoints.
    #[cfg(test)]
    pub fn charged(&self) -> u32 {
        self.service.endpoints.iter().map(|endpoint| endpoint.reserved()).sum()
    }

    /// An engine tells of its cache.
    pub fn hear(&mut self, endpoint: usize, events: &[CacheEvent]) {
        let Some(holder) = self.holders.get(endpoint).copied() else { return };
        let copies = &mut self.copies[endpoint];
        for event in events {
            match event {
                CacheEvent::Stored { blocks, .. } => {
                    let keys: Vec<u64> = blocks.iter().map(|block| block.digest.first8()).collect();
                    keys.iter().for_each(|key| *copies.entry(*key).or_default() += 1);
                    self.writer.store(holder, &keys, blocks.first().map_or(0, |first| first.depth as u32));
                }
                CacheEvent::Removed { blocks, .. } => {
                    let keys = blocks.iter().map(|block| block.digest.first8());
                    let gone: Vec<u64> = keys.filter(|key| is_last(copies, *key)).collect();
                    self.writer.remove(holder, &gone);
                }
                CacheEvent::Moved { .. } | CacheEvent::Cleared => {}
            }
        }
        if let Some(exact) = &self.service.exact {
            exact.sources[endpoint].set_blocks(0, self.writer.held(holder) as u32, true);
        }
    }

    /// Blocks that the index has of an endpoint.
    #[cfg(test)]
    pub fn indexed(&self, endpoint: usize) -> usize {
        self.holders.get(endpoint).map_or(0, |holder| self.writer.held(*holder))
    }

    fn destination(&self, endpoint: usize) -> Option<Destination> {
        let exact = self.service.exact.as_ref()?;
        Some(Destination { source: exact.sources[endpoint].number(), rank: 0 })
    }
}

/// Takes one copy away; true if it was the last.
fn is_last(copies: &mut HashMap<u64, u32>, key: u64) -> bool {
    match copies.get_mut(&key) {
        Some(count @ 2..) => {
            *count -= 1;
            false
        }
        _ => copies.remove(&key).is_some(),
    }
}

/// Virtual time begins an hour after the gateway did.
pub const BEGIN: Nanos = 3_600_000 * MILLISECOND;

/// The rule, as an operator would write it.
fn rule(policy: &Policy, fleet: usize, block_tokens: u32) -> Value {
    let mut service = json!({"externalIP": "10.0.0.254", "port": 8080, "mode": 4, "sel": policy.selector()});
    if let Policy::Chwbl(factor) = policy {
        service["chwbl_mean_load_factor"] = json!(factor);
    }
    if policy.tuning().is_some() {
        service["kvExactMode"] = json!(3);
        service["kvHashAlgo"] = json!("tokens");
        service["kvBlockSize"] = json!(block_tokens);
        service["kvWarmupSec"] = json!(0);
    }
    let address = |index: usize| format!("10.1.{}.{}", index / 250, index % 250 + 1);
    let endpoint = |index| json!({"endpointIP": address(index), "targetPort": 8000, "weight": 1});
    json!({"serviceArguments": service, "endpoints": (0..fleet).map(endpoint).collect::<Vec<Value>>()})
}
