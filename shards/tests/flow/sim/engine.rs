//! An engine in the simulated network: connections, requests one after the other on each, answers in steps. What it
//! answers is a test's to say.

use crate::sim::http::{self, Head, Message, Read};
use std::collections::HashMap;
use warmpath_ring::sim::{Actor, PeerEvent, World};

/// A step of an answer, done when its timer fires.
#[derive(Clone, Debug)]
pub enum Step<N> {
    Send(Vec<u8>),
    /// Up to three seconds pass.
    Wait,
    Close,
    Reset,
    /// The answer is out; the connection idles.
    Idle,
    /// Close if idle since the answer of this number.
    IdleClose(u32),
    /// Something that is the test's.
    Note(N),
}

/// Steps, and how many nanoseconds from now each comes.
pub type Plan<N> = Vec<(u64, Step<N>)>;

/// Steps at random distances.
pub fn paced<N>(steps: Vec<Step<N>>, world: &mut World<'_>) -> Plan<N> {
    let mut after = 0;
    let paced = steps.into_iter().map(|step| {
        after += 1 + world.draw(if matches!(step, Step::Wait) { 3_000_000_000 } else { 2_000_000 });
        (after, step)
    });
    paced.collect()
}

/// What an engine does with requests.
pub trait Serves {
    type Note: Clone;

    /// The steps of the answer to a whole request.
    fn serve(&mut self, conn: usize, message: &Message, world: &mut World<'_>) -> Vec<Step<Self::Note>>;

    /// An answer before the request is whole.
    fn serve_early(&mut self, _: &Head) -> Option<Vec<Step<Self::Note>>> {
        None
    }

    /// A step of its own is due: what follows it.
    fn note(&mut self, _: usize, _: Self::Note, _: &mut World<'_>) -> Plan<Self::Note> {
        Vec::new()
    }

    /// A connection came.
    fn accepted(&mut self) {}

    /// The answer on a connection is over; `aborted`: by its caller.
    fn over(&mut self, _conn: usize, _aborted: bool) {}

    /// Requests that it began.
    fn executions(&self) -> u32;
}

/// The engine.
pub struct Engine<S: Serves> {
    pub serves: S,
    pub refuses: bool,
    xor: u8,
    /// An idle connection is closed after so long.
    idle_limit: u64,
    conns: HashMap<usize, Conn>,
    /// What timers mean.
    timers: Vec<(usize, Step<S::Note>)>,
}

#[derive(Default)]
struct Conn {
    buffer: Vec<u8>,
    busy: bool,
    closed: bool,
    served: u32,
}

impl<S: Serves> Engine<S> {
    pub fn new(serves: S, xor: u8, idle_limit: u64) -> Engine<S> {
        Engine { serves, refuses: false, xor, idle_limit, conns: HashMap::new(), timers: Vec::new() }
    }
}

impl<S: Serves> Actor for Engine<S> {
    fn accepts(&self) -> bool {
        !self.refuses
    }

    fn react(&mut self, event: PeerEvent, world: &mut World<'_>) {
        match event {
            PeerEvent::Accepted { conn } => {
                self.serves.accepted();
                self.conns.insert(conn, Conn::default());
            }
            PeerEvent::Data { conn, mut bytes } => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.buffer.extend(bytes);
                }
                self.read(conn, world);
            }
            PeerEvent::Ended { conn } | PeerEvent::Reset { conn } => self.gone(conn, world),
            PeerEvent::Timer { token } => {
                let (conn, step) = self.timers[token as usize].clone();
                self.step(conn, step, world);
            }
            PeerEvent::Begun | PeerEvent::Connected { .. } | PeerEvent::Refused { .. } => {}
        }
    }
}

impl<S: Serves> Engine<S> {
    fn gone(&mut self, conn: usize, world: &mut World<'_>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.busy && !c.closed {
            self.serves.over(conn, true);
        }
        c.closed = true;
        world.close(conn);
    }

    fn read(&mut self, conn: usize, world: &mut World<'_>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.busy || c.closed || c.buffer.is_empty() {
            return;
        }
        let steps = match http::request(&c.buffer) {
            Read::Partial(None) => return,
            Read::Partial(Some(head)) => match self.serves.serve_early(&head) {
                Some(steps) => steps,
                None => return,
            },
            Read::Whole(message, used) => {
                c.buffer.drain(..used);
                assert!(c.buffer.is_empty(), "a second request before the first was answered");
                self.serves.serve(conn, &message, world)
            }
        };
        c.busy = true;
        c.served += 1;
        let plan = paced(steps, world);
        self.plan(conn, plan, world);
    }

    fn plan(&mut self, conn: usize, plan: Plan<S::Note>, world: &mut World<'_>) {
        for (after, step) in plan {
            self.timers.push((conn, step));
            world.timer(after, self.timers.len() as u64 - 1);
        }
    }

    fn step(&mut self, conn: usize, step: Step<S::Note>, world: &mut World<'_>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.closed {
            return;
        }
        match step {
            Step::Wait => {}
            Step::Send(mut bytes) => {
                bytes.iter_mut().for_each(|b| *b ^= self.xor);
                world.send(conn, &bytes);
            }
            Step::Close => {
                self.over(conn, true);
                world.close(conn);
            }
            Step::Reset => {
                self.over(conn, true);
                world.reset(conn);
            }
            Step::Idle => {
                let served = c.served;
                self.over(conn, false);
                self.plan(conn, vec![(self.idle_limit, Step::IdleClose(served))], world);
                self.read(conn, world);
            }
            Step::IdleClose(served) => {
                if !c.busy && c.served == served && c.buffer.is_empty() {
                    c.closed = true;
                    world.close(conn);
                }
            }
            Step::Note(note) => {
                let plan = self.serves.note(conn, note, world);
                self.plan(conn, plan, world);
            }
        }
    }

    fn over(&mut self, conn: usize, closed: bool) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if std::mem::take(&mut c.busy) {
            self.serves.over(conn, false);
        }
        c.closed = closed;
    }
}
