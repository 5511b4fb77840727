//! The prompt of a request becomes keys: on this shard if that is short, else on a token core while the client
//! waits. Owns that choice, the wait and its end; must never look a key up.

use crate::conn::{Client, Stage};
use crate::exact::rank_asked;
use crate::exchange::{Exchange, Reserved};
use crate::flow::Flow;
use crate::loader::Told;
use crate::models::{Models, Wish};
use crate::prompt::{self, Left, Terms};
use crate::proof;
use crate::services::ShardService;
use crate::token_core::{self, Asked, Check, Job, Keyed, Looked, Reply, TokenDesk, TokenQueue, Work};
use crossbeam::channel::{Receiver, Sender, unbounded};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use warmpath_core::control::RequestStage;
use warmpath_core::decide::exact::Miss;
use warmpath_core::decline::Decline;
use warmpath_core::engine::Engine;
use warmpath_core::profile::slug;
use warmpath_core::shared::Adapter;
use warmpath_core::{MICROSECOND, Nanos};
use warmpath_parser::json::{self, Member, Members};
use warmpath_prompt::{Api, Checkpoints, Date, Model};
use warmpath_ring::{Ring, Wake};

/// The longest that a prompt may hold its shard up, by estimate.
const INLINE: Nanos = 100 * MICROSECOND;

/// The same for finding a chat's earlier turn, which hashes the body. A copy of it for a token core would cost half of
/// that, and much more over there.
const RESUMED_INLINE: Nanos = 200 * MICROSECOND;

/// One text in so many is encoded by both tokenizers.
const SAMPLED: u32 = 1000;

/// What all shards share to make keys of text.
#[derive(Clone)]
pub struct Text {
    /// What earlier prompts gave.
    pub checkpoints: Arc<Checkpoints>,
    /// Time since the Unix epoch, for templates that print the date.
    pub wall: fn() -> Duration,
    /// The token cores' end of the queue.
    pub desk: TokenDesk,
    queue: TokenQueue,
    tell: Sender<Told>,
    /// The loader's end of what it is told.
    pub(crate) told: Receiver<Told>,
}

/// One shard's share of it.
pub(crate) struct ShardText {
    /// The models, as published last.
    models: Arc<Models>,
    checkpoints: Arc<Checkpoints>,
    wall: fn() -> Duration,
    queue: TokenQueue,
    tell: Sender<Told>,
    /// Asked of the loader since then.
    wished: HashSet<Wish>,
    answers: Receiver<Keyed>,
    to: Sender<Keyed>,
    waker: Option<Arc<dyn Wake>>,
    questions: u64,
    texts: u32,
    /// The model that the present request's body names.
    asked: Vec<u8>,
}

/// A question to a token core. Nobody waits for the answer once this is dropped.
#[derive(Debug)]
pub struct Pending {
    number: u64,
    cancelled: Arc<AtomicBool>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.cancelled.store(true, Relaxed);
    }
}

/// What is too long for a shard.
enum Long {
    /// All of it; whether it was seen to go on with no turn that is known.
    Body {
        is_new: bool,
    },
    Rest(Box<Left>),
}

impl Text {
    /// With these checkpoints, and nobody at the desk yet.
    pub fn new(checkpoints: Checkpoints, wall: fn() -> Duration) -> Text {
        let checkpoints = Arc::new(checkpoints);
        let (queue, desk) = token_core::queue(checkpoints.clone());
        let (tell, told) = unbounded();
        Text { checkpoints, wall, desk, queue, tell, told }
    }

    /// Tells the loader.
    pub(crate) fn teller(&self) -> Sender<Told> {
        self.tell.clone()
    }
}

impl ShardText {
    /// Without the other ends of the channels: where nobody has them, nobody works, and that shows at once.
    pub(crate) fn new(shared: &Text) -> ShardText {
        let (to, answers) = unbounded();
        ShardText {
            models: Arc::default(),
            checkpoints: shared.checkpoints.clone(),
            wall: shared.wall,
            queue: shared.queue.clone(),
            tell: shared.tell.clone(),
            wished: HashSet::new(),
            answers,
            to,
            waker: None,
            questions: 0,
            texts: 0,
            asked: Vec::new(),
        }
    }

    /// Answers wake this shard.
    pub(crate) fn wake_by(&mut self, waker: Arc<dyn Wake>) {
        self.waker = Some(waker);
    }

    /// Takes over what the loader published. Takes milliseconds for a new model, once, which else its first request
    /// here would wait for.
    pub(crate) fn publish(&mut self, models: Arc<Models>) {
        models.warm(&self.models);
        self.models = models;
        self.wished.clear();
    }

    /// The model of a name, which is asked of the loader where it is not there yet.
    fn model(&mut self, name: &str, engine: Engine) -> Result<Arc<Model>, Miss> {
        let found = self.models.find(name, engine).cloned();
        if found.as_ref().is_err_and(|why| *why == Decline::TokenizerLoading) {
            let wish = Wish { folder: slug(name), engine };
            if self.wished.insert(wish.clone()) {
                // Without a loader nothing is ever loaded.
                let _ = self.tell.send(Told::Wish(wish));
            }
        }
        found.map_err(Miss::Declined)
    }

    fn terms(
        &mut self,
        exchange: &Exchange,
        members: &Members,
        service: &ShardService,
        api: Api,
    ) -> Option<Terms> {
        let scheme = service.scheme()?;
        let engine = scheme.contract().engine();
        let named = &service.service.rule.key.model;
        let asked = std::str::from_utf8(exchange.facts.model.bytes());
        let asked = asked.map(|asked| engine.split_model(asked).map_or(asked, |(base, _)| base));
        let model = match (named.is_empty(), asked) {
            (false, _) => self.model(named, engine),
            (true, Ok("")) => Err(Miss::ModelEmpty),
            (true, Ok(asked)) => self.model(asked, engine),
            (true, Err(_)) => Err(Miss::Declined(Decline::NoTokenizer)),
        };
        let today = i64::try_from((self.wall)().as_secs()).ok().map(Date::of_unix);
        self.asked.clear();
        let body = &exchange.request[exchange.body.clone()];
        let is_read =
            members.get(Member::Model).is_some_and(|value| json::text(body, value, &mut self.asked));
        let adapter = if is_read { adapter(&self.asked, engine, service) } else { None };
        Some(Terms { scheme, model, adapter, api, today })
    }

    /// Whether this text is one of those to be checked.
    fn is_sampled(&mut self) -> bool {
        self.texts = (self.texts + 1) % SAMPLED;
        self.texts == 0
    }
}

impl<R: Ring> Flow<R> {
    /// Makes the keys of a request whose rule asks for them, or finds out why it has none. True: a token core
    /// makes them, and the client waits.
    pub(crate) fn waits_for_keys(&mut self, client: &mut Client) -> bool {
        let Some(exchange) = &mut client.exchange else { return false };
        let Some(service) = exchange.route.service.clone() else { return false };
        if service.service.rule.exact.is_none() {
            return false;
        }
        if let Some(known) = &exchange.keyed {
            self.exact.know(known);
            return false;
        }
        self.look_again(exchange);
        let api = match self.admit(exchange, &service) {
            Ok(api) => api,
            Err(miss) => return self.exact.lacks(miss),
        };
        let Some(terms) = self.exact.text.terms(exchange, &self.members, &service, api) else { return false };
        exchange.route.class = proof::class(&exchange.request[exchange.body.clone()], &self.members, &terms);
        match self.key_or_leave(exchange, &terms) {
            Ok(None) => self.exact.has(),
            Ok(Some(long)) => self.hand_over_keys(client, terms, long),
            Err(miss) => self.exact.lacks(miss),
        }
    }

    /// Whether the request's blocks are asked for at all.
    fn admit(&mut self, exchange: &mut Exchange, service: &ShardService) -> Result<Api, Miss> {
        let (rule, state) = (&service.service.rule.exact, &service.service.exact);
        let (Some(rule), Some(exact)) = (rule, state) else { return Err(Miss::ModeOff) };
        if exact.state.is_warming(self.now, rule.warmup) {
            return Err(Miss::Warmup);
        }
        let api = api_of(exchange.head.path.of(&exchange.request)).ok_or(Miss::TextEmpty)?;
        if !rule.profile.surfaces().has(api) {
            return Err(Miss::ModeOff);
        }
        if !exchange.peeked {
            return Err(Miss::TextEmpty);
        }
        exchange.route.rank_asked = rank_asked(exchange, &self.members, rule);
        Ok(api)
    }

    /// Makes the keys if that is short, else tells how far it came.
    fn key_or_leave(&mut self, exchange: &Exchange, terms: &Terms) -> Result<Option<Long>, Miss> {
        let body = &exchange.request[exchange.body.clone()];
        let checkpoints = self.exact.text.checkpoints.clone();
        let is_looked_for = terms.cost_of_resuming(body).is_some_and(|cost| cost <= RESUMED_INLINE);
        if is_looked_for {
            let started = self.stages.begin(RequestStage::Render, || self.ring.now());
            if let Some(left) = self.exact.reader.resume(body, &self.members, terms, &checkpoints) {
                self.stages.end(RequestStage::Render, started, || self.ring.now());
                return self.finish_or_leave(0, left, body, terms);
            }
        }
        let begun = Terms::cost_of_body(body, &self.members);
        if begun > INLINE {
            prompt::is_readable(body, &self.members, terms)?;
            return Ok(Some(Long::Body { is_new: is_looked_for }));
        }
        let started = self.stages.begin(RequestStage::Render, || self.ring.now());
        let left = self.exact.reader.begin(body, &self.members, terms, &checkpoints)?;
        // Of token ids nothing is left: their blocks are named.
        let stage = if left.is_some() { RequestStage::Render } else { RequestStage::Hash };
        self.stages.end(stage, started, || self.ring.now());
        match left {
            Some(left) => self.finish_or_leave(begun, left, body, terms),
            None => Ok(None),
        }
    }

    /// Encodes what is left of a text that took so long until now, if that is short.
    fn finish_or_leave(
        &mut self,
        begun: Nanos,
        left: Left,
        body: &[u8],
        terms: &Terms,
    ) -> Result<Option<Long>, Miss> {
        if begun + terms.cost_of_rest(&left) > INLINE {
            return Ok(Some(Long::Rest(Box::new(left))));
        }
        let exact = &mut self.exact;
        let started = self.stages.begin(RequestStage::Tokenize, || self.ring.now());
        exact.reader.finish(&left, terms, &exact.text.checkpoints)?;
        self.stages.end(RequestStage::Tokenize, started, || self.ring.now());
        if exact.text.is_sampled() {
            // A check that finds no room is left out.
            exact
                .text
                .queue
                .push(Job { work: Work::Check(Box::new(Check::of(left, body, terms))), reserved: None });
        }
        Ok(None)
    }

    /// Gives the rest to a token core, if it has room.
    fn hand_over_keys(&mut self, client: &mut Client, terms: Terms, long: Long) -> bool {
        let Some(exchange) = &mut client.exchange else { return false };
        let body = &exchange.request[exchange.body.clone()];
        let bytes = match &long {
            Long::Body { .. } => body.len() + size_of::<Members>(),
            Long::Rest(left) => left.text().len(),
        };
        let text = &mut self.exact.text;
        let reserved = Reserved::take(&self.memory.budget, bytes as u64);
        let (Some(waker), Some(reserved)) = (text.waker.clone(), reserved) else {
            return self.exact.lacks(Miss::TokenizerBusy);
        };
        text.questions += 1;
        let pending = Pending { number: text.questions, cancelled: Arc::default() };
        let asked = Asked {
            sampled: text.is_sampled(),
            terms,
            to: Reply { keyed: text.to.clone(), waker },
            sock: client.sock,
            number: pending.number,
            cancelled: pending.cancelled.clone(),
        };
        let work = match long {
            Long::Body { is_new } => {
                let members = Box::new(self.members.clone());
                Work::Body(asked, Looked { bytes: body.to_vec(), members, is_new })
            }
            Long::Rest(left) => Work::Rest(asked, left),
        };
        if !text.queue.push(Job { work, reserved: Some(reserved) }) {
            return self.exact.lacks(Miss::TokenizerBusy);
        }
        exchange.pending = Some(pending);
        client.stage = Stage::Tokenizing;
        self.expect_client(client, self.settings.token_wait);
        true
    }

    /// Lets requests go on whose keys came.
    pub(crate) fn take_keyed(&mut self) {
        while let Ok(Keyed { sock, number, keys }) = self.exact.text.answers.try_recv() {
            let Some(mut client) = self.conns.take_client(sock) else { continue };
            let pending = client.exchange.as_ref().and_then(|exchange| exchange.pending.as_ref());
            if pending.is_some_and(|pending| pending.number == number) {
                self.go_on_with(&mut client, keys);
            }
            self.conns.put_client(client);
        }
    }

    /// The token cores are too slow: the request goes on without keys.
    pub(crate) fn tokenizing_timeout(&mut self, client: &mut Client) {
        self.go_on_with(client, Err(Miss::TokenizerBusy));
    }

    fn go_on_with(&mut self, client: &mut Client, keys: Result<prompt::Keys, Miss>) {
        let Some(exchange) = &mut client.exchange else { return };
        exchange.pending = None;
        exchange.keyed = Some(keys);
        client.stage = Stage::Dialing;
        self.choose_and_dial(client);
    }

    /// Takes over the models that the loader knows by now. Requests that wait keep the one they began with.
    pub fn publish(&mut self, models: Arc<Models>) {
        self.exact.text.publish(models);
    }
}

/// The adapter that the body's model names, beside the base model or by a name that an endpoint told: its blocks are
/// not those of the model beneath it. Engines read the body alone, and all of the name, whatever routing went by.
fn adapter(asked: &[u8], engine: Engine, service: &ShardService) -> Option<Adapter> {
    let beside = std::str::from_utf8(asked).ok().and_then(|asked| engine.split_model(asked));
    if let Some((_, name)) = beside {
        return Some(Adapter { name: name.to_string(), path: None });
    }
    let sources = &service.service.exact.as_ref()?.sources;
    let mut adapters = sources.iter().filter_map(|source| source.adapters());
    adapters.find_map(|own| own.iter().find(|adapter| adapter.name.as_bytes() == asked).cloned())
}

/// The API of a path, whatever stands before it.
fn api_of(path: &[u8]) -> Option<Api> {
    if path.ends_with(b"/chat/completions") {
        Some(Api::Chat)
    } else if path.ends_with(b"/completions") {
        Some(Api::Completions)
    } else {
        None
    }
}
