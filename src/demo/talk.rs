//! The clients of the demo: conversations that grow turn by turn, driven by the load generator, which checks
//! every answer to its last byte. Owns their threads; must never count an answer that was not checked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use warmpath_perf::load::bodies::{Bodies, Shape};
use warmpath_perf::load::{self, Pace, Plan, Report};

/// Model and whether the answer is streamed, a thread each.
const VOICES: [(&str, bool); 3] = [("small", true), ("small", false), ("large", true)];
/// Conversations that a voice holds at once.
const CONVERSATIONS: u64 = 2;
/// Turns of a conversation.
const TURNS: u64 = 4;
/// Bytes of a conversation's last turn, about.
const SIZE: usize = 3000;

/// The running clients.
pub struct Talk {
    told: Receiver<Result<Report, String>>,
    stop: Arc<AtomicBool>,
    good: u64,
    failures: BTreeMap<String, u64>,
}

impl Talk {
    /// Starts clients of the gateway at `target`: `requests` in all, or until they are stopped.
    pub fn start(target: SocketAddr, requests: Option<u64>) -> Talk {
        let (tell, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let voices = VOICES.len() as u64;
        for voice in 0..voices {
            let (tell, stop) = (tell.clone(), stop.clone());
            let quota = requests.map_or(u64::MAX, |n| n / voices + u64::from(voice < n % voices));
            std::thread::spawn(move || speak(target, voice, quota, &stop, &tell));
        }
        Talk { told, stop, good: 0, failures: BTreeMap::new() }
    }

    /// Waits for `pause`; false once all clients have ended.
    pub fn goes_on(&mut self, pause: Duration) -> bool {
        match self.told.recv_timeout(pause) {
            Ok(report) => self.add(report),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// Starts no further conversation.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether `wanted` requests were answered, every one whole and right.
    pub fn verdict(&self, wanted: u64) -> Result<(), String> {
        if self.good == wanted && self.failures.is_empty() {
            return Ok(());
        }
        let failures: Vec<_> = self.failures.iter().map(|(name, count)| format!("{count} {name}")).collect();
        Err(format!("{} of {wanted} requests were answered; failures: {}", self.good, failures.join(", ")))
    }

    fn add(&mut self, report: Result<Report, String>) {
        match report {
            Ok(report) => {
                self.good += report.good;
                for (name, count) in report.failures {
                    *self.failures.entry(name).or_default() += count;
                }
            }
            Err(sentence) => *self.failures.entry(sentence).or_default() += 1,
        }
    }
}

/// Holds conversations one after the other, until `quota` requests were sent or `stop`.
fn speak(
    target: SocketAddr,
    voice: u64,
    mut quota: u64,
    stop: &AtomicBool,
    tell: &Sender<Result<Report, String>>,
) {
    let mut round = 0;
    while quota > 0 && !stop.load(Relaxed) {
        let requests = quota.min(CONVERSATIONS * TURNS);
        let report = load::run(plan(target, voice, round, requests)).map_err(|e| e.to_string());
        let failed = report.is_err();
        if tell.send(report).is_err() || failed {
            return;
        }
        quota -= requests;
        round += 1;
    }
}

fn plan(target: SocketAddr, voice: u64, round: u64, requests: u64) -> Plan {
    let (model, stream) = VOICES[voice as usize];
    let shape = Shape {
        chat: true,
        model: model.into(),
        size: SIZE,
        turns: TURNS,
        max_tokens: None,
        stream,
        seed: round * VOICES.len() as u64 + voice,
    };
    Plan {
        target,
        path: "/v1/chat/completions".into(),
        pace: Pace::Closed { connections: CONVERSATIONS as usize },
        duration: Duration::from_secs(600),
        requests: Some(requests),
        bodies: Bodies::Generated(shape),
        timeout: Duration::from_secs(30),
        id_prefix: format!("demo-{voice}-{round}-"),
        progress: false,
    }
}
