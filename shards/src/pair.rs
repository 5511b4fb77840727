//! A request that two endpoints serve: one computes its prompt (prefill), the other its answer (decode). Owns the pair
//! as one transaction: both are chosen and charged before a byte goes out, each end of a leg says what becomes of the
//! other, and whatever is held is settled once. Must never know a dialect (core's pairing does), nor copy a leg's bytes.
//!
//! The decode leg is the exchange's ordinary one, with a body of the gateway's edition: all from dial to account stays
//! as it is. The prefill leg is [`crate::leg`]'s, media go before it by [`crate::encode`], and who serves is
//! [`crate::pair_choice`]'s. Where engines hand over (vLLM, TensorRT-LLM) decode is sent what prefill answered; where they
//! meet (SGLang) it is sent as soon as prefill's request is on its way.

mod end;

use crate::breaker::Charge;
use crate::conn::{Client, Stage};
use crate::encode::Encoding;
use crate::exchange::{Exchange, Reserved};
use crate::flow::Flow;
use crate::forward::Forwarded;
use crate::leg::{SideLeg, Work};
use crate::pair_choice::Chosen;
use crate::services::ShardService;
use crate::usage::Usage;
use std::net::{Ipv4Addr, SocketAddr};
use warmpath_core::control::{Count, PairCount};
use warmpath_core::engine::pairing::{
    self, Body, Connector, Given, Handed, Need, Order, PairTerms, Pairing, Pin, PrefillEnd, Rooms, encode,
};
use warmpath_core::fault::Fault;
use warmpath_core::fleet::EndpointView;
use warmpath_core::receipt::{PairPhase, PairReceipt};
use warmpath_core::rule::{Disaggregation, PairConnector, Role};
use warmpath_core::{Nanos, SECOND};
use warmpath_parser::http1::{Field, Method};
use warmpath_parser::json::{self, JsonLimits, Kind, Member};
use warmpath_ring::{Payload, Ring, Sock};

/// Room for what a leg's body has more than the client's, where nothing was handed over.
pub const EDIT_MAX: usize = 512;

/// How long prefill's blocks stay charged where decode never asked for them: as long as the engines keep them at least
/// (vLLM's lease of blocks that nobody reads, 30 s since 0.28).
pub const LEASE: Nanos = 30 * SECOND;

/// Bodies up to this size are copied for a leg without a reservation, as they were read without one.
const UNRESERVED: usize = 16 * 1024;

/// A pair, beside its exchange.
pub struct Pair {
    /// How its engines pair.
    pub pairing: &'static Pairing,
    /// Its media, until they are encoded.
    pub encoding: Option<Box<Encoding>>,
    /// What encoders handed over, as members of an object.
    pub encoded: Vec<u8>,
    /// The connection of the prefill leg, while it is under way.
    leg: Option<Sock>,
    /// The `X-Request-Id` of both legs; empty if the client sent one, or none goes out.
    pub id: Vec<u8>,
    /// When prefill must have ended.
    deadline: Nanos,
    /// The longest to decode's first byte.
    pub first_byte: Nanos,
    need: Need,
    rooms: Rooms,
    terms: Disaggregation,
    /// Its prefill endpoint, once one is chosen, and its place in the rule.
    prefill: Option<SocketAddr>,
    prefill_at: usize,
    /// How that is called in a transfer by Mooncake.
    engine_id: Box<str>,
    /// The client wants a stream.
    streams: bool,
    /// What prefill answered, and where in it what decode is given.
    answer: Vec<u8>,
    handed: Option<Handed>,
    /// Memory of that answer, and of the legs' bodies.
    held: [Option<Reserved>; 2],
    /// The charge of prefill's blocks, from its end until decode has read them.
    kept: Option<Charge>,
    begun: Nanos,
    prefill_took: Nanos,
    /// Prefill's answer was whole and a good one: where engines meet, decode had its blocks then.
    computed: bool,
    /// What prefill tells of its cache: decode's has come from there.
    usage: Option<Usage>,
    phase: PairPhase,
    /// Other prefill endpoints asked after a death or a failure, and whole pairs begun anew.
    retries: u8,
}

impl Pair {
    /// What is settled about it, for a dialect.
    pub fn terms(&self) -> PairTerms<'_> {
        PairTerms {
            rooms: self.rooms,
            bootstrap: SocketAddr::new(
                self.prefill.map_or(Ipv4Addr::UNSPECIFIED.into(), |prefill| prefill.ip()),
                self.terms.bootstrap_port,
            ),
            connector: match self.terms.connector {
                PairConnector::Nixl => Connector::Answered,
                PairConnector::Mooncake => Connector::Mooncake { engine: &self.engine_id },
            },
            encoded: &self.encoded,
        }
    }

    /// The connection of a leg beside the answer's, while it is under way.
    pub fn carry(&mut self, work: Work, sock: Option<Sock>) {
        match (work, &mut self.encoding) {
            (Work::Prompt, _) => self.leg = sock,
            (Work::Part(part), Some(encoding)) => encoding.carry(part, sock),
            (Work::Part(_), None) => {}
        }
    }

    /// When such a leg must have ended.
    pub fn due(&self, work: Work) -> Nanos {
        match (work, &self.encoding) {
            (Work::Part(_), Some(encoding)) => encoding.deadline,
            _ => self.deadline,
        }
    }

    /// What receipts say of it, if it came so far that there is something to say.
    pub fn receipt(&self, complete: bool) -> Option<PairReceipt> {
        let phase = if complete { PairPhase::Complete } else { self.phase };
        Some(PairReceipt { prefill: self.prefill?, phase, prefill_took: self.prefill_took })
    }

    /// Its prefill endpoint.
    pub fn prefill(&self) -> Option<SocketAddr> {
        self.prefill
    }

    /// Decode's first bytes are there: it has read the blocks.
    pub fn was_read(&mut self) {
        self.kept = None;
    }

    /// What prefill told of its cache.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Whether its legs run side by side.
    fn is_together(&self) -> bool {
        self.pairing.order == Order::Together
    }

    /// What prefill handed over.
    fn given(&self) -> Option<Given<'_>> {
        self.handed.map(|handed| Given { answer: &self.answer, handed })
    }
}

/// The pair of a client's request.
pub fn of(client: &mut Client) -> Option<&mut Pair> {
    client.exchange.as_mut()?.pair.as_deref_mut()
}

impl<R: Ring> Flow<R> {
    /// Makes a pair of a request that its rule has two endpoints serve, if it is one that can be: a completion, of text
    /// or chat, or one of the engine's own form. Others go to an endpoint alone.
    pub(crate) fn pair_up(&mut self, exchange: &mut Exchange, service: &ShardService) -> Result<(), Fault> {
        let rule = &service.service.rule;
        let Some((terms, pairing)) = rule.disaggregation.zip(rule.engine.pairing()) else { return Ok(()) };
        let path = exchange.head.path.of(&exchange.request);
        if exchange.head.method != Method::Post || !pairing.serves(path) {
            return Ok(());
        }
        // Neither leg could be written, and either engine would refuse it.
        if !exchange.peeked {
            return Err(Fault::BadJson);
        }
        let bytes = &exchange.request[exchange.body.clone()];
        let need = match pairing.admit(&Body { bytes, members: &self.members }) {
            Ok(need) => need,
            Err(why) if why.is_refused() || !pairing.decodes_alone() => return Err(Fault::HandshakeCarried),
            Err(_) => return Ok(()),
        };
        let encoding = self.encoding_of(exchange, service, pairing)?;
        let streams = self.members.get(Member::Stream).is_some_and(|value| value.kind == Kind::True);
        let first_byte = rule.deadlines.first_byte;
        exchange.pair = Some(Box::new(Pair {
            pairing,
            encoding,
            encoded: Vec::new(),
            leg: None,
            id: Vec::new(),
            deadline: 0,
            // Without a stream the first byte is the last too, and may take as long as any answer.
            first_byte: if streams { first_byte.min(self.settings.pair_phase) } else { first_byte },
            need,
            rooms: Rooms::draw(self.random.next(), need, None),
            terms,
            prefill: None,
            prefill_at: 0,
            engine_id: "".into(),
            streams,
            answer: Vec::new(),
            handed: None,
            held: [None, None],
            kept: None,
            begun: 0,
            prefill_took: 0,
            computed: false,
            usage: None,
            phase: PairPhase::Unknown,
            retries: 0,
        }));
        Ok(())
    }

    /// The media of a chat, where the rule has encoders for them.
    fn encoding_of(
        &mut self,
        exchange: &Exchange,
        service: &ShardService,
        pairing: &Pairing,
    ) -> Result<Option<Box<Encoding>>, Fault> {
        let Some(roles) = service.service.roles.filter(|roles| roles.encodes()) else { return Ok(None) };
        let body = Body { bytes: &exchange.request[exchange.body.clone()], members: &self.members };
        match pairing.encoding {
            encode::Encoding::Legs(dialect) => Ok(Encoding::of(dialect, &body)),
            encode::Encoding::ByAddress if !encode::media(&body).is_empty() => {
                // Prefill would wait for an encoder that does not come.
                service.service.view(self.now, &mut self.view);
                let encoders = roles.all_but(Role::Encode);
                let is_well = |(at, view): (usize, &EndpointView)| view.available && !encoders.contains(at);
                let any = self.view.iter().enumerate().any(is_well);
                if any { Ok(None) } else { Err(Fault::PairUnavailable) }
            }
            _ => Ok(None),
        }
    }

    /// Has its media encoded, then chooses and charges both endpoints, and sends the first leg; or a normal endpoint,
    /// which gets all.
    pub(crate) fn begin_pair(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        if let Some(fault) = self.hold_copies(exchange) {
            return self.refuse(client, fault);
        }
        if of(client).is_some_and(|pair| pair.encoding.is_some()) {
            return self.encode(client);
        }
        let Some(exchange) = &mut client.exchange else { return };
        match self.choose_pair(exchange) {
            Ok(Chosen::Pair(leg)) => {
                self.settle_terms(exchange, &leg);
                self.dial_leg(client, leg);
            }
            Ok(Chosen::Normal) => self.dial(client),
            Err(fault) => self.refuse(client, fault),
        }
    }

    /// Reserves memory for the legs' editions of a long body.
    fn hold_copies(&mut self, exchange: &mut Exchange) -> Option<Fault> {
        let Some(pair) = &mut exchange.pair else { return None };
        let bytes = exchange.body.len();
        if bytes <= UNRESERVED || pair.held[0].is_some() {
            return None;
        }
        let copies = if pair.is_together() { 2 } else { 1 };
        pair.held[0] = Reserved::for_body(&self.memory.budget, copies * bytes as u64);
        pair.held[0].is_none().then_some(Fault::MemoryPressure)
    }

    /// What both legs must say alike: fresh rooms and, of a first prefill endpoint or another, the receipt.
    fn settle_terms(&mut self, exchange: &mut Exchange, leg: &SideLeg) {
        let (Some(service), Some(pair)) = (&exchange.route.service, &mut exchange.pair) else { return };
        let rule = &service.service.rule;
        let side = |at: usize| rule.endpoints.get(at).map(|e| SocketAddr::new(e.address.ip(), e.side_port));
        pair.id.clear();
        if !exchange.headers.has(Field::XRequestId)
            && let Ok(hex) = exchange.facts.id.bytes().try_into()
            && let Some((prefill, decode)) = side(leg.endpoint).zip(side(exchange.route.endpoint))
        {
            pairing::receipt(prefill, decode, hex, &mut pair.id);
        }
        let ranks = rule.exact.as_ref().map_or(1, |exact| exact.ranks);
        let rank = leg.rank.as_ref().and_then(|rank| rank.rank()).or(exchange.route.rank_asked);
        let pin = rank.filter(|rank| *rank < ranks).map(|rank| Pin { rank, of: ranks });
        pair.rooms = Rooms::draw(self.random.next(), pair.need, pin);
        pair.prefill = Some(service.service.endpoints[leg.endpoint].address());
        pair.prefill_at = leg.endpoint;
        if pair.terms.connector == PairConnector::Mooncake {
            pair.engine_id = rule.endpoints[leg.endpoint].engine_id.clone();
        }
        if pair.begun == 0 {
            pair.begun = self.now;
            pair.deadline = self.now + self.settings.pair_phase;
        }
        pair.phase = PairPhase::Prefill;
    }

    /// Hands the client's body, with the members found in it, to a dialect. `None`: it is not held any more.
    pub(crate) fn write_leg(&mut self, exchange: &Exchange, write: impl FnOnce(&Body<'_>)) -> Option<()> {
        let bytes = exchange.request.get(exchange.body.clone())?;
        // Other requests were looked into since.
        json::peek(bytes, &mut self.members, JsonLimits::default()).ok()?;
        write(&Body { bytes, members: &self.members });
        Some(())
    }

    /// The decode leg's request.
    pub(crate) fn decode_payload(&mut self, exchange: &Exchange, forwarded: Forwarded) -> Payload {
        let Some(pair) = exchange.pair.as_deref() else { return Payload::head(Vec::new()) };
        let handed = pair.answer.len();
        let mut body = self.memory.spare.take(exchange.body.len() + EDIT_MAX + handed);
        // It could be read when prefill's was written, and nobody changed it since.
        let _ = self.write_leg(exchange, |given| {
            pair.pairing.decode_body(given, &pair.terms(), pair.given(), &mut body);
        });
        self.leg_payload(exchange, &pair.id, forwarded, None, body)
    }

    /// Prefill's request is on its way: where engines meet, decode's goes after it at once.
    pub(crate) fn prefill_sent(&mut self, client: &mut Client) {
        // Decode may be under way already, where prefill's request had to be sent anew on a fresh connection.
        if of(client).is_some_and(|pair| pair.is_together() && pair.phase < PairPhase::Decode) {
            self.dial_decode(client);
        }
    }

    /// Sends the decode leg, to the endpoint chosen for it if that is still well.
    fn dial_decode(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = exchange.route.service.clone() else { return };
        service.service.view(self.now, &mut self.view);
        let available = self.view.get(exchange.route.endpoint).is_some_and(|view| view.available);
        let well = exchange.route.charge.as_ref().is_some_and(|charge| available || charge.is_trial());
        if !well {
            return self.another_decode(client);
        }
        if let Some(pair) = &mut exchange.pair {
            pair.phase = PairPhase::Decode;
        }
        client.stage = Stage::Dialing;
        self.dial(client);
    }

    /// The decode endpoint can't be connected to, or is not well any more, and has nothing of the request: another one.
    pub(crate) fn another_decode(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = exchange.route.service.clone() else { return };
        exchange.route.tried.add(exchange.route.endpoint);
        exchange.settle();
        service.service.view(self.now, &mut self.view);
        if self.choose_decode(exchange, &service, None) {
            return self.dial_decode(client);
        }
        self.refuse(client, Fault::PairUnavailable);
    }

    /// An attempt to connect to the decode endpoint failed.
    pub(crate) fn leave_decode(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.retries = exchange.route.retries.saturating_add(1);
        self.tally.count(Count::Failovers);
        self.count_pair(client, PairCount::ConnectFailover);
        self.another_decode(client);
    }

    /// The prefill endpoint has nothing of the request: another one, or a normal endpoint.
    pub(crate) fn another_prefill(&mut self, client: &mut Client, left: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.route.tried.add(left);
        exchange.route.retries = exchange.route.retries.saturating_add(1);
        self.break_promise(exchange);
        self.begin_pair(client);
    }

    /// The prefill endpoint closed the connection before its answer was whole.
    pub(crate) fn prefill_died(&mut self, client: &mut Client, endpoint: usize) {
        self.count_pair(client, PairCount::PrefillDied);
        let Some(exchange) = &mut client.exchange else { return };
        let answering = exchange.has_begun_answering();
        let Some(pair) = &mut exchange.pair else { return };
        let (together, again) = (pair.is_together(), pair.retries == 0);
        if together && answering {
            // Decode has all it needs, or will say so itself.
            return;
        }
        if !again {
            return self.prefill_failed(client, Fault::PairUnavailable);
        }
        pair.retries += 1;
        if together {
            self.call_decode_off(client);
            self.count_pair(client, PairCount::RoomRetry);
        }
        self.another_prefill(client, endpoint);
    }

    /// Closes the decode leg before it answered, so that the pair may begin anew.
    fn call_decode_off(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let upstream = exchange.route.upstream.take();
        exchange.settle();
        self.drop_leg(upstream);
    }

    /// The prefill leg failed for good.
    pub(crate) fn prefill_failed(&mut self, client: &mut Client, fault: Fault) {
        let Some(exchange) = &mut client.exchange else { return };
        let answering = exchange.has_begun_answering();
        let together = exchange.pair.as_ref().is_some_and(|pair| pair.is_together());
        if together && answering {
            return;
        }
        if together {
            self.count_pair(client, PairCount::DecodeAborted);
        }
        let own = matches!(fault, Fault::PrefillTimeout | Fault::MemoryPressure | Fault::BadJson);
        self.refuse(client, if together && !own { Fault::PrefillFailed } else { fault });
    }

    /// The prefill engine's answer is whole.
    pub(crate) fn prefill_ended(&mut self, client: &mut Client, leg: Box<SideLeg>) {
        let Some(pair) = of(client) else { return };
        pair.prefill_took = self.now - pair.begun;
        let took = pair.prefill_took;
        pair.usage = leg.answer.usage;
        let end = pair.pairing.read_prefill(leg.answer.status, leg.body(), &pair.terms());
        pair.computed = leg.answer.status < 400;
        let together = pair.is_together();
        let answering = client.exchange.as_ref().is_some_and(|e| e.has_begun_answering());
        self.note_prefill(client, &leg, took);
        match end {
            PrefillEnd::Ready(_) | PrefillEnd::Nothing | PrefillEnd::Final if together => {}
            _ if together && answering => {}
            PrefillEnd::Ready(handed) => self.hand_to_decode(client, leg, handed),
            PrefillEnd::Nothing => self.decode_alone(client),
            PrefillEnd::Final => self.end_early(client, leg),
            PrefillEnd::Refused => {
                self.count_pair(client, PairCount::PrefillRefused);
                if let Some(pair) = of(client) {
                    pair.phase = PairPhase::Prefill;
                }
                self.relay_leg(client, leg);
            }
            PrefillEnd::Failed if together => self.prefill_failed(client, Fault::PrefillFailed),
            PrefillEnd::Failed => self.prefill_answered_badly(client, leg.endpoint),
        }
    }

    fn note_prefill(&mut self, client: &mut Client, leg: &SideLeg, took: Nanos) {
        let Some(exchange) = &mut client.exchange else { return };
        self.prove(exchange, leg.endpoint, leg.answer.status, leg.answer.usage);
        if let Some(service) = &exchange.route.service {
            service.counts.borrow_mut().pairs.prefill.note(took);
        }
    }

    /// Decode may begin, with what prefill says. Until it has read the blocks they stay charged.
    fn hand_to_decode(&mut self, client: &mut Client, leg: Box<SideLeg>, handed: Handed) {
        self.count_pair(client, PairCount::HandedOver);
        if let Some(exchange) = &mut client.exchange {
            self.promise_kept(exchange);
        }
        let Some(pair) = of(client) else { return };
        let mut leg = leg;
        leg.bytes.drain(..leg.body_at);
        (pair.answer, pair.handed) = (leg.bytes, Some(handed));
        (pair.held[1], pair.kept) = (leg.reserved.take(), leg.charge.take());
        self.dial_decode(client);
    }

    /// Nothing was handed over: decode computes the prompt too.
    fn decode_alone(&mut self, client: &mut Client) {
        self.count_pair(client, PairCount::NotHandedOver);
        if let Some(exchange) = &mut client.exchange {
            self.break_promise(exchange);
        }
        self.dial_decode(client);
    }

    /// The prefill engine answered that it failed: one more is asked, then decode alone. A request that breaks engines
    /// must not walk the fleet.
    fn prefill_answered_badly(&mut self, client: &mut Client, endpoint: usize) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = exchange.route.service.clone() else { return };
        exchange.route.tried.add(endpoint);
        self.break_promise(exchange);
        let again = exchange.pair.as_ref().is_some_and(|pair| pair.retries == 0);
        service.service.view(self.now, &mut self.view);
        let other = if again { self.choose_prefill(exchange, &service, None) } else { None };
        match other {
            Some(leg) => {
                if let Some(pair) = &mut exchange.pair {
                    pair.retries += 1;
                }
                self.settle_terms(exchange, &leg);
                self.dial_leg(client, leg);
            }
            None => self.decode_alone(client),
        }
    }

    /// The prefill engine's answer is the whole answer.
    fn end_early(&mut self, client: &mut Client, mut leg: Box<SideLeg>) {
        self.count_pair(client, PairCount::EndedEarly);
        if let Some(exchange) = &mut client.exchange {
            self.promise_kept(exchange);
        }
        let Some(exchange) = &client.exchange else { return };
        let Some(pair) = exchange.pair.as_deref().filter(|pair| pair.streams) else {
            return self.relay_leg(client, leg);
        };
        let mut events = Vec::with_capacity(leg.body().len() + EDIT_MAX);
        let pairing = pair.pairing;
        // The body could be read when prefill's was written, and nobody changed it since.
        let _ = self.write_leg(exchange, |given| pairing.early_answer(given, leg.body(), &mut events));
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        leg.become_answer(head, &events);
        self.relay_leg(client, leg);
    }

    /// What a fault of the answer's leg is told as, where that is decode of a pair.
    pub(crate) fn fault_of_leg(exchange: &Exchange, fault: Fault) -> Fault {
        match (&exchange.pair, fault) {
            (Some(pair), Fault::FirstByteTimeout) if pair.is_together() && pair.leg.is_some() => {
                Fault::PrefillTimeout
            }
            (Some(_), Fault::FirstByteTimeout) => Fault::DecodeTimeout,
            (Some(_), Fault::BackendDied) => Fault::DecodeDied,
            (_, fault) => fault,
        }
    }

    /// Counts what happened to a client's pair.
    pub(crate) fn count_pair(&mut self, client: &mut Client, what: PairCount) {
        let service = client.exchange.as_ref().and_then(|exchange| exchange.route.service.as_ref());
        if let Some(service) = service {
            service.counts.borrow_mut().pairs.count(what);
        }
    }
}
