//! One rank that publishes, with its sockets. Owns dialling, hanging up and writing for one [`Feed`]; must never
//! judge what the feed does with the bytes.

use super::net::{Net, Owner, Use};
use super::places::Places;
use crate::feed::{Feed, FeedCounts, Terms};
use crate::holdings::Holdings;
use crate::index::Index;
use warmpath_core::Nanos;
use warmpath_ring::{Ring, Sock};

/// A connection that is being made or is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    sock: Sock,
    is_open: bool,
}

/// One publishing rank.
pub(super) struct Published {
    pub feed: Feed,
    pub places: Places,
    owner: Owner,
    rank: u8,
    live: Option<Link>,
    replay: Option<(Link, u32)>,
    /// When a start identity was first asked for.
    pub identity_wanted: Option<Nanos>,
    pub reconnects: u64,
    pub last_event: Nanos,
}

impl Published {
    pub fn new(source: u32, rank: u8, places: Places, terms: Terms) -> Published {
        Published {
            feed: Feed::new(terms),
            places,
            owner: Owner { source, what: Use::Live(rank) },
            rank,
            live: None,
            replay: None,
            identity_wanted: None,
            reconnects: 0,
            last_event: 0,
        }
    }

    /// Whether its live connection is up.
    pub fn is_connected(&self) -> bool {
        self.live.is_some_and(|link| link.is_open)
    }

    /// A connection attempt ended.
    pub fn connected(&mut self, now: Nanos, what: Use, is_up: bool, change: &mut Change<'_>) {
        match what {
            Use::Replay(_, attempt) => self.replay_connected(now, attempt, is_up, change),
            _ if is_up => {
                if let Some(link) = &mut self.live {
                    link.is_open = true;
                    self.feed.live_opened(now);
                }
            }
            _ => self.live_lost(now),
        }
    }

    /// The engine connected to us. Whether it was awaited.
    pub fn accepted(&mut self, now: Nanos, sock: Sock) -> bool {
        let is_awaited = self.live.is_none() && self.places.publish.is_none() && self.feed.wants_live(now);
        if is_awaited {
            self.live = Some(Link { sock, is_open: true });
            self.feed.live_opened(now);
        }
        is_awaited
    }

    /// Bytes of one of its connections.
    pub fn bytes(&mut self, now: Nanos, what: Use, bytes: &[u8], change: &mut Change<'_>) {
        let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
        let before = self.feed.counts().applied;
        match what {
            Use::Replay(_, attempt) => self.feed.replay_bytes(now, attempt, bytes, &mut sink),
            _ => self.feed.live_bytes(now, bytes, &mut sink),
        }
        if self.feed.counts().applied > before {
            self.last_event = now;
        }
    }

    /// A slice of the batches that wait.
    pub fn work(&mut self, now: Nanos, change: &mut Change<'_>) {
        let before = self.feed.counts().applied;
        let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
        self.feed.work(now, &mut sink);
        if self.feed.counts().applied > before {
            self.last_event = now;
        }
    }

    /// One of its connections is gone.
    pub fn lost(&mut self, now: Nanos, what: Use, change: &mut Change<'_>) {
        match what {
            Use::Replay(_, attempt) => self.replay_connected(now, attempt, false, change),
            _ => self.live_lost(now),
        }
    }

    /// The engine's start identity, as read since it was asked for.
    pub fn identified(&mut self, now: Nanos, identity: Option<u64>, change: &mut Change<'_>) {
        self.identity_wanted = None;
        let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
        self.feed.identified(now, identity, &mut sink);
    }

    /// Does what the feed wants of its sockets; when to call again.
    pub fn settle<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>, change: &mut Change<'_>) -> Nanos {
        let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
        let next = self.feed.tick(now, &mut sink);
        self.settle_live(now, net);
        self.settle_replay(now, net, change);
        self.write(net);
        match self.feed.wants_identity() {
            true => drop(self.identity_wanted.get_or_insert(now)),
            false => self.identity_wanted = None,
        }
        next
    }

    /// Hangs up.
    pub fn close<R: Ring>(&mut self, net: &mut Net<R>) {
        if let Some(link) = self.live.take() {
            net.close(link.sock);
        }
        if let Some((link, _)) = self.replay.take() {
            net.close(link.sock);
        }
    }

    fn live_lost(&mut self, now: Nanos) {
        if self.live.take().is_some() {
            self.reconnects += 1;
            self.feed.live_closed(now);
        }
    }

    fn replay_connected(&mut self, now: Nanos, attempt: u32, is_up: bool, change: &mut Change<'_>) {
        let Some((link, _)) = self.replay.as_mut().filter(|(_, own)| *own == attempt) else { return };
        if is_up {
            link.is_open = true;
            return self.feed.replay_opened(now, attempt);
        }
        self.replay = None;
        let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
        self.feed.replay_closed(now, attempt, &mut sink);
    }

    fn settle_live<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>) {
        if let Some(link) = self.live
            && (link.is_open && !self.feed.has_live() || !self.feed.wants_live(now))
        {
            net.close(link.sock);
            self.live = None;
            self.reconnects += 1;
        }
        if let (None, Some(to), true) = (self.live, self.places.publish, self.feed.wants_live(now)) {
            match net.dial(to, self.owner) {
                Ok(sock) => self.live = Some(Link { sock, is_open: false }),
                Err(_) => {
                    self.reconnects += 1;
                    self.feed.live_closed(now);
                }
            }
        }
    }

    fn settle_replay<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>, change: &mut Change<'_>) {
        let wanted = self.feed.wants_replay(now);
        if let Some((link, attempt)) = self.replay
            && wanted != Some(attempt)
        {
            net.close(link.sock);
            self.replay = None;
        }
        let (None, Some(attempt)) = (self.replay, wanted) else { return };
        let owner = Owner { what: Use::Replay(self.rank, attempt), ..self.owner };
        let dialled = self.places.replay.map(|to| net.dial(to, owner));
        match dialled {
            Some(Ok(sock)) => self.replay = Some((Link { sock, is_open: false }, attempt)),
            _ => {
                let mut sink = |it: crate::residency::Change<'_>| change.holdings.change(it, change.index);
                self.feed.replay_closed(now, attempt, &mut sink);
            }
        }
    }

    fn write<R: Ring>(&mut self, net: &mut Net<R>) {
        if let Some(Link { sock, is_open: true }) = self.live
            && !net.is_sending(sock)
        {
            let bytes = self.feed.live_output().to_vec();
            self.feed.live_wrote(bytes.len());
            net.send(sock, bytes);
        }
        if let Some((Link { sock, is_open: true }, attempt)) = self.replay
            && !net.is_sending(sock)
        {
            let bytes = self.feed.replay_output(attempt).to_vec();
            self.feed.replay_wrote(attempt, bytes.len());
            net.send(sock, bytes);
        }
    }

    pub fn counts(&self) -> FeedCounts {
        self.feed.counts()
    }
}

/// Where a rank's changes go.
pub(super) struct Change<'a> {
    pub holdings: &'a mut Holdings,
    pub index: &'a mut Index,
}
