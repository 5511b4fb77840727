//! Rules: their states, what is written for the shards, and in which order.

use super::*;

const FIRST: Standing = Standing { faults: Vec::new(), manifest: None, is_installed: true };

fn standing() -> Standing {
    Standing { manifest: Some("d".into()), ..FIRST }
}

fn binding(standing: Standing, cadence: Cadence, endpoints: u16) -> Binding {
    let address = |at| ([127, 0, 0, 1], 8000 + at).into();
    let terms = Arc::new(terms(Engine::Vllm, 1));
    Binding::new(7, cadence, standing, (0..endpoints).map(|at| (address(at), terms.clone())))
}

fn climb_all(binding: &mut Binding, now: Nanos) {
    for at in 0..binding.endpoints() {
        climb(binding.ladder(at).unwrap(), now);
    }
}

/// The shards take everything as it is written.
fn write_all(binding: &mut Binding, now: Nanos) {
    for (at, write) in binding.writes(now) {
        binding.acknowledged(now, at, Ok(write));
    }
}

fn words(binding: &Binding, now: Nanos) -> (&'static str, &'static str, Vec<&'static str>) {
    let status = binding.status(now);
    let reasons = status.reasons.iter().map(|reason| reason.word()).collect();
    (status.desired.word(), status.enforced.word(), reasons)
}

#[test]
fn a_rule_climbs_from_a_validated_profile_to_ready() {
    let mut binding = binding(standing(), Cadence::default(), 2);
    write_all(&mut binding, 0);
    assert_eq!(words(&binding, 0), ("PROFILE_VALIDATED", "PROFILE_VALIDATED", vec!["attestation_pending"]));
    climb_all(&mut binding, 0);
    assert_eq!(words(&binding, 0).1, "PENDING_DATAPLANE_CONTRACT", "proven, and not written yet");
    write_all(&mut binding, 0);
    assert_eq!(words(&binding, 0), ("READY", "READY", vec![]));
    let enforcement = binding.status(0).enforcement;
    assert!(enforcement.desired && enforcement.enforced && enforcement.fault.is_none());
}

#[test]
fn one_endpoint_that_fails_degrades_the_rule_and_fences_itself_alone() {
    let mut binding = binding(standing(), Cadence::default(), 2);
    climb_all(&mut binding, 0);
    write_all(&mut binding, 0);
    binding.ladder(1).unwrap().source(Some(Reason::DrainOwnershipLost));
    assert_eq!(words(&binding, 1).1, "DEGRADING");
    let writes = binding.writes(1);
    assert_eq!(writes.len(), 1);
    let fence = Write { generation: 7, ranks: 0, reason: Some(Reason::DrainOwnershipLost) };
    assert_eq!(writes[0], (1, fence));
    write_all(&mut binding, 1);
    let (desired, enforced, reasons) = words(&binding, 1);
    assert_eq!((desired, enforced, reasons[0]), ("DEGRADED", "DEGRADED", "drain_ownership_lost"));
    assert!(
        binding.status(1).endpoints[0].ranks[0].is_exact && !binding.status(1).endpoints[1].ranks[0].is_exact
    );
}

#[test]
fn without_a_manifest_it_stays_below_ready_unless_that_was_allowed() {
    let mut strict = binding(FIRST, Cadence::default(), 1);
    climb_all(&mut strict, 0);
    write_all(&mut strict, 0);
    assert_eq!(words(&strict, 0), ("ENGINE_HASH_ATTESTED", "ENGINE_HASH_ATTESTED", vec!["manifest_missing"]));
    assert!(!strict.status(0).enforcement.enforced);
    let allowed = Cadence { require_manifest: false, functional_only: true, ..Cadence::default() };
    let mut lenient = binding(FIRST, allowed, 1);
    climb_all(&mut lenient, 0);
    write_all(&mut lenient, 0);
    assert_eq!(words(&lenient, 0), ("READY_FUNCTIONAL_ONLY", "READY_FUNCTIONAL_ONLY", vec![]));
}

#[test]
fn what_is_wrong_beside_the_engines_asks_them_nothing() {
    let faults = [
        Reason::ProfileRegistryUnavailable,
        Reason::ProfileResolutionFault,
        Reason::ProbeFixturesMissing,
        Reason::ProbeFixtureDrift,
    ];
    for fault in faults {
        let binding = binding(Standing { faults: vec![fault], ..standing() }, Cadence::default(), 1);
        assert!(!binding.may_ask());
        assert_eq!(words(&binding, 0), ("PROFILE_VALIDATED", "PROFILE_VALIDATED", vec![fault.word()]));
        assert_eq!(binding.writes(0)[0].1.reason, Some(fault));
    }
    assert_eq!(words(&binding(standing(), Cadence::default(), 0), 0).2, ["no_endpoints"]);
}

#[test]
fn a_binding_waits_for_every_shard() {
    let mut binding = binding(Standing { is_installed: false, ..standing() }, Cadence::default(), 1);
    assert!(!binding.may_ask());
    let (_, enforced, reasons) = words(&binding, 0);
    assert_eq!((enforced, reasons[0]), ("PENDING_DATAPLANE_CONTRACT", "binding_dataplane_pending"));
    binding.stand(standing());
    assert!(binding.may_ask());
}

#[test]
fn another_manifest_fences_first_and_is_proven_anew() {
    let mut binding = binding(standing(), Cadence::default(), 1);
    climb_all(&mut binding, 0);
    write_all(&mut binding, 0);
    binding.stand(Standing { manifest: Some("e".into()), ..FIRST });
    assert_eq!(binding.writes(1)[0].1.ranks, 0);
    write_all(&mut binding, 1);
    let (desired, _, reasons) = words(&binding, 1);
    assert!(desired == "DEGRADED" && reasons.contains(&"manifest_changed"), "{reasons:?}");
    climb_all(&mut binding, 1);
    write_all(&mut binding, 1);
    assert_eq!(words(&binding, 1), ("READY", "READY", vec![]));
}

#[test]
fn a_fault_of_enforcement_lasts_until_the_operator_changes_something() {
    for fault in EnforcementFault::ALL {
        let mut binding = binding(standing(), Cadence::default(), 1);
        climb_all(&mut binding, 0);
        binding.acknowledged(0, 0, Err(fault));
        let status = binding.status(0);
        assert_eq!((status.enforced, status.reasons[0]), (State::EnforcementFault, Reason::EnforcementFault));
        assert_eq!((status.enforcement.fault, status.enforcement.desired), (Some(fault), false));
        assert!(!binding.may_ask());
        write_all(&mut binding, 0);
        binding.renew();
        climb_all(&mut binding, 0);
        write_all(&mut binding, 0);
        assert_eq!(binding.status(0).enforced, State::Ready);
    }
    let mut other = binding(standing(), Cadence::default(), 1);
    other.acknowledged(0, 0, Ok(Write { generation: 6, ranks: 1, reason: None }));
    assert_eq!(other.status(0).enforcement.fault, Some(EnforcementFault::DataplaneAckMismatch));
}

#[test]
fn words_are_told_apart_and_each_reason_has_a_cure() {
    let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
    assert!(words.is_sorted());
    words.dedup();
    assert_eq!(words.len(), Reason::ALL.len());
    for (place, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(Reason::of(place as u8), Some(*reason));
        assert!(!reason.cure().is_empty());
    }
}
