//! One question to an engine, and what came of it. Owns the exchange, its bounds and the waiting for events; must never
//! follow a redirect, ask twice, or judge.

use super::Question;
use super::meet::legs;
use super::run::SharedAttestor;
use crate::gateway::Outside;
use crate::health::probe::{Asked, Missing, asked};
use crate::serve::{Shared, ask_kv};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use warmpath_core::Nanos;
use warmpath_core::attest::{Answer, Ask, Cadence, Challenge, Echo, Told, Unanswered};
use warmpath_core::engine::attest::Questions;
use warmpath_core::profile::Api;

/// Bytes of an answer. Metrics are longer than anything else that is asked.
const ANSWER_MAX: usize = 256 << 10;
const METRICS_MAX: usize = 4 << 20;

/// How often it is looked whether the events of a challenge came.
const LOOK: Duration = Duration::from_millis(50);

/// Asks, with bounds of the cadence.
pub async fn ask(
    gateway: &Shared,
    attestor: &SharedAttestor,
    question: &Question,
    cadence: Cadence,
) -> Answer {
    let Some(questions) = question.terms.engine.questions() else {
        return Answer::Unanswered(Unanswered::Form);
    };
    match question.ticket.ask {
        Ask::Identity => identity(question.address, questions, cadence.probe_wait).await,
        Ask::Tokens(_) => tokens(question, questions, cadence.probe_wait).await,
        Ask::Challenge { rank, api } => {
            let number = question.source.number();
            while !attestor.borrow_mut().take_ear(number) {
                sleep(LOOK).await;
            }
            let echo = challenge(gateway, question, (rank, api), cadence).await;
            attestor.borrow_mut().give_ear(number);
            Answer::Echo(echo)
        }
    }
}

async fn identity(at: SocketAddr, questions: &Questions, bound: Nanos) -> Answer {
    let mut told = Told::default();
    for page in questions.pages {
        let most = if page.path == "/metrics" { METRICS_MAX } else { ANSWER_MAX };
        let answer = asked(at, &Asked { path: page.path, body: None, rank: None }, bound, most).await;
        let fault = match answer {
            Ok((200, body)) => (!(page.read)(&body, &mut told)).then_some(Unanswered::Form),
            Ok((status, _)) => Some(Unanswered::Status(status)),
            Err(missing) => return Answer::Unanswered(unanswered(missing)),
        };
        if let Some(fault) = fault.filter(|_| page.is_vital) {
            return Answer::Unanswered(fault);
        }
    }
    Answer::Identity(told)
}

async fn tokens(question: &Question, questions: &Questions, bound: Nanos) -> Answer {
    let (Some(path), Some(fixture)) = (questions.tokenize, &question.fixture) else {
        return Answer::Unanswered(Unanswered::Status(404));
    };
    let post = Asked { path, body: Some(&fixture.request), rank: None };
    match asked(question.address, &post, bound, ANSWER_MAX).await {
        Ok((200, body)) => {
            questions.tokens(&body).map_or(Answer::Unanswered(Unanswered::Form), Answer::Tokens)
        }
        Ok((status, _)) => Answer::Unanswered(Unanswered::Status(status)),
        Err(missing) => Answer::Unanswered(unanswered(missing)),
    }
}

fn unanswered(missing: Missing) -> Unanswered {
    match missing {
        Missing::Refused => Unanswered::Refused,
        Missing::Late => Unanswered::Late,
        Missing::NoHttp => Unanswered::Form,
    }
}

async fn challenge(
    gateway: &Shared,
    question: &Question,
    (rank, api): (Option<u8>, Api),
    cadence: Cadence,
) -> Echo {
    let outside = gateway.borrow().outside.clone();
    let Some(challenge) = composed(&outside, question, api).await else {
        // The model was there when the rule was found fit: it is being loaded anew.
        return Echo::Silent { is_busy: true };
    };
    let (number, listening) = (question.source.number(), challenge.listens_for());
    if ask_kv(gateway, move |kv| kv.listen(number, Some(listening))).await != Some(true) {
        return Echo::Silent { is_busy: true };
    }
    let echo = echo(gateway, question, &challenge, rank, cadence).await;
    ask_kv(gateway, move |kv| kv.listen(number, None)).await;
    echo
}

/// Composed beside the admin thread: a tokenizer may take its time.
async fn composed(outside: &Outside, question: &Question, api: Api) -> Option<Challenge> {
    let nonce = format!("{:016x}{:016x}", (outside.random)(), (outside.random)());
    let (plane, spec) = (outside.data_plane.clone(), question.source.spec().clone());
    let model = question.terms.model.clone();
    let compose = move || {
        let encode = |body: &[u8]| plane.tokens(&model, spec.engine(), api, body);
        Challenge::compose(api, &model, &nonce, &spec.contract, encode)
    };
    tokio::task::spawn_blocking(compose).await.ok().flatten()
}

/// Sends it and hears what comes of it.
async fn echo(
    gateway: &Shared,
    question: &Question,
    challenge: &Challenge,
    rank: Option<u8>,
    cadence: Cadence,
) -> Echo {
    let until = Instant::now() + Duration::from_nanos(cadence.challenge_wait);
    // It outlives the wait for it: an engine that is given up on forgets that somebody waited.
    let patience = cadence.challenge_wait.saturating_add(2 * cadence.probe_wait);
    let sent = sent(gateway, question, challenge, rank, patience);
    tokio::pin!(sent);
    let answer = tokio::select! {
        answer = &mut sent => answer,
        () = sleep_until(until) => return Echo::Silent { is_busy: is_busy(question, cadence).await },
    };
    match answer {
        Ok((200, _)) => {}
        Ok((status, _)) => return Echo::Unanswered(Unanswered::Status(status)),
        Err(missing) => return Echo::Unanswered(unanswered(missing)),
    }
    let mut found = None;
    loop {
        let number = question.source.number();
        let heard = ask_kv(gateway, move |kv| kv.heard(number)).await.flatten().unwrap_or_default();
        let judged = challenge.judge(&heard);
        // Once more, since another rank may have told of it too.
        match judged {
            Some(echo) if found == judged => return echo,
            judged => found = judged,
        }
        if Instant::now() >= until {
            return found.unwrap_or(Echo::Silent { is_busy: is_busy(question, cadence).await });
        }
        sleep(LOOK).await;
    }
}

/// What the engine answers; where it meets another while it computes, with both legs on their way.
async fn sent(
    gateway: &Shared,
    question: &Question,
    challenge: &Challenge,
    rank: Option<u8>,
    bound: Nanos,
) -> Result<(u16, Bytes), Missing> {
    let path = challenge.path;
    let Some(meeting) = &question.meeting else {
        let post = Asked { path, body: Some(&challenge.body), rank };
        return asked(question.address, &post, bound, ANSWER_MAX).await;
    };
    let random = gateway.borrow().outside.random;
    let legs = legs(question, meeting, &challenge.body, rank, random());
    let [prefill, decode] = legs.ok_or(Missing::NoHttp)?;
    let leg = |body| Asked { path, body: Some(body), rank: None };
    let (prefill, decode) = (leg(&prefill[..]), leg(&decode[..]));
    let (answer, _) = tokio::join!(
        asked(question.address, &prefill, bound, ANSWER_MAX),
        asked(meeting.decode, &decode, bound, ANSWER_MAX),
    );
    answer
}

/// Whether requests wait in the engine, as it says.
async fn is_busy(question: &Question, cadence: Cadence) -> bool {
    let Some(telemetry) = question.terms.engine.telemetry() else { return false };
    let page = Asked { path: telemetry.path, body: None, rank: None };
    match asked(question.address, &page, cadence.probe_wait, METRICS_MAX).await {
        Ok((200, body)) => telemetry.read(&body).is_some_and(|load| load.waiting > 0),
        _ => false,
    }
}
