//! A model engine behind a faulty network, against continuity, decoding and residency together.
//!
//! The oracle is the engine's own cache after each batch. At every moment the ingested state claims only what
//! the process had after the batch applied last, and all of it when the stream says so; after quiet it has
//! caught up. Deterministic: a seed is a whole run. `WARMPATH_SEEDS=n` runs more of them.

mod engine;
mod gateway;
mod network;
mod random;

use engine::Engine;
use gateway::Gateway;
use network::Network;
use random::Random;
use warmpath_events::continuity::{Policy, Reason, Standing};

/// One step of simulated time.
const STEP: u64 = warmpath_core::SECOND / 20;

/// What may go wrong, and how often in ten thousand steps.
#[derive(Clone, Copy)]
struct Faults {
    cut: u64,
    silent: u64,
    restart: u64,
    restart_in_place: u64,
    drop: u64,
    duplicate: u64,
    garble: u64,
    replay: u64,
}

const NONE: Faults = Faults {
    cut: 0,
    silent: 0,
    restart: 0,
    restart_in_place: 0,
    drop: 0,
    duplicate: 0,
    garble: 0,
    replay: 0,
};

const ALL: Faults = Faults {
    cut: 40,
    silent: 20,
    restart: 25,
    restart_in_place: 10,
    drop: 300,
    duplicate: 50,
    garble: 10,
    replay: 1_000,
};

fn seeds() -> u64 {
    std::env::var("WARMPATH_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

/// What a run has seen, so that a test can show that it tested something.
#[derive(Default)]
struct Seen {
    applied: u64,
    complete: u64,
    reasons: Vec<Reason>,
}

struct World {
    random: Random,
    engine: Engine,
    network: Network,
    gateway: Gateway,
    now: u64,
}

impl World {
    fn new(seed: u64, policy: Policy, knows_identity: bool) -> Self {
        let mut random = Random::new(seed);
        World {
            engine: Engine::new(random.pick(&[2, 8, 40, 10_000])),
            network: Network::new(),
            gateway: Gateway::new(policy, knows_identity),
            now: 0,
            random,
        }
    }

    /// Steps in which the engine works (`busy` of a hundred) and faults happen.
    fn run(&mut self, steps: u64, busy: u64, faults: &Faults) {
        for _ in 0..steps {
            self.now += STEP;
            self.engine.tick(self.now, &mut self.random, faults, &mut self.network);
            if self.engine.is_up() && self.random.below(100) < busy {
                self.engine.publish(&mut self.random, faults, &mut self.network);
            }
            self.network.step(self.now, &mut self.random, faults, &mut self.engine, &mut self.gateway);
        }
    }

    fn seed_run(seed: u64, policy: Policy, knows_identity: bool, faults: &Faults, seen: &mut Seen) {
        let mut world = World::new(seed, policy, knows_identity);
        world.run(1_200, 30, faults);
        world.run(1_200, 0, &NONE);
        if !policy.replay || seed.is_multiple_of(2) {
            world.run(10, 100, &NONE);
            world.run(1_200, 0, &NONE);
        }
        world.gateway.check_caught_up(&world.engine, seed);
        seen.applied += world.gateway.applied();
        seen.complete += u64::from(world.gateway.standing() == Standing::Complete);
        seen.reasons.extend(world.gateway.reasons());
    }
}

fn run_all(policy: Policy, knows_identity: bool, faults: &Faults) -> Seen {
    let mut seen = Seen::default();
    for seed in 0..seeds() {
        World::seed_run(seed, policy, knows_identity, faults, &mut seen);
    }
    seen
}

#[test]
fn with_replay_the_state_is_the_engines_or_says_why_not() {
    let seen = run_all(Policy::default(), false, &ALL);
    assert!(seen.applied > 100 * seeds() && seen.complete > seeds() / 3);
    for reason in
        [Reason::Restarted, Reason::ReplayHole, Reason::ReplayFailed, Reason::Regressed, Reason::Undecodable]
    {
        assert!(seen.reasons.contains(&reason), "{reason:?} never happened");
    }
}

/// Processes that come and go while gaps are being filled: what is on its way from one may fit the next.
#[test]
fn restarts_that_overtake_are_told_apart() {
    let faults = Faults { cut: 100, restart: 150, drop: 1_500, replay: 300, ..NONE };
    let mut seen = Seen::default();
    for seed in 0..3 * seeds() {
        World::seed_run(seed, Policy::default(), false, &faults, &mut seen);
    }
    assert!(seen.applied > 100 * seeds());
    assert!(seen.reasons.contains(&Reason::Restarted));
}

#[test]
fn with_a_small_queue_nothing_is_lost_either() {
    let policy = Policy { queue_batches: 2, ..Policy::default() };
    let seen = run_all(policy, false, &ALL);
    assert!(seen.applied > 100 * seeds());
}

#[test]
fn without_replay_the_state_is_a_true_part() {
    let policy = Policy { replay: false, ..Policy::default() };
    let faults = Faults { replay: 0, ..ALL };
    for knows_identity in [false, true] {
        let seen = run_all(policy, knows_identity, &faults);
        assert!(seen.applied > 100 * seeds());
        for reason in [Reason::Gap, Reason::Reconnected] {
            assert!(seen.reasons.contains(&reason), "{reason:?} never happened");
        }
    }
}

#[test]
fn losses_alone_are_all_made_good() {
    let faults = Faults { cut: 40, silent: 20, drop: 1_000, duplicate: 100, ..NONE };
    for seed in 0..seeds() {
        let mut world = World::new(seed, Policy::default(), false);
        world.engine = Engine::new(10_000);
        world.run(1_200, 30, &faults);
        world.run(1_200, 0, &NONE);
        world.gateway.check_caught_up(&world.engine, seed);
        assert_eq!(world.gateway.standing(), Standing::Complete, "seed {seed}");
        assert_eq!(world.gateway.reasons(), [], "seed {seed}: cleared without need");
    }
}
