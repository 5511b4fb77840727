//! An event core for tests: reports and inventories as they were set, and a gate that holds its answers back.
//! With it, rules with exact routing in force, and a gateway that serves them over real sockets.

use super::{Running, body, outside_with};
use crate::fake::disk::MemoryDisk;
use crate::fake::{FakePlane, options};
use crate::gateway::Gateway;
use crate::serve;
use crate::store::Store;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::LocalSet;
use warmpath_core::block::BlockSize;
use warmpath_core::control::{InventoryPage, KvPlane, KvReport, RankReport, SourceReport};
use warmpath_core::engine::{Algo, Engine, Terms};
use warmpath_core::environment::Environment;
use warmpath_core::rule::body::parse;
use warmpath_core::rule::{KvExact, KvPorts, RankMode, Rule};
use warmpath_core::shared::Tier;
use warmpath_core::table::Table;
use warmpath_core::trust::Names;

/// Source, rank and tier.
type Holder = (u32, u8, Tier);

/// An event core that says what it was given.
#[derive(Default)]
pub struct FakeKv {
    /// Generations it was told to follow.
    pub followed: Mutex<Vec<u64>>,
    /// What it reports.
    pub report: Mutex<Option<KvReport>>,
    /// Keys of each holder that has some, in order; `from` is a position in them.
    pub keys: Mutex<HashMap<Holder, Vec<u64>>>,
    /// Keys it gives at once, whatever it is asked for.
    pub page: Mutex<Option<usize>>,
    /// Sources it was told to take over.
    pub reacquired: Mutex<Vec<u32>>,
    /// While closed, answers wait.
    pub gate: Gate,
}

/// Holds callers back and counts them.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    waiting: usize,
    most: usize,
}

impl Gate {
    /// From now on nobody passes.
    pub fn close(&self) {
        self.state.lock().unwrap().closed = true;
    }

    /// Lets all pass; the most that ever waited at once.
    pub fn open(&self) -> usize {
        let mut state = self.state.lock().unwrap();
        state.closed = false;
        self.changed.notify_all();
        state.most
    }

    /// Returns when this many wait.
    pub fn wait_for(&self, waiting: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| s.waiting < waiting).unwrap());
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state.most = state.most.max(state.waiting);
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |s| s.closed).unwrap();
        state.waiting -= 1;
    }
}

impl KvPlane for FakeKv {
    fn follow(&self, table: Arc<Table>) {
        self.followed.lock().unwrap().push(table.generation);
    }

    fn report(&self) -> Option<KvReport> {
        self.gate.pass();
        self.report.lock().unwrap().clone()
    }

    fn inventory(&self, source: u32, rank: u8, tier: Tier, from: u64, limit: usize) -> Option<InventoryPage> {
        assert!((1..=10_000).contains(&limit), "asked for {limit} keys");
        let report = self.report.lock().unwrap();
        let known = report.iter().flat_map(|r| &r.sources).find(|s| s.source == source)?;
        known.ranks.get(usize::from(rank))?;
        let held = self.keys.lock().unwrap().get(&(source, rank, tier)).cloned().unwrap_or_default();
        let (from, most) = (from as usize, self.page.lock().unwrap().unwrap_or(limit).min(limit));
        let end = (from + most).min(held.len());
        let next = (end < held.len()).then_some(end as u64);
        Some(InventoryPage { keys: held[from..end].to_vec(), next, total: held.len() as u64 })
    }

    fn reacquire(&self, source: u32) -> bool {
        self.reacquired.lock().unwrap().push(source);
        self.report.lock().unwrap().iter().flat_map(|r| &r.sources).any(|s| s.source == source)
    }
}

/// A rule at `port` that routes by blocks, over endpoints with these ports and `ranks` ranks each.
pub fn exact_rule(name: &str, port: u16, endpoints: &[u16], ranks: u8) -> Rule {
    let mut body = body(name, port);
    let endpoint = |p: &u16| serde_json::json!({"endpointIP": "127.0.0.1", "targetPort": p, "weight": 1});
    body["endpoints"] = endpoints.iter().map(endpoint).collect();
    let mut rule = parse(&body, &Environment::default(), || name.into()).unwrap();
    let contract = Engine::Sglang.contract(&Terms::plain(Algo::Sha256Sglang, BlockSize::SIXTEEN)).unwrap();
    rule.exact = Some(KvExact {
        profile: Default::default(),
        contract,
        version: None,
        ports: KvPorts::default(),
        ranks,
        rank_mode: RankMode::Pin,
        warmup: 0,
    });
    rule
}

/// Service 1 `chat` over sources 2 and 3 with two ranks each, service 4 `also` over source 2, service 5
/// `plain` without exact routing.
pub fn exact_table() -> Table {
    let plain = parse(&body("plain", 9003), &Environment::default(), || "plain".into()).unwrap();
    let rules = vec![exact_rule("chat", 9001, &[8001, 8002], 2), exact_rule("also", 9002, &[8001], 2), plain];
    Table::next(&Table::default(), rules, &mut 0, 0)
}

/// What an event core says of [`exact_table`]: source 2 is whole, source 3 drained, fenced and silent.
pub fn exact_report() -> KvReport {
    let known = |rank: u64| RankReport {
        connected: true,
        standing: ["complete", "since"][rank as usize],
        reason: ["", "joined late"][rank as usize],
        sequence: Some(40 + rank),
        last_event: 57_500_000_000 - rank * 1_000_000_000,
        blocks: [10 + rank, 20 + rank, 30 + rank],
        reconnects: 1 + rank,
        receive_errors: 3 + rank,
        batches: 5 + rank,
        stored: 7 + rank,
        removed: 9 + rank,
        cleared: 11 + rank,
        schema_mismatch: 13 + rank,
        undecodable: 15 + rank,
        rank_mismatch: 17 + rank,
        refused: 19 + rank,
        replays: 21 + rank,
        waiting: 23 + rank,
        observed: 23 + rank,
        learned: 25 + rank,
    };
    let silent = RankReport { standing: "fenced", ..RankReport::default() };
    let source = |source, fence, transport, ranks| SourceReport {
        source,
        fence,
        findings: Vec::new(),
        version: "0.5.16".into(),
        transport,
        names: Names::default(),
        ranks,
    };
    let mut fenced =
        source(3, Some(warmpath_core::shared::Fence::Ownership), "drain", vec![silent.clone(), silent]);
    fenced.findings = vec!["another reader drains it; stop it and take the stream over".into()];
    fenced.version = "1.2\"\\\nrc".into();
    KvReport {
        index_blocks: 31,
        index_capacity: 1_000,
        index_bytes: 65_536,
        refused: 39,
        proofs_dropped: 41,
        cpu: 1_500_000_000,
        sources: vec![source(2, None, "dial", vec![known(0), known(1)]), fenced],
    }
}

/// An event core that knows [`exact_table`].
pub fn exact_kv() -> Arc<FakeKv> {
    let kv = FakeKv::default();
    *kv.report.lock().unwrap() = Some(exact_report());
    Arc::new(kv)
}

impl Running {
    /// Serves `table` as it is: no rule of it was posted, none is on disk.
    pub fn serving(table: Table, plane: &Arc<FakePlane>, kv: &Arc<FakeKv>) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let (stop, mut stopped) = tokio::sync::mpsc::channel(2);
        let (started, address) = mpsc::channel();
        let (socket, outside) = (options.socket.clone(), outside_with(plane, kv.clone()));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                let mut gateway = Gateway::new(outside, Store::on(Box::new(MemoryDisk::default())), 0);
                gateway.table = Arc::new(table);
                let gateway = Rc::new(RefCell::new(gateway));
                let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let unix = UnixListener::bind(socket).unwrap();
                started.send(tcp.local_addr().unwrap()).unwrap();
                tokio::task::spawn_local(serve::tcp(tcp, gateway.clone(), None));
                tokio::task::spawn_local(serve::unix(unix, gateway.clone()));
                stopped.recv().await;
            });
        });
        let address = address.recv().expect("the admin thread did not start");
        Running { options, address, stop, thread: Some(thread), folder: Some(folder) }
    }
}
