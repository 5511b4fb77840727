//! The end of a pair: what is open is closed, what it holds is settled, and what its end says of its prefill engine is told.
//! Owns the counts of ends; must never send anything.

use super::{LEASE, Pair};
use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::services::ShardService;
use warmpath_core::breaker::{Change, Outcome as BreakerOutcome};
use warmpath_core::control::{Count, PairCount, PairEnd};
use warmpath_core::fault::{Blame, Fault};
use warmpath_core::receipt::{Outcome, PairPhase};
use warmpath_ring::{Ring, Sock};

impl<R: Ring> Flow<R> {
    /// The request is over: closes what is open of its pair, and settles what it holds. A prefill leg that still runs
    /// beside a whole answer is drained by itself.
    pub(crate) fn end_pair(&mut self, exchange: &mut Exchange, outcome: Outcome, status: u16) {
        let Some(mut pair) = exchange.pair.take() else { return };
        let complete = exchange.answer.complete;
        let whole = complete && outcome == Outcome::Completed;
        for leg in pair.encoding.iter_mut().flat_map(|encoding| encoding.legs()) {
            self.drop_leg(Some(leg));
        }
        let leg = pair.leg.take();
        let closes = leg.is_some() && !complete && pair.phase == PairPhase::Decode;
        match leg {
            Some(leg) if complete => self.drain_alone(leg),
            leg => self.drop_leg(leg),
        }
        let Some(service) = exchange.route.service.clone() else { return };
        if pair.is_together() {
            self.transfer_ended(&service, &pair, outcome, status);
        }
        let counts = &mut service.counts.borrow_mut().pairs;
        if closes {
            counts.count(PairCount::PrefillClosed);
        }
        if let Some(charge) = pair.kept.take() {
            counts.count(PairCount::Orphaned);
            self.orphans.push_back((self.now + LEASE, charge));
        }
        if outcome == Outcome::Faulted(Fault::DecodeDied) {
            counts.count(PairCount::DecodeDied);
        }
        let phase = if whole && status < 400 { PairPhase::Complete } else { pair.phase };
        counts.ended(phase, end_of(outcome, status));
        let (sent, first_byte) = (exchange.times.sent, exchange.times.first_byte);
        if phase >= PairPhase::Decode && first_byte != 0 {
            counts.decode.note(first_byte.saturating_sub(sent));
        }
    }

    /// Where engines meet: whether decode had the blocks. It says so itself where it had not (5xx), which its prefill
    /// engine, seen alone, may not notice; so that counts for that one's breaker too.
    fn transfer_ended(&mut self, service: &ShardService, pair: &Pair, outcome: Outcome, status: u16) {
        let lost = match outcome {
            Outcome::Completed | Outcome::Answered => status >= 500,
            Outcome::Faulted(fault) => fault.refusal().blame == Blame::Engine,
            _ => return,
        };
        // With its blocks handed over, decode failed by itself.
        if pair.phase < PairPhase::Decode || !lost && status >= 400 || lost && pair.computed {
            return;
        }
        let endpoint = &service.service.endpoints[pair.prefill_at];
        endpoint.transfer_ended(!lost);
        let told = matches!(outcome, Outcome::Completed | Outcome::Answered);
        if let Some(terms) = service.service.rule.breaker.filter(|_| lost && told)
            && endpoint.breaker().ended(BreakerOutcome::OriginError, terms, self.now) == Change::Opened
        {
            self.tally.count(Count::BreakerOpenings);
        }
    }

    /// A prefill leg whose pair is over ends by itself, or by its deadline.
    fn drain_alone(&mut self, leg: Sock) {
        if let Some(mut upstream) = self.conns.take_upstream(leg) {
            upstream.client = None;
            self.conns.put_upstream(upstream);
        }
    }

    /// Settles charges of blocks whose lease is over.
    pub(crate) fn end_leases(&mut self) {
        while self.orphans.front().is_some_and(|(until, _)| *until <= self.now) {
            self.orphans.pop_front();
        }
    }
}

/// How a pair ended, as `loxilb_ai_pd_requests_total` has it.
fn end_of(outcome: Outcome, status: u16) -> PairEnd {
    match outcome {
        Outcome::Completed | Outcome::Answered if status < 400 => PairEnd::Success,
        Outcome::Completed | Outcome::Answered if status < 500 => PairEnd::Rejected,
        Outcome::Faulted(fault) => match fault.refusal().status {
            504 => PairEnd::Timeout,
            _ if fault == Fault::PairUnavailable || fault.refusal().blame != Blame::Engine => {
                PairEnd::Rejected
            }
            _ => PairEnd::Error,
        },
        _ => PairEnd::Error,
    }
}
