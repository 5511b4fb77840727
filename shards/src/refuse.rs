//! The gateway's own answers: refusals, and the end of a stream that broke. Owns their bytes; must never
//! write a second head behind a first.

use crate::conn::{Client, Stage};
use crate::exchange::{Answer, AnswerBody};
use crate::flow::Flow;
use crate::forward;
use crate::gate;
use warmpath_core::fault::{Fault, Refusal};
use warmpath_core::receipt::Outcome;
use warmpath_core::shared::Decided;
use warmpath_parser::http1::{Method, write};
use warmpath_ring::{Payload, Ring};

/// Refused clients are told to come back within so many milliseconds of each other, at random.
const JITTER_MS: u64 = 1_000;

impl<R: Ring> Flow<R> {
    /// Answers with a fault in the OpenAI shape. If an answer had begun, its stream is broken off instead.
    pub(crate) fn refuse(&mut self, client: &mut Client, fault: Fault) {
        let Some(exchange) = &mut client.exchange else { return self.close_client(client) };
        if exchange.has_begun_answering() {
            return self.break_off(client, fault);
        }
        let upstream = exchange.route.upstream.take();
        exchange.answer.fault = Some(fault);
        let refusal = fault.refusal();
        let mut details = Vec::new();
        let mut lines = Vec::new();
        if fault == Fault::ModelUnavailable {
            details.push(("model", String::from_utf8_lossy(exchange.facts.model.bytes()).into()));
        }
        if fault == Fault::AdmissionNoCapacity
            && let Some(service) = &exchange.route.service
        {
            service.service.admission.count(Decided::NoCapacity);
        }
        if fault.is_admission() {
            gate::tell(
                exchange,
                &refusal,
                self.random.next() % JITTER_MS,
                self.now,
                &mut details,
                &mut lines,
            );
        }
        let mut body = Vec::with_capacity(256);
        refusal.write_json(&details, &mut body);
        if !exchange.upload.is_done() || matches!(fault, Fault::Malformed(_) | Fault::HeadTimeout) {
            client.close_after = true;
        }
        self.account(exchange, Outcome::Faulted(fault), refusal.status);
        self.drop_leg(upstream);
        self.send_own(client, refusal.status, refusal.retry_after, &lines, body);
    }

    /// Answers with a JSON body of the gateway's own.
    pub(crate) fn answer(&mut self, client: &mut Client, status: u16, body: Vec<u8>) {
        if let Some(exchange) = &mut client.exchange {
            self.account(exchange, Outcome::Answered, status);
        }
        self.send_own(client, status, 0, &[], body);
    }

    /// `lines`: header lines of its own, each with its end.
    fn send_own(&mut self, client: &mut Client, status: u16, retry_after: u8, lines: &[u8], body: Vec<u8>) {
        let mut out = self.memory.spare.take(256 + lines.len() + body.len());
        write::status_line(&mut out, status);
        out.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: ");
        write::decimal(&mut out, body.len() as u64);
        out.extend_from_slice(b"\r\n");
        if retry_after > 0 {
            out.extend_from_slice(b"Retry-After: ");
            write::decimal(&mut out, u64::from(retry_after));
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(lines);
        let persistence = self.persistence(client);
        client.close_after |= persistence == forward::Persistence::Close;
        forward::write_persistence(persistence, &mut out);
        out.extend_from_slice(b"\r\n");
        let method = client.exchange.as_ref().map(|e| e.head.method);
        if method != Some(Method::Head) {
            out.extend_from_slice(&body);
        }
        if client.close_after {
            // Nothing that came behind this request will be looked at.
            self.memory.spare.give(std::mem::take(&mut client.inbuf));
        }
        client.stage = Stage::Answering;
        self.expect_client(client, self.settings.client_write);
        self.send_client(client, Payload::head(out));
    }

    /// An answer that had begun cannot go on. An event stream is told so by an event; anything else is cut
    /// short of what its framing promised, so that the client sees it.
    pub(crate) fn break_off(&mut self, client: &mut Client, fault: Fault) {
        let Some(exchange) = &mut client.exchange else { return self.close_client(client) };
        let upstream = exchange.route.upstream.take();
        exchange.answer.fault = Some(fault);
        let status = exchange.answer.status;
        let event = exchange.answer.streamed.then(|| closing_event(&exchange.answer, &fault.refusal()));
        self.account(exchange, Outcome::Faulted(fault), status);
        self.drop_leg(upstream);
        client.stage = Stage::Answering;
        self.expect_client(client, self.settings.client_write);
        match event.flatten() {
            // The event ends the answer as its framing promised: the connection may live on.
            Some(event) => self.send_client(client, Payload::head(event)),
            None => client.close_after = true,
        }
        if client.outbox.is_idle() {
            self.next_request(client);
        }
    }
}

/// The last event of a broken stream, in the framing of its answer; `None` inside of a chunk or of an event,
/// where nothing can be said.
fn closing_event(answer: &Answer, refusal: &Refusal) -> Option<Vec<u8>> {
    if !answer.tail.is_between_events() {
        return None;
    }
    let mut event = b"data: ".to_vec();
    refusal.write_json(&[], &mut event);
    event.extend_from_slice(b"\n\n");
    let in_chunks = match &answer.body {
        AnswerBody::Chunked(decoder) if decoder.is_between_chunks() => true,
        AnswerBody::UntilClose => answer.rechunk,
        _ => return None,
    };
    if !in_chunks {
        return Some(event);
    }
    let mut out = Vec::with_capacity(event.len() + 16);
    write::chunk_open(&mut out, event.len() as u64);
    out.extend_from_slice(&event);
    out.extend_from_slice(write::CHUNK_CLOSE);
    out.extend_from_slice(write::LAST_CHUNK);
    Some(out)
}
