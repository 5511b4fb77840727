//! The breakers' voice: a line for the operator when an endpoint's breaker opened or closed again. Owns what was said;
//! must never change a breaker.

use crate::serve::Shared;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use warmpath_core::breaker::{BreakerTerms, State};
use warmpath_core::shared::EndpointState;
use warmpath_core::table::{Service, Table};
use warmpath_core::{Nanos, SECOND};

/// How often endpoints are looked at.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// How often each endpoint's breaker had flipped when that was last told.
#[derive(Debug, Default)]
pub struct Voice {
    told: BTreeMap<SocketAddr, (u32, u32)>,
}

impl Voice {
    /// What to say now: a line for each endpoint whose breaker flipped since the last look, however often.
    pub fn look(&mut self, table: &Table, now: Nanos) -> Vec<String> {
        let mut endpoints: BTreeMap<SocketAddr, (&Service, &EndpointState, BreakerTerms)> = BTreeMap::new();
        for service in table.services() {
            let Some(terms) = service.rule.breaker else { continue };
            for endpoint in &service.endpoints {
                endpoints.entry(endpoint.address()).or_insert((service, endpoint, terms));
            }
        }
        self.told.retain(|address, _| endpoints.contains_key(address));
        let flipped = |(service, endpoint, terms): (&Service, &EndpointState, BreakerTerms)| {
            let flips = endpoint.breaker().flips();
            let before = self.told.insert(endpoint.address(), flips).unwrap_or_default();
            (before != flips).then(|| sentence(service, endpoint, terms, flips.0.wrapping_sub(before.0), now))
        };
        endpoints.into_values().filter_map(flipped).collect()
    }
}

/// Scripts search the log for the tag.
fn sentence(
    service: &Service,
    endpoint: &EndpointState,
    terms: BreakerTerms,
    opened: u32,
    now: Nanos,
) -> String {
    let (breaker, address, rule) = (endpoint.breaker().now(), endpoint.address(), &service.rule.name);
    match breaker.state(now) {
        State::Closed => {
            format!("[CB_ORIGIN] endpoint {address} of rule {rule:?} answers again; its breaker is closed")
        }
        State::Open | State::HalfOpen => {
            let times = if opened > 1 { format!(" {opened} times") } else { String::new() };
            format!(
                "[CB_ORIGIN] the breaker of endpoint {address} of rule {rule:?} opened{times} for {}: it gets no \
                 request for {} s, then one at a time until one is answered well; look at the engine's own log",
                breaker.cause().words(),
                terms.open / SECOND
            )
        }
    }
}

/// Looks again and again.
pub async fn watch(gateway: Shared) {
    let mut voice = Voice::default();
    let mut next = Instant::now();
    loop {
        next += LOOK_EACH;
        sleep_until(next).await;
        let gateway = gateway.borrow();
        let lines = voice.look(&gateway.table, (gateway.outside.now)());
        lines.iter().for_each(|line| (gateway.outside.say)(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::body;
    use serde_json::json;
    use warmpath_core::breaker::Outcome;
    use warmpath_core::environment::Environment;
    use warmpath_core::rule::body::parse;

    fn table(members: &[(&str, bool)]) -> Table {
        let rules = members.iter().enumerate().map(|(i, (name, has))| {
            let mut body = body(name, 80 + i as u16);
            body["serviceArguments"]["cb_enable"] = json!(has);
            parse(&body, &Environment::default(), || "id".into()).unwrap()
        });
        Table::next(&Table::default(), rules.collect(), &mut 0, 0)
    }

    #[test]
    fn each_flip_is_told_once() {
        let (table, mut voice) = (table(&[("chat", true)]), Voice::default());
        let endpoint = &table.vips[0].services[0].endpoints[0];
        let terms = BreakerTerms::plain(3);
        let end = |outcome, at| endpoint.breaker().ended(outcome, terms, at);
        assert!(voice.look(&table, 0).is_empty());
        for _ in 0..5 {
            end(Outcome::Unanswered, SECOND);
        }
        let opened = voice.look(&table, SECOND);
        assert_eq!(opened.len(), 1);
        assert!(opened[0].starts_with("[CB_ORIGIN] the breaker of endpoint "), "{opened:?}");
        assert!(opened[0].contains("of rule \"chat\" opened for attempts without an answer: "), "{opened:?}");
        assert!(opened[0].contains("no request for 30 s"), "{opened:?}");
        assert!(voice.look(&table, 2 * SECOND).is_empty(), "it was told");
        let due = 31 * SECOND;
        assert!(endpoint.breaker().take_trial(due).is_some());
        endpoint.breaker().trial_ended(Outcome::Answered, terms, due);
        let closed = voice.look(&table, due);
        assert!(closed.len() == 1 && closed[0].ends_with("its breaker is closed"), "{closed:?}");
        for _ in 0..3 {
            end(Outcome::OriginError, due);
        }
        assert!(voice.look(&table, due)[0].contains("opened for answers of 5xx"));
    }

    #[test]
    fn rules_without_a_breaker_have_no_voice() {
        let (table, mut voice) = (table(&[("a", false), ("b", false)]), Voice::default());
        let endpoint = &table.vips[0].services[0].endpoints[0];
        for _ in 0..9 {
            endpoint.breaker().ended(Outcome::Unanswered, BreakerTerms::plain(3), 0);
        }
        assert!(voice.look(&table, 0).is_empty());
    }
}
