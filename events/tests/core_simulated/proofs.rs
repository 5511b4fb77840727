//! Answers that prove what an engine holds, sent at one moment and taken at a later one, while all goes on going
//! wrong. Owns that each proof is true when its request is sent.

use super::World;
use std::collections::HashMap;
use warmpath_core::shared::{Observation, Shown};
use warmpath_ring::Ring;

/// A proof on its way.
struct Waiting {
    source: u32,
    rank: u8,
    sent: u64,
    keys: Vec<u64>,
    turns: u64,
}

/// What was proven.
#[derive(Default)]
pub struct Proofs {
    waiting: Vec<Waiting>,
    /// Blocks by source and rank, as masks.
    taken: HashMap<(u32, u8), u32>,
    pub count: u64,
}

impl Proofs {
    /// Blocks of which any proof was taken.
    pub fn of(&self, source: u32, rank: usize) -> u32 {
        self.taken.get(&(source, rank as u8)).copied().unwrap_or(0)
    }
}

impl World {
    /// Now and again a request finds some blocks, and its answer comes some turns later.
    pub fn prove(&mut self) {
        let Some(mut proofs) = self.proofs.take() else { return };
        let now = self.core.ring().now();
        if self.random.below(4) == 0 {
            let (at, source) = self.followed[self.random.below(self.followed.len() as u64) as usize].clone();
            let rank = self.random.below(super::RANKS as u64) as u8;
            let held = self.engines[at].borrow().model.keys(usize::from(rank))[0];
            let asked = self.random.below(1 << 32) as u32 & held;
            let keys = (0..self.universe.len()).filter(|at| asked >> at & 1 == 1);
            let keys = keys.map(|at| self.universe[at]).collect();
            let turns = self.random.below(12);
            proofs.waiting.push(Waiting { source: source.number(), rank, sent: now, keys, turns });
        }
        let (due, waiting): (Vec<Waiting>, _) =
            proofs.waiting.into_iter().partition(|proof| proof.turns == 0);
        proofs.waiting = waiting;
        proofs.waiting.iter_mut().for_each(|proof: &mut Waiting| proof.turns -= 1);
        for Waiting { source, rank, sent, keys, .. } in due {
            self.core.observe(&Observation { source, rank, sent, shown: Shown::Held(0), keys: &keys });
            let mask = keys.iter().filter_map(|key| self.universe.iter().position(|own| own == key));
            *proofs.taken.entry((source, rank)).or_default() |= mask.fold(0, |mask, at| mask | 1 << at);
            proofs.count += 1;
        }
        self.proofs = Some(proofs);
    }
}
