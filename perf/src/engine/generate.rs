//! One execution: from a request read whole to its answer's last byte, with its timing, its prefix
//! cache use and its faults. Must never finish an execution without counting how it ended.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::faults::Stall;
use super::http::{Body, Conn, Head};
use super::kinds::vllm::pair::PREFILL_CACHED;
use super::kinds::{Leg, Reply};
use super::openai::{Answer, Ask, Choice, Usage};
use super::reply::{self, Framing, Manner};
use super::serve::{Ending, send};
use super::stats::{BodySeen, Stats};
use super::stream;
use super::text::{Token, digest_tokens, generated, text_of};
use super::transfer::{self, Occupied, Role};
use super::work::Work;
use super::{Engine, unix_now};

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The answer was sent whole.
    Finished,
    /// The client left.
    Aborted,
    /// A fault switch ended it.
    Faulted,
}

/// An execution under way. Dropped without an end, it counts as aborted.
pub struct Run<'a> {
    engine: &'a Engine,
    end: Option<End>,
    /// Its hold on a cache, until its end.
    work: Option<Work<'a>>,
}

impl<'a> Run<'a> {
    fn begin(engine: &'a Engine, request_id: Option<&str>, prompt: u64) -> Self {
        engine.state().stats.begin(request_id, prompt);
        Run { engine, end: None, work: None }
    }

    /// The step that gives token `index` of the job: it computes the token before.
    pub fn step(&mut self, job: &Job, index: u64) {
        if let Some(work) = self.work.as_mut().filter(|_| index > 0) {
            work.step(|choice| job.token(choice, index - 1).id);
        }
    }

    /// Counts the end and lets go of the cache. It is counted before the last byte is written, so that a client which has read
    /// the answer finds it counted; a later call corrects an earlier one when that write fails.
    pub fn end(&mut self, end: End) {
        self.work = None;
        let stats = &mut self.engine.state().stats;
        match self.end.replace(end) {
            Some(earlier) => *earlier.count(stats) -= 1,
            None => stats.running -= 1,
        }
        *end.count(stats) += 1;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.end(End::Aborted);
        }
    }
}

impl End {
    fn count(self, stats: &mut Stats) -> &mut u64 {
        match self {
            End::Finished => &mut stats.finished,
            End::Aborted => &mut stats.aborted,
            End::Faulted => &mut stats.faulted,
        }
    }
}

/// All that is said about one request while it executes.
pub struct Job<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// What was asked.
    pub ask: Ask,
    /// Its part in a transfer.
    pub leg: Leg,
    /// What the answer's parts share.
    pub answer: Answer,
    /// How the head is written.
    pub manner: Manner,
    /// Digest of each prompt, from which its answer is generated.
    pub digests: Vec<u64>,
    /// Tokens of each choice.
    pub length: u64,
    /// Why each choice ends.
    pub finish: &'static str,
}

impl Job<'_> {
    /// The token at `index` of the answer to prompt number `choice`.
    pub fn token(&self, choice: usize, index: u64) -> Token {
        let scripted = usize::try_from(index).ok().and_then(|at| self.ask.script.get(at));
        match scripted {
            Some(&id) => Token { id, text: text_of(id) },
            None => generated(self.engine.config.seed, self.digests[choice], index),
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let choice = |(index, prompt): (usize, &Vec<u32>)| Choice {
            index,
            prompt: prompt.clone(),
            tokens: (0..self.length).map(|i| self.token(index, i)).collect(),
            finish: self.finish,
        };
        self.ask.prompts.iter().enumerate().map(choice).collect()
    }

    /// Token counts once all tokens are generated.
    pub fn usage(&self, cached: u64) -> Usage {
        let prompt = self.ask.prompts.iter().map(|p| p.len() as u64).sum();
        let generated = self.length * self.ask.prompts.len() as u64;
        Usage { prompt, cached, generated, is_mute: self.engine.config.pretence.mutes_cached }
    }
}

/// Executes a request read whole and answers it. `request` is (chat, body).
pub async fn answer(
    engine: &Engine,
    conn: &mut Conn,
    head: &Head,
    manner: Manner,
    request: (bool, Body),
) -> Ending {
    let (chat, body) = request;
    let request_id = head.header("x-request-id");
    let seen = BodySeen { length: body.length, digest: body.digest() };
    engine.state().stats.saw_body(request_id, seen);
    let Checked { ask, rank, leg } = match checked(engine, chat, head, &body) {
        Ok(checked) => checked,
        Err(reply) => return send(engine, conn, manner, &reply).await,
    };
    let mut run = Run::begin(engine, request_id, ask.digest());
    let mut failing = None;
    engine.faults.send_if_modified(|faults| {
        failing = faults.take_failure();
        false
    });
    let faults = engine.faults.borrow().clone();
    if faults.crashes_on(&body.bytes) {
        run.end(End::Faulted);
        return Ending::Cut;
    }
    drop(body);
    if let Some(status) = failing {
        run.end(End::Faulted);
        return send(engine, conn, manner, &engine.config.kind.failure(status)).await;
    }
    let _occupied = match Occupied::open(engine, &leg) {
        Ok(occupied) => occupied,
        Err(violation) => {
            run.end(End::Faulted);
            engine.state().stats.violation(violation);
            return send(engine, conn, manner, &engine.config.kind.transfer_failed(violation)).await;
        }
    };
    let job = job(engine, head, manner, ask, leg);
    run.work = Some(Work::new(engine, &job.ask, rank));
    let end = match execute(&job, &mut run, conn).await {
        Ok(end) => end,
        Err(reply) => {
            run.end(End::Faulted);
            return send(engine, conn, manner, &reply).await;
        }
    };
    run.end(end);
    match end {
        End::Finished if job.manner.keep => Ending::Keep,
        End::Finished | End::Aborted => Ending::Close,
        End::Faulted => Ending::Cut,
    }
}

/// What is asked, the rank that will do it, and its part in a transfer.
struct Checked {
    ask: Ask,
    rank: usize,
    leg: Leg,
}

fn checked(engine: &Engine, chat: bool, head: &Head, body: &Body) -> Result<Checked, Reply> {
    let (kind, config) = (engine.config.kind, &engine.config);
    let mut ask = match body.dropped() {
        true => Ask::sunk(chat, body.digest()),
        false => Ask::parse(chat, &body.bytes, &config.reading).map_err(|refusal| kind.refuse(&refusal))?,
    };
    if let Some(at) = config.pretence.flips {
        ask.prompts.iter_mut().filter_map(|prompt| prompt.get_mut(at)).for_each(|token| *token ^= 1);
    }
    if let Some(model) = &ask.model
        && kind.checks_model()
        && !config.models.contains(model)
        && config.lora(Some(model)).is_none()
    {
        return Err(kind.unknown_model(model));
    }
    kind.check_cache_members(config, &ask)?;
    let pinned = kind.pinned_rank(head, &ask, config.ranks)?;
    ask.session = head.header("x-session-id").map(str::to_owned).or(ask.session);
    let leg = leg(engine, &ask)?;
    let rank = match &leg {
        // The room leads to the rank (SGLang's `follow_bootstrap_room`).
        Leg::Meet { rooms } => rooms.first().map(|room| (*room % config.ranks as u64) as usize),
        _ => None,
    };
    if rank.zip(pinned).is_some_and(|(rank, pinned)| rank != pinned) {
        // Prefill would run where it was sent, and decode look for it where the room leads.
        engine.state().stats.violation("rank_mismatch");
        return Err(kind.transfer_failed("rank_mismatch"));
    }
    let rank = rank.or(pinned).unwrap_or_else(|| engine.next_rank());
    Ok(Checked { ask, rank, leg })
}

/// The part in a transfer; what the caller did wrong is counted, also in a request that is refused.
fn leg(engine: &Engine, ask: &Ask) -> Result<Leg, Reply> {
    let Some(mut half) = engine.half() else { return Ok(Leg::Alone) };
    let leg = engine.config.kind.leg(&mut half, ask);
    let mut state = engine.state();
    half.violations.into_iter().for_each(|name| state.stats.violation(name));
    if half.pair.role == Role::Decode && leg == Ok(Leg::Alone) {
        state.stats.pair.recomputes += 1;
    }
    leg
}

fn job<'a>(engine: &'a Engine, head: &Head, manner: Manner, ask: Ask, leg: Leg) -> Job<'a> {
    let config = &engine.config;
    let (length, finish, leg, handed) = handover(engine, &ask, leg);
    let serial = digest_tokens(config.seed, &[engine.state().stats.executions.total as u32]);
    let answer = Answer {
        id: config.kind.answer_id(&ask, head.header("x-request-id"), serial),
        created: unix_now().as_secs(),
        model: ask.model.clone().unwrap_or_else(|| config.models.first().cloned().unwrap_or_default()),
        chat: ask.chat,
        token_ids: ask.return_token_ids,
        handed,
        encodes: matches!(leg, Leg::Encode { .. }),
    };
    // A stream to an HTTP/1.0 client can only end with the connection.
    let manner = Manner { keep: manner.keep && !(ask.stream && manner.minor == 0), ..manner };
    let digests = ask.prompts.iter().map(|prompt| digest_tokens(0, prompt)).collect();
    Job { engine, ask, leg, answer, manner, digests, length, finish }
}

/// How long the answer is, why it ends, and what it hands over.
fn handover(engine: &Engine, ask: &Ask, leg: Leg) -> (u64, &'static str, Leg, Value) {
    let (config, faults) = (&engine.config, engine.faults.borrow());
    let (length, mut finish) = config.kind.prefill_length(&leg, ask.length(config.tokens.max(1)));
    let hand =
        |leg: &Leg| engine.half().map_or(Value::Null, |half| config.kind.handed(&half, leg, ask, &faults));
    match leg {
        Leg::Hold { .. } => {}
        Leg::Encode { .. } if !faults.pd_hand_nothing => {
            let handed = hand(&leg);
            return (length, finish, leg, handed);
        }
        _ => return (length, finish, leg, Value::Null),
    }
    if let Some(other) = faults.pd_finish {
        finish = other.text();
    }
    if faults.pd_hand_nothing || !config.kind.keeps_after(finish) {
        return (length, finish, Leg::Alone, Value::Null);
    }
    let handed = hand(&leg);
    (length, finish, leg, handed)
}

/// The error is an answer in place of the one that was asked for.
async fn execute(job: &Job<'_>, run: &mut Run<'_>, conn: &mut Conn) -> Result<End, Reply> {
    let Some(_place) = place(job.engine, conn).await else { return Ok(End::Aborted) };
    if !past_stall(job.engine, conn, Stall::BeforeHead).await {
        return Ok(End::Aborted);
    }
    if transfer::encoding::fetch(job.engine, conn, &job.ask).await.is_none() {
        return Ok(End::Aborted);
    }
    let Some(fetched) = transfer::fetch(job.engine, conn, &job.leg, &job.ask).await else {
        return Ok(End::Aborted);
    };
    let fetched = fetched?;
    let (cached, uncached) = look_up(job, run, fetched);
    if !wait(conn, Instant::now() + first_token_after(job.engine, uncached)).await {
        return Ok(End::Aborted);
    }
    if let Some(work) = &mut run.work {
        work.prefill();
    }
    match transfer::hand_over(job.engine, conn, &job.leg, &job.ask).await {
        Some(handed) => handed?,
        None => return Ok(End::Aborted),
    }
    let told = job.ask.handshake.transfer[PREFILL_CACHED].as_u64().filter(|_| fetched);
    Ok(respond(job, run, conn, told.unwrap_or(cached)).await)
}

/// The answer, once its first token is due.
async fn respond(job: &Job<'_>, run: &mut Run<'_>, conn: &mut Conn, cached: u64) -> End {
    if job.engine.faults.borrow().half_head {
        let kind = job.engine.config.kind;
        let head = reply::head(job.engine, job.manner, 200, kind.json_type(), Framing::Length(1000));
        run.end(End::Faulted);
        let _ = conn.write(&head[..head.len() / 2]).await;
        return End::Faulted;
    }
    match job.ask.stream {
        true => stream::send(job, run, conn, cached).await,
        false => send_whole(job, run, conn, cached).await,
    }
}

/// A place among the executions, waited for in arrival order; `None` when the client left before.
async fn place<'a>(engine: &'a Engine, conn: &mut Conn) -> Option<SemaphorePermit<'a>> {
    if let Ok(place) = engine.places.try_acquire() {
        return Some(place);
    }
    let _waiting = Waiting::count(engine);
    tokio::select! {
        place = engine.places.acquire() => place.ok(),
        () = conn.gone() => None,
    }
}

/// Counts an execution as waiting for as long as it lives.
struct Waiting<'a>(&'a Engine);

impl<'a> Waiting<'a> {
    fn count(engine: &'a Engine) -> Self {
        engine.state().stats.waiting += 1;
        Waiting(engine)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().stats.waiting -= 1;
    }
}

/// Looks the prompts up in the cache: (cached, uncached) tokens. What another engine computed counts as cached.
fn look_up(job: &Job, run: &Run, fetched: bool) -> (u64, u64) {
    let prompt = job.usage(0).prompt;
    let own = run.work.as_ref().map_or(0, Work::cached);
    let cached = if fetched { prompt } else { own };
    let stats = &mut job.engine.state().stats;
    stats.tokens.prompt += prompt;
    stats.tokens.cached += own;
    stats.pair.tokens_received += cached - own;
    (cached, prompt - cached)
}

fn first_token_after(engine: &Engine, uncached: u64) -> Duration {
    let timing = engine.config.timing;
    match timing.prefill_tps {
        0 => timing.ttft,
        rate => timing.ttft + Duration::from_secs_f64(uncached as f64 / rate as f64),
    }
}

async fn send_whole(job: &Job<'_>, run: &mut Run<'_>, conn: &mut Conn, cached: u64) -> End {
    if !decode(job, run, conn).await {
        return End::Aborted;
    }
    let usage = job.usage(cached);
    job.engine.state().stats.tokens.generated += usage.generated;
    let kind = job.engine.config.kind;
    let reply = Reply::json(200, kind.json_type(), &kind.whole(&job.answer, &job.choices(), usage));
    let bytes = reply::whole(job.engine, job.manner, &reply);
    let body_at = bytes.len() - reply.body.len();
    if let Some(broken) = broken(job.engine, &bytes, body_at) {
        run.end(End::Faulted);
        let _ = conn.write(&broken).await;
        return End::Faulted;
    }
    let mut unsent = bytes.as_slice();
    if job.engine.faults.borrow().stall == Some(Stall::MidStream) {
        let (head, body) = bytes.split_at(body_at);
        if conn.write(head).await.is_err() || !past_stall(job.engine, conn, Stall::MidStream).await {
            return End::Aborted;
        }
        unsent = body;
    }
    run.end(End::Finished);
    conn.write(unsent).await.map_or(End::Aborted, |()| End::Finished)
}

/// All steps after the first, waiting where one fills a block and at the end; false when the client left.
async fn decode(job: &Job<'_>, run: &mut Run<'_>, conn: &mut Conn) -> bool {
    let (start, itl) = (Instant::now(), job.engine.config.timing.itl);
    let due = |index: u64| start + itl.saturating_mul(u32::try_from(index).unwrap_or(u32::MAX));
    for index in 1..job.length {
        let fills = run.work.as_ref().is_some_and(Work::about_to_fill);
        if fills && !wait(conn, due(index)).await {
            return false;
        }
        run.step(job, index);
    }
    wait(conn, due(job.length - 1)).await
}

/// What is sent in place of a whole answer under a switch that breaks it.
fn broken(engine: &Engine, bytes: &[u8], body_at: usize) -> Option<Vec<u8>> {
    let faults = engine.faults.borrow();
    match faults.close_mid_stream_after {
        Some(_) => Some(bytes[..body_at + (bytes.len() - body_at) / 2].to_vec()),
        None => faults.bad_framing.then(|| two_lengths(bytes, body_at)),
    }
}

/// The same bytes with a second, different Content-Length line.
fn two_lengths(bytes: &[u8], body_at: usize) -> Vec<u8> {
    let head_end = body_at - 2;
    [&bytes[..head_end], b"content-length: 7\r\n\r\n", &bytes[body_at..]].concat()
}

/// Waits until `until`; false when the client left before. No wait at all once it has passed.
pub async fn wait(conn: &mut Conn, until: Instant) -> bool {
    if until <= Instant::now() {
        return true;
    }
    tokio::select! {
        () = tokio::time::sleep_until(until) => true,
        () = conn.gone() => false,
    }
}

/// Waits while the `stall` switch names this phase; false when the client left before.
pub async fn past_stall(engine: &Engine, conn: &mut Conn, phase: Stall) -> bool {
    let mut faults = engine.faults.subscribe();
    if faults.borrow().stall != Some(phase) {
        return true;
    }
    tokio::select! {
        lifted = faults.wait_for(|faults| faults.stall != Some(phase)) => lifted.is_ok(),
        () = conn.gone() => false,
    }
}
