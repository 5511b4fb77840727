//! From an engine's socket to the index: how long until a stored block is visible.
//!
//! *steady*: 64 endpoints store so many blocks a second, 64 an event, and remove what is old. *storm*: 64 endpoints
//! store and remove so many blocks a second, one an event, while 64 others restart at once, each with 12,800
//! blocks to forget and as many to replay; only the lag of the first is told.
//!
//! *alone*: the event core in virtual time, with publishers that take none. *sockets*: over loopback, the event core
//! on a thread and a core of its own. `cargo bench -p warmpath-events --bench core -- [alone | sockets] [steady |
//! storm] [RATE]`, all of them unless said.

mod alone;
#[path = "../../tests/core_simulated/peer.rs"]
mod peer;
mod publisher;
mod sockets;
mod template;

use std::net::SocketAddr;
use std::time::Duration;
use warmpath_core::block::BlockSize;
use warmpath_core::engine::{Algo, Engine, Seed, Terms};
use warmpath_core::environment::Environment;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, Rule, body};

/// Endpoints that are measured, and those that restart.
const MEASURED: usize = 64;
const RESTARTING: usize = 64;

/// Batches that an endpoint keeps before it removes the oldest one's blocks.
const KEPT: usize = 200;

/// Lags before that are not told: memory is touched for the first time.
const WARMUP: Duration = Duration::from_secs(2);

/// What is measured.
#[derive(Clone, Copy)]
struct Load {
    is_storm: bool,
    /// Blocks stored a second.
    rate: u64,
    blocks_an_event: usize,
}

impl Load {
    fn endpoints(self) -> usize {
        if self.is_storm { MEASURED + RESTARTING } else { MEASURED }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_measuring = arguments.iter().any(|argument| argument == "--bench");
    let given: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let (seconds, rates) = match (is_measuring, given.is_empty()) {
        (false, _) => (3, vec![10_000]),
        (true, true) => (7, vec![200_000, 1_000_000]),
        (true, false) => (7, given),
    };
    // Of several words of one kind all are asked for, of none all too.
    let asked = |own: &str, other: &str| {
        let has = |word: &str| arguments.iter().any(|argument| argument == word);
        has(own) || !has(other)
    };
    for rate in rates {
        let steady = Load { is_storm: false, rate, blocks_an_event: 64 };
        let storm = Load { is_storm: true, rate, blocks_an_event: 1 };
        for load in [steady, storm] {
            let is_asked = if load.is_storm { asked("storm", "steady") } else { asked("steady", "storm") };
            if is_asked && asked("alone", "sockets") {
                alone::run(seconds, load);
            }
            if is_asked && asked("sockets", "alone") {
                sockets::run(seconds, load);
            }
        }
    }
}

fn address(endpoint: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 1 + (endpoint / 200) as u8, 1 + (endpoint % 200) as u8], 9))
}

/// A rule over so many endpoints that publish and replay at these ports.
fn rule(endpoints: usize, (publish, replay): (u16, u16)) -> Rule {
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
        profile: Default::default(),
        contract: Engine::Vllm.contract(&terms).expect("a contract"),
        version: None,
        ports: KvPorts { publish, replay, bind: false },
        ranks: 1,
        rank_mode: RankMode::Pin,
        warmup: 0,
    });
    rule
}

/// The index that all runs write.
fn plan(endpoints: usize) -> warmpath_kvindex::Plan {
    warmpath_kvindex::Plan::for_blocks(4_000_000, endpoints, 2).expect("a plan")
}

/// Prints lags, which are sorted, and the event core's share of a core.
fn tell(how: &str, load: Load, lags: &[Duration], share: f64) {
    let at = |part: usize| lags.get(lags.len().saturating_sub(1) * part / 1_000).copied().unwrap_or_default();
    println!(
        "{how}, {}, {} blocks/s: {} lags: p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}, max {:.2?}; event core {:.0} % of a core",
        if load.is_storm { "storm" } else { "steady" },
        load.rate,
        lags.len(),
        at(500),
        at(990),
        at(999),
        at(1_000),
        share * 100.0,
    );
}
