//! The model behind sockets of the simulated network, with faults: what is lost, late, doubled, out of order,
//! cut, dark, or answered by another process.

use crate::model::{Kind, Model};
use crate::pages::{answer, take_request};
use crate::peer::{Ear, Heard, batch, greeting, message, pong, ready, reply};
use crate::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use warmpath_ring::sim::{Actor, PeerEvent, Sim, World};

/// Ports of rank 0.
pub const PUBLISH: u16 = 5_557;
pub const REPLAY: u16 = 6_557;
pub const SERVE: u16 = 8_000;

/// Nanoseconds between two steps of an engine.
const STEP: u64 = 60_000_000;

/// Chances of a step, in ten thousand.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub drop: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub cut: u64,
    pub dark: u64,
    pub restart: u64,
    pub replay: u64,
    pub thief: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Brain,
    Publish(usize),
    Replay(usize),
    Http,
}

/// One engine: its model and its connections.
pub struct Engine {
    pub model: Model,
    random: Random,
    pub faults: Faults,
    /// In a hundred: how often a step does anything.
    pub busy: u64,
    /// It tells where it publishes.
    pub tells: bool,
    ranks: usize,
    ears: BTreeMap<usize, (Port, Ear)>,
    requests: BTreeMap<usize, Vec<u8>>,
    /// Half open for ever: the other side has to find out.
    lost: BTreeSet<usize>,
    starts_at: Option<u64>,
    dark_until: u64,
    /// Nothing gets through.
    is_dark: bool,
    /// Replays that are answered later: connection, rank, first sequence, process.
    jobs: Vec<(usize, usize, u64, u64)>,
    pub restarts: u64,
    pub thefts: u64,
}

struct Door {
    port: Port,
    engine: Rc<RefCell<Engine>>,
}

impl Actor for Door {
    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        self.engine.borrow_mut().react(self.port, event, world);
    }

    fn accepts(&self) -> bool {
        self.engine.borrow().is_up()
    }
}

impl Engine {
    pub fn join(
        sim: &mut Sim,
        ip: IpAddr,
        model: Model,
        ranks: usize,
        tells: bool,
        mut random: Random,
        faults: Faults,
    ) -> Rc<RefCell<Engine>> {
        let busy = 5 + random.below(40);
        let engine = Engine {
            model,
            random,
            faults,
            busy,
            tells,
            ranks,
            ears: BTreeMap::new(),
            requests: BTreeMap::new(),
            lost: BTreeSet::new(),
            starts_at: None,
            dark_until: 0,
            is_dark: false,
            jobs: Vec::new(),
            restarts: 0,
            thefts: 0,
        };
        let engine = Rc::new(RefCell::new(engine));
        let mut door = |port, at: Option<u16>| {
            let id = sim.add(Rc::new(RefCell::new(Door { port, engine: engine.clone() })));
            if let Some(at) = at {
                sim.serve(SocketAddr::new(ip, at), id);
            }
        };
        door(Port::Brain, None);
        door(Port::Http, Some(SERVE));
        for rank in 0..ranks {
            door(Port::Publish(rank), Some(PUBLISH + rank as u16));
            door(Port::Replay(rank), Some(REPLAY + rank as u16));
        }
        engine
    }

    /// From now on nothing goes wrong; `busy` of a hundred steps publish.
    pub fn calm(&mut self, busy: u64) {
        (self.faults, self.busy, self.dark_until) = (Faults::default(), busy, 0);
    }

    pub fn is_up(&self) -> bool {
        self.starts_at.is_none()
    }

    fn react(&mut self, port: Port, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Begun if port == Port::Brain => world.timer(STEP, 0),
            PeerEvent::Timer { token: 0 } => {
                self.step(world);
                world.timer(STEP, 0);
            }
            PeerEvent::Timer { token } => self.answer_replay(token as usize - 1, world),
            PeerEvent::Accepted { conn } if self.is_dark => drop(self.lost.insert(conn)),
            PeerEvent::Accepted { conn } => {
                self.ears.insert(conn, (port, Ear::default()));
                if port != Port::Http {
                    world.send(conn, &greeting());
                }
            }
            PeerEvent::Data { conn, bytes } if !self.lost.contains(&conn) => self.hear(conn, &bytes, world),
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => {
                self.forget(conn);
                if !self.lost.contains(&conn) {
                    world.close(conn);
                }
            }
            _ => {}
        }
    }

    fn hear(&mut self, conn: usize, bytes: &[u8], world: &mut World<'_>) {
        let Some((port, ear)) = self.ears.get_mut(&conn) else { return };
        let port = *port;
        if port == Port::Http {
            let request = self.requests.entry(conn).or_default();
            request.extend_from_slice(bytes);
            while let Some(path) = self.requests.get_mut(&conn).and_then(take_request) {
                self.serve(conn, &path, world);
            }
            return;
        }
        let heard = ear.hear(bytes);
        for heard in heard {
            match (heard, port) {
                (Heard::Greeting, Port::Publish(_)) => world.send(conn, &ready("PUB")),
                (Heard::Greeting, _) => world.send(conn, &ready("ROUTER")),
                (Heard::Subscribe, Port::Publish(rank)) => self.model.ranks[rank].subscribers.push(conn),
                (Heard::Ping(context), _) if !self.is_dark => world.send(conn, &pong(&context)),
                (Heard::Message(frames), Port::Replay(rank)) => {
                    assert!(frames.len() == 2 && frames[0].is_empty(), "a request without its delimiter");
                    let from = u64::from_be_bytes(frames[1].as_slice().try_into().expect("eight bytes"));
                    self.jobs.push((conn, rank, from, self.model.process));
                    let late =
                        if self.random.chance(self.faults.replay) { 4_000_000_000 } else { 50_000_000 };
                    let after = self.random.below(late);
                    world.timer(after, self.jobs.len() as u64);
                }
                _ => {}
            }
        }
    }

    /// What the buffer has, perhaps with a hole, cut short, ended early, or never ended.
    fn answer_replay(&mut self, job: usize, world: &mut World<'_>) {
        let (conn, rank, from, process) = self.jobs[job];
        let is_gone = process != self.model.process || !self.ears.contains_key(&conn);
        if is_gone || self.lost.contains(&conn) || !self.is_up() || self.is_dark {
            return;
        }
        let buffer = self.model.ranks[rank].buffer.iter().filter(|(seq, _)| *seq >= from);
        let mut replies: Vec<Vec<u8>> = buffer.map(|(seq, payload)| reply(*seq, payload)).collect();
        if self.random.chance(self.faults.replay) && replies.len() > 2 {
            let lost = self.random.below(replies.len() as u64) as usize;
            replies.remove(lost);
        }
        if self.random.chance(self.faults.replay) {
            let kept = self.random.below(replies.len() as u64 + 1) as usize;
            replies.truncate(kept);
        }
        if self.random.chance(self.faults.replay) {
            let cut = self.random.below(replies.len() as u64 + 1) as usize;
            replies.iter().take(cut).for_each(|bytes| world.send(conn, bytes));
            return world.close(conn);
        }
        replies.push(message(&[b"", b"", &[0xff; 8], b""]));
        world.send(conn, &replies.concat());
    }

    fn serve(&mut self, conn: usize, path: &str, world: &mut World<'_>) {
        if self.is_dark {
            return;
        }
        let process = self.model.process;
        let (block, algorithm) =
            (self.model.contract.block_size().tokens(), self.model.contract.algo().name());
        let body = match path {
            "/version" => r#"{"version":"0.32.0"}"#.to_owned(),
            "/v1/models" => r#"{"data":[{"id":"m"}]}"#.to_owned(),
            "/kv_event_sources" if self.tells => self.sources(),
            "/metrics" => format!(
                "process_start_time_seconds {process}\nvllm:cache_config_info{{block_size=\"{block}\",\
                 num_gpu_blocks=\"{}\",prefix_caching_hash_algo=\"{algorithm}\"}} 1.0\n",
                self.model.room
            ),
            "/server_info" => {
                format!(r#"{{"kv_cache_hash_algo":"v1_block_key","tokens_per_block":{block}}}"#)
            }
            "/kv_cache_events" => {
                let taken: Vec<String> =
                    self.model.ranks.iter_mut().flat_map(|rank| rank.pending.drain(..)).collect();
                if !taken.iter().any(|event| event.contains("created")) && self.random.chance(self.faults.cut)
                {
                    return world.close(conn);
                }
                format!("[{}]", taken.join(","))
            }
            _ => return world.send(conn, &answer(404, "{}", false)),
        };
        let is_last = self.random.below(20) == 0;
        world.send(conn, &answer(200, &body, is_last));
        if is_last {
            self.forget(conn);
            world.close(conn);
        }
    }

    fn sources(&self) -> String {
        let one = |rank: usize| {
            let (publish, replay) = (PUBLISH + rank as u16, REPLAY + rank as u16);
            format!(
                r#""{rank}":{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:{publish}","replay_endpoint":"tcp://*:{replay}"}}"#
            )
        };
        format!("{{{}}}", (0..self.ranks).map(one).collect::<Vec<_>>().join(","))
    }

    fn step(&mut self, world: &mut World<'_>) {
        if self.is_dark && world.now() >= self.dark_until {
            self.is_dark = false;
        }
        if self.starts_at.is_some_and(|at| world.now() >= at) {
            self.start(world);
        }
        if self.random.chance(self.faults.dark) && !self.is_dark {
            self.dark_until = world.now() + self.random.below(30) * 1_000_000_000;
            self.is_dark = true;
            if self.random.below(2) == 0 {
                self.lost.extend(self.ears.keys());
            }
        }
        // In the dark processes come and go more often: one may be replaced twice before anybody sees.
        let restart = if self.is_dark { 10 * self.faults.restart } else { self.faults.restart };
        if self.is_up() && self.random.chance(restart) {
            self.die(world);
        }
        if !self.is_up() {
            return;
        }
        if self.random.chance(self.faults.cut) {
            let conns: Vec<usize> = self.ears.keys().copied().collect();
            if !conns.is_empty() {
                let conn = conns[self.random.below(conns.len() as u64) as usize];
                self.forget(conn);
                world.reset(conn);
            }
        }
        for rank in 0..self.ranks {
            if self.random.below(100) < self.busy {
                self.publish(rank, world);
            }
        }
    }

    fn publish(&mut self, rank: usize, world: &mut World<'_>) {
        if self.model.kind == Kind::Drained {
            self.model.drained_step(rank, &mut self.random);
            let pending = &mut self.model.ranks[rank].pending;
            if !pending.iter().any(|event| event.contains("created")) && !pending.is_empty() {
                let is_stolen = self.random.below(10_000) < self.faults.thief;
                if is_stolen {
                    self.model.ranks[rank].pending.clear();
                    self.thefts += 1;
                }
            }
            return;
        }
        let (seq, payload) = self.model.step(rank, &mut self.random);
        let is_dropped = self.is_dark || self.random.chance(self.faults.drop);
        let is_late = self.random.chance(self.faults.reorder);
        let is_double = self.random.chance(self.faults.duplicate);
        let own = &mut self.model.ranks[rank];
        let kept_back = own.kept_back.take();
        if is_late && !is_dropped {
            own.kept_back = Some((seq, payload.clone()));
        }
        let mut out = Vec::new();
        if !is_dropped && !is_late {
            out.push(batch(seq, &payload));
        }
        if is_double && !is_dropped && !is_late {
            out.push(batch(seq, &payload));
        }
        out.extend(kept_back.map(|(seq, payload)| batch(seq, &payload)));
        for conn in own.subscribers.iter().filter(|conn| !self.lost.contains(conn)) {
            world.send(*conn, &out.concat());
        }
    }

    fn die(&mut self, world: &mut World<'_>) {
        self.restarts += 1;
        for conn in std::mem::take(&mut self.ears).into_keys() {
            if self.is_dark {
                self.lost.insert(conn);
            } else if !self.lost.contains(&conn) {
                world.reset(conn);
            }
        }
        self.requests.clear();
        self.starts_at = Some(world.now() + self.random.below(5) * 1_000_000_000);
        self.model.ranks.iter_mut().for_each(|rank| rank.subscribers.clear());
    }

    /// Some processes come up silent, some overtake the one before at once.
    fn start(&mut self, world: &mut World<'_>) {
        self.starts_at = None;
        let before: Vec<u64> = self.model.ranks.iter().map(|rank| rank.next_seq).collect();
        self.model.start(self.ranks);
        for (rank, before) in before.into_iter().enumerate() {
            let batches = match self.random.below(4) {
                0 => 0,
                1 => self.random.below(30),
                _ => (before.min(400) + self.random.below(4)).saturating_sub(2),
            };
            for _ in 0..batches {
                self.publish(rank, world);
            }
        }
    }

    fn forget(&mut self, conn: usize) {
        self.ears.remove(&conn);
        self.requests.remove(&conn);
        self.model.ranks.iter_mut().for_each(|rank| rank.subscribers.retain(|own| *own != conn));
    }
}
