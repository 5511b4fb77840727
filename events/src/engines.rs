//! The engines' own answers to what events ask: how they are delivered, how their hashes are read, what a
//! removal takes, and where an engine says what of itself. Owns the dispatch; what is particular to one engine
//! is in its file, and nothing else of this crate branches on the engine.

mod sglang;
mod trtllm;
mod vllm;

use crate::facts::Facts;
use crate::residency::Removal;
use crate::wire::HashBytes;
use serde_json::Value;
use warmpath_core::engine::{Contract, Engine};
use warmpath_core::shared::Adapter;

/// How events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Each rank publishes.
    Published,
    /// All ranks' events are taken from the endpoint by POST to this path, once.
    Drained(&'static str),
    /// Not at all.
    Never,
}

/// A question to an engine's own port.
pub struct Probe {
    /// What to GET.
    pub path: &'static str,
    /// Whether it still needs asking, after those before it.
    pub is_needed: fn(&Facts) -> bool,
    /// Reads a body that came with status 200.
    pub read: fn(&[u8], &mut Facts),
}

/// How the events of an engine come.
pub fn delivery(engine: Engine) -> Delivery {
    match engine {
        Engine::Vllm | Engine::Sglang => Delivery::Published,
        Engine::Trtllm => Delivery::Drained(trtllm::EVENTS),
        Engine::Llamacpp => Delivery::Never,
    }
}

/// What to ask an engine, in order.
pub fn probes(engine: Engine) -> &'static [Probe] {
    match engine {
        Engine::Vllm => vllm::PROBES,
        Engine::Sglang => sglang::PROBES,
        Engine::Trtllm => trtllm::PROBES,
        Engine::Llamacpp => &[],
    }
}

/// The block hash that an engine has to tell for a contract, in its words; `None`: it need not tell one.
pub fn expected_algorithm(contract: &Contract) -> Option<&'static str> {
    match contract.engine() {
        Engine::Vllm => (!contract.is_by_tokens()).then(|| contract.algo().name()),
        Engine::Trtllm => Some(trtllm::HASH),
        Engine::Sglang | Engine::Llamacpp => None,
    }
}

/// Which bytes of a byte-string hash name a block.
pub fn naming(engine: Engine) -> HashBytes {
    match engine {
        Engine::Sglang => HashBytes::First,
        _ => HashBytes::Last,
    }
}

/// How many copies a removal takes.
pub fn removal(engine: Engine) -> Removal {
    match engine {
        Engine::Trtllm => Removal::All,
        _ => Removal::One,
    }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// `/version` of vLLM and TensorRT-LLM.
fn read_version(body: &[u8], facts: &mut Facts) {
    facts.version = text(&json(body)["version"]);
}

/// `/v1/models`: adapters are models too.
/// Cards with a parent are adapters; their root is the path that vLLM hashes from 0.31 on (vLLM 0.32, captured).
fn read_models(body: &[u8], facts: &mut Facts) {
    let answer = json(body);
    let Some(cards) = answer["data"].as_array() else { return };
    facts.models = Some(cards.iter().filter_map(|card| text(&card["id"])).collect());
    let adapters = cards.iter().filter(|card| !card["parent"].is_null());
    let adapter = |card: &Value| Some(Adapter { name: text(&card["id"])?, path: text(&card["root"]) });
    facts.adapters = adapters.filter_map(adapter).collect();
}

fn always(_: &Facts) -> bool {
    true
}

#[cfg(test)]
mod tests;
