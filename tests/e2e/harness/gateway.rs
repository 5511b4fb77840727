//! The gateway's process. Owns its start, its folder, its log and its end; must never leave it running.

use super::{Client, PATIENCE, Reply, free_address, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use warmpath_ring::{Sizes, Uring};

/// What a gateway is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Uring,
    Epoll,
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Driver::Uring => "uring",
            Driver::Epoll => "epoll",
        }
    }

    /// Runs a test on this driver, or says why it can't.
    pub fn run(self, test: fn(Driver)) {
        static REFUSED: OnceLock<Option<String>> = OnceLock::new();
        if self == Driver::Uring {
            let refused = REFUSED.get_or_init(|| Uring::new(Sizes::default()).err().map(|e| e.to_string()));
            if let Some(why) = refused {
                return println!("not_run: {why}");
            }
        }
        test(self);
    }
}

/// The binary under test, for other uses than [`Gateway`].
pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_warmpath"))
}

/// A running gateway. Dropping it kills it and removes its folder.
pub struct Gateway {
    child: Child,
    /// Of its first rule.
    pub vip: SocketAddr,
    pub admin: SocketAddr,
    pub folder: PathBuf,
    keep_folder: bool,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Gateway {
    /// One shard, and the first rule's address as `vip`.
    pub fn start(driver: Driver, rules: &[Value]) -> Gateway {
        Gateway::start_with(driver, rules, &["--shards", "1"])
    }

    /// The same with flags of its own.
    pub fn start_with(driver: Driver, rules: &[Value], flags: &[&str]) -> Gateway {
        Gateway::start_in(driver, rules, flags, &[])
    }

    /// The same with variables of the environment.
    pub fn start_in(driver: Driver, rules: &[Value], flags: &[&str], variables: &[(&str, &str)]) -> Gateway {
        let folder = Gateway::folder();
        std::fs::write(folder.join("rules.json"), Value::from(rules.to_vec()).to_string()).unwrap();
        let mut gateway = Gateway::spawn_in(driver, folder, true, flags, variables);
        let service = &rules[0]["serviceArguments"];
        let ip = service["externalIP"].as_str().unwrap().parse().unwrap();
        gateway.vip = SocketAddr::new(ip, u16::try_from(service["port"].as_u64().unwrap()).unwrap());
        gateway
    }

    /// A gateway on a folder that holds its state; ready on return.
    pub fn spawn(driver: Driver, folder: PathBuf, with_rules: bool, flags: &[&str]) -> Gateway {
        Gateway::spawn_in(driver, folder, with_rules, flags, &[])
    }

    /// The same with variables of the environment.
    pub fn spawn_in(
        driver: Driver,
        folder: PathBuf,
        with_rules: bool,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Gateway {
        let admin = free_address();
        let mut command = Gateway::command(driver, &folder, admin);
        if with_rules {
            command.arg("--rules").arg(folder.join("rules.json"));
        }
        let mut child =
            command.args(flags).envs(variables.iter().copied()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let reader = Some(keep_log(&mut child, log.clone()));
        let mut gateway = Gateway { child, vip: admin, admin, folder, keep_folder: false, log, reader };
        wait_until("the gateway is ready", || {
            let ended = gateway.child.try_wait().unwrap();
            assert!(ended.is_none(), "the gateway ended: {}", gateway.log());
            gateway.is_ready()
        });
        gateway
    }

    /// `serve` on a folder, not started.
    pub fn command(driver: Driver, folder: &Path, admin: SocketAddr) -> Command {
        let mut command = binary();
        command.args(["serve", "--driver", driver.name(), "--admin", &admin.to_string()]);
        // `RING_COMPLETIONS=8 cargo test --test e2e` makes an overflowing completion queue the ordinary path.
        if let Ok(completions) = std::env::var("RING_COMPLETIONS") {
            command.args(["--completions", &completions]);
        }
        // No test depends on how fast this build and machine tokenize.
        command.args(["--token-wait", "60000"]);
        command.arg("--state-dir").arg(folder.join("state"));
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// A new empty folder, in memory where there is such a place: rule changes wait for the disk, which may be
    /// busy for many seconds.
    pub fn folder() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("warmpath-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let in_memory = Path::new("/dev/shm").join(&name);
        if std::fs::create_dir(&in_memory).is_ok() {
            return in_memory;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub fn is_ready(&self) -> bool {
        self.ready_status() == Some(200)
    }

    /// What readiness says; `None` if nobody answers.
    pub fn ready_status(&self) -> Option<u16> {
        let stream = std::net::TcpStream::connect(self.admin).ok()?;
        let mut client = Client::of(stream);
        let request = admin_request("GET", "/netlox/v1/status/ready", "", "localhost");
        client.stream.write_all(&request).ok()?;
        client.try_reply(false).ok().map(|reply| reply.status)
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// A client of the first rule.
    pub fn client(&self) -> Client {
        Client::connect(self.vip)
    }

    /// Asks the admin API.
    pub fn admin(&self, method: &str, path: &str, body: &str) -> Reply {
        Client::connect(self.admin).ask(&admin_request(method, path, body, &self.admin.to_string()))
    }

    /// The same over the unix socket: status and body.
    pub fn admin_unix(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.folder.join("state/ctl.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&admin_request(method, path, body, "localhost")).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    /// Puts a rule in force and waits for the shards to have it.
    pub fn post_rule(&self, rule: &Value) {
        let reply = self.admin("POST", "/netlox/v1/config/loadbalancer", &rule.to_string());
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        self.settle();
    }

    /// Deletes the one rule of an address, with a query like `?model_name=a`.
    pub fn delete_rule(&self, vip: SocketAddr, query: &str) {
        let (ip, port) = (vip.ip(), vip.port());
        let path =
            format!("/netlox/v1/config/loadbalancer/externalipaddress/{ip}/port/{port}/protocol/tcp{query}");
        let reply = self.admin("DELETE", &path, "");
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        self.settle();
    }

    /// Waits until every shard has the rules in force.
    pub fn settle(&self) {
        wait_until("the shards take the rules over", || {
            let want = self.admin("GET", "/netlox/v1/status/ready", "").json()["generation"].clone();
            let shards = self.shards();
            !shards.is_empty() && shards.iter().all(|s| s["generation"] == want)
        });
    }

    /// What the shards say of themselves.
    pub fn shards(&self) -> Vec<Value> {
        self.admin("GET", "/netlox/v1/shards", "").json()["shards"].as_array().unwrap().clone()
    }

    /// A counter over all shards.
    pub fn count(&self, word: &str) -> u64 {
        self.shards().iter().map(|s| s["counts"][word].as_u64().unwrap()).sum()
    }

    /// A figure over all shards, like `active`.
    pub fn sum(&self, member: &str) -> u64 {
        self.shards().iter().map(|s| s[member].as_u64().unwrap()).sum()
    }

    /// Its resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Its highest resident memory in bytes.
    pub fn resident_peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the gateway ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Kills it without warning; its folder stays, for the next one.
    pub fn kill(mut self) -> PathBuf {
        self.keep_folder = true;
        self.folder.clone()
    }
}

/// A request to the admin API.
pub fn admin_request(method: &str, path: &str, body: &str, host: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn keep_log(child: &mut Child, log: Arc<Mutex<String>>) -> JoinHandle<()> {
    let stderr = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    })
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{log}");
        } else {
            assert!(!log.contains("panicked"), "{log}");
        }
        if !self.keep_folder {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
