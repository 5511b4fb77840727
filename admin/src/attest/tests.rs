//! What the driver makes of tables, registry and event core, without an engine: the words that shards read, and rules
//! that nothing is asked for.

use super::*;
use crate::fake::disk::MemoryDisk;
use crate::fake::kv::{exact_report, exact_rule};
use crate::fake::{FakePlane, body, outside};
use crate::gateway::Gateway;
use crate::store::Store;
use std::sync::Arc;
use warmpath_core::environment::Environment;
use warmpath_core::profile::binding::Binding as Bind;
use warmpath_core::profile::binding::Surfaces;
use warmpath_core::rule::body::parse;

fn bound_by(generation: u32) -> Bind {
    Bind::Bound(Arc::new(Bound {
        generation,
        digest: "d".into(),
        profile: "p".into(),
        profile_generation: 1,
        surfaces: Surfaces { chat: false, completions: true },
    }))
}

/// Service 1 over sources 2 and 3, bound like this.
fn table(before: &Table, binding: Bind, endpoints: &[u16]) -> Table {
    let mut rule = exact_rule("chat", 9001, endpoints, 2);
    if let Some(exact) = &mut rule.exact {
        exact.profile.binding = binding;
    }
    Table::next(before, vec![rule], &mut 0, 0)
}

fn word(table: &Table, endpoint: usize, rank: u8) -> Result<(), Reason> {
    let service = table.services().next().unwrap();
    service.exact.as_ref().unwrap().attested.as_ref().unwrap().admits(endpoint, rank)
}

#[test]
fn a_rule_is_fenced_from_its_first_table_on() {
    let plane = FakePlane::default();
    let table = table(&Table::default(), bound_by(7), &[8001, 8002]);
    assert_eq!(word(&table, 0, 0), Err(Reason::BindingDataplanePending), "before anybody looked");
    let mut attestor = Attestor::default();
    attestor.follow(&table, &plane, Cadence::default(), 1);
    assert!(attestor.questions(1).is_empty(), "nothing is asked before all shards have it");
    let status = attestor.status(1, 1).unwrap();
    assert_eq!(status.enforced, State::PendingDataplaneContract);
    assert!(status.enforcement.acknowledged_at.is_some() && !status.enforcement.enforced);
    attestor.stand(&plane, Some(table.generation), 2);
    assert_eq!(word(&table, 1, 1), Err(Reason::ProfileRegistryUnavailable));
    assert!(attestor.questions(2).is_empty(), "nor without a profile");
    let said = attestor.news(2);
    assert!(
        said.len() == 1 && said[0].starts_with("[KV_ATTEST] rule chat (service 1), profile p: "),
        "{said:?}"
    );
    assert!(attestor.news(3).is_empty(), "once");
}

#[test]
fn what_speaks_against_a_source_fences_its_ranks_alone() {
    let plane = FakePlane::default();
    let table = table(&Table::default(), bound_by(7), &[8001, 8002]);
    let mut attestor = Attestor::default();
    attestor.follow(&table, &plane, Cadence::default(), 1);
    attestor.stand(&plane, Some(table.generation), 1);
    let service = table.services().next().unwrap();
    service.exact.as_ref().unwrap().sources[1].set_fence(Some(Fence::Ownership));
    attestor.heard(Some(&exact_report()), 2);
    let rows = attestor.status(1, 2).unwrap().endpoints;
    assert!(!rows[0].reasons.contains(&Reason::DrainOwnershipLost));
    assert!(rows[1].reasons.contains(&Reason::DrainOwnershipLost), "{rows:?}");
}

#[test]
fn a_word_counts_for_the_binding_it_was_written_for() {
    let before = table(&Table::default(), bound_by(7), &[8001, 8002]);
    let service = before.services().next().unwrap().clone();
    let attested = |table: &Table, at: usize| {
        let service = table.services().next().unwrap();
        service.exact.as_ref().unwrap().attested.as_ref().unwrap().endpoints[at].clone()
    };
    let write = warmpath_core::attest::Write { generation: 7, ranks: 3, reason: None };
    attested(&before, 0).write(write);
    assert_eq!((word(&before, 0, 1), service.number), (Ok(()), 1));
    let same = table(&before, bound_by(7), &[8001, 8003]);
    assert_eq!(word(&same, 0, 1), Ok(()), "another endpoint beside it changes nothing");
    assert_eq!(word(&same, 1, 1), Err(Reason::BindingDataplanePending), "and proves itself");
    let anew = table(&before, bound_by(8), &[8001, 8002]);
    assert_eq!(word(&anew, 0, 1), Err(Reason::BindingDataplanePending));
    let migrating = table(&before, Bind::RequiresMigration, &[8001, 8002]);
    assert_eq!(word(&migrating, 0, 1), Err(Reason::RestoredProfileLessRequiresMigration));
    let lost = table(&before, Bind::Unresolved("gone".into()), &[8001, 8002]);
    assert_eq!(word(&lost, 0, 1), Err(Reason::ProfileResolutionFault));
    let legacy = table(&before, Bind::Legacy, &[8001, 8002]);
    assert!(legacy.services().next().unwrap().exact.as_ref().unwrap().attested.is_none());
}

/// `kvexactstatus` of rules that are not bound.
#[test]
fn rules_without_a_binding_say_so() {
    let (plane, store) = (FakePlane::new(), Store::on(Box::new(MemoryDisk::default())));
    let gateway = Gateway::new(outside(&plane), store, 0);
    let row = |binding| {
        let table = table(&Table::default(), binding, &[8001]);
        show::row(&gateway, table.services().next().unwrap()).unwrap()
    };
    let words = |binding| {
        let row = row(binding);
        (
            row["enforcedState"].as_str().unwrap().to_owned(),
            row["reasonCodes"][0].as_str().unwrap().to_owned(),
        )
    };
    let pair = |state: &str, reason: &str| (state.to_owned(), reason.to_owned());
    assert_eq!(words(Bind::Legacy), pair("LEGACY_ACTIVE_UNATTESTED", "no_model_profile_bound"));
    let migrating = pair("REQUIRES_MIGRATION", "restored_profile_less_requires_migration");
    assert_eq!(words(Bind::RequiresMigration), migrating);
    assert_eq!(words(Bind::Unresolved("x".into())), pair("DEGRADED", "profile_registry_unavailable"));
    assert_eq!(words(bound_by(1)), pair("PENDING_DATAPLANE_CONTRACT", "binding_dataplane_pending"));
    let plain = parse(&body("plain", 9003), &Environment::default(), || "plain".into()).unwrap();
    let plain = Table::next(&Table::default(), vec![plain], &mut 0, 0);
    assert!(show::row(&gateway, plain.services().next().unwrap()).is_none());
}
