//! Handlers that show the gateway: readiness, metrics, shards, receipts.

use crate::answer::Answer;
use crate::compat;
use crate::gateway::Gateway;
use crate::health;
use crate::kv::endpoints;
use crate::metrics::{self, Facts};
use crate::refusal::Refusal;
use crate::rest::{forms, maintenance, models};
use crate::routes::{Answered, Call, Handler, Query, Route};
use serde_json::{Value, json};
use warmpath_core::Nanos;
use warmpath_core::control::{Count, DrainPhase, KvReport, ShardReport};
use warmpath_core::receipt::{Outcome, PairReceipt, Receipt};

/// Rows of the gateway's state.
pub const ROUTES: &[Route] = &[
    Route::reports("/netlox/v1/status/ready", ready, "200 if requests are welcome, else 503 with reasons")
        .gives(&forms::READY),
    Route::new("GET", "/netlox/v1/metrics", Handler::AllReports(metrics), "Prometheus text").gives_text(),
    Route::reports("/netlox/v1/shards", shards, "what each shard knows of itself"),
    Route::reports("/netlox/v1/receipts", receipts, "recent requests").query(&[
        Query::may("last", "how many, the newest; 50 unless said"),
        Query::may("since", "the cursor of an earlier answer: only those after it"),
    ]),
];

/// 200 while new requests are welcome, else 503; the same body for both. `warnings` are things to look at
/// that don't stop service.
pub fn ready(gateway: &Gateway, _: &Call, reports: &[ShardReport]) -> Answered {
    let mut reasons = Vec::new();
    if gateway.phase != DrainPhase::Serving {
        reasons.push("the gateway is going down".to_string());
    }
    reasons.extend(maintenance::reason(gateway));
    if reports.is_empty() {
        reasons.push("no shard answers".to_string());
    }
    let boot = &gateway.boot;
    let mut warnings = boot.notes.clone();
    warnings.extend(gateway.persist_fault.clone());
    warnings.extend(gateway.rules.warnings());
    warnings.extend(compat::warnings(&gateway.table));
    warnings.extend(health::warnings(&gateway.table));
    warnings.extend(maintenance::warnings(gateway));
    warnings.extend(models::warnings(&*gateway.outside.data_plane));
    let ready = reasons.is_empty();
    let mut body = json!({
        "ready": ready,
        "reasons": reasons,
        "warnings": warnings,
        "generation": gateway.table.generation,
        "rules": gateway.rules.entries().len(),
        "boot": {
            "profile": "strict",
            "snapshot_found": boot.snapshot_found,
            "succeeded": true,
            "generation": boot.generation,
            "quarantine_path": boot.quarantine_path,
            "legacy_fallback": false,
            "degraded": boot.quarantine_path.is_some(),
        },
        "external_dependencies": [],
        "ebpf_attachments": [],
        "auto_persist": true,
        "last_persist": {"succeeded": gateway.persist_fault.is_none(), "error": gateway.persist_fault},
        "last_restore": gateway.last_restore.map(|(at, generation)| {
            json!({"succeeded": true, "at": at.as_secs(), "generation": generation})
        }),
    });
    body.as_object_mut().into_iter().for_each(|body| body.extend(maintenance::state(gateway, reports)));
    Ok(Answer::json(if ready { 200 } else { 503 }, &body))
}

/// Prometheus text.
pub fn metrics(gateway: &Gateway, _: &Call, reports: &[ShardReport], kv: Option<&KvReport>) -> Answered {
    if !gateway.serves_metrics {
        return Err(Refusal::MetricsOff);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let facts = Facts {
        table: &gateway.table,
        phase: gateway.phase,
        maintenance: gateway.out_of_service.maintenance.is_some(),
        connections: gateway.outside.environment.connections,
        now: (gateway.outside.now)(),
        wall: (gateway.outside.wall)(),
        resident: metrics::resident(&status),
        reports,
        kv,
        kv_endpoints: &endpoints(&gateway.table, kv),
        attest: &gateway.attestor.borrow().facts((gateway.outside.now)()),
        scrapes: gateway.scrapers.borrow().counts(),
    };
    Ok(Answer::metrics(metrics::render(&facts)))
}

/// What each shard knows of itself, without its receipts.
pub fn shards(_: &Gateway, _: &Call, reports: &[ShardReport]) -> Answered {
    let shown: Vec<_> = reports.iter().map(shard).collect();
    Ok(Answer::json(200, &json!({"shards": shown})))
}

/// The newest receipts of all shards, oldest first. `cursor` is what to ask `since` for those after them.
pub fn receipts(gateway: &Gateway, call: &Call, reports: &[ShardReport]) -> Answered {
    let last = usize::try_from(call.number("last", 50)?).unwrap_or(usize::MAX);
    let since = call.number("since", 0)?;
    let mut all = Vec::new();
    for report in reports {
        all.extend(report.receipts.iter().filter(|r| since == 0 || r.at > since).map(|r| (report.shard, r)));
    }
    all.sort_by_key(|(_, r)| r.at);
    let newest = &all[all.len().saturating_sub(last)..];
    let cursor = newest.last().map_or(since, |(_, r)| r.at);
    let (now, wall) = ((gateway.outside.now)(), (gateway.outside.wall)());
    let shown: Vec<_> = newest
        .iter()
        .map(|(shard, r)| {
            let mut shown = receipt(gateway, r);
            let age = std::time::Duration::from_nanos(now.saturating_sub(r.at));
            shown["shard"] = json!(shard);
            shown["time_ms"] = json!(wall.saturating_sub(age).as_millis() as u64);
            shown
        })
        .collect();
    Ok(Answer::json(200, &json!({"receipts": shown, "cursor": cursor})))
}

/// A shard without its receipts.
pub fn shard(report: &ShardReport) -> Value {
    let counts: serde_json::Map<_, _> =
        report.counts.iter().map(|(c, n)| (count_word(*c).to_string(), json!(n))).collect();
    json!({
        "shard": report.shard,
        "generation": report.generation,
        "clients": report.clients,
        "upstreams": report.upstreams,
        "active": report.active,
        "turn_us_max": report.turn_us_max,
        "turn_max_stage": report.turn_max_stage,
        "counts": counts,
    })
}

fn receipt(gateway: &Gateway, receipt: &Receipt) -> Value {
    let services = || gateway.table.vips.iter().flat_map(|v| &v.services);
    let name = services().find(|s| s.number == receipt.service).map(|s| s.rule.name.as_str());
    json!({
        "at": receipt.at,
        "id": receipt.id,
        "status": receipt.status,
        "outcome": outcome_word(receipt.outcome),
        "endpoint": receipt.endpoint.map(|e| e.to_string()),
        "pair": receipt.pair.as_ref().map(pair),
        "reason": receipt.reason.map(|r| r.word()),
        "service": receipt.service,
        "rule": name,
        "model": receipt.model,
        "streamed": receipt.streamed,
        "first_byte_us": micros(receipt.first_byte),
        "total_us": micros(receipt.total),
        "bytes_out": receipt.bytes_out,
        "retries": receipt.retries,
    })
}

/// The other leg of a request that two endpoints served.
pub fn pair(pair: &PairReceipt) -> Value {
    json!({
        "prefill": pair.prefill.to_string(),
        "phase": pair.phase.word(),
        "prefill_us": micros(pair.prefill_took),
    })
}

fn micros(nanos: Nanos) -> u64 {
    nanos / 1_000
}

/// The word for how a request ended, as JSON prints it.
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Answered => "answered",
        Outcome::Faulted(fault) => fault.refusal().code,
        Outcome::ClientLeft => "client_left",
    }
}

/// The word for a counted event, as metrics and JSON print it.
pub fn count_word(count: Count) -> &'static str {
    match count {
        Count::Accepted => "accepted",
        Count::Requests => "requests",
        Count::Malformed => "malformed",
        Count::Streams => "streams",
        Count::Chunked => "chunked",
        Count::BytesOut => "bytes_out",
        Count::Connects => "connects",
        Count::ConnectFailures => "connect_failures",
        Count::Reused => "reused",
        Count::IdleClosed => "idle_closed",
        Count::Retired => "retired",
        Count::Replays => "replays",
        Count::Failovers => "failovers",
        Count::ClientsLeft => "clients_left",
        Count::MemoryWaits => "memory_waits",
        Count::Backpressure => "backpressure",
        Count::Starved => "starved",
        Count::Overflowed => "overflowed",
        Count::SlowClients => "slow_clients",
        Count::Ejections => "ejections",
        Count::AcceptsHeld => "accepts_held",
        Count::BreakerOpenings => "breaker_openings",
        Count::BreakerClosings => "breaker_closings",
        Count::BreakerHeals => "breaker_heals",
    }
}
