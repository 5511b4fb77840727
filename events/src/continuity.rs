//! One publisher's batches in proven order.
//!
//! Owns the question whether what was applied is an unbroken part of one engine process's history; must never
//! look into a payload, read a clock or open a socket. One [`Stream`] serves one (endpoint, rank). Its caller
//! runs two connections: *live* (SUB) and, for each [`Action::AskReplay`], a fresh *replay* (DEALER).
//!
//! The rules:
//! - A sequence number alone proves nothing: a restarted process counts from 0 and may overtake. What proves
//!   is a batch that is byte for byte the one we had. So every replay starts at the last applied batch,
//!   inclusive, and its digest is compared: equal, it is the same process; different or absent, another one.
//! - The live connection, too, must be shown to reach the process whose batches were applied. It is, if the
//!   state is older than the connection and the replay proves that process alive (*inherited*), or if one
//!   batch came both ways. Until then live batches wait.
//! - Without a replay socket, state outlives a connection only if the engine's start identity is known to be
//!   unchanged and the next sequence follows; a gap clears.
//! - What cannot be proven is cleared, with a [`Reason`]; what is applied afterwards is a true part of the
//!   cache, perhaps not all of it ([`Standing::Since`]).

mod queue;

use queue::Queue;
use warmpath_core::{Nanos, SECOND};

/// What a stream may rely on and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether the engine has a replay socket.
    pub replay: bool,
    /// Bytes of live batches that may wait for a replay.
    pub queue_bytes: usize,
    /// Live batches that may wait for a replay.
    pub queue_batches: usize,
    /// How long a replay may be silent before it has failed.
    pub replay_wait: Nanos,
    /// After how long a silence a replay looks for a lost last batch.
    pub probe_after: Nanos,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            replay: true,
            queue_bytes: 8 << 20,
            queue_batches: 10_000,
            replay_wait: 15 * SECOND,
            probe_after: 30 * SECOND,
        }
    }
}

/// Replays without progress before the stream gives up on them.
const TRIES: u32 = 3;

/// Why a stream's state was thrown away, or is not the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Batches are missing and there is no replay.
    Gap,
    /// A replay does not reach back to what is missing.
    ReplayHole,
    /// Replays failed, or never met the live stream.
    ReplayFailed,
    /// Another engine process answers.
    Restarted,
    /// The connection was lost and nothing proves that it is the same process.
    Reconnected,
    /// The sequence went back within one connection.
    Regressed,
    /// A payload could not be decoded.
    Undecodable,
}

/// What the caller has to do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// The next batch.
    Apply {
        /// Its sequence.
        seq: u64,
        /// Its MessagePack.
        payload: &'a [u8],
    },
    /// Forget all blocks of this rank.
    Clear(Reason),
    /// Close any replay connection, open a new one and ask. Its answers carry the attempt's number.
    AskReplay {
        /// Names this replay.
        attempt: u32,
        /// The first sequence wanted.
        from: u64,
    },
    /// Close the live connection and open a new one: it reaches a process that is gone.
    Reconnect,
}

/// What a stream's state is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was applied.
    Empty,
    /// The connection was lost and the process whose state this is has not yet answered again.
    Unproven,
    /// The engine's whole history, or all since its cache was empty.
    Complete,
    /// A true part: only what happened from this sequence on.
    Since(u64),
}

/// Names one batch of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    seq: u64,
    digest: u128,
}

impl Mark {
    fn of(seq: u64, payload: &[u8]) -> Mark {
        Mark { seq, digest: xxhash_rust::xxh3::xxh3_128(payload) }
    }
}

/// The live connection.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    up: bool,
    /// Reaches the process whose batches were applied.
    proven: bool,
    /// All state is older than this connection.
    inherited: bool,
    /// The state was applied, or proven to be of a live process, since this connection is up.
    verified: bool,
    /// Its newest batch, or the last applied before it: a publisher sends a new subscriber only what comes
    /// later.
    newest: Option<Mark>,
    /// The newest batch that found no room in the queue.
    missed: Option<u64>,
    heard: Nanos,
}

/// A replay under way.
#[derive(Clone, Copy, Debug)]
struct Replay {
    attempt: u32,
    answered: bool,
    deadline: Nanos,
}

/// What an applied batch did, as far as the stream must know. Of no meaning for other actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changed the cache.
    Changed,
    /// It emptied the cache: from here on all is known.
    Emptied,
    /// It could not be decoded: what it did is unknown. The stream answers with [`Action::Clear`].
    Undecodable,
}

type Out<'o> = &'o mut dyn FnMut(Action<'_>) -> Effect;

/// One (endpoint, rank).
pub struct Stream {
    policy: Policy,
    last: Option<Mark>,
    since: Option<u64>,
    reason: Option<Reason>,
    identity: Option<u64>,
    link: Link,
    replay: Option<Replay>,
    attempts: u32,
    tries: u32,
    queue: Queue,
}

impl Stream {
    /// A stream of which nothing is known.
    pub fn new(policy: Policy) -> Self {
        Stream {
            policy,
            last: None,
            since: None,
            reason: None,
            identity: None,
            link: Link::default(),
            replay: None,
            attempts: 0,
            tries: 0,
            queue: Queue::new(policy.queue_bytes, policy.queue_batches),
        }
    }

    /// The live connection's handshake is over. `identity` is the engine's start identity, read after that;
    /// only streams without replay need it.
    pub fn connected(&mut self, now: Nanos, identity: Option<u64>, out: Out<'_>) {
        self.disconnected();
        self.tries = 0;
        self.link.up = true;
        self.link.heard = now;
        self.link.inherited = self.last.is_some();
        self.link.newest = self.last;
        let same = identity.is_some() && identity == self.identity;
        self.identity = identity;
        if self.policy.replay {
            self.ask(now, out);
        } else {
            self.link.proven = true;
            if !same {
                self.clear(Reason::Reconnected, out);
            }
        }
    }

    /// The live connection is lost. The state stays, unproven.
    pub fn disconnected(&mut self) {
        self.link = Link::default();
        self.replay = None;
        self.queue.clear();
    }

    /// A batch of the live connection. `seq` is below [`crate::framing::END`].
    pub fn live(&mut self, now: Nanos, seq: u64, payload: &[u8], out: Out<'_>) {
        if !self.link.up {
            return;
        }
        let mark = Mark::of(seq, payload);
        self.link.heard = now;
        match self.link.newest {
            Some(newest) if newest == mark => return,
            Some(newest) if seq <= newest.seq => self.regress(out),
            _ => {}
        }
        self.link.newest = Some(mark);
        if self.replay.is_some() {
            self.hold(mark, payload);
        } else {
            self.advance(now, mark, payload, out);
        }
    }

    /// A batch of the replay named `attempt`; batches of an older one are ignored.
    pub fn replayed(&mut self, now: Nanos, attempt: u32, seq: u64, payload: &[u8], out: Out<'_>) {
        let Some(replay) = self.replay.as_mut().filter(|replay| replay.attempt == attempt) else { return };
        replay.deadline = now + self.policy.replay_wait;
        let is_first = !std::mem::replace(&mut replay.answered, true);
        self.link.heard = now;
        let mark = Mark::of(seq, payload);
        match (self.last, is_first) {
            (Some(last), true) if mark == last => {
                self.link.verified = true;
                self.link.proven |= self.link.inherited;
                self.meet(mark, out);
            }
            (Some(last), true) if seq == last.seq => self.start_over(now, out),
            (Some(last), true) if seq > last.seq => {
                self.clear(Reason::ReplayHole, out);
                self.accept(mark, payload, out);
            }
            (None, true) => {
                self.reason = if seq > 0 { Some(Reason::ReplayHole) } else { self.reason };
                self.accept(mark, payload, out);
            }
            (Some(last), false) if seq == last.seq + 1 => self.accept(mark, payload, out),
            // A hole inside the replay, or batches out of order: ask once more from what is proven.
            _ => self.ask_or_settle(now, out),
        }
    }

    /// The end marker of the replay named `attempt`.
    pub fn replay_ended(&mut self, now: Nanos, attempt: u32, out: Out<'_>) {
        let Some(replay) = self.replay.filter(|replay| replay.attempt == attempt) else { return };
        self.replay = None;
        if !replay.answered && self.last.is_some() {
            self.start_over(now, out);
        } else {
            self.settle(now, out);
        }
    }

    /// The replay named `attempt` could not be opened, or broke before its end marker.
    pub fn replay_failed(&mut self, now: Nanos, attempt: u32, out: Out<'_>) {
        if self.replay.is_some_and(|replay| replay.attempt == attempt) {
            self.ask_or_settle(now, out);
        }
    }

    /// Gives up a silent replay and looks for a lost last batch; when to call again.
    pub fn tick(&mut self, now: Nanos, out: Out<'_>) -> Option<Nanos> {
        if self.replay.is_some_and(|replay| now >= replay.deadline) {
            self.ask_or_settle(now, out);
        }
        let is_watched = self.link.up && self.policy.replay;
        if is_watched && self.replay.is_none() && now >= self.link.heard + self.policy.probe_after {
            self.link.heard = now;
            self.ask_or_settle(now, out);
        }
        let probe = is_watched.then(|| self.link.heard + self.policy.probe_after);
        self.replay.map(|replay| replay.deadline).or(probe)
    }

    /// Nobody listened until now: that neither connection was heard proves nothing.
    pub fn excuse(&mut self, now: Nanos) {
        self.link.heard = now;
        if let Some(replay) = &mut self.replay {
            replay.deadline = now + self.policy.replay_wait;
        }
    }

    /// Whether answers of a replay are awaited.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// What the state is worth now.
    pub fn standing(&self) -> Standing {
        match (self.last, self.since) {
            (None, _) | (_, None) => Standing::Empty,
            _ if !self.link.verified => Standing::Unproven,
            (_, Some(0)) => Standing::Complete,
            (_, Some(seq)) => Standing::Since(seq),
        }
    }

    /// Why the state was last thrown away, or is not the whole.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The last applied sequence.
    pub fn last_applied(&self) -> Option<u64> {
        self.last.map(|last| last.seq)
    }

    /// A live batch while no replay is under way.
    fn advance(&mut self, now: Nanos, mark: Mark, payload: &[u8], out: Out<'_>) {
        match self.last {
            Some(last) if self.policy.replay && mark.seq < last.seq => {}
            Some(last) if self.policy.replay && mark.seq == last.seq => self.compare(mark, last, out),
            _ if !self.link.proven => self.wait(now, mark, payload, out),
            Some(last) if mark.seq == last.seq + 1 => self.apply(mark, payload, out),
            None => self.apply(mark, payload, out),
            Some(_) if self.policy.replay => self.wait(now, mark, payload, out),
            Some(_) => {
                let reason = if self.link.inherited { Reason::Reconnected } else { Reason::Gap };
                self.clear(reason, out);
                self.apply(mark, payload, out);
            }
        }
    }

    /// Holds a live batch until a replay brings what is missing before it, or shows whose it is. It is the
    /// oldest of those that wait.
    fn wait(&mut self, now: Nanos, mark: Mark, payload: &[u8], out: Out<'_>) {
        if self.ask(now, out) {
            self.queue.put_back(mark, payload);
        } else {
            self.apply(mark, payload, out);
        }
    }

    fn hold(&mut self, mark: Mark, payload: &[u8]) {
        if !self.queue.push(mark, payload) {
            self.link.missed = Some(mark.seq);
        }
    }

    /// Asks for everything from the last applied batch on. After too many tries without progress it falls
    /// back instead, and says so: cleared, from here on the live connection counts alone.
    fn ask(&mut self, now: Nanos, out: Out<'_>) -> bool {
        self.replay = None;
        if self.tries == TRIES {
            self.tries = 0;
            self.clear(Reason::ReplayFailed, out);
            self.reason = Some(Reason::ReplayFailed);
            self.link.proven = true;
            return false;
        }
        self.tries += 1;
        self.attempts = self.attempts.wrapping_add(1);
        self.link.missed = None;
        let (attempt, deadline) = (self.attempts, now + self.policy.replay_wait);
        self.replay = Some(Replay { attempt, answered: false, deadline });
        out(Action::AskReplay { attempt, from: self.last.map_or(0, |last| last.seq) });
        true
    }

    fn ask_or_settle(&mut self, now: Nanos, out: Out<'_>) {
        if !self.ask(now, out) {
            self.settle(now, out);
        }
    }

    /// Another process answers: all that it has is asked for.
    fn start_over(&mut self, now: Nanos, out: Out<'_>) {
        self.clear(Reason::Restarted, out);
        self.ask_or_settle(now, out);
    }

    /// A replayed batch that follows. It shows whose the live connection is if that one brought it too.
    fn accept(&mut self, mark: Mark, payload: &[u8], out: Out<'_>) {
        self.tries = 0;
        self.apply(mark, payload, out);
        self.meet(mark, out);
    }

    fn meet(&mut self, mark: Mark, out: Out<'_>) {
        while self.queue.front().is_some_and(|front| front.seq < mark.seq) {
            self.queue.pop();
        }
        if let Some(front) = self.queue.front().filter(|front| front.seq == mark.seq) {
            self.queue.pop();
            self.compare(front, mark, out);
        }
    }

    /// One sequence that came both ways.
    fn compare(&mut self, live: Mark, replayed: Mark, out: Out<'_>) {
        if live == replayed {
            self.link.proven = true;
            return;
        }
        self.disconnected();
        out(Action::Reconnect);
    }

    /// No replay is under way: what waited goes on.
    fn settle(&mut self, now: Nanos, out: Out<'_>) {
        while self.replay.is_none()
            && let Some(held) = self.queue.pop()
        {
            self.advance(now, held.mark, &held.payload, out);
        }
        let is_behind = self.link.missed > self.last.map(|last| last.seq);
        if self.replay.is_none() && is_behind {
            self.ask(now, out);
        } else if self.replay.is_none() {
            self.tries = 0;
        }
    }

    /// The sequence went back: whatever the connection now reaches, it is not what was applied.
    fn regress(&mut self, out: Out<'_>) {
        self.clear(Reason::Regressed, out);
        self.link.proven = !self.policy.replay;
        self.queue.clear();
        self.replay = None;
        self.tries = 0;
    }

    fn clear(&mut self, reason: Reason, out: Out<'_>) {
        let Some(last) = self.last.take() else { return };
        if self.link.inherited && self.link.newest == Some(last) {
            self.link.newest = None;
        }
        self.since = None;
        self.reason = Some(reason);
        self.link.inherited = false;
        self.link.proven = !self.policy.replay;
        out(Action::Clear(reason));
    }

    fn apply(&mut self, mark: Mark, payload: &[u8], out: Out<'_>) {
        self.last = Some(mark);
        self.link.inherited = false;
        self.link.verified = true;
        self.since.get_or_insert(mark.seq);
        let effect = out(Action::Apply { seq: mark.seq, payload });
        self.found(mark.seq, effect, out);
    }

    /// What a batch did that could only be applied later; nothing that was cleared since.
    pub fn found(&mut self, seq: u64, effect: Effect, out: Out<'_>) {
        match effect {
            Effect::Changed => {}
            Effect::Emptied => self.since = Some(0),
            Effect::Undecodable => {
                self.since = Some(seq + 1);
                self.reason = Some(Reason::Undecodable);
                out(Action::Clear(Reason::Undecodable));
            }
        }
    }
}

#[cfg(test)]
mod tests;
