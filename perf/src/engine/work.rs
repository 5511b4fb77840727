//! What one execution does to its rank's cache, step by step: it looks its prompts up, computes them,
//! decodes, and lets go. Every step tells what happened in it. Must never let go twice, nor forget to.

use std::sync::Arc;

use super::Engine;
use super::blocks::{Medium, Space};
use super::openai::Ask;
use super::sequence::Sequence;

/// An execution's sequences on their rank.
pub struct Work<'a> {
    engine: &'a Engine,
    rank: usize,
    sequences: Vec<Sequence>,
    session: Option<String>,
    /// Tells again of the prefix it reuses.
    reports_reused: bool,
}

impl<'a> Work<'a> {
    /// The sequences of a request on its rank.
    pub fn new(engine: &'a Engine, ask: &Ask, rank: usize) -> Self {
        let config = &engine.config;
        let lora = config.lora(ask.model.as_deref()).cloned();
        let space = Arc::new(Space { lora, salt: ask.salt.clone() });
        let (root, chance) = {
            let state = engine.state();
            (state.process.root, state.process.chance)
        };
        let sequence = |prompt: &Vec<u32>| {
            let chain = config.kind.chain(config, root, chance, &space);
            Sequence::new(prompt, config.block_size, chain, space.clone())
        };
        Work {
            engine,
            rank,
            sequences: ask.prompts.iter().map(sequence).collect(),
            session: ask.session.clone(),
            reports_reused: config.kind.reports_reused(config, ask),
        }
    }

    /// Prompt tokens that need not be computed.
    pub fn cached(&self) -> u64 {
        let state = self.engine.state();
        let cache = &state.ranks[self.rank].cache;
        let blocks: usize = self.sequences.iter().map(|sequence| cache.hit(sequence.sparable())).sum();
        (blocks * self.engine.config.block_size) as u64
    }

    /// The prompts are computed.
    pub fn prefill(&mut self) {
        {
            let mut state = self.engine.state();
            let rank = &mut state.ranks[self.rank];
            rank.log.session = self.session.clone();
            for sequence in &mut self.sequences {
                let (mut lease, hits) = rank.cache.begin(sequence.sparable());
                if self.reports_reused {
                    rank.log.stored(&sequence.full()[..hits], Medium::Gpu);
                }
                let prefilled = self.engine.config.kind.prefilled(sequence.prompt());
                rank.cache.prefill(&mut lease, sequence.within(prefilled), prefilled, &mut rank.log);
                sequence.lease = Some(lease);
            }
            rank.log.session = None;
        }
        self.engine.tell(self.rank);
    }

    /// Whether the next step fills a block of any sequence.
    pub fn about_to_fill(&self) -> bool {
        self.sequences.iter().any(Sequence::about_to_fill)
    }

    /// One step of decoding: `token` gives each sequence the token that is computed in it.
    pub fn step(&mut self, token: impl Fn(usize) -> u32) {
        {
            let mut state = self.engine.state();
            let rank = &mut state.ranks[self.rank];
            rank.log.session = self.session.clone();
            for (choice, sequence) in self.sequences.iter_mut().enumerate() {
                sequence.push(token(choice));
                let mut lease = sequence.lease.take();
                if let Some(lease) = &mut lease {
                    rank.cache.decode(lease, sequence.full(), sequence.computed(), &mut rank.log);
                }
                sequence.lease = lease;
            }
            rank.log.session = None;
        }
        self.engine.tell(self.rank);
    }

    fn finish(&mut self) {
        {
            let mut state = self.engine.state();
            let rank = &mut state.ranks[self.rank];
            for sequence in &mut self.sequences {
                let Some(mut lease) = sequence.lease.take() else { continue };
                match self.engine.config.kind.keeps_parts() {
                    true => rank.cache.finish(&mut lease, &sequence.full_and_part(), &mut rank.log),
                    false => rank.cache.finish(&mut lease, sequence.full(), &mut rank.log),
                }
            }
        }
        self.engine.tell(self.rank);
    }
}

/// The end, however it came.
impl Drop for Work<'_> {
    fn drop(&mut self) {
        if self.sequences.iter().any(|sequence| sequence.lease.is_some()) {
            self.finish();
        }
    }
}
