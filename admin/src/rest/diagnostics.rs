//! The handler of diagnostics: what an operator sends along with a question. Must never tell a secret: no seed, token,
//! prompt or body of a rule.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::health;
use crate::rest::{models, status};
use crate::routes::{Answered, Call, Handler, Route};
use serde_json::{Value, json};
use warmpath_core::control::{KvReport, ShardReport};
use warmpath_core::environment::Environment;

/// The row of diagnostics.
pub const ROUTES: &[Route] = &[Route::new(
    "GET",
    "/netlox/v1/diagnostics",
    Handler::AllReports(diagnostics),
    "build, process, rules, shards, event core and models in numbers, without anything secret",
)];

fn diagnostics(gateway: &Gateway, _: &Call, reports: &[ShardReport], kv: Option<&KvReport>) -> Answered {
    let shards: Vec<Value> = reports.iter().map(status::shard).collect();
    let plane = &*gateway.outside.data_plane;
    let warnings: Vec<String> = (gateway.rules.warnings())
        .chain(health::warnings(&gateway.table))
        .chain(models::warnings(plane))
        .collect();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "generation": gateway.table.generation,
        "rules": gateway.rules.entries().len(),
        "exact_rules": gateway.rules.rules().iter().filter(|rule| rule.exact.is_some()).count(),
        "probed_hosts": gateway.rules.hosts.len(),
        "serves_metrics": gateway.serves_metrics,
        "persist_fault": gateway.persist_fault,
        "warnings": warnings,
        "environment": environment(&gateway.outside.environment),
        "shards": shards,
        "event_core": kv.map(|kv| json!({"answers": true, "sources": kv.sources.len()})),
        "models": plane.models().len(),
    });
    Ok(Answer::json(200, &body))
}

/// What was read of the environment; of the seed only whether there is one.
fn environment(environment: &Environment) -> Value {
    json!({
        "none_hash_seed": if environment.none_hash_seed.is_some() { "set" } else { "unset" },
        "long_seed": environment.long_seed,
        "replay_offset": environment.replay_offset,
        "max_blocks": environment.max_blocks,
        "origin_errors": environment.origin_errors,
    })
}
