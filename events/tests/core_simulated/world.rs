//! Two engines, one rule over both and another over the first, the event core, and the oracle.

use crate::engine::{Engine, Faults, PUBLISH, REPLAY, SERVE};
use crate::model::{Keys, Kind, Model};
use crate::random::Random;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::block::BlockSize;
use warmpath_core::control::RankReport;
use warmpath_core::engine::{Algo, Contract, Engine as EngineKind, Seed, Terms};
use warmpath_core::rule::{
    Deadlines, Endpoint, ExplainHeader, GateTerms, HalfClose, KvExact, KvPorts, PathMatch, RankMode, Role,
    Rule, RuleKey, Selector,
};
use warmpath_core::shared::{Source, Tier};
use warmpath_core::table::Table;
use warmpath_core::{MILLISECOND, SECOND};
use warmpath_events::continuity::Policy;
use warmpath_events::eventcore::{EventCore, Pace, Settings};
use warmpath_kvindex::{HolderSet, Plan, Reader, index};
use warmpath_ring::sim::{Sim, Weather};
use warmpath_ring::{Ring, Sizes};

#[path = "proofs.rs"]
mod proofs;

use proofs::Proofs;

const RANKS: usize = 2;

/// What runs have come to.
#[derive(Debug, Default)]
pub struct Seen {
    pub ranks: u64,
    pub complete: u64,
    pub fenced: u64,
    pub hosts: u64,
    pub restarts: u64,
    pub thefts: u64,
    /// Times that a rank had not yet applied all that it had taken.
    pub waited: u64,
    /// Blocks that answers made known.
    pub learned: u64,
    /// Of these, still believed after quiet.
    pub observed: u64,
}

pub struct World {
    core: EventCore<Sim>,
    reader: Reader,
    engines: Vec<Rc<RefCell<Engine>>>,
    universe: Vec<u64>,
    table: Table,
    /// Engine and source.
    followed: Vec<(usize, Arc<Source>)>,
    /// What was counted when all was checked last: sequence, changes, blocks of each rank.
    checked: Vec<(Option<u64>, u64, [u64; 3])>,
    numbers: u32,
    exact: KvExact,
    random: Random,
    replay: bool,
    seed: u64,
    /// Answers prove blocks, unless none.
    proofs: Option<Proofs>,
}

fn contract(kind: Kind) -> Contract {
    let (engine, algo, tokens) = match kind {
        Kind::Contract => (EngineKind::Vllm, Algo::Sha256Cbor, 4),
        Kind::Tokens => (EngineKind::Vllm, Algo::Tokens, 4),
        Kind::Drained => (EngineKind::Trtllm, Algo::BlockhashTrtllm, 32),
    };
    let block_size = BlockSize::new(tokens).expect("a size");
    let terms = Terms { seed: Seed::Given("0"), ..Terms::plain(algo, block_size) };
    engine.contract(&terms).expect("a contract")
}

fn ip(engine: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + engine as u8])
}

fn rule(port: u16, engines: &[usize], exact: KvExact) -> Rule {
    let vip = SocketAddr::from(([10, 1, 0, 1], port));
    let endpoint = |engine: &usize| Endpoint {
        address: SocketAddr::new(ip(*engine), SERVE),
        weight: 1,
        backup: false,
        role: Role::Normal,
        side_port: SERVE,
        engine_id: "".into(),
    };
    let (host, path, model) = (String::new(), String::new(), "m".to_owned());
    Rule {
        key: RuleKey { vip, host, path, path_match: PathMatch::Disabled, model },
        id: String::new(),
        name: String::new(),
        selector: Selector::RoundRobin,
        disaggregation: None,
        endpoints: engines.iter().map(endpoint).collect(),
        deadlines: Deadlines::default(),
        probe: None,
        sse_mode: false,
        retry_before_first_byte: 0,
        half_close: HalfClose::Leave,
        engine: exact.contract.engine(),
        exact: Some(exact),
        breaker: None,
        session: None,
        gate: GateTerms::default(),
        cache_aware: None,
        explain: ExplainHeader::Off,
        enabled: true,
    }
}

impl World {
    pub fn new(seed: u64, kind: Kind, (replay, slice): (bool, usize), faults: Faults) -> World {
        let mut random = Random::new(seed);
        let contract = contract(kind);
        let sizes = Sizes { buffers: 64, buffer_bytes: 4_096, ..Sizes::default() };
        let mut sim = Sim::new(seed, sizes, Weather::default());
        let tells = replay && random.below(2) == 0;
        let engines: Vec<_> = (0..2)
            .map(|engine| {
                let buffer = random.pick(&[20, 10_000, 10_000]);
                let model =
                    Model::new(kind, contract, RANKS, if faults.restart > 0 { buffer } else { 10_000 });
                let random = Random::new(seed ^ (engine as u64 + 1) << 40);
                Engine::join(&mut sim, ip(engine), model, RANKS, tells, random, faults)
            })
            .collect();
        let plan = Plan::for_blocks(2_000, 64, 1).expect("a plan");
        let (writer, readers) = index(plan, seed);
        let replay = if tells || !replay { 0 } else { REPLAY };
        let exact = KvExact {
            contract,
            version: None,
            ports: KvPorts { publish: PUBLISH, replay, bind: false },
            ranks: RANKS as u8,
            rank_mode: RankMode::Pin,
            warmup: 0,
            profile: Default::default(),
        };
        let policy = Policy { replay_wait: 6 * SECOND, probe_after: 5 * SECOND, ..Policy::default() };
        let pace = Pace { min: 50 * MILLISECOND, max: 200 * MILLISECOND };
        let universe = engines[0].borrow().model.universe();
        let mut world = World {
            core: EventCore::new(sim, writer, Settings { policy, pace, seed, slice, ..Settings::default() }),
            reader: readers.reader().expect("a reader"),
            engines,
            universe,
            table: Table::default(),
            followed: Vec::new(),
            checked: Vec::new(),
            numbers: 0,
            exact,
            random,
            replay: replay > 0 || tells,
            seed,
            proofs: None,
        };
        world.follow(&[0, 1]);
        world
    }

    fn follow(&mut self, engines: &[usize]) {
        let rules = vec![rule(80, engines, self.exact.clone()), rule(81, &[0], self.exact.clone())];
        self.table = Table::next(&self.table, rules, &mut self.numbers, 0);
        assert_eq!(self.table.sources().len(), engines.len(), "rules with one spec share one source");
        self.core.follow(&self.table);
        let engine_of = |source: &Arc<Source>| (0..2).find(|at| ip(*at) == source.spec().endpoint.ip());
        let sources = self.table.sources().into_iter();
        self.followed = sources.map(|source| (engine_of(&source).expect("one of ours"), source)).collect();
    }

    /// Answers prove blocks from now on.
    pub fn with_proofs(mut self) -> World {
        self.proofs = Some(Proofs::default());
        self
    }

    fn now(&mut self) -> u64 {
        self.core.ring().now()
    }

    /// Seconds in which things go wrong; in the midst the second engine leaves the rule and comes back.
    pub fn chaos(&mut self, seconds: u64, seen: &mut Seen) {
        self.run(seconds / 2, seen);
        if self.random.below(3) == 0 {
            self.follow(&[0]);
            self.run(1, seen);
            self.follow(&[0, 1]);
        }
        self.run(seconds / 2, seen);
    }

    /// Nothing goes wrong; first busy, then silent. Drained engines that were robbed start anew.
    pub fn quiet(&mut self, seen: &mut Seen) {
        self.engines.iter().for_each(|engine| engine.borrow_mut().calm(20));
        self.run(26, seen);
        self.engines.iter().for_each(|engine| engine.borrow_mut().calm(0));
        self.run(7, seen);
    }

    fn run(&mut self, seconds: u64, seen: &mut Seen) {
        let until = self.now() + seconds * SECOND;
        while self.now() < until {
            self.core.turn(Some(Duration::from_millis(500))).expect("a simulated ring");
            self.prove();
            self.check(seen);
        }
    }

    /// Who holds what, by the index: a set of bits for each block.
    fn held(&mut self) -> Vec<HolderSet> {
        let view = self.reader.view();
        for (_, source) in &self.followed {
            for (rank, tier) in (0..RANKS as u8).flat_map(|rank| Tier::ALL.map(|tier| (rank, tier))) {
                let bit = source.bit(rank, tier);
                assert!(bit.is_none_or(|bit| view.name(bit) == Some(source.holder_name(rank, tier))));
            }
        }
        self.universe.iter().map(|key| view.holders(*key)).collect()
    }

    /// Some process had, after the batch applied last, all that is claimed; nothing else, if that is all.
    fn check(&mut self, seen: &mut Seen) {
        let (report, seed) = (self.core.report(0), self.seed);
        let ranks = report.sources.iter().flat_map(|source| &source.ranks);
        let counts =
            ranks.map(|rank| (rank.sequence, rank.stored + rank.removed + rank.cleared, rank.blocks));
        let counts: Vec<_> = counts.collect();
        if std::mem::replace(&mut self.checked, counts.clone()) == counts {
            return;
        }
        let held = self.held();
        for (at, source) in &self.followed {
            let engine = self.engines[*at].borrow();
            let own = report.sources.iter().find(|own| own.source == source.number()).expect("a report");
            for (rank, told) in own.ranks.iter().enumerate() {
                let claims = claims(&held, source, rank as u8);
                if told.waiting > 0 {
                    seen.waited += 1;
                    continue;
                }
                // What an answer proved may be newer than the batch applied last.
                let proven = self.proofs.as_ref().map_or(0, |proofs| proofs.of(source.number(), rank));
                let Some(sequence) = told.sequence else {
                    let any = claims.iter().flatten().any(|claim| claim & !proven != 0);
                    assert!(!any, "seed {seed}: of nothing");
                    continue;
                };
                let past = engine.model.past.get(&(rank, sequence)).map_or(&[][..], Vec::as_slice);
                let is_whole = told.standing == "complete";
                let fits = |keys: &Keys| {
                    claims.iter().zip(keys).all(|(claim, keys)| match claim {
                        Some(claim) if is_whole => claim == keys,
                        Some(claim) => claim & !(keys | proven) == 0,
                        None => true,
                    })
                };
                assert!(past.iter().any(fits), "seed {seed}: {claims:x?} of {past:x?}, {told:?}");
            }
        }
    }

    /// After quiet: what is complete is the engine's cache, in every tier; what is not says why.
    pub fn check_equal(&mut self, seen: &mut Seen) {
        let (report, held, seed) = (self.core.report(0), self.held(), self.seed);
        for (at, source) in &self.followed {
            let engine = self.engines[*at].borrow();
            let own = report.sources.iter().find(|own| own.source == source.number()).expect("a report");
            for (rank, told) in own.ranks.iter().enumerate() {
                let claims = claims(&held, source, rank as u8);
                self.check_rank(&engine, (rank, told), &claims, seen);
                let is_complete = source.is_complete(rank as u8);
                assert!(is_complete == (told.standing == "complete") || own.fence.is_some(), "seed {seed}");
                let page =
                    self.core.inventory(source.number(), rank as u8, Tier::Disk, 0, 100).expect("a page");
                let far = claims.iter().rev().flatten().next().expect("a holder of the GPU");
                let place =
                    |key: &u64| self.universe.iter().position(|own| own == key).expect("a key of ours");
                assert_eq!(page.keys.iter().fold(0, |mask, key| mask | 1 << place(key)), *far, "seed {seed}");
            }
            if engine.model.kind != Kind::Drained {
                assert!(own.fence.is_none(), "seed {seed}: {own:?}");
            }
            (seen.restarts, seen.thefts) = (seen.restarts + engine.restarts, seen.thefts + engine.thefts);
        }
    }

    fn check_rank(
        &self,
        engine: &Engine,
        (rank, told): (usize, &RankReport),
        claims: &[Option<u32>; 3],
        seen: &mut Seen,
    ) {
        let (keys, seed) = (engine.model.keys(rank), self.seed);
        seen.ranks += 1;
        (seen.learned, seen.observed) = (seen.learned + told.learned, seen.observed + told.observed);
        for (claim, keys) in claims.iter().zip(&keys) {
            let claim = claim.unwrap_or(0);
            assert!(claim & !keys == 0, "seed {seed}, rank {rank}: {claim:x} of {keys:x}, {told:?}");
        }
        seen.hosts += u64::from(claims[1].is_some());
        if engine.model.kind != Kind::Drained {
            assert!(told.connected, "seed {seed}: {told:?}");
            assert_eq!(told.sequence, engine.model.ranks[rank].next_seq.checked_sub(1), "seed {seed}");
        }
        match told.standing {
            "complete" => {
                seen.complete += 1;
                for (tier, keys) in keys.iter().enumerate() {
                    let nearest = claims[..=tier].iter().rev().flatten().next();
                    assert_eq!(nearest, Some(keys), "seed {seed}, rank {rank}, tier {tier}: {told:?}");
                }
            }
            // One that was met midway, without a replay to tell what was before, lost nothing.
            "since" => {
                assert!(!told.reason.is_empty() || !self.replay || engine.model.kind == Kind::Drained);
            }
            // The other ranks of a source are left out with the one at fault.
            "fenced" => {
                let is_empty = claims.iter().flatten().all(|claim| *claim == 0);
                seen.fenced += u64::from(!told.reason.is_empty());
                assert!(is_empty || told.reason.is_empty(), "seed {seed}: {told:?}");
            }
            "empty" => {}
            other => panic!("seed {seed}: {other} after quiet: {told:?}"),
        }
    }
}

/// What each tier's holder of a rank has; `None`: there is no holder.
fn claims(held: &[HolderSet], source: &Source, rank: u8) -> [Option<u32>; 3] {
    Tier::ALL.map(|tier| {
        let bit = source.bit(rank, tier)?;
        let blocks = held.iter().enumerate().filter(|(_, holders)| holders.contains(bit));
        Some(blocks.fold(0, |mask, (block, _)| mask | 1 << block))
    })
}
