//! What the operator is told when an endpoint begins to take requests by load alone, and when it is let in again. Owns
//! when a line is due and its words; must never judge (the shards and the event core do).

use super::EndpointTrust;
use crate::kv::{KvEndpoint, endpoints};
use crate::serve::{Shared, ask_kv};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::sleep;
use warmpath_core::control::KvReport;
use warmpath_core::table::Table;
use warmpath_core::trust::{Leg, State};

/// How often the states are looked at.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// What was said of the endpoints of services.
#[derive(Debug, Default)]
pub struct Voice {
    told: BTreeMap<(u32, SocketAddr), Told>,
}

/// What was said of one.
#[derive(Debug, Default)]
struct Told {
    demotions: u32,
    /// What may be broken, while it takes requests by load alone.
    broken: Option<Vec<Leg>>,
}

impl Voice {
    /// Whether any state has changed since the last lines.
    pub fn is_due(&self, table: &Table) -> bool {
        endpoints(table, None).iter().any(|endpoint| {
            let (demotions, is_demoted) = state(endpoint);
            let told = self.told.get(&key(endpoint));
            demotions != told.map_or(0, |told| told.demotions)
                || is_demoted != told.is_some_and(|told| told.broken.is_some())
        })
    }

    /// What to say now, with what the event core knows.
    pub fn look(&mut self, table: &Table, report: Option<&KvReport>) -> Vec<String> {
        let mut before = std::mem::take(&mut self.told);
        let mut lines = Vec::new();
        for endpoint in endpoints(table, report) {
            let told = before.remove(&key(&endpoint)).unwrap_or_default();
            let (told, said) = told.next(&endpoint);
            let (number, address) = key(&endpoint);
            let rule = &endpoint.service.rule.name;
            let head = || format!("[KV_TRUST] rule {rule} (service {number}), endpoint {address}: ");
            lines.extend(said.map(|said| head() + &said));
            self.told.insert((number, address), told);
        }
        lines
    }
}

impl Told {
    /// What was said after this look, and what is to be said now.
    fn next(self, endpoint: &KvEndpoint<'_>) -> (Told, Option<String>) {
        let (demotions, is_demoted) = state(endpoint);
        let said = match (self.broken, is_demoted) {
            (None, true) => {
                let trust = EndpointTrust::of(endpoint);
                let legs: Vec<Leg> = trust.legs.iter().collect();
                let said = fell(trust.trust.judged(), &legs);
                return (Told { demotions, broken: Some(legs) }, Some(said));
            }
            (Some(legs), true) => return (Told { demotions, broken: Some(legs) }, None),
            (Some(legs), false) => Some(rose(&legs)),
            (None, false) if demotions != self.demotions => Some(
                "it took requests by load alone for less than a second, and its answers agree again".into(),
            ),
            (None, false) => None,
        };
        (Told { demotions, broken: None }, said)
    }
}

fn key(endpoint: &KvEndpoint<'_>) -> (u32, SocketAddr) {
    (endpoint.service.number, endpoint.source.spec().endpoint)
}

/// How often it was demoted, and whether it is.
fn state(endpoint: &KvEndpoint<'_>) -> (u32, bool) {
    let trust = endpoint.service.exact.as_ref().and_then(|exact| exact.trust.get(endpoint.index));
    trust.map_or((0, false), |trust| (trust.demotions(), trust.state() == State::LoadOnly))
}

fn fell((judged, agreed): (u32, u32), legs: &[Leg]) -> String {
    format!(
        "of {judged} judged answers {agreed} agreed with what was predicted, so that it takes requests by load alone \
         until three in a row agree; {}",
        broken(legs)
    )
}

fn rose(legs: &[Leg]) -> String {
    let was: Vec<&str> = legs.iter().map(|leg| leg.word()).collect();
    let was = if was.is_empty() { "was not found out".into() } else { format!("was: {}", was.join(" or ")) };
    format!("its answers agree again, and its blocks route requests; broken {was}")
}

/// What may be broken, each with its cure.
fn broken(legs: &[Leg]) -> String {
    if legs.is_empty() {
        return "what is broken is not known: run `warmpath doctor --rule` against it".into();
    }
    let leg = |leg: &Leg| format!("{} ({})", leg.word(), leg.cure());
    format!("broken: {}", legs.iter().map(leg).collect::<Vec<_>>().join(" or "))
}

/// Looks again and again; asks the event core only when there is something to say.
pub async fn watch(gateway: Shared) {
    let mut voice = Voice::default();
    loop {
        sleep(LOOK_EACH).await;
        let is_due = voice.is_due(&gateway.borrow().table);
        if is_due {
            let report = ask_kv(&gateway, |kv| kv.report()).await.flatten();
            let gateway = gateway.borrow();
            let lines = voice.look(&gateway.table, report.as_ref());
            lines.iter().for_each(|line| (gateway.outside.say)(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::kv::{exact_report, exact_table};
    use warmpath_core::trust::{Class, Finding};

    #[test]
    fn a_line_at_demotion_and_one_at_recovery() {
        let (table, report, mut voice) = (exact_table(), exact_report(), Voice::default());
        assert!(!voice.is_due(&table) && voice.look(&table, Some(&report)).is_empty());
        let service = table.services().find(|service| service.exact.is_some()).unwrap();
        let trust = &service.exact.as_ref().unwrap().trust[0];
        (0..20).for_each(|_| trust.judged(Class::default(), Finding::Less));
        assert!(voice.is_due(&table));
        let said = voice.look(&table, Some(&report));
        let head = format!("[KV_TRUST] rule {} (service {}), endpoint ", service.rule.name, service.number);
        assert!(said.len() == 1 && said[0].starts_with(&head), "{said:?}");
        assert!(said[0].contains("of 20 judged answers 0 agreed"), "{said:?}");
        assert!(said[0].contains("broken: ") && said[0].contains(" ("), "a leg and its cure: {said:?}");
        assert!(!voice.is_due(&table) && voice.look(&table, Some(&report)).is_empty(), "once");
        (0..3).for_each(|_| trust.judged(Class::default(), Finding::Agrees));
        let said = voice.look(&table, Some(&report));
        assert!(
            said.len() == 1 && said[0].contains("agree again") && said[0].contains("broken was: "),
            "{said:?}"
        );
    }

    #[test]
    fn one_that_was_too_short_to_be_seen_is_told_afterwards() {
        let (table, mut voice) = (exact_table(), Voice::default());
        let service = table.services().find(|service| service.exact.is_some()).unwrap();
        let trust = &service.exact.as_ref().unwrap().trust[0];
        (0..20).for_each(|_| trust.judged(Class::default(), Finding::Less));
        (0..3).for_each(|_| trust.judged(Class::default(), Finding::Agrees));
        assert!(voice.is_due(&table));
        let said = voice.look(&table, None);
        assert!(said.len() == 1 && said[0].contains("for less than a second"), "{said:?}");
        assert!(!voice.is_due(&table));
    }

    #[test]
    fn legs_come_with_their_cures() {
        let said = broken(&[Leg::Seed, Leg::Algorithm]);
        assert!(said.starts_with("broken: seed (") && said.contains(" or algorithm ("), "{said}");
        assert!(broken(&[]).contains("warmpath doctor"));
    }
}
