//! The event core: follows every source of the rules in force, and is the one that writes the index.
//!
//! Owns the loop and whose turn it is; must never decide about a request, nor start a thread (`thread` does). One
//! [`EventCore::turn`] waits once, gives each live connection that has bytes one buffer's worth of work, does a
//! slice of what is long and looks after timers. Without work it sleeps until the next timer.
//!
//! What happens now goes before what is told again: of everything that restarts and gaps bring (replays, what waited
//! for them, fills of slower tiers, sweeps) a turn has one piece each, however many ranks wait for theirs.

mod client;
mod drained;
mod flow;
mod net;
mod places;
mod published;
mod rank;
mod report;
mod settings;

pub use drained::Pace;
pub use places::{Places, places, unusable_places};
pub use settings::Settings;

use crate::index::Index;
use flow::Flow;
use net::{Net, Owner, Turn, Use};
use rank::Work;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::attest::{Heard, Listening};
use warmpath_core::engine::Version;
use warmpath_core::shared::{AttestState, Observation, Source, TrustState};
use warmpath_core::table::Table;
use warmpath_core::{Nanos, SECOND};
use warmpath_kvindex::Writer;
use warmpath_ring::{Errno, Event, Listener, Ring, Sock};

/// Segments swept in a turn; a tenth of a millisecond or two each.
const SWEEP: usize = 1;

/// Ranks that have a slice of work in a turn, beside what their connections bring: of those with long batches, and of
/// those that catch up.
const SLICES_A_TURN: [usize; 2] = [4, 1];

/// When ports that could not be listened on are tried again.
const LISTEN_AGAIN: Nanos = 5 * SECOND;

/// All sources over one ring.
pub struct EventCore<R: Ring> {
    net: Net<R>,
    index: Index,
    settings: Settings,
    /// By number.
    flows: Vec<Flow>,
    /// The sources of each rule, by endpoint.
    rules: Vec<Vec<u32>>,
    events: Vec<Event>,
    listen_faults: Vec<(SocketAddr, Errno)>,
    listen_at: Option<Nanos>,
    /// A rank has work beside what its connections bring.
    is_working: bool,
    /// Whose work of each kind comes next: a flow's place, and a rank.
    work_at: [(usize, usize); 2],
    /// The seed that the gateway was given.
    seed: Option<String>,
    /// Trust in each source, by service and source.
    trust: Vec<(u32, u32, Arc<TrustState>)>,
    /// What is proven of each source, by service and source, where a rule has a model profile.
    attested: Vec<(u32, u32, Arc<AttestState>)>,
}

impl<R: Ring> EventCore<R> {
    /// One that follows nothing yet. `writer` is the index's only one.
    pub fn new(ring: R, writer: Writer, settings: Settings) -> EventCore<R> {
        EventCore {
            net: Net::new(ring),
            index: Index::new(writer),
            settings,
            flows: Vec::new(),
            rules: Vec::new(),
            events: Vec::new(),
            listen_faults: Vec::new(),
            listen_at: None,
            is_working: false,
            work_at: [(0, 0); 2],
            seed: None,
            trust: Vec::new(),
            attested: Vec::new(),
        }
    }

    /// Knows the seed of the engines' block hashes, to tell a wrong seed from a wrong hash.
    pub fn with_seed(mut self, seed: Option<String>) -> EventCore<R> {
        self.seed = seed;
        self
    }

    /// Its ring, for simulations and wakers.
    pub fn ring(&mut self) -> &mut R {
        &mut self.net.ring
    }

    /// Follows the sources of `table` from now on, and no others. Sources are the same if their numbers are.
    pub fn follow(&mut self, table: &Table) {
        let now = self.net.ring.now();
        self.index.now = now;
        let wanted = table.sources();
        let is_wanted = |flow: &Flow| wanted.iter().any(|source| source.number() == flow.source.number());
        let (kept, gone) = std::mem::take(&mut self.flows).into_iter().partition(is_wanted);
        self.flows = kept;
        for mut flow in gone {
            flow.stop(&mut self.net, &mut self.index);
        }
        for source in wanted {
            if self.flow(source.number()).is_none() {
                self.flows.push(Flow::new(source, self.settings, &mut self.index));
            }
        }
        self.flows.sort_by_key(|flow| flow.source.number());
        self.trust = trust_of(table);
        self.attested = attested_of(table);
        let numbers = |sources: &[Arc<Source>]| sources.iter().map(|source| source.number()).collect();
        let exact = table.services().filter_map(|service| service.exact.as_ref());
        self.rules = exact.map(|exact| numbers(&exact.sources)).collect();
        for at in 0..self.flows.len() {
            let (before, own) = (&self.flows[..at], &self.flows[at]);
            let same = |flow: &Flow| flow.source.spec().endpoint == own.source.spec().endpoint;
            self.flows[at].is_second =
                own.poller.is_some() && before.iter().any(|flow| flow.poller.is_some() && same(flow));
        }
        self.judge();
        self.listen(now);
        self.flows.iter_mut().for_each(|flow| flow.tick(now, &mut self.net, &mut self.index));
    }

    /// One turn: waits at most `longest` (`None`: as long as nothing is due), then works off what is there.
    pub fn turn(&mut self, longest: Option<Duration>) -> Result<(), Errno> {
        let mut events = std::mem::take(&mut self.events);
        let wait = self.patience(longest);
        self.net.ring.wait(wait, &mut events)?;
        let now = self.net.ring.now();
        self.index.now = now;
        for event in events.drain(..) {
            self.take(now, event);
        }
        self.events = events;
        self.round(now);
        self.work(now);
        self.look_after(now);
        self.answer_questions(now);
        if self.index.is_sweeping() {
            self.index.sweep(SWEEP);
        }
        Ok(())
    }

    /// A slice each of what a few ranks have to do that is too long for one turn, the next ones in the next turn.
    fn work(&mut self, now: Nanos) {
        self.is_working = false;
        self.slices(now, Work::Live);
        self.slices(now, Work::CatchUp);
    }

    fn slices(&mut self, now: Nanos, kind: Work) {
        let mut slices = SLICES_A_TURN[kind as usize];
        for _ in 0..self.flows.iter().map(|flow| flow.ranks.len()).sum::<usize>() {
            let (at, rank) = self.work_at[kind as usize];
            let ranks = self.flows.get(at).map_or(0, |flow| flow.ranks.len());
            self.work_at[kind as usize] = match (rank + 1 < ranks, at + 1 < self.flows.len()) {
                (true, _) => (at, rank + 1),
                (false, true) => (at + 1, 0),
                (false, false) => (0, 0),
            };
            let Some(flow) = self.flows.get_mut(at).filter(|_| rank < ranks) else { continue };
            if flow.has_work(rank, &self.index) != Some(kind) {
                continue;
            }
            self.is_working = true;
            if slices == 0 {
                self.work_at[kind as usize] = (at, rank);
                return;
            }
            slices -= 1;
            flow.work(now, rank, &mut self.net, &mut self.index);
        }
    }

    /// Takes what an answer proved of an engine's cache.
    pub fn observe(&mut self, told: &Observation<'_>) {
        if let Some(at) = self.flow(told.source) {
            self.flows[at].observe(told, &mut self.index);
        }
    }

    /// What events say where answers told nothing.
    fn answer_questions(&mut self, now: Nanos) {
        let (trust, attested) = (&self.trust, &self.attested);
        for flow in &mut self.flows {
            let source = flow.source.number();
            for rank in &mut flow.ranks {
                rank.holdings.questions.answer(now, |service, class, finding| {
                    let own = trust.iter().find(|(of, at, _)| (*of, *at) == (service, source));
                    own.into_iter().for_each(|(.., state)| state.judged(class, finding));
                });
                let number = rank.number;
                rank.holdings.questions.named(now, |service| {
                    let own = attested.iter().find(|(of, at, _)| (*of, *at) == (service, source));
                    own.into_iter().for_each(|(.., state)| state.routed(number, now));
                });
            }
        }
    }

    /// Takes the drained stream of a source over, after another reader was detected; false without such a
    /// source.
    pub fn reacquire(&mut self, source: u32) -> bool {
        let Some(at) = self.flow(source) else { return false };
        let is_drained = self.flows[at].poller.is_some();
        self.flows[at].reacquire(&mut self.index);
        is_drained
    }

    /// Listens for the blocks of one prompt among those that a source tells of; false without such a source.
    pub fn listen_to(&mut self, source: u32, to: Option<&Listening>) -> bool {
        let Some(at) = self.flow(source) else { return false };
        self.flows[at].ranks.iter_mut().for_each(|rank| rank.holdings.ear.listen(to.cloned()));
        true
    }

    /// What was heard since then; `None` without such a source.
    pub fn heard(&self, source: u32) -> Option<Vec<Heard>> {
        let ranks = &self.flows[self.flow(source)?].ranks;
        Some(ranks.iter().flat_map(|rank| rank.holdings.ear.heard()).cloned().collect())
    }

    /// Lets go of every source: decisions see no holder any more.
    pub fn stop(&mut self) {
        for mut flow in self.flows.drain(..) {
            flow.stop(&mut self.net, &mut self.index);
        }
        self.net.listen_on(&[]);
    }

    fn flow(&self, number: u32) -> Option<usize> {
        self.flows.binary_search_by_key(&number, |flow| flow.source.number()).ok()
    }

    /// How long to wait for events.
    fn patience(&self, longest: Option<Duration>) -> Option<Duration> {
        if self.net.has_turns() || self.index.is_sweeping() || self.is_working {
            return Some(Duration::ZERO);
        }
        let timers = self.flows.iter().map(Flow::next).chain(self.listen_at);
        let next = timers.min().filter(|next| *next < Nanos::MAX);
        let now = self.net.ring.now();
        let due = next.map(|next| Duration::from_nanos(next.saturating_sub(now)));
        due.into_iter().chain(longest).min()
    }

    fn take(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Received { sock, buffer } => self.net.received(sock, buffer),
            Event::Ended { sock } | Event::Failed { sock, .. } => self.net.ended(sock),
            Event::Connected { sock, result } => {
                self.with_owner(sock, |flow, what, net, index| {
                    flow.connected(now, (what, sock), result.is_ok(), net, index);
                });
            }
            Event::Sent { sock, result, .. } => {
                self.net.sent(sock);
                match result {
                    Ok(()) => self.with_owner(sock, |flow, what, net, index| {
                        flow.writable(now, what, net, index);
                    }),
                    Err(_) => self.net.ended(sock),
                }
            }
            Event::Accepted { listener, sock, peer } => self.accepted(now, listener, sock, peer.ip()),
            Event::AcceptFailed { .. } | Event::ListenerClosed { .. } | Event::Woken => {}
        }
    }

    fn with_owner(&mut self, sock: Sock, act: impl FnOnce(&mut Flow, Use, &mut Net<R>, &mut Index)) {
        let Some(Owner { source, what }) = self.net.owner(sock) else { return };
        match self.flow(source) {
            Some(at) => act(&mut self.flows[at], what, &mut self.net, &mut self.index),
            None => self.net.close(sock),
        }
    }

    /// One buffer of each connection that has a turn, and one of one replay.
    fn round(&mut self, now: Nanos) {
        for sock in self.net.round() {
            self.serve(now, sock);
        }
        for _ in 0..self.net.replays() {
            if self.net.next_replay().is_some_and(|sock| self.serve(now, sock)) {
                break;
            }
        }
    }

    /// A connection's turn; false if it is passed on, since what its rank has to do before is not done.
    fn serve(&mut self, now: Nanos, sock: Sock) -> bool {
        if self.is_held_up(sock) {
            self.net.pass(sock);
            return false;
        }
        match self.net.turn(sock) {
            Some(Turn::Bytes(owner, buffer)) => {
                let Some(at) = self.flow(owner.source) else {
                    self.net.ring.release(buffer);
                    return true;
                };
                let (flow, net, index) = (&mut self.flows[at], &mut self.net, &mut self.index);
                let outcome = flow.bytes(now, owner.what, net.ring.bytes(&buffer), index);
                net.ring.release(buffer);
                flow.worked(now, owner.what, outcome, net, index);
            }
            Some(Turn::Ended) => {
                self.with_owner(sock, |flow, what, net, index| {
                    flow.lost(now, (what, sock), net, index);
                });
            }
            None => {}
        }
        true
    }

    /// Whether a connection's bytes are to wait for what its rank has to do before.
    fn is_held_up(&mut self, sock: Sock) -> bool {
        let Some(Owner { source, what }) = self.net.owner(sock) else { return false };
        let Some(at) = self.flow(source) else { return false };
        self.flows[at].is_held_up(what, &self.index)
    }

    /// Timers, and what news of one endpoint means for the others.
    fn look_after(&mut self, now: Nanos) {
        let mut is_news = false;
        for flow in &mut self.flows {
            if now >= flow.next() {
                flow.tick(now, &mut self.net, &mut self.index);
            }
            is_news |= std::mem::take(&mut flow.is_news);
        }
        if self.listen_at.is_some_and(|at| now >= at) {
            self.listen(now);
        }
        if is_news {
            self.judge();
        }
    }

    /// Compares all endpoints with their rules.
    fn judge(&mut self) {
        for at in 0..self.flows.len() {
            let number = self.flows[at].source.number();
            let rules = self.rules.iter().filter(|rule| rule.contains(&number));
            let mut firsts: Vec<_> = rules.filter_map(|rule| self.first_version(rule)).collect();
            firsts.dedup();
            self.flows[at].judge(&firsts);
        }
    }

    fn first_version(&self, rule: &[u32]) -> Option<Version> {
        rule.iter().find_map(|number| self.flows[self.flow(*number)?].facts.version())
    }

    /// Listens where engines are to connect to.
    fn listen(&mut self, now: Nanos) {
        let mut wanted = Vec::new();
        for spec in self.flows.iter().map(|flow| flow.source.spec()).filter(|spec| spec.ports.bind) {
            let any = match spec.endpoint.ip() {
                IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            };
            let port = |rank| spec.ports.publish.saturating_add(u16::from(rank));
            wanted.extend((0..spec.ranks).map(|rank| SocketAddr::new(any, port(rank))));
        }
        wanted.sort_unstable();
        wanted.dedup();
        self.listen_faults = self.net.listen_on(&wanted);
        self.listen_at = (!self.listen_faults.is_empty()).then_some(now + LISTEN_AGAIN);
    }

    /// An engine connected: it is known by its address alone, so two of one machine need two ports.
    fn accepted(&mut self, now: Nanos, listener: Listener, sock: Sock, peer: IpAddr) {
        let Some(at) = self.net.listened(listener) else { return self.net.ring.close(sock) };
        let rank_of = |flow: &Flow| {
            let spec = flow.source.spec();
            let rank = at.port().checked_sub(spec.ports.publish)?;
            let is_its = spec.ports.bind && spec.endpoint.ip() == peer && rank < u16::from(spec.ranks);
            is_its.then_some(rank as u8)
        };
        let found: Vec<(usize, u8)> =
            self.flows.iter().enumerate().filter_map(|(at, flow)| Some((at, rank_of(flow)?))).collect();
        if let [(at, rank)] = found[..] {
            let flow = &mut self.flows[at];
            let owner = Owner { source: flow.source.number(), what: Use::Live(rank) };
            self.net.adopt(sock, owner);
            if !flow.accepted(now, rank, sock, &mut self.net, &mut self.index) {
                self.net.close(sock);
            }
            return;
        }
        for (flow, _) in &found {
            self.flows[*flow].complain(format!(
                "several endpoints of {peer} connect to port {}: give each a port of its own, in rules of \
                 their own",
                at.port()
            ));
        }
        self.net.ring.close(sock);
    }
}

/// The trust that each service of a table has in its sources.
fn trust_of(table: &Table) -> Vec<(u32, u32, Arc<TrustState>)> {
    let mut all = Vec::new();
    for service in table.services() {
        if let Some(exact) = &service.exact {
            let pairs = exact.sources.iter().zip(&exact.trust);
            all.extend(pairs.map(|(source, trust)| (service.number, source.number(), trust.clone())));
        }
    }
    all
}

/// What each service with a model profile knows to be proven of its sources.
fn attested_of(table: &Table) -> Vec<(u32, u32, Arc<AttestState>)> {
    let mut all = Vec::new();
    for service in table.services() {
        let Some(exact) = &service.exact else { continue };
        let Some(attested) = &exact.attested else { continue };
        let pairs = exact.sources.iter().zip(&attested.endpoints);
        all.extend(pairs.map(|(source, state)| (service.number, source.number(), state.clone())));
    }
    all
}
