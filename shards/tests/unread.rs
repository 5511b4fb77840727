//! Streams that are read, beside clients that read nothing: what the one costs must not be paid by the other. Owns
//! the memory that waiting answers take.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::json;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::environment::Environment;
use warmpath_core::table::Table;
use warmpath_ring::Sizes;
use warmpath_ring::sim::{Actor, PeerEvent, Sim, Weather, World};
use warmpath_shards::budget::Budget;
use warmpath_shards::exact::Blocks;
use warmpath_shards::{Flow, Settings};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT: &[u8] = b"10\r\ndata: a token.\n\n\r\n";
const END: &[u8] = b"0\r\n\r\n";

/// Sends an event each millisecond, so many in all; to a client that asks for a flood, without end and more at
/// once.
struct Engine {
    events: usize,
    streams: Vec<(usize, bool, usize)>,
}

impl Actor for Engine {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Data { conn, bytes } => {
                let flood = bytes.windows(6).any(|six| six == b"/flood");
                self.streams.push((conn, flood, 0));
                world.send(conn, HEAD);
                world.timer(1_000_000, self.streams.len() as u64 - 1);
            }
            PeerEvent::Timer { token } => {
                let (conn, flood, sent) = &mut self.streams[token as usize];
                *sent += 1;
                if !*flood && *sent > self.events {
                    return world.send(*conn, END);
                }
                world.send(*conn, &EVENT.repeat(if *flood { 40 } else { 1 }));
                world.timer(1_000_000, token);
            }
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => world.close(conn),
            _ => {}
        }
    }
}

/// Asks once; reads everything, or nothing.
struct Client {
    vip: SocketAddr,
    path: &'static str,
    reads: bool,
    got: Rc<RefCell<Vec<u8>>>,
    cut: Rc<RefCell<bool>>,
}

impl Actor for Client {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Begun => drop(world.connect(self.vip)),
            PeerEvent::Connected { conn } => {
                let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", self.path);
                world.send(conn, request.as_bytes());
                if !self.reads {
                    world.pause(conn);
                }
            }
            PeerEvent::Data { bytes, .. } => self.got.borrow_mut().extend(bytes),
            PeerEvent::Ended { .. } | PeerEvent::Reset { .. } => *self.cut.borrow_mut() = true,
            _ => {}
        }
    }
}

/// A stream of so many events beside clients that hold the receive buffers; how it ended, and the memory in use
/// at most while it ran beyond what the stuck clients took.
fn stream_beside(stuck: usize, events: usize, memory: u64) -> (bool, usize, u64) {
    let sizes = Sizes { buffers: 8, buffer_bytes: 512, ..Sizes::default() };
    let weather = Weather { delay_max: 1_000, socket_bytes: 700, piece_max: 16_384 };
    let budget = Arc::new(Budget::new(memory));
    let exact = Blocks::none(1).and_then(|blocks| blocks.exact()).unwrap();
    let mut flow =
        Flow::new(Sim::new(1, sizes, weather), sizes, Settings::default(), budget.clone(), exact, 1);
    let (vip, engine) = (SocketAddr::from(([10, 9, 9, 9], 80)), SocketAddr::from(([10, 0, 0, 1], 8000)));
    let actor = flow.ring.add(Rc::new(RefCell::new(Engine { events, streams: Vec::new() })));
    flow.ring.serve(engine, actor);
    let body = json!({"serviceArguments": {"externalIP": "10.9.9.9", "port": 80},
        "endpoints": [{"endpointIP": "10.0.0.1", "targetPort": 8000, "weight": 1}]});
    let rule = warmpath_core::rule::body::parse(&body, &Environment::default(), || "id".into()).unwrap();
    let table = Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0));
    let listener = flow.ring.listen_at(vip);
    flow.install(table, vec![(vip, listener)]);
    let mut add = |path, reads| {
        let (got, cut) = (Rc::<RefCell<Vec<u8>>>::default(), Rc::<RefCell<bool>>::default());
        let client = Client { vip, path, reads, got: got.clone(), cut: cut.clone() };
        flow.ring.add(Rc::new(RefCell::new(client)));
        (got, cut)
    };
    (0..stuck).for_each(|_| drop(add("/flood", false)));
    let (got, cut) = add("/read", true);
    let mut least = u64::MAX;
    let mut most = 0;
    for turn in 0..200_000 {
        flow.turn(Some(Duration::from_millis(1))).unwrap();
        if turn > 2_000 {
            least = least.min(budget.used());
            most = most.max(budget.used());
        }
        if got.borrow().ends_with(END) || *cut.borrow() {
            break;
        }
    }
    let whole = got.borrow().ends_with(END);
    let came = got.borrow().windows(EVENT.len()).filter(|w| *w == EVENT).count();
    (whole, came, most.saturating_sub(least))
}

#[test]
fn a_stream_that_is_read_takes_no_more_memory_the_longer_it_lasts() {
    let (whole, came, growth) = stream_beside(3, 4_000, 64 << 20);
    assert!(whole && came == 4_000, "{came}");
    assert!(growth < 64 * 1024, "{growth} bytes more were in use");
}

#[test]
fn a_stream_that_is_read_goes_on_when_others_have_taken_all_memory() {
    let (whole, came, _) = stream_beside(3, 2_000, 16 * 1024);
    assert!(whole && came == 2_000, "{came}");
}
