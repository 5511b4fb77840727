//! One rank of a source: its stream, what it holds, and whether that can be true. Owns drift (more blocks than
//! the engine has) and what decisions read of the rank; must never look at another rank.

use super::drained::Drained;
use super::net::Net;
use super::published::{Change, Published};
use crate::continuity::Standing;
use crate::feed::FeedCounts;
use crate::holdings::Holdings;
use crate::index::Index;
use crate::questions::Questions;
use crate::residency::{Residency, Shelf};
use crate::wire::Medium;
use std::sync::Arc;
use warmpath_core::shared::{Fence, Observation, Shown, Source};
use warmpath_core::{Nanos, SECOND};
use warmpath_ring::Ring;

/// Batches of another rank in a row before it is no accident.
const RANK_MISMATCHES: u64 = 3;

/// How long a rank rests after it claimed too much for the second time; doubles up to 16 times that.
const DRIFT_REST: Nanos = 5 * SECOND;

/// What a rank's events come by.
pub(super) enum Stream {
    /// Not yet known where, or resting.
    Idle,
    Published(Box<Published>),
    Drained(Box<Drained>),
}

/// What is done in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Long batches of a live stream.
    Live,
    /// What was missed, or is brought together anew.
    CatchUp,
}

/// One rank of a source.
pub(super) struct Rank {
    pub number: u8,
    pub stream: Stream,
    pub holdings: Holdings,
    /// Counts of streams before this one.
    pub past: FeedCounts,
    pub past_reconnects: u64,
    pub drifts: u64,
    /// Claimed more than its engine has, and no new stream has shown otherwise.
    is_drifting: bool,
    rests_until: Option<Nanos>,
    /// No event has been missed since.
    followed_since: Option<Nanos>,
    pub next: Nanos,
}

impl Rank {
    pub fn new(source: Arc<Source>, number: u8, index: &mut Index) -> Rank {
        Rank {
            number,
            stream: Stream::Idle,
            holdings: Holdings::new(source, number, index),
            past: FeedCounts::default(),
            past_reconnects: 0,
            drifts: 0,
            is_drifting: false,
            rests_until: None,
            followed_since: None,
            next: Nanos::MAX,
        }
    }

    /// Whether it rested long enough to begin anew.
    pub fn is_rested(&self, now: Nanos) -> bool {
        self.rests_until.is_some_and(|until| now >= until)
    }

    /// Whether it is not to have a stream yet.
    pub fn is_resting(&self, now: Nanos) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// The work that it has for a slice now, beside what its connections bring.
    pub fn has_work(&mut self, index: &Index) -> Option<Work> {
        let work =
            match &self.stream {
                Stream::Published(published) if published.feed.is_busy() => {
                    if published.feed.is_catching_up() { Work::CatchUp } else { Work::Live }
                }
                _ if self.holdings.is_filling() => Work::CatchUp,
                _ => return None,
            };
        (!self.holdings.awaits_sweep(index)).then_some(work)
    }

    /// Whether its connections are to wait: batches are before theirs, or the index is to be swept first.
    pub fn is_held_up(&mut self, index: &Index) -> bool {
        self.stream.is_busy() || self.holdings.awaits_sweep(index)
    }

    /// One slice of its work.
    pub fn work(&mut self, now: Nanos, index: &mut Index) {
        if let Stream::Published(published) = &mut self.stream
            && published.feed.is_busy()
        {
            published.work(now, &mut Change { holdings: &mut self.holdings, index });
        } else if let Some(residency) = self.stream.residency() {
            self.holdings.fill(residency, index);
        }
    }

    /// Begins a stream; what was held before is forgotten.
    pub fn begin<R: Ring>(&mut self, stream: Stream, net: &mut Net<R>, index: &mut Index) {
        self.retire(net, index);
        self.rests_until = None;
        self.stream = stream;
    }

    /// After anything that happened to it: its sockets, its writes to the index, what decisions read of it.
    pub fn settle<R: Ring>(&mut self, now: Nanos, source: &Source, net: &mut Net<R>, index: &mut Index) {
        self.next = match &mut self.stream {
            Stream::Published(published) => {
                published.settle(now, net, &mut Change { holdings: &mut self.holdings, index })
            }
            Stream::Idle => self.rests_until.unwrap_or(Nanos::MAX),
            Stream::Drained(_) => Nanos::MAX,
        };
        if let Stream::Published(published) = &self.stream {
            self.follow(now, published.feed.is_live(), index);
        }
        if self.told(source, index) && matches!(self.stream, Stream::Published(_)) {
            self.retire(net, index);
            let rest = match self.drifts {
                0 | 1 => 0,
                many => DRIFT_REST << (many - 2).min(4),
            };
            self.rests_until = Some(now + rest);
            self.next = now + rest;
            source.set_blocks(self.number, 0, false);
        }
    }

    /// Ends its writes and tells decisions what it holds. Whether that is more than there is room for: then it
    /// is forgotten.
    pub fn told(&mut self, source: &Source, index: &mut Index) -> bool {
        self.holdings.flush(index);
        let Some(residency) = self.stream.residency() else { return false };
        self.holdings.begin_fills(residency, index);
        // In the midst of a batch, what it removes may not be removed yet.
        let room = if self.stream.is_busy() { 0 } else { source.capacity() as usize };
        if room > 0 && residency.on_medium(Medium::Gpu) + self.holdings.observed.len() > room {
            self.holdings.forget_observed(index);
        }
        if room > 0 && residency.on_medium(Medium::Gpu) > room {
            self.drift(index);
            return true;
        }
        self.is_drifting &= !self.stream.is_caught_up();
        let shelf = Shelf { group: self.holdings.group().unwrap_or(0), medium: Medium::Gpu };
        let held = residency.on(shelf) + self.holdings.observed.len();
        let blocks = u32::try_from(held).unwrap_or(u32::MAX);
        source.set_blocks(self.number, blocks, self.stream.is_complete());
        false
    }

    /// Whether its events come, none left out. Once they don't, nobody tells what becomes of blocks that answers
    /// proved.
    pub fn follow(&mut self, now: Nanos, is_followed: bool, index: &mut Index) {
        if is_followed {
            self.followed_since.get_or_insert(now);
        } else if self.followed_since.take().is_some() {
            self.holdings.forget_observed(index);
            // Events that did not come meanwhile answer nothing.
            self.holdings.questions = Questions::default();
        }
    }

    /// Takes what an answer proved. Of a rank whose whole history is known there is nothing to learn: there it would
    /// be a contradiction.
    pub fn observe(&mut self, told: &Observation<'_>, source: &Source, index: &mut Index) {
        let is_followed = self.followed_since.is_some_and(|since| told.sent > since);
        let may_count = is_followed && source.fence().is_none();
        match told.shown {
            Shown::Computed => self.holdings.unlearn(told, index),
            Shown::Held(depth) if may_count && self.stream.may_lack() && !self.holdings.names.differ() => {
                self.holdings.learn(told, depth, index);
            }
            Shown::Untold { service, class } if may_count => {
                self.holdings.questions.ask(told, service, class, index.now);
            }
            Shown::Brought { service, class } if may_count => {
                self.holdings.questions.ask_brought(told, service, class, index.now);
            }
            Shown::Routed { service } if may_count => {
                self.holdings.questions.ask_routed(told, service, index.now);
            }
            Shown::Held(_) | Shown::Untold { .. } | Shown::Brought { .. } | Shown::Routed { .. } => {}
        }
        self.told(source, index);
    }

    /// Why its source is left out, if it is for this rank.
    pub fn fence(&self) -> Option<Fence> {
        let counts = self.holdings.counts;
        match &self.stream {
            Stream::Drained(drained) if drained.drain.fault().is_some() => Some(Fence::Ownership),
            Stream::Published(published) if published.counts().rank_mismatch_run >= RANK_MISMATCHES => {
                Some(Fence::Rank)
            }
            _ if counts.wrong_size > 0 && counts.counted == 0 => Some(Fence::BlockSize),
            _ if counts.uncounted_groups > 0 && self.holdings.group().is_none() => Some(Fence::Groups),
            _ if self.is_drifting => Some(Fence::Drift),
            _ => None,
        }
    }

    /// Hangs up, forgets, and keeps the counts.
    pub fn retire<R: Ring>(&mut self, net: &mut Net<R>, index: &mut Index) {
        let stream = std::mem::replace(&mut self.stream, Stream::Idle);
        self.holdings.clear(stream.residency(), index);
        match stream {
            Stream::Idle => {}
            Stream::Published(mut published) => {
                published.close(net);
                self.past = self.counts_with(published.counts());
                self.past_reconnects += published.reconnects;
            }
            Stream::Drained(_) => {}
        }
    }

    /// Counts of all its streams.
    pub fn counts(&self) -> FeedCounts {
        match &self.stream {
            Stream::Published(published) => self.counts_with(published.counts()),
            Stream::Idle => self.past,
            Stream::Drained(drained) => self.counts_with(FeedCounts {
                applied: drained.batches,
                cleared: drained.cleared,
                ..FeedCounts::default()
            }),
        }
    }

    fn counts_with(&self, own: FeedCounts) -> FeedCounts {
        let past = self.past;
        FeedCounts {
            applied: past.applied + own.applied,
            undecodable: past.undecodable + own.undecodable,
            schema_mismatch: past.schema_mismatch + own.schema_mismatch,
            rank_mismatch: past.rank_mismatch + own.rank_mismatch,
            rank_mismatch_run: own.rank_mismatch_run,
            replays: past.replays + own.replays,
            unknown_events: past.unknown_events + own.unknown_events,
            malformed: past.malformed + own.malformed,
            cleared: past.cleared + own.cleared,
        }
    }

    fn drift(&mut self, index: &mut Index) {
        self.drifts += 1;
        self.is_drifting = true;
        match &mut self.stream {
            Stream::Drained(drained) => {
                drained.reacquire(&mut Change { holdings: &mut self.holdings, index })
            }
            stream => self.holdings.clear(stream.residency(), index),
        }
    }
}

impl Stream {
    pub fn residency(&self) -> Option<&Residency> {
        match self {
            Stream::Idle => None,
            Stream::Published(published) => Some(published.feed.residency()),
            Stream::Drained(drained) => Some(&drained.residency),
        }
    }

    /// Whether it may hold blocks of which no event told, although all that comes is applied.
    fn may_lack(&self) -> bool {
        match self {
            Stream::Idle => false,
            Stream::Published(published) => {
                let standing = published.feed.standing();
                matches!(standing, Standing::Empty | Standing::Since(_)) && !published.feed.is_replaying()
            }
            Stream::Drained(drained) => drained.drain.fault().is_none() && !drained.drain.is_complete(),
        }
    }

    /// Whether batches wait to be applied.
    pub fn is_busy(&self) -> bool {
        matches!(self, Stream::Published(published) if published.feed.is_busy())
    }

    /// Whether its whole history since an empty cache is known and applied.
    fn is_complete(&self) -> bool {
        match self {
            Stream::Idle => false,
            Stream::Published(published) => {
                published.feed.standing() == Standing::Complete && !published.feed.is_busy()
            }
            Stream::Drained(drained) => drained.drain.is_complete(),
        }
    }

    /// Whether all that it could bring at once is there.
    fn is_caught_up(&self) -> bool {
        match self {
            Stream::Idle => false,
            Stream::Published(published) => {
                let standing = published.feed.standing();
                let is_known = matches!(standing, Standing::Complete | Standing::Since(_));
                is_known && !published.feed.is_replaying() && !published.feed.is_busy()
            }
            Stream::Drained(_) => true,
        }
    }
}
