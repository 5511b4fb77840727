//! Requests of one endpoint each.

mod ask;
mod breaker;
mod engine;
mod gate;
mod sessions;
mod world;

use crate::sim::{over_seeds, scene};
use engine::{Plain, engine_at};
use serde_json::{Value, json};
use world::{Mix, run};

type Scene = scene::Scene<Plain>;

/// A scene of `engines` plain engines behind a rule with these arguments.
fn scene_of(shards: usize, engines: usize, arguments: &Value) -> Scene {
    let all: Vec<usize> = (0..engines).collect();
    let at: Vec<_> = all.iter().map(|engine| engine_at(*engine)).collect();
    let mut scene = Scene::new(shards, &at, |_| Plain::default());
    install(&mut scene, arguments, &all);
    scene
}

/// Replaces the rule: these engines in this order.
fn install(scene: &mut Scene, arguments: &Value, engines: &[usize]) {
    let endpoint = |engine: &usize| {
        let at = engine_at(*engine);
        json!({"endpointIP": at.ip().to_string(), "targetPort": at.port(), "weight": 1})
    };
    scene.install(arguments, engines.iter().map(endpoint).collect());
}

/// Seeds of the ordinary run.
const SEEDS: u64 = 60;

fn over(mix: Mix) {
    let mut total = world::Outcome::default();
    let many = over_seeds("FLOW", SEEDS, &format!("{mix:?}"), |seed| total.add(&run(seed, mix)));
    println!("{mix:?}: {total:?}");
    if many {
        total.assert_covers(mix);
    }
}

#[test]
fn kind_clients_and_engines_lose_nothing() {
    over(Mix::Kind);
}

#[test]
fn faulty_engines_cost_one_request_each() {
    over(Mix::Faulty);
}

#[test]
fn clients_that_leave_leave_nothing_behind() {
    over(Mix::Leaving);
}

#[test]
fn large_bodies_share_little_memory() {
    over(Mix::Large);
}

#[test]
fn the_gate_lets_in_what_it_may_and_loses_no_turn() {
    over(Mix::Gated);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        for mix in [Mix::Faulty, Mix::Gated] {
            assert_eq!(run(seed, mix), run(seed, mix), "seed {seed} of {mix:?}");
        }
    }
}
