//! What proven batches change, in slices. Owns the blocks of one rank and the batches that wait to be applied; must
//! never judge a batch's order.
//!
//! A call works off about [`Cache::slice`] bytes. What is over that waits, first in, first out, for
//! [`Cache::work`], and so does everything behind a large rank's clear: its driver lets others have their turns
//! meanwhile.

use super::{FeedCounts, Sink, Step, Terms, Watch};
use crate::continuity::{Action, Effect, Reason};
use crate::decode::{Progress, Reject, decode, decode_some};
use crate::residency::{Applied, Residency};
use crate::wire::{Batch, HashBytes};
use std::collections::VecDeque;

/// Bytes of a payload that are taken to make one block, for the bound of a slice: a quarter of a millisecond.
const BYTES_A_BLOCK: usize = 32;

/// A batch that waits, or is being worked on.
struct Waiting {
    seq: u64,
    payload: Vec<u8>,
    /// Where in its bytes the payload begins and ends.
    place: (usize, usize),
    stage: Stage,
}

enum Stage {
    Decoding(Progress),
    /// It is in the cache's batch.
    Applying(Applied),
}

impl Waiting {
    /// Whether its bytes are those of the message that is handed over as `seq`.
    fn is_awaited(&self, seq: Option<u64>) -> bool {
        Some(self.seq) == seq && self.payload.is_empty() && self.place.1 > 0
    }
}

/// What batches change.
pub(super) struct Cache {
    naming: HashBytes,
    rank: Option<u32>,
    slice: usize,
    pub residency: Residency,
    batch: Batch,
    pub counts: FeedCounts,
    pub asked: Option<(u32, u64)>,
    pub hang_up: bool,
    pub watch: Option<Watch>,
    waiting: VecDeque<Waiting>,
    /// Bytes that this call has worked off.
    spent: usize,
    /// The message that is being handed over: whoever has it gives it away rather than have it copied.
    pub arriving: Option<u64>,
    /// The last batch that is wholly applied.
    applied: Option<u64>,
}

impl Cache {
    pub fn new(terms: &Terms) -> Cache {
        Cache {
            naming: terms.naming,
            rank: terms.rank,
            slice: terms.slice,
            residency: Residency::new(terms.removal, terms.blocks),
            batch: Batch::default(),
            counts: FeedCounts::default(),
            asked: None,
            hang_up: false,
            watch: None,
            waiting: VecDeque::new(),
            spent: 0,
            arriving: None,
            applied: None,
        }
    }

    /// Batches that wait, one that is applied in part among them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The last batch that is wholly applied, while others wait.
    pub fn applied(&self) -> Option<u64> {
        self.applied
    }

    /// A payload so long is not copied, and worked off in pieces.
    pub fn is_long(&self, payload: &[u8]) -> bool {
        payload.len() > self.slice
    }

    /// A new call begins.
    pub fn rest(&mut self) {
        self.spent = 0;
    }

    pub fn act(&mut self, action: Action<'_>, sink: Sink<'_>) -> Effect {
        match action {
            Action::Apply { seq, payload } => return self.apply(seq, payload, sink),
            Action::Clear(reason) => {
                // What waits came before, all of it forgotten with the rest; only a batch that can't be decoded
                // has others behind it that count.
                if reason != Reason::Undecodable {
                    self.waiting.clear();
                }
                self.applied = None;
                self.counts.cleared += 1;
                self.tell(Step::Cleared(reason));
                if self.residency.clear(sink) {
                    self.spent = self.slice;
                }
            }
            Action::AskReplay { attempt, from } => {
                self.counts.replays += 1;
                self.tell(Step::Asked { from });
                self.asked = Some((attempt, from));
            }
            Action::Reconnect => {
                self.tell(Step::Reconnecting);
                self.hang_up = true;
            }
        }
        Effect::Changed
    }

    /// The message that was being handed over: kept if it waits.
    pub fn arrived(&mut self, bytes: &mut Vec<u8>, place: (usize, usize)) {
        let seq = self.arriving.take();
        if let Some(waiting) = self.waiting.iter_mut().rev().find(|it| it.is_awaited(seq)) {
            (waiting.payload, waiting.place) = (std::mem::take(bytes), place);
        }
    }

    /// Works on what waits, up to the end of one batch or of the slice; which batch ended, and what it did.
    pub fn work(&mut self, sink: Sink<'_>) -> Option<(u64, Effect)> {
        while self.spent < self.slice
            && let Some(mut first) = self.waiting.pop_front()
        {
            let ended = match &mut first.stage {
                Stage::Decoding(progress) => {
                    let payload = first.payload.get(first.place.0..first.place.1).unwrap_or_default();
                    let piece = self.slice - self.spent;
                    let done = decode_some(payload, self.naming, &mut self.batch, progress, piece);
                    self.spent += piece.min(payload.len());
                    match done {
                        Ok(false) => None,
                        Ok(true) if self.takes(first.seq) => {
                            (first.payload, first.place) = (Vec::new(), (0, 0));
                            first.stage = Stage::Applying(Applied::default());
                            None
                        }
                        Ok(true) => Some(Effect::Changed),
                        Err(reject) => Some(self.reject(first.seq, reject)),
                    }
                }
                Stage::Applying(at) => self.go_on(at, sink),
            };
            match ended {
                Some(effect) => {
                    self.applied = Some(first.seq);
                    return Some((first.seq, effect));
                }
                None => self.waiting.push_front(first),
            }
        }
        None
    }

    fn apply(&mut self, seq: u64, payload: &[u8], sink: Sink<'_>) -> Effect {
        if self.is_busy() || self.spent >= self.slice || self.is_long(payload) {
            self.put_off(seq, payload);
            return Effect::Changed;
        }
        self.spent += payload.len();
        if let Err(reject) = decode(payload, self.naming, &mut self.batch) {
            return self.reject(seq, reject);
        }
        let mut at = Applied::default();
        let effect = if self.takes(seq) { self.go_on(&mut at, sink) } else { Some(Effect::Changed) };
        match effect {
            Some(_) => self.applied = Some(seq),
            None => {
                let stage = Stage::Applying(at);
                self.waiting.push_back(Waiting { seq, payload: Vec::new(), place: (0, 0), stage });
            }
        }
        effect.unwrap_or(Effect::Changed)
    }

    /// Applies a slice of the batch; what it did, if it is done.
    fn go_on(&mut self, at: &mut Applied, sink: Sink<'_>) -> Option<Effect> {
        let blocks = (self.slice.saturating_sub(self.spent) / BYTES_A_BLOCK).max(1);
        let done = self.residency.apply_some(&self.batch, at, blocks, sink);
        if !done || at.has_cleared_many {
            self.spent = self.slice;
        }
        done.then_some(if at.has_emptied { Effect::Emptied } else { Effect::Changed })
    }

    fn put_off(&mut self, seq: u64, payload: &[u8]) {
        let is_given = self.arriving == Some(seq) && self.is_long(payload);
        let place = (0, payload.len());
        let payload = if is_given { Vec::new() } else { payload.to_vec() };
        self.waiting.push_back(Waiting { seq, payload, place, stage: Stage::Decoding(Progress::default()) });
    }

    /// Counts a decoded batch; whether it is of this rank.
    fn takes(&mut self, seq: u64) -> bool {
        if self.rank.zip(self.batch.rank).is_some_and(|(own, named)| own != named) {
            self.counts.rank_mismatch += 1;
            self.counts.rank_mismatch_run += 1;
            return false;
        }
        self.counts.rank_mismatch_run = 0;
        self.counts.applied += 1;
        self.counts.unknown_events += u64::from(self.batch.unknown);
        if let Some(watch) = &mut self.watch {
            watch(Step::Applied { seq, batch: &self.batch });
        }
        true
    }

    fn reject(&mut self, seq: u64, reject: Reject) -> Effect {
        match reject {
            Reject::Format(_) => self.counts.undecodable += 1,
            _ => self.counts.schema_mismatch += 1,
        }
        self.tell(Step::Undecodable { seq, reject });
        Effect::Undecodable
    }

    fn tell(&mut self, step: Step<'_>) {
        if let Some(watch) = &mut self.watch {
            watch(step);
        }
    }
}
