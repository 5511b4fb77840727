//! A prefill engine of SGLang that seems well and hands nothing over: its pairs fail by what decode says, which must count
//! for prefill's breaker too.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::client::Came;
use crate::sim::scene::Scene;
use std::net::SocketAddr;
use std::rc::Rc;
use warmpath_core::breaker::State;

/// One prefill engine, and three for decode, so that no breaker of theirs opens.
fn scene() -> Scene<Paired> {
    let mut all = vec![(engine_at(Part::Prefill, 0), Part::Prefill)];
    all.extend((0..3).map(|number| (engine_at(Part::Decode, number), Part::Decode)));
    let at: Vec<SocketAddr> = all.iter().map(|(at, _)| *at).collect();
    let (first, ledger) = (at[0], Rc::default());
    let part = |at| if at == first { Part::Prefill } else { Part::Decode };
    let mut scene = Scene::new(1, &at, |at| Paired::new(Kind::Sglang, part(at), at, &ledger));
    scene.install(&arguments(Kind::Sglang, false), endpoints(&all));
    scene
}

fn ask(scene: &mut Scene<Paired>, decode: &str) -> Came {
    let wish = Wish { prefill: "ok".into(), decode: decode.into(), out: 5, ..Wish::default() };
    scene.ask(0, Ask { wish, ..Ask::default() })
}

fn prefill(scene: &Scene<Paired>) -> (bool, State) {
    let endpoint = &scene.service().endpoints[0];
    (endpoint.transfers_exhausted(), endpoint.breaker().now().state(scene.now()))
}

#[test]
fn failures_that_decode_tells_of_open_the_breaker_of_the_prefill_they_had_in_common() {
    let mut scene = scene();
    for _ in 0..2 {
        assert_eq!(ask(&mut scene, "500"), Came::Answer(500));
    }
    assert_eq!(ask(&mut scene, "ok"), Came::Answer(200));
    for lost in 1..=3 {
        assert_eq!(prefill(&scene), (false, State::Closed), "{lost}");
        assert_eq!(ask(&mut scene, "500"), Came::Answer(500));
    }
    assert_eq!(prefill(&scene), (true, State::Open));
    assert_eq!(ask(&mut scene, "ok"), Came::refused(503, "pd_pool_unavailable"));
    scene.pass(31_000_000_000);
    assert_eq!(ask(&mut scene, "ok"), Came::Answer(200));
    assert_eq!(prefill(&scene), (false, State::Closed), "one that is handed over ends it");
    scene.assert_quiet();
}

#[test]
fn refusals_and_clients_that_leave_say_nothing_of_transfers() {
    let mut scene = scene();
    for decode in ["400", "400", "400", "hang", "hang", "hang"] {
        let wish = Wish { prefill: "ok".into(), decode: decode.into(), out: 5, ..Wish::default() };
        let leave_within = (decode == "hang").then_some(1_000_000_000);
        scene.ask(0, Ask { wish, leave_within, ..Ask::default() });
    }
    assert!(!prefill(&scene).0);
    scene.assert_quiet();
}
