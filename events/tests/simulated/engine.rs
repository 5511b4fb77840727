//! The model: processes that come and go, each with its cache, its sequence and its replay buffer.

use crate::network::Network;
use crate::random::Random;
use crate::{Faults, STEP};
use rmpv::Value;
use std::collections::{HashMap, VecDeque};

pub type Cache = HashMap<u64, u32>;

/// Few names, so that they come again within a process and in the next one.
const NAMES: u64 = 12;

/// One process: the cache after each of its batches, and what its replay socket still has.
pub struct Process {
    pub caches: Vec<Cache>,
    pub buffer: VecDeque<(u64, Vec<u8>)>,
}

pub struct Engine {
    pub processes: Vec<Process>,
    buffer_steps: usize,
    /// When the next process is up, while none is.
    starts: Option<u64>,
}

impl Engine {
    pub fn new(buffer_steps: usize) -> Self {
        let mut engine = Engine { processes: Vec::new(), buffer_steps, starts: None };
        engine.start();
        engine
    }

    pub fn is_up(&self) -> bool {
        self.starts.is_none()
    }

    /// The number of the process that runs now or ran last.
    pub fn current(&self) -> usize {
        self.processes.len() - 1
    }

    /// The newest sequence of the current process.
    pub fn newest(&self) -> Option<u64> {
        self.processes[self.current()].caches.len().checked_sub(1).map(|seq| seq as u64)
    }

    pub fn cache(&self, process: usize, seq: u64) -> &Cache {
        &self.processes[process].caches[seq as usize]
    }

    fn start(&mut self) {
        self.starts = None;
        self.processes.push(Process { caches: Vec::new(), buffer: VecDeque::new() });
    }

    /// Restarts, and the bursts by which a new process overtakes the old one.
    pub fn tick(&mut self, now: u64, random: &mut Random, faults: &Faults, network: &mut Network) {
        if self.starts.is_some_and(|starts| now >= starts) {
            self.start();
            self.burst(random, faults, network);
        }
        if self.is_up() && random.chance(faults.restart) {
            network.engine_died(now, random);
            let longest = random.pick(&[4, 60]);
            self.starts = Some(now + random.below(longest) * STEP);
        } else if self.is_up() && random.chance(faults.restart_in_place) {
            self.start();
            network.engine_replaced(self.current());
            // A forwarder that changes the process behind it delivers the new one's first batch.
            self.publish(random, &crate::NONE, network);
        }
    }

    /// Some processes come up silent, some with any number of batches, and some with nearly as many as the
    /// one before had: then what is still on its way from that one would follow theirs.
    fn burst(&mut self, random: &mut Random, faults: &Faults, network: &mut Network) {
        let before = self.processes[self.current() - 1].caches.len() as u64;
        let batches = match random.below(4) {
            0 => 0,
            1 => random.below(80),
            _ => (before + random.below(4)).saturating_sub(3),
        };
        for _ in 0..batches {
            self.publish(random, faults, network);
        }
    }

    /// One step of the engine: the cache changes, and a batch says how.
    pub fn publish(&mut self, random: &mut Random, faults: &Faults, network: &mut Network) {
        let current = self.current();
        let process = &mut self.processes[current];
        let seq = process.caches.len() as u64;
        let mut cache = process.caches.last().cloned().unwrap_or_default();
        let events = (0..1 + random.below(3)).map(|_| change(&mut cache, random)).collect();
        let mut payload = encode(current, seq, events);
        if random.chance(faults.garble) {
            // The time and all before the events stay: the oracle knows the batch by them.
            payload.truncate(TIME.end);
            payload.push(0xc1);
        }
        process.caches.push(cache);
        process.buffer.push_back((seq, payload.clone()));
        if process.buffer.len() > self.buffer_steps {
            process.buffer.pop_front();
        }
        network.published(current, seq, payload, random, faults);
    }
}

/// Changes the cache; the event that says so.
fn change(cache: &mut Cache, random: &mut Random) -> Value {
    let name = 1 + random.below(NAMES);
    match random.below(50) {
        0 => {
            cache.clear();
            event("AllBlocksCleared", Vec::new())
        }
        1..=22 if cache.contains_key(&name) => {
            cache.entry(name).and_modify(|copies| *copies -= 1);
            cache.retain(|_, copies| *copies > 0);
            event("BlockRemoved", vec![("block_hashes", names(&[name])), ("medium", Value::from("GPU"))])
        }
        _ => {
            let next = 1 + name % NAMES;
            for stored in [name, next] {
                *cache.entry(stored).or_default() += 1;
            }
            let tokens = names(&[name, name, next, next]);
            event(
                "BlockStored",
                vec![
                    ("block_hashes", names(&[name, next])),
                    ("parent_block_hash", Value::Nil),
                    ("token_ids", tokens),
                    ("block_size", Value::from(2)),
                    ("lora_id", Value::Nil),
                    ("medium", Value::from("GPU")),
                ],
            )
        }
    }
}

fn names(names: &[u64]) -> Value {
    Value::Array(names.iter().map(|name| Value::from(*name)).collect())
}

fn event(kind: &str, members: Vec<(&str, Value)>) -> Value {
    let kind = [(Value::from("type"), Value::from(kind))];
    let members = members.into_iter().map(|(name, value)| (Value::from(name), value));
    Value::Map(kind.into_iter().chain(members).collect())
}

/// Where a payload holds its time, which here names process and sequence.
const TIME: std::ops::Range<usize> = 2..10;

fn encode(process: usize, seq: u64, events: Vec<Value>) -> Vec<u8> {
    let time = (process as f64) * 1_000_000.0 + seq as f64;
    let batch = Value::Array(vec![Value::F64(time), Value::Array(events), Value::from(0)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).expect("into memory");
    bytes
}

/// Whose batch a payload is.
pub fn origin(payload: &[u8]) -> (usize, u64) {
    let time = f64::from_be_bytes(payload[TIME].try_into().expect("eight bytes")) as u64;
    ((time / 1_000_000) as usize, time % 1_000_000)
}
