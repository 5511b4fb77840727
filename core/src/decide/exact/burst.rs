//! 64 requests of one prefix at once, over several shards that share endpoints and promises, in every order that
//! a seed gives their steps. Owns the simulated shards; must never use what two shards could not share.

use super::tests::{Random, ask, holder};
use super::{Candidate, Ranking, rank};
use crate::MILLISECOND;
use crate::decide::Reason;
use crate::decide::tuning::{LbMode, Tuning};
use crate::shared::{Destination, EndpointState, Promises, promised_keys};

const REQUESTS: u32 = 64;

/// Times a request is ranked before it goes to the least loaded.
const RANKINGS: u32 = 3;

const KEYS: [u64; 6] = [11, 22, 33, 44, 55, 66];

struct World {
    tuning: Tuning,
    /// Holders of the prefix come first.
    holders: u16,
    endpoints: Vec<EndpointState>,
    promises: Promises,
    promising: bool,
    settling: bool,
    /// By endpoint, whether it computes the prefix anew.
    prefills: Vec<bool>,
    most: Vec<u32>,
    by_reason: Vec<Reason>,
}

/// What a shard does next for the request it is at.
enum Step {
    Decide { rankings: u32 },
    Reserve { place: usize, rankings: u32 },
    Promise { endpoint: usize },
}

struct Shard {
    left: u32,
    step: Step,
    ranking: Ranking,
    candidates: Vec<Candidate>,
    charged: Vec<usize>,
}

impl World {
    fn new(endpoints: u16, holders: u16, tuning: Tuning) -> World {
        let address = |i| format!("127.0.0.1:{}", 1 + i).parse().unwrap();
        World {
            tuning,
            holders,
            endpoints: (0..endpoints).map(|i| EndpointState::new(address(i))).collect(),
            // A bucket for each key: what the table forgets is another test's.
            promises: Promises::new(1 << 14),
            promising: true,
            settling: false,
            prefills: vec![false; usize::from(endpoints)],
            most: vec![0; usize::from(endpoints)],
            by_reason: Vec::new(),
        }
    }

    /// All requests over `shards` shards, a step of a random one at a time.
    fn run(&mut self, shards: usize, random: &mut Random) {
        let shard = |_| Shard {
            left: REQUESTS / shards as u32,
            step: Step::Decide { rankings: 0 },
            ranking: Ranking::default(),
            candidates: Vec::new(),
            charged: Vec::new(),
        };
        let mut all: Vec<Shard> = (0..shards).map(shard).collect();
        while all.iter().any(|shard| shard.left > 0) {
            let shard = &mut all[random.below(shards as u64) as usize];
            if self.settling && !shard.charged.is_empty() && random.below(3) == 0 {
                let at = random.below(shard.charged.len() as u64) as usize;
                self.endpoints[shard.charged.swap_remove(at)].settle();
            } else if shard.left > 0 {
                self.step(shard);
            }
        }
        for endpoint in all.iter().flat_map(|shard| &shard.charged) {
            self.endpoints[*endpoint].settle();
        }
        assert!(self.endpoints.iter().all(|endpoint| endpoint.reserved() == 0));
    }

    fn step(&mut self, shard: &mut Shard) {
        match shard.step {
            Step::Decide { rankings } => {
                self.view(&mut shard.candidates);
                let _ = rank(&ask(&shard.candidates, &self.tuning), || 1, &mut shard.ranking);
                shard.step = Step::Reserve { place: 0, rankings: rankings + 1 };
            }
            Step::Reserve { place, rankings } => {
                let taken = match shard.ranking.choices().get(place) {
                    Some(choice) => {
                        let endpoint = usize::from(shard.candidates[usize::from(choice.candidate)].endpoint);
                        Some((endpoint, choice.bound, Some(choice.reason)))
                    }
                    // A miss, or all were bounded: anew, and in the end by the next tier.
                    None if place > 0 && rankings < RANKINGS => {
                        return shard.step = Step::Decide { rankings };
                    }
                    None => (0..self.endpoints.len())
                        .min_by_key(|i| self.endpoints[*i].reserved())
                        .map(|least| (least, u32::MAX, None)),
                };
                let (endpoint, bound, reason) = taken.unwrap();
                if self.endpoints[endpoint].reserve(bound) {
                    self.by_reason.extend(reason);
                    self.check_bound(endpoint, reason);
                    self.most[endpoint] = self.most[endpoint].max(self.endpoints[endpoint].reserved());
                    shard.charged.push(endpoint);
                    shard.step = Step::Promise { endpoint };
                } else {
                    shard.step = Step::Reserve { place: place + 1, rankings };
                }
            }
            Step::Promise { endpoint } => {
                let held = if endpoint < usize::from(self.holders) { KEYS.len() as u32 } else { 0 };
                self.prefills[endpoint] |= held == 0;
                if self.promising {
                    self.promises.make(promised_keys(&KEYS, held), destination(endpoint), MILLISECOND);
                }
                shard.left -= 1;
                shard.step = Step::Decide { rankings: 0 };
            }
        }
    }

    /// What a shard sees of the endpoints now.
    fn view(&self, candidates: &mut Vec<Candidate>) {
        candidates.clear();
        let found = self.promising.then(|| self.promises.look(&KEYS, 0, 2 * MILLISECOND));
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let held = if index < usize::from(self.holders) { KEYS.len() as u32 } else { 0 };
            let promised = found.map_or(held, |found| found.run(destination(index), held));
            candidates.push(Candidate { promised, ..holder(index as u16, held, endpoint.reserved()) });
        }
    }

    /// While requests only come, nobody but the next tier passes the cap of this moment, not even by one.
    fn check_bound(&self, endpoint: usize, reason: Option<Reason>) {
        if reason.is_some() && !self.settling && self.holders > 0 && self.tuning.spill_relief == Some(false) {
            let before = self.endpoints.iter().map(|e| e.reserved()).sum::<u32>() - 1;
            assert!(self.endpoints[endpoint].reserved() <= cap_at(before, self.holders));
        }
    }

    fn paid(&self) -> usize {
        self.prefills.iter().filter(|prefill| **prefill).count()
    }
}

fn destination(endpoint: usize) -> Destination {
    Destination { source: endpoint as u32, rank: 0 }
}

fn tuning(mode: LbMode, relief: bool) -> Tuning {
    Tuning { mode, spill_relief: Some(relief), seed_every: 0, ..Tuning::default() }
}

/// While requests only come, and while they come and go: the bound of `hard` for those that hold the prefix is
/// not passed, that of the whole pool with relief by no more than one reservation a shard.
#[test]
fn a_hot_prefix_obeys_the_bound_over_all_shards() {
    let mut spilled = 0;
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let (shards, settling) = ([2, 4][seed as usize % 2], seed % 4 > 1);
        let (pool, holders) = [(4, 4), (3, 2), (4, 1), (4, 2)][seed as usize / 4 % 4];
        let relief = seed / 4 % 4 > 1;
        let mut world = World::new(pool, holders, tuning(LbMode::Hard, relief));
        world.settling = settling;
        world.promising = false;
        world.run(shards, &mut random);
        let bound = match relief {
            true => cap_at(REQUESTS, pool) + shards as u32,
            false => cap_at(REQUESTS, holders),
        };
        assert!(world.most.iter().all(|most| *most <= bound), "seed {seed}: {:?} over {bound}", world.most);
        spilled += world.by_reason.iter().filter(|r| **r != Reason::Exact).count();
    }
    assert!(spilled > 10_000, "the bound was of no account");
}

/// Nobody holds it. Without relief whoever computes it gets all that come after; with relief so many compute it
/// as the whole pool's bound demands. Each shard may decide once more before it knows.
#[test]
fn a_new_prefix_is_computed_no_oftener_than_the_bound_demands() {
    let (mut alone, pool) = (0, 16);
    let demanded = (0..REQUESTS).map(|load| load / cap_at(load, pool) + 1).max().unwrap() as usize;
    assert_eq!(demanded, 10);
    for seed in 0..1_000 {
        let (shards, relief) = ([2, 4][seed as usize % 2], seed % 4 > 1);
        let mut world = World::new(pool, 0, tuning(LbMode::Hard, relief));
        world.run(shards, &mut Random(seed));
        let most = if relief { demanded + shards } else { shards };
        assert!(world.paid() <= most, "seed {seed}: {} over {most}", world.paid());
        alone += usize::from(world.paid() == 1);
    }
    assert!(alone > 50, "{alone}");
}

/// A pool of `count` equal endpoints with `load` requests: what each may carry.
fn cap_at(load: u32, count: u16) -> u32 {
    (175 * load).div_ceil(100 * u32::from(count)).max(1)
}

/// What the above would be without promises: everybody computes it.
#[test]
fn without_promises_every_endpoint_computes_it() {
    let mut world = World::new(16, 0, tuning(LbMode::Hard, true));
    world.promising = false;
    world.run(4, &mut Random(1));
    assert_eq!(world.paid(), 16);
}
