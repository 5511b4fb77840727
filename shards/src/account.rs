//! A request is over: receipt, counts, and what becomes of the connection. Owns that this happens exactly
//! once for each request; must never be skipped by a fault.

use crate::conn::Client;
use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::gate;
use warmpath_core::control::Count;
use warmpath_core::decide::exact::Outcome as ExactOutcome;
use warmpath_core::receipt::Outcome;
use warmpath_ring::Ring;

impl<R: Ring> Flow<R> {
    /// The whole answer of an endpoint is with the client.
    pub(crate) fn answer_delivered(&mut self, client: &mut Client) {
        if let Some(exchange) = &mut client.exchange {
            let status = exchange.answer.status;
            self.account(exchange, Outcome::Completed, status);
        }
        self.next_request(client);
    }

    /// Settles what the request still holds and writes its receipt.
    pub(crate) fn account(&mut self, exchange: &mut Exchange, outcome: Outcome, status: u16) {
        if exchange.accounted {
            return;
        }
        exchange.accounted = true;
        if let Some(pair) = &exchange.pair {
            // Prefill's claims are proven by prefill's answer.
            exchange.route.claim = None;
            exchange.answer.usage = pair.usage();
        }
        self.break_promise(exchange);
        exchange.settle();
        gate::charge(exchange);
        exchange.pass = None;
        exchange.reserved = None;
        exchange.unread = None;
        exchange.parked = None;
        let own = matches!(outcome, Outcome::Answered) || exchange.answer.status == 0;
        if let Some(service) = &exchange.route.service
            && status != 0
        {
            service.counts.borrow_mut().answer((!own).then_some(exchange.route.endpoint), status);
        }
        if let Some(service) = &exchange.route.service
            && let Some(cached) = told_of_a_hit(exchange)
        {
            service.counts.borrow_mut().told(exchange.route.predicted_tokens, cached);
        }
        // Whole, whether or not the client stayed to its end.
        if exchange.answer.complete {
            let (endpoint, answer) = (exchange.route.endpoint, &exchange.answer);
            self.prove(exchange, endpoint, answer.status, answer.usage);
        }
        self.tally.add(Count::BytesOut, exchange.answer.bytes_out);
        if exchange.answer.streamed {
            self.tally.count(Count::Streams);
        }
        if self.settings.features.receipts {
            self.tally.receipt(exchange, outcome, status, self.now);
        }
        if exchange.pair.is_some() {
            self.end_pair(exchange, outcome, status);
        }
    }
}

/// The tokens that the engine says it had cached, of a prompt that exact routing sent it.
fn told_of_a_hit(exchange: &Exchange) -> Option<u32> {
    let chosen = matches!(exchange.route.explained?.outcome, ExactOutcome::Chosen { .. });
    exchange.answer.usage?.cached_tokens().filter(|_| chosen)
}
