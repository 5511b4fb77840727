//! The admin side as a process of its own: killed without warning while rules change, and told to stop.
//!
//! The gateway process is this test binary again, running [`gateway_process`] alone.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use warmpath_admin::{NoKv, Options, Outside, run};
use warmpath_core::control::{DataPlane, DrainPhase, InstallFault, ShardReport};
use warmpath_core::table::Table;

/// Says to [`gateway_process`] in which folder to run.
const FOLDER: &str = "WARMPATH_TEST_FOLDER";

/// Kills in a row; `tests/long/kills.rs` goes on to a thousand.
const ROUNDS: usize = 20;

struct IdleShards;

impl DataPlane for IdleShards {
    fn install(&self, _: Arc<Table>) -> Result<(), InstallFault> {
        Ok(())
    }

    fn reports(&self) -> Vec<ShardReport> {
        vec![ShardReport::default()]
    }

    fn drain(&self, phase: DrainPhase) {
        println!("drain {phase:?}");
    }
}

/// Not a test by itself: the process that the tests start.
#[test]
fn gateway_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let options = Options {
        admin: ([127, 0, 0, 1], 0).into(),
        socket: folder.join("ctl.sock"),
        state_dir: folder.join("state"),
        lame_duck: Duration::ZERO,
        ..Options::default()
    };
    let outside = Outside {
        data_plane: Arc::new(IdleShards),
        environment: Arc::default(),
        kv: Arc::new(NoKv),
        now: || 0,
        wall: || Duration::ZERO,
        say: |_| {},
        random: || RandomState::new().hash_one(0),
    };
    run(&options, outside, |_| println!("started")).unwrap();
    println!("ended");
}

struct Gateway {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    socket: PathBuf,
}

impl Gateway {
    fn start(folder: &Path) -> Gateway {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["gateway_process", "--exact", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut gateway = Gateway { child, lines, socket: folder.join("ctl.sock") };
        gateway.wait_for("started");
        gateway
    }

    /// Lines up to the one that ends with `word`.
    fn wait_for(&mut self, word: &str) -> Vec<String> {
        let mut before = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let found = line.ends_with(word);
            before.push(line);
            if found {
                return before;
            }
        }
        panic!("the gateway ended before it said {word}: {before:?}");
    }

    /// An answer's body, if the gateway lived long enough to give it.
    fn call(&self, method: &str, path: &str, body: &str) -> Option<Value> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    fn ports(&self) -> Vec<u64> {
        let list = self.call("GET", "/netlox/v1/config/loadbalancer/all", "").unwrap();
        let rules = list["lbAttr"].as_array().unwrap();
        rules.iter().map(|r| r["serviceArguments"]["port"].as_u64().unwrap()).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rule(port: u64) -> String {
    json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": port, "protocol": "tcp", "mode": 4},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 8000, "weight": 1}],
    })
    .to_string()
}

#[test]
fn acknowledged_rules_survive_a_kill_at_whatever_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut next = 1;
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut gateway = Gateway::start(folder.path());
        let kept = gateway.ports();
        assert!(acknowledged.iter().all(|p| kept.contains(p)), "round {round}: {acknowledged:?} {kept:?}");
        assert!(kept.len() <= acknowledged.len() + round, "at most the one in flight was added: {kept:?}");
        let (first, begun) = std::sync::mpsc::channel();
        let process = gateway.child.id();
        let kill = std::thread::spawn(move || {
            begun.recv().unwrap();
            std::thread::sleep(Duration::from_micros(1_300 * round as u64));
            signal(process, rustix::process::Signal::KILL);
        });
        while let Some(answer) = gateway.call("POST", "/netlox/v1/config/loadbalancer", &rule(next)) {
            assert_eq!(answer["result"], "Success");
            acknowledged.push(next);
            next += 1;
            let _ = first.send(());
        }
        next += 1;
        kill.join().unwrap();
        gateway.child.wait().unwrap();
    }
    assert!(acknowledged.len() >= ROUNDS, "every round had a change accepted before its kill");
}

#[test]
fn sigterm_goes_down_in_order_and_takes_the_socket_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path());
    signal(gateway.child.id(), rustix::process::Signal::TERM);
    let said = gateway.wait_for("ended");
    let drains: Vec<_> = said.iter().filter_map(|l| l.strip_prefix("drain ")).collect();
    assert_eq!(drains, ["LameDuck", "Closing", "Cutting"]);
    assert!(gateway.child.wait().unwrap().success());
    assert!(!gateway.socket.exists());
}

fn signal(process: u32, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(process as i32).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}
