//! A body too long to be held goes to the endpoint as it comes. Owns its framing and the pressure back on
//! the client; must never look into it.

use crate::conn::{Client, Stage, Upstream};
use crate::exchange::{Exchange, Upload};
use crate::flow::Flow;
use crate::settings::BODY_RATE;
use warmpath_core::SECOND;
use warmpath_core::fault::Fault;
use warmpath_parser::http1::{Framing, Limits, write};
use warmpath_ring::{Body, Held, Payload, Ring};

/// What became of received body bytes.
enum Taken {
    /// These first bytes of the buffer go on untouched.
    Verbatim(u32),
    /// These go on instead.
    Written(Vec<u8>),
}

impl<R: Ring> Flow<R> {
    /// Bytes of a streamed body came.
    pub(crate) fn upload(&mut self, client: &mut Client, held: Held) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        if client.stage == Stage::Dialing {
            return self.upload_early(client, held);
        }
        let taken = take(exchange, self.ring.bytes(&held), &self.settings.limits, self.settings.max_body);
        let (payload, rest) = match taken {
            Ok((Taken::Verbatim(bytes), rest)) => (Payload::held(held, 0..bytes), rest),
            Ok((Taken::Written(bytes), rest)) => {
                self.keep_rest(client, &held, rest);
                self.release(held);
                (Payload::head(bytes), usize::MAX)
            }
            Err(fault) => {
                self.release(held);
                return self.refuse(client, fault);
            }
        };
        if let Body::Held { buffer, .. } = &payload.body {
            self.keep_rest(client, buffer, rest);
        }
        self.send_upload(client, payload);
    }

    fn send_upload(&mut self, client: &mut Client, payload: Payload) {
        let sock = client.exchange.as_ref().and_then(|e| e.route.upstream);
        let Some(mut upstream) = sock.and_then(|sock| self.conns.take_upstream(sock)) else {
            return self.recycle(payload);
        };
        if payload.is_empty() {
            self.recycle(payload);
        } else {
            self.send_upstream(&mut upstream, payload);
        }
        if upstream.outbox.in_flight {
            self.hold_back(client);
        }
        self.expect_upload(client);
        self.conns.put_upstream(upstream);
    }

    /// The client is not asked for more until the endpoint has taken what came.
    fn hold_back(&mut self, client: &mut Client) {
        self.pause_client(client);
        if let Some(exchange) = &mut client.exchange
            && exchange.times.held_back_at == 0
        {
            exchange.times.held_back_at = self.now;
        }
    }

    /// The body must flow at [`BODY_RATE`] at least, not counting the time it was held back.
    fn expect_upload(&mut self, client: &mut Client) {
        let Some(exchange) = &client.exchange else { return };
        if client.stage != Stage::Waiting {
            return;
        }
        if exchange.times.held_back_at != 0 {
            // Now it is the endpoint that is waited for.
            let within = exchange.first_byte_within();
            return self.expect_client(client, within);
        }
        let length = match exchange.head.body {
            Framing::Length(bytes) => bytes,
            _ => 0,
        };
        let earned = exchange.upload.streamed(length) / BODY_RATE * SECOND;
        let due = exchange.times.body_let_in + exchange.times.held_back + self.settings.body + earned;
        self.expect_client(client, due.saturating_sub(self.now).max(1));
    }

    /// No connection yet: what comes joins the part that will go out with the head.
    fn upload_early(&mut self, client: &mut Client, held: Held) {
        let Some(exchange) = &mut client.exchange else { return self.release(held) };
        let limits = self.settings.limits;
        let taken = take_data(exchange, self.ring.bytes(&held), &limits, self.settings.max_body);
        match taken {
            Ok(rest) => {
                self.keep_rest(client, &held, rest);
                self.release(held);
            }
            Err(fault) => {
                self.release(held);
                self.refuse(client, fault);
            }
        }
    }

    /// Bytes behind the body belong to the next request.
    fn keep_rest(&mut self, client: &mut Client, held: &Held, from: usize) {
        let bytes = self.ring.bytes(held);
        if from < bytes.len() {
            client.inbuf.extend_from_slice(&bytes[from..]);
        }
    }

    /// All that came was sent on: the client may send more, and must in time.
    pub(crate) fn resume_upload(&mut self, client: &mut Client, upstream: &Upstream) {
        if !upstream.outbox.is_idle() {
            return;
        }
        if let Some(exchange) = &mut client.exchange
            && exchange.times.held_back_at != 0
        {
            exchange.times.held_back += self.now - std::mem::take(&mut exchange.times.held_back_at);
        }
        self.resume_client(client);
        self.expect_upload(client);
    }
}

/// Takes body bytes of a streamed request; the second result is where a next request begins.
fn take(exchange: &mut Exchange, bytes: &[u8], limits: &Limits, max: u64) -> Result<(Taken, usize), Fault> {
    match &mut exchange.upload {
        Upload::Streaming { left } => {
            let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= taken as u64;
            if *left == 0 {
                exchange.upload = Upload::Streamed;
            }
            Ok((Taken::Verbatim(taken as u32), taken))
        }
        Upload::Rechunking { decoder, sent, begun } => {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            let (mut at, mut done) = (0, false);
            while at < bytes.len() && !done {
                let piece = decoder.advance(&bytes[at..], limits).map_err(Fault::Malformed)?;
                let data = &bytes[at + piece.data.start..at + piece.data.end];
                *sent += data.len() as u64;
                write_chunk(data, begun, &mut out);
                at += piece.consumed;
                done = piece.done;
            }
            if *sent > max {
                return Err(Fault::BodyTooLarge);
            }
            if done {
                out.extend_from_slice(if *begun { b"\r\n0\r\n\r\n" } else { b"0\r\n\r\n" });
                exchange.upload = Upload::Streamed;
            }
            Ok((Taken::Written(out), at))
        }
        _ => Ok((Taken::Verbatim(0), 0)),
    }
}

/// A chunk without its end, which the next one or the last writes.
fn write_chunk(data: &[u8], begun: &mut bool, out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    if *begun {
        out.extend_from_slice(write::CHUNK_CLOSE);
    }
    write::chunk_open(out, data.len() as u64);
    out.extend_from_slice(data);
    *begun = true;
}

/// Takes body data into the exchange; the result is where a next request begins.
fn take_data(exchange: &mut Exchange, bytes: &[u8], limits: &Limits, max: u64) -> Result<usize, Fault> {
    let (mut at, mut done) = (0, false);
    match &mut exchange.upload {
        Upload::Streaming { left } => {
            at = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= at as u64;
            done = *left == 0;
            exchange.request.extend_from_slice(&bytes[..at]);
        }
        Upload::Rechunking { decoder, sent, .. } => {
            while at < bytes.len() && !done {
                let piece = decoder.advance(&bytes[at..], limits).map_err(Fault::Malformed)?;
                exchange.request.extend_from_slice(&bytes[at + piece.data.start..at + piece.data.end]);
                *sent += piece.data.len() as u64;
                at += piece.consumed;
                done = piece.done;
            }
            if *sent > max {
                return Err(Fault::BodyTooLarge);
            }
        }
        _ => {}
    }
    exchange.body.end = exchange.request.len();
    if done {
        // Whole after all: it goes out with its length.
        exchange.upload = Upload::Whole;
    }
    Ok(at)
}
