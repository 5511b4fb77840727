//! A leg beside the answer's, to a prefill engine or to an encoder: its connection, its request, its answer as far as it
//! came, its end. Owns the leg while it is under way, so that whoever closes its connection settles it; must never
//! decide what its end means ([`crate::pair`] and [`crate::encode`] do).
//!
//! The leg lives in the record of the connection that carries it. Its deadline is that connection's.

use crate::breaker::Charge;
use crate::conn::{Client, Stage, Upstream, UpstreamState};
use crate::exchange::{Answer, AnswerBody, Exchange, RankCharge, Reserved};
use crate::explain;
use crate::flow::Flow;
use crate::forward::{self, Forwarded, Outgoing};
use crate::framing::{Parsed, parse_final};
use crate::pair;
use crate::pool::PoolId;
use crate::usage::{self, Usage};
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::breaker::Outcome;
use warmpath_core::control::{Count, PairCount};
use warmpath_core::engine::pairing::Order;
use warmpath_core::fault::Fault;
use warmpath_parser::http1::{Field, Framing, Limits, Method, ResponseParser, write};
use warmpath_ring::{Body, Errno, Held, Payload, Ring};

/// Bytes of an engine's answer that are handed on; a longer one is no answer.
const ANSWER_MAX: usize = 64 << 20;

/// Bytes of an answer that are collected without a reservation.
const UNRESERVED: usize = 16 * 1024;

/// What a leg is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The prompt is computed.
    Prompt,
    /// This part of the request's media is encoded.
    Part(usize),
}

/// Why a leg came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No connection: the endpoint has nothing of it.
    Unreachable,
    /// The connection ended before the answer was whole, or what came is no answer.
    Died,
    /// Its time is over.
    Late,
    /// The gateway can't go on with it.
    Fault(Fault),
}

/// A leg under way.
pub struct SideLeg {
    /// What it is for.
    pub work: Work,
    /// Index of its endpoint.
    pub endpoint: usize,
    /// What is charged to the endpoint.
    pub charge: Option<Charge>,
    /// The rank that was chosen.
    pub rank: Option<RankCharge>,
    /// Its answer is of no use if it is a good one: the engines meet by themselves.
    pub discards: bool,
    /// It went out on a connection that had idled.
    reused: bool,
    /// It was sent anew on a fresh connection.
    replayed: bool,
    /// When it was sent.
    sent: Nanos,
    /// The answer's head and where its body ends.
    pub answer: Answer,
    /// The answer: its head, then its body without framing.
    pub bytes: Vec<u8>,
    /// Where the body begins.
    pub body_at: usize,
    /// Memory of `bytes`.
    pub reserved: Option<Reserved>,
}

/// How far an answer came.
enum Progress {
    /// More of it is to come.
    Partial,
    /// It is whole; `clean`: nothing came behind it.
    Whole {
        /// Whether the connection may serve again.
        clean: bool,
    },
}

impl SideLeg {
    /// To an endpoint that was just charged for it.
    pub fn new(work: Work, endpoint: usize, charge: Option<Charge>) -> SideLeg {
        SideLeg {
            work,
            endpoint,
            charge,
            rank: None,
            discards: false,
            reused: false,
            replayed: false,
            sent: 0,
            answer: Answer::default(),
            bytes: Vec::new(),
            body_at: 0,
            reserved: None,
        }
    }

    /// Of a prompt, at this rank of the endpoint.
    pub fn of_prompt(self, rank: Option<RankCharge>, order: Order) -> SideLeg {
        SideLeg { rank, discards: order == Order::Together, ..self }
    }

    /// Its answer's body, as far as it came and is of use.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(self.body_at..).unwrap_or_default()
    }

    /// Takes in bytes of the answer.
    fn take_in(&mut self, bytes: &[u8], limits: &Limits) -> Result<Progress, Fault> {
        if self.answer.status != 0 {
            return self.take_body(bytes, limits);
        }
        self.bytes.extend_from_slice(bytes);
        let parsed = parse_final(&mut self.answer, Method::Post, &self.bytes, limits);
        match parsed.map_err(|_| Fault::BadAnswer)? {
            Parsed::Partial { at } => {
                self.bytes.drain(..at);
                Ok(Progress::Partial)
            }
            Parsed::Final { at } => {
                self.bytes.drain(..at);
                self.begin_body();
                let begun = self.bytes.split_off(self.body_at.min(self.bytes.len()));
                self.take_body(&begun, limits)
            }
        }
    }

    fn begin_body(&mut self) {
        let head = self.answer.parser.head();
        self.answer.status = head.status;
        self.body_at = head.len as usize;
        // A refusal goes to the client even where good answers are of no use.
        self.discards &= head.status < 400;
        self.answer.body = match head.body {
            Framing::None => AnswerBody::None,
            Framing::Length(bytes) => AnswerBody::Length(bytes),
            Framing::Chunked => AnswerBody::Chunked(Default::default()),
            Framing::UntilClose => AnswerBody::UntilClose,
        };
    }

    fn take_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<Progress, Fault> {
        let mut at = 0;
        let done = match &mut self.answer.body {
            AnswerBody::None => true,
            AnswerBody::UntilClose => {
                usage::read(&mut self.answer.usage, bytes);
                keep(&mut self.bytes, self.discards, bytes)?;
                return Ok(Progress::Partial);
            }
            AnswerBody::Length(left) => {
                at = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= at as u64;
                let done = *left == 0;
                usage::read(&mut self.answer.usage, &bytes[..at]);
                keep(&mut self.bytes, self.discards, &bytes[..at])?;
                done
            }
            AnswerBody::Chunked(decoder) => {
                let mut done = false;
                while at < bytes.len() && !done {
                    let piece = decoder.advance(&bytes[at..], limits).map_err(|_| Fault::BadAnswer)?;
                    let data = &bytes[at + piece.data.start..at + piece.data.end];
                    usage::read(&mut self.answer.usage, data);
                    keep(&mut self.bytes, self.discards, data)?;
                    at += piece.consumed;
                    done = piece.done;
                }
                done
            }
        };
        Ok(if done { Progress::Whole { clean: at == bytes.len() } } else { Progress::Partial })
    }

    /// Makes an answer of the gateway's own edition of it. `head` is whole, and names no length.
    pub fn become_answer(&mut self, head: &[u8], body: &[u8]) {
        self.answer = Answer { parser: ResponseParser::new(Method::Post), ..Answer::default() };
        self.bytes.clear();
        // Not read from a peer: it is this crate's own text.
        let _ = self.take_in(head, &Limits::default());
        self.bytes.extend_from_slice(body);
    }

    /// Reads what the answer tells of the engine's cache too.
    fn reads_usage(&mut self) {
        self.answer.usage = Some(Usage::default());
    }

    /// Whether the answer ends where its connection does.
    fn ends_with_connection(&self) -> bool {
        self.answer.status != 0 && matches!(self.answer.body, AnswerBody::UntilClose)
    }

    /// Charges what was collected to the memory of all; false: there is none.
    fn charge_memory(&mut self, budget: &Arc<crate::budget::Budget>) -> bool {
        let held = self.bytes.capacity();
        match &mut self.reserved {
            Some(reserved) => reserved.grow((held as u64).saturating_sub(reserved.bytes())),
            None if held <= UNRESERVED => true,
            None => {
                self.reserved = Reserved::take(budget, held as u64);
                self.reserved.is_some()
            }
        }
    }
}

fn keep(kept: &mut Vec<u8>, discards: bool, data: &[u8]) -> Result<(), Fault> {
    if discards {
        return Ok(());
    }
    if kept.len() + data.len() > ANSWER_MAX {
        return Err(Fault::BadAnswer);
    }
    kept.extend_from_slice(data);
    Ok(())
}

impl<R: Ring> Flow<R> {
    /// Takes a pooled connection to the leg's endpoint, or opens one.
    pub(crate) fn dial_leg(&mut self, client: &mut Client, mut leg: Box<SideLeg>) {
        let Some(exchange) = &client.exchange else { return };
        let Some(service) = &exchange.route.service else { return };
        let pool = service.pools[leg.endpoint];
        client.stage = Stage::Prefilling;
        // Its connection watches the time.
        self.expect_client(client, Nanos::MAX);
        match self.take_pooled(pool) {
            Some(mut upstream) => {
                self.tally.count(Count::Reused);
                leg.reused = true;
                upstream.leg = Some(leg);
                self.send_leg(client, &mut upstream);
                self.conns.put_upstream(upstream);
            }
            None => self.connect_leg(client, pool, leg),
        }
    }

    fn connect_leg(&mut self, client: &mut Client, pool: PoolId, mut leg: Box<SideLeg>) {
        leg.reused = false;
        let Some(mut upstream) = self.open(client.sock, pool) else {
            return self.leg_unreachable(client, leg);
        };
        let rule = client.exchange.as_ref().and_then(|e| e.route.service.as_ref()).map(|s| &s.service.rule);
        let connect = rule.map_or(0, |rule| rule.deadlines.connect);
        if let Some(pair) = pair::of(client) {
            pair.carry(leg.work, Some(upstream.sock));
            upstream.deadline.at = (self.now + connect).min(pair.due(leg.work));
        }
        upstream.leg = Some(leg);
        self.watch_upstream(&mut upstream);
        self.conns.add_upstream(upstream);
    }

    /// A connection attempt of a leg ended.
    pub(crate) fn leg_dialed(
        &mut self,
        client: &mut Client,
        upstream: &mut Upstream,
        result: Result<(), Errno>,
    ) {
        if result.is_ok() {
            self.pools.get(upstream.pool).endpoint.connect_succeeded();
            upstream.state = UpstreamState::Busy;
            self.ring.receive(upstream.sock);
            return self.send_leg(client, upstream);
        }
        self.leg_not_dialed(client, upstream);
    }

    fn leg_not_dialed(&mut self, client: &mut Client, upstream: &mut Upstream) {
        let leg = self.end_leg(client, upstream);
        if let Some(leg) = leg {
            self.leg_unreachable(client, leg);
        }
    }

    /// Nothing of it was sent, so another endpoint may be asked without risk.
    fn leg_unreachable(&mut self, client: &mut Client, mut leg: Box<SideLeg>) {
        self.tally.count(Count::ConnectFailures);
        self.judge_leg(client, &mut leg, Outcome::Unanswered);
        self.tally.count(Count::Failovers);
        self.count_pair(client, PairCount::ConnectFailover);
        self.lose_leg(client, &leg, Loss::Unreachable);
    }

    /// A leg came to nothing: whose it is says what then.
    fn lose_leg(&mut self, client: &mut Client, leg: &SideLeg, loss: Loss) {
        match (leg.work, loss) {
            (Work::Part(part), loss) => self.encode_lost(client, part, leg.endpoint, loss),
            (Work::Prompt, Loss::Unreachable) => self.another_prefill(client, leg.endpoint),
            (Work::Prompt, Loss::Died) => self.prefill_died(client, leg.endpoint),
            (Work::Prompt, Loss::Late) => self.prefill_failed(client, Fault::PrefillTimeout),
            (Work::Prompt, Loss::Fault(fault)) => self.prefill_failed(client, fault),
        }
    }

    /// Tells the breaker of the leg's endpoint how the attempt ended.
    fn judge_leg(&mut self, client: &Client, leg: &mut SideLeg, outcome: Outcome) {
        let service = client.exchange.as_ref().and_then(|exchange| exchange.route.service.as_ref());
        let terms = service.and_then(|service| service.service.rule.breaker);
        if let Some((charge, terms)) = leg.charge.as_mut().zip(terms) {
            self.charge_ended(charge, outcome, terms);
        }
    }

    /// Sends the leg's request on its connection.
    fn send_leg(&mut self, client: &mut Client, upstream: &mut Upstream) {
        let sock = upstream.sock;
        upstream.client = Some(client.sock);
        upstream.sent_before = upstream.sent;
        let forwarded =
            Forwarded { client: client.peer.ip(), port: self.rules.vips[client.vip].address.port() };
        let (Some(leg), Some(exchange)) = (&mut upstream.leg, &mut client.exchange) else { return };
        leg.sent = self.now;
        leg.answer.parser = ResponseParser::new(Method::Post);
        exchange.times.sent = self.now;
        if exchange.route.explained.is_some() && leg.work == Work::Prompt {
            leg.reads_usage();
        }
        let Some(pair) = &mut exchange.pair else { return };
        let work = leg.work;
        pair.carry(work, Some(sock));
        let rank = leg.rank.as_ref().and_then(RankCharge::to_name);
        upstream.deadline.at = pair.due(work);
        self.watch_upstream(upstream);
        let payload = client.exchange.as_ref().and_then(|e| match work {
            Work::Prompt => self.prefill_payload(e, forwarded, rank),
            Work::Part(part) => self.encode_payload(e, part, forwarded),
        });
        let Some(payload) = payload else {
            if let Some(leg) = self.end_leg(client, upstream) {
                self.lose_leg(client, &leg, Loss::Fault(Fault::BadJson));
            }
            return;
        };
        self.send_upstream(upstream, payload);
        if work == Work::Prompt {
            self.prefill_sent(client);
        }
    }

    fn prefill_payload(
        &mut self,
        exchange: &Exchange,
        forwarded: Forwarded,
        rank: Option<u8>,
    ) -> Option<Payload> {
        let pair = exchange.pair.as_deref()?;
        let mut body = self.memory.spare.take(exchange.body.len() + pair::EDIT_MAX);
        self.write_leg(exchange, |given| pair.pairing.prefill_body(given, &pair.terms(), &mut body))?;
        Some(self.leg_payload(exchange, &pair.id, forwarded, rank, body))
    }

    /// The head of a leg's request, with its body behind it.
    pub(crate) fn leg_payload(
        &mut self,
        exchange: &Exchange,
        id: &[u8],
        forwarded: Forwarded,
        rank: Option<u8>,
        body: Vec<u8>,
    ) -> Payload {
        let mut head = self.memory.spare.take(exchange.head.len as usize + 256 + id.len());
        let outgoing = Outgoing {
            bytes: &exchange.request,
            head: &exchange.head,
            headers: &exchange.headers,
            body: Framing::Length(body.len() as u64),
            edited: true,
            forwarded: self.settings.features.forwarded.then_some(forwarded),
            request_id: (!id.is_empty()).then_some(id),
            rank,
        };
        forward::request_head(&outgoing, &mut head);
        Payload { head, body: Body::Owned { range: 0..body.len(), bytes: body } }
    }

    /// A send of a leg ended.
    pub(crate) fn leg_send_ended(&mut self, upstream: &mut Upstream, result: Result<(), Errno>) {
        if result.is_err() {
            self.leg_lost(upstream, true);
        } else if let Some(next) = upstream.outbox.pop() {
            self.transmit(upstream, next);
        }
    }

    /// Bytes of a leg's answer came.
    pub(crate) fn leg_bytes(&mut self, upstream: &mut Upstream, held: Held) {
        let Some(leg) = &mut upstream.leg else { return self.release(held) };
        let taken = leg.take_in(self.ring.bytes(&held), &self.settings.limits);
        let charged = leg.charge_memory(&self.memory.budget);
        self.release(held);
        match taken {
            Ok(Progress::Partial) if charged => {}
            Ok(Progress::Whole { clean }) if charged => self.leg_whole(upstream, clean),
            Ok(_) => self.leg_broken(upstream, Fault::MemoryPressure),
            Err(fault) => self.leg_broken(upstream, fault),
        }
    }

    /// The engine's answer is there.
    fn leg_whole(&mut self, upstream: &mut Upstream, clean: bool) {
        let Some(mut leg) = upstream.leg.take() else { return };
        let client = upstream.client.and_then(|sock| self.conns.take_client(sock));
        let head = leg.answer.parser.head();
        let framed = !matches!(leg.answer.body, AnswerBody::UntilClose);
        self.pool_or_close(upstream, clean && framed && head.connection.persists(head.version));
        // Of a pair that is over, nobody waits for it: it is settled here.
        let Some(mut client) = client else { return };
        if let Some(pair) = pair::of(&mut client) {
            pair.carry(leg.work, None);
        }
        let outcome = Outcome::of(leg.answer.status);
        self.judge_leg(&client, &mut leg, outcome);
        match leg.work {
            Work::Prompt => self.prefill_ended(&mut client, leg),
            Work::Part(part) => self.encode_ended(&mut client, part, leg),
        }
        self.conns.put_client(client);
    }

    /// The connection of a leg ended, or failed if `broken`.
    pub(crate) fn leg_lost(&mut self, upstream: &mut Upstream, broken: bool) {
        if !broken && upstream.leg.as_ref().is_some_and(|leg| leg.ends_with_connection()) {
            return self.leg_whole(upstream, false);
        }
        let Some(mut client) = upstream.client.and_then(|sock| self.conns.take_client(sock)) else {
            return self.close_upstream(upstream);
        };
        let replays = upstream.leg.as_ref().is_some_and(|leg| self.may_replay_leg(leg, upstream));
        match self.end_leg(&mut client, upstream) {
            Some(leg) if replays => self.replay_leg(&mut client, upstream.pool, leg),
            Some(mut leg) => {
                self.judge_leg(&client, &mut leg, Outcome::Unanswered);
                self.lose_leg(&mut client, &leg, Loss::Died);
            }
            None => {}
        }
        self.conns.put_client(client);
    }

    /// As of a plain request: nobody can have begun to work on it.
    fn may_replay_leg(&mut self, leg: &SideLeg, upstream: &Upstream) -> bool {
        let untouched = |acked: u64| acked <= upstream.sent_before + 1;
        leg.reused
            && !leg.replayed
            && leg.bytes.is_empty()
            && self.now.saturating_sub(leg.sent) <= self.settings.replay_window
            && self.ring.acknowledged(upstream.sock).is_some_and(untouched)
    }

    fn replay_leg(&mut self, client: &mut Client, pool: PoolId, mut leg: Box<SideLeg>) {
        leg.replayed = true;
        self.tally.count(Count::Replays);
        self.connect_leg(client, pool, leg);
    }

    /// The answer can't be taken in.
    fn leg_broken(&mut self, upstream: &mut Upstream, fault: Fault) {
        let client = upstream.client.and_then(|sock| self.conns.take_client(sock));
        let Some(mut client) = client else { return self.close_upstream(upstream) };
        match (fault, self.end_leg(&mut client, upstream)) {
            (Fault::BadAnswer, Some(mut leg)) => {
                self.judge_leg(&client, &mut leg, Outcome::Unanswered);
                self.lose_leg(&mut client, &leg, Loss::Died);
            }
            (fault, Some(leg)) => self.lose_leg(&mut client, &leg, Loss::Fault(fault)),
            (_, None) => {}
        }
        self.conns.put_client(client);
    }

    /// The deadline of a leg's connection passed.
    pub(crate) fn leg_due(&mut self, upstream: &mut Upstream) {
        if upstream.deadline.at > self.now {
            return self.watch_upstream(upstream);
        }
        let client = upstream.client.and_then(|sock| self.conns.take_client(sock));
        let Some(mut client) = client else { return self.close_upstream(upstream) };
        let work = upstream.leg.as_ref().map_or(Work::Prompt, |leg| leg.work);
        let in_time = pair::of(&mut client).is_some_and(|pair| self.now < pair.due(work));
        if upstream.state == UpstreamState::Connecting && in_time {
            self.leg_not_dialed(&mut client, upstream);
        } else if let Some(mut leg) = self.end_leg(&mut client, upstream) {
            self.judge_leg(&client, &mut leg, Outcome::Unanswered);
            self.lose_leg(&mut client, &leg, Loss::Late);
        }
        self.conns.put_client(client);
    }

    /// The engine's answer is the client's.
    pub(crate) fn relay_leg(&mut self, client: &mut Client, mut leg: Box<SideLeg>) {
        let persistence = self.persistence(client);
        let Some(exchange) = &mut client.exchange else { return };
        let decode = exchange.route.upstream.take();
        exchange.settle();
        exchange.route.endpoint = leg.endpoint;
        exchange.times.first_byte = self.now;
        let answer = &mut exchange.answer;
        (answer.status, answer.complete, answer.bytes_out) =
            (leg.answer.status, true, leg.body().len() as u64);
        let mut out = self.memory.spare.take(leg.body_at + 256);
        let (head, lines) = (leg.answer.parser.head(), &leg.answer.headers);
        forward::answer_head(&leg.bytes[..leg.body_at], &head, lines, persistence, false, &mut out);
        if !lines.has(Field::ContentLength) {
            out.extend_from_slice(b"Content-Length: ");
            write::decimal(&mut out, leg.body().len() as u64);
            out.extend_from_slice(b"\r\n");
        }
        explain::write_receipt(exchange, &mut out);
        out.extend_from_slice(b"\r\n");
        exchange.unread = leg.reserved.take();
        self.let_go_of_request(exchange);
        self.drop_leg(decode);
        client.stage = Stage::Relaying;
        self.expect_client(client, self.settings.client_write);
        let range = leg.body_at..leg.bytes.len();
        let body = Body::Owned { bytes: std::mem::take(&mut leg.bytes), range };
        self.send_client(client, Payload { head: out, body });
    }

    /// Closes the connection of a leg: what was charged for it is settled with the leg.
    fn end_leg(&mut self, client: &mut Client, upstream: &mut Upstream) -> Option<Box<SideLeg>> {
        let leg = upstream.leg.take();
        self.close_upstream(upstream);
        if let Some((leg, pair)) = leg.as_ref().zip(pair::of(client)) {
            pair.carry(leg.work, None);
        }
        leg
    }
}
