//! Tier 1 in the flow: a prompt whose beginning a prefill engine was sent before goes there again, and no longer once the
//! engine was lost.

use crate::pairs::ask::Ask;
use crate::pairs::body::Wish;
use crate::pairs::engine::{Kind, Paired, Part};
use crate::pairs::world::{arguments, endpoints, engine_at};
use crate::sim::client::Came;
use crate::sim::scene;
use serde_json::json;
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

/// Asks for a text on a new connection; tells the prefill engine, and what decided.
fn ask(scene: &mut Scene, lead: &str) -> (SocketAddr, &'static str) {
    ask_for(scene, Wish { lead: lead.into(), ..Wish::default() })
}

fn ask_for(scene: &mut Scene, wish: Wish) -> (SocketAddr, &'static str) {
    let wish = Wish { prefill: "ok".into(), decode: "ok".into(), out: 5, state: 10, ..wish };
    assert_eq!(scene.ask(0, Ask { wish, ..Ask::default() }), Came::Answer(200));
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

#[test]
fn what_events_tell_to_be_evicted_is_not_looked_for_there() {
    let mut scene = scene();
    let all: Vec<_> = [(Part::Prefill, 3), (Part::Decode, 2)]
        .into_iter()
        .flat_map(|(part, count)| (0..count).map(move |number| (engine_at(part, number), part)))
        .collect();
    let mut arguments = arguments(Kind::Vllm, true);
    for (name, value) in [("kvExactMode", json!(1)), ("kvHashAlgo", json!("tokens"))] {
        arguments[name] = value;
    }
    scene.install(&arguments, endpoints(&all));
    let wish = || Wish { ids: 400, ..Wish::default() };
    let (home, _) = ask_for(&mut scene, wish());
    assert_eq!(ask_for(&mut scene, wish()), (home, "prefix_trie"), "nothing is known of what they hold");
    // From now on all of it is known; what is promised is no longer on its way.
    let sources = scene.service().exact.as_ref().expect("an exact rule").sources.clone();
    sources.iter().for_each(|source| source.set_blocks(0, 0, true));
    scene.pass(120_000_000_000);
    assert_eq!(ask_for(&mut scene, wish()).1, "least_load");
    sources.iter().for_each(|source| source.set_blocks(0, 0, false));
    assert_eq!(ask_for(&mut scene, wish()).1, "prefix_trie", "what is not all known proves nothing");
}
