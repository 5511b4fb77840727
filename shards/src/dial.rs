//! A connection to the chosen endpoint, and the request onto it. Owns pooled against new, failover after a
//! failed attempt, and the one replay; must never choose an endpoint.

use crate::conn::{Client, Deadline, Stage, Upstream, UpstreamState};
use crate::exchange::{Exchange, RankCharge, Upload};
use crate::flow::Flow;
use crate::forward::{self, Forwarded, Outgoing};
use crate::outbox::Outbox;
use crate::pool::PoolId;
use crate::route::outgoing_framing;
use warmpath_core::Nanos;
use warmpath_core::breaker::Outcome;
use warmpath_core::control::{Count, RequestStage};
use warmpath_core::fault::Fault;
use warmpath_parser::http1::{Field, ResponseParser, write};
use warmpath_ring::{Body, Errno, Payload, Ring, Sock};

/// Bodies up to this size are copied behind the head and sent in one piece: cheaper than a gathered send.
const JOINED_MAX: usize = 8 * 1024;

impl<R: Ring> Flow<R> {
    /// Takes a pooled connection to the chosen endpoint, or opens one.
    pub(crate) fn dial(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = &exchange.route.service else { return };
        let pool = service.pools[exchange.route.endpoint];
        // A body that is not held cannot be replayed, nor one that was before: it is not risked on a connection that
        // idled.
        let risked = exchange.uninspected || exchange.route.replayed;
        let pooled = if risked { None } else { self.take_pooled(pool) };
        let Some(exchange) = &mut client.exchange else { return };
        match pooled {
            Some(mut upstream) => {
                exchange.route.reused = true;
                self.tally.count(Count::Reused);
                self.send_request(client, &mut upstream);
                self.conns.put_upstream(upstream);
            }
            None => self.connect(client, pool),
        }
    }

    /// The pooled connection used last, if it is young enough to be trusted.
    pub(crate) fn take_pooled(&mut self, pool: PoolId) -> Option<Box<Upstream>> {
        let limit = self.pools.get(pool).endpoint.idle_limit();
        while let Some(sock) = self.pools.get(pool).idle.pop() {
            let Some(mut upstream) = self.conns.take_upstream(sock) else { continue };
            if upstream.idle_since + limit > self.now {
                upstream.state = UpstreamState::Busy;
                return Some(upstream);
            }
            self.tally.count(Count::Retired);
            self.close_upstream(&mut upstream);
            self.conns.put_upstream(upstream);
        }
        None
    }

    fn connect(&mut self, client: &mut Client, pool: PoolId) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.reused = false;
        client.stage = Stage::Dialing;
        let within = exchange.route.service.as_ref().map_or(0, |s| s.service.rule.deadlines.connect);
        let Some(upstream) = self.open(client.sock, pool) else { return self.dial_failed(client, pool) };
        exchange.route.upstream = Some(upstream.sock);
        self.conns.add_upstream(upstream);
        self.expect_client(client, within);
    }

    /// Begins to connect to a pool's endpoint, for a client; `None` if that can't even begin.
    pub(crate) fn open(&mut self, client: Sock, pool: PoolId) -> Option<Box<Upstream>> {
        let address = self.pools.get(pool).endpoint.address();
        let sock = self.ring.connect(address).ok()?;
        self.tally.count(Count::Connects);
        Some(Box::new(Upstream {
            sock,
            transport: self.settings.upstream_transport,
            pool,
            state: UpstreamState::Connecting,
            client: Some(client),
            leg: None,
            inbuf: Vec::new(),
            outbox: Outbox::default(),
            sent: 0,
            sent_before: 0,
            deadline: Deadline { at: 0, armed: Nanos::MAX },
            idle_since: self.now,
        }))
    }

    /// A connection attempt ended.
    pub(crate) fn dialed(&mut self, upstream: &mut Upstream, result: Result<(), Errno>) {
        let Some(mut client) = upstream.client.and_then(|sock| self.conns.take_client(sock)) else {
            return self.close_upstream(upstream);
        };
        if result.is_ok() {
            self.stages.took(RequestStage::Dial, self.now.saturating_sub(upstream.idle_since));
        }
        match result {
            _ if upstream.leg.is_some() => self.leg_dialed(&mut client, upstream, result),
            Ok(()) => {
                self.pools.get(upstream.pool).endpoint.connect_succeeded();
                upstream.state = UpstreamState::Busy;
                self.ring.receive(upstream.sock);
                self.send_request(&mut client, upstream);
            }
            Err(_) => {
                self.close_upstream(upstream);
                self.dial_failed(&mut client, upstream.pool);
            }
        }
        self.conns.put_client(client);
    }

    /// The attempt took too long.
    pub(crate) fn dial_timeout(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(sock) = exchange.route.upstream.take() else { return };
        let pool = exchange.route.service.as_ref().map(|s| s.pools[exchange.route.endpoint]);
        self.drop_leg(Some(sock));
        if let Some(pool) = pool {
            self.dial_failed(client, pool);
        }
    }

    /// Nothing was sent yet, so another endpoint may be asked without risk.
    fn dial_failed(&mut self, client: &mut Client, pool: PoolId) {
        self.tally.count(Count::ConnectFailures);
        let Some(exchange) = &mut client.exchange else { return };
        let has_breaker = exchange.route.service.as_ref().is_some_and(|s| s.service.rule.breaker.is_some());
        if has_breaker {
            self.attempt_ended(exchange, Outcome::Unanswered);
        } else if self.pools.get(pool).endpoint.connect_failed(self.now) {
            self.tally.count(Count::Ejections);
        }
        self.try_another(client);
    }

    /// Leaves the present endpoint and chooses another one.
    pub(crate) fn try_another(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.upstream = None;
        if exchange.pair.is_some() {
            return self.leave_decode(client);
        }
        exchange.settle();
        self.break_promise(exchange);
        exchange.route.tried.add(exchange.route.endpoint);
        exchange.route.retries = exchange.route.retries.saturating_add(1);
        self.tally.count(Count::Failovers);
        self.choose_and_dial(client);
    }

    /// Sends the request of `client` on `upstream`.
    fn send_request(&mut self, client: &mut Client, upstream: &mut Upstream) {
        let Some(exchange) = &mut client.exchange else { return };
        upstream.client = Some(client.sock);
        upstream.sent_before = upstream.sent;
        exchange.route.upstream = Some(upstream.sock);
        exchange.times.sent = self.now;
        exchange.answer.parser = ResponseParser::new(exchange.head.method);
        client.stage = Stage::Waiting;
        let forwarded =
            Forwarded { client: client.peer.ip(), port: self.rules.vips[client.vip].address.port() };
        let payload = match exchange.pair {
            Some(_) => self.decode_payload(exchange, forwarded),
            None => self.request_payload(exchange, forwarded),
        };
        let within = exchange.first_byte_within();
        let streaming = exchange.upload.is_streaming();
        self.expect_client(client, within);
        self.send_upstream(upstream, payload);
        if streaming {
            self.resume_upload(client, upstream);
        }
    }

    fn request_payload(&mut self, exchange: &mut Exchange, forwarded: Forwarded) -> Payload {
        let joined = exchange.body.len() <= JOINED_MAX;
        let body = if joined { exchange.body.len() } else { 0 };
        let mut head = self.memory.spare.take(exchange.head.len as usize + 256 + body);
        let own_id = exchange.headers.has(Field::XRequestId) || !self.settings.features.request_id;
        let outgoing = Outgoing {
            bytes: &exchange.request,
            head: &exchange.head,
            headers: &exchange.headers,
            body: outgoing_framing(exchange),
            edited: false,
            forwarded: self.settings.features.forwarded.then_some(forwarded),
            request_id: (!own_id).then(|| exchange.facts.id.bytes()),
            rank: exchange.route.rank.as_ref().and_then(RankCharge::to_name),
        };
        forward::request_head(&outgoing, &mut head);
        if let Upload::Rechunking { .. } = exchange.upload {
            write::chunk_open(&mut head, exchange.body.len() as u64);
        }
        if joined {
            head.extend_from_slice(&exchange.request[exchange.body.clone()]);
            return Payload::head(head);
        }
        let bytes = std::mem::take(&mut exchange.request);
        Payload { head, body: Body::Owned { range: exchange.body.clone(), bytes } }
    }

    /// Sends, or queues behind the send in flight.
    pub(crate) fn send_upstream(&mut self, upstream: &mut Upstream, payload: Payload) {
        upstream.sent += payload.len() as u64;
        self.transmit(upstream, payload);
    }

    pub(crate) fn transmit(&mut self, upstream: &mut Upstream, mut payload: Payload) {
        if upstream.outbox.in_flight {
            return upstream.outbox.push(payload);
        }
        upstream.outbox.in_flight = true;
        upstream.transport.wrap(&mut self.ring, &mut payload);
        self.ring.send(upstream.sock, payload);
    }

    /// A send to the endpoint ended.
    pub(crate) fn upstream_sent(
        &mut self,
        upstream: &mut Upstream,
        payload: Payload,
        result: Result<(), Errno>,
    ) {
        upstream.outbox.in_flight = false;
        if upstream.leg.is_some() {
            self.recycle(payload);
            return self.leg_send_ended(upstream, result);
        }
        let Some(mut client) = upstream.client.and_then(|sock| self.conns.take_client(sock)) else {
            self.recycle(payload);
            if upstream.state == UpstreamState::Finishing {
                self.pool_or_close(upstream, result.is_ok());
            }
            return;
        };
        self.take_back(&mut client, payload);
        if upstream.state == UpstreamState::Dying || result.is_err() {
            self.leg_died(&mut client, upstream);
        } else if let Some(next) = upstream.outbox.pop() {
            self.transmit(upstream, next);
        } else {
            self.request_sent(&mut client, upstream);
        }
        self.conns.put_client(client);
    }

    /// The request's bytes come home: a replay needs them.
    fn take_back(&mut self, client: &mut Client, payload: Payload) {
        match (payload, &mut client.exchange) {
            (Payload { head, body: Body::Owned { bytes, .. } }, Some(exchange))
                if exchange.request.capacity() == 0 && !exchange.uninspected =>
            {
                exchange.request = bytes;
                self.memory.spare.give(head);
                if exchange.has_begun_answering() {
                    self.let_go_of_request(exchange);
                }
            }
            (payload, _) => self.recycle(payload),
        }
    }

    /// All that was to be sent is sent.
    fn request_sent(&mut self, client: &mut Client, upstream: &mut Upstream) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.times.sent = self.now;
        if exchange.upload.is_streaming() {
            self.resume_upload(client, upstream);
        } else if client.stage == Stage::Waiting {
            let within = exchange.first_byte_within();
            self.expect_client(client, within);
        }
    }

    /// Whether the request may be sent once more to the same endpoint: it went out on a connection that
    /// had been idle, which the endpoint closed at once and without a byte, and the endpoint's kernel took
    /// none of the request. So nobody can have begun to work on it (kernel-notes/0012-acknowledged-before-replay.md).
    fn may_replay(&mut self, exchange: &Exchange, upstream: &Upstream) -> bool {
        let route = &exchange.route;
        let untouched = |acked: u64| acked <= upstream.sent_before + 1;
        route.reused
            && !route.replayed
            && !exchange.has_begun_answering()
            && !exchange.uninspected
            && exchange.request.capacity() > 0
            && self.now.saturating_sub(exchange.times.sent) <= self.settings.replay_window
            && self.ring.acknowledged(upstream.sock).is_some_and(untouched)
    }

    /// Sends the request once more, on a new connection to the same endpoint.
    pub(crate) fn replay(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = &exchange.route.service else { return };
        let pool = service.pools[exchange.route.endpoint];
        exchange.route.replayed = true;
        exchange.route.retries = exchange.route.retries.saturating_add(1);
        self.tally.count(Count::Replays);
        self.connect(client, pool);
    }

    /// Puts a connection whose answer is complete back into its pool, or closes it.
    pub(crate) fn pool_or_close(&mut self, upstream: &mut Upstream, reusable: bool) {
        upstream.client = None;
        let room = self.pools.get(upstream.pool).idle.len() < self.settings.pool_max;
        if !reusable || !room || !upstream.outbox.is_drained() {
            return self.close_upstream(upstream);
        }
        if upstream.outbox.in_flight {
            upstream.state = UpstreamState::Finishing;
            return;
        }
        upstream.state = UpstreamState::Idle;
        upstream.idle_since = self.now;
        let pool = self.pools.get(upstream.pool);
        pool.idle.push(upstream.sock);
        upstream.deadline.at = self.now + pool.endpoint.idle_limit();
        self.watch_upstream(upstream);
    }

    /// Closes the leg of a request that nobody wants any more.
    pub(crate) fn drop_leg(&mut self, sock: Option<Sock>) {
        if let Some(mut upstream) = sock.and_then(|sock| self.conns.take_upstream(sock)) {
            self.close_upstream(&mut upstream);
            self.conns.put_upstream(upstream);
        }
    }

    /// A connection to an endpoint ended, or failed if `broken`: then no answer ends with it.
    pub(crate) fn upstream_lost(&mut self, upstream: &mut Upstream, broken: bool) {
        match upstream.state {
            UpstreamState::Idle => {
                self.tally.count(Count::IdleClosed);
                let pool = self.pools.get(upstream.pool);
                pool.endpoint.learn_idle_limit(self.now.saturating_sub(upstream.idle_since));
                self.pools.forget(upstream.pool, upstream.sock);
                self.close_upstream(upstream);
            }
            UpstreamState::Busy if upstream.leg.is_some() => self.leg_lost(upstream, broken),
            UpstreamState::Busy => {
                let Some(mut client) = upstream.client.and_then(|sock| self.conns.take_client(sock)) else {
                    return self.close_upstream(upstream);
                };
                self.leg_ended(&mut client, upstream, broken);
                self.conns.put_client(client);
            }
            UpstreamState::Finishing => self.close_upstream(upstream),
            UpstreamState::Connecting | UpstreamState::Dying | UpstreamState::Closed => {}
        }
    }

    /// The connection that carries a request ended: the answer's end, or a death.
    fn leg_ended(&mut self, client: &mut Client, upstream: &mut Upstream, broken: bool) {
        let Some(exchange) = &client.exchange else { return self.close_upstream(upstream) };
        let ends_so = matches!(exchange.answer.body, crate::exchange::AnswerBody::UntilClose);
        if ends_so && !broken && exchange.has_begun_answering() {
            return self.answer_closed(client, upstream);
        }
        let lent = upstream.outbox.in_flight && exchange.request.capacity() == 0 && !exchange.uninspected;
        if lent && !exchange.has_begun_answering() {
            // The request's bytes come back with the failing send; only then can a replay be judged.
            upstream.state = UpstreamState::Dying;
            return;
        }
        self.leg_died(client, upstream);
    }

    /// The endpoint died under a request.
    fn leg_died(&mut self, client: &mut Client, upstream: &mut Upstream) {
        let replayable = client.exchange.as_ref().is_some_and(|e| self.may_replay(e, upstream));
        self.close_upstream(upstream);
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.upstream = None;
        if exchange.has_begun_answering() {
            return self.break_off(client, Fault::StreamDied);
        }
        if replayable {
            return self.replay(client);
        }
        self.attempt_ended(exchange, Outcome::Unanswered);
        let retries = exchange.route.service.as_ref().map_or(0, |s| s.service.rule.retry_before_first_byte);
        let held = exchange.request.capacity() > 0 && !exchange.uninspected;
        // A leg of a pair is never tried elsewhere alone.
        if held && exchange.pair.is_none() && exchange.deaths < retries {
            exchange.deaths += 1;
            return self.try_another(client);
        }
        let fault = Self::fault_of_leg(exchange, Fault::BackendDied);
        self.refuse(client, fault);
    }
}
