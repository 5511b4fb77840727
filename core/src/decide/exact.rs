//! Tier 1.5: which endpoint and rank serve a prompt, by who holds its leading blocks. Owns the ranked list and
//! its total order; must never read an index, a counter or a clock: all it knows is in the [`Question`].
//!
//! A run below the minimum depth is no overlap at all. (The loxilb AI gateway asks for the depth only of its
//! winner, and gives up where a deeper one was over its cap.) Endpoints that are down or excluded take part
//! in nothing, so that a winner that is excluded leaves its place to the second best.
//!
//! The list has an endpoint once (a cold one that is seeded aside), with the bound that
//! [`crate::shared::EndpointState::reserve`] takes: where others were charged meanwhile and it is refused, the
//! caller goes on to the next.

mod explain;
mod law;
mod miss;

pub use explain::{Explanation, Outcome, SHOWN_MAX, Shown};
pub use miss::{Miss, ZeroHits, zero_hits};

use super::Reason;
use super::tuning::{LbMode, Tuning};
use crate::attest;
use crate::block::BlockSize;
use crate::fleet::Excluded;
use law::Sums;

/// The rank of a candidate that stands for all ranks of its endpoint (`kvRankMode: union`).
pub const ANY_RANK: u8 = u8::MAX;

/// Candidates with overlap that are listed at most; ranks of one endpoint count apart.
const RANKED_MAX: usize = 64;

/// Endpoints that are listed at most to relieve another one.
const RELIEF_MAX: usize = 16;

/// One rank of an endpoint at the moment of a decision, or all of its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Index of the endpoint in the rule.
    pub endpoint: u16,
    /// Data-parallel rank, or [`ANY_RANK`].
    pub rank: u8,
    /// Leading blocks of the prompt on the GPU, on the GPU or in the host's memory, and anywhere.
    pub runs: [u32; 3],
    /// By how many blocks on the GPU the ranks that it stands for differ; 0 for one rank.
    pub spread: u32,
    /// Leading blocks that are there or will be, once the requests in flight have brought theirs.
    pub promised: u32,
    /// The endpoint's requests in flight, of all shards and ranks.
    pub load: u32,
    /// Requests in flight that were sent to this rank by name.
    pub rank_load: u32,
    /// Blocks that the engine has room for, the same for all ranks of an endpoint; 0: unknown.
    pub capacity: u32,
    /// Blocks that it holds now, of any prompt.
    pub held: u32,
    /// Healthy, not ejected, not draining.
    pub available: bool,
    /// Only when no other is available.
    pub backup: bool,
    /// Its source is left out of exact routing: runs and promises don't count, and it is not seeded.
    pub fenced: bool,
    /// It is left out because its answers contradict what was predicted: `fenced` is true too.
    pub untrusted: bool,
    /// It is left out because this is not proven of it, under a rule with a model profile: `fenced` is true too.
    pub unproven: Option<attest::Reason>,
}

/// What one decision knows.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Ascending by endpoint, then by rank.
    pub candidates: &'a [Candidate],
    /// Full blocks of the prompt.
    pub blocks: u32,
    /// Tokens in a block.
    pub block_size: BlockSize,
    /// Endpoints not to choose.
    pub excluded: Excluded,
    /// Whether the rule has a single pool (`kvExactMode` 3): spill relief is on there unless set off.
    pub single_pool: bool,
    /// The knobs.
    pub tuning: &'a Tuning,
}

/// One place of the ranked list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index into [`Question::candidates`].
    pub candidate: u16,
    /// Requests in flight beyond which the reservation must be refused and the next place taken.
    pub bound: u32,
    /// What would have decided.
    pub reason: Reason,
    /// The endpoint whose overlap was passed over for this one.
    pub instead_of: Option<u16>,
    /// Worth of the overlap in thousandths of a block on the GPU. For a seeded endpoint that of the one whose
    /// place it takes.
    pub score: u64,
}

/// The ranked list, in memory that is used again: nothing is allocated once it has grown to a pool's size.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    places: Vec<Place>,
    others: Vec<u128>,
    choices: Vec<Choice>,
    plain: Option<Place>,
    count: u16,
}

impl Ranking {
    /// The list, best first. Empty after a miss.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }
}

/// A candidate with overlap, as it is ordered: by what the mode weighs, then plainly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    weight: u64,
    plain: u128,
    bound: u32,
}

impl Place {
    /// The plain order: most overlap, fewest requests in flight, lowest endpoint; among its ranks fewest
    /// requests sent by name, lowest rank. `off` does not look at loads.
    fn new(index: usize, candidate: &Candidate, worth: u64, loads: bool) -> Place {
        let load = if loads { candidate.load } else { 0 };
        let rank_load = if loads { candidate.rank_load.min(0xffff) } else { 0 };
        let plain = u128::from(WORTH_MAX - worth) << 80
            | u128::from(load) << 48
            | u128::from(candidate.endpoint) << 32
            | u128::from(rank_load) << 16
            | u128::from(index as u16);
        Place { weight: 0, plain, bound: u32::MAX }
    }

    fn index(self) -> usize {
        usize::from(self.plain as u16)
    }

    fn worth(self) -> u64 {
        WORTH_MAX - (self.plain >> 80) as u64
    }
}

const WORTH_MAX: u64 = (1 << 48) - 1;

/// Ranks the candidates for one prompt. `hit` counts a hit and tells its number, from 1; it is asked once, and
/// only where there is one. What is left to the caller is to reserve, in the order of the list.
pub fn rank(question: &Question, hit: impl FnOnce() -> u64, ranking: &mut Ranking) -> Result<(), Miss> {
    ranking.places.clear();
    ranking.choices.clear();
    ranking.plain = None;
    let pool = Pool::new(question);
    ranking.count = pool.count;
    pool.admit()?;
    let holders = pool.find(&mut ranking.places)?;
    let factor = law::load_factor(question.tuning, holders.load);
    pool.weigh(&holders, factor, &mut ranking.places);
    let Some(plain) = ranking.places.iter().copied().min_by_key(|place| place.plain) else {
        return Err(Miss::NoWorker);
    };
    ranking.plain = Some(plain);
    pool.settle(&mut ranking.places);
    let mut list = List { pool: &pool, plain, factor, seen: Excluded::default(), ranking };
    list.fill();
    list.seed(hit());
    Ok(())
}

/// The candidates that one decision may choose from: primary ones, or backups where no primary one is left.
struct Pool<'q, 'a> {
    question: &'q Question<'a>,
    backup: bool,
    count: u16,
    fleet: Sums,
}

impl<'q, 'a> Pool<'q, 'a> {
    fn new(question: &'q Question<'a>) -> Pool<'q, 'a> {
        let may = |c: &Candidate| c.available && !question.excluded.contains(usize::from(c.endpoint));
        let backup = !question.candidates.iter().any(|c| may(c) && !c.backup);
        let mut pool = Pool { question, backup, count: 0, fleet: Sums::default() };
        let (mut fleet, mut count, mut last) = (Sums::default(), 0, None);
        for (_, candidate) in pool.open() {
            count += 1;
            if last.replace(candidate.endpoint) != Some(candidate.endpoint) {
                fleet.add(candidate);
            }
        }
        (pool.count, pool.fleet) = (count, fleet);
        pool
    }

    fn open(&self) -> impl Iterator<Item = (usize, &'a Candidate)> {
        let (excluded, backup) = (self.question.excluded, self.backup);
        let fits = move |c: &Candidate| {
            c.available && c.backup == backup && !excluded.contains(usize::from(c.endpoint))
        };
        self.question.candidates.iter().enumerate().filter(move |(_, c)| fits(c))
    }

    /// What forbids exact routing whatever is held.
    fn admit(&self) -> Result<(), Miss> {
        if self.question.blocks == 0 {
            return Err(Miss::Hashes);
        }
        if self.count == 0 {
            return Err(Miss::Excluded);
        }
        if self.open().all(|(_, c)| c.fenced) {
            return Err(self.left_out());
        }
        let loads = || self.open().map(|(_, c)| c.load);
        match self.question.tuning.load_guard {
            Some(most) if loads().max().unwrap_or(0) - loads().min().unwrap_or(0) > most => {
                Err(Miss::LoadGuard)
            }
            _ => Ok(()),
        }
    }

    /// Why all are left out: what is lacking of the first, where each lacks some proof.
    fn left_out(&self) -> Miss {
        let unproven = self.open().next().and_then(|(_, c)| c.unproven);
        match unproven.filter(|_| self.open().all(|(_, c)| c.unproven.is_some())) {
            Some(reason) => Miss::Unproven(reason),
            None if self.open().all(|(_, c)| c.untrusted) => Miss::Untrusted,
            None => Miss::Fenced,
        }
    }

    /// Lists the open candidates with enough overlap; load and capacity of their endpoints.
    fn find(&self, places: &mut Vec<Place>) -> Result<Sums, Miss> {
        let Question { blocks, block_size, tuning, .. } = self.question;
        let depth = law::minimum_depth(tuning, block_size.tokens() as u32, *blocks);
        let holders = self.collect(depth, places);
        if !places.is_empty() {
            return Ok(holders);
        }
        let deep = |c: &Candidate| {
            !c.fenced && c.backup <= self.backup && c.depth() >= depth && law::worth(c, tuning) > 0
        };
        if self.question.candidates.iter().any(deep) {
            return Err(Miss::Excluded);
        }
        self.collect(1, places);
        match places.is_empty() {
            false => Err(Miss::Shallow),
            true if self.open().all(|(_, c)| c.fenced || c.held == 0) => Err(Miss::NoSignal),
            true => Err(Miss::NoWorker),
        }
    }

    fn collect(&self, depth: u32, places: &mut Vec<Place>) -> Sums {
        let tuning = self.question.tuning;
        let (mut holders, mut last) = (Sums::default(), None);
        for (index, candidate) in self.open().filter(|(_, c)| !c.fenced && c.depth() >= depth) {
            let worth = law::worth(candidate, tuning);
            if worth == 0 {
                continue;
            }
            places.push(Place::new(index, candidate, worth, tuning.mode != LbMode::Off));
            if last.replace(candidate.endpoint) != Some(candidate.endpoint) {
                holders.add(candidate);
            }
        }
        holders
    }

    /// Gives each place what its mode orders by, and the bound of its reservation.
    fn weigh(&self, holders: &Sums, factor: u32, places: &mut [Place]) {
        let Question { blocks, tuning, .. } = self.question;
        let penalty = law::load_penalty(tuning, holders.load);
        for place in places {
            let candidate = self.candidate(place);
            match tuning.mode {
                LbMode::Off => {}
                LbMode::Soft | LbMode::AdaptiveSoft => {
                    place.weight = law::cost(candidate, *blocks, place.worth(), penalty);
                }
                LbMode::Hard | LbMode::Adaptive => {
                    place.bound = holders.cap(factor, law::capacity(candidate));
                }
            }
        }
    }

    /// Brings the best to the front and leaves out those over their cap. Where all are, the least loaded is the
    /// best, and may carry one more than it does.
    fn settle(&self, places: &mut Vec<Place>) {
        let fits = |place: &Place| self.candidate(place).load < place.bound;
        if places.iter().any(fits) {
            places.retain(fits);
        } else {
            for place in places.iter_mut() {
                let load = self.candidate(place).load;
                (place.weight, place.bound) = (u64::from(load), load.saturating_add(1));
            }
        }
        keep_least(places, RANKED_MAX);
    }

    fn candidate(&self, place: &Place) -> &'a Candidate {
        &self.question.candidates[place.index()]
    }
}

impl Candidate {
    /// Leading blocks that are there or on their way.
    fn depth(&self) -> u32 {
        self.runs.into_iter().fold(self.promised, u32::max)
    }

    /// Whether more is on its way than is there.
    fn is_mostly_promised(&self) -> bool {
        let held = self.runs.into_iter().fold(0, u32::max);
        self.promised.saturating_sub(held) > held
    }
}

/// Keeps the `most` least elements, in order.
fn keep_least<T: Ord>(list: &mut Vec<T>, most: usize) {
    if list.len() > most {
        list.select_nth_unstable(most);
        list.truncate(most);
    }
    list.sort_unstable();
}

/// The list while it is written.
struct List<'l, 'q, 'a> {
    pool: &'l Pool<'q, 'a>,
    plain: Place,
    factor: u32,
    seen: Excluded,
    ranking: &'l mut Ranking,
}

impl List<'_, '_, '_> {
    fn candidate(&self, index: usize) -> &Candidate {
        &self.pool.question.candidates[index]
    }

    /// What an endpoint may carry of the whole pool's load.
    fn fleet_cap(&self, index: usize) -> u32 {
        self.pool.fleet.cap(self.factor, law::capacity(self.candidate(index)))
    }

    fn relieves(&self) -> bool {
        let Question { tuning, single_pool, .. } = self.pool.question;
        tuning.mode != LbMode::Off && tuning.spill_relief.unwrap_or(*single_pool)
    }

    /// The winner first. Where the whole pool's cap is what bounds it and is reached, those that relieve it come
    /// before; where that cap is near, others with overlap under theirs come next, and then those that relieve.
    fn fill(&mut self) {
        let winner = self.ranking.places[0];
        let relieves = self.relieves();
        let by_fleet = winner.plain == self.plain.plain && self.fleet_cap(winner.index()) < winner.bound;
        if relieves && by_fleet && self.has_room(winner.index()) {
            self.holders(true);
        }
        if relieves && by_fleet {
            self.relief();
        }
        self.holders(false);
        if relieves && !by_fleet {
            self.relief();
        }
    }

    /// Lists those with overlap; with `share` only those under the whole pool's cap, and up to it.
    fn holders(&mut self, share: bool) {
        for at in 0..self.ranking.places.len() {
            let place = self.ranking.places[at];
            let index = place.index();
            match share {
                true if self.has_room(index) => self.push(place, place.bound.min(self.fleet_cap(index))),
                true => {}
                false => self.push(place, place.bound),
            }
        }
    }

    /// Whether an endpoint is under the whole pool's cap.
    fn has_room(&self, index: usize) -> bool {
        self.candidate(index).load < self.fleet_cap(index)
    }

    /// Lists a candidate with overlap, unless its endpoint is there.
    fn push(&mut self, place: Place, bound: u32) {
        let home = self.candidate(self.plain.index()).endpoint;
        let candidate = self.candidate(place.index());
        let (reason, instead_of) = match place.plain == self.plain.plain {
            true if candidate.is_mostly_promised() => (Reason::ExactPromised, None),
            true => (Reason::Exact, None),
            false => (Reason::ExactSpill, Some(home)),
        };
        let endpoint = usize::from(candidate.endpoint);
        if !self.seen.contains(endpoint) {
            self.seen.add(endpoint);
            let (candidate, score) = (place.index() as u16, place.worth());
            self.ranking.choices.push(Choice { candidate, bound, reason, instead_of, score });
        }
    }

    /// Lists endpoints under the whole pool's cap, whatever they hold: fewest requests in flight, lowest
    /// endpoint; of its ranks the one with most overlap.
    fn relief(&mut self) {
        self.ranking.others.clear();
        for (index, candidate) in self.pool.open() {
            let listed = self.seen.contains(usize::from(candidate.endpoint));
            if !listed && self.has_room(index) {
                let worth =
                    if candidate.fenced { 0 } else { law::worth(candidate, self.pool.question.tuning) };
                let key = u128::from(candidate.load) << 96
                    | u128::from(candidate.endpoint) << 80
                    | u128::from(WORTH_MAX - worth) << 32
                    | u128::from(candidate.rank_load.min(0xffff)) << 16
                    | u128::from(index as u16);
                self.ranking.others.push(key);
            }
        }
        keep_least(&mut self.ranking.others, RELIEF_MAX);
        for at in 0..self.ranking.others.len() {
            self.push_relief(self.ranking.others[at]);
        }
    }

    fn push_relief(&mut self, key: u128) {
        let candidate = key as u16;
        let index = usize::from(candidate);
        let endpoint = usize::from(self.candidate(index).endpoint);
        if self.seen.contains(endpoint) {
            return;
        }
        self.seen.add(endpoint);
        self.ranking.choices.push(Choice {
            candidate,
            bound: self.fleet_cap(index),
            reason: Reason::ExactRelief,
            instead_of: Some(self.candidate(self.plain.index()).endpoint),
            score: WORTH_MAX - (key >> 32 & u128::from(WORTH_MAX)) as u64,
        });
    }

    /// Every so many hits the first cold rank takes the winner's place, and its score, if the whole pool's cap
    /// lets it.
    fn seed(&mut self, hit: u64) {
        let tuning = self.pool.question.tuning;
        let Some(displaced) = self.ranking.choices.first().copied() else { return };
        if tuning.seed_every == 0 || !hit.is_multiple_of(u64::from(tuning.seed_every)) {
            return;
        }
        let from = self.candidate(usize::from(displaced.candidate)).endpoint;
        let is_cold = |index: usize, c: &Candidate| {
            !c.fenced && c.held < tuning.seed_below_blocks.max(1) && index != usize::from(displaced.candidate)
        };
        if let Some((index, _)) = self.pool.open().find(|(index, c)| is_cold(*index, c)) {
            let seeded = Choice {
                candidate: index as u16,
                bound: self.fleet_cap(index),
                reason: Reason::ExactSeed,
                instead_of: Some(from),
                score: displaced.score,
            };
            self.ranking.choices.insert(0, seeded);
        }
    }
}

/// Makes one candidate of all ranks of each endpoint, for `kvRankMode: union` and engines that take no rank:
/// the longest run of any rank, and what all of them hold. A union of their sets is not computed: blocks that
/// only several ranks together hold make no longer run here.
pub fn union(candidates: &mut Vec<Candidate>) {
    candidates.iter_mut().for_each(|c| c.rank_load = 0);
    candidates.dedup_by(|rank, all| {
        let same = rank.endpoint == all.endpoint;
        if same {
            *all = joined(*all, *rank);
        }
        same
    });
    candidates.iter_mut().for_each(|c| c.rank = ANY_RANK);
}

/// Two ranks of one endpoint as one candidate.
fn joined(one: Candidate, other: Candidate) -> Candidate {
    let least = (one.runs[0] - one.spread).min(other.runs[0] - other.spread);
    let runs: [u32; 3] = std::array::from_fn(|tier| one.runs[tier].max(other.runs[tier]));
    Candidate {
        rank: ANY_RANK,
        runs,
        spread: runs[0] - least,
        promised: one.promised.max(other.promised),
        held: one.held.saturating_add(other.held),
        // Which of them serves the request nobody knows.
        fenced: one.fenced || other.fenced,
        unproven: one.unproven.or(other.unproven),
        ..one
    }
}

/// What is known of an endpoint where the engine chooses the rank.
pub fn any_rank(ranks: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    ranks.reduce(joined).map(|all| Candidate { rank: ANY_RANK, ..all })
}

#[cfg(test)]
mod burst;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
