//! The stage before a pair, where its rule has encoders: each image or other media part of a request goes to one of
//! them, several at once, and what they hand over to prefill. Owns the parts and what the end of each leg means; must
//! never know a dialect (core's pairing does), nor copy a leg's bytes.
//!
//! A part whose encoder can't be reached goes to the next one; one that an encoder failed, once more. Then it is left
//! to prefill, which computes what it does not find, and counted. A refusal (4xx) is the client's answer.

use crate::conn::Client;
use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::forward::Forwarded;
use crate::leg::{Loss, SideLeg, Work};
use crate::pair::{self, EDIT_MAX, Pair};
use crate::services::ShardService;
use warmpath_core::Nanos;
use warmpath_core::control::PairCount;
use warmpath_core::engine::pairing::Body;
use warmpath_core::engine::pairing::encode::{self, EncodeEnd, EncodeLegs};
use warmpath_core::fault::Fault;
use warmpath_core::fleet::Excluded;
use warmpath_core::rule::Role;
use warmpath_parser::Span;
use warmpath_parser::json::Members;
use warmpath_ring::{Payload, Ring, Sock};

/// Legs of one request at a time.
const AT_ONCE: usize = 16;

/// Bytes of what encoders hand over of one request; whatever comes beyond is no answer.
const HANDED_MAX: usize = 1 << 20;

/// A request's media on their way.
pub struct Encoding {
    dialect: EncodeLegs,
    /// Of the client's body: it is not looked into anew for each part.
    members: Members,
    parts: Vec<Part>,
    /// The first part that is not begun.
    next: usize,
    /// Parts that are not over.
    left: usize,
    /// When all must be over; 0: not begun.
    pub deadline: Nanos,
}

struct Part {
    at: Span,
    leg: Option<Sock>,
    /// Encoders not to choose again.
    tried: Excluded,
    /// An encoder failed it.
    failed: bool,
}

impl Encoding {
    /// Of a request's media; `None` if it has none.
    pub fn of(dialect: EncodeLegs, body: &Body<'_>) -> Option<Box<Encoding>> {
        let part = |at| Part { at, leg: None, tried: Excluded::default(), failed: false };
        let parts: Vec<Part> = encode::media(body).into_iter().map(part).collect();
        let left = parts.len();
        let members = || body.members.clone();
        (left > 0)
            .then(|| Box::new(Encoding { dialect, members: members(), parts, next: 0, left, deadline: 0 }))
    }

    /// The connection of a part's leg.
    pub fn carry(&mut self, part: usize, leg: Option<Sock>) {
        if let Some(part) = self.parts.get_mut(part) {
            part.leg = leg;
        }
    }

    /// Connections of all legs under way.
    pub fn legs(&mut self) -> impl Iterator<Item = Sock> {
        self.parts.iter_mut().filter_map(|part| part.leg.take())
    }

    fn may_begin(&self) -> bool {
        self.next < self.parts.len() && self.left + self.next < self.parts.len() + AT_ONCE
    }
}

/// The media of a client's request, while they are encoded.
fn of(client: &mut Client) -> Option<&mut Encoding> {
    pair::of(client)?.encoding.as_deref_mut()
}

impl<R: Ring> Flow<R> {
    /// Sends as many parts as may be under way at once.
    pub(crate) fn encode(&mut self, client: &mut Client) {
        let deadline = self.now + self.settings.pair_phase;
        while let Some(encoding) = of(client) {
            if encoding.deadline == 0 {
                encoding.deadline = deadline;
            }
            if !encoding.may_begin() {
                return;
            }
            encoding.next += 1;
            let part = encoding.next - 1;
            self.encode_part(client, part);
        }
    }

    /// Sends a part to an encoder, or leaves it to prefill.
    fn encode_part(&mut self, client: &mut Client, part: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = exchange.route.service.clone() else { return };
        match self.choose_encoder(exchange, &service, part) {
            Some(leg) => self.dial_leg(client, leg),
            None => {
                self.count_pair(client, PairCount::NotEncoded);
                self.part_over(client);
            }
        }
    }

    fn choose_encoder(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        part: usize,
    ) -> Option<Box<SideLeg>> {
        let tried = exchange.pair.as_ref()?.encoding.as_ref()?.parts.get(part)?.tried;
        let others = service.service.roles.as_ref()?.all_but(Role::Encode);
        service.service.view(self.now, &mut self.view);
        let (endpoint, charge) = self.choose_beside(exchange, service, tried.with(others))?;
        Some(Box::new(SideLeg::new(Work::Part(part), endpoint, charge)))
    }

    /// The request of a part's leg: not the client's id, which another part's bears too.
    pub(crate) fn encode_payload(
        &mut self,
        exchange: &Exchange,
        part: usize,
        forwarded: Forwarded,
    ) -> Option<Payload> {
        let encoding = exchange.pair.as_ref()?.encoding.as_ref()?;
        let at = encoding.parts.get(part)?.at;
        let mut body = self.memory.spare.take((at.end - at.start) as usize + EDIT_MAX);
        let bytes = exchange.request.get(exchange.body.clone())?;
        encoding.dialect.body(&Body { bytes, members: &encoding.members }, at, &mut body);
        let id = [exchange.facts.id.bytes(), format!("-enc-{part}").as_bytes()].concat();
        Some(self.leg_payload(exchange, &id, forwarded, None, body))
    }

    /// An encoder's answer is whole.
    pub(crate) fn encode_ended(&mut self, client: &mut Client, part: usize, leg: Box<SideLeg>) {
        let Some(pair) = pair::of(client) else { return };
        let Some(encoding) = &pair.encoding else { return };
        match encoding.dialect.read(leg.answer.status, leg.body()) {
            EncodeEnd::Ready(handed) if hand(pair, handed.map(|span| span.of(leg.body()))) => {
                self.count_pair(client, PairCount::Encoded);
                self.part_over(client);
            }
            EncodeEnd::Refused => {
                self.count_pair(client, PairCount::EncodeRefused);
                self.drop_encoding(client);
                self.relay_leg(client, leg);
            }
            EncodeEnd::Ready(_) | EncodeEnd::Failed => {
                self.encode_lost(client, part, leg.endpoint, Loss::Died)
            }
        }
    }

    /// A part's leg came to nothing.
    pub(crate) fn encode_lost(&mut self, client: &mut Client, part: usize, endpoint: usize, loss: Loss) {
        let Some(part_lost) = of(client).and_then(|encoding| encoding.parts.get_mut(part)) else { return };
        part_lost.tried.add(endpoint);
        match loss {
            Loss::Unreachable => self.encode_part(client, part),
            Loss::Died if !std::mem::replace(&mut part_lost.failed, true) => self.encode_part(client, part),
            Loss::Died => {
                self.count_pair(client, PairCount::NotEncoded);
                self.part_over(client);
            }
            Loss::Late => self.encode_refuse(client, Fault::EncodeTimeout),
            Loss::Fault(fault) => self.encode_refuse(client, fault),
        }
    }

    fn encode_refuse(&mut self, client: &mut Client, fault: Fault) {
        self.drop_encoding(client);
        self.refuse(client, fault);
    }

    /// A part is over: the next one, or with the last of them the pair.
    fn part_over(&mut self, client: &mut Client) {
        let Some(encoding) = of(client) else { return };
        encoding.left -= 1;
        if encoding.left > 0 {
            return self.encode(client);
        }
        if let Some(pair) = pair::of(client) {
            pair.encoding = None;
        }
        self.begin_pair(client);
    }

    /// Closes all legs to encoders.
    fn drop_encoding(&mut self, client: &mut Client) {
        let encoding = pair::of(client).and_then(|pair| pair.encoding.take());
        for leg in encoding.into_iter().flat_map(|mut encoding| encoding.legs().collect::<Vec<_>>()) {
            self.drop_leg(Some(leg));
        }
    }
}

/// Notes what an encoder handed over; false: it is too much.
fn hand(pair: &mut Pair, handed: Option<&[u8]>) -> bool {
    let Some(members) = handed else { return true };
    if pair.encoded.len() + members.len() > HANDED_MAX {
        return false;
    }
    if !pair.encoded.is_empty() {
        pair.encoded.push(b',');
    }
    pair.encoded.extend_from_slice(members);
    true
}
