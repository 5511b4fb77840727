//! How a pair of engines serves one request: one computes the prompt (prefill), the other the answer (decode). Owns
//! what the engines' dialects have in common and the questions that each engine answers in its own file. Pure, and
//! nothing but an output is allocated; must never choose an endpoint, know a socket or look for a member's text.
//!
//! In order: [`Pairing::admit`] before anything is sent, [`Pairing::prefill_body`], [`Pairing::read_prefill`],
//! [`Pairing::decode_body`]. Bodies are edited by the ranges that a peek found: what stands in a prompt can't be
//! taken for a member, of a repeated name the last counts as it does for the engine, and every byte that is not
//! changed goes out as the client wrote it.

pub mod encode;
mod rooms;

pub use rooms::{Need, Pin, Rooms};

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use warmpath_parser::Span;
use warmpath_parser::json::{
    Change, JsonLimits, Kind, Member, Members, Value, elements, entries, member, peek,
};

/// Where the two legs stand to each other in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Decode is sent what prefill handed over.
    PrefillFirst,
    /// Both are sent at once and meet at the prefill engine.
    Together,
}

/// One engine's dialect.
pub struct Pairing {
    /// Which leg waits for which.
    pub order: Order,
    pub(super) admit: fn(&Body<'_>) -> Result<Need, Unpairable>,
    pub(super) prefill: fn(&Body<'_>, &PairTerms<'_>, &mut Vec<u8>),
    pub(super) decode: fn(&Body<'_>, &PairTerms<'_>, Option<Given<'_>>, &mut Vec<u8>),
    /// What a whole answer of status 200 says; members of the answer were found by a peek.
    pub(super) read: fn(&Body<'_>, &PairTerms<'_>) -> PrefillEnd,
    /// A final answer as a stream, for the client's body and the answer.
    pub(super) stream_of: Option<fn(&Body<'_>, &Body<'_>, &mut Vec<u8>)>,
    /// How media are encoded.
    pub encoding: encode::Encoding,
    /// The path of the engine's own requests that its pairs serve, beside completions and chats; empty if none.
    pub native: &'static str,
}

/// A JSON body, and what a peek at it found.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Of a peek at these bytes.
    pub members: &'a Members,
}

/// What is settled about a pair before its first byte.
#[derive(Clone, Copy, Debug)]
pub struct PairTerms<'a> {
    /// The numbers by which the engines know the transfer: fresh for every attempt.
    pub rooms: Rooms,
    /// Where decode meets prefill: the prefill endpoint's host, at the rule's `pdBootstrapPort`; its port 0 stands
    /// for the engines' default, 8998.
    pub bootstrap: SocketAddr,
    /// By which means vLLM transfers; other engines have one.
    pub connector: Connector<'a>,
    /// What encoders handed over of the request's media, as members of an object; empty if nothing.
    pub encoded: &'a [u8],
}

/// vLLM's `kv_connector`, as far as a caller must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connector<'a> {
    /// Prefill's answer says where its blocks are (`NixlConnector`, and those that share its handshake).
    Answered,
    /// `MooncakeConnector`: both legs carry one `transfer_id`, and decode is told where to ask.
    Mooncake {
        /// `engine_id` of the prefill engine's rank, as its bootstrap server tells it.
        engine: &'a str,
    },
}

/// How the prefill leg ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefillEnd {
    /// Decode may go on, with what was handed over.
    Ready(Handed),
    /// It succeeded but handed over nothing: decode alone computes the prompt anew.
    Nothing,
    /// The answer is complete already: it is the client's, see [`Pairing::early_answer`].
    Final,
    /// The engine refused the request (4xx): its answer is the client's, as it is.
    Refused,
    /// The engine failed (any other status, or 200 without an answer that can be read): nothing was computed.
    Failed,
}

/// Where, in the prefill engine's answer, stands what decode is to be given; nothing where they meet by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The object that describes the transfer; of any size.
    pub state: Option<Span>,
    /// The prompt's token ids, where the engine tells them: an array.
    pub prompt: Option<Span>,
}

/// What was handed over, in its answer.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The prefill engine's whole answer.
    pub answer: &'a [u8],
    /// What [`Pairing::read_prefill`] found in it.
    pub handed: Handed,
}

/// Why a request can't be served by a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpairable {
    /// The client sent a handshake of its own.
    Carried(Member),
    /// Several prompts, where the engine hands over one.
    Prompts,
    /// Several choices, where the engine hands over one.
    Choices(Member),
    /// A value that the pair depends on and that no engine takes.
    Odd(Member),
}

impl Pairing {
    /// Whether requests to a path are served by pairs.
    pub fn serves(&self, path: &[u8]) -> bool {
        path.ends_with(b"/completions") || !self.native.is_empty() && path == self.native.as_bytes()
    }

    /// Whether a pair can serve the request, and how many rooms it takes. To be asked before the first leg is sent:
    /// what a pair can't serve must not leave a prefill behind.
    ///
    /// # Errors
    /// Why not; [`Unpairable::is_refused`] says what becomes of it.
    pub fn admit(&self, body: &Body<'_>) -> Result<Need, Unpairable> {
        (self.admit)(body)
    }

    /// Pushes the prefill leg's body.
    pub fn prefill_body(&self, body: &Body<'_>, terms: &PairTerms<'_>, out: &mut Vec<u8>) {
        (self.prefill)(body, terms, out);
    }

    /// Pushes the decode leg's body. Without `given`, as after [`PrefillEnd::Nothing`], the client's own where decode
    /// can do without prefill.
    pub fn decode_body(
        &self,
        body: &Body<'_>,
        terms: &PairTerms<'_>,
        given: Option<Given<'_>>,
        out: &mut Vec<u8>,
    ) {
        (self.decode)(body, terms, given, out);
    }

    /// The bodies of both legs of a request, prefill's first, in rooms drawn by 64 random bits; `None`: no pair can serve
    /// it. For engines that meet: what decode is handed it has from there.
    pub fn legs(
        &self,
        bytes: &[u8],
        bootstrap: SocketAddr,
        pin: Option<Pin>,
        random: u64,
    ) -> Option<[Vec<u8>; 2]> {
        let mut members = Members::new();
        peek(bytes, &mut members, JsonLimits::default()).ok()?;
        let body = Body { bytes, members: &members };
        let rooms = Rooms::draw(random, self.admit(&body).ok()?, pin);
        let terms = PairTerms { rooms, bootstrap, connector: Connector::Answered, encoded: &[] };
        let mut legs = [Vec::new(), Vec::new()];
        self.prefill_body(&body, &terms, &mut legs[0]);
        self.decode_body(&body, &terms, None, &mut legs[1]);
        Some(legs)
    }

    /// Whether a decode endpoint serves a request that no prefill went before, with the client's own body.
    pub fn decodes_alone(&self) -> bool {
        self.order == Order::PrefillFirst
    }

    /// How the prefill leg ended, by its status and its whole answer.
    pub fn read_prefill(&self, status: u16, answer: &[u8], terms: &PairTerms<'_>) -> PrefillEnd {
        match status {
            200 => {}
            400..=499 => return PrefillEnd::Refused,
            _ => return PrefillEnd::Failed,
        }
        let mut members = Members::new();
        match peek(answer, &mut members, JsonLimits::default()) {
            Ok(()) => (self.read)(&Body { bytes: answer, members: &members }, terms),
            // Where nothing is handed over, an answer of another shape (a stream, a list) is as good.
            Err(_) if self.order == Order::Together => PrefillEnd::Ready(Handed::default()),
            Err(_) => PrefillEnd::Failed,
        }
    }

    /// Pushes a final answer of the prefill engine ([`PrefillEnd::Final`]) as the events of a stream: a chunk, with
    /// `stream_options.include_usage` one of the usage, the end. For clients that asked for a stream; others get the
    /// answer as it is. Pushes nothing if the engine has no such answers.
    pub fn early_answer(&self, body: &Body<'_>, answer: &[u8], out: &mut Vec<u8>) {
        let mut members = Members::new();
        if let (Some(stream_of), Ok(())) = (self.stream_of, peek(answer, &mut members, JsonLimits::default()))
        {
            stream_of(body, &Body { bytes: answer, members: &members }, out);
        }
    }
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairing").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Unpairable {
    /// Whether the client has to change its request (400). Else the request is served as if there were no prefill
    /// endpoints, if [`Pairing::decodes_alone`].
    pub fn is_refused(self) -> bool {
        matches!(self, Unpairable::Carried(_))
    }

    /// Its name among the reasons that are counted.
    pub fn name(self) -> &'static str {
        match self {
            Unpairable::Carried(_) => "carried",
            Unpairable::Prompts => "prompts",
            Unpairable::Choices(_) => "choices",
            Unpairable::Odd(_) => "odd",
        }
    }
}

impl fmt::Display for Unpairable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unpairable::Carried(member) => write!(
                f,
                "{} is set by the gateway where prefill and decode are separate; leave it out",
                member.name()
            ),
            Unpairable::Prompts => {
                write!(f, "several prompts in one request can't be handed from prefill to decode")
            }
            Unpairable::Choices(member) => {
                write!(f, "{} above 1 can't be handed from prefill to decode", member.name())
            }
            Unpairable::Odd(member) => write!(f, "{} has a value that no engine takes", member.name()),
        }
    }
}

impl std::error::Error for Unpairable {}

/// Where prefill servers of SGLang, and of vLLM with Mooncake, listen for decode unless told otherwise.
const BOOTSTRAP_PORT: u16 = 8998;

impl PairTerms<'_> {
    /// [`PairTerms::bootstrap`] with its port.
    pub(super) fn meeting(&self) -> SocketAddr {
        let mut at = self.bootstrap;
        if at.port() == 0 {
            at.set_port(BOOTSTRAP_PORT);
        }
        at
    }
}

impl<'a> Given<'a> {
    /// The object that describes the transfer.
    pub(super) fn state(&self) -> Option<&'a [u8]> {
        self.handed.state.map(|span| span.of(self.answer))
    }

    /// The prompt's token ids, as an array.
    pub(super) fn prompt(&self) -> Option<&'a [u8]> {
        self.handed.prompt.map(|span| span.of(self.answer))
    }
}

impl<'a> Body<'a> {
    pub(super) fn get(&self, member: Member) -> Option<Value> {
        self.members.get(member)
    }

    /// The last top-level member of a name that is not among [`Member`].
    pub(super) fn named(&self, name: &str) -> Option<Value> {
        member(self.bytes, self.members.as_value(), name)
    }

    /// A change that leaves absent members absent.
    pub(super) fn set_present<'v>(&self, member: Member, value: &'v [u8]) -> Change<'v> {
        if self.get(member).is_some() { Change::Set(member, value) } else { Change::Remove(member) }
    }

    /// Refuses a handshake of the client's own: whatever is no `null` and no empty object.
    pub(super) fn carries_no(&self, member: Member) -> Result<(), Unpairable> {
        let says = |value: Value| match value.kind {
            Kind::Null => false,
            Kind::Object => entries(self.bytes, value).next().is_some(),
            _ => true,
        };
        if self.get(member).is_some_and(says) { Err(Unpairable::Carried(member)) } else { Ok(()) }
    }

    /// How many prompts are in a `prompt`, `text` or `input_ids`; 1 for a list of token ids.
    pub(super) fn prompts(&self, member: Member) -> u32 {
        let Some(prompt) = self.get(member).filter(|prompt| prompt.kind == Kind::Array) else { return 1 };
        let several = |kind| !matches!(kind, Kind::Number);
        match elements(self.bytes, prompt).next() {
            Some(first) if several(first.kind) => elements(self.bytes, prompt).count() as u32,
            _ => 1,
        }
    }

    /// A whole number of at least 1; `None` if absent or `null`.
    pub(super) fn at_least_one(&self, member: Member) -> Result<Option<u64>, Unpairable> {
        match self.get(member).filter(|value| value.kind != Kind::Null) {
            None => Ok(None),
            Some(value) => match value.as_u64(self.bytes) {
                Some(number) if number > 0 => Ok(Some(number)),
                _ => Err(Unpairable::Odd(member)),
            },
        }
    }

    /// Refuses what an engine that hands over one prompt and one choice can't serve.
    pub(super) fn is_single(&self) -> Result<(), Unpairable> {
        for member in [Member::N, Member::BestOf] {
            if self.at_least_one(member)?.is_some_and(|choices| choices > 1) {
                return Err(Unpairable::Choices(member));
            }
        }
        if self.prompts(Member::Prompt) > 1 { Err(Unpairable::Prompts) } else { Ok(()) }
    }
}

/// Pushes the receipt that goes as `X-Request-Id` to both legs, in the form of vLLM's P2P connectors:
/// `___prefill_addr_HOST:PORT___decode_addr_HOST:PORT_HEX`. Ports are those of the side channels, `nixl_port`; an
/// IPv6 host stands in brackets.
pub fn receipt(prefill: SocketAddr, decode: SocketAddr, hex: &[u8; 32], out: &mut Vec<u8>) {
    print(out, format_args!("___prefill_addr_{prefill}___decode_addr_{decode}_"));
    out.extend_from_slice(hex);
}

/// Pushes text; a vector takes everything.
pub(super) fn print(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests;
