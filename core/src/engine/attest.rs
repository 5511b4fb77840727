//! What an engine is asked before a rule with a model profile routes by its blocks, and how its answers are read. Owns
//! the list of questions and the forms that engines share; pure: asking is the caller's. Must never take an answer of
//! another form for silence.

use super::Version;
use crate::attest::{Reason, Told};
use serde::Deserialize;
use serde_json::Value;

/// A page that tells something of the engine.
#[derive(Debug)]
pub struct Page {
    /// What to `GET` where requests go.
    pub path: &'static str,
    /// Without it the engine is not known: another status than 200, or another form, is a contradiction. Where not, it
    /// may be missing.
    pub is_vital: bool,
    /// Reads a body that came with status 200; false: it is of another form.
    pub read: fn(&[u8], &mut Told) -> bool,
}

/// One engine's questions.
#[derive(Debug)]
pub struct Questions {
    /// Asked in this order, all of them.
    pub pages: &'static [Page],
    /// Where to `POST` a fixture for its tokens; `None`: nowhere.
    pub tokenize: Option<&'static str>,
    /// Id of the contract by which this version tells of its blocks, as the loxilb AI gateway's catalog has them.
    pub contract: fn(Option<Version>) -> &'static str,
    /// Whether it tells its block hash in the words of a rule.
    pub tells_hash: bool,
    pub(super) lacks: fn(&Told) -> Option<Reason>,
}

impl Questions {
    /// What an engine of this kind has to tell of itself and this one did not; `None`: it told all.
    pub fn lacks(&self, told: &Told) -> Option<Reason> {
        (self.lacks)(told)
    }

    /// The tokens of an answer of status 200; `None`: it is of another form.
    pub fn tokens(&self, body: &[u8]) -> Option<Vec<u32>> {
        let answer: Tokenized = serde_json::from_slice(body).ok()?;
        (answer.count == answer.tokens.len()).then_some(answer.tokens)
    }
}

/// The answer of `/tokenize` (vLLM 0.32, captured; SGLang 0.5.18 to 0.5.23, read).
#[derive(Deserialize)]
struct Tokenized {
    count: usize,
    tokens: Vec<u32>,
    #[serde(rename = "max_model_len")]
    _longest: u64,
}

pub(super) fn object(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok().filter(Value::is_object)
}

pub(super) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(super) fn number<N: TryFrom<u64>>(value: &Value) -> Option<N> {
    value.as_u64().and_then(|number| N::try_from(number).ok())
}

/// `{"version": …}` of vLLM and TensorRT-LLM.
pub(super) fn read_version(body: &[u8], told: &mut Told) -> bool {
    told.version = object(body).and_then(|answer| text(&answer["version"]));
    told.version.is_some()
}

/// The cards of `/v1/models`.
pub(super) fn read_models(body: &[u8], told: &mut Told) -> bool {
    let Some(answer) = object(body) else { return false };
    let Some(cards) = answer["data"].as_array() else { return false };
    told.models = cards.iter().filter_map(|card| text(&card["id"])).collect();
    true
}

#[cfg(test)]
mod tests;
