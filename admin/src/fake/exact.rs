//! Receipts of requests with exact routing, as real decisions over [`super::kv::exact_table`] make them.

use super::FakePlane;
use std::sync::Arc;
use warmpath_core::Nanos;
use warmpath_core::block::BlockSize;
use warmpath_core::control::ShardReport;
use warmpath_core::decide::Reason;
use warmpath_core::decide::exact::{
    Candidate, Explanation, Miss, Outcome as Decided, Question, Ranking, rank,
};
use warmpath_core::decide::tuning::Tuning;
use warmpath_core::fleet::Excluded;
use warmpath_core::receipt::{ExactReceipt, Outcome, Receipt};
use warmpath_core::trust::Finding;

/// What is decided over these candidates for a prompt of 40 blocks, when so many of the list are refused.
pub fn decided(candidates: &[Candidate], refused: usize) -> Explanation {
    let question = Question {
        candidates,
        blocks: 40,
        block_size: BlockSize::SIXTEEN,
        excluded: Excluded::default(),
        single_pool: true,
        tuning: &Tuning::default(),
    };
    let mut ranking = Ranking::default();
    match rank(&question, || 1, &mut ranking) {
        Ok(()) => Explanation::chosen(&question, &ranking, refused),
        Err(miss) => Explanation::missed(&question, &ranking, miss),
    }
}

/// A candidate that holds the first blocks on the GPU, two more in host memory, and has others on their way.
pub fn candidate(endpoint: u16, rank: u8, held: u32, load: u32) -> Candidate {
    Candidate {
        endpoint,
        rank,
        runs: [held, held + 2, held + 2],
        promised: held + 3,
        load,
        held: 1_000,
        available: true,
        ..Candidate::default()
    }
}

/// The receipt of a request to the service `chat`, or of one that exact routing left to the selector.
pub fn receipt(id: &str, at: Nanos, explanation: Explanation) -> Receipt {
    let port = |endpoint: u16| ([127, 0, 0, 1], 8001 + endpoint).into();
    let first = explanation.shown().first();
    let (reason, endpoint, rank) = match explanation.outcome {
        Decided::Chosen { reason, .. } => (reason, first.map(|c| port(c.endpoint)), first.map(|c| c.rank)),
        Decided::Missed(_) => (Reason::LeastLoad, Some(port(1)), None),
    };
    let exact = ExactReceipt {
        explanation,
        rank,
        prompt_tokens: 650,
        predicted_tokens: 192,
        cached_tokens: Some(192),
        engine_tokens: Some(650),
        finding: Some(Finding::Agrees),
    };
    Receipt {
        at,
        id: id.into(),
        service: 1,
        model: "m".into(),
        endpoint,
        reason: Some(reason),
        exact: Some(exact),
        pair: None,
        status: 200,
        outcome: Outcome::Completed,
        streamed: true,
        first_byte: 1_500_000,
        total: 2_000_000,
        bytes_out: 10,
        retries: 0,
    }
}

/// A request that went to endpoint 0, rank 1, since endpoint 1, which holds more, carries more than it may.
pub fn spilled() -> Receipt {
    let candidates = [candidate(0, 0, 3, 1), candidate(0, 1, 12, 1), candidate(1, 0, 20, 30)];
    receipt("spilled", 40_000_000_000, decided(&candidates, 0))
}

/// A request of which nothing was known.
pub fn missed() -> Receipt {
    receipt("missed", 50_000_000_000, Explanation::unasked(Miss::NoSignal))
}

/// Two shards with a request each, and one that no service took.
pub fn two_decisions() -> Arc<FakePlane> {
    let plane = FakePlane::new();
    let lost = Receipt {
        service: 0,
        endpoint: None,
        reason: None,
        exact: None,
        pair: None,
        status: 404,
        outcome: Outcome::Answered,
        ..receipt("lost", 45_000_000_000, Explanation::unasked(Miss::NoSignal))
    };
    let report = |shard, receipts| ShardReport { shard, receipts, ..ShardReport::default() };
    *plane.reports.lock().unwrap() = vec![report(0, vec![spilled(), lost]), report(1, vec![missed()])];
    plane
}
