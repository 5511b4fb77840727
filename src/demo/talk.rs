//! The clients of the demo: conversations that grow turn by turn, driven by the load generator, which checks
//! every answer to its last byte. Owns their threads; must never count an answer that was not checked.

use super::tokens::Conversation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use warmpath_perf::load::bodies::{Bodies, Body, Shape};
use warmpath_perf::load::{self, Pace, Plan, Report};

/// Who speaks.
#[derive(Clone, Copy)]
struct Voice {
    model: &'static str,
    /// Chats, else completions of token ids.
    chats: bool,
    /// Answers are streamed.
    stream: bool,
}

const fn voice(model: &'static str, chats: bool, stream: bool) -> Voice {
    Voice { model, chats, stream }
}

/// A thread each.
const VOICES: [Voice; 5] = [
    voice("small", false, true),
    voice("small", false, false),
    voice("small", false, true),
    voice("large", true, true),
    voice("large", true, false),
];
/// Chats that a voice holds at once; of conversations in token ids it holds one.
const CHATS: u64 = 2;
/// Turns of a conversation.
const TURNS: u64 = 4;
/// Bytes of a chat's last turn, about.
const SIZE: usize = 3000;
/// The longest wait before a next turn.
const READING: Duration = Duration::from_secs(5);
/// Time between two looks whether the wait is over.
const LOOK: Duration = Duration::from_millis(20);

/// Tells whether the gateway knows all that the engines have told of their caches so far.
pub type Caught = Arc<dyn Fn() -> bool + Send + Sync>;

/// The running clients.
pub struct Talk {
    told: Receiver<Result<Report, String>>,
    stop: Arc<AtomicBool>,
    good: u64,
    failures: BTreeMap<String, u64>,
}

/// What the threads share.
#[derive(Clone)]
struct Stage {
    target: SocketAddr,
    stop: Arc<AtomicBool>,
    caught: Caught,
    tell: Sender<Result<Report, String>>,
}

impl Talk {
    /// Starts clients of the gateway at `target`: `requests` in all, or until they are stopped.
    pub fn start(target: SocketAddr, requests: Option<u64>, caught: Caught) -> Talk {
        let (tell, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let voices = VOICES.len() as u64;
        for voice in 0..voices {
            let stage = Stage { target, stop: stop.clone(), caught: caught.clone(), tell: tell.clone() };
            let quota = requests.map_or(u64::MAX, |n| n / voices + u64::from(voice < n % voices));
            std::thread::spawn(move || stage.speak(voice, quota));
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

    /// Starts no further turn.
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

impl Stage {
    /// Holds conversations one after the other, until `quota` requests were sent or the talk is stopped.
    fn speak(&self, voice: u64, mut quota: u64) {
        let mut round = 0;
        while quota > 0 && !self.stop.load(Relaxed) {
            let sent = match VOICES[voice as usize].chats {
                true => self.chat(voice, round, quota.min(CHATS * TURNS)),
                false => self.converse(voice, round, quota.min(TURNS)),
            };
            let Some(sent) = sent else { return };
            quota -= sent;
            round += 1;
        }
    }

    /// Chats side by side, `requests` in all. `None`: it is over.
    fn chat(&self, voice: u64, round: u64, requests: u64) -> Option<u64> {
        let Voice { model, stream, .. } = VOICES[voice as usize];
        let shape = Shape {
            chat: true,
            model: model.into(),
            size: SIZE,
            turns: TURNS,
            max_tokens: None,
            stream,
            seed: seed(voice, round),
        };
        let bodies = Bodies::Generated(shape);
        self.run(Plan {
            pace: Pace::Closed { connections: CHATS as usize },
            ..self.plan("/v1/chat/completions", bodies, requests, format!("demo-{voice}-{round}-"))
        })?;
        Some(requests)
    }

    /// One conversation of token ids. `None`: it is over.
    fn converse(&self, voice: u64, round: u64, turns: u64) -> Option<u64> {
        let Voice { model, stream, .. } = VOICES[voice as usize];
        let mut conversation = Conversation::new(seed(voice, round));
        for turn in 0..turns {
            if self.stop.load(Relaxed) {
                return None;
            }
            let body = Body { text: conversation.ask(model, stream), stream };
            let bodies = Bodies::Given([body].into());
            self.run(self.plan("/v1/completions", bodies, 1, format!("demo-{voice}-{round}.{turn}-")))?;
            self.read_answer();
        }
        Some(turns)
    }

    /// A person reads before going on; here until the engines' events have arrived.
    fn read_answer(&self) {
        let begun = Instant::now();
        while !(self.caught)() && begun.elapsed() < READING && !self.stop.load(Relaxed) {
            std::thread::sleep(LOOK);
        }
    }

    fn run(&self, plan: Plan) -> Option<()> {
        let report = load::run(plan).map_err(|e| e.to_string());
        let failed = report.is_err();
        let heard = self.tell.send(report).is_ok();
        (heard && !failed).then_some(())
    }

    fn plan(&self, path: &str, bodies: Bodies, requests: u64, id_prefix: String) -> Plan {
        Plan {
            target: self.target,
            path: path.into(),
            pace: Pace::Closed { connections: 1 },
            duration: Duration::from_secs(600),
            requests: Some(requests),
            bodies,
            timeout: Duration::from_secs(30),
            id_prefix,
            progress: false,
        }
    }
}

fn seed(voice: u64, round: u64) -> u64 {
    round * VOICES.len() as u64 + voice
}
