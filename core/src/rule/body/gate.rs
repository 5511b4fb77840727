//! From checked members to the terms of the capacity gate. Owns which rules the environment's words are about, and
//! that 0 and `inherit` say nothing.

use super::given::Given;
use crate::environment::{Environment, GateEnvironment, PairAdmission};
use crate::rule::{By, GateMode, GateTerms, Said, WAIT};
use crate::{MILLISECOND, Nanos};

/// The gate of a rule. What the environment says is for rules of inference services alone (`sse_mode`,
/// `pd_disagg_mode`), and for those that say anything of the gate themselves.
pub(super) fn gate(service: &Given, endpoints: &[Given], environment: &Environment) -> GateTerms {
    let mode = GateMode::from_word(service.text("fc_mode"));
    let is_meant = mode.is_some() || service.flag("sse_mode") || service.flag("pd_disagg_mode");
    let env = if is_meant { environment.gate } else { GateEnvironment::default() };
    let number = |name: &str| Some(service.int(name)).filter(|given| *given > 0);
    let ceiling = |name: &str, env| Said::of(number(name).map(|most| most as u32), env, 0);
    let time = |name: &str| number(name).map(|ms| ms.unsigned_abs() * MILLISECOND);
    let older = if service.flag("pd_disagg_mode") { env.pairs } else { PairAdmission::default() };
    let terms = GateTerms {
        mode: Said::of(mode, env.mode, GateMode::Off),
        outstanding: ceiling("fc_max_outstanding", env.outstanding),
        per_endpoint: ceiling("fc_ep_max_inflight", env.per_endpoint),
        per_prefill: ceiling("fc_prefill_max_inflight", env.per_prefill.or(older.per_prefill)),
        per_decode: ceiling("fc_decode_max_inflight", env.per_decode),
        queue: ceiling("fc_max_queue_depth", env.queue),
        wait: Said::of(time("fc_max_queue_wait_ms"), env.wait, WAIT),
        adaptive: Said::of(switch(service, "fc_adaptive"), env.adaptive, false),
        ttft_target: time("fc_ttft_target_ms").unwrap_or(0),
        stale: time("fc_telemetry_stale_ms").unwrap_or(STALE),
        warmup: Said::of(time("fc_warmup_ms"), env.warmup, 0),
        tenant_share: Said::of(
            number("fc_tenant_max_share_pct").map(|share| share as u8),
            env.tenant_share,
            0,
        ),
        fair: switch(service, "fc_fair").unwrap_or(false),
        expose: Said::of(switch(service, "fc_expose_headers"), env.expose, false),
        by_pairs: false,
    };
    match (terms.mode.by, older.per_prefill) {
        (By::Default, Some(_)) => of_pairs(terms, &older, endpoints, environment.pair_phase),
        _ => terms,
    }
}

/// The older gate: requests wait for any prefill endpoint, as many as all of them have places.
fn of_pairs(terms: GateTerms, older: &PairAdmission, endpoints: &[Given], prefill: Nanos) -> GateTerms {
    let prefills = endpoints.iter().filter(|endpoint| endpoint.int("ep_role") == 1).count() as u32;
    let places = older.queue_per_prefill.map(|each| each * prefills);
    GateTerms {
        mode: Said { value: GateMode::Enforce, by: By::Environment },
        queue: Said::of(None, places, 0),
        wait: Said::of(None, older.wait, prefill),
        by_pairs: true,
        ..terms
    }
}

/// `fc_telemetry_stale_ms` where it is 0 or left out.
const STALE: Nanos = 30_000 * MILLISECOND;

fn switch(service: &Given, name: &str) -> Option<bool> {
    match service.text(name) {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::SECOND;
    use crate::environment::{Environment, GateEnvironment, PairAdmission};
    use crate::rule::{By, GateMode, GateTerms, Rule};
    use serde_json::{Map, Value, json};

    fn rule(members: Value, gate: GateEnvironment) -> Result<Rule, super::super::BodyFault> {
        let mut service = Map::from_iter([
            ("externalIP".to_string(), json!("127.0.0.1")),
            ("port".to_string(), json!(8080)),
        ]);
        service.extend(members.as_object().cloned().unwrap_or_default());
        let body = json!({
            "serviceArguments": service, "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9001}]
        });
        super::super::parse(&body, &Environment { gate, ..Environment::default() }, || "id".into())
    }

    #[test]
    fn without_a_word_there_is_no_gate() {
        assert_eq!(rule(json!({}), GateEnvironment::default()).unwrap().gate, GateTerms::default());
        let env = GateEnvironment { mode: Some(GateMode::Enforce), ..GateEnvironment::default() };
        assert_eq!(rule(json!({}), env).unwrap().gate, GateTerms::default(), "no inference service");
    }

    #[test]
    fn the_rule_is_heard_before_the_environment_and_0_and_inherit_say_nothing() {
        let env = GateEnvironment {
            mode: Some(GateMode::Observe),
            outstanding: Some(7),
            queue: Some(8),
            wait: Some(9 * SECOND),
            adaptive: Some(true),
            ..GateEnvironment::default()
        };
        let said = json!({
            "sse_mode": true, "fc_mode": "inherit", "fc_max_outstanding": 0, "fc_max_queue_depth": 3,
            "fc_adaptive": "off", "fc_tenant_max_share_pct": 50,
        });
        let gate = rule(said, env).unwrap().gate;
        assert_eq!((gate.mode.value, gate.mode.by), (GateMode::Observe, By::Environment));
        assert_eq!((gate.outstanding.value, gate.outstanding.by), (7, By::Environment));
        assert_eq!((gate.queue.value, gate.queue.by), (3, By::Rule));
        assert_eq!((gate.wait.value, gate.wait.by), (9 * SECOND, By::Environment));
        assert_eq!((gate.adaptive.value, gate.adaptive.by), (false, By::Rule));
        assert_eq!((gate.tenant_share.value, gate.expose.by), (50, By::Default));
    }

    #[test]
    fn each_member_reaches_its_place() {
        let said = json!({
            "fc_mode": "enforce", "fc_max_outstanding": 1, "fc_ep_max_inflight": 2, "fc_max_queue_depth": 5,
            "fc_max_queue_wait_ms": 6, "fc_adaptive": "on", "fc_ttft_target_ms": 7, "fc_telemetry_stale_ms": 8,
            "fc_warmup_ms": 9, "fc_tenant_max_share_pct": 10, "fc_fair": "on", "fc_expose_headers": "on",
        });
        let gate = rule(said, GateEnvironment::default()).unwrap().gate;
        let ms = crate::MILLISECOND;
        assert_eq!(gate.mode.value, GateMode::Enforce);
        assert_eq!((gate.outstanding.value, gate.per_endpoint.value, gate.queue.value), (1, 2, 5));
        assert_eq!((gate.wait.value, gate.ttft_target, gate.stale), (6 * ms, 7 * ms, 8 * ms));
        assert_eq!((gate.warmup.value, gate.tenant_share.value), (9 * ms, 10));
        assert!(gate.adaptive.value && gate.expose.value && gate.fair);
    }

    #[test]
    fn a_queue_without_time_to_wait_is_refused_and_gets_its_default_where_none_is_said() {
        let none = json!({"fc_mode": "enforce", "fc_max_queue_depth": 3, "fc_max_queue_wait_ms": 0});
        let fault = rule(none, GateEnvironment::default()).unwrap_err();
        assert_eq!((fault.status, fault.member.as_str()), (400, "serviceArguments.fc_max_queue_wait_ms"));
        let left_out = json!({"fc_mode": "enforce", "fc_max_queue_depth": 3});
        assert_eq!(rule(left_out, GateEnvironment::default()).unwrap().gate.wait.value, 5 * SECOND);
        let null = rule(json!({"fc_max_outstanding": null}), GateEnvironment::default()).unwrap_err();
        assert_eq!((null.status, null.code), (400, "null_member"));
    }

    #[test]
    fn the_older_variables_of_pairs_hold_where_nothing_newer_is_said() {
        let pairs = PairAdmission { per_prefill: Some(4), queue_per_prefill: Some(8), wait: None };
        let env = |mode| Environment {
            gate: GateEnvironment { pairs, mode, ..GateEnvironment::default() },
            ..Environment::default()
        };
        let gate = |members: Value, mode| {
            let mut service = json!({"externalIP": "127.0.0.1", "port": 8080, "pd_disagg_mode": true});
            service.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let endpoint =
                |port: u16, role: u8| json!({"endpointIP": "127.0.0.1", "targetPort": port, "ep_role": role});
            let endpoints = [endpoint(1, 1), endpoint(2, 1), endpoint(3, 2)];
            let body = json!({"serviceArguments": service, "endpoints": endpoints});
            super::super::parse(&body, &env(mode), || "id".into()).unwrap().gate
        };
        let older = gate(json!({}), None);
        assert_eq!((older.mode.value, older.by_pairs), (GateMode::Enforce, true));
        assert_eq!((older.per_prefill.value, older.queue.value, older.wait.value), (4, 16, 30 * SECOND));
        let off = gate(json!({"fc_mode": "off"}), None);
        assert_eq!((off.mode.value, off.by_pairs, off.per_prefill.value), (GateMode::Off, false, 4));
        let newer = gate(json!({}), Some(GateMode::Observe));
        assert_eq!((newer.mode.value, newer.by_pairs, newer.queue.value), (GateMode::Observe, false, 0));
    }
}
