//! The report of a replay: a table for people, JSON for programs, a page with plots. Owns their words; must never
//! leave out what was assumed.

use super::engine::Model;
use super::outcome::Outcome;
use super::page;
use serde::Serialize;
use std::fmt::Write;

/// All of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where the requests are from.
    pub trace: String,
    /// How many.
    pub requests: usize,
    /// Tokens in a block of the trace.
    pub block_tokens: u32,
    /// From the first arrival to the last, seconds.
    pub seconds: f64,
    /// What each engine was taken to be like.
    pub model: Model,
    /// A row for each policy and fleet.
    pub rows: Vec<Row>,
}

/// One policy over one fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The policy's word.
    pub policy: String,
    /// Endpoints.
    pub fleet: usize,
    /// Prompt tokens that one cache of the fleet's size would find, under the engine's own eviction.
    pub oracle_tokens: u64,
    /// Prompt tokens that were sent before at all.
    pub seen_tokens: u64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Row {
    /// Share of prompt tokens that were found.
    pub fn hits(&self) -> f64 {
        share(self.outcome.hit_tokens, self.outcome.prompt_tokens)
    }

    /// Found ÷ what one cache of the fleet's size would find.
    pub fn of_oracle(&self) -> f64 {
        share(self.outcome.hit_tokens, self.oracle_tokens)
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

const HEAD: &str = "policy             fleet   hits  ÷oracle   TTFT p50      p90      p99   TPOT p50     p99  \
                    load max÷mean  busy  refused\n";

impl Report {
    /// The table.
    pub fn text(&self) -> String {
        let mut text = self.assumptions();
        text.push_str("\n\n");
        text.push_str(HEAD);
        for row in &self.rows {
            let Outcome { first_token: ttft, between_tokens: tpot, .. } = &row.outcome;
            let _ = writeln!(
                text,
                "{:<18} {:>5} {:>5.1}%  {:>6.3}  {:>6.0} ms {:>5.0} ms {:>5.0} ms  {:>5.1} ms {:>4.0} ms  {:>13.2} {:>4.0}%  {:>7}",
                row.policy,
                row.fleet,
                100.0 * row.hits(),
                row.of_oracle(),
                ttft.p50_ms,
                ttft.p90_ms,
                ttft.p99_ms,
                tpot.p50_ms,
                tpot.p99_ms,
                row.outcome.imbalance_load,
                100.0 * row.outcome.utilization,
                row.outcome.refused,
            );
        }
        text
    }

    /// In one sentence, what the figures rest on.
    pub fn assumptions(&self) -> String {
        let Model { cache_tokens, seats, step_tokens, step, prompt_token, answer_token } = &self.model;
        let ms = |nanos: &u64| *nanos as f64 / 1e6;
        format!(
            "{}: {} requests in {:.0} s, blocks of {} tokens. Each engine (simulated): cache of {cache_tokens} tokens, \
             {seats} seats, steps of {step_tokens} tokens that take {} ms, {} ms more for each prompt token computed \
             and {} for each answer decoded.",
            self.trace,
            self.requests,
            self.seconds,
            self.block_tokens,
            ms(step),
            ms(prompt_token),
            ms(answer_token),
        )
    }

    /// As JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As a page that needs nothing else.
    pub fn page(&self) -> String {
        page::of(self)
    }
}
