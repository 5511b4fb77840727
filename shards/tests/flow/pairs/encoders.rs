//! Encoders in scenes: those of SGLang, which prefill asks by itself, and those of vLLM that are gone.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::client::Came;
use crate::sim::scene::Scene;
use std::rc::Rc;
use warmpath_core::control::PairCount;

/// An encoder, and a pair.
fn scene(kind: Kind) -> Scene<Paired> {
    let all = [Part::Encode, Part::Prefill, Part::Decode].map(|part| (engine_at(part, 0), part));
    let ledger = Rc::default();
    let part_of = |at| all.iter().find(|(own, _)| *own == at).expect("one of them").1;
    let mut scene = Scene::new(1, &all.map(|(at, _)| at), |at| Paired::new(kind, part_of(at), at, &ledger));
    scene.install(&arguments(kind, false), endpoints(&all));
    scene
}

fn ask(scene: &mut Scene<Paired>, images: usize) -> Came {
    let word = || String::from("ok");
    let wish =
        Wish { prefill: word(), decode: word(), encode: word(), images, out: 5, state: 9, ..Wish::default() };
    scene.ask(0, Ask { wish, ..Ask::default() })
}

#[test]
fn sglang_is_sent_media_only_while_an_encoder_is_well_and_the_encoder_nothing() {
    let mut scene = scene(Kind::Sglang);
    assert_eq!(ask(&mut scene, 2), Came::Answer(200));
    scene.service().endpoints[0].set_probed_down(true);
    assert_eq!(ask(&mut scene, 2), Came::refused(503, "pd_pool_unavailable"));
    assert_eq!(ask(&mut scene, 0), Came::Answer(200), "a text needs none");
    assert_eq!(scene.served()[0], 0);
    scene.assert_quiet();
}

#[test]
fn vllm_prefill_computes_what_no_encoder_is_there_for() {
    let mut scene = scene(Kind::Vllm);
    assert_eq!(ask(&mut scene, 40), Came::Answer(200));
    scene.refuses(0, true);
    scene.pass(31_000_000_000);
    for _ in 0..5 {
        assert_eq!(ask(&mut scene, 3), Came::Answer(200));
    }
    let counts = scene.report(0).pairs[0].counts;
    let of = |what: PairCount| counts[what as usize];
    assert_eq!((of(PairCount::Encoded), of(PairCount::NotEncoded), scene.served()[0]), (40, 15, 40));
    scene.assert_quiet();
}
