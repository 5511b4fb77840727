//! The loop of a shard: events in, one handler each. Owns everything a shard has; must never decide how a
//! request goes (the stages do, one file each: see the crate's head).

use crate::breaker::Charge;
use crate::budget::Budget;
use crate::buffers::Spare;
use crate::conn::{Client, Conn, Conns, Stage, Upstream, UpstreamState};
use crate::exact::Exact;
use crate::exchange::Exchange;
use crate::gate::Desk;
use crate::meter::Meter;
use crate::pool::Pools;
use crate::random::Random;
use crate::services::ShardRules;
use crate::settings::Settings;
use crate::stages::Stages;
use crate::tally::Tally;
use crate::timers::Timers;
use crate::valve::{self, Door};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warmpath_core::Nanos;
use warmpath_core::control::{Count, DrainPhase, ShardReport};
use warmpath_core::fleet::EndpointView;
use warmpath_core::table::Table;
use warmpath_parser::json::Members;
use warmpath_ring::{Body, Errno, Event, Held, Listener, Payload, Ring, Sizes, Sock};

/// One shard over a driver.
pub struct Flow<R: Ring> {
    /// The kernel, or its stand-in.
    pub ring: R,
    pub(crate) settings: Settings,
    pub(crate) conns: Conns,
    pub(crate) rules: ShardRules,
    pub(crate) pools: Pools,
    pub(crate) timers: Timers,
    pub(crate) memory: Memory,
    pub(crate) tally: Tally,
    pub(crate) random: Random,
    pub(crate) view: Vec<EndpointView>,
    pub(crate) members: Members,
    pub(crate) scratch: Vec<u8>,
    pub(crate) exact: Exact,
    pub(crate) desk: Desk,
    pub(crate) door: Door,
    /// Charges of blocks that prefill engines keep for nobody, until their lease ends; soonest first.
    pub(crate) orphans: VecDeque<(Nanos, Charge)>,
    pub(crate) phase: DrainPhase,
    pub(crate) now: Nanos,
    pub(crate) stages: Stages,
    meter: Meter,
    turn: Turn,
}

/// What the shard holds of memory, and who waits for some.
pub(crate) struct Memory {
    pub spare: Spare,
    #[expect(clippy::vec_box, reason = "they move between here and their clients as boxes")]
    pub exchanges: Vec<Box<Exchange>>,
    pub budget: Arc<Budget>,
    /// Clients whose bodies wait for memory, first come first.
    pub waiting: VecDeque<Sock>,
    /// With fewer receive buffers free, sends are made from copies, so that stuck clients cannot starve
    /// the rest.
    pub free_min: u64,
}

/// Lists reused by each turn.
#[derive(Default)]
struct Turn {
    events: Vec<Event>,
    due: Vec<(Sock, Nanos)>,
}

/// Exchanges kept for reuse.
const EXCHANGES_KEPT: usize = 256;

/// How often a shard looks at clients that wait for memory, since another shard may have freed it.
const MEMORY_LOOK: Nanos = 5 * warmpath_core::MILLISECOND;

impl<R: Ring> Flow<R> {
    /// A shard without rules. `sizes` are those the ring was made with; `seed` feeds request ids.
    pub fn new(
        ring: R,
        sizes: Sizes,
        settings: Settings,
        budget: Arc<Budget>,
        mut exact: Exact,
        seed: u64,
    ) -> Flow<R> {
        let now = ring.now();
        exact.text.wake_by(ring.waker());
        let memory = Memory {
            spare: Spare::default(),
            exchanges: Vec::new(),
            budget,
            waiting: VecDeque::new(),
            free_min: u64::from(sizes.buffers) / 2,
        };
        Flow {
            ring,
            settings,
            conns: Conns::default(),
            rules: ShardRules::default(),
            pools: Pools::default(),
            timers: Timers::new(now),
            memory,
            tally: Tally::default(),
            random: Random::new(seed),
            view: Vec::new(),
            members: Members::new(),
            scratch: Vec::new(),
            exact,
            desk: Desk::row(1).remove(0),
            door: Door::default(),
            orphans: VecDeque::new(),
            phase: DrainPhase::Serving,
            now,
            stages: Stages::default(),
            meter: Meter::default(),
            turn: Turn::default(),
        }
    }

    /// Begins taking turns with this endpoint; shards begin with different ones.
    pub fn begin_turns_with(&mut self, endpoint: u32) {
        self.rules.first_turn = endpoint;
    }

    /// Calls turns at gates from now on with the shards of this desk's row; alone without.
    pub fn sit_at(&mut self, desk: Desk) {
        desk.wake_by(self.ring.waker());
        self.desk = desk;
    }

    /// Takes over a table, with the listeners of VIPs that are new in it.
    pub fn install(&mut self, table: Arc<Table>, listeners: Vec<(SocketAddr, Listener)>) {
        for listener in self.rules.install(table.clone(), &mut self.pools) {
            self.ring.close_listener(listener);
        }
        for (address, listener) in listeners {
            let slot = self.rules.slot(address);
            self.rules.vips[slot].listener = Some(listener);
        }
        let named = |at| {
            table
                .vips
                .iter()
                .flat_map(|v| &v.services)
                .any(|s| s.rule.endpoints.iter().any(|e| e.address == at))
        };
        for sock in self.pools.strays(named) {
            self.close_idle(sock);
        }
        self.drain_queues();
    }

    /// One turn of the loop: waits at most `longest` (`None`: as long as nothing happens), then reacts.
    pub fn turn(&mut self, longest: Option<Duration>) -> Result<(), Errno> {
        let timeout = self.timeout(longest);
        let mut events = std::mem::take(&mut self.turn.events);
        self.ring.wait(timeout, &mut events)?;
        self.now = self.ring.now();
        self.meter.begin(self.now, || self.ring.cpu_time());
        for event in events.drain(..) {
            let stage = self.stage_of(&event);
            self.react(event);
            self.meter.note(stage, self.ring.now(), || self.ring.cpu_time());
        }
        self.turn.events = events;
        self.take_keyed();
        self.meter.note("tokens", self.ring.now(), || self.ring.cpu_time());
        self.expire();
        self.end_leases();
        self.serve_memory_waiters();
        self.seat_waiting();
        self.take_turns();
        self.meter.note("timers", self.ring.now(), || self.ring.cpu_time());
        let (used, stage) = self.meter.end();
        self.tally.turn(used, stage);
        Ok(())
    }

    /// The stage that an event belongs to, for the record of long turns.
    fn stage_of(&self, event: &Event) -> &'static str {
        match event {
            Event::Accepted { .. } | Event::AcceptFailed { .. } | Event::ListenerClosed { .. } => "accept",
            Event::Received { sock, .. } if self.conns.is_client(*sock) => "intake",
            Event::Received { .. } => "relay",
            Event::Connected { .. } => "dial",
            Event::Sent { sock, .. } if self.conns.is_client(*sock) => "account",
            Event::Sent { .. } => "dial",
            Event::Ended { .. } | Event::Failed { .. } => "lost",
            Event::Woken => "orders",
        }
    }

    fn timeout(&self, longest: Option<Duration>) -> Option<Duration> {
        let timer = self.timers.until_next(self.ring.now());
        let memory = (!self.memory.waiting.is_empty()).then_some(MEMORY_LOOK);
        let seats = (self.door.waiting() > 0).then_some(valve::LOOK);
        let look = self.until_look(self.ring.now());
        let lease = self.orphans.front().map(|(until, _)| until.saturating_sub(self.ring.now()));
        let own = [timer, memory, seats, look, lease].into_iter().flatten().min().map(Duration::from_nanos);
        [own, longest].into_iter().flatten().min()
    }

    fn react(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, sock, peer } => self.accepted(listener, sock, peer),
            Event::ListenerClosed { listener } => self.rules.listener_closed(listener),
            Event::AcceptFailed { .. } | Event::Woken => {}
            Event::Connected { sock, result } => self.connected(sock, result),
            Event::Received { sock, buffer } => self.received(sock, buffer),
            Event::Ended { sock } => self.lost(sock, None),
            Event::Failed { sock, error } => self.lost(sock, Some(error)),
            Event::Sent { sock, payload, result } => self.sent(sock, payload, result),
        }
    }

    fn accepted(&mut self, listener: Listener, sock: Sock, peer: SocketAddr) {
        match self.rules.slot_of(listener) {
            Some(vip) => self.accept(vip, sock, peer),
            None => self.ring.close(sock),
        }
    }

    fn connected(&mut self, sock: Sock, result: Result<(), Errno>) {
        if let Some(mut upstream) = self.conns.take_upstream(sock) {
            self.dialed(&mut upstream, result);
            self.conns.put_upstream(upstream);
        }
    }

    fn received(&mut self, sock: Sock, held: Held) {
        match self.conns.take(sock) {
            Conn::Client(mut client) => {
                client.transport.unwrap(&mut self.ring, &held);
                self.client_bytes(&mut client, held);
                self.conns.put_client(client);
            }
            Conn::Upstream(mut upstream) => {
                upstream.transport.unwrap(&mut self.ring, &held);
                self.upstream_bytes(&mut upstream, held);
                self.conns.put_upstream(upstream);
            }
            Conn::Vacant => self.release(held),
        }
    }

    /// The other side sent FIN (`None`) or the connection failed.
    fn lost(&mut self, sock: Sock, error: Option<Errno>) {
        match self.conns.take(sock) {
            Conn::Client(mut client) => {
                self.client_ended(&mut client, error.is_some());
                self.conns.put_client(client);
            }
            Conn::Upstream(mut upstream) => {
                self.upstream_lost(&mut upstream, error.is_some());
                self.conns.put_upstream(upstream);
            }
            Conn::Vacant => {}
        }
    }

    fn sent(&mut self, sock: Sock, mut payload: Payload, result: Result<(), Errno>) {
        match self.conns.take(sock) {
            Conn::Client(mut client) => {
                self.client_sent(&mut client, payload, result);
                self.conns.put_client(client);
            }
            Conn::Upstream(mut upstream) => {
                upstream.transport.restore(&mut self.ring, &mut payload);
                self.upstream_sent(&mut upstream, payload, result);
                self.conns.put_upstream(upstream);
            }
            Conn::Vacant => self.recycle(payload),
        }
    }

    fn expire(&mut self) {
        let mut due = std::mem::take(&mut self.turn.due);
        self.timers.expire(self.now, &mut due);
        for (sock, at) in due.drain(..) {
            match self.conns.take(sock) {
                Conn::Client(mut client) => {
                    if client.deadline.armed == at {
                        self.client_due(&mut client);
                    }
                    self.conns.put_client(client);
                }
                Conn::Upstream(mut upstream) => {
                    if upstream.deadline.armed == at {
                        self.upstream_due(&mut upstream);
                    }
                    self.conns.put_upstream(upstream);
                }
                Conn::Vacant => {}
            }
        }
        self.turn.due = due;
    }

    fn client_due(&mut self, client: &mut Client) {
        client.deadline.armed = Nanos::MAX;
        if client.deadline.at <= self.now {
            self.client_timeout(client);
        } else {
            self.watch_client(client);
        }
    }

    fn upstream_due(&mut self, upstream: &mut Upstream) {
        upstream.deadline.armed = Nanos::MAX;
        if upstream.leg.is_some() {
            return self.leg_due(upstream);
        }
        if upstream.state != UpstreamState::Idle {
            return;
        }
        if upstream.deadline.at <= self.now {
            self.tally.count(Count::Retired);
            self.pools.forget(upstream.pool, upstream.sock);
            self.close_upstream(upstream);
        } else {
            self.watch_upstream(upstream);
        }
    }

    /// Sets what happens if nothing else does, and makes sure that the wheel looks in time.
    pub(crate) fn expect_client(&mut self, client: &mut Client, within: Nanos) {
        client.deadline.at = self.now.saturating_add(within);
        self.watch_client(client);
    }

    fn watch_client(&mut self, client: &mut Client) {
        if client.deadline.at < client.deadline.armed {
            client.deadline.armed = client.deadline.at;
            self.timers.arm(client.sock, client.deadline.at);
        }
    }

    /// The same for an idle upstream.
    pub(crate) fn watch_upstream(&mut self, upstream: &mut Upstream) {
        if upstream.deadline.at < upstream.deadline.armed {
            upstream.deadline.armed = upstream.deadline.at;
            self.timers.arm(upstream.sock, upstream.deadline.at);
        }
    }

    /// Gives a receive buffer back.
    pub(crate) fn release(&mut self, held: Held) {
        self.ring.release(held);
    }

    /// Takes apart a payload that was sent or will not be.
    pub(crate) fn recycle(&mut self, payload: Payload) {
        if payload.head.capacity() > 0 {
            self.memory.spare.give(payload.head);
        }
        match payload.body {
            Body::Held { buffer, .. } => self.release(buffer),
            Body::Owned { bytes, .. } => self.memory.spare.give(bytes),
            Body::None | Body::Static(_) => {}
        }
    }

    /// Closes a client connection and forgets its request.
    pub(crate) fn close_client(&mut self, client: &mut Client) {
        client.stage = Stage::Closed;
        self.ring.close(client.sock);
        while let Some(payload) = client.outbox.pop() {
            self.recycle(payload);
        }
        self.memory.spare.give(std::mem::take(&mut client.inbuf));
        if let Some(exchange) = client.exchange.take() {
            self.keep_exchange(exchange);
        }
    }

    /// Closes an upstream connection. Its pool must not hold it any more.
    pub(crate) fn close_upstream(&mut self, upstream: &mut Upstream) {
        upstream.state = UpstreamState::Closed;
        upstream.leg = None;
        self.ring.close(upstream.sock);
        while let Some(payload) = upstream.outbox.pop() {
            self.recycle(payload);
        }
        self.memory.spare.give(std::mem::take(&mut upstream.inbuf));
    }

    fn close_idle(&mut self, sock: Sock) {
        if let Some(mut upstream) = self.conns.take_upstream(sock) {
            self.close_upstream(&mut upstream);
            self.conns.put_upstream(upstream);
        }
    }

    /// An exchange to fill.
    pub(crate) fn new_exchange(&mut self) -> Box<Exchange> {
        self.memory.exchanges.pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    /// Takes back an exchange that is over.
    pub(crate) fn keep_exchange(&mut self, mut exchange: Box<Exchange>) {
        self.memory.spare.give(std::mem::take(&mut exchange.request));
        exchange.clear();
        if self.memory.exchanges.len() < EXCHANGES_KEPT {
            self.memory.exchanges.push(exchange);
        }
    }

    /// Goes a step down.
    pub fn drain(&mut self, phase: DrainPhase) {
        self.phase = self.phase.max(phase);
        if self.phase >= DrainPhase::Closing {
            for listener in self.rules.close_listeners() {
                self.ring.close_listener(listener);
            }
            self.close_clients();
        }
    }

    /// Gives idle client connections a last moment, since a request may be under way on a new one; when
    /// cutting, closes all.
    fn close_clients(&mut self) {
        for sock in self.conns.socks(|conn| matches!(conn, Conn::Client(_))) {
            let Some(mut client) = self.conns.take_client(sock) else { continue };
            if self.phase == DrainPhase::Cutting {
                self.abandon(&mut client);
            } else if client.stage == Stage::Head && client.exchange.is_none() {
                self.expect_client(&mut client, self.settings.linger);
            }
            self.conns.put_client(client);
        }
    }

    /// Whether this shard has nothing left to do.
    pub fn is_quiet(&self) -> bool {
        self.conns.clients == 0 && self.rules.is_deaf()
    }

    /// What this shard knows of itself.
    pub fn report(&mut self, shard: usize) -> ShardReport {
        let counters = self.ring.counters();
        self.tally.set(Count::Starved, counters.starved);
        self.tally.set(Count::Overflowed, counters.overflowed);
        let mut report = ShardReport {
            shard,
            generation: self.rules.table.generation,
            clients: self.conns.clients,
            held: self.door.waiting() as u64,
            upstreams: self.conns.upstreams,
            active: self.active(),
            answers: self.rules.answers(),
            exact: self.rules.exact(),
            pairs: self.rules.pairs(),
            sessions: self.rules.sessions(),
            ..ShardReport::default()
        };
        self.tally.report(&mut report);
        report.stages = self.stages.times();
        report
    }

    fn active(&self) -> u64 {
        let busy = |conn: &Conn| matches!(conn, Conn::Client(client) if client.exchange.is_some());
        self.conns.socks(busy).len() as u64
    }
}
