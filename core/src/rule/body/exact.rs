//! From checked members to the terms of exact routing. Owns what `kv…` members mean together with the
//! environment; which block hashes an engine has is the engine's answer.

use super::body_fault::{BodyFault, Class};
use super::given::Given;
use crate::SECOND;
use crate::block::BlockSize;
use crate::engine::{Algo, ContractFault, Engine, Version};
use crate::environment::Environment;
use crate::profile::binding::{ApiMode, Binding, ProfileTerms};
use crate::rule::{KvExact, KvPorts, RankMode};

/// Of a rule that asks for exact routing: its terms, or why there are none.
pub(super) fn exact(service: &Given, environment: &Environment) -> Result<Option<KvExact>, BodyFault> {
    let version = version(service)?;
    if !matches!(service.int("kvExactMode"), 1 | 3) {
        return Ok(None);
    }
    let engine = engine(service);
    let Some(algo) = algo(service, engine) else { return Ok(None) };
    let terms = environment.terms(version, algo, block_size(service, engine));
    let contract = engine.contract(&terms).map_err(|fault| refused(service, fault))?;
    let ranks = service.int("kvDpRankCount") as u8;
    let replay_offset = if engine.has_event_port() { environment.replay_offset } else { 0 };
    Ok(Some(KvExact {
        contract,
        version,
        ports: ports(service, ranks, replay_offset),
        ranks,
        rank_mode: match service.text("kvRankMode") {
            "union" => RankMode::Union,
            _ => RankMode::Pin,
        },
        profile: ProfileTerms {
            declared: ApiMode::from_word(service.text("kvExactApiMode")),
            id: service.text("kvModelProfile").to_string(),
            binding: Binding::default(),
        },
        warmup: service.int("kvWarmupSec").unsigned_abs() * SECOND,
    }))
}

/// `kvEngineType`; the schema knows no other words, and empty is vLLM.
pub(super) fn engine(service: &Given) -> Engine {
    Engine::from_name(service.text("kvEngineType")).unwrap_or(Engine::Vllm)
}

/// `kvZmqPort`, where 0 is the default.
pub(super) fn publish_port(service: &Given) -> u16 {
    match service.int("kvZmqPort") {
        0 => KvPorts::default().publish,
        port => port as u16,
    }
}

/// The hash that the rule names, or its engine's; `None` where blocks have no names.
fn algo(service: &Given, engine: Engine) -> Option<Algo> {
    Algo::from_name(service.text("kvHashAlgo")).or(engine.rule_default())
}

fn block_size(service: &Given, engine: Engine) -> BlockSize {
    let given = BlockSize::new(service.int("kvBlockSize").unsigned_abs());
    given.unwrap_or(engine.rule_block_size())
}

/// An offset that would lead beyond the last port, or to where another rank publishes, says nothing.
fn ports(service: &Given, ranks: u8, replay_offset: u16) -> KvPorts {
    let publish = publish_port(service);
    let ranks = u16::from(ranks.max(1));
    let guessed = publish
        .checked_add(replay_offset)
        .filter(|first| replay_offset >= ranks && first.checked_add(ranks - 1).is_some());
    let replay = match service.int("kvReplayPort") {
        0 => guessed.unwrap_or(0),
        port => port as u16,
    };
    KvPorts { publish, replay, bind: service.flag("kvZmqBind") }
}

fn version(service: &Given) -> Result<Option<Version>, BodyFault> {
    let text = service.text("kvEngineVersion");
    match Version::read(text) {
        None if !text.is_empty() => {
            let cure = "write it as the engine does, for example 0.28.0";
            Err(service.fault(Class::OutOfRange, "kvEngineVersion", "no version", cure))
        }
        version => Ok(version),
    }
}

fn refused(service: &Given, fault: ContractFault) -> BodyFault {
    let member = match fault {
        ContractFault::AlgorithmUnknown { .. } => "kvHashAlgo",
        ContractFault::BlockSize { .. } => "kvBlockSize",
        ContractFault::SeedUnset | ContractFault::SeedTooLong { .. } | ContractFault::Feature { .. } => {
            "kvExactMode"
        }
    };
    service.fault(Class::Contract(fault), member, &fault.problem(), fault.cure())
}
