//! What a request's end says of its endpoint's health. Owns telling the breaker of a charged endpoint, once for each
//! attempt; must never judge (core does).

use crate::exchange::Exchange;
use crate::flow::Flow;
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::breaker::{BreakerTerms, Change, Outcome};
use warmpath_core::control::Count;
use warmpath_core::shared::EndpointState;
use warmpath_core::table::Reserved;
use warmpath_ring::Ring;

/// Load charged to an endpoint, settled when dropped: exactly once, whatever happened. A trial that proved nothing
/// until then is given back.
#[derive(Debug)]
pub struct Charge {
    endpoint: Arc<EndpointState>,
    on_trial: bool,
}

impl Charge {
    /// Takes over a charge just made by [`warmpath_core::table::Service::reserve`].
    pub fn of(endpoint: Arc<EndpointState>, reserved: Reserved) -> Charge {
        Charge { endpoint, on_trial: reserved != Reserved::Plainly }
    }

    /// Whether it is its breaker's trial, which nobody else gets meanwhile.
    pub fn is_trial(&self) -> bool {
        self.on_trial
    }

    /// An attempt at the endpoint ended. What a charge that is not a trial any more is told counts as any other's.
    fn ended(&mut self, outcome: Outcome, terms: BreakerTerms, now: Nanos) -> Change {
        let breaker = self.endpoint.breaker();
        match std::mem::take(&mut self.on_trial) {
            true => breaker.trial_ended(outcome, terms, now),
            false => breaker.ended(outcome, terms, now),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.on_trial {
            self.endpoint.breaker().give_trial_back();
        }
        self.endpoint.settle();
    }
}

impl<R: Ring> Flow<R> {
    /// Takes over a charge made for `endpoint`.
    pub(crate) fn charge(&mut self, endpoint: &Arc<EndpointState>, reserved: Reserved) -> Charge {
        if let Reserved::OnTrial(trial) = reserved
            && trial.first
        {
            self.tally.count(Count::BreakerHeals);
        }
        Charge::of(endpoint.clone(), reserved)
    }

    /// The attempt that `exchange` is charged for ended so, as far as the endpoint's health goes. Without a breaker
    /// nothing is remembered.
    pub(crate) fn attempt_ended(&mut self, exchange: &mut Exchange, outcome: Outcome) {
        let terms = exchange.route.service.as_ref().and_then(|service| service.service.rule.breaker);
        if let Some((charge, terms)) = exchange.route.charge.as_mut().zip(terms) {
            self.charge_ended(charge, outcome, terms);
        }
    }

    /// The same for one charge of several.
    pub(crate) fn charge_ended(&mut self, charge: &mut Charge, outcome: Outcome, terms: BreakerTerms) {
        match charge.ended(outcome, terms, self.now) {
            Change::None => {}
            Change::Opened => self.tally.count(Count::BreakerOpenings),
            Change::Closed => self.tally.count(Count::BreakerClosings),
        }
    }
}
