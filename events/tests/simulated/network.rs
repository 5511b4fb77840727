//! Connections between gateway and engine: late, lossy, cut, and half open.

use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::random::Random;
use crate::{Faults, STEP};
use std::collections::VecDeque;

/// The live connection.
struct Live {
    process: usize,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// Steps until the next message may come.
    delay: u64,
    /// Loses everything, and nobody knows.
    silent: bool,
    /// When the gateway notices that it is gone.
    ends: Option<u64>,
}

enum Reply {
    Batch(u64, Vec<u8>),
    End,
}

/// A replay connection.
struct Asked {
    attempt: u32,
    from: u64,
    /// Steps until the next thing happens.
    delay: u64,
    /// The process that serves it and its answers, once it is reached.
    served: Option<(usize, VecDeque<Reply>)>,
}

pub struct Network {
    live: Option<Live>,
    redial_at: u64,
    asked: Option<Asked>,
}

impl Network {
    pub fn new() -> Self {
        Network { live: None, redial_at: 0, asked: None }
    }

    pub fn published(
        &mut self,
        process: usize,
        seq: u64,
        payload: Vec<u8>,
        random: &mut Random,
        faults: &Faults,
    ) {
        let Some(live) = self.live.as_mut().filter(|live| live.process == process && !live.silent) else {
            return;
        };
        if random.chance(faults.drop) {
            return;
        }
        if random.chance(faults.duplicate) {
            live.queue.push_back((seq, payload.clone()));
        }
        live.queue.push_back((seq, payload));
    }

    /// The process is gone: what is on its way may still come, and the end is noticed at once or late.
    pub fn engine_died(&mut self, now: u64, random: &mut Random) {
        if let Some(live) = &mut self.live {
            live.ends.get_or_insert(now + random.below(200) * STEP);
            live.delay = random.below(150);
        }
    }

    /// Another process stands behind the same connection.
    pub fn engine_replaced(&mut self, process: usize) {
        if let Some(live) =
            self.live.as_mut().filter(|live| live.process + 1 == process && live.ends.is_none())
        {
            live.process = process;
        }
    }

    pub fn step(
        &mut self,
        now: u64,
        random: &mut Random,
        faults: &Faults,
        engine: &mut Engine,
        gateway: &mut Gateway,
    ) {
        self.break_things(now, random, faults);
        self.dial(now, engine, gateway);
        self.deliver(now, random, engine, gateway);
        self.serve(now, random, faults, engine, gateway);
        gateway.tick(now, engine);
        if let Some((attempt, from)) = gateway.take_asked() {
            self.asked = Some(Asked { attempt, from, delay: random.below(20), served: None });
        }
        if gateway.take_reconnect() {
            self.live = None;
            self.redial_at = now + (1 + random.below(40)) * STEP;
        }
    }

    fn break_things(&mut self, now: u64, random: &mut Random, faults: &Faults) {
        let Some(live) = &mut self.live else { return };
        if random.chance(faults.cut) {
            live.ends.get_or_insert(now + random.below(3) * STEP);
        }
        if random.chance(faults.silent) {
            live.silent = true;
            live.ends.get_or_insert(now + random.below(300) * STEP);
        }
    }

    fn dial(&mut self, now: u64, engine: &Engine, gateway: &mut Gateway) {
        if self.live.as_ref().and_then(|live| live.ends).is_some_and(|ends| now >= ends) {
            self.live = None;
            self.redial_at = now + 2 * STEP;
            gateway.disconnected();
        }
        if self.live.is_none() && now >= self.redial_at && engine.is_up() {
            let process = engine.current();
            self.live = Some(Live { process, queue: VecDeque::new(), delay: 0, silent: false, ends: None });
            gateway.connected(now, process as u64, engine);
        }
    }

    fn deliver(&mut self, now: u64, random: &mut Random, engine: &Engine, gateway: &mut Gateway) {
        let Some(live) = &mut self.live else { return };
        if live.delay > 0 {
            live.delay -= 1;
            return;
        }
        if random.below(20) == 0 {
            live.delay = random.below(60);
        }
        for _ in 0..random.below(40) {
            let Some((seq, payload)) = live.queue.pop_front() else { return };
            gateway.live(now, seq, &payload, engine);
        }
    }

    fn serve(
        &mut self,
        now: u64,
        random: &mut Random,
        faults: &Faults,
        engine: &Engine,
        gateway: &mut Gateway,
    ) {
        let Some(asked) = &mut self.asked else { return };
        if asked.delay > 0 {
            asked.delay -= 1;
            return;
        }
        asked.delay = random.below(4);
        let attempt = asked.attempt;
        let Some((process, replies)) = &mut asked.served else {
            if !engine.is_up() || random.chance(faults.replay) {
                self.asked = None;
                gateway.replay_failed(now, attempt, engine);
            } else {
                asked.served = Some((engine.current(), answers(asked.from, random, faults, engine)));
            }
            return;
        };
        if *process != engine.current() || !engine.is_up() {
            self.asked = None;
            gateway.replay_failed(now, attempt, engine);
            return;
        }
        for _ in 0..1 + random.below(30) {
            match replies.pop_front() {
                Some(Reply::Batch(seq, payload)) => gateway.replayed(now, attempt, seq, &payload, engine),
                Some(Reply::End) => gateway.replay_ended(now, attempt, engine),
                None => break,
            }
        }
    }
}

/// What the buffer has, perhaps with frames lost in it, cut short, or without its end marker.
fn answers(from: u64, random: &mut Random, faults: &Faults, engine: &Engine) -> VecDeque<Reply> {
    let buffer = &engine.processes[engine.current()].buffer;
    let wanted = buffer.iter().filter(|(seq, _)| *seq >= from);
    let mut replies: VecDeque<Reply> =
        wanted.map(|(seq, payload)| Reply::Batch(*seq, payload.clone())).collect();
    if random.chance(faults.replay) && replies.len() > 2 {
        let lost = random.below(replies.len() as u64) as usize;
        replies.remove(lost);
    }
    if random.chance(faults.replay) {
        let kept = random.below(replies.len() as u64 + 1) as usize;
        replies.truncate(kept);
    }
    if !random.chance(faults.replay) {
        replies.push_back(Reply::End);
    }
    replies
}
