//! The answer goes to the client as it comes. Owns its head, the tracking of its end, and pressure in both
//! directions; must never hold back or merge what arrived.

use crate::conn::{Client, Stage, Upstream, UpstreamState};
use crate::exchange::{AnswerBody, Exchange, Reserved};
use crate::explain;
use crate::flow::Flow;
use crate::forward::{self, Persistence};
use crate::framing::{Parsed, note_stream, parse_final, track, unchunk};
use crate::usage::Usage;
use std::ops::Range;
use warmpath_core::breaker::Outcome;
use warmpath_core::control::{Count, DrainPhase, RequestStage};
use warmpath_core::fault::Fault;
use warmpath_parser::http1::{Framing, ResponseHead, Version, write};
use warmpath_ring::{Body, Errno, Held, Payload, Ring};

/// Answer bytes up to this many are copied behind a rewritten head and sent in one piece.
const JOINED_MAX: usize = 4 * 1024;

impl<R: Ring> Flow<R> {
    /// Bytes came from an endpoint.
    pub(crate) fn upstream_bytes(&mut self, upstream: &mut Upstream, held: Held) {
        if upstream.leg.is_some() {
            return self.leg_bytes(upstream, held);
        }
        let carries = upstream.client.filter(|_| upstream.state == UpstreamState::Busy);
        let Some(mut client) = carries.and_then(|sock| self.conns.take_client(sock)) else {
            return self.unasked_bytes(upstream, held);
        };
        match client.stage {
            Stage::Waiting => self.answer_head(&mut client, upstream, held),
            _ => {
                let all = 0..held.len() as usize;
                self.answer_body(&mut client, upstream, Vec::new(), held, all);
            }
        }
        self.conns.put_client(client);
    }

    /// An idle endpoint spoke: its framing is not to be trusted.
    fn unasked_bytes(&mut self, upstream: &mut Upstream, held: Held) {
        self.release(held);
        if upstream.state == UpstreamState::Idle {
            self.pools.forget(upstream.pool, upstream.sock);
        }
        self.close_upstream(upstream);
    }

    /// Goes on with the answer's head. Usually it is whole in the first buffer and parsed there.
    fn answer_head(&mut self, client: &mut Client, upstream: &mut Upstream, held: Held) {
        if !upstream.inbuf.is_empty() {
            return self.answer_head_pieced(client, upstream, held);
        }
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let bytes = self.ring.bytes(&held);
        match parse_final(&mut exchange.answer, exchange.head.method, bytes, &self.settings.limits) {
            Ok(Parsed::Final { at }) => self.begin_answer(client, upstream, held, at),
            Ok(Parsed::Partial { at }) => {
                upstream.inbuf = self.memory.spare.take(2 * bytes.len());
                upstream.inbuf.extend_from_slice(&self.ring.bytes(&held)[at..]);
                self.release(held);
            }
            Err(_) => {
                self.release(held);
                self.bad_answer(client, upstream);
            }
        }
    }

    /// The head came in several buffers: they are joined, the rest of the last one is the body's begin.
    fn answer_head_pieced(&mut self, client: &mut Client, upstream: &mut Upstream, held: Held) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let before = upstream.inbuf.len();
        upstream.inbuf.extend_from_slice(self.ring.bytes(&held));
        match parse_final(&mut exchange.answer, exchange.head.method, &upstream.inbuf, &self.settings.limits)
        {
            Ok(Parsed::Final { at }) => {
                let head = exchange.answer.parser.head();
                let begin = (at + head.len as usize).saturating_sub(before);
                let bytes = std::mem::take(&mut upstream.inbuf);
                note_stream(exchange, &bytes[at..]);
                self.note_answer(client, &head);
                let out = self.write_head(client, &bytes[at..], &head);
                self.memory.spare.give(bytes);
                let rest = begin..held.len() as usize;
                self.answer_body(client, upstream, out, held, rest);
            }
            Ok(Parsed::Partial { at }) => {
                upstream.inbuf.drain(..at);
                self.release(held);
            }
            Err(_) => {
                self.release(held);
                self.bad_answer(client, upstream);
            }
        }
    }

    /// The head is whole at `at` of the buffer.
    fn begin_answer(&mut self, client: &mut Client, upstream: &mut Upstream, held: Held, at: usize) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let head = exchange.answer.parser.head();
        let body = at + head.len as usize;
        note_stream(exchange, &self.ring.bytes(&held)[at..body]);
        self.note_answer(client, &head);
        let persistence = self.persistence(client);
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let answer = &exchange.answer;
        let kept = !answer.unchunk && head.body != Framing::UntilClose && !explain::is_asked(exchange);
        if kept && forward::is_verbatim(&head, &answer.headers, persistence) {
            return self.relay_verbatim(client, upstream, held, at, body);
        }
        let chunked = answer.rechunk || (head.body == Framing::Chunked && !answer.unchunk);
        let mut out = self.memory.spare.take(head.len as usize + JOINED_MAX);
        let bytes = &self.ring.bytes(&held)[at..body];
        forward::answer_head(bytes, &head, &answer.headers, persistence, chunked, &mut out);
        explain::write_receipt(exchange, &mut out);
        out.extend_from_slice(b"\r\n");
        let rest = body..held.len() as usize;
        self.answer_body(client, upstream, out, held, rest);
    }

    /// What the client is told about its connection with this answer.
    pub(crate) fn persistence(&self, client: &Client) -> Persistence {
        let version = client.exchange.as_ref().map_or(Version::Http11, |e| e.head.version);
        match (client.close_after || self.phase >= DrainPhase::LameDuck, version) {
            (true, _) => Persistence::Close,
            (false, Version::Http10) => Persistence::KeepAlive,
            (false, Version::Http11) => Persistence::Implied,
        }
    }

    /// Writes the client's version of an answer's head that was noted.
    fn write_head(&mut self, client: &Client, bytes: &[u8], head: &ResponseHead) -> Vec<u8> {
        let mut out = self.memory.spare.take(bytes.len() + JOINED_MAX);
        let persistence = self.persistence(client);
        if let Some(exchange) = &client.exchange {
            let answer = &exchange.answer;
            let chunked = answer.rechunk || (head.body == Framing::Chunked && !answer.unchunk);
            forward::answer_head(bytes, head, &exchange.answer.headers, persistence, chunked, &mut out);
            explain::write_receipt(exchange, &mut out);
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    /// Takes note of the final head.
    fn note_answer(&mut self, client: &mut Client, head: &ResponseHead) {
        client.stage = Stage::Relaying;
        client.close_after |= self.phase >= DrainPhase::LameDuck;
        let Some(exchange) = &mut client.exchange else { return };
        exchange.times.first_byte = self.now;
        let old_client = exchange.head.version == Version::Http10;
        let answer = &mut exchange.answer;
        answer.status = head.status;
        let reads = exchange.route.explained.is_some() && exchange.pair.is_none();
        answer.usage = reads.then(Usage::default);
        answer.unchunk = head.body == Framing::Chunked && old_client;
        // An answer before the end of a streamed body: the rest of it must be thrown away.
        let early = !exchange.upload.is_done();
        answer.rechunk = head.body == Framing::UntilClose && !old_client;
        client.close_after |= early || answer.unchunk || (head.body == Framing::UntilClose && old_client);
        answer.body = match head.body {
            Framing::None => AnswerBody::None,
            Framing::Length(bytes) => AnswerBody::Length(bytes),
            Framing::Chunked => AnswerBody::Chunked(Default::default()),
            Framing::UntilClose => AnswerBody::UntilClose,
        };
        if matches!(head.body, Framing::Chunked) {
            self.tally.count(Count::Chunked);
        }
        let first_byte = self.now.saturating_sub(exchange.times.begun);
        self.tally.first_byte(first_byte);
        self.stages.took(RequestStage::FirstByte, first_byte);
        if exchange.pass.is_some()
            && let Some(service) = &exchange.route.service
        {
            service.service.admission.saw_first_byte(self.now.saturating_sub(exchange.times.sent));
        }
        self.attempt_ended(exchange, Outcome::of(head.status));
        self.let_go_of_request(exchange);
    }

    /// Once an answer began there is no replay: the request's bytes need not be held while it lasts. Bytes
    /// that a send still owns go when it ends.
    pub(crate) fn let_go_of_request(&mut self, exchange: &mut Exchange) {
        if exchange.upload.is_done() && exchange.request.capacity() > 0 {
            self.memory.spare.give(std::mem::take(&mut exchange.request));
            exchange.reserved = None;
        }
    }

    /// Head and body go on in one range of the buffer, untouched.
    fn relay_verbatim(
        &mut self,
        client: &mut Client,
        upstream: &mut Upstream,
        held: Held,
        at: usize,
        body: usize,
    ) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        match track(exchange, &self.ring.bytes(&held)[body..], &self.settings.limits) {
            Ok(taken) => {
                let end = body + taken.bytes;
                let clean = end == held.len() as usize;
                exchange.answer.bytes_out += taken.bytes as u64;
                self.send_client(client, Payload::held(held, at as u32..end as u32));
                self.after_bytes(client, upstream, taken.done, clean);
            }
            Err(_) => {
                self.release(held);
                self.bad_begin(client, upstream);
            }
        }
    }

    /// The first bytes behind a head that did not go out break its framing: nothing was begun yet.
    fn bad_begin(&mut self, client: &mut Client, upstream: &mut Upstream) {
        if let Some(exchange) = &mut client.exchange {
            exchange.answer.status = 0;
        }
        self.bad_answer(client, upstream);
    }

    /// Body bytes lie at `range` of the buffer; `head` goes out before them.
    fn answer_body(
        &mut self,
        client: &mut Client,
        upstream: &mut Upstream,
        head: Vec<u8>,
        held: Held,
        range: Range<usize>,
    ) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        if exchange.answer.rechunk {
            return self.answer_rechunked(client, upstream, head, held, range);
        }
        if exchange.answer.unchunk {
            return self.answer_unchunked(client, upstream, head, held, range);
        }
        let tracked = track(exchange, &self.ring.bytes(&held)[range.clone()], &self.settings.limits);
        let Ok(taken) = tracked else {
            self.release(held);
            return match head.is_empty() {
                true => self.bad_answer(client, upstream),
                false => self.bad_begin(client, upstream),
            };
        };
        exchange.answer.bytes_out += taken.bytes as u64;
        let sent = range.start..range.start + taken.bytes;
        let clean = sent.end == range.end;
        let payload = self.join(head, held, sent);
        self.send_client(client, payload);
        self.after_bytes(client, upstream, taken.done, clean);
    }

    /// A head with little behind it is cheaper sent in one piece.
    fn join(&mut self, head: Vec<u8>, held: Held, range: Range<usize>) -> Payload {
        let range = range.start as u32..range.end as u32;
        if head.is_empty() { Payload::held(held, range) } else { self.ring.join(head, held, range) }
    }

    /// What has no framing of its own goes out as chunks.
    fn answer_rechunked(
        &mut self,
        client: &mut Client,
        upstream: &mut Upstream,
        mut out: Vec<u8>,
        held: Held,
        range: Range<usize>,
    ) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        exchange.answer.bytes_out += range.len() as u64;
        exchange.answer.saw(&self.ring.bytes(&held)[range.clone()]);
        if !range.is_empty() {
            write::chunk_open(&mut out, range.len() as u64);
            out.extend_from_slice(&self.ring.bytes(&held)[range]);
            out.extend_from_slice(write::CHUNK_CLOSE);
        }
        self.release(held);
        self.send_client(client, Payload::head(out));
        self.after_bytes(client, upstream, false, true);
    }

    /// The endpoint closed, which is how this answer ends.
    pub(crate) fn answer_closed(&mut self, client: &mut Client, upstream: &mut Upstream) {
        if client.exchange.as_ref().is_some_and(|e| e.answer.rechunk) {
            let last = Payload { head: Vec::new(), body: Body::Static(write::LAST_CHUNK) };
            self.send_client(client, last);
        }
        self.answer_complete(client, upstream, false);
    }

    /// For a client that does not know chunks: their data only.
    fn answer_unchunked(
        &mut self,
        client: &mut Client,
        upstream: &mut Upstream,
        mut out: Vec<u8>,
        held: Held,
        range: Range<usize>,
    ) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let AnswerBody::Chunked(decoder) = &mut exchange.answer.body else { return self.release(held) };
        let bytes = &self.ring.bytes(&held)[range];
        let before = out.len();
        let decoded = unchunk(decoder, bytes, &self.settings.limits, &mut out);
        exchange.answer.saw(&out[before..]);
        exchange.answer.bytes_out += (out.len() - before) as u64;
        self.release(held);
        match decoded {
            Ok(done) => {
                if !out.is_empty() {
                    self.send_client(client, Payload::head(out));
                }
                self.after_bytes(client, upstream, done, true);
            }
            Err(_) if before > 0 => self.bad_begin(client, upstream),
            Err(_) => self.bad_answer(client, upstream),
        }
    }

    /// After each piece: the answer is complete, or the next piece is awaited.
    fn after_bytes(&mut self, client: &mut Client, upstream: &mut Upstream, done: bool, clean: bool) {
        if let Some(exchange) = &mut client.exchange
            && exchange.answer.bytes_out > 0
        {
            if exchange.route.promise.is_some() {
                self.keep_promise(exchange);
            }
            if let Some(pair) = exchange.pair.as_mut().filter(|_| exchange.answer.status < 300) {
                pair.was_read();
            }
        }
        if client.outbox.over_budget {
            return self.cut_reader(client, upstream);
        }
        if done || client.stage != Stage::Relaying {
            return self.answer_complete(client, upstream, clean);
        }
        if client.outbox.source_paused {
            self.ring.pause(upstream.sock);
            self.expect_client(client, self.settings.client_write);
        } else {
            self.await_more(client);
        }
    }

    /// A client that reads too little while memory is short is cut.
    fn cut_reader(&mut self, client: &mut Client, upstream: &mut Upstream) {
        self.tally.count(Count::SlowClients);
        self.close_upstream(upstream);
        if let Some(exchange) = &mut client.exchange {
            exchange.route.upstream = None;
            exchange.answer.fault = Some(Fault::MemoryPressure);
        }
        self.abandon(client);
    }

    /// Sets the deadline for the answer's next bytes.
    fn await_more(&mut self, client: &mut Client) {
        let Some(exchange) = &client.exchange else { return };
        let Some(service) = &exchange.route.service else { return };
        let rule = &service.service.rule;
        let left = (exchange.times.begun + rule.deadlines.stream).saturating_sub(self.now);
        let streamed = exchange.answer.streamed;
        let gap = if streamed { rule.deadlines.between_events } else { rule.deadlines.between_bytes };
        let within = left.min(gap);
        self.expect_client(client, within);
    }

    /// The endpoint has done its work. `clean`: nothing came behind the answer's end.
    pub(crate) fn answer_complete(&mut self, client: &mut Client, upstream: &mut Upstream, clean: bool) {
        let Some(exchange) = &mut client.exchange else { return self.close_upstream(upstream) };
        let answer = &mut exchange.answer;
        let framed = !matches!(answer.body, AnswerBody::UntilClose);
        let head = answer.parser.head();
        let reusable = clean && framed && exchange.upload.is_done() && head.connection.persists(head.version);
        answer.complete = true;
        if std::mem::take(&mut client.outbox.source_paused) {
            // The last bytes came although it was paused; its next answer must be heard.
            self.ring.receive(upstream.sock);
        }
        exchange.settle();
        exchange.pass = None;
        exchange.route.upstream = None;
        self.let_go_of_request(exchange);
        self.pool_or_close(upstream, reusable);
        self.expect_client(client, self.settings.client_write);
        if client.outbox.is_idle() {
            self.answer_delivered(client);
        }
    }

    /// Sends, or queues behind the send in flight.
    pub(crate) fn send_client(&mut self, client: &mut Client, payload: Payload) {
        if payload.is_empty() {
            return self.recycle(payload);
        }
        let mut payload = self.spare_buffers(client, payload);
        if client.outbox.in_flight {
            return client.outbox.push(payload);
        }
        client.outbox.in_flight = true;
        client.transport.wrap(&mut self.ring, &mut payload);
        self.ring.send(client.sock, payload);
    }

    /// Copies a payload out of its receive buffer when too many wait already, here or in the shard; the
    /// source is paused until the client has read. Where no memory is left for a copy, a client that reads gets
    /// the buffer itself, and one that does not goes.
    fn spare_buffers(&mut self, client: &mut Client, payload: Payload) -> Payload {
        let crowded = client.outbox.in_flight && !client.outbox.has_room();
        let scarce = self.ring.counters().buffers_free < self.memory.free_min;
        let Body::Held { buffer, range } = payload.body else { return payload };
        if !crowded && !scarce {
            return Payload { head: payload.head, body: Body::Held { buffer, range } };
        }
        let mut copy = self.memory.spare.take(range.len());
        if !self.charge_copy(client, copy.capacity() as u64) {
            if !crowded {
                self.memory.spare.give(copy);
                return Payload { head: payload.head, body: Body::Held { buffer, range } };
            }
            client.outbox.over_budget = true;
        }
        copy.extend_from_slice(&self.ring.bytes(&buffer)[range.start as usize..range.end as usize]);
        self.release(buffer);
        if crowded {
            self.press_back(client);
        }
        Payload { head: payload.head, body: Body::Owned { range: 0..copy.len(), bytes: copy } }
    }

    /// The client reads slower than its answer comes.
    fn press_back(&mut self, client: &mut Client) {
        if client.outbox.source_paused {
            return;
        }
        client.outbox.source_paused = true;
        self.tally.count(Count::Backpressure);
    }

    /// A copy that waits for a client is charged to the memory of all until it is sent. False: there is none.
    fn charge_copy(&mut self, client: &mut Client, bytes: u64) -> bool {
        let Some(exchange) = &mut client.exchange else { return true };
        if let Some(unread) = &mut exchange.unread {
            return unread.grow(bytes);
        }
        exchange.unread = Reserved::take(&self.memory.budget, bytes);
        exchange.unread.is_some()
    }

    /// A send to the client ended.
    pub(crate) fn client_sent(&mut self, client: &mut Client, payload: Payload, result: Result<(), Errno>) {
        client.outbox.in_flight = false;
        if let (Body::Owned { bytes, .. }, Some(exchange)) = (&payload.body, &mut client.exchange)
            && let Some(unread) = &mut exchange.unread
        {
            unread.shrink(bytes.capacity() as u64);
        }
        self.recycle(payload);
        if result.is_err() {
            return self.abandon(client);
        }
        if let Some(mut next) = client.outbox.pop() {
            client.outbox.in_flight = true;
            client.transport.wrap(&mut self.ring, &mut next);
            self.ring.send(client.sock, next);
        }
        if client.outbox.source_paused && client.outbox.is_drained() {
            self.resume_answer(client);
        }
        if client.outbox.is_idle() {
            self.drained(client);
        } else if client.outbox.source_paused || client.exchange.as_ref().is_some_and(|e| e.answer.complete) {
            self.expect_client(client, self.settings.client_write);
        }
    }

    fn resume_answer(&mut self, client: &mut Client) {
        client.outbox.source_paused = false;
        if let Some(sock) = client.exchange.as_ref().and_then(|e| e.route.upstream) {
            self.ring.receive(sock);
            self.await_more(client);
        }
    }

    /// Nothing more is on its way to the client.
    fn drained(&mut self, client: &mut Client) {
        match client.stage {
            Stage::Relaying if client.exchange.as_ref().is_some_and(|e| e.answer.complete) => {
                self.answer_delivered(client);
            }
            Stage::Answering => self.next_request(client),
            _ => {}
        }
    }

    /// The endpoint's answer is not acceptable HTTP.
    fn bad_answer(&mut self, client: &mut Client, upstream: &mut Upstream) {
        self.close_upstream(upstream);
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.upstream = None;
        if exchange.has_begun_answering() {
            self.break_off(client, Fault::StreamDied);
        } else {
            self.attempt_ended(exchange, Outcome::Unanswered);
            self.refuse(client, Fault::BadAnswer);
        }
    }

    /// A deadline of the answer passed: its first byte, the next one, or all of it.
    pub(crate) fn answer_timeout(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return self.close_client(client) };
        if !exchange.upload.is_done() && client.receiving && !exchange.has_begun_answering() {
            return self.refuse(client, Fault::BodyTimeout);
        }
        if exchange.answer.complete || client.outbox.source_paused {
            self.tally.count(Count::SlowClients);
            return self.abandon(client);
        }
        let stream = exchange.route.service.as_ref().map_or(0, |s| s.service.rule.deadlines.stream);
        let too_long = self.now >= exchange.times.begun + stream;
        let begun = exchange.has_begun_answering();
        let upstream = exchange.route.upstream.take();
        if !begun {
            self.attempt_ended(exchange, Outcome::Unanswered);
        }
        self.drop_leg(upstream);
        match (begun, too_long) {
            (true, true) => self.break_off(client, Fault::StreamTooLong),
            (true, false) => self.break_off(client, Fault::StreamTimeout),
            (false, _) => {
                let fault = client.exchange.as_ref().map(|e| Self::fault_of_leg(e, Fault::FirstByteTimeout));
                self.refuse(client, fault.unwrap_or(Fault::FirstByteTimeout));
            }
        }
    }
}
