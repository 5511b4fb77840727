//! Handlers of the KV side: what the event core knows, the blocks of an endpoint, taking a stream over. Own
//! the JSON of it; must never ask the event core on the admin thread.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::kv::{KvEndpoint, endpoints};
use crate::refusal::Refusal;
use crate::routes::{Call, KvAsk, Query, Route};
use crate::trust::EndpointTrust;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::Nanos;
use warmpath_core::control::{DrainPhase, KvPlane, KvReport, RankReport, SourceReport};
use warmpath_core::shared::{Fence, Source, Tier};
use warmpath_core::table::Table;

/// Blocks in an answer unless said otherwise, and at most.
const LIMIT: u64 = 10_000;
const LIMIT_MAX: u64 = 100_000;

/// Keys that the event core is asked for at once.
const PAGE: usize = 10_000;

/// Questions to the event core for one answer: where it gives less than it was asked for, the rest is left to
/// the next page.
const PAGES_MAX: usize = 64;

const SERVICE_WANTED: &str = "the number of a service";
const ENDPOINT_WANTED: &str = "the index of an endpoint, counted from 0";

const SERVICE: Query = Query::must("service_id", SERVICE_WANTED);
const ENDPOINT: Query = Query::must("ep_idx", ENDPOINT_WANTED);

/// Rows of what engines hold.
pub const ROUTES: &[Route] = &[
    Route::event_core(
        "GET",
        "/netlox/v1/config/ai/kv/status",
        status,
        "the event core, its sources and ranks",
    ),
    Route::event_core("GET", "/netlox/v1/config/ai/kv/inventory", inventory, "blocks of one endpoint").query(
        &[
            SERVICE,
            ENDPOINT,
            Query::may("rank", "one data-parallel rank"),
            Query::may("tier", "gpu, host or disk"),
            Query::may("limit", "how many, at most"),
            Query::may("from", "where the page before ended"),
        ],
    ),
    Route::event_core(
        "POST",
        "/netlox/v1/config/ai/kv/reacquire",
        reacquire,
        "take a drained stream over again",
    )
    .query(&[SERVICE, ENDPOINT]),
];

/// The index, and every endpoint of exact rules with all that the event core knows of it.
pub fn status(gateway: &Gateway, _: &Call) -> Result<KvAsk, Refusal> {
    let (table, clock, wall) = (gateway.table.clone(), gateway.outside.now, gateway.outside.wall);
    Ok(Box::new(move |kv| {
        let report = kv.report().ok_or(Refusal::KvSilent)?;
        Ok(Answer::json(200, &status_body(&table, &report, &Moment { now: clock(), wall: wall() })))
    }))
}

/// The blocks of one endpoint, a page of them.
pub fn inventory(gateway: &Gateway, call: &Call) -> Result<KvAsk, Refusal> {
    let ask = InventoryAsk::read(&gateway.table, call)?;
    Ok(Box::new(move |kv| {
        let report = report_of(kv, &ask.place.source)?;
        let listing = ask.collect(kv).ok_or(Refusal::KvSilent)?;
        Ok(inventory_answer(&ask, &report, &listing))
    }))
}

/// Takes a drained stream over, after another reader was detected.
pub fn reacquire(gateway: &Gateway, call: &Call) -> Result<KvAsk, Refusal> {
    if gateway.phase != DrainPhase::Serving {
        return Err(Refusal::Draining);
    }
    let source = Place::read(&gateway.table, call)?.source;
    Ok(Box::new(move |kv| {
        if report_of(kv, &source)?.transport != "drain" {
            return Err(Refusal::NotDrained(source.spec().endpoint));
        }
        match kv.reacquire(source.number()) {
            true => Ok(Answer::success()),
            false => Err(Refusal::KvSilent),
        }
    }))
}

fn report_of(kv: &dyn KvPlane, source: &Source) -> Result<SourceReport, Refusal> {
    let report = kv.report().ok_or(Refusal::KvSilent)?;
    report.sources.into_iter().find(|s| s.source == source.number()).ok_or(Refusal::KvSilent)
}

/// An endpoint of a service with exact routing.
struct Place {
    service: u32,
    index: usize,
    source: Arc<Source>,
    /// Why the service leaves it out, other than for what its source says.
    fence: Option<Fence>,
}

impl Place {
    /// What `service_id` and `ep_idx` name.
    fn read(table: &Table, call: &Call) -> Result<Place, Refusal> {
        let service: u32 = number(call, "service_id", SERVICE_WANTED)?;
        let index: u32 = number(call, "ep_idx", ENDPOINT_WANTED)?;
        let found = table.services().find(|s| s.number == service).ok_or(Refusal::NoService(service))?;
        let exact = found.exact.as_ref().ok_or(Refusal::NotExact(service))?;
        let sources = &exact.sources;
        let none = Refusal::NoEndpoint { service, index, count: sources.len() };
        let source = sources.get(index as usize).ok_or(none)?.clone();
        let fence = exact.fences().nth(index as usize).flatten().filter(|fence| *fence == Fence::Version);
        Ok(Place { service, index: index as usize, source, fence })
    }
}

/// A query member that must be there, as a number.
fn number<T: FromStr>(call: &Call, name: &'static str, allowed: &'static str) -> Result<T, Refusal> {
    let text = call.needed(name, allowed)?;
    text.parse().map_err(|_| bad(name, text, allowed))
}

fn bad(name: &'static str, value: &str, allowed: &'static str) -> Refusal {
    Refusal::Argument { name, value: value.into(), allowed }
}

/// Where a page begins: `RANK:PLACE`, as an answer's `next` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    rank: u8,
    at: u64,
}

impl Cursor {
    fn read(text: &str) -> Option<Cursor> {
        let (rank, at) = text.split_once(':')?;
        Some(Cursor { rank: rank.parse().ok()?, at: at.parse().ok()? })
    }
}

impl Display for Cursor {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.rank, self.at)
    }
}

/// What an inventory is asked for.
struct InventoryAsk {
    place: Place,
    /// The first rank and the one after the last.
    ranks: (u8, u8),
    tier: Tier,
    from: Cursor,
    limit: usize,
}

/// The blocks of one page.
struct Listing {
    /// Rank and key of each.
    keys: Vec<(u8, u64)>,
    /// Blocks in all, of the ranks that were asked.
    totals: BTreeMap<u8, u64>,
    next: Option<Cursor>,
}

impl InventoryAsk {
    fn read(table: &Table, call: &Call) -> Result<InventoryAsk, Refusal> {
        let place = Place::read(table, call)?;
        let ranks = match call.query("rank") {
            None => (0, place.source.spec().ranks),
            Some(text) => {
                let known = text.parse().ok().filter(|rank| *rank < place.source.spec().ranks);
                let rank: u8 = known.ok_or(bad("rank", text, "a rank of this endpoint, counted from 0"))?;
                (rank, rank + 1)
            }
        };
        let from = match call.query("from") {
            None => Cursor { rank: ranks.0, at: 0 },
            Some(text) => {
                let asked = |from: &Cursor| (ranks.0..ranks.1).contains(&from.rank);
                let wanted = "the `next` of the page before, asked for the same ranks";
                Cursor::read(text).filter(asked).ok_or(bad("from", text, wanted))?
            }
        };
        Ok(InventoryAsk { place, ranks, tier: tier(call)?, from, limit: limit(call)? })
    }

    /// Asks rank by rank until the page is full; `None` if the event core does not answer.
    fn collect(&self, kv: &dyn KvPlane) -> Option<Listing> {
        let mut listing = Listing { keys: Vec::new(), totals: BTreeMap::new(), next: None };
        let mut at = self.from;
        for _ in 0..PAGES_MAX {
            let room = self.limit.saturating_sub(listing.keys.len()).min(PAGE);
            let source = self.place.source.number();
            let page = kv.inventory(source, at.rank, self.tier, at.at, room)?;
            listing.totals.insert(at.rank, page.total);
            listing.keys.extend(page.keys.iter().map(|key| (at.rank, *key)));
            at = match page.next {
                Some(next) => Cursor { at: next, ..at },
                None if at.rank + 1 < self.ranks.1 => Cursor { rank: at.rank + 1, at: 0 },
                None => return Some(listing),
            };
            if listing.keys.len() >= self.limit {
                break;
            }
        }
        listing.next = Some(at);
        Some(listing)
    }

    /// Blocks of all ranks that the question is about; of those that this page did not reach, as the report
    /// has them.
    fn total(&self, report: &SourceReport, listing: &Listing) -> u64 {
        let reported =
            |rank: u8| report.ranks.get(usize::from(rank)).map_or(0, |r| r.blocks[self.tier as usize]);
        let of = |rank| listing.totals.get(&rank).copied().unwrap_or_else(|| reported(rank));
        (self.ranks.0..self.ranks.1).map(of).sum()
    }
}

fn tier(call: &Call) -> Result<Tier, Refusal> {
    let Some(word) = call.query("tier") else { return Ok(Tier::Gpu) };
    let known = Tier::ALL.into_iter().find(|tier| tier.word() == word);
    known.ok_or(bad("tier", word, "gpu, host or disk"))
}

fn limit(call: &Call) -> Result<usize, Refusal> {
    let given = call.number("limit", LIMIT)?;
    match (1..=LIMIT_MAX).contains(&given) {
        true => Ok(given as usize),
        false => Err(bad("limit", &given.to_string(), "a number from 1 to 100000")),
    }
}

/// `service_id`, `ep_idx`, `hash_algo`, `blocks` and `total` are those of the loxilb AI gateway. The list can
/// be long, so that its text is written as it is, without a tree of values in between.
fn inventory_answer(ask: &InventoryAsk, report: &SourceReport, listing: &Listing) -> Answer {
    let spec = ask.place.source.spec();
    let ranks = report.ranks.iter().enumerate().map(|(rank, r)| {
        json!({"rank": rank, "connected": r.connected, "standing": r.standing, "reason": r.reason})
    });
    let mut head = json!({
        "service_id": ask.place.service,
        "ep_idx": ask.place.index,
        "endpoint": spec.endpoint.to_string(),
        "hash_algo": spec.contract.algo().name(),
        "tier": ask.tier.word(),
        "fence": report.fence.or(ask.place.fence).map(|fence| fence.word()),
        "findings": report.findings,
        "ranks": ranks.collect::<Vec<_>>(),
        "total": ask.total(report, listing),
    });
    if let Some(next) = listing.next {
        head["next"] = json!(next.to_string());
    }
    let mut body = String::from("{\"blocks\":[");
    for (index, (rank, key)) in listing.keys.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let of_rank = if spec.ranks > 1 { format!(",\"rank\":{rank}") } else { String::new() };
        // Writing to a string can't fail.
        let _ = write!(body, "{comma}{{\"block_idx\":{index},\"hash_uint64\":{key}{of_rank}}}");
    }
    body.push_str("],");
    body.push_str(&head.to_string()[1..]);
    body.push('\n');
    Answer { status: 200, content_type: "application/json", header: None, body: body.into_bytes() }
}

/// One moment on both clocks.
struct Moment {
    now: Nanos,
    wall: Duration,
}

fn status_body(table: &Table, report: &KvReport, at: &Moment) -> Value {
    let shown: Vec<_> = endpoints(table, Some(report)).iter().map(|e| endpoint(e, at)).collect();
    json!({
        "index": {
            "blocks": report.index_blocks,
            "capacity": report.index_capacity,
            "bytes": report.index_bytes,
            "refused": report.refused,
        },
        "proofs_dropped": report.proofs_dropped,
        "cpu_us": report.cpu / 1_000,
        "endpoints": shown,
    })
}

/// One endpoint. While the event core does not know it, its `ranks` are empty.
fn endpoint(endpoint: &KvEndpoint, at: &Moment) -> Value {
    let (rule, spec, report) = (&endpoint.service.rule, endpoint.source.spec(), endpoint.report);
    let ranks = report.iter().flat_map(|r| r.ranks.iter().enumerate());
    json!({
        "service_id": endpoint.service.number,
        "rule": rule.name,
        "model": rule.key.model,
        "ep_idx": endpoint.index,
        "endpoint": spec.endpoint.to_string(),
        "source": endpoint.source.number(),
        "engine": spec.engine().name(),
        "hash_algo": spec.contract.algo().name(),
        "block_size": spec.contract.block_size().tokens(),
        "capacity": endpoint.source.capacity(),
        "transport": report.map(|r| r.transport),
        "version": report.map(|r| &r.version),
        "fence": endpoint.fence.map(|fence| fence.word()),
        "findings": report.map_or(&[][..], |r| &r.findings),
        "trust": EndpointTrust::of(endpoint).json(),
        "ranks": ranks.map(|(number, r)| rank(number, r, at)).collect::<Vec<_>>(),
    })
}

fn rank(number: usize, rank: &RankReport, at: &Moment) -> Value {
    let age = (rank.last_event > 0).then(|| Duration::from_nanos(at.now.saturating_sub(rank.last_event)));
    let blocks: serde_json::Map<_, _> =
        Tier::ALL.iter().map(|t| (t.word().to_string(), json!(rank.blocks[*t as usize]))).collect();
    json!({
        "rank": number,
        "connected": rank.connected,
        "standing": rank.standing,
        "reason": rank.reason,
        "sequence": rank.sequence,
        "last_event_ms": age.map(|age| at.wall.saturating_sub(age).as_millis() as u64),
        "last_event_age_us": age.map(|age| age.as_micros() as u64),
        "blocks": blocks,
        "reconnects": rank.reconnects,
        "receive_errors": rank.receive_errors,
        "batches": rank.batches,
        "stored": rank.stored,
        "removed": rank.removed,
        "cleared": rank.cleared,
        "schema_mismatch": rank.schema_mismatch,
        "undecodable": rank.undecodable,
        "rank_mismatch": rank.rank_mismatch,
        "refused": rank.refused,
        "waiting": rank.waiting,
        "replays": rank.replays,
        "observed": rank.observed,
        "learned": rank.learned,
    })
}

#[cfg(test)]
mod tests;
