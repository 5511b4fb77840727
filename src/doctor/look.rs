//! One look at an engine: its port, the sockets of its events, and all that they told so far. Owns the sending of
//! probes and the hearing of what they cause; must never judge.

use super::ask::{Http, json, refusal};
use super::blocks::{Block, Heard};
use super::launch::{self, Launch};
use super::publisher::{Payload, Publisher};
use super::row::Row;
use super::wanted::Wanted;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use warmpath_core::engine::Version;
use warmpath_events::engines::{Delivery, delivery, naming};
use warmpath_events::facts::Facts;
use warmpath_events::trtllm_json::parse;

/// What the person said about how to look.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an answer, a handshake and an event may take.
    pub patience: Duration,
    /// Events may be taken that others then do not get (TensorRT-LLM).
    pub destructive: bool,
}

/// One look.
pub struct Look<'w> {
    /// What the engine is compared with.
    pub wanted: &'w Wanted,
    /// Its launch settings.
    pub launch: &'static Launch,
    /// How to look.
    pub settings: Settings,
    /// Its port.
    pub http: Http,
    /// What it says of itself.
    pub facts: Facts,
    /// Its version, as far as it can be read.
    pub version: Option<Version>,
    /// Its publishers, by rank.
    pub publishers: Vec<Publisher>,
    /// All blocks that it told of.
    pub heard: Heard,
    /// The last batch of each rank.
    pub last: Vec<Option<Payload>>,
    /// What was found out.
    pub rows: Vec<Row>,
    marks: u64,
}

/// A prompt that was sent, and where what it caused begins.
pub struct Sent {
    /// Blocks that were told of before.
    pub since: usize,
    /// The engine's answer.
    pub answer: Value,
}

impl<'w> Look<'w> {
    /// Nothing is asked yet.
    pub fn new(wanted: &'w Wanted, settings: &Settings) -> Look<'w> {
        Look {
            wanted,
            launch: launch::of(wanted.engine),
            settings: settings.clone(),
            http: Http {
                address: wanted.endpoint,
                patience: settings.patience.max(Duration::from_secs(1)) * 6,
            },
            facts: Facts::default(),
            version: None,
            publishers: Vec::new(),
            heard: Heard::default(),
            last: Vec::new(),
            rows: Vec::new(),
            marks: crate::serve::random(),
        }
    }

    /// Adds a row.
    pub fn tell(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// A number that no probe had before.
    pub fn mark(&mut self) -> u64 {
        self.marks =
            self.marks.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.marks
    }

    /// Token ids that no cache has, all of them in every vocabulary.
    pub fn token_ids(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| 10 + (self.mark() >> 40) as u32 % 240).collect()
    }

    /// The model that probes ask for: the rule's, else the engine's first that is no adapter.
    pub fn model(&self) -> String {
        let own = |name: &&String| !self.facts.adapters.iter().any(|adapter| adapter.name == **name);
        let first = self.facts.models.iter().flatten().find(own);
        match self.wanted.model.as_str() {
            "" => first.cloned().unwrap_or_default(),
            named => named.to_owned(),
        }
    }

    /// The rank that a request has to be sent to by name, so that it is known whose blocks are told of.
    pub fn pinned(&self, rank: u8) -> Option<u8> {
        let told = self.facts.publishers.as_ref().and_then(|told| told.as_ref().ok()).map(Vec::len);
        let own = told.or(self.facts.ranks.map(|ranks| ranks as usize)).unwrap_or(1);
        let rule = self.wanted.exact.as_ref().map_or(1, |exact| usize::from(exact.ranks));
        (own.max(rule) > 1).then_some(rank)
    }

    /// Header lines that send a request to a rank.
    pub fn lines(&self, rank: Option<u8>) -> Vec<String> {
        rank.and_then(self.launch.rank).into_iter().collect()
    }

    /// Sends a request for one token, and hears what comes of it.
    pub fn send(&mut self, path: &str, body: &Value, rank: Option<u8>) -> Result<Sent, String> {
        self.hear_once()?;
        let since = self.heard.count();
        let answer = self.http.post(path, body.to_string().as_bytes(), &self.lines(rank))?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        Ok(Sent { since, answer: json(&answer) })
    }

    /// Hears until `done` or nothing came for long enough.
    pub fn hear_until(&mut self, done: impl Fn(&Heard) -> bool) -> Result<bool, String> {
        let until = Instant::now() + self.settings.patience;
        loop {
            self.hear_once()?;
            if done(&self.heard) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// One turn of each socket, or one drain.
    fn hear_once(&mut self) -> Result<(), String> {
        match delivery(self.wanted.engine) {
            Delivery::Published => self.hear_published(),
            Delivery::Drained(path) if self.settings.destructive => self.drain(path),
            Delivery::Drained(_) | Delivery::Never => Ok(()),
        }
    }

    fn hear_published(&mut self) -> Result<(), String> {
        let naming = naming(self.wanted.engine);
        for (rank, publisher) in self.publishers.iter_mut().enumerate() {
            let heard = publisher.hear().map_err(|why| format!("rank {rank}: {why}"))?;
            for payload in heard {
                self.heard.take(rank as u32, &payload.bytes, naming);
                self.last[rank] = Some(payload);
            }
        }
        Ok(())
    }

    fn drain(&mut self, path: &str) -> Result<(), String> {
        let answer = self.http.post(path, b"", &[])?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        let events =
            parse(&answer.body).map_err(|fault| format!("{path}: no list of events: {}", fault.0))?;
        self.heard.take_drained(&events);
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }
}

/// A completion of one token.
pub fn completion(model: &str, prompt: Value, salt: Option<&str>) -> Value {
    let mut body = json!({"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0});
    if let Some(salt) = salt {
        body["cache_salt"] = salt.into();
    }
    body
}

/// Blocks as owned values, so that the look can go on.
pub fn owned(chain: Vec<&Block>) -> Vec<Block> {
    chain.into_iter().cloned().collect()
}
