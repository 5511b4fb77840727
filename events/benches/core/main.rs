//! From an engine's socket to the index: how long until a stored block is visible, over loopback sockets, with
//! the event core on a thread of its own.
//!
//! *steady*: 64 endpoints store a million blocks a second, 64 an event, and remove what is old. *storm*: 64
//! endpoints store and remove a million blocks a second, one an event, while 64 others restart at once, each
//! with 12,800 blocks to forget and as many to replay; only the lag of the first is told.

#[path = "../../tests/core_simulated/peer.rs"]
mod peer;
mod publisher;
mod template;

use publisher::Publisher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use template::STORED;
use warmpath_core::block::BlockSize;
use warmpath_core::control::KvPlane;
use warmpath_core::engine::{Algo, Engine, Seed, Terms};
use warmpath_core::environment::Environment;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, body};
use warmpath_core::shared::{Source, Tier};
use warmpath_core::table::Table;
use warmpath_events::thread::{EventCoreHandle, Plan, start};
use warmpath_kvindex::{Reader, index};
use warmpath_ring::{Epoll, Sizes};

/// Endpoints that are measured, and those that restart.
const MEASURED: usize = 64;
const RESTARTING: usize = 64;

/// Lags before that are not told.
const WARMUP: Duration = Duration::from_secs(2);

struct Bench {
    handle: EventCoreHandle,
    publisher: Publisher,
    sources: Vec<Arc<Source>>,
    reader: Reader,
}

fn main() {
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let (seconds, rates) = if is_measuring { (7, [200_000, 1_000_000]) } else { (3, [10_000, 20_000]) };
    for rate in rates {
        steady(seconds, rate);
        storm(seconds, rate);
    }
}

fn address(endpoint: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 1 + (endpoint / 200) as u8, 1 + (endpoint % 200) as u8], 9))
}

impl Bench {
    fn new(endpoints: usize, blocks_an_event: usize) -> Bench {
        let publisher = Publisher::new(endpoints, blocks_an_event);
        let (live, replay) = publisher.ports();
        let listed: Vec<_> = (0..endpoints)
            .map(|at| serde_json::json!({"endpointIP": address(at).ip().to_string(), "targetPort": 9, "weight": 1}))
            .collect();
        let rule = serde_json::json!({
            "serviceArguments": {"externalIP": "127.0.0.1", "port": 80},
            "endpoints": listed,
        });
        let mut rule = body::parse(&rule, &Environment::default(), || "r".into()).expect("a rule");
        let terms = Terms { seed: Seed::Given("0"), ..Terms::plain(Algo::Sha256Cbor, BlockSize::SIXTEEN) };
        rule.exact = Some(KvExact {
            completions_only: false,
            contract: Engine::Vllm.contract(&terms).expect("a contract"),
            version: None,
            ports: KvPorts { publish: live, replay, bind: false },
            ranks: 1,
            rank_mode: RankMode::Pin,
            warmup: 0,
        });
        let table = Arc::new(Table::next(&Table::default(), vec![rule], &mut 0, 0));
        let plan = warmpath_kvindex::Plan::for_blocks(4_000_000, endpoints, 2).expect("a plan");
        let (writer, readers) = index(plan, 1);
        let make = |sizes: Sizes| Epoll::new(sizes).map_err(|error| error.to_string());
        let (handle, _thread) = start(Plan::default(), writer, make).expect("started");
        handle.follow(table.clone());
        let reader = readers.reader().expect("a reader");
        let mut bench = Bench { handle, publisher, sources: table.sources(), reader };
        bench.publisher.wait_for(endpoints);
        bench
    }

    /// Publishes `rate` blocks a second over the first endpoints; lags of every 50th batch, sorted.
    fn run(
        &mut self,
        seconds: u64,
        rate: u64,
        mut at_each: impl FnMut(&mut Publisher, Duration),
    ) -> Vec<Duration> {
        let (begun, mut lags, mut waiting) = (Instant::now(), Vec::new(), Vec::new());
        let mut sent = 0;
        while begun.elapsed() < Duration::from_secs(seconds) || !waiting.is_empty() {
            let elapsed = begun.elapsed();
            let due = rate * elapsed.as_micros() as u64 / 1_000_000 / STORED as u64;
            if sent < due && elapsed < Duration::from_secs(seconds) {
                let endpoint = (sent % MEASURED as u64) as usize;
                let key = self.publisher.publish(endpoint);
                // The first second touches memory that was never used.
                if sent % 50 == 0 && elapsed > WARMUP {
                    waiting.push((endpoint, key, Instant::now()));
                }
                sent += 1;
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
            at_each(&mut self.publisher, elapsed);
            self.look(&mut waiting, &mut lags);
        }
        println!("  {} blocks stored a second", sent * STORED as u64 / seconds);
        lags.sort_unstable();
        lags
    }

    fn look(&mut self, waiting: &mut Vec<(usize, u64, Instant)>, lags: &mut Vec<Duration>) {
        let view = self.reader.view();
        waiting.retain(|(endpoint, key, since)| {
            let bit = self.sources[*endpoint].bit(0, Tier::Gpu);
            let is_seen = bit.is_some_and(|bit| view.holders(*key).contains(bit));
            if is_seen {
                lags.push(since.elapsed());
            }
            !is_seen && since.elapsed() < Duration::from_secs(10)
        });
    }

    fn cpu(&self) -> u64 {
        self.handle.report().map_or(0, |report| report.cpu)
    }
}

fn tell(name: &str, lags: &[Duration], cpu: u64, seconds: u64) {
    let at = |part: usize| lags.get(lags.len().saturating_sub(1) * part / 1_000).copied().unwrap_or_default();
    println!(
        "{name}: {} lags: p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}; event core {:.0} % of a core",
        lags.len(),
        at(500),
        at(990),
        at(999),
        at(1_000),
        cpu as f64 / 1e7 / seconds as f64
    );
}

fn steady(seconds: u64, rate: u64) {
    let mut bench = Bench::new(MEASURED, 64);
    let before = bench.cpu();
    let lags = bench.run(seconds, rate, |_, _| ());
    let cpu = bench.cpu() - before;
    tell("steady", &lags, cpu, seconds);
    bench.handle.stop();
}

fn storm(seconds: u64, rate: u64) {
    let mut bench = Bench::new(MEASURED + RESTARTING, 1);
    bench.publisher.fill(MEASURED..MEASURED + RESTARTING);
    let before = bench.cpu();
    let mut is_due = true;
    let lags = bench.run(seconds, rate, |publisher, elapsed| {
        if elapsed > WARMUP && std::mem::take(&mut is_due) {
            publisher.restart(MEASURED..MEASURED + RESTARTING);
        }
    });
    let cpu = bench.cpu() - before;
    tell("storm", &lags, cpu, seconds);
    bench.handle.stop();
}
