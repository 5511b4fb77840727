//! Tier 1 in the flow: a prompt whose beginning a prefill engine was sent before goes there again, and no longer once the
//! engine was lost.

use crate::body::Wish;
use crate::client::{Ask, Came, Client, End};
use crate::engine::{Engine, Kind, Part};
use crate::ledger::{Ledger, Shared};
use crate::world::{VIP, rule};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::control::Count;
use warmpath_core::table::Table;
use warmpath_ring::Sizes;
use warmpath_ring::sim::{Sim, Weather};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::{Flow, Settings, Transport};

struct Scene {
    flow: Flow<Sim>,
    engines: HashMap<SocketAddr, Rc<RefCell<Engine>>>,
}

impl Scene {
    /// Three engines for prefill, two for decode.
    fn new() -> Scene {
        let sizes = Sizes::default();
        let weather = Weather { delay_max: 400_000, socket_bytes: 65_536, piece_max: 16_384 };
        let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).expect("an empty index");
        let settings = Settings {
            client_transport: Transport::Plain,
            upstream_transport: Transport::Plain,
            ..Settings::default()
        };
        let budget = Arc::new(Budget::new(20 << 20));
        let mut flow = Flow::new(Sim::new(1, sizes, weather), sizes, settings, budget, exact, 1);
        let ledger: Shared<Ledger> = Rc::default();
        let (mut all, mut engines) = (Vec::new(), HashMap::new());
        for (part, name) in [1, 2, 3]
            .map(|name| (Part::Prefill, name))
            .into_iter()
            .chain([(Part::Decode, 1), (Part::Decode, 2)])
        {
            let at = SocketAddr::from(([10, 1 + part as u8, 0, name], 8000));
            let engine = Rc::new(RefCell::new(Engine {
                kind: Kind::Vllm,
                part,
                at,
                bootstrap_port: 0,
                ledger: ledger.clone(),
                xor: 0,
                refuses: false,
                idle_limit: 20_000_000,
                conns: HashMap::new(),
                timers: Vec::new(),
            }));
            let id = flow.ring.add(engine.clone());
            flow.ring.serve(at, id);
            all.push((at, part));
            engines.insert(at, engine);
        }
        let table = Arc::new(Table::next(&Table::default(), vec![rule(1, Kind::Vllm, &all)], &mut 0, 0));
        let listener = flow.ring.listen_at(VIP.into());
        flow.install(table, vec![(VIP.into(), listener)]);
        Scene { flow, engines }
    }

    /// Asks on a new connection; tells the prefill engine, and what decided.
    fn ask(&mut self, lead: &str, tag: &str) -> (SocketAddr, &'static str) {
        let wish = Wish {
            tag: tag.into(),
            lead: lead.into(),
            prefill: "ok".into(),
            decode: "ok".into(),
            out: 5,
            state: 10,
            ..Wish::default()
        };
        let ends: Shared<Vec<End>> = Rc::default();
        let client = Client {
            vip: VIP.into(),
            xor: 0,
            asks: vec![Ask { wish, ..Ask::default() }],
            ends: ends.clone(),
            conn: None,
            at: 0,
            buffer: Vec::new(),
            received: 0,
            begun: 0,
            done: false,
        };
        let client = Rc::new(RefCell::new(client));
        self.flow.ring.add(client.clone());
        for _ in 0..100_000 {
            if client.borrow().done {
                break;
            }
            self.flow.turn(Some(Duration::from_millis(100))).expect("the simulated ring never fails");
        }
        // Connections that idle are closed by then: each request has to connect.
        for _ in 0..10 {
            self.flow.turn(Some(Duration::from_millis(20))).expect("the simulated ring never fails");
        }
        assert_eq!(ends.borrow()[0].came, Came::Answer(200), "{tag}");
        let report = self.flow.report(0);
        let receipt = report.receipts.last().expect("a receipt");
        let pair = receipt.pair.as_ref().expect("a pair");
        (pair.prefill, receipt.reason.map_or("none", |reason| reason.word()))
    }
}

#[test]
fn a_prompt_goes_where_the_longest_beginning_of_it_went() {
    let mut scene = Scene::new();
    let leads: Vec<String> =
        (0..6).map(|c| format!("conversation {c} {}", "of many words ".repeat(60))).collect();
    let homes: Vec<SocketAddr> = leads
        .iter()
        .map(|lead| scene.ask(lead, "first"))
        .map(|(at, reason)| {
            assert_eq!(reason, "least_load", "nothing of it is known");
            at
        })
        .collect();
    assert!(
        homes[..3].iter().all(|home| homes.iter().filter(|other| *other == home).count() == 2),
        "{homes:?}"
    );
    for turn in ["second", "third"] {
        for (lead, home) in leads.iter().zip(&homes).rev() {
            assert_eq!(scene.ask(lead, turn), (*home, "prefix_trie"));
        }
    }
    // A prompt of which less than a fifth is known goes by load.
    let little = format!("{}{}", &leads[0][..128], "something else ".repeat(60));
    assert_eq!(scene.ask(&little, "other").1, "least_load");
    // Where the engine was lost it goes elsewhere, and from then on there.
    let lost = homes[0];
    scene.engines[&lost].borrow_mut().refuses = true;
    let moved = scene.ask(&leads[0], "moved");
    assert_ne!(moved.0, lost);
    for (at, tag) in [(&leads[3], "a"), (&leads[3], "b")] {
        scene.ask(at, tag);
    }
    assert_eq!(scene.ask(&leads[0], "stays"), (moved.0, "prefix_trie"));
    let report = scene.flow.report(0);
    let failed =
        report.counts.iter().find(|(count, _)| *count == Count::ConnectFailures).map_or(0, |(_, n)| *n);
    let counts = report.sessions[0];
    assert!(counts.trie_hits >= 13 && counts.others >= 7 && counts.hits == 0, "{counts:?}");
    assert_eq!(counts.trie_hits + counts.others, 23 + failed, "each attempt once: {counts:?}");
}
