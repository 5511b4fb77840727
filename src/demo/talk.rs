//! The clients of a side: conversations that grow turn by turn, driven by the load generator, which checks every answer
//! to its last byte. Owns their threads; must never count an answer that was not checked.

use super::conversation::{Conversation, Manner};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;
use warmpath_perf::load::bodies::{Bodies, Body};
use warmpath_perf::load::{self, Pace, Plan, Report};

/// Longest time for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the clients of a side do.
#[derive(Clone, Debug)]
pub struct Script {
    /// Conversations held at once, a thread each.
    pub voices: u64,
    /// Conversations in all.
    pub conversations: u64,
    /// Turns of each.
    pub turns: u64,
    /// Mean pause before a next turn, in which a person reads.
    pub reading: Duration,
}

impl Script {
    /// Requests in all.
    pub fn requests(&self) -> u64 {
        self.conversations * self.turns
    }
}

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
    word: &'static str,
    manner: Manner,
    script: Script,
    stop: Arc<AtomicBool>,
    tell: Sender<Result<Report, String>>,
}

impl Talk {
    /// Starts the clients of the gateway at `target`; ids of their requests begin with `word`.
    pub fn start(target: SocketAddr, word: &'static str, manner: &Manner, script: &Script) -> Talk {
        let (tell, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (manner, script) = (manner.clone(), script.clone());
        let stage = Stage { target, word, manner, script, stop: stop.clone(), tell };
        for voice in 0..stage.script.voices {
            let stage = stage.clone();
            std::thread::spawn(move || stage.speak(voice));
        }
        Talk { told, stop, good: 0, failures: BTreeMap::new() }
    }

    /// Counts what was answered meanwhile; false once all clients have ended.
    pub fn goes_on(&mut self) -> bool {
        loop {
            match self.told.try_recv() {
                Ok(report) => self.add(report),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
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

/// No further turn is started.
impl Drop for Talk {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

impl Stage {
    /// Holds every so many-th conversation, one after the other.
    fn speak(&self, voice: u64) {
        let Script { voices, conversations, .. } = self.script;
        for number in (voice..conversations).step_by(voices.max(1) as usize) {
            if self.converse(number).is_none() {
                return;
            }
        }
    }

    /// One conversation. `None`: it is over.
    fn converse(&self, number: u64) -> Option<()> {
        let mut conversation = Conversation::of_tenant(&self.manner, number);
        for turn in 0..self.script.turns {
            if turn > 0 {
                std::thread::sleep(conversation.reading(self.script.reading));
            }
            if self.stop.load(Relaxed) {
                return None;
            }
            let (name, body) = conversation.ask(&self.manner, true);
            let report = send(self.target, &format!("{}-{name}", self.word), body);
            let failed = report.is_err();
            let heard = self.tell.send(report).is_ok();
            (heard && !failed).then_some(())?;
        }
        Some(())
    }
}

/// Sends one request that asks for a stream, and checks the answer. A number is put behind the id.
pub fn send(target: SocketAddr, id: &str, body: String) -> Result<Report, String> {
    let plan = Plan {
        target,
        path: "/v1/completions".into(),
        pace: Pace::Closed { connections: 1 },
        duration: TIMEOUT,
        requests: Some(1),
        bodies: Bodies::Given([Body { text: body, stream: true }].into()),
        timeout: TIMEOUT,
        id_prefix: format!("{id}-"),
        progress: false,
    };
    load::run(plan).map_err(|e| e.to_string())
}
