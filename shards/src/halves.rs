//! Which two endpoints serve a pair, or which one serves what is none. Owns the order in which they are asked, and that
//! both are charged before a byte goes out; must never compare endpoints (the decision does), nor send anything.

use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::prefill::PrefillLeg;
use crate::services::ShardService;
use warmpath_core::control::PairCount;
use warmpath_core::decide::{Reason, least_loaded};
use warmpath_core::fault::Fault;
use warmpath_core::rule::Role;
use warmpath_ring::Ring;

/// Who serves a request.
pub enum Chosen {
    /// This prefill endpoint, and the decode endpoint that the exchange's route names.
    Pair(Box<PrefillLeg>),
    /// A normal endpoint alone.
    Normal,
}

impl<R: Ring> Flow<R> {
    /// Chooses and charges prefill and decode, or where one of them has nobody a normal endpoint.
    pub(crate) fn choose_pair(&mut self, exchange: &mut Exchange) -> Result<Chosen, Fault> {
        let Some(service) = exchange.route.service.clone() else { return Err(Fault::NoRoute) };
        service.service.view(self.now, &mut self.view);
        let (session, tried) = (exchange.facts.session, exchange.route.tried);
        let pinned = service.service.pinned_pair(session, &self.view, tried, self.now);
        if let Some(leg) = self.choose_prefill(exchange, &service, pinned.map(|(prefill, _)| prefill)) {
            let decode = pinned.and_then(|(_, decode)| decode);
            if exchange.route.charge.is_some() || self.choose_decode(exchange, &service, decode) {
                service.service.pin_pair(session, leg.endpoint, exchange.route.endpoint, self.now);
                return Ok(Chosen::Pair(leg));
            }
            self.break_promise(exchange);
        }
        exchange.settle();
        self.choose_normal(exchange, &service).map(|()| Chosen::Normal)
    }

    /// The endpoint of its session, by the blocks that prefill endpoints hold where the rule asks for that, by their
    /// load. The charge of decode stays as it is.
    pub(crate) fn choose_prefill(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        pinned: Option<usize>,
    ) -> Option<Box<PrefillLeg>> {
        let decode = (exchange.route.endpoint, exchange.route.charge.take());
        let order = exchange.pair.as_ref()?.pairing.order;
        let chosen = pinned.is_some_and(|pinned| self.stay(exchange, service, pinned))
            || self.choose_by_blocks(exchange, service)
            || self.choose_by_load(exchange, service, Role::Prefill);
        let leg = chosen.then(|| {
            let route = &mut exchange.route;
            Box::new(PrefillLeg::new(route.endpoint, route.charge.take(), route.rank.take(), order))
        });
        (exchange.route.endpoint, exchange.route.charge) = decode;
        leg
    }

    /// The prefill endpoint that the session's earlier requests went to.
    fn stay(&mut self, exchange: &mut Exchange, service: &ShardService, pinned: usize) -> bool {
        if !self.take(exchange, service, pinned, Reason::Session) {
            return false;
        }
        // Nothing was looked up, so nothing is predicted; what it brings, others may know of.
        (exchange.route.predicted_tokens, exchange.route.rank) = (0, None);
        (exchange.route.explained, exchange.route.claim) = (None, None);
        self.promise_all(exchange, service);
        service.counts.borrow_mut().session_hit();
        true
    }

    /// The decode endpoint of the session, else the one with fewest requests in flight.
    pub(crate) fn choose_decode(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        pinned: Option<usize>,
    ) -> bool {
        let reason = exchange.route.reason;
        let chosen = pinned.is_some_and(|pinned| self.take(exchange, service, pinned, Reason::Session))
            || self.choose_by_load(exchange, service, Role::Decode);
        // What decided is told of prefill, where there was a choice worth telling.
        exchange.route.reason = reason;
        chosen
    }

    /// The endpoint of a role with fewest requests in flight.
    fn choose_by_load(&mut self, exchange: &mut Exchange, service: &ShardService, role: Role) -> bool {
        let Some(roles) = &service.service.roles else { return false };
        let turn = if role == Role::Decode { &service.decode_turn } else { &service.turn };
        let mut excluded = exchange.route.tried.with(roles.all_but(role));
        while let Some(decision) = least_loaded(&self.view, excluded, &mut turn.borrow_mut()) {
            if self.take(exchange, service, decision.endpoint, Reason::LeastLoad) {
                if role == Role::Prefill {
                    self.promise_all(exchange, service);
                }
                return true;
            }
            excluded.add(decision.endpoint);
        }
        false
    }

    /// Charges an endpoint; false: it takes no more, as one whose breaker is on trial.
    fn take(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        endpoint: usize,
        reason: Reason,
    ) -> bool {
        let Some(reserved) = service.service.reserve(endpoint, u32::MAX, self.now) else { return false };
        exchange.route.endpoint = endpoint;
        exchange.route.reason = Some(reason);
        exchange.route.charge = Some(self.charge(&service.service.endpoints[endpoint], reserved));
        true
    }

    /// Nobody for prefill, or nobody for decode: a normal endpoint takes the whole request, by the rule's selector.
    fn choose_normal(&mut self, exchange: &mut Exchange, service: &ShardService) -> Result<(), Fault> {
        self.choose_alone(exchange, service, Role::Normal).map_err(|_| Fault::PairUnavailable)?;
        exchange.pair = None;
        service.counts.borrow_mut().pairs.count(PairCount::FellBack);
        Ok(())
    }

    /// For a request that is no pair: a normal endpoint, else one for decode, which serves whole requests too where
    /// engines hand over.
    pub(crate) fn choose_undivided(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
    ) -> Result<(), Fault> {
        self.choose_alone(exchange, service, Role::Normal)
            .or_else(|_| self.choose_alone(exchange, service, Role::Decode))
            .map_err(|_| Fault::PairUnavailable)
    }

    /// An endpoint of one role for a whole request, by the rule's selector.
    fn choose_alone(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        role: Role,
    ) -> Result<(), Fault> {
        let others = service.service.roles.as_ref().map(|roles| roles.all_but(role)).unwrap_or_default();
        self.choose_by_selector(exchange, service, others)?;
        // Of its blocks nothing is known.
        exchange.route.claim = None;
        self.break_promise(exchange);
        Ok(())
    }
}
