//! The exact stage, between route and dial: the endpoint and rank that hold most of the prompt. Owns asking in
//! order (overlap, ranking, reservation) and the record of the answer; must never weigh candidates (the
//! decision does).

use crate::exchange::{Exchange, RankCharge};
use crate::flow::Flow;
use crate::overlap::{Overlap, Prompt};
use crate::prompt::{Keys, PromptReader};
use crate::services::ShardService;
use crate::tokenize::{ShardText, Text};
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::Nanos;
use warmpath_core::block::BlockSize;
use warmpath_core::control::RequestStage;
use warmpath_core::decide::exact::{
    self, ANY_RANK, Candidate, Choice, Explanation, Miss, Outcome, Question, Ranking, ZeroHits,
};
use warmpath_core::decide::tuning::Tuning;
use warmpath_core::fleet::{EndpointView, Excluded};
use warmpath_core::rule::KvExact;
use warmpath_core::shared::{Destination, Observations, Promises, promised_keys};
use warmpath_core::table::{ExactService, Reserved, Service};
use warmpath_kvindex::{Plan, Readers};
use warmpath_parser::http1::Field;
use warmpath_parser::json::{self, JsonLimits, Member, Members};
use warmpath_prompt::Checkpoints;
use warmpath_ring::Ring;

/// What all shards and the event core share of blocks.
#[derive(Clone)]
pub struct Blocks {
    /// Registers readers of the index.
    pub readers: Readers,
    /// Blocks on their way.
    pub promises: Arc<Promises>,
    /// The knobs.
    pub tuning: Arc<Tuning>,
    /// What makes keys of text.
    pub text: Text,
    /// What answers prove, on its way to the event core.
    pub observations: Arc<Observations>,
}

/// Bytes of promises where nobody writes the index.
const FEW_PROMISES: usize = 4096;

impl Blocks {
    /// An index that stays empty, for `shards` shards: rules find nothing in it.
    pub fn none(shards: usize) -> Result<Blocks, String> {
        let plan = Plan::for_blocks(1, 64, shards).map_err(|fault| fault.to_string())?;
        let (_, readers) = warmpath_kvindex::index(plan, 0);
        let promises = Arc::new(Promises::new(FEW_PROMISES));
        let text = Text::new(Checkpoints::new(0, 0), || Duration::ZERO);
        let observations = Arc::new(Observations::new(2));
        Ok(Blocks { readers, promises, tuning: Arc::default(), text, observations })
    }

    /// One shard's own.
    pub fn exact(&self) -> Result<Exact, String> {
        let reader = self.readers.reader().ok_or("the index was planned for fewer readers")?;
        let overlap = Overlap::new(reader, self.promises.clone());
        let text = ShardText::new(&self.text);
        Ok(Exact::new(overlap, self.tuning.clone(), text, self.observations.clone()))
    }
}

/// What a shard needs for exact routing.
pub struct Exact {
    pub(crate) reader: PromptReader,
    pub(crate) text: ShardText,
    /// Whether the reader's keys are those of the present request, or why it has none.
    read: Result<(), Miss>,
    overlap: Overlap,
    ranking: Ranking,
    tuning: Arc<Tuning>,
    pub(crate) observations: Arc<Observations>,
}

/// One request as exact routing sees it.
struct Request<'a> {
    service: &'a Service,
    terms: &'a KvExact,
    exact: &'a ExactService,
    fleet: &'a [EndpointView],
    excluded: Excluded,
    /// The rank that the client asks for.
    rank: Option<u8>,
    now: Nanos,
}

/// What became of it.
struct Answer {
    explanation: Explanation,
    chosen: Option<(Choice, Candidate, Reserved)>,
}

impl Exact {
    fn new(overlap: Overlap, tuning: Arc<Tuning>, text: ShardText, observations: Arc<Observations>) -> Exact {
        let (reader, ranking) = (PromptReader::default(), Ranking::default());
        Exact { reader, text, read: Err(Miss::ModeOff), overlap, ranking, tuning, observations }
    }

    /// The endpoint's rank as the present request was looked up; `None` if it was not.
    pub(crate) fn candidate(&self, endpoint: usize, rank: Option<u8>) -> Option<Candidate> {
        self.read.ok()?;
        self.overlap
            .last()
            .iter()
            .find(|c| usize::from(c.endpoint) == endpoint && Some(c.rank) == rank)
            .copied()
    }

    /// The same where the engine chooses the rank.
    pub(crate) fn any_rank(&self, endpoint: usize) -> Option<Candidate> {
        self.read.ok()?;
        let ranks = self.overlap.last().iter().filter(|c| usize::from(c.endpoint) == endpoint);
        exact::any_rank(ranks.copied())
    }

    /// The present request has the keys that the reader made. False: nobody waits for them.
    pub(crate) fn has(&mut self) -> bool {
        self.read = Ok(());
        false
    }

    /// It has no keys. False: nobody waits for them.
    pub(crate) fn lacks(&mut self, miss: Miss) -> bool {
        self.reader.keys.clear();
        self.read = Err(miss);
        false
    }

    /// It has those that a token core made, or none.
    pub(crate) fn know(&mut self, known: &Result<Keys, Miss>) {
        match known {
            Ok(keys) => self.reader.keys.copy(keys),
            Err(_) => self.reader.keys.clear(),
        }
        self.read = known.as_ref().map(drop).map_err(|miss| *miss);
    }

    /// Whether all that an endpoint holds is known, and nothing of the present request's prompt is among it or on its way.
    fn has_evicted(&mut self, request: &Request<'_>, endpoint: usize) -> bool {
        let Some(source) = request.exact.sources.get(endpoint) else { return false };
        let is_known = (0..source.spec().ranks).all(|rank| source.is_complete(rank));
        if !is_known || self.read.is_err() || self.reader.keys.keys.is_empty() {
            return false;
        }
        let prompt = request.prompt(&self.reader.keys.keys);
        let mut own = self
            .overlap
            .candidates(&prompt)
            .iter()
            .filter(|c| usize::from(c.endpoint) == endpoint)
            .peekable();
        own.peek().is_some()
            && own.all(|c| !c.fenced && c.promised == 0 && c.runs.iter().all(|run| *run == 0))
    }

    /// Ranks who holds the prompt, and reserves with the first that takes it.
    /// Tells `looked_up` when it is known who that is.
    fn choose(&mut self, request: &Request<'_>, looked_up: impl FnOnce()) -> Answer {
        if let Err(miss) = self.read {
            return Answer { explanation: Explanation::unasked(miss), chosen: None };
        }
        let prompt = request.prompt(&self.reader.keys.keys);
        let candidates = self.overlap.candidates(&prompt);
        looked_up();
        let question = Question {
            candidates,
            blocks: u32::try_from(prompt.keys.len()).unwrap_or(u32::MAX),
            block_size: BlockSize::new(self.reader.keys.unit as u64).unwrap_or(BlockSize::SIXTEEN),
            excluded: request.excluded,
            single_pool: request.service.roles.is_none(),
            tuning: &self.tuning,
        };
        let ranked = exact::rank(&question, || request.exact.state.hit(), &mut self.ranking);
        let choices = self.ranking.choices();
        let taken = choices.iter().enumerate().find_map(|(place, choice)| {
            let reserved = request.reserve(&question, *choice)?;
            Some((place, reserved))
        });
        let explanation = match (ranked, taken) {
            (Err(miss), _) => Explanation::missed(&question, &self.ranking, miss),
            (Ok(()), None) => Explanation::missed(&question, &self.ranking, Miss::Bounded),
            (Ok(()), Some((taken, _))) => Explanation::chosen(&question, &self.ranking, taken),
        };
        let chosen = taken.and_then(|(taken, reserved)| {
            let choice = choices[taken];
            Some((choice, *question.candidates.get(usize::from(choice.candidate))?, reserved))
        });
        Answer { explanation, chosen }
    }
}

impl<'a> Request<'a> {
    fn prompt(&self, keys: &'a [u64]) -> Prompt<'a> {
        let (terms, exact, fleet) = (self.terms, self.exact, self.fleet);
        Prompt { keys, terms, exact, fleet, rank: self.rank, now: self.now }
    }

    fn reserve(&self, question: &Question<'_>, choice: Choice) -> Option<Reserved> {
        let candidate = question.candidates.get(usize::from(choice.candidate))?;
        self.service.reserve(usize::from(candidate.endpoint), choice.bound, self.now)
    }
}

impl<R: Ring> Flow<R> {
    /// Chooses and charges an endpoint by the blocks it holds, as its rule asks. False: it is left to the
    /// rule's selector.
    pub(crate) fn choose_by_blocks(&mut self, exchange: &mut Exchange, service: &ShardService) -> bool {
        let Some((terms, exact)) = service.service.rule.exact.as_ref().zip(service.service.exact.as_ref())
        else {
            return false;
        };
        // After a failed attempt they were the last endpoint's.
        (exchange.route.predicted_tokens, exchange.route.rank) = (0, None);
        let request = Request {
            service: &service.service,
            terms,
            exact,
            fleet: &self.view,
            excluded: exchange.route.tried.with(service.service.not_by_blocks()),
            rank: exchange.route.rank_asked,
            now: self.now,
        };
        let begun = self.stages.begin(RequestStage::Lookup, || self.ring.now());
        let mut looked_up = None;
        let Answer { explanation, chosen } = self
            .exact
            .choose(&request, || looked_up = begun.map(|begun| self.ring.now().saturating_sub(begun)));
        looked_up.into_iter().for_each(|took| self.stages.took(RequestStage::Lookup, took));
        let own_rank = request.rank.is_some();
        exchange.route.explained = Some(explanation);
        exchange.route.prompt_tokens = self.exact.reader.keys.tokens as u32;
        self.count(service, exact, &explanation);
        let Some((choice, candidate, reserved)) = chosen else { return false };
        let endpoint = usize::from(candidate.endpoint);
        exchange.route.endpoint = endpoint;
        exchange.route.reason = Some(choice.reason);
        let predicted = self.exact.reader.keys.predicted(candidate.runs[0]);
        exchange.route.predicted_tokens = predicted;
        service.counts.borrow_mut().tokens(exchange.route.prompt_tokens, predicted);
        exchange.route.charge = Some(self.charge(&service.service.endpoints[endpoint], reserved));
        let source = exact.sources[endpoint].clone();
        let to = Destination { source: source.number(), rank: candidate.rank };
        self.claim(exchange, &candidate, &source);
        exchange.route.rank = Some(RankCharge::of(source, candidate.rank, own_rank));
        self.promise(exchange, to, candidate.runs[0]);
        true
    }

    /// Whether events tell that an endpoint holds nothing of the present request's prompt any more.
    pub(crate) fn has_evicted(&mut self, service: &ShardService, endpoint: usize) -> bool {
        let Some((terms, exact)) = service.service.rule.exact.as_ref().zip(service.service.exact.as_ref())
        else {
            return false;
        };
        let (fleet, excluded) = (&self.view[..], Excluded::default());
        let request =
            Request { service: &service.service, terms, exact, fleet, excluded, rank: None, now: self.now };
        self.exact.has_evicted(&request, endpoint)
    }

    /// The selector chose an endpoint that holds nothing of the prompt: after this request it will. Which of
    /// its ranks, the engine decides.
    pub(crate) fn promise_all(&mut self, exchange: &mut Exchange, service: &ShardService) {
        let Some(exact) = &service.service.exact else { return };
        let Some(source) = exact.sources.get(exchange.route.endpoint) else { return };
        let rank = if source.spec().ranks == 1 { 0 } else { ANY_RANK };
        self.promise(exchange, Destination { source: source.number(), rank }, 0);
    }

    /// Tells other requests that the blocks beyond the first `held` are on their way.
    fn promise(&self, exchange: &mut Exchange, to: Destination, held: u32) {
        exchange.promised.clear();
        exchange.promised.extend(promised_keys(&self.exact.reader.keys.keys, held));
        if !exchange.promised.is_empty() {
            self.exact.overlap.promises().make(exchange.promised.iter().copied(), to, self.now);
            exchange.route.promise = Some((to, self.now));
        }
    }

    /// The engine answers with content: what was promised is computed, and its event on the way.
    pub(crate) fn keep_promise(&mut self, exchange: &mut Exchange) {
        if exchange.answer.status >= 300 {
            return self.break_promise(exchange);
        }
        self.promise_kept(exchange);
    }

    /// What was promised is computed.
    pub(crate) fn promise_kept(&mut self, exchange: &mut Exchange) {
        if let Some((to, _)) = exchange.route.promise.take() {
            self.exact.overlap.promises().answered(exchange.promised.iter().copied(), to, self.now);
        }
    }

    /// The request failed, or was taken elsewhere: nothing comes of it.
    pub(crate) fn break_promise(&mut self, exchange: &mut Exchange) {
        if let Some((to, made)) = exchange.route.promise.take() {
            self.exact.overlap.promises().failed(exchange.promised.iter().copied(), to, made);
        }
    }

    /// The shard's members are those of the last body that was looked into: after a failed attempt, that of
    /// another request.
    pub(crate) fn look_again(&mut self, exchange: &mut Exchange) {
        if exchange.route.retries == 0 || !exchange.peeked {
            return;
        }
        let body = exchange.request.get(exchange.body.clone()).unwrap_or_default();
        exchange.peeked = json::peek(body, &mut self.members, JsonLimits::default()).is_ok();
    }

    /// Counts the outcome; also a lookup at the end of a long row that found nothing in caches that hold
    /// something: most often another seed, block size or tokenizer than the engine's.
    fn count(&self, service: &ShardService, exact: &ExactService, explanation: &Explanation) {
        let mut counts = service.counts.borrow_mut();
        counts.exact(explanation);
        if explanation.shown().iter().any(|candidate| candidate.runs.iter().any(|run| *run > 0)) {
            exact.state.found();
        }
        if let Outcome::Missed(miss) = explanation.outcome
            && miss.is_zero_hit()
            && exact::zero_hits(exact.state.missed(), self.exact.tuning.zero_hit_after) != ZeroHits::Quiet
        {
            counts.zero_hits();
        }
    }
}

/// The data-parallel rank that the client itself asks for: in the header, else in the body. It is the client's
/// own words that go out, so the gateway adds none.
pub(crate) fn rank_asked(exchange: &Exchange, members: &Members, terms: &KvExact) -> Option<u8> {
    if !terms.contract.engine().takes_rank() {
        return None;
    }
    let header = exchange.headers.first(Field::XDataParallelRank).map(|h| h.value.of(&exchange.request));
    let in_header = header.and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    let asked = [Member::RoutedDpRank, Member::DataParallelRank];
    let in_body = || {
        let body = &exchange.request[exchange.body.clone()];
        let value = asked.into_iter().filter_map(|member| members.get(member)?.as_u64(body)).next()?;
        u8::try_from(value).ok()
    };
    in_header.or_else(|| exchange.peeked.then(in_body).flatten())
}
