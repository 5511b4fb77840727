//! A trace, a gateway and its engines in virtual time. Owns what happens in which order; must never depend on
//! anything but what it is given.

use super::engine::{Engine, Job, Model, Progress, blocks};
use super::gateway::{BEGIN, Choice, Gateway};
use super::outcome::{Meter, Outcome};
use super::policy::Policy;
use super::trace::{Nanos, Trace};
use crate::Error;
use crate::engine::blocks::CacheEvent;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// From an engine's step to the index that knows of it: half a millisecond on the wire and in the event core.
const NEWS_DELAY: Nanos = 500_000;

/// What is replayed.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// Endpoints.
    pub fleet: usize,
    /// How they are chosen.
    pub policy: Policy,
    /// What each is like.
    pub model: Model,
    /// Leading blocks that hashing selectors go by.
    pub affinity_blocks: usize,
}

/// What happens, in the order in which things of one instant happen.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    StepEnds(usize),
    NewsComes(usize),
    RequestComes(usize),
}

struct World<'a> {
    plan: &'a Plan<'a>,
    gateway: Gateway,
    engines: Vec<Engine>,
    /// Whether a step is on its way, by engine.
    busy: Vec<bool>,
    /// What engines told that has not come yet, by its number.
    news: Vec<Option<(usize, Vec<CacheEvent>)>>,
    ahead: BinaryHeap<Reverse<(Nanos, Happening)>>,
    choices: Vec<Option<Choice>>,
    meter: Meter,
    progress: Vec<Progress>,
}

/// Replays a trace to its last answer.
pub fn run(plan: &Plan<'_>) -> Result<Outcome, Error> {
    let mut world = World::new(plan)?;
    while let Some(Reverse((now, what))) = world.ahead.pop() {
        world.happen(now, what);
    }
    #[cfg(test)]
    world.check_quiet();
    Ok(world.meter.outcome())
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan<'a>) -> Result<World<'a>, Error> {
        let block_tokens = plan.trace.block_tokens;
        let gateway = Gateway::new(&plan.policy, plan.fleet, block_tokens, plan.model.blocks(block_tokens))?;
        let arrivals = plan.trace.arrivals.iter().enumerate();
        Ok(World {
            gateway,
            engines: (0..plan.fleet).map(|_| Engine::new(&plan.model, block_tokens)).collect(),
            busy: vec![false; plan.fleet],
            news: Vec::new(),
            ahead: arrivals.map(|(n, a)| Reverse((BEGIN + a.at, Happening::RequestComes(n)))).collect(),
            choices: vec![None; plan.trace.arrivals.len()],
            meter: Meter::new(plan.trace, plan.fleet),
            progress: Vec::new(),
            plan,
        })
    }

    fn happen(&mut self, now: Nanos, what: Happening) {
        match what {
            Happening::RequestComes(number) => self.request_comes(number, now),
            Happening::StepEnds(endpoint) => self.step_ends(endpoint, now),
            Happening::NewsComes(number) => {
                if let Some((endpoint, events)) = self.news[number].take() {
                    self.gateway.hear(endpoint, &events);
                }
            }
        }
    }

    fn request_comes(&mut self, number: usize, now: Nanos) {
        let arrival = &self.plan.trace.arrivals[number];
        let first = &arrival.keys[..arrival.keys.len().min(self.plan.affinity_blocks)];
        // A prompt shorter than a block has an affinity of its own.
        let affinity = first.last().copied().unwrap_or(number as u64);
        let Some(choice) = self.gateway.choose(&arrival.keys, affinity, now) else {
            return self.meter.refused();
        };
        self.choices[number] = Some(choice);
        self.meter.sent(number, choice.endpoint, choice.reason, now);
        let (prompt, answer) = (arrival.prompt, arrival.answer);
        self.engines[choice.endpoint].take(Job { number, blocks: blocks(&arrival.keys), prompt, answer });
        if !self.busy[choice.endpoint] {
            self.step(choice.endpoint, now);
        }
    }

    fn step(&mut self, endpoint: usize, now: Nanos) {
        let takes = self.engines[endpoint].begin_step(&mut self.progress);
        self.note(now);
        self.busy[endpoint] = takes.is_some();
        if let Some(takes) = takes {
            self.meter.busy(endpoint, takes);
            self.ahead.push(Reverse((now + takes, Happening::StepEnds(endpoint))));
        }
    }

    fn step_ends(&mut self, endpoint: usize, now: Nanos) {
        let told = self.engines[endpoint].end_step(&mut self.progress);
        self.note(now);
        if !told.is_empty() {
            self.ahead.push(Reverse((now + NEWS_DELAY, Happening::NewsComes(self.news.len()))));
            self.news.push(Some((endpoint, told)));
        }
        self.step(endpoint, now);
    }

    /// Takes down what a step brought about.
    fn note(&mut self, now: Nanos) {
        for progress in self.progress.drain(..) {
            match progress {
                Progress::Begun(hit) => self.meter.begun(hit),
                Progress::First(number) => {
                    self.meter.first(number, now);
                    if let Some(choice) = self.choices[number] {
                        self.gateway.answered(&self.plan.trace.arrivals[number].keys, choice, now);
                    }
                }
                Progress::Done(number) => {
                    self.meter.done(number, now);
                    if let Some(choice) = self.choices[number].take() {
                        self.gateway.settle(choice.endpoint);
                    }
                }
            }
        }
    }

    /// When all is answered nothing is charged, and the index has what the caches hold.
    #[cfg(test)]
    fn check_quiet(&self) {
        assert_eq!(self.gateway.charged(), 0);
        assert!(self.choices.iter().all(Option::is_none) && self.news.iter().all(Option::is_none));
        if self.plan.policy.tuning().is_some() {
            for (endpoint, engine) in self.engines.iter().enumerate() {
                assert_eq!(self.gateway.indexed(endpoint), engine.held().count(), "endpoint {endpoint}");
            }
        }
    }
}
