//! One source: an engine process, what it says of itself, and its ranks. Owns when it is asked, what its answers
//! change and why it is fenced; must never name a path or a member of an engine, nor decide between endpoints.

use super::client::{Client, Outcome, Wanted};
use super::drained::{Drained, Poller, by_rank};
use super::net::{Net, Use};
use super::places::{Places, places, unusable_places};
use super::published::{Change, Published};
use super::rank::{Rank, Stream, Work};
use super::settings::Settings;
use crate::continuity::Policy;
use crate::engines::{self, Delivery};
use crate::facts::{Facts, Verdict};
use crate::feed::Terms;
use crate::http::Answer;
use crate::index::Index;
use std::sync::Arc;
use warmpath_core::engine::Version;
use warmpath_core::shared::{Fence, Observation, Source};
use warmpath_core::{Nanos, SECOND};
use warmpath_parser::http1::Method;
use warmpath_ring::{Ring, Sock};

/// An engine that answers is asked again after so long.
const ASK_EVERY: Nanos = 60 * SECOND;

/// One that does not answer.
const ASK_AGAIN: Nanos = 5 * SECOND;

/// How long a question may take.
const ASK_WAIT: Nanos = 5 * SECOND;

/// Bytes of an answer to a question; metrics are the longest.
const ANSWER_MAX: usize = 4 << 20;

/// How long a drain may take: some versions hold the answer back while nothing happens.
const DRAIN_WAIT: Nanos = 30 * SECOND;

/// Bytes of a drain.
const DRAIN_MAX: usize = 64 << 20;

/// What is being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Nothing,
    Probe(usize),
    Drain,
}

/// One source.
pub(super) struct Flow {
    pub source: Arc<Source>,
    settings: Settings,
    client: Client,
    asking: Asking,
    asked_at: Nanos,
    ask_at: Nanos,
    doubted_at: Nanos,
    draft: Facts,
    pub facts: Facts,
    pub verdict: Verdict,
    pub ranks: Vec<Rank>,
    pub poller: Option<Poller>,
    /// Another source drains the same engine.
    pub is_second: bool,
    /// Engines that connected and can't be told apart, and the like.
    pub complaints: Vec<String>,
    /// Its facts changed: all endpoints of its rules are compared anew.
    pub is_news: bool,
    next: Nanos,
}

impl Flow {
    pub fn new(source: Arc<Source>, settings: Settings, index: &mut Index) -> Flow {
        let (number, spec) = (source.number(), source.spec());
        let seed = settings.seed ^ u64::from(number);
        let ranks = (0..spec.ranks).map(|rank| Rank::new(source.clone(), rank, index)).collect();
        let poller = match engines::delivery(spec.engine()) {
            Delivery::Drained(path) => Some(Poller::new(path, settings.pace, seed)),
            Delivery::Published | Delivery::Never => None,
        };
        Flow {
            client: Client::new(number, spec.endpoint),
            settings,
            asking: Asking::Nothing,
            asked_at: 0,
            ask_at: 0,
            doubted_at: 0,
            draft: Facts::default(),
            facts: Facts::default(),
            verdict: Verdict::default(),
            ranks,
            poller,
            is_second: false,
            complaints: Vec::new(),
            is_news: false,
            next: 0,
            source,
        }
    }

    /// Hangs up and gives its holders back.
    pub fn stop<R: Ring>(&mut self, net: &mut Net<R>, index: &mut Index) {
        self.client.close(net);
        for rank in &mut self.ranks {
            rank.retire(net, index);
            rank.holdings.release(index);
        }
    }

    /// When it has to be looked after next.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// A connection attempt ended.
    pub fn connected<R: Ring>(
        &mut self,
        now: Nanos,
        (what, sock): (Use, Sock),
        is_up: bool,
        net: &mut Net<R>,
        index: &mut Index,
    ) {
        if is_up {
            net.opened(sock);
        } else {
            net.close(sock);
        }
        match what {
            Use::Http => {
                let outcome = self.client.connected(sock, is_up, net);
                self.conclude(now, outcome, net, index);
            }
            Use::Live(rank) | Use::Replay(rank, _) => {
                self.with_published(rank, index, |published, change| {
                    published.connected(now, what, is_up, change);
                });
                if is_up && what == Use::Live(rank) {
                    self.doubt(now);
                }
                self.settle_rank(now, rank, net, index);
            }
        }
        self.settle(now, net, index);
    }

    /// The engine connected to us for a rank; whether it was awaited.
    pub fn accepted<R: Ring>(
        &mut self,
        now: Nanos,
        rank: u8,
        sock: Sock,
        net: &mut Net<R>,
        index: &mut Index,
    ) -> bool {
        let mut is_awaited = false;
        self.with_published(rank, index, |published, _| is_awaited = published.accepted(now, sock));
        if is_awaited {
            net.opened(sock);
            self.doubt(now);
            self.settle_rank(now, rank, net, index);
            self.settle(now, net, index);
        }
        is_awaited
    }

    /// Bytes came.
    pub fn bytes(&mut self, now: Nanos, what: Use, bytes: &[u8], index: &mut Index) -> Option<Outcome> {
        match what {
            Use::Http => return self.client.bytes(bytes),
            Use::Live(rank) | Use::Replay(rank, _) => {
                self.with_published(rank, index, |published, change| {
                    published.bytes(now, what, bytes, change);
                });
            }
        }
        None
    }

    /// After [`Flow::bytes`]: what follows from them.
    pub fn worked<R: Ring>(
        &mut self,
        now: Nanos,
        what: Use,
        outcome: Option<Outcome>,
        net: &mut Net<R>,
        index: &mut Index,
    ) {
        match what {
            Use::Http => self.conclude(now, outcome, net, index),
            Use::Live(rank) | Use::Replay(rank, _) => self.settle_rank(now, rank, net, index),
        }
        self.settle(now, net, index);
    }

    /// A connection is gone.
    pub fn lost<R: Ring>(
        &mut self,
        now: Nanos,
        (what, sock): (Use, Sock),
        net: &mut Net<R>,
        index: &mut Index,
    ) {
        net.close(sock);
        match what {
            Use::Http => {
                let outcome = self.client.lost(sock, net);
                self.conclude(now, outcome, net, index);
            }
            Use::Live(rank) | Use::Replay(rank, _) => {
                self.with_published(rank, index, |published, change| published.lost(now, what, change));
                self.settle_rank(now, rank, net, index);
            }
        }
        self.settle(now, net, index);
    }

    /// A socket takes bytes again.
    pub fn writable<R: Ring>(&mut self, now: Nanos, what: Use, net: &mut Net<R>, index: &mut Index) {
        match what {
            Use::Http => {
                let outcome = self.client.go_on(net);
                self.conclude(now, outcome, net, index);
            }
            Use::Live(rank) | Use::Replay(rank, _) => self.settle_rank(now, rank, net, index),
        }
        self.settle(now, net, index);
    }

    /// Timers.
    pub fn tick<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>, index: &mut Index) {
        let outcome = self.client.tick(now, net);
        self.conclude(now, outcome, net, index);
        for rank in 0..self.ranks.len() {
            if now >= self.ranks[rank].next {
                self.settle_rank(now, rank as u8, net, index);
            }
        }
        self.settle(now, net, index);
    }

    /// The work that a rank has for a slice, beside what its connections bring.
    pub fn has_work(&mut self, rank: usize, index: &Index) -> Option<Work> {
        self.ranks.get_mut(rank).and_then(|rank| rank.has_work(index))
    }

    /// One slice of a rank's work.
    pub fn work<R: Ring>(&mut self, now: Nanos, rank: usize, net: &mut Net<R>, index: &mut Index) {
        self.ranks[rank].work(now, index);
        self.settle_rank(now, rank as u8, net, index);
        self.settle(now, net, index);
    }

    /// Whether what this connection brings is to wait.
    pub fn is_held_up(&mut self, what: Use, index: &Index) -> bool {
        let (Use::Live(rank) | Use::Replay(rank, _)) = what else { return false };
        self.ranks.get_mut(usize::from(rank)).is_some_and(|rank| rank.is_held_up(index))
    }

    /// Notes what goes wrong outside its connections; each sentence once.
    pub fn complain(&mut self, complaint: String) {
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    /// Compares with its rules anew. `firsts` are those versions of the first endpoints of its rules that told one.
    pub fn judge(&mut self, firsts: &[Version]) {
        let spec = self.source.spec();
        self.verdict = self.facts.judge(spec);
        if self.is_second {
            self.verdict.fence = Some(Fence::Ownership);
            self.verdict.findings.push(format!(
                "another rule has the events of {} drained by other terms, and they can be taken but once: give \
                 both rules one kvBlockSize, kvHashAlgo, kvDpRankCount, kvEngineVersion and model",
                spec.endpoint
            ));
        }
        self.verdict.findings.extend(firsts.iter().filter_map(|first| self.facts.differs(spec, *first)));
        self.verdict.findings.extend(unusable_places(spec, &self.facts));
        self.source.set_version(self.facts.version());
        self.refresh_fence();
    }

    /// Takes what an answer of this engine proved.
    pub fn observe(&mut self, told: &Observation<'_>, index: &mut Index) {
        if let Some(rank) = self.ranks.get_mut(usize::from(told.rank)) {
            rank.observe(told, &self.source, index);
        }
    }

    /// Takes the drained stream over.
    pub fn reacquire(&mut self, index: &mut Index) {
        for rank in &mut self.ranks {
            if let Stream::Drained(drained) = &mut rank.stream {
                drained.reacquire(&mut Change { holdings: &mut rank.holdings, index });
                rank.holdings.flush(index);
            }
        }
        self.refresh_fence();
    }

    /// Why it is left out, the engine's own word first.
    pub fn fence(&self) -> Option<Fence> {
        self.verdict.fence.or_else(|| self.ranks.iter().find_map(Rank::fence))
    }

    fn refresh_fence(&self) {
        self.source.set_misnamed(self.ranks.iter().any(|rank| rank.holdings.names.differ()));
        self.source.set_fence(self.fence());
    }

    /// Perhaps another process answers from now on.
    fn doubt(&mut self, now: Nanos) {
        self.doubted_at = now;
        self.ask_at = self.ask_at.min(now);
    }

    /// Begins the next request, if one is due and none is under way; sets when to look again.
    fn settle<R: Ring>(&mut self, now: Nanos, net: &mut Net<R>, index: &mut Index) {
        self.client.tidy(net);
        while !self.client.is_busy() {
            let Some((asking, wanted)) = self.due(now) else { break };
            self.asking = asking;
            let outcome = self.client.begin(now, &wanted, net);
            self.conclude(now, outcome, net, index);
        }
        let drain = self.poller.as_ref().filter(|_| self.is_admitted()).map(|poller| poller.at);
        let idle = [Some(self.ask_at), drain];
        let request = match self.client.deadline() {
            Some(deadline) => deadline,
            None => idle.into_iter().flatten().min().unwrap_or(Nanos::MAX),
        };
        self.next = self.ranks.iter().map(|rank| rank.next).fold(request, Nanos::min);
    }

    fn due(&mut self, now: Nanos) -> Option<(Asking, Wanted)> {
        let probes = engines::probes(self.source.spec().engine());
        if matches!(self.asking, Asking::Nothing) && now >= self.ask_at && !probes.is_empty() {
            self.draft = Facts::default();
            self.asked_at = now;
            self.asking = Asking::Probe(0);
        }
        if let Asking::Probe(at) = self.asking {
            let path = probes[at].path;
            let wanted = Wanted { method: Method::Get, path, body_max: ANSWER_MAX, wait: ASK_WAIT };
            return Some((Asking::Probe(at), wanted));
        }
        let is_admitted = self.is_admitted();
        let poller = self.poller.as_ref().filter(|poller| is_admitted && now >= poller.at)?;
        let (path, wait) = (poller.path, DRAIN_WAIT);
        Some((Asking::Drain, Wanted { method: Method::Post, path, body_max: DRAIN_MAX, wait }))
    }

    /// Draining takes events from whoever else may read them: only with an engine that fits its rule.
    fn is_admitted(&self) -> bool {
        self.facts.answered && self.verdict.fence.is_none()
    }

    /// Takes what became of a request.
    fn conclude<R: Ring>(
        &mut self,
        now: Nanos,
        outcome: Option<Outcome>,
        net: &mut Net<R>,
        index: &mut Index,
    ) {
        let Some(outcome) = outcome else { return };
        match (std::mem::replace(&mut self.asking, Asking::Nothing), outcome) {
            (Asking::Probe(at), Outcome::Answered(answer)) => self.probed(now, at, &answer, net, index),
            (Asking::Probe(_), _) => self.asked(now, false, net, index),
            (Asking::Drain, outcome) => self.drained(now, outcome, index),
            (Asking::Nothing, _) => {}
        }
    }

    fn probed<R: Ring>(
        &mut self,
        now: Nanos,
        at: usize,
        answer: &Answer,
        net: &mut Net<R>,
        index: &mut Index,
    ) {
        let probes = engines::probes(self.source.spec().engine());
        self.draft.answered = true;
        if answer.status == 200 {
            (probes[at].read)(&answer.body, &mut self.draft);
        }
        let left = probes.iter().enumerate().skip(at + 1);
        match left.filter(|(_, probe)| (probe.is_needed)(&self.draft)).map(|(at, _)| at).next() {
            Some(next) => self.asking = Asking::Probe(next),
            None => self.asked(now, true, net, index),
        }
    }

    /// All questions are answered, or the engine is not there.
    fn asked<R: Ring>(&mut self, now: Nanos, is_whole: bool, net: &mut Net<R>, index: &mut Index) {
        self.ask_at = match is_whole {
            true if self.doubted_at > self.asked_at => now,
            true => now + ASK_EVERY,
            false => now + ASK_AGAIN,
        };
        if is_whole {
            self.facts = std::mem::take(&mut self.draft);
            self.source.set_capacity(self.facts.capacity.unwrap_or(self.source.capacity()));
            self.source.set_adapters(&self.facts.adapters);
        }
        self.is_news = true;
        self.judge(&[]);
        if !self.is_admitted() {
            // Nobody follows it from now on: what it held is not known any more.
            self.reacquire(index);
        }
        let identity = self.facts.identity.filter(|_| is_whole);
        for rank in 0..self.ranks.len() as u8 {
            self.place(now, rank, net, index);
            let asked_at = self.asked_at;
            self.with_published(rank, index, |published, change| {
                if published.identity_wanted.is_some_and(|wanted| wanted <= asked_at) {
                    published.identified(now, identity, change);
                }
            });
            self.settle_rank(now, rank, net, index);
        }
    }

    /// Gives a rank its stream; a new one if its places changed.
    fn place<R: Ring>(&mut self, now: Nanos, rank: u8, net: &mut Net<R>, index: &mut Index) {
        let spec = self.source.spec();
        let wanted = places(spec, &self.facts, rank);
        let at = usize::from(rank);
        let stream = match (&self.ranks[at].stream, engines::delivery(spec.engine())) {
            _ if self.ranks[at].is_resting(now) => return,
            (Stream::Published(own), Delivery::Published) if own.places == wanted => return,
            (Stream::Drained(_), _) | (_, Delivery::Never) => return,
            (_, Delivery::Published) => {
                let terms = self.terms(wanted, rank);
                Stream::Published(Box::new(Published::new(self.source.number(), rank, wanted, terms)))
            }
            (_, Delivery::Drained(_)) => {
                Stream::Drained(Box::new(Drained::new(self.settings.blocks_per_rank)))
            }
        };
        self.ranks[at].begin(stream, net, index);
    }

    fn terms(&self, places: Places, rank: u8) -> Terms {
        let engine = self.source.spec().engine();
        Terms {
            topic: Vec::new(),
            limits: self.settings.limits,
            policy: Policy { replay: places.replay.is_some(), ..self.settings.policy },
            naming: engines::naming(engine),
            removal: engines::removal(engine),
            blocks: self.settings.blocks_per_rank,
            rank: Some(places.rank),
            slice: self.settings.slice,
            seed: self.settings.seed ^ u64::from(self.source.number()) << 8 ^ u64::from(rank),
        }
    }

    fn drained(&mut self, now: Nanos, outcome: Outcome, index: &mut Index) {
        let events = match &outcome {
            Outcome::Answered(answer) if answer.status == 200 => by_rank(&answer.body),
            _ => None,
        };
        let Some(poller) = &mut self.poller else { return };
        match events {
            Some(events) => {
                poller.answered(now, events.values().map(Vec::len).sum());
                for (rank, events) in events {
                    self.apply_drained(now, rank, &events, index);
                }
            }
            None => {
                poller.failed(now);
                let is_lost = !matches!(outcome, Outcome::Unreached);
                for rank in self.ranks.iter_mut().filter(|_| is_lost) {
                    if let Stream::Drained(drained) = &mut rank.stream {
                        drained.lost(&mut Change { holdings: &mut rank.holdings, index });
                    }
                }
                self.ask_at = self.ask_at.min(now + ASK_AGAIN);
            }
        }
        let is_up = self.poller.as_ref().is_some_and(|poller| poller.is_up);
        for rank in &mut self.ranks {
            // What an engine did not give away it still has: an answer that did not come leaves nothing out.
            if is_up {
                rank.follow(now, true, index);
            }
            rank.told(&self.source, index);
        }
        self.refresh_fence();
    }

    fn apply_drained(
        &mut self,
        now: Nanos,
        rank: u32,
        events: &[crate::trtllm_json::DrainEvent],
        index: &mut Index,
    ) {
        let Some(rank) = self.ranks.get_mut(rank as usize) else {
            if let Some(first) = self.ranks.first_mut() {
                first.past.rank_mismatch += events.len() as u64;
            }
            return;
        };
        let Stream::Drained(drained) = &mut rank.stream else { return };
        drained.batches += 1;
        for event in events {
            let mut change = Change { holdings: &mut rank.holdings, index };
            if let Some(room) = drained.apply(now, event, &mut change) {
                self.source.set_capacity(room);
            }
        }
    }

    fn with_published(
        &mut self,
        rank: u8,
        index: &mut Index,
        act: impl FnOnce(&mut Published, &mut Change<'_>),
    ) {
        let Some(rank) = self.ranks.get_mut(usize::from(rank)) else { return };
        if let Stream::Published(published) = &mut rank.stream {
            act(published, &mut Change { holdings: &mut rank.holdings, index });
        }
    }

    /// After anything that happened to a rank: its sockets, its writes to the index, what decisions read of it.
    fn settle_rank<R: Ring>(&mut self, now: Nanos, rank: u8, net: &mut Net<R>, index: &mut Index) {
        let at = usize::from(rank);
        if self.ranks[at].is_rested(now) {
            self.place(now, rank, net, index);
        }
        let own = &mut self.ranks[at];
        own.settle(now, &self.source, net, index);
        if let Stream::Published(published) = &own.stream
            && published.identity_wanted.is_some_and(|wanted| wanted > self.asked_at)
        {
            self.ask_at = self.ask_at.min(now);
        }
        self.refresh_fence();
    }
}
