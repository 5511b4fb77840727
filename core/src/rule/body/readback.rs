//! A rule as `GET` lists it. Owns which effective values are shown beside what was posted; a readback may be
//! posted again and means the same rule.

use crate::SECOND;
use crate::rule::{Disaggregation, KvExact, PairConnector, Rule, Selector};
use serde_json::{Map, Value, json};

/// The list element of `rule`: the stored body, its id, and the effective values of what the body may leave
/// open. The live `state` and `counter` of `endpoints[i]` are the caller's to add.
pub fn readback(rule: &Rule, stored_body: &Value) -> Value {
    let mut out = stored_body.as_object().cloned().unwrap_or_default();
    out.shift_remove("fc_effective");
    let mut service = object(out.remove("serviceArguments"));
    service.shift_remove("fc_effective");
    service.shift_remove("oper");
    service.insert("id".into(), rule.id.as_str().into());
    for (name, value) in [
        ("protocol", json!("tcp")),
        ("sel", json!(rule.selector.number())),
        ("mode", json!(4)),
        ("adminStateUp", json!(rule.enabled)),
    ] {
        service.entry(name).or_insert(value);
    }
    if let Selector::Chwbl(chwbl) | Selector::WeightedHash(chwbl) = &rule.selector {
        service.insert("chwbl_prefix_hash_level".into(), chwbl.level.into());
        service.insert("chwbl_prefix_hash_flags".into(), chwbl.flags.into());
        service.insert("chwbl_mean_load_factor".into(), chwbl.load_factor.into());
        service.insert("chwbl_replication".into(), chwbl.replication.into());
        service.insert("chwbl_enable_cache_salt".into(), chwbl.cache_salt.into());
    }
    if let Some(exact) = &rule.exact {
        show_exact(exact, &mut service);
        let mode = if rule.disaggregation.is_some() { 1 } else { 3 };
        service.insert("kvExactMode".into(), mode.into());
    }
    if let Some(disaggregation) = &rule.disaggregation {
        show_disaggregation(disaggregation, rule, &mut service);
    }
    let endpoints = match out.remove("endpoints") {
        Some(Value::Array(list)) => list.into_iter().map(|e| Value::Object(endpoint(e))).collect(),
        _ => Vec::new(),
    };
    let mut ordered = Map::new();
    ordered.insert("serviceArguments".into(), service.into());
    ordered.insert("endpoints".into(), Value::Array(endpoints));
    ordered.extend(out);
    Value::Object(ordered)
}

/// The terms in force. A rule that asks for exact routing and is served without it keeps its own words.
fn show_exact(exact: &KvExact, service: &mut Map<String, Value>) {
    let contract = &exact.contract;
    for (name, value) in [
        ("kvBlockSize", json!(contract.block_size().tokens())),
        ("kvHashAlgo", json!(contract.algo().name())),
        ("kvZmqPort", json!(exact.ports.publish)),
        ("kvDpRankCount", json!(exact.ranks)),
        ("kvEngineType", json!(contract.engine().name())),
        ("kvWarmupSec", json!(exact.warmup / SECOND)),
        ("kvRankMode", json!(exact.rank_mode.word())),
    ] {
        service.insert(name.into(), value);
    }
}

fn show_disaggregation(terms: &Disaggregation, rule: &Rule, service: &mut Map<String, Value>) {
    service.insert("kvEngineType".into(), rule.engine.name().into());
    if rule.engine.has_bootstrap_port() {
        service.insert("pdBootstrapPort".into(), terms.bootstrap_port.into());
    }
    if terms.connector == PairConnector::Mooncake {
        service.insert("pdBootstrapPort".into(), terms.bootstrap_port.into());
        service.insert("pd_connector".into(), terms.connector.word().into());
    }
}

/// An endpoint with its weight said and without the live members of an older readback.
fn endpoint(stored: Value) -> Map<String, Value> {
    let mut endpoint = object(Some(stored));
    endpoint.shift_remove("state");
    endpoint.shift_remove("counter");
    endpoint.entry("weight").or_insert(json!(1));
    endpoint
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
