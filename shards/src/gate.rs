//! The gate, between route and choice: who may go to the engines now, who waits for a turn, who is refused. Owns the
//! pass that a request holds, and the turns that shards call out to each other; must never choose an endpoint.
//!
//! A pass is given back exactly once, however its request ends, since it is dropped with it. Giving one back calls the
//! next, on whichever shard that waits.

mod work;

pub(crate) use work::charge;

use crate::conn::{Client, Conn, Stage};
use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::services::ShardService;
use crossbeam::channel::{Receiver, Sender, unbounded};
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use warmpath_core::fault::{Fault, Refusal};
use warmpath_core::gate::tenant_most;
use warmpath_core::rule::{GateMode, GateTerms};
use warmpath_core::shared::{Decided, Place, Seat, Tenants, Turn, Work};
use warmpath_core::table::Service;
use warmpath_core::{MILLISECOND, Nanos};
use warmpath_parser::http1::Method;
use warmpath_ring::{Ring, Sock, Wake};
use work::Charged;

/// How often a shard with waiting requests looks whether more may be let in than before: endpoints come up, ceilings
/// move. Turns themselves are called without delay.
const LOOK: Nanos = 100 * MILLISECOND;

/// A turn on its way to the shard that waits for it.
struct Called {
    service: Arc<Service>,
    turn: Turn,
}

/// The shards, as they call turns out to each other.
pub struct Callers(Vec<Caller>);

/// How one shard is reached.
struct Caller {
    calls: Sender<Called>,
    waker: OnceLock<Arc<dyn Wake>>,
}

/// One shard's end.
pub struct Desk {
    shard: u16,
    callers: Arc<Callers>,
    calls: Receiver<Called>,
    /// Requests of this shard that wait.
    waiting: usize,
    /// When it looks next.
    look_at: Nanos,
}

impl Desk {
    /// The desks of so many shards.
    pub fn row(shards: usize) -> Vec<Desk> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| unbounded()).unzip();
        let senders = senders.into_iter().map(|calls| Caller { calls, waker: OnceLock::new() }).collect();
        let callers = Arc::new(Callers(senders));
        let desk = |(shard, calls)| Desk {
            shard: shard as u16,
            callers: callers.clone(),
            calls,
            waiting: 0,
            look_at: Nanos::MAX,
        };
        receivers.into_iter().enumerate().map(desk).collect()
    }

    /// Calls wake this shard.
    pub(crate) fn wake_by(&self, waker: Arc<dyn Wake>) {
        // A desk is sat at once.
        let _ = self.callers.0[usize::from(self.shard)].waker.set(waker);
    }
}

impl Callers {
    /// Calls everybody whose turn it is.
    fn call(&self, service: &Arc<Service>) {
        while let Some(turn) = service.admission.gate.call() {
            let Some(caller) = self.0.get(usize::from(turn.place.shard)) else { continue };
            // A shard that is gone lets nobody wait.
            let _ = caller.calls.send(Called { service: service.clone(), turn });
            if let Some(waker) = caller.waker.get() {
                waker.wake();
            }
        }
    }
}

/// What a request holds of its service's gate. Given back when dropped.
pub struct Pass {
    service: Arc<Service>,
    callers: Arc<Callers>,
    seat: Option<u64>,
    stand: Stand,
    /// What its tenant was charged for it, where the gate is fair by tenant.
    charged: Option<Charged>,
    /// When it came.
    since: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It has nothing yet.
    Outside,
    /// It waits for its turn.
    Waiting(u64),
    /// It has a permit.
    In,
}

impl Pass {
    fn waits_for(&self, called: &Called) -> bool {
        self.service.number == called.service.number && self.stand == Stand::Waiting(called.turn.ticket)
    }

    /// It waits no more. Called meanwhile: the shard that takes the turn finds nobody, and passes it on.
    fn give_up_place(&mut self) {
        if let Stand::Waiting(ticket) = self.stand {
            self.service.admission.gate.leave(ticket);
            self.stand = Stand::Outside;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let admission = self.service.admission.clone();
        if let Some(tag) = self.seat {
            admission.tenants.leave(tag);
        }
        match self.stand {
            Stand::Outside => {}
            // Whoever is refused gave its place up.
            Stand::Waiting(_) => {
                admission.count(Decided::Left);
                self.give_up_place();
            }
            Stand::In => {
                admission.gate.put_back();
                self.callers.call(&self.service);
            }
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pass({})", self.service.number)
    }
}

impl<R: Ring> Flow<R> {
    /// Lets a routed request through its service's gate, or makes it wait, or refuses it.
    pub(crate) fn enter_gate(&mut self, client: &mut Client) {
        let Some(exchange) = &mut client.exchange else { return };
        let Some(service) = exchange.route.service.clone() else { return };
        let terms = &service.service.rule.gate;
        // Only what makes an engine compute is held back.
        if terms.mode.value == GateMode::Off || exchange.head.method != Method::Post {
            return self.choose_and_dial(client);
        }
        if service.service.is_closed() {
            return self.turn_away(client, Decided::Maintenance);
        }
        let limit = self.set_limit(&service.service);
        match self.ask_gate(client, &service, limit) {
            Ok(Stand::In) => self.choose_and_dial(client),
            Ok(_) => self.wait_for_turn(client, terms),
            Err(decided) => self.turn_away(client, decided),
        }
    }

    fn set_limit(&self, service: &Service) -> u32 {
        let open = service.open(self.now);
        let queued = || service.waiting_within(self.now);
        service.admission.set_limit(&service.rule.gate, &open, queued, self.now)
    }

    fn ask_gate(
        &mut self,
        client: &mut Client,
        service: &ShardService,
        limit: u32,
    ) -> Result<Stand, Decided> {
        let Some(exchange) = &mut client.exchange else { return Err(Decided::Left) };
        let service = &service.service;
        let (terms, admission) = (&service.rule.gate, &service.admission);
        let enforced = terms.mode.value == GateMode::Enforce;
        let mut pass = Pass {
            service: service.clone(),
            callers: self.desk.callers.clone(),
            seat: None,
            stand: Stand::Outside,
            charged: None,
            since: self.now,
        };
        if terms.fair {
            pass.charged = Some(Charged::nothing(tenant(exchange, client.peer.ip()), exchange));
        }
        if terms.tenant_share.value > 0 {
            let most = tenant_most(limit, terms.tenant_share.value);
            match admission.tenants.enter(tenant(exchange, client.peer.ip()), most) {
                Seat::Taken(tag) => pass.seat = Some(tag),
                Seat::Refused if enforced => return Err(Decided::TenantShare),
                Seat::Refused => admission.count(Decided::TenantShare),
                Seat::Uncounted => {}
            }
        }
        let place =
            Place { shard: self.desk.shard, slot: client.sock.slot, generation: client.sock.generation };
        if admission.gate.enter() {
            admission.count(Decided::Admitted);
            pass.stand = Stand::In;
        } else if !enforced {
            admission.count(Decided::Capacity);
            admission.gate.enter_anyway();
            pass.stand = Stand::In;
        } else {
            let work = pass.charged.map_or(Work::default(), |charged| charged.first());
            let ticket = admission.gate.queue(terms.queue.value, place, work).ok_or(Decided::Capacity)?;
            pass.stand = Stand::Waiting(ticket);
        }
        let stand = pass.stand;
        exchange.pass = Some(pass);
        Ok(stand)
    }

    /// Its turn may have come between asking and queueing: it then finds the call in its own mail.
    fn wait_for_turn(&mut self, client: &mut Client, terms: &GateTerms) {
        client.stage = Stage::Queued;
        self.expect_client(client, terms.wait.value);
        self.desk.waiting += 1;
        self.desk.look_at = self.desk.look_at.min(self.now + LOOK);
        let service = client.exchange.as_ref().and_then(|exchange| exchange.pass.as_ref());
        if let Some(pass) = service {
            pass.callers.call(&pass.service);
        }
    }

    /// It no longer waits, whatever comes of it.
    pub(crate) fn leave_queue(&mut self, client: &mut Client) {
        if client.stage == Stage::Queued {
            client.stage = Stage::Dialing;
            self.desk.waiting -= 1;
        }
    }

    fn turn_away(&mut self, client: &mut Client, decided: Decided) {
        self.leave_queue(client);
        let Some(exchange) = &mut client.exchange else { return };
        if let Some(service) = &exchange.route.service {
            service.service.admission.count(decided);
        }
        exchange.pass.iter_mut().for_each(Pass::give_up_place);
        let by_pairs = exchange.route.service.as_ref().is_some_and(|own| own.service.rule.gate.by_pairs);
        let fault = match decided {
            Decided::QueueTimeout if by_pairs => Fault::PairParkTimeout,
            Decided::Capacity if by_pairs => Fault::PairsOverloaded,
            Decided::TenantShare => Fault::AdmissionTenantShare,
            Decided::NoCapacity => Fault::AdmissionNoCapacity,
            Decided::QueueTimeout => Fault::AdmissionQueueTimeout,
            Decided::Drained => Fault::AdmissionDrained,
            Decided::Maintenance => Fault::GatewayDraining,
            Decided::Admitted | Decided::AdmittedAfterWait | Decided::Capacity | Decided::Left => {
                Fault::AdmissionCapacity
            }
        };
        self.refuse(client, fault);
    }

    /// Its turn did not come in time.
    pub(crate) fn queue_timeout(&mut self, client: &mut Client) {
        self.turn_away(client, Decided::QueueTimeout);
    }

    /// Lets those in whose turn was called, and looks now and then whether more may be let in.
    pub(crate) fn take_turns(&mut self) {
        while let Ok(called) = self.desk.calls.try_recv() {
            self.take_turn(called);
        }
        if self.desk.waiting == 0 {
            self.desk.look_at = Nanos::MAX;
        } else if self.desk.look_at <= self.now {
            self.desk.look_at = self.now + LOOK;
            self.look_at_gates();
        }
    }

    fn take_turn(&mut self, called: Called) {
        let Place { slot, generation, .. } = called.turn.place;
        let Some(mut client) = self.conns.take_client(Sock { slot, generation }) else {
            return self.pass_on(&called);
        };
        let pass = client.exchange.as_mut().and_then(|exchange| exchange.pass.as_mut());
        match pass.filter(|pass| client.stage == Stage::Queued && pass.waits_for(&called)) {
            Some(pass) => {
                pass.stand = Stand::In;
                pass.charged.iter_mut().for_each(Charged::has_begun);
                called.service.admission.count(Decided::AdmittedAfterWait);
                self.leave_queue(&mut client);
                self.choose_and_dial(&mut client);
            }
            None => self.pass_on(&called),
        }
        self.conns.put_client(client);
    }

    /// Nobody takes this turn.
    fn pass_on(&self, called: &Called) {
        called.service.admission.gate.put_back();
        self.desk.callers.call(&called.service);
    }

    fn look_at_gates(&mut self) {
        let waits = |service: &&Rc<ShardService>| service.service.admission.gate.waiting() > 0;
        if self.rules.services().filter(waits).any(|service| service.service.rule.gate.fair) {
            self.charge_running();
        }
        if self.rules.services().filter(waits).any(|service| service.service.is_closed()) {
            self.drain_queues();
        }
        for service in self.rules.services().filter(waits) {
            self.set_limit(&service.service);
            self.desk.callers.call(&service.service);
        }
    }

    /// Refuses those whose rule is gone, or lets nobody in. With a rule that was replaced they go on.
    pub(crate) fn drain_queues(&mut self) {
        if self.desk.waiting == 0 {
            return;
        }
        self.desk.look_at = self.now;
        let queued = |conn: &Conn| matches!(conn, Conn::Client(client) if client.stage == Stage::Queued);
        for sock in self.conns.socks(queued) {
            let Some(mut client) = self.conns.take_client(sock) else { continue };
            let pass = client.exchange.as_ref().and_then(|exchange| exchange.pass.as_ref());
            let number = pass.map(|pass| pass.service.number);
            let serves = |service: &Service| Some(service.number) == number && !service.is_closed();
            if !self.rules.services().any(|service| serves(&service.service)) {
                self.turn_away(&mut client, Decided::Drained);
            }
            self.conns.put_client(client);
        }
    }

    /// When it has to look although nothing happens.
    pub(crate) fn until_look(&self, now: Nanos) -> Option<Nanos> {
        (self.desk.waiting > 0).then(|| self.desk.look_at.saturating_sub(now))
    }
}

/// What a refusal of the gate tells beside its code: when to come back, how long it waited, and, where the rule says so,
/// the numbers of the gate.
pub(crate) fn tell(
    exchange: &Exchange,
    refusal: &Refusal,
    jitter_ms: u64,
    now: Nanos,
    details: &mut Vec<(&'static str, serde_json::Value)>,
    lines: &mut Vec<u8>,
) {
    let waited = exchange.pass.as_ref().map_or(0, |pass| now.saturating_sub(pass.since));
    details.push(("retry_after", refusal.retry_after.into()));
    details.push(("jitter_hint_ms", jitter_ms.into()));
    details.push(("queued_ms", (waited / MILLISECOND).into()));
    let Some(service) = exchange.route.service.as_ref().map(|own| &own.service) else { return };
    if !service.rule.gate.expose.value {
        return;
    }
    let gate = &service.admission.gate;
    for (name, value) in [("Inflight", gate.out()), ("Queued", gate.waiting()), ("Limit", gate.limit())] {
        // A vector takes all that is written to it.
        let _ = write!(lines, "X-Loxilb-Admission-{name}: {value}\r\n");
    }
}

/// Who asks: by the credential that it shows, else by its address.
fn tenant(exchange: &Exchange, address: std::net::IpAddr) -> u64 {
    let named = |name: &str| {
        let mut lines = exchange.headers.iter();
        let line = lines.find(|h| h.name.of(&exchange.request).eq_ignore_ascii_case(name.as_bytes()))?;
        Some(line.value.of(&exchange.request)).filter(|value| !value.is_empty())
    };
    match named("x-api-key").or_else(|| named("authorization")) {
        Some(credential) => Tenants::hash(credential),
        None => match address {
            std::net::IpAddr::V4(v4) => Tenants::hash(&v4.octets()),
            std::net::IpAddr::V6(v6) => Tenants::hash(&v6.octets()),
        },
    }
}
