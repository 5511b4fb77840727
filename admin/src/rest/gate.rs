//! `fc_effective` of a readback: the capacity gate as it is in force. Must never be stored with a rule.

use serde_json::{Map, Value, json};
use warmpath_core::rule::{GateMode, Said};
use warmpath_core::table::Service;
use warmpath_core::{MILLISECOND, Nanos};

/// The gate of a service at `now`; `None` where it has none.
pub fn effective(service: &Service, now: Nanos) -> Option<Value> {
    let (terms, admission) = (&service.rule.gate, &service.admission);
    if terms.mode.value == GateMode::Off {
        return None;
    }
    let open = service.open(now);
    let warming = service.endpoints.iter().filter(|endpoint| endpoint.up_for(now) < terms.warmup.value);
    let limit = admission.gate.limit();
    let limit = if limit == u32::MAX { Value::Null } else { limit.into() };
    let mut source = Map::new();
    let mut said = |name: &str, by: &'static str| drop(source.insert(name.into(), by.into()));
    said("fc_mode", terms.mode.by.word());
    said("fc_max_outstanding", terms.outstanding.by.word());
    said("fc_ep_max_inflight", terms.per_endpoint.by.word());
    said("fc_prefill_max_inflight", terms.per_prefill.by.word());
    said("fc_decode_max_inflight", terms.per_decode.by.word());
    said("fc_max_queue_depth", terms.queue.by.word());
    said("fc_max_queue_wait_ms", terms.wait.by.word());
    said("fc_adaptive", terms.adaptive.by.word());
    said("fc_warmup_ms", terms.warmup.by.word());
    said("fc_tenant_max_share_pct", terms.tenant_share.by.word());
    said("fc_expose_headers", terms.expose.by.word());
    Some(json!({
        "mode": terms.mode.value.word(),
        "max_outstanding": number(terms.outstanding),
        "ep_max_inflight": number(terms.per_endpoint),
        "prefill_max_inflight": number(terms.per_prefill),
        "decode_max_inflight": number(terms.per_decode),
        "max_queue_depth": terms.queue.value,
        "max_queue_wait_ms": terms.wait.value / MILLISECOND,
        "tenant_max_share_pct": terms.tenant_share.value,
        "fair": terms.fair,
        "effective_limit": limit,
        "inflight": admission.gate.out(),
        "queued": admission.gate.waiting(),
        "adapt_state": admission.adapt_state(terms, &open),
        "adapt_reason": admission.finding().word(),
        "warming_endpoints": warming.count(),
        "tenants_active": admission.tenants.active(),
        "source": source,
    }))
}

/// A ceiling; null where there is none.
fn number(said: Said<u32>) -> Value {
    if said.value == 0 { Value::Null } else { said.value.into() }
}
