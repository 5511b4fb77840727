//! The gate before whole pairs: in which order they begin, whatever becomes of those before them, and that a drained
//! endpoint gets no leg.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::ledger::Ledger;
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::Shared;
use crate::sim::client::Came;
use crate::sim::scene;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::rc::Rc;
use warmpath_core::MILLISECOND;
use warmpath_core::shared::Decided;

type Scene = scene::Scene<Paired>;

/// Two engines for each half, behind a gate with these members.
fn scene(kind: Kind, members: Value) -> (Scene, Shared<Ledger>) {
    let all: Vec<(SocketAddr, Part)> = [Part::Prefill, Part::Decode]
        .into_iter()
        .flat_map(|part| (0..2).map(move |number| (engine_at(part, number), part)))
        .collect();
    let at: Vec<SocketAddr> = all.iter().map(|(at, _)| *at).collect();
    let part = |at| if engine_at(Part::Decode, 0).ip() > at { Part::Prefill } else { Part::Decode };
    let ledger: Shared<Ledger> = Rc::default();
    let mut scene = Scene::new(1, &at, |at| Paired::new(kind, part(at.ip()), at, &ledger));
    let mut arguments = arguments(kind, false);
    for (name, value) in members.as_object().into_iter().flatten() {
        arguments[name] = value.clone();
    }
    scene.install(&arguments, endpoints(&all));
    (scene, ledger)
}

fn ask(prefill: &str, decode: &str) -> Ask {
    let wish = Wish { prefill: prefill.into(), decode: decode.into(), out: 5, state: 10, ..Wish::default() };
    Ask { wish, ..Ask::default() }
}

/// One permit. While a pair whose decode hangs has it, others come one after the other, some of which leave or will fail; they begin
/// in the order they came, nobody who stayed is forgotten, and in the end all is free.
#[test]
fn pairs_begin_in_the_order_they_came_whatever_becomes_of_those_before_them() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm] {
        let (mut scene, ledger) = scene(
            kind,
            json!({"fc_mode": "enforce", "fc_max_outstanding": 1, "fc_max_queue_depth": 99,
                   "fc_max_queue_wait_ms": 600_000, "cb_enable": false}),
        );
        let leaves = || Ask { leave_within: Some(18 * MILLISECOND), ..ask("ok", "ok") };
        let crowd = [
            ask("ok", "ok"),
            leaves(),
            ask("die-before", "ok"),
            ask("ok", "die-before"),
            leaves(),
            ask("400", "ok"),
            ask("ok", "reset-before"),
            ask("ok", "ok"),
            ask("ok", "ok"),
        ];
        let left = crowd.iter().filter(|ask| ask.leave_within.is_some()).count();
        let mut pending = vec![scene.begin(0, ask("ok", "hang"))];
        for ask in crowd {
            pending.push(scene.send(0, ask));
            scene.pass(20 * MILLISECOND);
        }
        let admission = scene.service().admission.clone();
        assert!(admission.counted(Decided::Left) > 0, "nobody left while it waited");
        assert_eq!(admission.gate.waiting() as usize, pending.len() - 1 - left);
        while pending[0].borrow().is_empty() {
            scene.pass(MILLISECOND);
        }
        let mut begun = vec!["ask1".to_owned()];
        while pending.iter().any(|pending| pending.borrow().is_empty()) {
            scene.pass(MILLISECOND / 5);
            assert!(admission.gate.out() <= 1);
            let fresh: Vec<String> =
                ledger.borrow().prefills.keys().filter(|tag| !begun.contains(tag)).cloned().collect();
            assert!(fresh.len() <= 1, "{kind:?}: {fresh:?} at once");
            begun.extend(fresh);
        }
        let expected: Vec<String> = pending
            .iter()
            .map(|pending| pending.borrow()[0].clone())
            .filter(|end| end.came != Came::Left)
            .map(|end| end.ask.wish.tag)
            .collect();
        assert_eq!((&begun, begun.len()), (&expected, pending.len() - left), "{kind:?}");
        scene.assert_quiet();
    }
}

/// Each half in turn has an engine out of service: new pairs go to the other one; without that there is none.
#[test]
fn a_drained_endpoint_of_either_half_gets_no_leg() {
    for kind in [Kind::Vllm, Kind::Sglang, Kind::Trtllm] {
        for drained in 0..4 {
            let (mut scene, _) = scene(kind, json!({}));
            for _ in 0..4 {
                assert_eq!(scene.ask(0, ask("ok", "ok")), Came::Answer(200));
            }
            let before = scene.served();
            assert!(before.iter().all(|served| *served > 0), "{before:?}");
            scene.service().endpoints[drained].set_drained(true);
            for _ in 0..6 {
                assert_eq!(scene.ask(0, ask("ok", "ok")), Came::Answer(200));
            }
            assert_eq!(scene.served()[drained], before[drained], "{kind:?}");
            let mate = drained ^ 1;
            scene.service().endpoints[mate].set_drained(true);
            assert_eq!(scene.ask(0, ask("ok", "ok")), Came::refused(503, "pd_pool_unavailable"), "{kind:?}");
            scene.assert_quiet();
        }
    }
}
