//! The handler that explains decisions: where the last requests went, what was known of each endpoint, and why.
//! Owns the JSON of it; must never show an address that may not be the one that was meant.

use super::status::{outcome_word, pair};
use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use crate::routes::{Answered, Call, Query, Route};
use crate::why;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use warmpath_core::Nanos;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::exact::{ANY_RANK, Outcome, Shown};
use warmpath_core::receipt::{ExactReceipt, ID_MAX, Receipt};
use warmpath_core::table::{Service, Table};

/// Decisions in an answer unless said otherwise.
const LIMIT: u64 = 20;

/// Rows of decisions.
pub const ROUTES: &[Route] = &[Route::reports(
    "/netlox/v1/config/ai/explain",
    explain,
    "where the last requests went and why, newest first",
)
.query(&[
    Query::may("id", "the X-Request-Id of one request"),
    Query::may("limit", "how many, at most; 20 unless said"),
    Query::may("since", "the cursor of an earlier answer: only those after it"),
])];

/// The last decisions of all shards, newest first, or all that is known of one id. `cursor` is what to ask
/// `since` for those after them.
pub fn explain(gateway: &Gateway, call: &Call, reports: &[ShardReport]) -> Answered {
    let limit = usize::try_from(call.number("limit", LIMIT)?).unwrap_or(usize::MAX);
    let since = call.number("since", 0)?;
    let id = call.query("id");
    let mut found: Vec<(usize, &Receipt)> = Vec::new();
    for report in reports {
        let wanted = report.receipts.iter().filter(|receipt| is_wanted(receipt, id, since));
        found.extend(wanted.map(|receipt| (report.shard, receipt)));
    }
    if let Some(id) = id
        && found.is_empty()
    {
        return Err(Refusal::NoReceipt(id.into()));
    }
    found.sort_by_key(|(shard, receipt)| (std::cmp::Reverse(receipt.at), *shard));
    found.truncate(limit);
    let cursor = found.first().map_or(since, |(_, receipt)| receipt.at);
    let moment = Moment { now: (gateway.outside.now)(), wall: (gateway.outside.wall)() };
    let shown = found.iter().map(|(shard, receipt)| decision(&gateway.table, *shard, receipt, &moment));
    Ok(Answer::json(200, &json!({"decisions": shown.collect::<Vec<_>>(), "cursor": cursor})))
}

/// By its id whatever became of it; else only what a service decided on. Of long ids receipts keep the
/// beginning, of those that the gateway made for a pair the end.
fn is_wanted(receipt: &Receipt, id: Option<&str>, since: Nanos) -> bool {
    let meant = match id {
        Some(id) => {
            let of_pair = id.starts_with("___prefill_addr_") && receipt.pair.is_some();
            receipt.id == id
                || receipt.id.len() >= ID_MAX && id.starts_with(&receipt.id)
                || of_pair && id.strip_suffix(&receipt.id).is_some_and(|front| front.ends_with('_'))
        }
        None => receipt.reason.is_some() || receipt.exact.is_some(),
    };
    meant && (since == 0 || receipt.at > since)
}

/// One moment on two clocks.
struct Moment {
    now: Nanos,
    wall: Duration,
}

fn decision(table: &Table, shard: usize, receipt: &Receipt, moment: &Moment) -> Value {
    let service = table.services().find(|s| s.number == receipt.service).map(|s| s.as_ref());
    let age = Duration::from_nanos(moment.now.saturating_sub(receipt.at));
    let mut shown = json!({
        "at": receipt.at,
        "time_ms": moment.wall.saturating_sub(age).as_millis() as u64,
        "age_us": age.as_micros() as u64,
        "shard": shard,
        "id": receipt.id,
        "service_id": receipt.service,
        "rule": service.map(|s| s.rule.name.as_str()),
        "model": receipt.model,
        "endpoint": receipt.endpoint.map(|e| e.to_string()),
        "pair": receipt.pair.as_ref().map(pair),
        "rank": receipt.exact.and_then(|e| e.rank),
        "tier": receipt.reason.map(|r| r.tier()),
        "reason": receipt.reason.map(|r| r.word()),
        "why": receipt.reason.map(why::selected),
        "status": receipt.status,
        "outcome": outcome_word(receipt.outcome),
        "exact": null,
    });
    if let Some(exact) = &receipt.exact {
        let endpoints = Endpoints::new(service, receipt.endpoint, exact);
        shown["exact"] = exact_part(exact, &endpoints);
    }
    shown
}

/// What exact routing saw and did. A request that it left to the selector was predicted nothing.
fn exact_part(exact: &ExactReceipt, endpoints: &Endpoints) -> Value {
    let explanation = &exact.explanation;
    let (chosen, missed) = (exact.chosen(), exact.missed());
    let shown = explanation.shown().iter().map(|candidate| candidate_part(candidate, endpoints));
    json!({
        "prompt_tokens": counted(exact.prompt_tokens),
        "prompt_blocks": counted(explanation.blocks),
        "overlap_blocks": chosen.map(|c| c.runs[0]),
        "promised_blocks": chosen.map(|c| c.promised),
        "predicted_tokens": chosen.map(|_| exact.predicted_tokens),
        "cached_tokens": exact.cached_tokens,
        "finding": exact.finding.map(|finding| finding.word()),
        "missed": missed.map(|m| m.word()),
        "missed_why": missed.map(why::missed),
        "passed_over": passed_over(exact, endpoints),
        "refused": refused(exact),
        "candidate_count": explanation.candidates,
        "candidates": shown.collect::<Vec<_>>(),
    })
}

/// Nothing where it did not come to counting.
fn counted(number: u32) -> Option<u32> {
    (number > 0).then_some(number)
}

/// Places of the list that were refused before the one that was taken.
fn refused(exact: &ExactReceipt) -> u16 {
    match exact.explanation.outcome {
        Outcome::Chosen { refused, .. } => refused,
        Outcome::Missed(_) => 0,
    }
}

fn passed_over(exact: &ExactReceipt, endpoints: &Endpoints) -> Value {
    let Outcome::Chosen { reason, instead_of: Some(index), refused, .. } = exact.explanation.outcome else {
        return Value::Null;
    };
    let mut shown = exact.explanation.shown().iter().skip(1);
    let full = shown.find(|c| c.endpoint == index).is_some_and(|c| c.load >= c.cap);
    json!({
        "ep_idx": index,
        "endpoint": endpoints.name(index),
        "why": why::passed_over(reason, full, refused > 0),
    })
}

fn candidate_part(candidate: &Shown, endpoints: &Endpoints) -> Value {
    let [gpu, host, disk] = candidate.runs;
    json!({
        "ep_idx": candidate.endpoint,
        "endpoint": endpoints.name(candidate.endpoint),
        "rank": (candidate.rank != ANY_RANK).then_some(candidate.rank),
        "blocks": {"gpu": gpu, "host": host, "disk": disk},
        "promised": candidate.promised,
        "load": candidate.load,
        "cap": (candidate.cap != u32::MAX).then_some(candidate.cap),
        "untrusted": candidate.untrusted,
        "unproven": candidate.unproven.map(|reason| reason.word()),
    })
}

/// What the indices of a decision mean.
struct Endpoints<'a> {
    service: Option<&'a Service>,
    /// The one whose address the receipt itself tells.
    chosen: Option<(u16, SocketAddr)>,
}

impl<'a> Endpoints<'a> {
    /// By the rule in force, unless that puts another address in the place of the one that was chosen: then the
    /// rule was replaced since, and what the other indices meant is not known.
    fn new(service: Option<&'a Service>, went_to: Option<SocketAddr>, exact: &ExactReceipt) -> Endpoints<'a> {
        let chosen = exact.chosen().map(|c| c.endpoint).zip(went_to);
        let fits = |service: &&Service| {
            chosen.is_none_or(|(index, address)| {
                service.endpoints.get(usize::from(index)).is_some_and(|e| e.address() == address)
            })
        };
        Endpoints { service: service.filter(fits), chosen }
    }

    /// Its address, or `#` and the index.
    fn name(&self, index: u16) -> String {
        let own = self.chosen.filter(|(chosen, _)| *chosen == index).map(|(_, address)| address);
        let in_force = || Some(self.service?.endpoints.get(usize::from(index))?.address());
        own.or_else(in_force).map_or_else(|| format!("#{index}"), |address| address.to_string())
    }
}

#[cfg(test)]
mod tests;
