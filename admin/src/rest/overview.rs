//! What the web page shows beside the answers of other paths: rules with their endpoints, gates and decisions, and the
//! shards' sums. Owns the JSON of it; must never carry a prompt, nor a figure that metrics count otherwise.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::rest::gate;
use crate::routes::{Answered, Call, Route};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use warmpath_core::Nanos;
use warmpath_core::control::{Count, DrainPhase, FIRST_BYTE_BUCKETS_US, ShardReport};
use warmpath_core::shared::{EndpointState, LOAD_STALE};
use warmpath_core::table::Service;

/// Its row.
pub const ROUTES: &[Route] =
    &[Route::reports("/netlox/v1/status/overview", overview, "what the web page shows, in one answer")];

fn overview(gateway: &Gateway, _: &Call, reports: &[ShardReport]) -> Answered {
    let now = (gateway.outside.now)();
    let mut services: Vec<_> = gateway.table.services().collect();
    services.sort_by_key(|service| service.number);
    let rules: Vec<Value> = services.iter().map(|service| rule(service, reports, now)).collect();
    let body = json!({
        "build": env!("CARGO_PKG_VERSION"),
        "time_ms": (gateway.outside.wall)().as_millis() as u64,
        "serving": gateway.phase == DrainPhase::Serving,
        "generation": gateway.table.generation,
        "shards": reports.len(),
        "clients": reports.iter().map(|report| report.clients).sum::<u64>(),
        "active": reports.iter().map(|report| report.active).sum::<u64>(),
        "requests": count(reports, Count::Requests),
        "first_byte": first_byte(reports),
        "rules": rules,
    });
    Ok(Answer::json(200, &body))
}

fn count(reports: &[ShardReport], what: Count) -> u64 {
    let counts = reports.iter().flat_map(|report| &report.counts);
    counts.filter(|(count, _)| *count == what).map(|(_, n)| n).sum()
}

/// Counts by bucket, as the metrics' histogram has them before they are made cumulative.
fn first_byte(reports: &[ShardReport]) -> Value {
    let counts: [u64; FIRST_BYTE_BUCKETS_US.len() + 1] =
        std::array::from_fn(|at| reports.iter().map(|report| report.first_byte_us[at]).sum());
    json!({"bounds_us": FIRST_BYTE_BUCKETS_US, "counts": counts})
}

fn rule(service: &Service, reports: &[ShardReport], now: Nanos) -> Value {
    let (rule, answers) = (&service.rule, answers(service, reports));
    let endpoints: Vec<Value> = service
        .endpoints
        .iter()
        .enumerate()
        .map(|(at, state)| endpoint(service, at, state, &answers, now))
        .collect();
    json!({
        "service": service.number,
        "id": rule.id,
        "name": rule.name,
        "model": rule.key.model,
        "host": rule.key.host,
        "path": rule.key.path,
        "ip": rule.key.vip.ip().to_string(),
        "port": rule.key.vip.port(),
        "engine": rule.engine.name(),
        "selector": rule.selector.number(),
        "enabled": rule.enabled,
        "pairs": rule.disaggregation.is_some(),
        "gate": gate::effective(service, now),
        "exact": service.exact.as_ref().map(|_| exact(service, reports)),
        "own_answers": answers.get(&u16::MAX).cloned().unwrap_or_default(),
        "endpoints": endpoints,
    })
}

/// Answers by status class, by endpoint index; those of the gateway itself at `u16::MAX`.
fn answers(service: &Service, reports: &[ShardReport]) -> BTreeMap<u16, Map<String, Value>> {
    let mut sums: BTreeMap<(u16, u8), u64> = BTreeMap::new();
    let own = reports.iter().flat_map(|report| &report.answers).filter(|a| a.service == service.number);
    own.for_each(|answer| *sums.entry((answer.endpoint, answer.class)).or_default() += answer.count);
    let mut by_endpoint: BTreeMap<u16, Map<String, Value>> = BTreeMap::new();
    for ((endpoint, class), count) in sums {
        by_endpoint.entry(endpoint).or_default().insert(format!("{class}xx"), json!(count));
    }
    by_endpoint
}

fn endpoint(
    service: &Service,
    at: usize,
    state: &EndpointState,
    answers: &BTreeMap<u16, Map<String, Value>>,
    now: Nanos,
) -> Value {
    let spec = &service.rule.endpoints[at];
    let load = state.load().told(now, LOAD_STALE).map(|load| {
        json!({
            "running": load.running,
            "waiting": load.waiting,
            "kv_use_permille": load.kv_use_permille,
            "capacity_blocks": load.capacity_blocks,
        })
    });
    json!({
        "endpoint": spec.address.to_string(),
        "ep_role": spec.role as u8,
        "available": spec.weight > 0 && service.is_healthy(state, now),
        "draining": spec.weight == 0,
        "probed_down": state.probed_down(),
        "ejected": state.ejected(now),
        "breaker": service.rule.breaker.map(|_| state.breaker().now().state(now).word()),
        "in_flight": state.reserved(),
        "load": load,
        "answers": answers.get(&(at as u16)).cloned().unwrap_or_default(),
    })
}

/// How exact routing went, of all shards.
fn exact(service: &Service, reports: &[ShardReport]) -> Value {
    let (mut hits, mut tokens, mut misses) = (0, [0; 3], BTreeMap::<&str, u64>::new());
    for report in reports.iter().flat_map(|report| &report.exact).filter(|own| own.service == service.number)
    {
        hits += report.endpoints.iter().map(|count| count.hits).sum::<u64>();
        let own = [report.prompt_tokens, report.predicted_tokens, report.cached_tokens];
        tokens.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        report.misses.iter().for_each(|(miss, count)| *misses.entry(miss.word()).or_default() += count);
    }
    let [prompt, predicted, cached] = tokens;
    json!({
        "hits": hits,
        "misses": misses,
        "prompt_tokens": prompt,
        "predicted_tokens": predicted,
        "cached_tokens": cached,
    })
}
