//! The ladder that one endpoint of a rule climbs: identity, tokens, names of blocks. Owns what is asked next, what an
//! answer proves and what takes a proof away; pure, and told the time. Must never leave a rank proven by what was
//! found out before the last change.
//!
//! Each question has a [`Ticket`]. A change makes the tickets before it worthless, so that an answer of the engine as it
//! was never proves anything of the engine as it is.

use super::{Cadence, Deployed, Echo, Reason, Told};
use crate::engine::Engine;
use crate::profile::Api;
use crate::{Nanos, SECOND};
use std::sync::Arc;

/// The first pause after something that failed; doubles up to the cadence of probes.
const RETRY: Nanos = 5 * SECOND;

/// Challenges for each rank before the rest of them is left to the next cadence, where the engine chooses the rank.
const ATTEMPTS: u32 = 4;

/// By place.
const APIS: [Api; 2] = [Api::Chat, Api::Completions];

/// What has to be proven of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The kind of engine.
    pub engine: Engine,
    /// The model that requests name.
    pub model: String,
    /// Tokens of a block.
    pub block_size: u32,
    /// Its block hash in the engine's words, where it has to tell one.
    pub algorithm: Option<String>,
    /// Data-parallel ranks.
    pub ranks: u8,
    /// The port of rank 0's events, where the engine has such.
    pub event_port: Option<u16>,
    /// What was deployed; `None`: nothing says.
    pub deployed: Option<Deployed>,
    /// For each fixture the tokens that the engine has to make of it.
    pub fixtures: Vec<Vec<u32>>,
    /// Whether chats are routed by blocks too.
    pub chats: bool,
}

/// A question to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What it says of itself.
    Identity,
    /// Its tokens of this fixture.
    Tokens(usize),
    /// A prompt that nobody sent before.
    Challenge {
        /// The rank to send it to by name.
        rank: Option<u8>,
        /// By which API.
        api: Api,
    },
}

/// One question, to be handed back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// What is asked.
    pub ask: Ask,
    epoch: u32,
}

/// How a question was left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Nobody listens, or the connection was cut: the process is gone.
    Refused,
    /// Too late.
    Late,
    /// Another status than 200.
    Status(u16),
    /// Of another form than this engine's.
    Form,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Ask::Identity`].
    Identity(Told),
    /// To [`Ask::Tokens`].
    Tokens(Vec<u32>),
    /// To [`Ask::Challenge`].
    Echo(Echo),
    /// None.
    Unanswered(Unanswered),
}

/// How it is known that the engine tokenizes as the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parity {
    /// The engine was asked for the tokens of the fixtures.
    Tokenize,
    /// It has no such endpoint, or a broken one: the events of challenges carry its tokens. What the gateway makes of
    /// the fixtures was compared with them before.
    Events,
}

impl Parity {
    /// As in status.
    pub const fn word(self) -> &'static str {
        ["tokenize", "challenge_events"][self as usize]
    }
}

/// How far up something contradicted: it is forgotten when that step is taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Identity,
    Tokens,
    Names,
}

/// One rank's proofs.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// A challenge came back under its names.
    echoed: Option<Nanos>,
    /// A routed request's own blocks did.
    routed: Option<Nanos>,
}

impl Rank {
    /// Traffic goes on with what a challenge began.
    fn proven(&self) -> Option<Nanos> {
        self.echoed.map(|at| at.max(self.routed.unwrap_or(0)))
    }
}

/// One endpoint's ladder.
#[derive(Clone, Debug)]
pub struct Ladder {
    terms: Arc<Terms>,
    cadence: Cadence,
    epoch: u32,
    asking: bool,
    not_before: Nanos,
    failures: u32,
    attempts: u32,
    told: Option<Told>,
    identity: Option<Nanos>,
    parity: Parity,
    fixtures: Vec<Option<Nanos>>,
    by_events: [Option<Nanos>; APIS.len()],
    ranks: Vec<Rank>,
    fault: Option<(Step, Reason)>,
    /// What the source's own events say against it.
    source: Option<Reason>,
    /// A challenge, or a probe, found the engine busy.
    pending: bool,
}

impl Ladder {
    /// At its foot.
    pub fn new(terms: Arc<Terms>, cadence: Cadence) -> Ladder {
        let tokenizes = terms.engine.questions().is_some_and(|questions| questions.tokenize.is_some());
        Ladder {
            epoch: 0,
            asking: false,
            not_before: 0,
            failures: 0,
            attempts: 0,
            told: None,
            identity: None,
            parity: if tokenizes { Parity::Tokenize } else { Parity::Events },
            fixtures: vec![None; terms.fixtures.len()],
            by_events: [None; APIS.len()],
            ranks: vec![Rank::default(); terms.ranks.into()],
            fault: None,
            source: None,
            pending: false,
            terms,
            cadence,
        }
    }

    /// What has to be proven.
    pub fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// How it is known that the engine tokenizes alike.
    pub fn parity(&self) -> Parity {
        self.parity
    }

    /// What the engine said of itself, once it did.
    pub fn told(&self) -> Option<&Told> {
        self.told.as_ref()
    }

    /// The next question, if one is due and none is open. It is to be answered by [`Ladder::take`].
    pub fn next(&mut self, now: Nanos) -> Option<Ticket> {
        if self.asking || now < self.not_before || self.terms.engine.questions().is_none() {
            return None;
        }
        let ask = self.due(now)?;
        self.asking = true;
        Some(Ticket { ask, epoch: self.epoch })
    }

    fn due(&self, now: Nanos) -> Option<Ask> {
        let Cadence { probe, challenge, .. } = self.cadence;
        if is_due(self.identity, probe, now) {
            return Some(Ask::Identity);
        }
        if self.parity == Parity::Tokenize
            && let Some(at) = self.fixtures.iter().position(|own| is_due(*own, probe, now))
        {
            return Some(Ask::Tokens(at));
        }
        if let Some(rank) = self.ranks.iter().position(|own| is_due(own.proven(), challenge, now)) {
            let pins = self.terms.ranks > 1 && self.terms.engine.takes_rank();
            return Some(Ask::Challenge { rank: pins.then_some(rank as u8), api: Api::Completions });
        }
        let lacks = |api: &Api| is_due(self.by_events[*api as usize], challenge, now);
        let api = self.apis().iter().copied().find(lacks)?;
        Some(Ask::Challenge { rank: None, api })
    }

    /// The APIs of which events have to show the tokens.
    fn apis(&self) -> &'static [Api] {
        match (self.parity, self.terms.chats) {
            (Parity::Tokenize, _) => &[],
            (Parity::Events, false) => &[Api::Completions],
            (Parity::Events, true) => &APIS,
        }
    }

    /// Takes what came of a question; why, if it took all proofs away. An answer to one that was asked before the last
    /// change says nothing.
    pub fn take(&mut self, now: Nanos, ticket: Ticket, answer: &Answer) -> Option<Reason> {
        if ticket.epoch != self.epoch {
            return None;
        }
        self.asking = false;
        match (ticket.ask, answer) {
            (_, Answer::Unanswered(why)) | (_, Answer::Echo(Echo::Unanswered(why))) => {
                self.unanswered(now, ticket.ask, *why);
            }
            (Ask::Identity, Answer::Identity(told)) => self.identified(now, told),
            (Ask::Tokens(at), Answer::Tokens(tokens)) => self.tokenized(now, at, tokens),
            (Ask::Challenge { rank, api }, Answer::Echo(echo)) => self.echoed(now, rank, api, *echo),
            _ => self.lose(now, Step::Identity, Reason::ProbeSchemaMismatch),
        }
        self.fault.filter(|_| ticket.epoch != self.epoch).map(|(_, reason)| reason)
    }

    fn unanswered(&mut self, now: Nanos, ask: Ask, why: Unanswered) {
        match (ask, why) {
            // Without a way to ask for tokens, events show them.
            (Ask::Tokens(_), Unanswered::Status(_)) => {
                self.parity = Parity::Events;
                self.fixtures.fill(None);
            }
            (_, Unanswered::Refused) => self.lose(now, Step::Identity, Reason::EndpointUnreachable),
            (Ask::Challenge { .. }, Unanswered::Late) => {
                self.lose(now, Step::Names, Reason::ChallengeTimeout)
            }
            // It may be busy: what is proven holds until it is too old.
            (_, Unanswered::Late) => {
                self.pending = true;
                self.rest(now);
            }
            (Ask::Challenge { .. }, _) => self.lose(now, Step::Names, Reason::ChallengeFailed),
            (_, Unanswered::Status(_) | Unanswered::Form) => {
                self.lose(now, Step::Identity, Reason::ProbeSchemaMismatch);
            }
        }
    }

    fn identified(&mut self, now: Nanos, told: &Told) {
        if let Some(reason) = told.contradicts(&self.terms) {
            self.lose(now, Step::Identity, reason);
            self.told = Some(told.clone());
            return;
        }
        if self.told.as_ref().is_some_and(|before| before != told) {
            // Another process, or the same with other settings: nothing of before counts.
            self.fence();
        }
        self.told = Some(told.clone());
        self.identity = Some(now);
        self.passed(Step::Identity);
    }

    fn tokenized(&mut self, now: Nanos, at: usize, tokens: &[u32]) {
        if self.terms.fixtures.get(at).is_none_or(|expected| expected != tokens) {
            return self.lose(now, Step::Tokens, Reason::TokenMismatch);
        }
        self.fixtures[at] = Some(now);
        if self.has_tokens(now) {
            self.passed(Step::Tokens);
        }
    }

    fn echoed(&mut self, now: Nanos, asked: Option<u8>, api: Api, echo: Echo) {
        match echo {
            Echo::Named(rank) if asked.is_some_and(|asked| asked != rank) => {
                self.lose(now, Step::Names, Reason::ChallengeFailed);
            }
            Echo::Named(rank) => match self.ranks.get_mut(usize::from(rank)) {
                Some(own) => {
                    own.echoed = Some(now);
                    self.by_events[api as usize] = Some(now);
                    self.passed(Step::Names);
                    self.count_attempt(now);
                }
                None => self.lose(now, Step::Names, Reason::ChallengeFailed),
            },
            Echo::OtherTokens => self.lose(now, Step::Tokens, Reason::TokenMismatch),
            Echo::OtherNames | Echo::SeveralRanks => self.lose(now, Step::Names, Reason::ChallengeFailed),
            Echo::Silent { is_busy: false } => self.lose(now, Step::Names, Reason::ChallengeTimeout),
            // It may come yet: what is proven holds until it is too old.
            Echo::Silent { is_busy: true } => {
                self.pending = true;
                self.rest(now);
            }
            Echo::Unanswered(_) => {}
        }
    }

    /// Where the engine chooses the rank it may take many challenges to meet all: then the rest waits.
    fn count_attempt(&mut self, now: Nanos) {
        let missing = self.ranks.iter().any(|rank| is_due(rank.proven(), self.cadence.challenge, now));
        self.attempts = if missing { self.attempts + 1 } else { 0 };
        if self.attempts >= ATTEMPTS * u32::from(self.terms.ranks) {
            self.attempts = 0;
            self.not_before = now + self.cadence.probe;
        }
    }

    /// A routed request's own blocks came under the names computed here: goes on with what a challenge began.
    pub fn routed(&mut self, now: Nanos, rank: u8) {
        if let Some(own) = self.ranks.get_mut(usize::from(rank)).filter(|own| own.echoed.is_some()) {
            own.routed = Some(now);
        }
    }

    /// What the source's events say against it, from now on; `None`: nothing. Any new word takes all proofs away.
    pub fn source(&mut self, reason: Option<Reason>) {
        if reason.is_some() && self.source != reason {
            self.fence();
        }
        self.source = reason;
    }

    /// Something changed from outside: the link of its events was lost, the manifest is another. Everything has to be
    /// proven anew.
    pub fn changed(&mut self) {
        self.fence();
        self.not_before = 0;
    }

    /// Takes all proofs away.
    fn fence(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        (self.asking, self.attempts, self.pending) = (false, 0, false);
        (self.told, self.identity) = (None, None);
        self.fixtures.fill(None);
        self.by_events = [None; APIS.len()];
        self.ranks.fill(Rank::default());
    }

    fn lose(&mut self, now: Nanos, step: Step, reason: Reason) {
        self.fence();
        self.fault = Some((step, reason));
        self.rest(now);
    }

    fn rest(&mut self, now: Nanos) {
        let longest = self.cadence.probe.max(1);
        self.not_before = now.saturating_add((RETRY << self.failures.min(8)).min(longest));
        self.failures = self.failures.saturating_add(1);
    }

    fn passed(&mut self, step: Step) {
        self.pending = false;
        if self.fault.is_none_or(|(at, _)| at <= step) {
            (self.fault, self.failures) = (None, 0);
        }
    }

    fn has_identity(&self, now: Nanos) -> bool {
        holds(self.identity, self.cadence.probe, now)
    }

    fn has_tokens(&self, now: Nanos) -> bool {
        let shown = |api: &Api| holds(self.by_events[*api as usize], self.cadence.challenge, now);
        match self.parity {
            Parity::Tokenize => self.fixtures.iter().all(|at| holds(*at, self.cadence.probe, now)),
            Parity::Events => self.apis().iter().all(shown),
        }
    }

    fn has_names(&self, rank: u8, now: Nanos) -> bool {
        let own = self.ranks.get(usize::from(rank)).and_then(Rank::proven);
        holds(own, self.cadence.challenge, now)
    }

    /// Whether all is proven that has to be, for one rank to be routed to by blocks.
    pub fn is_proven(&self, rank: u8, now: Nanos) -> bool {
        let is_clear = self.fault.is_none() && self.source.is_none();
        is_clear && self.has_identity(now) && self.has_tokens(now) && self.has_names(rank, now)
    }

    /// How many steps it stands above its foot, all ranks taken together: identity and tokens, then names.
    pub fn height(&self, now: Nanos) -> Height {
        let is_named = (0..self.terms.ranks).all(|rank| self.is_proven(rank, now));
        match self.has_identity(now) && self.has_tokens(now) {
            true if is_named => Height::Named,
            true => Height::Tokens,
            // Events show tokens and names at once; the fixtures were compared with what the gateway makes of them.
            false if self.has_identity(now) && self.parity == Parity::Events && self.is_clear_of_tokens() => {
                Height::Oracle
            }
            false => Height::Foot,
        }
    }

    fn is_clear_of_tokens(&self) -> bool {
        self.fault.is_none_or(|(step, _)| step == Step::Names)
    }

    /// Why one rank is not proven, the weightiest first; `None`: it is.
    pub fn reason(&self, rank: u8, now: Nanos) -> Option<Reason> {
        (!self.is_proven(rank, now))
            .then(|| self.reasons(now).first().copied())
            .map(|first| first.unwrap_or(Reason::HashAttestationPending))
    }

    /// Why not all of it is proven, or what is under way, the weightiest first.
    pub fn reasons(&self, now: Nanos) -> Vec<Reason> {
        if self.terms.engine.questions().is_none() {
            return vec![Reason::AdapterUnavailable];
        }
        let Cadence { probe, challenge, .. } = self.cadence;
        let mut reasons: Vec<Reason> =
            self.source.into_iter().chain(self.fault.map(|(_, reason)| reason)).collect();
        let is_old = |at: Option<Nanos>, cadence| at.is_some() && !holds(at, cadence, now);
        let names = || self.ranks.iter().map(Rank::proven);
        let probes = || self.fixtures.iter().copied().chain([self.identity]);
        if probes().any(|at| is_old(at, probe)) || names().any(|at| is_old(at, challenge)) {
            reasons.push(Reason::AttestationStale);
        }
        if self.pending {
            reasons.push(Reason::AttestationPending);
        }
        if self.identity.is_none() && reasons.is_empty() {
            reasons.push(Reason::AttestationPending);
        } else if names().any(|at| at.is_none()) && !reasons.contains(&Reason::AdapterUnavailable) {
            reasons.push(Reason::HashAttestationPending);
        } else if names().any(|at| is_due(at, challenge, now)) {
            reasons.push(Reason::ChallengeCadence);
        }
        reasons
    }
}

/// How high a ladder was climbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Height {
    /// Of the engine nothing is proven.
    Foot,
    /// Its identity; the gateway's own tokens are those of the fixtures.
    Oracle,
    /// Its identity and its tokens.
    Tokens,
    /// All of it.
    Named,
}

/// Evidence holds for two cadences.
fn holds(at: Option<Nanos>, cadence: Nanos, now: Nanos) -> bool {
    at.is_some_and(|at| now < at.saturating_add(cadence.saturating_mul(2)))
}

fn is_due(at: Option<Nanos>, cadence: Nanos, now: Nanos) -> bool {
    at.is_none_or(|at| now >= at.saturating_add(cadence))
}
