//! What a simulated engine counted, as `GET /sim/stats` and `Handle::stats` show it.
//! Must never drop a count silently: past the bound on names they are counted in one figure.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

/// Request ids and prompts counted by name; further ones only in the total.
const MAX_NAMES: usize = 200_000;
/// Heads kept verbatim.
const MAX_HEADS: usize = 32;

/// How often the engine began to serve requests. An execution begins once a well-formed inference
/// request was read whole, before any fault; a refused request (unknown path, bad JSON) is none.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Executions {
    /// All of them.
    pub total: u64,
    /// By the value of X-Request-Id.
    pub by_request_id: BTreeMap<String, u64>,
    /// By the digest of the prompt's tokens, 16 hexadecimal digits.
    pub by_prompt: BTreeMap<String, u64>,
    /// Executions whose id or prompt was not named for lack of room.
    pub unnamed: u64,
}

/// A request body, told so that a test can compare it with what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BodySeen {
    /// Bytes, framing removed.
    pub length: u64,
    /// `text::Digest::of` its bytes.
    pub digest: u64,
}

/// Token counts since start or reset.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tokens {
    /// Prompt tokens of executed requests.
    pub prompt: u64,
    /// Of these, found in the prefix cache.
    pub cached: u64,
    /// Tokens generated.
    pub generated: u64,
}

/// What proves that prompts went from one engine to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PairCounts {
    /// Prompts computed for another engine.
    pub prefills: u64,
    /// Requests that went on from what another engine computed.
    pub decodes: u64,
    /// Requests that a decode engine computed from their beginning.
    pub recomputes: u64,
    /// Blocks handed over at the door.
    pub blocks_sent: u64,
    /// Blocks taken from a door.
    pub blocks_received: u64,
    /// Prompt tokens in them.
    pub tokens_received: u64,
    /// Media encoded for prefill engines.
    pub encodings: u64,
    /// Encodings taken from encoders' doors.
    pub encodings_received: u64,
    /// Media that a prefill engine had to encode itself.
    pub encoded_here: u64,
    /// Handles that wait to be taken now.
    pub held: u64,
    /// Handles whose lease ended before anybody came.
    pub orphans: u64,
    /// Legs that waited for the other in vain.
    pub timeouts: u64,
    /// Legs that failed for want of the other: it left, or its door was not reached.
    pub failed: u64,
    /// What callers did wrong, by name.
    pub violations: BTreeMap<&'static str, u64>,
}

/// Everything counted.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Executions begun and not ended, those waiting for a place included.
    pub running: u64,
    /// Of these, waiting for a place (`max_running`).
    pub waiting: u64,
    /// Executions.
    pub executions: Executions,
    /// Executions whose answer was sent whole.
    pub finished: u64,
    /// Executions given up because the client left.
    pub aborted: u64,
    /// Executions that a fault switch ended, or that failed for want of a pair's other leg.
    pub faulted: u64,
    /// Requests answered 4xx or 5xx.
    pub errors: u64,
    /// Request heads that were not HTTP.
    pub malformed: u64,
    /// Tokens.
    pub tokens: Tokens,
    /// Blocks in the prefix cache now.
    pub blocks: u64,
    /// Of prefill and decode.
    pub pair: PairCounts,
    /// Requests by "METHOD path", `/sim/…` excluded.
    pub by_path: BTreeMap<String, u64>,
    /// The last body of each X-Request-Id on an inference path.
    pub bodies: BTreeMap<String, BodySeen>,
    /// The last heads received, oldest first, verbatim, `/sim/…` excluded.
    pub last_heads: VecDeque<String>,
}

impl Stats {
    /// Counts a request head.
    pub fn saw(&mut self, method: &str, path: &str, raw: &str) {
        let name = format!("{method} {path}");
        if self.by_path.len() < MAX_NAMES || self.by_path.contains_key(&name) {
            *self.by_path.entry(name).or_default() += 1;
        }
        if self.last_heads.len() == MAX_HEADS {
            self.last_heads.pop_front();
        }
        self.last_heads.push_back(raw.to_owned());
    }

    /// Counts the begin of an execution.
    pub fn begin(&mut self, request_id: Option<&str>, prompt: u64) {
        self.running += 1;
        let executions = &mut self.executions;
        executions.total += 1;
        if executions.by_request_id.len().max(executions.by_prompt.len()) >= MAX_NAMES {
            executions.unnamed += 1;
            return;
        }
        if let Some(id) = request_id {
            *executions.by_request_id.entry(id.to_owned()).or_default() += 1;
        }
        *executions.by_prompt.entry(format!("{prompt:016x}")).or_default() += 1;
    }

    /// Notes a body.
    pub fn saw_body(&mut self, request_id: Option<&str>, seen: BodySeen) {
        if let Some(id) = request_id.filter(|_| self.bodies.len() < MAX_NAMES) {
            self.bodies.insert(id.to_owned(), seen);
        }
    }

    /// Counts something that a caller did wrong.
    pub fn violation(&mut self, name: &'static str) {
        *self.pair.violations.entry(name).or_default() += 1;
    }

    /// Executions that have a place now.
    pub fn executing(&self) -> u64 {
        self.running - self.waiting
    }

    /// Executions counted for one X-Request-Id.
    pub fn executions_of(&self, request_id: &str) -> u64 {
        self.executions.by_request_id.get(request_id).copied().unwrap_or(0)
    }

    /// Forgets all counts but those of what is open or running now.
    pub fn reset(&mut self) {
        *self = Stats { open: self.open, running: self.running, waiting: self.waiting, ..Stats::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_counted_by_id_and_prompt() {
        let mut stats = Stats::default();
        stats.begin(Some("a"), 1);
        stats.begin(Some("a"), 1);
        stats.begin(None, 2);
        assert_eq!(stats.executions_of("a"), 2);
        assert_eq!(stats.executions.total, 3);
        assert_eq!(stats.executions.by_prompt["0000000000000001"], 2);
        stats.reset();
        assert_eq!((stats.running, stats.executions.total), (3, 0));
    }

    #[test]
    fn only_the_last_heads_are_kept() {
        let mut stats = Stats::default();
        (0..100).for_each(|i| stats.saw("GET", "/health", &format!("head {i}")));
        assert_eq!(stats.last_heads.len(), MAX_HEADS);
        assert_eq!(stats.last_heads.back().map(String::as_str), Some("head 99"));
        assert_eq!(stats.by_path["GET /health"], 100);
    }
}
