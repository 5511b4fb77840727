//! Stand-ins for tests: shards that only remember what they were told, a gateway on free ports, a client.

pub mod disk;
pub mod exact;
pub mod kv;
pub mod profiles;

use crate::change::{Wanted, change};
use crate::disk::{Disk, RealDisk};
use crate::gateway::Outside;
use crate::kv::NoKv;
use crate::refusal::Refusal;
use crate::run::{Options, run_until};
use crate::serve::Shared;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use warmpath_core::control::{DataPlane, DrainPhase, InstallFault, KvPlane, ShardReport};
use warmpath_core::profile::registry::Registry;
use warmpath_core::table::Table;

/// The longest that a test waits before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Shards that remember.
#[derive(Default)]
pub struct FakePlane {
    pub tables: Mutex<Vec<Arc<Table>>>,
    pub phases: Mutex<Vec<DrainPhase>>,
    pub reports: Mutex<Vec<ShardReport>>,
    /// An address that some other program has.
    pub busy: Mutex<Option<SocketAddr>>,
    /// The profiles that are published.
    pub registry: Mutex<Arc<Registry>>,
}

impl DataPlane for FakePlane {
    fn install(&self, table: Arc<Table>) -> Result<(), InstallFault> {
        if let Some(vip) = *self.busy.lock().unwrap()
            && table.vip(vip).is_some()
        {
            return Err(InstallFault { vip, message: format!("{vip} is in use; choose another port") });
        }
        self.tables.lock().unwrap().push(table);
        Ok(())
    }

    fn reports(&self) -> Vec<ShardReport> {
        self.reports.lock().unwrap().clone()
    }

    fn drain(&self, phase: DrainPhase) {
        self.phases.lock().unwrap().push(phase);
    }

    fn registry(&self) -> Arc<Registry> {
        self.registry.lock().unwrap().clone()
    }
}

impl FakePlane {
    /// One shard, idle.
    pub fn new() -> Arc<FakePlane> {
        let plane = FakePlane::default();
        plane.reports.lock().unwrap().push(ShardReport::default());
        Arc::new(plane)
    }

    /// Names of the rules in force.
    pub fn names(&self) -> Vec<String> {
        let tables = self.tables.lock().unwrap();
        let services = tables.last().into_iter().flat_map(|t| &t.vips).flat_map(|v| &v.services);
        services.map(|s| s.rule.name.clone()).collect()
    }
}

/// An outside whose time stands still at one minute and whose random bits count up.
pub fn outside(plane: &Arc<FakePlane>) -> Outside {
    outside_with(plane, Arc::new(NoKv))
}

/// The same with an event core.
pub fn outside_with(plane: &Arc<FakePlane>, kv: Arc<dyn KvPlane>) -> Outside {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Outside {
        data_plane: plane.clone(),
        environment: Arc::default(),
        kv,
        now: || 60_000_000_000,
        wall: || Duration::from_secs(1_700_000_000),
        say: |_| {},
        random: || NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

/// Runs `work` to its end, as the admin thread would.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Creates or replaces one rule.
pub fn post(gateway: &Shared, body: &Value) -> Result<(), Refusal> {
    block_on(change(gateway, |gateway| gateway.with(body).map(Wanted::rules))).map(drop)
}

/// A rule body at `port` with one endpoint.
pub fn body(name: &str, port: u16) -> Value {
    json!({
        "serviceArguments": {
            "externalIP": "127.0.0.1", "port": port, "protocol": "tcp", "mode": 4, "name": name,
        },
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 8000, "weight": 1}],
    })
}

/// An admin thread on free ports in a folder of its own.
pub struct Running {
    pub options: Options,
    pub address: SocketAddr,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
    folder: Option<tempfile::TempDir>,
}

impl Running {
    /// Starts with default options.
    pub fn start(plane: &Arc<FakePlane>) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let mut running = Running::with(options(folder.path()), plane);
        running.folder = Some(folder);
        running
    }

    /// Starts with these options.
    pub fn with(options: Options, plane: &Arc<FakePlane>) -> Running {
        Running::on(Box::new(RealDisk), options, plane)
    }

    /// Starts with these options on `disk`.
    pub fn on(disk: Box<dyn Disk>, options: Options, plane: &Arc<FakePlane>) -> Running {
        Running::outside(disk, options, outside(plane))
    }

    /// Starts with all of it given.
    pub fn outside(disk: Box<dyn Disk>, options: Options, outside: Outside) -> Running {
        let (stop, stopped) = tokio::sync::mpsc::channel(2);
        let (started, address) = mpsc::channel();
        let given = options.clone();
        let thread = std::thread::spawn(move || {
            run_until(&given, outside, disk, move |a| started.send(a).unwrap(), stopped, None).unwrap();
        });
        let address = address.recv().expect("the admin thread did not start");
        Running { options, address, stop, thread: Some(thread), folder: None }
    }

    /// What a signal does.
    pub fn signal(&self) {
        self.stop.blocking_send(()).unwrap();
    }

    /// Waits for the end that signals brought about.
    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// A call over TCP: status and body.
    pub fn tcp(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        parsed(&exchange(stream, &request(method, path, "127.0.0.1", body)))
    }

    /// A call over the unix socket: status and body.
    pub fn unix(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let stream = UnixStream::connect(&self.options.socket).unwrap();
        parsed(&exchange(stream, &request(method, path, "gateway", body)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.stop.blocking_send(());
            let _ = self.stop.blocking_send(());
            let _ = thread.join();
        }
    }
}

/// Options that touch only `folder` and a free port.
pub fn options(folder: &std::path::Path) -> Options {
    Options {
        admin: ([127, 0, 0, 1], 0).into(),
        admin_tokens: None,
        socket: folder.join("ctl.sock"),
        state_dir: folder.join("state"),
        rules_file: None,
        lame_duck: Duration::ZERO,
        drain_timeout: Duration::from_secs(60),
        scrape_interval: crate::run::SCRAPE_INTERVAL,
    }
}

/// An HTTP/1.1 request that closes.
pub fn request(method: &str, path: &str, host: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends `request`, reads to the end.
pub fn exchange(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn parsed(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into())))
}
