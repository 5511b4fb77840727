//! What one rank holds, brought into the index tier by tier. Owns which groups count, the rank's holders and
//! the order of writes; must never read an event's bytes.
//!
//! Each tier's holder has also what is nearer to the GPU. Holders below the GPU are made at the first block
//! that is there, filled in slices with what is nearer, and told to decisions when they are whole.

use crate::drain::DrainChange;
use crate::ear::{Ear, Told};
use crate::index::{Index, Sweep};
use crate::names::Names;
use crate::naming::{Naming, spanned};
use crate::observed::Observed;
use crate::questions::Questions;
use crate::residency::{Change, Content, FEW, Residency, Shelf};
use crate::trtllm_json::StoredBlock;
use crate::wire::{Medium, SpecKind, Stored};
use std::ops::Range;
use std::sync::Arc;
use warmpath_core::shared::{Source, Tier};
use warmpath_kvindex::{Holder, Write};

/// Keys that a fill stores at a time.
const SLICE: usize = 4_096;

const TIERS: usize = Tier::ALL.len();

/// The tier of a medium; what is no one's own or not known is the farthest.
fn tier(medium: Medium) -> usize {
    match medium {
        Medium::Gpu => Tier::Gpu as usize,
        Medium::Cpu => Tier::Host as usize,
        Medium::Disk | Medium::External | Medium::Other => Tier::Disk as usize,
    }
}

/// Since the gateway follows this source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldingCounts {
    pub stored: u64,
    pub removed: u64,
    pub refused: u64,
    /// Blocks without a key.
    pub unnamed: u64,
    /// Blocks of another size than the rule's since it was last cleared, and how large.
    pub wrong_size: u64,
    pub wrong_size_seen: u32,
    /// Blocks of the rule's size in a group that counts, since it was last cleared.
    pub counted: u64,
    /// Blocks of groups that don't count.
    pub uncounted_groups: u64,
}

/// Writes that wait at most.
const PENDING: usize = 1_024;

/// Writes for the same holders, in their order: the index asks for the memory of all of them ahead.
#[derive(Default)]
struct Pending {
    tiers: Range<usize>,
    writes: Vec<Write>,
}

/// A holder that is being made.
struct Fill {
    tier: usize,
    hashes: Vec<(u64, u32)>,
}

/// One rank's holders.
pub(crate) struct Holdings {
    source: Arc<Source>,
    rank: u8,
    block_tokens: u32,
    naming: Naming,
    pub names: Names,
    pub observed: Observed,
    pub questions: Questions,
    pub ear: Ear,
    group: Option<u32>,
    holders: [Option<Holder>; TIERS],
    /// The index had no bit for a holder.
    bits_lacking: bool,
    wanted: [bool; TIERS],
    fills: Vec<Fill>,
    pending: Pending,
    /// What is to be swept before anything is stored.
    awaited: Option<Sweep>,
    pub counts: HoldingCounts,
}

impl Holdings {
    /// A rank of which nothing is known; its GPU's holder is registered at once.
    pub fn new(source: Arc<Source>, rank: u8, index: &mut Index) -> Holdings {
        let contract = source.spec().contract;
        let mut holdings = Holdings {
            rank,
            block_tokens: contract.block_size().tokens() as u32,
            naming: Naming::new(contract),
            names: Names::default(),
            observed: Observed::new(contract.is_by_tokens()),
            questions: Questions::default(),
            ear: Ear::default(),
            group: None,
            holders: [None; TIERS],
            bits_lacking: false,
            wanted: [false; TIERS],
            fills: Vec::new(),
            pending: Pending::default(),
            awaited: None,
            counts: HoldingCounts::default(),
            source,
        };
        holdings.register(Tier::Gpu as usize, index);
        holdings.publish(Tier::Gpu as usize);
        holdings
    }

    /// Gives everything back; decisions see no holder from the first step on.
    pub fn release(&mut self, index: &mut Index) {
        for (at, tier) in Tier::ALL.into_iter().enumerate() {
            self.source.set_bit(self.rank, tier, None);
            if let Some(holder) = self.holders[at].take() {
                index.release(holder);
            }
        }
        self.source.set_blocks(self.rank, 0, false);
    }

    /// A change of a published rank.
    pub fn change(&mut self, change: Change<'_>, index: &mut Index) {
        match change {
            Change::Held { shelf, hash, depth, also, event, content } => {
                let was_named = self.naming.key(hash).is_some();
                let key = self.counted_key(shelf, hash, event, content.as_ref(), index);
                // A copy may be named although what it is a copy of could not be: then all of it is news.
                let (medium, also) = match also {
                    Some(also) if !was_named => (also.min(shelf.medium), None),
                    _ => (shelf.medium, also),
                };
                if let Some(key) = key {
                    self.questions.stored(index.now, key);
                    self.held(medium, also, key, depth, index);
                }
            }
            Change::Again { shelf, hash } => {
                let key = self.naming.key(hash).filter(|_| self.group == Some(shelf.group));
                key.into_iter().for_each(|key| self.questions.stored(index.now, key));
            }
            Change::Gone { shelf, hash, also } => self.gone(shelf, hash, also, index),
            Change::Unknown { shelf, hash } if self.group.is_none_or(|own| own == shelf.group) => {
                self.left_unknown(hash, index);
            }
            Change::Unknown { .. } => {}
            Change::Cleared(was) => self.clear(Some(was), index),
        }
    }

    /// A change of a drained rank.
    pub fn drained(&mut self, change: DrainChange<'_>, index: &mut Index) {
        match change {
            DrainChange::Held { shelf, parent, depth, also, block } => {
                self.group = Some(shelf.group);
                match self.naming.name_drained(parent, block, &mut index.scratch) {
                    Some(key) => {
                        self.questions.stored(index.now, key);
                        self.hear_drained(key, parent, block);
                        self.counts.counted += 1;
                        self.held(shelf.medium, also, key, depth, index);
                    }
                    None => self.counts.unnamed += 1,
                }
            }
            DrainChange::Again { hash } => {
                self.naming.key(hash).into_iter().for_each(|key| self.questions.stored(index.now, key));
            }
            DrainChange::Moved { from, to, hash, also } => self.moved(from, to, hash, also, index),
            DrainChange::Gone { shelf, hash, also } => self.gone(shelf, hash, also, index),
            DrainChange::Unknown { hash } => self.left_unknown(hash, index),
            DrainChange::Cleared => {
                self.clear(None, index);
                self.group = None;
            }
        }
    }

    /// Nothing is held any more; of what was, if that is known.
    pub fn clear(&mut self, was: Option<&Residency>, index: &mut Index) {
        // Another process may follow, with blocks of another size.
        (self.counts.wrong_size, self.counts.counted) = (0, 0);
        match was.filter(|was| was.len() <= FEW) {
            Some(was) => self.take_back(was, index),
            None => self.pending.writes.clear(),
        }
        self.names = Names::default();
        self.forget_observed(index);
        self.naming.clear();
        let mut is_stale = false;
        for holder in self.holders.iter().flatten() {
            is_stale |= index.clear(*holder);
        }
        if is_stale {
            self.awaited = index.sweep_under_way();
        }
        self.wanted = [false; TIERS];
        for fill in std::mem::take(&mut self.fills) {
            self.publish(fill.tier);
        }
        for at in 0..TIERS {
            self.publish(at);
        }
    }

    /// Ends the writes of one piece of work: from here on readers see all of it.
    pub fn flush(&mut self, index: &mut Index) {
        for holder in self.holders[self.pending.tiers.clone()].iter().flatten() {
            self.counts.refused += index.write(*holder, &self.pending.writes) as u64;
        }
        self.pending.writes.clear();
        self.pending.tiers = 0..0;
    }

    /// Begins the fill of holders that the last changes asked for.
    pub fn begin_fills(&mut self, residency: &Residency, index: &mut Index) {
        for at in 0..TIERS {
            if std::mem::take(&mut self.wanted[at]) {
                let group = self.group;
                // Also its own tier: a block that was nearer when it came here may have left there since.
                let nearer = residency
                    .depths()
                    .filter(|(shelf, ..)| Some(shelf.group) == group && tier(shelf.medium) <= at);
                let hashes = nearer.map(|(_, hash, depth)| (hash, depth)).collect();
                self.fills.push(Fill { tier: at, hashes });
                // Blocks that answers proved are on the GPU.
                if let Some(holder) = self.holders[at] {
                    for (key, depth) in self.observed.blocks() {
                        index.store(holder, &[key], depth);
                    }
                }
            }
        }
    }

    /// One slice of a fill. What is gone meanwhile stays away.
    pub fn fill(&mut self, residency: &Residency, index: &mut Index) {
        let Some(fill) = self.fills.last_mut() else { return };
        let (at, group) = (fill.tier, self.group.unwrap_or(0));
        let slice = fill.hashes.split_off(fill.hashes.len().saturating_sub(SLICE));
        let is_done = fill.hashes.is_empty();
        let Some(holder) = self.holders[at] else { return drop(self.fills.pop()) };
        for (hash, depth) in slice {
            let nearest = residency.nearest(group, hash);
            if let Some(key) = nearest.filter(|near| tier(*near) <= at).and_then(|_| self.naming.key(hash)) {
                self.counts.refused += index.store(holder, &[key], depth) as u64;
            }
        }
        if is_done {
            self.fills.pop();
            self.publish(at);
        }
    }

    /// Blocks by tier, as the index has them.
    pub fn blocks(&self, index: &Index) -> [u64; TIERS] {
        self.holders.map(|holder| holder.map_or(0, |holder| index.held(holder) as u64))
    }

    /// Whether what it would store next had better wait for a sweep of the index.
    pub fn awaits_sweep(&mut self, index: &Index) -> bool {
        self.awaited = self.awaited.filter(|sweep| !index.is_swept(*sweep));
        self.awaited.is_some()
    }

    /// Whether a tier is being filled.
    pub fn is_filling(&self) -> bool {
        !self.fills.is_empty()
    }

    /// The group whose blocks count, once one was seen.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Whether the index had no bit for one of its holders.
    pub fn lacks_bits(&self) -> bool {
        self.bits_lacking
    }

    /// The holder of a tier; of one without its own, that of the next nearer one, which has as much.
    pub fn holder(&self, of: Tier) -> Option<Holder> {
        self.holders[..=of as usize].iter().rev().find_map(|holder| *holder)
    }

    /// The key of a block that counts: of the rule's size, and in the group whose blocks alone make a prefix.
    /// Of several such groups the first is taken: an engine allocates a request's blocks in all of them.
    fn counted_key(
        &mut self,
        shelf: Shelf,
        hash: u64,
        event: &Stored,
        content: Option<&Content<'_>>,
        index: &mut Index,
    ) -> Option<u64> {
        let is_whole = matches!(event.kind, None | Some(SpecKind::FullAttention | SpecKind::MlaAttention));
        let is_masked = content.is_none() && event.tokens.run().is_some();
        if !is_whole || is_masked || *self.group.get_or_insert(shelf.group) != shelf.group {
            self.counts.uncounted_groups += 1;
            if self.group == Some(shelf.group) {
                self.naming.exclude(hash);
            }
            return None;
        }
        if event.block_size != self.block_tokens {
            self.counts.wrong_size += 1;
            self.counts.wrong_size_seen = event.block_size;
            self.naming.exclude(hash);
            return None;
        }
        if let Some(content) = content {
            self.names.check(hash, event, content, &self.source, &mut index.scratch);
        }
        let key = self.naming.name(hash, event, content, &mut index.scratch);
        match key {
            Some(_) => self.counts.counted += 1,
            None => self.counts.unnamed += 1,
        }
        if let Some(content) = content.filter(|_| self.ear.is_open()) {
            self.hear(hash, key, event, content);
        }
        key
    }

    fn hear(&mut self, hash: u64, key: Option<u64>, event: &Stored, content: &Content<'_>) {
        let tokens = spanned(content);
        let is_plain = event.lora_name.is_none() && event.salt.is_none() && content.extra.is_empty();
        let (rank, parent) = (self.rank, content.parent);
        self.ear.hear(&Told { rank, hash, parent, key, tokens: &tokens, is_plain });
    }

    fn hear_drained(&mut self, key: u64, parent: Option<u64>, block: &StoredBlock) {
        // Parts of blocks are told too.
        if !self.ear.is_open() || block.tokens.len() != self.block_tokens as usize {
            return;
        }
        let tokens: Vec<u32> = block.tokens.iter().map(|token| token.token_id).collect();
        let (rank, hash, key) = (self.rank, block.block_hash.0, Some(key));
        self.ear.hear(&Told { rank, hash, parent, key, tokens: &tokens, is_plain: block.is_plain() });
    }

    fn held(&mut self, medium: Medium, also: Option<Medium>, key: u64, depth: u32, index: &mut Index) {
        let at = tier(medium);
        self.known_by_events(key, at, index);
        if at > 0 && self.holders[at].is_none() && !self.bits_lacking {
            self.flush(index);
            self.register(at, index);
            self.wanted[at] = self.holders[at].is_some();
        }
        self.counts.stored += 1;
        self.write(Write::Store(key, depth), at..also.map_or(TIERS, tier), index);
    }

    fn gone(&mut self, shelf: Shelf, hash: u64, also: Option<Medium>, index: &mut Index) {
        if Some(shelf.group) != self.group {
            return;
        }
        let key = self.naming.key(hash);
        if also.is_none() {
            self.naming.forget(hash);
        }
        if let Some(key) = key {
            self.observed.left(index.now, key);
            self.counts.removed += 1;
            self.write(Write::Remove(key), tier(shelf.medium)..also.map_or(TIERS, tier), index);
        } else {
            // Stored behind a block without a name: an answer may have proven it by its own.
            self.left_unknown(hash, index);
        }
    }

    fn moved(&mut self, from: Shelf, to: Shelf, hash: u64, also: Option<Medium>, index: &mut Index) {
        let Some(key) = self.naming.key(hash) else { return self.left_unknown(hash, index) };
        let near = |medium| also.map_or(tier(medium), |also| tier(also).min(tier(medium)));
        let (before, after) = (near(from.medium), near(to.medium));
        if after > before {
            // Its new tier may have no holder yet.
            self.held(to.medium, None, key, 0, index);
            self.write(Write::Remove(key), before..after, index);
        } else {
            self.write(Write::Store(key, 0), after..before, index);
        }
    }

    /// Takes a few blocks back one by one: then the index has nothing of them to sweep when the rank, as after a
    /// restart, stores anew at once. What may be left is cleared as a whole.
    fn take_back(&mut self, was: &Residency, index: &mut Index) {
        self.flush(index);
        for (at, holder) in self.holders.iter().enumerate() {
            let Some(holder) = holder else { continue };
            let own = was.blocks().filter(|(shelf, ..)| tier(shelf.medium) <= at);
            let keys: Vec<Write> =
                own.filter_map(|(_, hash, _)| self.naming.key(hash)).map(Write::Remove).collect();
            index.write(*holder, &keys);
        }
    }

    fn write(&mut self, write: Write, tiers: Range<usize>, index: &mut Index) {
        if tiers.is_empty() {
            return;
        }
        if self.pending.tiers != tiers || self.pending.writes.len() >= PENDING {
            self.flush(index);
            self.pending.tiers = tiers;
        }
        self.pending.writes.push(write);
    }

    fn register(&mut self, at: usize, index: &mut Index) {
        self.holders[at] = index.register(self.source.holder_name(self.rank, Tier::ALL[at]));
        self.bits_lacking |= self.holders[at].is_none();
        // Its bit may have been another's a moment ago.
        self.awaited = self.awaited.or(index.sweep_under_way());
    }

    /// From now on decisions see this holder.
    fn publish(&self, at: usize) {
        let bit = self.holders[at].map(|holder| holder.bit());
        self.source.set_bit(self.rank, Tier::ALL[at], bit);
    }
}

mod learn;
#[cfg(test)]
mod tests;
