//! A request comes in: its head in place, its body once. Owns reading up to the point where the request
//! can be routed; must never look at rules.

use crate::conn::{Client, Stage};
use crate::exchange::{Reserved, Upload};
use crate::flow::Flow;
use crate::settings::BODY_RATE;
use warmpath_core::control::{Count, RequestStage};
use warmpath_core::fault::Fault;
use warmpath_core::{Nanos, SECOND};
use warmpath_parser::http1::{ChunkDecoder, Framing, Progress};
use warmpath_ring::{Body, Held, Payload, Ring};

/// Bodies up to this size need no reservation: connections are bounded, and so are these with them.
const UNRESERVED: u64 = 16 * 1024;

/// Bytes of a next request that are taken in while this one is served; then receiving pauses.
const PIPELINED_MAX: usize = 64 * 1024;

/// Bytes that a lingering client may still send.
const LINGER_BYTES: usize = 64 << 20;

impl<R: Ring> Flow<R> {
    /// Bytes came from a client.
    pub(crate) fn client_bytes(&mut self, client: &mut Client, held: Held) {
        match client.stage {
            Stage::Lingering => return self.discard(client, held),
            Stage::Answering if client.close_after => return self.discard(client, held),
            Stage::Dialing | Stage::Waiting | Stage::Relaying if is_uploading(client) => {
                return self.upload(client, held);
            }
            _ => {}
        }
        self.take_in(client, held);
        match client.stage {
            Stage::Head => self.read_head(client),
            Stage::Body => self.read_body(client),
            Stage::Memory => self.charge_parked(client),
            _ if client.inbuf.len() > PIPELINED_MAX => self.pause_client(client),
            _ => {}
        }
    }

    fn take_in(&mut self, client: &mut Client, held: Held) {
        if client.inbuf.capacity() == 0 {
            client.inbuf = self.memory.spare.take(held.len() as usize);
        }
        client.inbuf.extend_from_slice(self.ring.bytes(&held));
        self.release(held);
    }

    fn discard(&mut self, client: &mut Client, held: Held) {
        client.lingered += held.len() as usize;
        self.release(held);
        if client.lingered > LINGER_BYTES {
            self.close_client(client);
        }
    }

    /// Goes on with the request head in `inbuf`.
    pub(crate) fn read_head(&mut self, client: &mut Client) {
        let (mut exchange, first) = match client.exchange.take() {
            Some(exchange) => (exchange, false),
            None => (self.new_exchange(), true),
        };
        let begun = self.stages.begin(RequestStage::Parse, || self.ring.now());
        let parsed = client.parser.advance(&client.inbuf, &self.settings.limits, &mut exchange.headers);
        self.stages.end(RequestStage::Parse, begun, || self.ring.now());
        match parsed {
            Ok(Progress::NeedMore) => {
                client.exchange = Some(exchange);
                if first {
                    self.expect_client(client, self.settings.head);
                }
            }
            Ok(Progress::Done) => {
                exchange.head = client.parser.head();
                exchange.times.begun = self.now;
                client.exchange = Some(exchange);
                self.head_read(client);
            }
            Err(rule) => {
                exchange.times.begun = self.now;
                client.exchange = Some(exchange);
                self.tally.count(Count::Malformed);
                self.refuse(client, Fault::Malformed(rule));
            }
        }
    }

    /// The head is whole: how the body is read follows from its framing.
    fn head_read(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        self.tally.count(Count::Requests);
        let head = exchange.head;
        client.close_after |= !head.connection.persists(head.version);
        let holds = self.rules.vips[client.vip].holds;
        match head.body {
            Framing::Length(bytes) if bytes > self.settings.max_body => {
                exchange.upload = Upload::Streaming { left: bytes };
                return self.refuse(client, Fault::BodyTooLarge);
            }
            Framing::Length(bytes) if bytes > self.settings.max_inspect_body && !holds => {
                exchange.upload = Upload::Streaming { left: bytes };
            }
            Framing::Length(bytes) if bytes > 0 => {
                exchange.upload = Upload::Collecting { end: head.len as usize + bytes as usize };
            }
            Framing::Chunked => exchange.upload = Upload::Unchunking(ChunkDecoder::new()),
            Framing::Length(_) | Framing::None | Framing::UntilClose => {}
        }
        client.stage = Stage::Body;
        self.claim_memory(client);
    }

    /// Reserves what the body needs to be held, or parks the client until that much is free.
    fn claim_memory(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let bytes = match exchange.upload {
            Upload::Collecting { end } => (end as u64).saturating_sub(u64::from(exchange.head.len)),
            _ => 0,
        };
        if bytes <= UNRESERVED {
            return self.begin_body(client);
        }
        let first = self.memory.waiting.is_empty();
        match first.then(|| Reserved::for_body(&self.memory.budget, bytes)).flatten() {
            Some(reserved) => {
                exchange.reserved = Some(reserved);
                self.begin_body(client);
            }
            None => self.park_for_memory(client),
        }
    }

    /// Lets the client wait, if there is memory at least for what came of its request before it could be
    /// told to stop.
    fn park_for_memory(&mut self, client: &mut Client) {
        self.pause_client(client);
        self.tally.count(Count::MemoryWaits);
        let Some(exchange) = &mut client.exchange else { return };
        exchange.parked = Reserved::take(&self.memory.budget, client.inbuf.capacity() as u64);
        if exchange.parked.is_none() {
            return self.refuse(client, Fault::MemoryPressure);
        }
        client.stage = Stage::Memory;
        self.memory.waiting.push_back(client.sock);
        self.expect_client(client, self.settings.head);
    }

    /// More came of a client that was told to stop.
    fn charge_parked(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let held = client.inbuf.capacity() as u64;
        let charged = exchange.parked.as_mut().is_some_and(|p| p.grow(held.saturating_sub(p.bytes())));
        if !charged {
            self.refuse(client, Fault::MemoryPressure);
        }
    }

    /// Lets the clients that wait for memory on, in their order, as far as it reaches.
    pub(crate) fn serve_memory_waiters(&mut self) {
        while let Some(sock) = self.memory.waiting.front().copied() {
            let Some(mut client) = self.conns.take_client(sock) else {
                self.memory.waiting.pop_front();
                continue;
            };
            let served = client.stage != Stage::Memory || self.grant_memory(&mut client);
            if served {
                self.memory.waiting.pop_front();
            }
            self.conns.put_client(client);
            if !served {
                return;
            }
        }
    }

    /// Whether the client at the head of the line got its memory.
    fn grant_memory(&mut self, client: &mut Client) -> bool {
        let Some(exchange) = &mut client.exchange else { return true };
        let granted = match (&mut exchange.reserved, &exchange.upload) {
            (None, Upload::Collecting { end }) => {
                let bytes = (*end as u64).saturating_sub(u64::from(exchange.head.len));
                exchange.reserved = Reserved::for_body(&self.memory.budget, bytes);
                exchange.reserved.is_some()
            }
            (None, _) => {
                exchange.reserved = Reserved::for_body(&self.memory.budget, 4 * UNRESERVED);
                exchange.reserved.is_some()
            }
            (Some(reserved), _) => reserved.grow_for_body(reserved.bytes()),
        };
        if granted {
            exchange.parked = None;
            client.stage = Stage::Body;
            self.begin_body(client);
        }
        granted
    }

    /// Memory is there: the body may come.
    fn begin_body(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.times.body_let_in = self.now;
        if exchange.head.expect_continue && !exchange.told_to_continue && !exchange.upload.is_done() {
            exchange.told_to_continue = true;
            let interim = Body::Static(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.send_client(client, Payload { head: Vec::new(), body: interim });
        }
        self.resume_client(client);
        self.read_body(client);
    }

    /// Goes on with the body in `inbuf`; dispatches the request once it can be.
    pub(crate) fn read_body(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let head = exchange.head.len as usize;
        match &mut exchange.upload {
            Upload::Collecting { end } if client.inbuf.len() < *end => {
                let missing = *end - client.inbuf.len();
                client.inbuf.reserve_exact(missing);
                self.expect_body(client);
            }
            Upload::Collecting { end } => {
                let end = *end;
                exchange.upload = Upload::Whole;
                self.dispatch(client, end);
            }
            Upload::Unchunking(_) => self.unchunk(client),
            Upload::Streaming { .. } => self.dispatch_streaming(client, head),
            _ => self.dispatch(client, head),
        }
    }

    /// The body must be done in time, or flow at a rate that no slow writer keeps up by accident.
    fn expect_body(&mut self, client: &mut Client) {
        let Some(exchange) = &client.exchange else { return };
        let bytes = client.inbuf.len() as u64;
        let due = exchange.times.body_let_in + self.settings.body + bytes / BODY_RATE * SECOND;
        let within: Nanos = due.saturating_sub(self.now).max(1);
        self.expect_client(client, within);
    }

    /// Takes the chunk framing off what came, in place.
    fn unchunk(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Upload::Unchunking(decoder) = &mut exchange.upload else { return };
        let start = exchange.unchunked.max(exchange.head.len as usize);
        let decoded = decode_in_place(decoder, &mut client.inbuf, start, &self.settings.limits);
        let (end, done) = match decoded {
            Ok(decoded) => decoded,
            Err(rule) => {
                self.tally.count(Count::Malformed);
                return self.refuse(client, Fault::Malformed(rule));
            }
        };
        exchange.unchunked = end;
        let body = (end - exchange.head.len as usize) as u64;
        if body > self.settings.max_body {
            self.refuse(client, Fault::BodyTooLarge);
        } else if done {
            exchange.upload = Upload::Whole;
            self.dispatch(client, end);
        } else if body > self.settings.max_inspect_body && !self.rules.vips[client.vip].holds {
            self.dispatch_rechunking(client, end);
        } else {
            self.claim_more(client, body);
        }
    }

    /// A body of unknown length reserves in doubling steps.
    fn claim_more(&mut self, client: &mut Client, body: u64) {
        let Some(exchange) = &mut client.exchange else { return };
        let enough = exchange.reserved.as_ref().map_or(UNRESERVED, Reserved::bytes);
        if body <= enough {
            return self.expect_body(client);
        }
        let first = self.memory.waiting.is_empty();
        let grown = first
            && match &mut exchange.reserved {
                Some(reserved) => reserved.grow_for_body(reserved.bytes()),
                None => {
                    exchange.reserved = Reserved::for_body(&self.memory.budget, 4 * UNRESERVED);
                    exchange.reserved.is_some()
                }
            };
        if grown { self.expect_body(client) } else { self.park_for_memory(client) }
    }

    /// The request is held whole, up to `end` of `inbuf`; what lies behind belongs to the next one.
    fn dispatch(&mut self, client: &mut Client, end: usize) {
        self.hand_over(client, end);
        let Some(exchange) = &mut client.exchange else { return };
        exchange.body = exchange.head.len as usize..end;
        exchange.times.begun = self.now;
        self.route(client);
    }

    /// The body is too long to be held: it is routed by what is known and streamed on. What came of it
    /// already goes out with the head.
    fn dispatch_streaming(&mut self, client: &mut Client, head: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        let Upload::Streaming { left } = &mut exchange.upload else { return };
        let came = (client.inbuf.len() - head).min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= came as u64;
        if *left == 0 {
            exchange.upload = Upload::Streamed;
        }
        self.hand_over(client, head + came);
        self.route_uninspected(client, head..head + came);
    }

    fn dispatch_rechunking(&mut self, client: &mut Client, end: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        let Upload::Unchunking(decoder) = std::mem::take(&mut exchange.upload) else { return };
        let head = exchange.head.len as usize;
        exchange.upload = Upload::Rechunking { decoder, sent: (end - head) as u64, begun: true };
        self.hand_over(client, end);
        self.route_uninspected(client, head..end);
    }

    fn route_uninspected(&mut self, client: &mut Client, body: std::ops::Range<usize>) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.body = body;
        exchange.uninspected = true;
        if !exchange.upload.is_done() {
            exchange.times.held_back_at = self.now;
            self.pause_client(client);
        }
        self.route(client);
    }

    /// Moves the request from the connection to the exchange.
    fn hand_over(&mut self, client: &mut Client, end: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        let mut request = std::mem::take(&mut client.inbuf);
        if request.len() > end {
            client.inbuf = self.memory.spare.take(request.len() - end);
            client.inbuf.extend_from_slice(&request[end..]);
            request.truncate(end);
        }
        exchange.request = request;
    }
}

fn is_uploading(client: &Client) -> bool {
    client.exchange.as_ref().is_some_and(|e| e.upload.is_streaming())
}

/// Decodes `bytes[start..]` and closes up the gaps that framing leaves: the data ends where the first
/// result says; bytes of a next request follow it. The second result: the body is complete.
fn decode_in_place(
    decoder: &mut ChunkDecoder,
    bytes: &mut Vec<u8>,
    start: usize,
    limits: &warmpath_parser::http1::Limits,
) -> Result<(usize, bool), warmpath_parser::Malformed> {
    let (mut read, mut write, mut done) = (start, start, false);
    while read < bytes.len() && !done {
        let piece = decoder.advance(&bytes[read..], limits)?;
        let data = read + piece.data.start..read + piece.data.end;
        let length = data.len();
        bytes.copy_within(data, write);
        write += length;
        read += piece.consumed;
        done = piece.done;
    }
    bytes.drain(write..read);
    Ok((write, done))
}
