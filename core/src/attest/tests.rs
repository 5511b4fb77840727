//! The ladder against a model that keeps only what must hold: no way from a change to exact routing but over every
//! proof anew. And each reason, by what brings it about.

use super::*;
use crate::block::BlockSize;
use crate::engine::{Algo, Contract, Engine, Terms as Naming};
use crate::profile::Api;
use std::sync::Arc;

fn terms(engine: Engine, ranks: u8) -> Terms {
    Terms {
        engine,
        model: "m".into(),
        block_size: 16,
        algorithm: (engine == Engine::Vllm).then(|| "sha256_cbor".into()),
        ranks,
        event_port: None,
        deployed: Some(Deployed { engine_version: "0.31.0".into(), ..Deployed::default() }),
        fixtures: vec![vec![1, 2], vec![3]],
        chats: true,
    }
}

/// What an engine that fits says.
fn told(terms: &Terms, start: u64) -> Told {
    Told {
        version: Some("0.31.0".into()),
        models: vec!["m".into()],
        block_size: Some(16),
        algorithm: terms.algorithm.clone(),
        ranks: Some(terms.ranks.into()),
        started: Some(start),
        ..Told::default()
    }
}

/// The answer of an engine that fits.
fn right(ask: Ask, terms: &Terms, start: u64, unnamed: u8) -> Answer {
    match ask {
        Ask::Identity => Answer::Identity(told(terms, start)),
        Ask::Tokens(at) => Answer::Tokens(terms.fixtures[at].clone()),
        Ask::Challenge { rank, .. } => Answer::Echo(Echo::Named(rank.unwrap_or(unnamed))),
    }
}

/// Climbs until nothing is due at `now`.
fn climb(ladder: &mut Ladder, now: Nanos) -> Vec<Ask> {
    let terms = ladder.terms().clone();
    let mut asked = Vec::new();
    while let Some(ticket) = ladder.next(now) {
        let unnamed = asked.len() as u8 % terms.ranks;
        ladder.take(now, ticket, &right(ticket.ask, &terms, 1, unnamed));
        asked.push(ticket.ask);
        assert!(asked.len() < 100, "it asks for ever: {asked:?}");
    }
    asked
}

fn ladder(engine: Engine, ranks: u8) -> Ladder {
    Ladder::new(Arc::new(terms(engine, ranks)), Cadence::default())
}

#[test]
fn identity_then_tokens_then_each_rank_by_name() {
    let mut ladder = ladder(Engine::Vllm, 2);
    let challenge = |rank| Ask::Challenge { rank: Some(rank), api: Api::Completions };
    let asked = climb(&mut ladder, 0);
    assert_eq!(asked, [Ask::Identity, Ask::Tokens(0), Ask::Tokens(1), challenge(0), challenge(1)]);
    assert!(ladder.is_proven(0, 0) && ladder.is_proven(1, 0) && !ladder.is_proven(2, 0));
    assert_eq!(ladder.reasons(0), []);
}

#[test]
fn without_a_way_to_ask_for_tokens_events_of_both_apis_show_them() {
    let mut ladder = ladder(Engine::Vllm, 1);
    let ticket = ladder.next(0).unwrap();
    ladder.take(0, ticket, &Answer::Identity(told(&ladder.terms().clone(), 1)));
    let ticket = ladder.next(0).unwrap();
    ladder.take(0, ticket, &Answer::Unanswered(Unanswered::Status(500)));
    assert_eq!((ladder.parity(), ladder.height(0)), (Parity::Events, ladder::Height::Oracle));
    let chat = Ask::Challenge { rank: None, api: Api::Chat };
    assert_eq!(climb(&mut ladder, 0).last(), Some(&chat));
    assert!(ladder.is_proven(0, 0));
}

#[test]
fn light_probes_each_minute_challenges_each_half_hour_and_traffic_spares_them() {
    let mut ladder = ladder(Engine::Vllm, 1);
    climb(&mut ladder, 0);
    assert_eq!(ladder.next(59 * SECOND), None);
    assert_eq!(climb(&mut ladder, 60 * SECOND), [Ask::Identity, Ask::Tokens(0), Ask::Tokens(1)]);
    ladder.routed(1000 * SECOND, 0);
    assert_eq!(climb(&mut ladder, 2000 * SECOND).len(), 3, "traffic proved the names meanwhile");
    assert_eq!(climb(&mut ladder, 2800 * SECOND).len(), 4, "1800 s after that a challenge is due");
}

#[test]
fn traffic_alone_proves_nothing() {
    let mut ladder = ladder(Engine::Vllm, 1);
    climb(&mut ladder, 0);
    ladder.changed();
    ladder.routed(1, 0);
    let ticket = ladder.next(1).unwrap();
    ladder.take(1, ticket, &right(ticket.ask, &ladder.terms().clone(), 1, 0));
    assert!(!ladder.is_proven(0, 1) && ladder.reasons(1).contains(&Reason::HashAttestationPending));
}

#[test]
fn a_busy_engine_is_pending_and_stays_ready_for_two_cadences() {
    let mut ladder = ladder(Engine::Vllm, 1);
    climb(&mut ladder, 0);
    let busy = Answer::Echo(Echo::Silent { is_busy: true });
    let mut now = 1800 * SECOND;
    while now < 3600 * SECOND {
        while let Some(ticket) = ladder.next(now) {
            let is_challenge = matches!(ticket.ask, Ask::Challenge { .. });
            let answer =
                if is_challenge { busy.clone() } else { right(ticket.ask, &ladder.terms().clone(), 1, 0) };
            ladder.take(now, ticket, &answer);
        }
        assert!(ladder.is_proven(0, now), "at {} s", now / SECOND);
        assert!(ladder.reasons(now).contains(&Reason::AttestationPending));
        now += 30 * SECOND;
    }
    assert!(!ladder.is_proven(0, 3600 * SECOND));
    assert_eq!(ladder.reason(0, 3600 * SECOND), Some(Reason::AttestationStale));
}

/// What an answer, given where a question of its kind comes up, makes of a ladder that was proven.
fn after(engine: Engine, fits: fn(&Ask) -> bool, answer: Answer) -> Vec<Reason> {
    let mut ladder = ladder(engine, 2);
    climb(&mut ladder, 0);
    let now = 1800 * SECOND;
    let terms = ladder.terms().clone();
    while let Some(ticket) = ladder.next(now) {
        let is_it = fits(&ticket.ask);
        let given = if is_it { answer.clone() } else { right(ticket.ask, &terms, 1, 0) };
        ladder.take(now, ticket, &given);
        if is_it {
            assert!(!ladder.is_proven(0, now) && !ladder.is_proven(1, now), "{answer:?}");
            return ladder.reasons(now);
        }
    }
    panic!("nothing of the kind was asked");
}

#[test]
fn each_answer_that_contradicts_takes_every_rank_out_and_names_why() {
    let identity: fn(&Ask) -> bool = |ask| *ask == Ask::Identity;
    let tokens: fn(&Ask) -> bool = |ask| matches!(ask, Ask::Tokens(_));
    let challenge: fn(&Ask) -> bool = |ask| matches!(ask, Ask::Challenge { .. });
    let says = |change: fn(&mut Told)| {
        let mut said = told(&terms(Engine::Vllm, 2), 1);
        change(&mut said);
        Answer::Identity(said)
    };
    let rows = [
        (identity, says(|told| told.version = Some("0.31.1".into())), Reason::IdentityMismatch),
        (identity, says(|told| told.models = vec!["n".into()]), Reason::IdentityMismatch),
        (identity, says(|told| told.block_size = Some(32)), Reason::EngineGeometryMismatch),
        (identity, says(|told| told.algorithm = Some("sha256".into())), Reason::EngineGeometryMismatch),
        (identity, says(|told| told.ranks = Some(1)), Reason::EngineGeometryMismatch),
        (identity, says(|told| told.publishes = Some(false)), Reason::EngineGeometryMismatch),
        (identity, says(|told| told.block_size = None), Reason::ProbeSchemaMismatch),
        (identity, Answer::Unanswered(Unanswered::Form), Reason::ProbeSchemaMismatch),
        (identity, Answer::Unanswered(Unanswered::Status(404)), Reason::ProbeSchemaMismatch),
        (identity, Answer::Unanswered(Unanswered::Refused), Reason::EndpointUnreachable),
        (tokens, Answer::Tokens(vec![1, 9]), Reason::TokenMismatch),
        (tokens, Answer::Tokens(Vec::new()), Reason::TokenMismatch),
        (tokens, Answer::Unanswered(Unanswered::Form), Reason::ProbeSchemaMismatch),
        (challenge, Answer::Echo(Echo::OtherNames), Reason::ChallengeFailed),
        (challenge, Answer::Echo(Echo::OtherTokens), Reason::TokenMismatch),
        (challenge, Answer::Echo(Echo::SeveralRanks), Reason::ChallengeFailed),
        (challenge, Answer::Echo(Echo::Named(7)), Reason::ChallengeFailed),
        (challenge, Answer::Echo(Echo::Silent { is_busy: false }), Reason::ChallengeTimeout),
        (challenge, Answer::Unanswered(Unanswered::Status(400)), Reason::ChallengeFailed),
        (challenge, Answer::Identity(Told::default()), Reason::ProbeSchemaMismatch),
    ];
    for (fits, answer, reason) in rows {
        let reasons = after(Engine::Vllm, fits, answer.clone());
        assert_eq!(reasons.first(), Some(&reason), "{answer:?}: {reasons:?}");
    }
}

#[test]
fn another_process_with_the_same_settings_is_proven_anew() {
    let mut ladder = ladder(Engine::Vllm, 1);
    climb(&mut ladder, 0);
    let ticket = ladder.next(60 * SECOND).unwrap();
    ladder.take(60 * SECOND, ticket, &Answer::Identity(told(&ladder.terms().clone(), 2)));
    assert!(!ladder.is_proven(0, 60 * SECOND));
}

#[test]
fn an_engine_that_tells_no_start_is_asked_and_one_without_questions_never() {
    assert_eq!(climb(&mut ladder(Engine::Llamacpp, 1), 0), []);
    assert_eq!(ladder(Engine::Llamacpp, 1).reasons(0), [Reason::AdapterUnavailable]);
}

/// Random numbers with a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What has to hold, kept apart from the ladder: when each proof was last made since the last change.
#[derive(Default)]
struct Model {
    identity: Option<Nanos>,
    tokens: [Option<Nanos>; 2],
    echoed: [Option<Nanos>; 2],
    used: [Option<Nanos>; 2],
    start: u64,
}

impl Model {
    fn may_route(&self, rank: usize, now: Nanos, cadence: &Cadence) -> bool {
        let fresh = |at: Option<Nanos>, cadence: Nanos| at.is_some_and(|at| now - at < 2 * cadence);
        let names = self.echoed[rank].max(self.used[rank]);
        fresh(self.identity, cadence.probe)
            && self.tokens.iter().all(|at| fresh(*at, cadence.probe))
            && self.echoed[rank].is_some()
            && fresh(names, cadence.challenge)
    }

    fn changed(&mut self) {
        *self = Model { start: self.start, ..Model::default() };
    }

    /// What a right or wrong answer proves.
    fn learns(&mut self, now: Nanos, ask: Ask, is_right: bool) {
        match (ask, is_right) {
            (_, false) => self.changed(),
            (Ask::Identity, true) => self.identity = Some(now),
            (Ask::Tokens(at), true) => self.tokens[at] = Some(now),
            (Ask::Challenge { rank, .. }, true) => self.echoed[usize::from(rank.unwrap())] = Some(now),
        }
    }
}

/// Random answers, delays, restarts and changes: at no moment is a rank proven that the model does not allow, and what
/// the model allows comes about once all goes well.
#[test]
fn no_way_from_a_change_to_exact_routing_but_over_every_proof_anew() {
    for seed in 0..400 {
        let (mut dice, mut model, mut now) = (Dice(seed), Model::default(), 1);
        let mut ladder = ladder(Engine::Vllm, 2);
        let (terms, cadence) = (ladder.terms().clone(), Cadence::default());
        // Questions on their way: whose answer is decided when it comes, by the engine as it was when it was asked.
        let mut open: Vec<(Ticket, u64, u64)> = Vec::new();
        let mut epoch = 0;
        for _ in 0..400 {
            now += dice.roll(40) * SECOND;
            if let Some(ticket) = ladder.next(now) {
                open.push((ticket, model.start, epoch));
            }
            match dice.roll(24) {
                0 => {
                    ladder.changed();
                    model.changed();
                    epoch += 1;
                }
                1 => {
                    // A restart that nobody told: the next answer about identity does.
                    model.start += 1;
                }
                2 => {
                    let rank = dice.roll(2) as usize;
                    ladder.routed(now, rank as u8);
                    model.used[rank] = model.echoed[rank].map(|_| now);
                }
                3 => {
                    ladder.source(Some(Reason::RuntimeFault));
                    ladder.source(None);
                    model.changed();
                    epoch += 1;
                }
                4..=20 if !open.is_empty() => {
                    let at = dice.roll(open.len() as u64) as usize;
                    let (ticket, start, asked) = open.remove(at);
                    let is_right = dice.roll(8) > 0;
                    let wrong = Answer::Unanswered(Unanswered::Refused);
                    let answer = if is_right { right(ticket.ask, &terms, start, 0) } else { wrong };
                    let was = ladder.told().and_then(|told| told.started);
                    ladder.take(now, ticket, &answer);
                    if asked == epoch {
                        if ticket.ask == Ask::Identity && is_right && was.is_some_and(|was| was != start) {
                            model.changed();
                            epoch += 1;
                        }
                        model.learns(now, ticket.ask, is_right);
                        epoch += u64::from(!is_right);
                    }
                }
                _ => {}
            }
            for rank in 0..2 {
                let is_proven = ladder.is_proven(rank, now);
                let may = model.may_route(rank.into(), now, &cadence);
                assert!(!is_proven || may, "seed {seed}: rank {rank} at {} s", now / SECOND);
                assert_eq!(ladder.reason(rank, now).is_none(), is_proven, "seed {seed}: a reason or none");
            }
        }
        now += 3600 * SECOND;
        ladder.changed();
        climb(&mut ladder, now);
        assert!(
            ladder.is_proven(0, now) && ladder.is_proven(1, now),
            "seed {seed}: {:?}",
            ladder.reasons(now)
        );
    }
}

mod bindings;
mod challenges;
