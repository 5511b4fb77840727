//! The machines under test, wired as the event core wires them, with the oracle looking over their shoulder.

use crate::engine::{Cache, Engine, origin};
use warmpath_events::continuity::{Action, Effect, Policy, Reason, Standing, Stream};
use warmpath_events::decode::decode;
use warmpath_events::residency::{Removal, Residency};
use warmpath_events::wire::{Batch, HashBytes};

pub struct Gateway {
    stream: Stream,
    knows_identity: bool,
    side: Side,
}

/// What the actions change.
struct Side {
    residency: Residency,
    batch: Batch,
    /// Whose batch was applied last.
    at: Option<(usize, u64)>,
    applied: u64,
    reasons: Vec<Reason>,
    asked: Option<(u32, u64)>,
    reconnect: bool,
}

impl Gateway {
    pub fn new(policy: Policy, knows_identity: bool) -> Self {
        let side = Side {
            residency: Residency::new(Removal::One, usize::MAX),
            batch: Batch::default(),
            at: None,
            applied: 0,
            reasons: Vec::new(),
            asked: None,
            reconnect: false,
        };
        Gateway { stream: Stream::new(policy), knows_identity, side }
    }

    pub fn connected(&mut self, now: u64, identity: u64, engine: &Engine) {
        let identity = self.knows_identity.then_some(identity);
        let side = &mut self.side;
        self.stream.connected(now, identity, &mut |action| side.act(action, engine));
    }

    pub fn disconnected(&mut self) {
        self.stream.disconnected();
    }

    pub fn live(&mut self, now: u64, seq: u64, payload: &[u8], engine: &Engine) {
        let side = &mut self.side;
        self.stream.live(now, seq, payload, &mut |action| side.act(action, engine));
        self.check(engine);
    }

    pub fn replayed(&mut self, now: u64, attempt: u32, seq: u64, payload: &[u8], engine: &Engine) {
        let side = &mut self.side;
        self.stream.replayed(now, attempt, seq, payload, &mut |action| side.act(action, engine));
        self.check(engine);
    }

    pub fn replay_ended(&mut self, now: u64, attempt: u32, engine: &Engine) {
        let side = &mut self.side;
        self.stream.replay_ended(now, attempt, &mut |action| side.act(action, engine));
        self.check(engine);
    }

    pub fn replay_failed(&mut self, now: u64, attempt: u32, engine: &Engine) {
        let side = &mut self.side;
        self.stream.replay_failed(now, attempt, &mut |action| side.act(action, engine));
        self.check(engine);
    }

    pub fn tick(&mut self, now: u64, engine: &Engine) {
        let side = &mut self.side;
        self.stream.tick(now, &mut |action| side.act(action, engine));
    }

    pub fn take_asked(&mut self) -> Option<(u32, u64)> {
        self.side.asked.take()
    }

    pub fn take_reconnect(&mut self) -> bool {
        std::mem::take(&mut self.side.reconnect)
    }

    pub fn applied(&self) -> u64 {
        self.side.applied
    }

    pub fn standing(&self) -> Standing {
        self.stream.standing()
    }

    pub fn reasons(&self) -> &[Reason] {
        &self.side.reasons
    }

    /// The state is part of the cache after the batch applied last; all of it if the stream says so.
    pub fn check(&self, engine: &Engine) {
        let claimed: Cache = self.side.residency.blocks().map(|(_, name, copies)| (name, copies)).collect();
        let Some((process, seq)) = self.side.at else {
            assert!(claimed.is_empty(), "claims {claimed:?} of nothing");
            return;
        };
        let cache = engine.cache(process, seq);
        if self.stream.standing() == Standing::Complete {
            assert_eq!(&claimed, cache, "complete at {seq} of process {process}");
        }
    }

    /// After quiet: the newest batch of the process that runs is applied, and a state that is not the whole
    /// has a reason.
    pub fn check_caught_up(&self, engine: &Engine, seed: u64) {
        self.check(engine);
        let Some(newest) = engine.newest() else { return };
        assert_eq!(self.side.at, Some((engine.current(), newest)), "seed {seed}: {:?}", self.stream.reason());
        assert_ne!(self.stream.standing(), Standing::Unproven, "seed {seed}");
        if matches!(self.stream.standing(), Standing::Since(_)) {
            assert!(self.stream.reason().is_some(), "seed {seed}: a part without a reason");
        }
    }
}

impl Side {
    fn act(&mut self, action: Action<'_>, engine: &Engine) -> Effect {
        match action {
            Action::Apply { seq, payload } => return self.apply(seq, payload, engine),
            Action::Clear(reason) => {
                self.reasons.push(reason);
                self.residency.clear(&mut |_| ());
                if reason != Reason::Undecodable {
                    self.at = None;
                }
            }
            Action::AskReplay { attempt, from } => self.asked = Some((attempt, from)),
            Action::Reconnect => self.reconnect = true,
        }
        Effect::Changed
    }

    /// Batches of one process follow each other without a hole until a clear, and no block is claimed that
    /// the process did not have then.
    fn apply(&mut self, seq: u64, payload: &[u8], engine: &Engine) -> Effect {
        let from = origin(payload);
        assert_eq!(from.1, seq);
        if let Some((process, last)) = self.at {
            assert_eq!(from, (process, last + 1), "a batch that does not follow");
        }
        self.at = Some(from);
        self.applied += 1;
        let Ok(()) = decode(payload, HashBytes::Last, &mut self.batch) else { return Effect::Undecodable };
        let emptied = self.residency.apply(&self.batch, &mut |_| ());
        for (_, name, copies) in self.residency.blocks() {
            let had = engine.cache(from.0, seq).get(&name).copied().unwrap_or(0);
            assert!(copies <= had, "claims {copies} of {name}, the process had {had}");
        }
        if emptied { Effect::Emptied } else { Effect::Changed }
    }
}
