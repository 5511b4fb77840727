//! Who serves a pair: prefill and decode, each down its ladder, else a normal endpoint alone. Owns carrying out what the
//! ladder says; must never compare endpoints (core does).

use crate::breaker::Charge;
use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::leg::{SideLeg, Work};
use crate::services::ShardService;
use std::cell::RefCell;
use warmpath_core::control::PairCount;
use warmpath_core::decide::ladder::{Known, Ladder, Step};
use warmpath_core::decide::{Reason, Turn};
use warmpath_core::fault::Fault;
use warmpath_core::fleet::Excluded;
use warmpath_core::rule::Role;
use warmpath_ring::Ring;

/// Who serves a request.
pub enum Chosen {
    /// This prefill endpoint, and the decode endpoint that the exchange's route names.
    Pair(Box<SideLeg>),
    /// A normal endpoint alone.
    Normal,
}

impl<R: Ring> Flow<R> {
    /// Chooses and charges both endpoints, or a normal one for all.
    pub(crate) fn choose_pair(&mut self, exchange: &mut Exchange) -> Result<Chosen, Fault> {
        let Some(service) = exchange.route.service.clone() else { return Err(Fault::NoRoute) };
        service.service.view(self.now, &mut self.view);
        let (session, tried) = (exchange.facts.session, exchange.route.tried);
        let pinned = service.service.pinned_pair(session, &self.view, tried, self.now);
        if let Some(leg) = self.choose_prefill(exchange, &service, pinned.map(|(prefill, _)| prefill)) {
            let decode = pinned.and_then(|(_, decode)| decode);
            service.service.sent(&exchange.path, leg.endpoint, self.now);
            if exchange.route.charge.is_some() || self.choose_decode(exchange, &service, decode) {
                service.service.pin_pair(session, leg.endpoint, exchange.route.endpoint, self.now);
                return Ok(Chosen::Pair(leg));
            }
            self.break_promise(exchange);
        }
        exchange.settle();
        self.choose_normal(exchange, &service).map(|()| Chosen::Normal)
    }

    /// Down the ladder: session, prefix trie, blocks, load. The charge of decode stays as it is.
    pub(crate) fn choose_prefill(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        pinned: Option<usize>,
    ) -> Option<Box<SideLeg>> {
        let decode = (exchange.route.endpoint, exchange.route.charge.take());
        let order = exchange.pair.as_ref()?.pairing.order;
        let excluded = exchange.route.tried.with(service.service.not_by_blocks());
        let known = self.known(exchange, service, excluded);
        let ladder = Ladder::prefill(excluded, pinned, known.zip(service.service.rule.cache_aware));
        let chosen = self.descend(exchange, service, ladder, &service.turn);
        if let Some(reason) = exchange.route.reason.filter(|_| chosen) {
            service.counts.borrow_mut().decided(reason);
        }
        if chosen && exchange.route.reason.is_some_and(|reason| reason.tier() != "tier15") {
            self.brings_all(exchange, service);
        }
        let leg = chosen.then(|| {
            let route = &mut exchange.route;
            let leg = SideLeg::new(Work::Prompt, route.endpoint, route.charge.take());
            Box::new(leg.of_prompt(route.rank.take(), order))
        });
        (exchange.route.endpoint, exchange.route.charge) = decode;
        leg
    }

    /// Who was sent the longest beginning of the prompt, without those of whom events tell that they hold nothing of it
    /// any more.
    fn known(&mut self, exchange: &Exchange, service: &ShardService, excluded: Excluded) -> Option<Known> {
        let mut excluded = excluded;
        loop {
            let known = service.service.known(&exchange.path, &self.view, excluded, self.now)?;
            if !self.has_evicted(service, known.endpoint) {
                return Some(known);
            }
            excluded.add(known.endpoint);
        }
    }

    /// Takes the first step of the ladder that can be taken.
    fn descend(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        mut ladder: Ladder,
        turn: &RefCell<Turn>,
    ) -> bool {
        loop {
            let step = ladder.next(&self.view, &mut turn.borrow_mut());
            match step {
                None => return false,
                Some(Step::Blocks) if self.choose_by_blocks(exchange, service) => return true,
                Some(Step::Blocks) => {}
                Some(Step::Reserve(decision)) => {
                    if self.take(exchange, service, decision.endpoint, decision.reason) {
                        return true;
                    }
                    ladder.refused(decision.endpoint);
                }
            }
        }
    }

    /// Prefill was not chosen by its blocks: it will have all of the prompt's. Where blocks were not asked at all,
    /// nothing is explained or predicted.
    fn brings_all(&mut self, exchange: &mut Exchange, service: &ShardService) {
        if matches!(exchange.route.reason, Some(Reason::Session | Reason::PrefixTrie)) {
            (exchange.route.predicted_tokens, exchange.route.rank) = (0, None);
            (exchange.route.explained, exchange.route.claim) = (None, None);
        }
        self.promise_all(exchange, service);
    }

    pub(crate) fn choose_decode(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        pinned: Option<usize>,
    ) -> bool {
        let reason = exchange.route.reason;
        let others =
            service.service.roles.as_ref().map(|roles| roles.all_but(Role::Decode)).unwrap_or_default();
        let ladder = Ladder::decode(exchange.route.tried.with(others), pinned);
        let chosen = self.descend(exchange, service, ladder, &service.decode_turn);
        // What decided is told of prefill, where there was a choice worth telling.
        exchange.route.reason = reason;
        chosen
    }

    /// Chooses and charges an encoder: the one with the least to do.
    pub(crate) fn choose_beside(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        excluded: Excluded,
    ) -> Option<(usize, Option<Charge>)> {
        let (endpoint, reason) = (exchange.route.endpoint, exchange.route.reason);
        let ladder = Ladder::decode(excluded, None);
        let chosen = self.descend(exchange, service, ladder, &service.encode_turn);
        let chosen = chosen.then(|| (exchange.route.endpoint, exchange.route.charge.take()));
        // What decided is told of prefill.
        (exchange.route.endpoint, exchange.route.reason) = (endpoint, reason);
        chosen
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
    pub(crate) fn choose_normal(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
    ) -> Result<(), Fault> {
        self.choose_alone(exchange, service, Role::Normal).map_err(of_pair)?;
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
            .map_err(of_pair)
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

/// Nobody could be chosen: of a pair that is its own fault, unless the gate holds everybody back.
fn of_pair(fault: Fault) -> Fault {
    if fault.is_admission() { fault } else { Fault::PairUnavailable }
}
