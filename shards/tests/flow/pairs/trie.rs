//! Tier 1 in the flow: a prompt whose beginning a prefill engine was sent before goes there again, and no longer once the
//! engine was lost.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::client::Came;
use crate::sim::scene;
use std::net::SocketAddr;
use std::rc::Rc;
use warmpath_core::control::Count;

type Scene = scene::Scene<Paired>;

/// Three engines for prefill, two for decode.
fn scene() -> Scene {
    let all: Vec<_> = [(Part::Prefill, 3), (Part::Decode, 2)]
        .into_iter()
        .flat_map(|(part, count)| (0..count).map(move |number| (engine_at(part, number), part)))
        .collect();
    let at: Vec<SocketAddr> = all.iter().map(|(at, _)| *at).collect();
    let part = |at| if engine_at(Part::Decode, 0).ip() > at { Part::Prefill } else { Part::Decode };
    let ledger = Rc::default();
    let mut scene = Scene::new(1, &at, |at| Paired::new(Kind::Vllm, part(at.ip()), at, &ledger));
    scene.install(&arguments(Kind::Vllm, true), endpoints(&all));
    scene
}

/// Asks on a new connection; tells the prefill engine, and what decided.
fn ask(scene: &mut Scene, lead: &str) -> (SocketAddr, &'static str) {
    let wish = Wish {
        lead: lead.into(),
        prefill: "ok".into(),
        decode: "ok".into(),
        out: 5,
        state: 10,
        ..Wish::default()
    };
    assert_eq!(scene.ask(0, Ask { wish, ..Ask::default() }), Came::Answer(200), "{lead}");
    // Connections that idle are closed by then: each request has to connect.
    scene.pass(2 * scene::IDLE);
    let report = scene.report(0);
    let receipt = report.receipts.last().expect("a receipt");
    let pair = receipt.pair.as_ref().expect("a pair");
    (pair.prefill, receipt.reason.map_or("none", |reason| reason.word()))
}

#[test]
fn a_prompt_goes_where_the_longest_beginning_of_it_went() {
    let mut scene = scene();
    let leads: Vec<String> =
        (0..6).map(|c| format!("conversation {c} {}", "of many words ".repeat(60))).collect();
    let homes: Vec<SocketAddr> = leads
        .iter()
        .map(|lead| ask(&mut scene, lead))
        .map(|(at, reason)| {
            assert_eq!(reason, "least_load", "nothing of it is known");
            at
        })
        .collect();
    assert!(
        homes[..3].iter().all(|home| homes.iter().filter(|other| *other == home).count() == 2),
        "{homes:?}"
    );
    for _ in 0..2 {
        for (lead, home) in leads.iter().zip(&homes).rev() {
            assert_eq!(ask(&mut scene, lead), (*home, "prefix_trie"));
        }
    }
    // A prompt of which less than a fifth is known goes by load.
    let little = format!("{}{}", &leads[0][..128], "something else ".repeat(60));
    assert_eq!(ask(&mut scene, &little).1, "least_load");
    // Where the engine was lost it goes elsewhere, and from then on there.
    let lost = homes[0];
    scene.refuses((0..3).find(|n| engine_at(Part::Prefill, *n as u64) == lost).expect("one of three"), true);
    let moved = ask(&mut scene, &leads[0]);
    assert_ne!(moved.0, lost);
    ask(&mut scene, &leads[3]);
    ask(&mut scene, &leads[3]);
    assert_eq!(ask(&mut scene, &leads[0]), (moved.0, "prefix_trie"));
    let failed = scene.count(Count::ConnectFailures);
    let report = scene.report(0);
    let counts = report.sessions[0];
    assert!(counts.trie_hits >= 13 && counts.others >= 7 && counts.hits == 0, "{counts:?}");
    assert_eq!(counts.trie_hits + counts.others, 23 + failed, "each attempt once: {counts:?}");
}
