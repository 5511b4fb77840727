//! The event core's thread over real sockets of the loopback: an engine that it dials, one that connects to it,
//! and its handle. Waits are bounded generously and measure nothing.

#[path = "core_simulated/pages.rs"]
mod pages;
#[path = "core_simulated/peer.rs"]
mod peer;

use pages::{answer, take_request};
use peer::{Ear, Heard, batch, greeting, message, pong, ready, reply};
use rmpv::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmpath_core::block::BlockSize;
use warmpath_core::control::{KvPlane, RankReport};
use warmpath_core::engine::{Algo, Engine, Seed, Terms};
use warmpath_core::environment::Environment;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, body};
use warmpath_core::shared::Tier;
use warmpath_core::table::Table;
use warmpath_events::thread::{EventCoreHandle, Plan, Thread, start};
use warmpath_kvindex::{Readers, index};
use warmpath_ring::{Epoll, Ring, Sizes, Uring, why_not_uring};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn stored(hash: u64) -> Vec<u8> {
    let event = Value::Map(vec![
        (Value::from("type"), Value::from("BlockStored")),
        (Value::from("block_hashes"), Value::Array(vec![Value::from(hash)])),
        (Value::from("block_size"), Value::from(16)),
    ]);
    let batch = Value::Array(vec![Value::F64(1.5), Value::Array(vec![event]), Value::from(0)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).expect("into memory");
    bytes
}

/// Serves one publisher's connection until its other side leaves: batches 0 and 1 to a subscriber, and to
/// whoever asks.
fn publish(mut stream: TcpStream, socket: &str) {
    let (mut ear, mut buffer) = (Ear::default(), [0; 4_096]);
    if stream.write_all(&greeting()).is_err() {
        return;
    }
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        for heard in ear.hear(&buffer[..count]) {
            let bytes = match heard {
                Heard::Greeting => ready(socket),
                Heard::Subscribe => [batch(0, &stored(7)), batch(1, &stored(8))].concat(),
                Heard::Ping(context) => pong(&context),
                Heard::Message(_) => {
                    let end = message(&[b"", b"", &[0xff; 8], b""]);
                    [reply(0, &stored(7)), reply(1, &stored(8)), end].concat()
                }
                Heard::Ready => continue,
            };
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

/// Accepts for ever, a thread a connection; the threads end with the test.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    at
}

fn pages(mut stream: TcpStream, sources: Option<&str>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
        while let Some(path) = take_request(&mut bytes) {
            let page = match (path.as_str(), sources) {
                ("/version", _) => answer(200, r#"{"version":"0.32.0"}"#, false),
                ("/kv_event_sources", Some(sources)) => answer(200, sources, false),
                _ => answer(404, "", false),
            };
            if stream.write_all(&page).is_err() {
                return;
            }
        }
    }
}

fn table(endpoint: SocketAddr, ports: KvPorts) -> Arc<Table> {
    let rule = serde_json::json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 80},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": endpoint.port(), "weight": 1}],
    });
    let mut rule = body::parse(&rule, &Environment::default(), || "r".into()).expect("a rule");
    let terms = Terms { seed: Seed::Given("0"), ..Terms::plain(Algo::Sha256Cbor, BlockSize::SIXTEEN) };
    let contract = Engine::Vllm.contract(&terms).expect("a contract");
    rule.exact = Some(KvExact {
        contract,
        version: None,
        ports,
        ranks: 1,
        rank_mode: RankMode::Pin,
        warmup: 0,
        profile: Default::default(),
    });
    Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0))
}

fn running() -> (EventCoreHandle, Thread, Readers) {
    running_on(|sizes| Epoll::new(sizes).map_err(|error| error.to_string()))
}

fn running_on<R: Ring + 'static>(
    make: impl FnOnce(Sizes) -> Result<R, String> + Send + 'static,
) -> (EventCoreHandle, Thread, Readers) {
    let (writer, readers) = index(warmpath_kvindex::Plan::for_blocks(1_000, 64, 1).expect("a plan"), 1);
    let plan = Plan { sizes: Sizes { buffers: 64, ..Sizes::default() }, ..Plan::default() };
    let (handle, thread) = start(plan, writer, make).expect("started");
    (handle, thread, readers)
}

/// Waits until the one rank is as wanted.
fn wait_for(handle: &EventCoreHandle, is_there: impl Fn(&RankReport) -> bool) -> RankReport {
    let begun = Instant::now();
    loop {
        let report = handle.report();
        let rank = report.as_ref().and_then(|report| Some(report.sources.first()?.ranks[0].clone()));
        if let Some(rank) = rank.clone().filter(|rank| is_there(rank)) {
            return rank;
        }
        assert!(begun.elapsed() < LONG, "{report:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_engine_is_discovered_dialled_and_let_go() {
    dialled_and_let_go(running());
}

#[test]
fn an_engine_is_discovered_dialled_and_let_go_by_io_uring() {
    if let Some((fault, _)) = why_not_uring() {
        return eprintln!("not tried: {fault}");
    }
    dialled_and_let_go(running_on(|sizes| Uring::new(sizes).map_err(|fault| fault.to_string())));
}

fn dialled_and_let_go((handle, thread, readers): (EventCoreHandle, Thread, Readers)) {
    let live = listen(|stream| publish(stream, "PUB"));
    let replay = listen(|stream| publish(stream, "ROUTER"));
    let sources = format!(
        r#"{{"0":{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:{}","replay_endpoint":"tcp://*:{}"}}}}"#,
        live.port(),
        replay.port()
    );
    let http = listen(move |stream| pages(stream, Some(&sources)));
    let table = table(http, KvPorts::default());
    handle.follow(table.clone());
    let rank = wait_for(&handle, |rank| rank.blocks[0] == 2 && rank.standing == "complete");
    assert_eq!((rank.sequence, rank.connected, rank.reason), (Some(1), true, ""));
    let source = table.sources()[0].clone();
    let bit = source.bit(0, Tier::Gpu).expect("a holder");
    let mut reader = readers.reader().expect("a reader");
    assert!(reader.view().holders(7).contains(bit) && reader.view().holders(8).contains(bit));
    let mut page = handle.inventory(source.number(), 0, Tier::Gpu, 0, 10).expect("a page");
    page.keys.sort_unstable();
    assert_eq!((page.keys, page.next, page.total), (vec![7, 8], None, 2));
    assert_eq!(handle.inventory(99, 0, Tier::Gpu, 0, 10), None);
    assert!(!handle.reacquire(source.number()), "it is not drained");
    handle.stop();
    assert_eq!(thread.join().expect("no panic"), Ok(()));
    assert_eq!((source.bit(0, Tier::Gpu), handle.report().is_none()), (None, true));
}

#[test]
fn an_engine_connects_to_the_gateway_and_again_after_a_cut() {
    let http = listen(|stream| pages(stream, None));
    let replay = listen(|stream| publish(stream, "ROUTER"));
    // A port that was free a moment ago.
    let publish_port =
        TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let (handle, thread, _readers) = running();
    handle.follow(table(http, KvPorts { publish: publish_port, replay: replay.port(), bind: true }));
    let (connections, connected) = std::sync::mpsc::channel();
    let engine = std::thread::spawn(move || {
        // It comes again whenever it is closed, as it is before it is awaited; it ends when nobody listens.
        let mut is_served = false;
        loop {
            match TcpStream::connect(("127.0.0.1", publish_port)) {
                Ok(stream) => {
                    is_served |= connections.send(stream.try_clone().expect("a copy")).is_ok();
                    publish(stream, "PUB");
                }
                Err(_) if is_served => return,
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let before = wait_for(&handle, |rank| rank.blocks[0] == 2 && rank.standing == "complete");
    let last = connected.try_iter().last().expect("a connection");
    last.shutdown(std::net::Shutdown::Both).expect("cut");
    let rank = wait_for(&handle, |rank| rank.reconnects > before.reconnects && rank.standing == "complete");
    assert!(rank.connected && rank.blocks[0] == 2, "{rank:?}");
    assert_eq!(handle.report().expect("a report").sources[0].transport, "listen");
    handle.stop();
    assert_eq!(thread.join().expect("no panic"), Ok(()));
    engine.join().expect("the engine ends with the gateway's port");
}

#[test]
fn a_driver_that_cannot_be_made_is_told() {
    let (writer, _readers) = index(warmpath_kvindex::Plan::for_blocks(1_000, 64, 1).expect("a plan"), 1);
    let make = |_: Sizes| Err::<Epoll, String>("no descriptors".into());
    let fault = start(Plan::default(), writer, make).err().expect("a fault");
    assert!(fault.contains("no descriptors"), "{fault}");
}
