//! One (endpoint, rank) of an engine that publishes: its two connections, its stream and its blocks together.
//!
//! Owns when to dial, when to hang up and what each message goes through; must never open a socket or read a
//! clock. Its driver compares what is wanted ([`Feed::wants_live`], [`Feed::wants_replay`]) with the sockets it
//! has, hands bytes over as they come, and writes what waits. While it is busy ([`Feed::is_busy`]) it is to be
//! given no bytes, but a slice of work now and then ([`Feed::work`]).

mod cache;

use crate::backoff::Backoff;
use crate::continuity::{Action, Policy, Reason, Standing, Stream};
use crate::decode::Reject;
use crate::framing::{self, Live, Reply};
use crate::residency::{Change, Removal, Residency};
use crate::wire::{Batch, HashBytes};
use crate::zmtp::{Connection, Fault, Limits, Message, Role};
use cache::Cache;
use warmpath_core::Nanos;

/// What an engine file and a rule decide for a feed.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The topic prefix to subscribe to; empty takes all.
    pub topic: Vec<u8>,
    /// Bounds of its connections.
    pub limits: Limits,
    /// What continuity may rely on.
    pub policy: Policy,
    /// How byte-string hashes are named.
    pub naming: HashBytes,
    /// How many copies a removal takes.
    pub removal: Removal,
    /// Blocks that it may hold.
    pub blocks: usize,
    /// The rank that its batches are of; those of another are counted and ignored. `None`: any.
    pub rank: Option<u32>,
    /// Bytes of batches that one call works off, about; what is over it waits for [`Feed::work`].
    pub slice: usize,
    /// Tells its waits from those of other feeds.
    pub seed: u64,
}

/// What happened so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Batches applied.
    pub applied: u64,
    /// Batches that are not MessagePack.
    pub undecodable: u64,
    /// Batches of another form than events have.
    pub schema_mismatch: u64,
    /// Batches of another rank, ignored.
    pub rank_mismatch: u64,
    /// Batches of another rank since the last one of the own.
    pub rank_mismatch_run: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Events of kinds that are not known here.
    pub unknown_events: u64,
    /// Connections closed for a breach of ZMTP or of the framing.
    pub malformed: u64,
    /// Times that all was forgotten.
    pub cleared: u64,
}

/// A step of a feed, for who watches it.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The next batch in proven order; it is applied right after this.
    Applied {
        /// Its sequence.
        seq: u64,
        /// What it says.
        batch: &'a Batch,
    },
    /// A batch that could not be decoded. What it did to the cache is unknown: [`Step::Cleared`] follows.
    Undecodable {
        /// Its sequence.
        seq: u64,
        /// Why.
        reject: Reject,
    },
    /// All blocks were forgotten.
    Cleared(Reason),
    /// A replay is wanted.
    Asked {
        /// The first sequence wanted.
        from: u64,
    },
    /// The live connection reaches a process that is gone, and is opened anew.
    Reconnecting,
}

/// Takes each step of a feed as it happens.
pub type Watch = Box<dyn FnMut(Step<'_>) + Send>;

/// A replay that the stream asked for.
struct Asked {
    attempt: u32,
    from: u64,
    /// When to dial.
    at: Nanos,
    connection: Option<Connection>,
    sent: bool,
}

type Sink<'s> = &'s mut dyn FnMut(Change<'_>);

/// One (endpoint, rank).
pub struct Feed {
    terms: Terms,
    stream: Stream,
    cache: Cache,
    live: Option<Connection>,
    /// Why the last live connection was closed from this side, if for a breach of ZMTP.
    fault: Option<Fault>,
    /// The stream knows of the live connection.
    started: bool,
    live_at: Nanos,
    live_backoff: Backoff,
    replay: Option<Asked>,
    replay_backoff: Backoff,
    /// A replay was asked for, and not all that waits since then is applied.
    is_catching_up: bool,
}

impl Feed {
    /// A feed that wants to dial at once.
    pub fn new(terms: Terms) -> Self {
        Feed {
            stream: Stream::new(terms.policy),
            cache: Cache::new(&terms),
            live: None,
            fault: None,
            started: false,
            live_at: 0,
            live_backoff: Backoff::new(terms.seed),
            replay: None,
            replay_backoff: Backoff::new(!terms.seed),
            is_catching_up: false,
            terms,
        }
    }

    /// Hands each further step to `watch`.
    pub fn watch(&mut self, watch: Watch) {
        self.cache.watch = Some(watch);
    }

    /// Whether the live connection should be open or be dialled. If not, the driver closes what it has.
    pub fn wants_live(&self, now: Nanos) -> bool {
        now >= self.live_at
    }

    /// The replay connection that should be open or be dialled; any of another attempt is to be closed.
    pub fn wants_replay(&self, now: Nanos) -> Option<u32> {
        self.replay.as_ref().filter(|asked| now >= asked.at).map(|asked| asked.attempt)
    }

    /// Whether it has a live connection: one that it hung up itself is to be closed.
    pub fn has_live(&self) -> bool {
        self.live.is_some()
    }

    /// Whether the driver has to read the engine's start identity and call [`Feed::identified`]: the
    /// connection is up, there is no replay, and batches are ignored until then.
    pub fn wants_identity(&self) -> bool {
        !self.started && !self.terms.policy.replay && self.live.as_ref().is_some_and(Connection::is_ready)
    }

    /// The live socket is connected.
    pub fn live_opened(&mut self, now: Nanos) {
        self.live = Some(Connection::new(Role::Sub(self.terms.topic.clone()), self.terms.limits, now));
        self.started = false;
        self.fault = None;
    }

    /// The live socket could not be connected, or is closed.
    pub fn live_closed(&mut self, now: Nanos) {
        self.live = None;
        self.replay = None;
        self.cache.hang_up = false;
        self.cache.asked = None;
        self.started = false;
        self.stream.disconnected();
        self.live_at = now + self.live_backoff.fail();
    }

    /// Bytes of the live socket.
    pub fn live_bytes(&mut self, now: Nanos, bytes: &[u8], sink: Sink<'_>) {
        let Some(mut connection) = self.live.take() else { return };
        let mut misframed = false;
        let verdict = connection.receive(now, bytes, &mut |message| {
            misframed |= !self.live_message(now, message, sink);
        });
        let is_ready = connection.is_ready();
        self.live = Some(connection);
        self.fault = verdict.err();
        if verdict.is_err() || misframed {
            self.cache.counts.malformed += 1;
            self.live_closed(now);
        } else if is_ready && !self.started && self.terms.policy.replay {
            self.start(now, None, sink);
        }
        self.settle(now);
    }

    /// The start identity, read since the live connection is up; none if the engine has none.
    pub fn identified(&mut self, now: Nanos, identity: Option<u64>, sink: Sink<'_>) {
        if self.wants_identity() {
            self.start(now, identity, sink);
            self.settle(now);
        }
    }

    /// The replay socket of this attempt is connected.
    pub fn replay_opened(&mut self, now: Nanos, attempt: u32) {
        let limits = self.terms.limits;
        if let Some(asked) = self.asked(attempt) {
            let connection = Connection::new(Role::Dealer, limits, now);
            asked.connection = Some(connection);
        }
    }

    /// The replay socket of this attempt could not be connected, or is closed.
    pub fn replay_closed(&mut self, now: Nanos, attempt: u32, sink: Sink<'_>) {
        if self.asked(attempt).is_none() {
            return;
        }
        let cache = &mut self.cache;
        self.stream.replay_failed(now, attempt, &mut |action| cache.act(action, sink));
        let is_asked_again = self.cache.asked.is_some();
        let wait = if is_asked_again { self.replay_backoff.fail() } else { 0 };
        self.settle(now + wait);
    }

    /// Bytes of the replay socket of this attempt.
    pub fn replay_bytes(&mut self, now: Nanos, attempt: u32, bytes: &[u8], sink: Sink<'_>) {
        let Some(mut connection) = self.asked(attempt).and_then(|asked| asked.connection.take()) else {
            return;
        };
        let mut misframed = false;
        let verdict = connection.receive(now, bytes, &mut |message| {
            misframed |= !self.replay_message(now, attempt, message, sink);
        });
        if let Some(asked) = self.asked(attempt) {
            if connection.is_ready() && !asked.sent {
                asked.sent = connection.send(&[b"", &framing::ask(asked.from)]).is_ok();
            }
            asked.connection = Some(connection);
        }
        if verdict.is_err() || misframed {
            self.cache.counts.malformed += 1;
            self.replay_closed(now, attempt, sink);
        } else {
            self.settle(now);
        }
    }

    /// Whether batches wait to be applied.
    pub fn is_busy(&self) -> bool {
        self.waiting() > 0
    }

    /// Whether what waits is what a replay brought, or waited for one.
    pub fn is_catching_up(&self) -> bool {
        self.is_catching_up
    }

    /// Batches that wait to be applied, or are in part.
    pub fn waiting(&self) -> usize {
        self.cache.waiting()
    }

    /// One slice of what waits. Nobody was listened to meanwhile, so that no silence of theirs counts.
    pub fn work(&mut self, now: Nanos, sink: Sink<'_>) {
        while let Some((seq, effect)) = self.cache.work(sink) {
            let cache = &mut self.cache;
            self.stream.found(seq, effect, &mut |action| cache.act(action, sink));
        }
        self.stream.excuse(now);
        let replay = self.replay.as_mut().and_then(|asked| asked.connection.as_mut());
        self.live.iter_mut().chain(replay).for_each(|connection| connection.excuse(now));
        self.settle(now);
    }

    /// Heartbeats, silent peers, silent replays, lost last batches; when to call again.
    pub fn tick(&mut self, now: Nanos, sink: Sink<'_>) -> Nanos {
        let live = self.live.as_mut().map(|connection| connection.tick(now));
        if let Some(Err(fault)) = live {
            self.fault = Some(fault);
            self.live_closed(now);
        }
        let replay = self.replay.as_mut().and_then(|asked| {
            asked.connection.as_mut().map(|connection| (asked.attempt, connection.tick(now)))
        });
        if let Some((attempt, Err(_))) = replay {
            self.replay_closed(now, attempt, sink);
        }
        let cache = &mut self.cache;
        let stream = self.stream.tick(now, &mut |action| cache.act(action, sink));
        self.settle(now);
        let live = live.and_then(Result::ok).flatten();
        let replay = replay.and_then(|(_, next)| next.ok()).flatten();
        let dials = [Some(self.live_at), self.replay.as_ref().map(|asked| asked.at)];
        let dials = dials.into_iter().flatten().filter(|at| *at > now);
        [live, replay, stream].into_iter().flatten().chain(dials).min().unwrap_or(now + warmpath_core::SECOND)
    }

    /// What waits to be written to the live socket.
    pub fn live_output(&self) -> &[u8] {
        self.live.as_ref().map_or(&[], Connection::output)
    }

    /// So many bytes of [`Feed::live_output`] are written.
    pub fn live_wrote(&mut self, count: usize) {
        if let Some(connection) = &mut self.live {
            connection.wrote(count);
        }
    }

    /// What waits to be written to the replay socket of this attempt.
    pub fn replay_output(&self, attempt: u32) -> &[u8] {
        let asked = self.replay.as_ref().filter(|asked| asked.attempt == attempt);
        asked.and_then(|asked| asked.connection.as_ref()).map_or(&[], Connection::output)
    }

    /// So many bytes of [`Feed::replay_output`] are written.
    pub fn replay_wrote(&mut self, attempt: u32, count: usize) {
        if let Some(connection) = self.asked(attempt).and_then(|asked| asked.connection.as_mut()) {
            connection.wrote(count);
        }
    }

    /// Whether the live connection's handshake is over.
    pub fn is_live(&self) -> bool {
        self.live.as_ref().is_some_and(Connection::is_ready)
    }

    /// The breach of ZMTP for which the live connection was closed from this side; none while it is open.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// What the blocks are worth.
    pub fn standing(&self) -> Standing {
        self.stream.standing()
    }

    /// Whether answers of a replay are awaited.
    pub fn is_replaying(&self) -> bool {
        self.stream.is_replaying()
    }

    /// Why all was last forgotten, or is not the whole.
    pub fn reason(&self) -> Option<Reason> {
        self.stream.reason()
    }

    /// The last sequence that is wholly applied.
    pub fn last_applied(&self) -> Option<u64> {
        if self.is_busy() { self.cache.applied() } else { self.stream.last_applied() }
    }

    /// The blocks that the rank holds.
    pub fn residency(&self) -> &Residency {
        &self.cache.residency
    }

    /// What happened so far.
    pub fn counts(&self) -> FeedCounts {
        self.cache.counts
    }

    fn asked(&mut self, attempt: u32) -> Option<&mut Asked> {
        self.replay.as_mut().filter(|asked| asked.attempt == attempt)
    }

    fn start(&mut self, now: Nanos, identity: Option<u64>, sink: Sink<'_>) {
        self.started = true;
        let cache = &mut self.cache;
        self.stream.connected(now, identity, &mut |action| cache.act(action, sink));
    }

    fn live_message(&mut self, now: Nanos, mut message: Message<'_>, sink: Sink<'_>) -> bool {
        let Ok(live) = framing::live(&message) else { return false };
        self.live_backoff.succeed();
        self.hand_over(&live);
        let cache = &mut self.cache;
        self.stream.live(now, live.seq, live.payload, &mut |action| cache.act(action, sink));
        self.take_over(&mut message, framing::LIVE_PAYLOAD);
        true
    }

    fn replay_message(&mut self, now: Nanos, attempt: u32, mut message: Message<'_>, sink: Sink<'_>) -> bool {
        match framing::reply(&message) {
            Ok(Reply::Batch(live)) => {
                self.hand_over(&live);
                let cache = &mut self.cache;
                let mut out = |action: Action<'_>| cache.act(action, sink);
                self.stream.replayed(now, attempt, live.seq, live.payload, &mut out);
                let last = message.len() - 1;
                self.take_over(&mut message, last);
            }
            Ok(Reply::End) => {
                let cache = &mut self.cache;
                self.stream.replay_ended(now, attempt, &mut |action| cache.act(action, sink));
            }
            Err(_) => return false,
        }
        self.replay_backoff.succeed();
        true
    }

    /// A long message is given away where it has to wait: copying it would take longer than its turn.
    fn hand_over(&mut self, live: &Live<'_>) {
        self.cache.arriving = self.cache.is_long(live.payload).then_some(live.seq);
    }

    fn take_over(&mut self, message: &mut Message<'_>, frame: usize) {
        if self.cache.arriving.is_some()
            && let Some(place) = message.place(frame)
        {
            self.cache.arrived(message.bytes(), place);
        }
    }

    /// Takes up what the stream asked for and hangs up what it no longer needs.
    fn settle(&mut self, at: Nanos) {
        if let Some((attempt, from)) = self.cache.asked.take() {
            self.replay = Some(Asked { attempt, from, at, connection: None, sent: false });
        } else if !self.stream.is_replaying() {
            self.replay = None;
        }
        if std::mem::take(&mut self.cache.hang_up) {
            self.live_closed(at);
        }
        self.cache.rest();
        self.is_catching_up = self.stream.is_replaying() || self.is_catching_up && self.is_busy();
    }
}

#[cfg(test)]
mod tests;
