//! One request and its answer. Owns what is known of it from its first byte to its receipt; must never
//! touch a socket.

use crate::breaker::Charge;
use crate::budget::Budget;
use crate::framing::Tail;
use crate::gate::Pass;
use crate::pair::Pair;
use crate::prompt::Keys;
use crate::proof::Claim;
use crate::services::ShardService;
use crate::tokenize::Pending;
use crate::usage::Usage;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::decide::Reason;
use warmpath_core::decide::exact::{ANY_RANK, Explanation, Miss};
use warmpath_core::fault::Fault;
use warmpath_core::fleet::Excluded;
use warmpath_core::prefix_path::PrefixPath;
use warmpath_core::shared::{Destination, Source};
use warmpath_core::trust::{Class, Finding};
use warmpath_parser::http1::{ChunkDecoder, Headers, RequestHead, ResponseParser};
use warmpath_ring::Sock;

/// Keys that an exchange which is kept for reuse keeps room for.
const KEYS_SPARE: usize = 512;

/// The state of one exchange. Kept and reused by the shard: [`Exchange::clear`] makes it new.
#[derive(Default)]
pub struct Exchange {
    /// The request's head.
    pub head: RequestHead,
    /// Its header lines.
    pub headers: Headers,
    /// Head and body as received (the body without chunk framing); empty while a send owns it.
    pub request: Vec<u8>,
    /// Where the body lies in `request`.
    pub body: Range<usize>,
    /// How the rest of the body comes in, and whether it is held whole.
    pub upload: Upload,
    /// Where the data ends that was taken out of chunks so far, in the connection's buffer.
    pub unchunked: usize,
    /// `100 Continue` was sent.
    pub told_to_continue: bool,
    /// Endpoints that died under it before a first byte.
    pub deaths: u8,
    /// The body is too long to be looked at.
    pub uninspected: bool,
    /// The body was to be looked into and is not valid JSON.
    pub unreadable: bool,
    /// The shard's members are those of this body.
    pub peeked: bool,
    /// What a decision may know.
    pub facts: RequestFacts,
    /// Where it goes.
    pub route: Route,
    /// Keys of the blocks that it brings to its endpoint, thinned out, while they are promised.
    pub promised: Vec<u64>,
    /// Leading keys of its prompt that its answer may prove held, where not all that its endpoint holds is known.
    pub keys: Vec<u64>,
    /// The beginnings of its prompt's text, where its rule goes by such.
    pub path: PrefixPath,
    /// Its prompt's keys where a token core made them, or why it did not.
    pub keyed: Option<Result<Keys, Miss>>,
    /// What it holds of its service's gate.
    pub pass: Option<Pass>,
    /// What it waits for of a token core.
    pub pending: Option<Pending>,
    /// What there is beside it where two endpoints serve it.
    pub pair: Option<Box<Pair>>,
    /// The answer so far.
    pub answer: Answer,
    /// When things happened.
    pub times: Times,
    /// Its receipt was written.
    pub accounted: bool,
    /// Memory reserved for it.
    pub reserved: Option<Reserved>,
    /// Memory of copies of its answer that wait for the client.
    pub unread: Option<Reserved>,
    /// What had come of it when it had to wait for memory.
    pub parked: Option<Reserved>,
}

/// How a request body arrives.
#[derive(Default)]
pub enum Upload {
    /// Whole in `request`, or there is none.
    #[default]
    Whole,
    /// Being collected; this many bytes of body are to come.
    Collecting {
        /// Where `request` will end.
        end: usize,
    },
    /// Being collected out of chunks.
    Unchunking(ChunkDecoder),
    /// Streamed on as it comes, this many bytes to go.
    Streaming {
        /// Bytes to go.
        left: u64,
    },
    /// Streamed on as chunks.
    Rechunking {
        /// The decoder of the client's chunks.
        decoder: ChunkDecoder,
        /// Bytes of body so far, against `max_body`.
        sent: u64,
        /// Whether a chunk was written, so that its end must precede the next.
        begun: bool,
    },
    /// It was streamed to its end.
    Streamed,
}

impl Upload {
    /// Whether the client has sent all of its request.
    pub fn is_done(&self) -> bool {
        matches!(self, Upload::Whole | Upload::Streamed)
    }

    /// Bytes of a body of `length` that went on as they came.
    pub fn streamed(&self, length: u64) -> u64 {
        match self {
            Upload::Streaming { left } => length.saturating_sub(*left),
            Upload::Rechunking { sent, .. } => *sent,
            _ => 0,
        }
    }

    /// Whether the body goes on as it comes.
    pub fn is_streaming(&self) -> bool {
        matches!(self, Upload::Streaming { .. } | Upload::Rechunking { .. })
    }
}

/// What the gateway learned of a request's meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts {
    /// The model it names (`X-Model`, else the body's `model`).
    pub model: Word<128>,
    /// Its `X-Request-Id`, the client's or made.
    pub id: Word<{ warmpath_core::receipt::ID_MAX }>,
    /// Hash of what decides prompt affinity.
    pub prefix: Option<u64>,
    /// The key of its session, if it has one.
    pub session: Option<u64>,
    /// Hash of the client's address and port, where the selector asks for it.
    pub client: u64,
}

/// Where a request goes.
#[derive(Default)]
pub struct Route {
    /// The pool.
    pub service: Option<Rc<ShardService>>,
    /// Index of the endpoint.
    pub endpoint: usize,
    /// What decided.
    pub reason: Option<Reason>,
    /// The load charged for it.
    pub charge: Option<Charge>,
    /// The rank that was chosen for it.
    pub rank: Option<RankCharge>,
    /// The rank that the client itself asks for.
    pub rank_asked: Option<u8>,
    /// How exact routing decided, or why it did not.
    pub explained: Option<Explanation>,
    /// What could be wrong with a prediction of it.
    pub class: Class,
    /// What was known of the cache that it was sent to, until its answer is taken.
    pub claim: Option<Claim>,
    /// What its answer proved.
    pub finding: Option<Finding>,
    /// To whom blocks are promised, and since when.
    pub promise: Option<(Destination, Nanos)>,
    /// Tokens of its prompt, where they were counted.
    pub prompt_tokens: u32,
    /// Tokens of it that the endpoint is expected to have cached.
    pub predicted_tokens: u32,
    /// The connection that carries it.
    pub upstream: Option<Sock>,
    /// That connection had carried a request before.
    pub reused: bool,
    /// It was sent anew on a fresh connection; happens once.
    pub replayed: bool,
    /// Endpoints not to choose again.
    pub tried: Excluded,
    /// Attempts beyond the first.
    pub retries: u8,
}

/// The answer, as far as it came.
#[derive(Default)]
pub struct Answer {
    /// The parser of its head.
    pub parser: ResponseParser,
    /// Its header lines.
    pub headers: Headers,
    /// Status; 0 before the final head.
    pub status: u16,
    /// How much of the body is to come.
    pub body: AnswerBody,
    /// Chunk framing is taken off for a client that does not know it.
    pub unchunk: bool,
    /// A body that only the endpoint's closing ends goes out in chunks, so that its being cut short shows.
    pub rechunk: bool,
    /// An event stream.
    pub streamed: bool,
    /// How its body ends so far.
    pub tail: Tail,
    /// What it tells of the engine's cache, where its rule routes exactly.
    pub usage: Option<Usage>,
    /// All of it came from the endpoint.
    pub complete: bool,
    /// Bytes sent on.
    pub bytes_out: u64,
    /// What ended it early.
    pub fault: Option<Fault>,
}

/// How an answer's body ends.
#[derive(Default)]
pub enum AnswerBody {
    /// It has none, or it is over.
    #[default]
    None,
    /// After this many bytes.
    Length(u64),
    /// By its last chunk.
    Chunked(ChunkDecoder),
    /// When the endpoint closes.
    UntilClose,
}

/// When things happened; 0: not yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The request was whole; of a streamed one, its head.
    pub begun: Nanos,
    /// The body was first let in, after a wait for memory anew.
    pub body_let_in: Nanos,
    /// A streamed body is held back since then, because the endpoint is slow; 0: it is not.
    pub held_back_at: Nanos,
    /// How long it was held back before.
    pub held_back: Nanos,
    /// The request was handed to the connection, last.
    pub sent: Nanos,
    /// The first byte of an answer came.
    pub first_byte: Nanos,
}

impl Exchange {
    /// Makes it new, keeping its allocations.
    pub fn clear(&mut self) {
        let mut headers = std::mem::take(&mut self.headers);
        let mut answer_headers = std::mem::take(&mut self.answer.headers);
        let mut promised = std::mem::take(&mut self.promised);
        let mut keys = std::mem::take(&mut self.keys);
        let mut path = std::mem::take(&mut self.path);
        headers.clear();
        answer_headers.clear();
        promised.clear();
        keys.clear();
        keys.shrink_to(KEYS_SPARE);
        path.clear();
        *self = Exchange { promised, keys, path, ..Exchange::default_with(headers, answer_headers) };
    }

    /// A new one with room for header lines.
    pub fn new() -> Exchange {
        Exchange::default_with(Headers::default(), Headers::default())
    }

    fn default_with(headers: Headers, answer_headers: Headers) -> Exchange {
        Exchange {
            headers,
            answer: Answer { headers: answer_headers, ..Answer::default() },
            ..Exchange::default()
        }
    }

    /// The endpoint has no more work with it: what was charged is settled. Where it went stays known.
    pub fn settle(&mut self) {
        self.route.charge = None;
        if let Some(rank) = &mut self.route.rank {
            rank.settle();
        }
    }

    /// How long the answer's first byte may take.
    pub fn first_byte_within(&self) -> Nanos {
        match &self.pair {
            Some(pair) => pair.first_byte,
            None => self.route.service.as_ref().map_or(0, |s| s.service.rule.deadlines.first_byte),
        }
    }

    /// Whether bytes of an answer already went to the client.
    pub fn has_begun_answering(&self) -> bool {
        self.answer.status != 0
    }
}

/// A request counted for one rank of an endpoint, until it is settled or dropped.
#[derive(Debug)]
pub struct RankCharge {
    source: Arc<Source>,
    rank: u8,
    settled: bool,
    /// The client named it.
    by_client: bool,
}

impl RankCharge {
    /// Counts one more for `rank`; [`ANY_RANK`] counts for none.
    pub fn of(source: Arc<Source>, rank: u8, by_client: bool) -> RankCharge {
        source.reserve(rank);
        RankCharge { source, rank, settled: false, by_client }
    }

    /// Counts it no longer.
    pub fn settle(&mut self) {
        if !std::mem::replace(&mut self.settled, true) {
            self.source.settle(self.rank);
        }
    }

    /// The rank; `None` where the endpoint's ranks are one.
    pub fn rank(&self) -> Option<u8> {
        (self.rank != ANY_RANK).then_some(self.rank)
    }

    /// The rank that the gateway has to name to the engine: it has several, and the client named none.
    pub fn to_name(&self) -> Option<u8> {
        self.rank().filter(|_| !self.by_client && self.source.spec().ranks > 1)
    }
}

impl Drop for RankCharge {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reserved {
    /// Takes `bytes` for a body to be read, or nothing.
    pub fn for_body(budget: &Arc<Budget>, bytes: u64) -> Option<Reserved> {
        budget.take_for_body(bytes).then(|| Reserved { budget: budget.clone(), bytes })
    }

    /// Takes `bytes`, or nothing.
    pub fn take(budget: &Arc<Budget>, bytes: u64) -> Option<Reserved> {
        budget.take(bytes).then(|| Reserved { budget: budget.clone(), bytes })
    }

    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` on top for a body; false if they are not free.
    pub fn grow_for_body(&mut self, more: u64) -> bool {
        let grown = self.budget.take_for_body(more);
        self.bytes += if grown { more } else { 0 };
        grown
    }

    /// Gives `less` of it back, at most all.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        self.budget.give(less);
    }

    /// Takes `more` on top; false if they are not free.
    pub fn grow(&mut self, more: u64) -> bool {
        let grown = self.budget.take(more);
        self.bytes += if grown { more } else { 0 };
        grown
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// A short text kept in place; longer ones are cut.
#[derive(Clone, Copy)]
pub struct Word<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Word<N> {
    /// The first `N` bytes of `text`.
    pub fn of(text: &[u8]) -> Word<N> {
        const { assert!(N <= u8::MAX as usize) };
        let len = text.len().min(N);
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text[..len]);
        Word { len: len as u8, bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const N: usize> Default for Word<N> {
    fn default() -> Self {
        Word { len: 0, bytes: [0; N] }
    }
}

impl<const N: usize> std::fmt::Debug for Word<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.bytes()))
    }
}
