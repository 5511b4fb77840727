//! An engine in virtual time: continuous batching in steps, prefill in chunks, and vLLM's own block pool. Owns what a
//! step computes and how long it takes; must never know who sent a request, nor the time of day.
//!
//! A step has a budget of tokens. Each answer that is being decoded takes one; the rest goes to prompts, first come
//! first served. It takes a fixed time, and more by each token. What neither the budget nor this line says is left
//! out: attention grows with the context in real engines, here it doesn't.

use super::trace::Nanos;
use crate::engine::blocks::{Block, CacheEvent, Digest, Log, Space};
use crate::engine::cache::{Lease, Pool};
use std::collections::VecDeque;
use std::sync::Arc;

/// What an engine is like.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Model {
    /// Tokens that its cache has room for.
    pub cache_tokens: u64,
    /// Requests that run at once.
    pub seats: usize,
    /// Tokens that a step computes at most.
    pub step_tokens: u32,
    /// What a step takes in any case.
    pub step: Nanos,
    /// What each token of a prompt adds.
    pub prompt_token: Nanos,
    /// What each answer that is decoded adds.
    pub answer_token: Nanos,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            cache_tokens: 1_000_000,
            seats: 256,
            step_tokens: 8192,
            step: 10_000_000,
            prompt_token: 100_000,
            answer_token: 100_000,
        }
    }
}

/// A request at an engine.
#[derive(Debug)]
pub struct Job {
    /// Its number in the trace.
    pub number: usize,
    /// The prompt's full blocks.
    pub blocks: Vec<Arc<Block>>,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens of the answer.
    pub answer: u32,
}

/// What a step brought about.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request is at work; so many tokens of its prompt were there.
    Begun(u32),
    /// Its first token is there.
    First(usize),
    /// Its last one is.
    Done(usize),
}

#[derive(Debug)]
struct Run {
    job: Job,
    lease: Lease,
    /// Prompt tokens that are computed or were there.
    computed: u32,
    /// Of them computed in this step.
    chunk: u32,
    generated: u32,
    /// Blocks that it needs beyond those it found.
    needs: usize,
}

/// One engine.
#[derive(Debug)]
pub struct Engine {
    model: Model,
    block_tokens: u32,
    pool: Pool,
    waiting: VecDeque<Job>,
    running: Vec<Run>,
    /// Blocks that those at work need, beyond what they found.
    needed: usize,
    log: Log,
}

/// The blocks of a prompt by their keys, as a cache takes them.
pub fn blocks(keys: &[u64]) -> Vec<Arc<Block>> {
    let space = Arc::new(Space::default());
    let block = |(depth, key): (usize, &u64)| {
        let digest = Digest::new(&key.to_be_bytes());
        Arc::new(Block { digest, parent: None, tokens: Box::default(), depth, space: space.clone() })
    };
    keys.iter().enumerate().map(block).collect()
}

/// Blocks of a prompt that may be found: all but what its last token is in.
pub fn findable(blocks: &[Arc<Block>], prompt: u32, block_tokens: u32) -> &[Arc<Block>] {
    &blocks[..blocks.len().min((prompt.saturating_sub(1) / block_tokens) as usize)]
}

impl Engine {
    /// An idle one.
    pub fn new(model: &Model, block_tokens: u32) -> Engine {
        Engine {
            model: model.clone(),
            block_tokens,
            pool: Pool::new(model.blocks(block_tokens), block_tokens as usize, 0),
            waiting: VecDeque::new(),
            running: Vec::new(),
            needed: 0,
            log: Log::default(),
        }
    }

    /// A request comes.
    pub fn take(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Keys of all that its cache holds.
    #[cfg(test)]
    pub fn held(&self) -> impl Iterator<Item = u64> {
        self.pool.holdings().into_iter().map(|(digest, _)| digest.first8())
    }

    /// Begins a step and tells how long it takes; `None` if there is nothing to do.
    pub fn begin_step(&mut self, progress: &mut Vec<Progress>) -> Option<Nanos> {
        while self.waiting.front().is_some_and(|job| self.has_room(job)) {
            let job = self.waiting.pop_front();
            job.into_iter().for_each(|job| self.admit(job, progress));
        }
        if self.running.is_empty() {
            return None;
        }
        let decoding = self.running.iter().filter(|run| run.generated > 0).count() as u32;
        let mut budget = self.model.step_tokens.saturating_sub(decoding).max(1);
        let mut prompt_tokens = 0;
        for run in &mut self.running {
            run.chunk = (run.job.prompt - run.computed).min(budget);
            budget -= run.chunk;
            prompt_tokens += run.chunk;
        }
        let Model { step, prompt_token, answer_token, .. } = self.model;
        Some(step + u64::from(prompt_tokens) * prompt_token + u64::from(decoding) * answer_token)
    }

    /// Whether a request can begin beside those at work. One that is alone always can: it goes on without blocks for
    /// what doesn't fit.
    fn has_room(&self, job: &Job) -> bool {
        let fits = || self.needed + job.needs(self.block_tokens) <= self.model.blocks(self.block_tokens);
        self.running.is_empty() || self.running.len() < self.model.seats && fits()
    }

    fn admit(&mut self, job: Job, progress: &mut Vec<Progress>) {
        let (lease, hits) = self.pool.begin(findable(&job.blocks, job.prompt, self.block_tokens));
        let computed = hits as u32 * self.block_tokens;
        progress.push(Progress::Begun(computed));
        let needs = job.needs(self.block_tokens) - hits;
        self.needed += needs;
        self.running.push(Run { job, lease, computed, chunk: 0, generated: 0, needs });
    }

    /// Ends the step that was begun; returns what the cache tells of it.
    pub fn end_step(&mut self, progress: &mut Vec<Progress>) -> Vec<CacheEvent> {
        for run in &mut self.running {
            run.computed += run.chunk;
            let is_decoding = run.generated > 0;
            if is_decoding || run.chunk > 0 {
                let tokens = run.computed + run.generated;
                self.pool.advance(&mut run.lease, &run.job.blocks, tokens as usize, &mut self.log);
            }
            if is_decoding || run.chunk > 0 && run.computed == run.job.prompt {
                run.generated += 1;
            }
            if run.generated == 1 && !is_decoding {
                progress.push(Progress::First(run.job.number));
            }
            if run.generated == run.job.answer {
                progress.push(Progress::Done(run.job.number));
                self.pool.release(&mut run.lease);
                self.needed -= run.needs;
            }
        }
        self.running.retain(|run| run.generated < run.job.answer);
        std::mem::take(&mut self.log.events)
    }
}

impl Job {
    /// Blocks of prompt and answer together.
    fn needs(&self, block_tokens: u32) -> usize {
        (self.prompt + self.answer).div_ceil(block_tokens) as usize
    }
}

impl Model {
    /// Blocks that its cache has room for.
    pub fn blocks(&self, block_tokens: u32) -> usize {
        usize::try_from(self.cache_tokens / u64::from(block_tokens)).unwrap_or(usize::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(model: Model) -> Engine {
        Engine::new(&model, 10)
    }

    fn job(number: usize, keys: &[u64], prompt: u32, answer: u32) -> Job {
        Job { number, blocks: blocks(keys), prompt, answer }
    }

    /// Runs it until it is idle: the times of its steps, and what they brought about.
    fn run(engine: &mut Engine) -> (Vec<Nanos>, Vec<Progress>) {
        let (mut times, mut progress) = (Vec::new(), Vec::new());
        while let Some(time) = engine.begin_step(&mut progress) {
            times.push(time);
            engine.end_step(&mut progress);
        }
        (times, progress)
    }

    fn model() -> Model {
        let (step, prompt_token, answer_token) = (100, 10, 1);
        Model { cache_tokens: 100, seats: 2, step_tokens: 20, step, prompt_token, answer_token }
    }

    #[test]
    fn a_prompt_is_computed_in_chunks_and_then_each_token_takes_a_step() {
        let mut engine = engine(model());
        engine.take(job(0, &[1, 2, 3], 35, 3));
        let (times, progress) = run(&mut engine);
        assert_eq!(times, [300, 250, 101, 101]);
        assert_eq!(progress, [Progress::Begun(0), Progress::First(0), Progress::Done(0)]);
    }

    #[test]
    fn what_is_held_is_not_computed_again_but_the_last_token_is() {
        let mut engine = engine(model());
        engine.take(job(0, &[1, 2], 20, 1));
        run(&mut engine);
        engine.take(job(1, &[1, 2], 20, 1));
        let (times, progress) = run(&mut engine);
        assert_eq!((times[0], &progress[0]), (200, &Progress::Begun(10)));
    }

    #[test]
    fn requests_wait_for_a_seat_and_for_blocks() {
        let begun = |progress: &[Progress]| {
            let firsts = progress.iter().filter(|p| matches!(p, Progress::Begun(..) | Progress::Done(_)));
            firsts.map(|p| matches!(p, Progress::Begun(..))).collect::<Vec<bool>>()
        };
        let mut by_seat = engine(model());
        (0..3).for_each(|n| by_seat.take(job(n, &[], 5, 2)));
        assert_eq!(begun(&run(&mut by_seat).1), [true, true, false, false, true, false]);
        let mut by_blocks = engine(model());
        (0..2).for_each(|n| by_blocks.take(job(n, &[], 50, 10)));
        assert_eq!(begun(&run(&mut by_blocks).1), [true, false, true, false]);
    }

    #[test]
    fn a_prompt_larger_than_the_cache_is_still_answered() {
        let mut engine = engine(model());
        engine.take(job(0, &[1; 20], 200, 1));
        assert_eq!(run(&mut engine).1.last(), Some(&Progress::Done(0)));
    }
}
