//! `kvexactstatus`: what is proven of a rule and what not, as the loxilb AI gateway says it. Owns the JSON; `endpoints`
//! is this gateway's own.

use super::bound;
use crate::gateway::Gateway;
use serde_json::{Value, json};
use std::time::Duration;
use warmpath_core::attest::{EndpointStatus, Enforcement, Reason, State, Status};
use warmpath_core::profile::binding::Binding;
use warmpath_core::table::Service;

/// The version of the lists of states and reasons.
pub const VOCABULARY: u32 = 1;

/// The generation of the list of engine contracts that is built in.
const CONTRACTS: u32 = 1;

/// One rule's row; `None`: it has no exact routing.
pub fn row(gateway: &Gateway, service: &Service) -> Option<Value> {
    let exact = service.rule.exact.as_ref()?;
    let engine = exact.contract.engine();
    let now = (gateway.outside.now)();
    let status = gateway.attestor.borrow().status(service.number, now);
    let is_empty = gateway.outside.data_plane.registry().profiles.is_empty();
    let (desired, enforced, reasons) = words(&exact.profile.binding, status.as_ref(), is_empty);
    let own = bound(service);
    let own = own.as_deref();
    let mut row = json!({
        "ruleIdentity": service.rule.id,
        "ruleName": service.rule.name,
        "modelName": service.rule.key.model,
        "engineFamily": engine.name(),
        "apiMode": exact.profile.surfaces().word(),
        "modelProfileId": exact.profile.id,
        "modelProfileGen": own.map_or(0, |own| own.profile_generation),
        "engineContractId": contract_id(service),
        "engineContractGen": CONTRACTS,
        "hashContractId": exact.contract.algo().name(),
        "bindingGen": own.map_or(0, |own| own.generation),
        "bindingDigest": own.map_or("", |own| &own.digest),
        "requiredEvidenceLevel": "validated",
        "desiredState": desired.word(),
        "enforcedState": enforced.word(),
        "reasonCodes": reasons.iter().map(|reason| reason.word()).collect::<Vec<_>>(),
        "cures": reasons.iter().map(|reason| reason.cure()).collect::<Vec<_>>(),
    });
    if let Some(status) = &status {
        row["enforcement"] = enforcement(&status.enforcement, now, (gateway.outside.wall)());
        row["endpoints"] = status.endpoints.iter().map(endpoint).collect();
    }
    Some(row)
}

/// State and reasons of a rule, bound or not; with an empty registry none can be.
fn words(binding: &Binding, status: Option<&Status>, is_empty: bool) -> (State, State, Vec<Reason>) {
    match (binding, status) {
        (Binding::Legacy, _) => {
            let state = State::LegacyActiveUnattested;
            (state, state, vec![Reason::NoModelProfileBound])
        }
        (Binding::RequiresMigration, _) => {
            let state = State::RequiresMigration;
            (state, state, vec![Reason::RestoredProfileLessRequiresMigration])
        }
        (Binding::Unresolved(_), _) if is_empty => {
            (State::Degraded, State::Degraded, vec![Reason::ProfileRegistryUnavailable])
        }
        (Binding::Unresolved(_), _) => {
            (State::Degraded, State::Degraded, vec![Reason::ProfileResolutionFault])
        }
        (Binding::Bound(_), Some(status)) => (status.desired, status.enforced, status.reasons.clone()),
        (Binding::Bound(_), None) => {
            let reasons = vec![Reason::BindingDataplanePending];
            (State::ProfileValidated, State::PendingDataplaneContract, reasons)
        }
    }
}

/// The engine contract by which its blocks are told; empty for an engine that has none.
fn contract_id(service: &Service) -> &'static str {
    let Some(exact) = &service.rule.exact else { return "" };
    let told = service.exact.as_ref().and_then(|exact| exact.told_version()).or(exact.version);
    exact.contract.engine().questions().map_or("", |questions| (questions.contract)(told))
}

fn enforcement(known: &Enforcement, now: u64, wall: Duration) -> Value {
    let at =
        known.acknowledged_at.map(|at| wall.saturating_sub(Duration::from_nanos(now.saturating_sub(at))));
    json!({
        "desired": if known.desired { "eligible" } else { "fenced" },
        "enforced": if known.enforced { "eligible" } else { "fenced" },
        "fault": known.fault.map(|fault| fault.word()),
        "goFenced": !known.desired,
        "lastAckAt": at.map(rfc3339),
    })
}

fn endpoint(known: &EndpointStatus) -> Value {
    let rank = |(rank, own): (usize, &warmpath_core::attest::RankStatus)| json!({"rank": rank, "exact": own.is_exact, "reason": own.reason.map(|reason| reason.word())});
    json!({
        "endpoint": known.address.to_string(),
        "version": known.version,
        "tokenParity": known.parity.word(),
        "reasonCodes": known.reasons.iter().map(|reason| reason.word()).collect::<Vec<_>>(),
        "ranks": known.ranks.iter().enumerate().map(rank).collect::<Vec<_>>(),
    })
}

/// A time since the Unix epoch in UTC, to the second (civil-from-days of the proleptic Gregorian calendar).
fn rfc3339(at: Duration) -> String {
    let (days, second) = ((at.as_secs() / 86_400) as i64, at.as_secs() % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        let of = |seconds| rfc3339(Duration::from_secs(seconds));
        assert_eq!(of(0), "1970-01-01T00:00:00Z");
        assert_eq!(of(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(of(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(of(1_796_140_800), "2026-12-01T16:00:00Z");
    }
}
