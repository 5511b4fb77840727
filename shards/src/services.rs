//! The rules in force as one shard holds them: the published table, with this shard's listeners, pools and
//! turns beside it. Owns the swap from one table to the next; must never change a table.

use crate::counts::Counts;
use crate::pool::{PoolId, Pools};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use warmpath_core::control::{AnswerCount, ExactReport, PairReport, SessionCount};
use warmpath_core::decide::Turn;
use warmpath_core::engine::Version;
use warmpath_core::rule::KvExact;
use warmpath_core::table::{NoRoute, Service, Table};
use warmpath_prompt::Scheme;
use warmpath_ring::Listener;

/// A service, with what this shard keeps for it. A request holds it to its end.
pub struct ShardService {
    /// The rule and its endpoints.
    pub service: Arc<Service>,
    /// The pool of each endpoint.
    pub pools: Vec<PoolId>,
    /// Whose turn it is.
    pub turn: RefCell<Turn>,
    /// Whose turn it is among decode endpoints, where there are such.
    pub decode_turn: RefCell<Turn>,
    /// Whose turn it is among encoders, where there are such.
    pub encode_turn: RefCell<Turn>,
    /// What is counted for it.
    pub counts: RefCell<Counts>,
    /// How its prompts are named, where it routes by blocks, as far as the rule says.
    agreed: Option<Scheme>,
    /// The same by the version that the engines told last.
    told: Cell<Option<(Version, Scheme)>>,
}

/// One VIP of this shard. Slots are never removed: clients name them.
pub struct VipSlot {
    /// The address.
    pub address: SocketAddr,
    /// This shard's listener, while the VIP has rules.
    pub listener: Option<Listener>,
    /// Those being closed: what their queues still held is served too.
    pub closing: Vec<Listener>,
    /// Its services; empty when all rules are gone.
    pub services: Vec<Rc<ShardService>>,
    /// Whether a rule asks what a body says. Where none does, none is looked into: the look costs a
    /// blind relay more than all else it does for a long prompt.
    pub inspects: bool,
    /// Whether a rule has requests served by two endpoints: then bodies are held whole, whatever their length.
    pub holds: bool,
}

/// The rules as this shard holds them.
#[derive(Default)]
pub struct ShardRules {
    /// The table published last.
    pub table: Arc<Table>,
    /// All VIPs ever served.
    pub vips: Vec<VipSlot>,
    /// Where taking turns begins, so that shards begin with different endpoints.
    pub first_turn: u32,
}

impl ShardRules {
    /// Takes over `table`; returns the listeners to close.
    pub fn install(&mut self, table: Arc<Table>, pools: &mut Pools) -> Vec<Listener> {
        let mut closing = Vec::new();
        for slot in &mut self.vips {
            if table.vip(slot.address).is_none() {
                slot.services.clear();
                closing.extend(slot.close());
            }
        }
        for vip in &table.vips {
            let slot = self.slot(vip.address);
            let before = std::mem::take(&mut self.vips[slot].services);
            let first = self.first_turn;
            let after = vip.services.iter().map(|s| Rc::new(ShardService::new(s, &before, pools, first)));
            self.vips[slot].services = after.collect();
            let by_prompt = |s: &Arc<Service>| {
                let by_user = s.rule.session.as_ref().is_some_and(|terms| terms.source.reads_body());
                s.exact.is_some() || s.rule.selector.prefix_terms().is_some() || by_user
            };
            self.vips[slot].holds = vip.services.iter().any(|s| s.roles.is_some());
            self.vips[slot].inspects =
                vip.by_model || self.vips[slot].holds || vip.services.iter().any(by_prompt);
        }
        self.table = table;
        closing
    }

    /// The slot of an address, made when new.
    pub fn slot(&mut self, address: SocketAddr) -> usize {
        self.vips.iter().position(|v| v.address == address).unwrap_or_else(|| {
            let services = Vec::new();
            self.vips.push(VipSlot {
                address,
                listener: None,
                closing: Vec::new(),
                services,
                inspects: false,
                holds: false,
            });
            self.vips.len() - 1
        })
    }

    /// The VIP that a listener serves.
    pub fn slot_of(&self, listener: Listener) -> Option<usize> {
        self.vips.iter().position(|v| v.listener == Some(listener) || v.closing.contains(&listener))
    }

    /// All listeners, for the ring to close.
    pub fn close_listeners(&mut self) -> Vec<Listener> {
        self.vips.iter_mut().filter_map(VipSlot::close).collect()
    }

    /// The ring closed `listener`: its number may come again for another.
    pub fn listener_closed(&mut self, listener: Listener) {
        self.vips.iter_mut().for_each(|v| v.closing.retain(|l| *l != listener));
    }

    /// Whether no listener is left, and none is being closed.
    pub fn is_deaf(&self) -> bool {
        self.vips.iter().all(|v| v.listener.is_none() && v.closing.is_empty())
    }

    /// The service for a request that came to the VIP in `slot`.
    pub fn route(
        &self,
        slot: usize,
        host: &[u8],
        path: &[u8],
        model: &[u8],
    ) -> Result<Rc<ShardService>, NoRoute> {
        let slot = &self.vips[slot];
        let vip = self.table.vip(slot.address).ok_or(NoRoute::NoRules)?;
        let service = vip.route(host, path, model)?;
        let own = slot.services.iter().find(|s| Arc::ptr_eq(&s.service, service));
        own.cloned().ok_or(NoRoute::NoRules)
    }

    /// The services of all VIPs.
    pub fn services(&self) -> impl Iterator<Item = &Rc<ShardService>> {
        self.vips.iter().flat_map(|v| &v.services)
    }

    /// How exact routing went, by service that asks for it.
    pub fn exact(&self) -> Vec<ExactReport> {
        let services = self.vips.iter().flat_map(|v| &v.services).filter(|s| s.service.exact.is_some());
        services.map(|s| s.counts.borrow().exact_report()).collect()
    }

    /// How pairs went, by service that has them.
    pub fn pairs(&self) -> Vec<PairReport> {
        let services = self.vips.iter().flat_map(|v| &v.services).filter(|s| s.service.roles.is_some());
        services.map(|s| s.counts.borrow().pairs.clone()).collect()
    }

    /// What decided, by service that keeps sessions.
    pub fn sessions(&self) -> Vec<SessionCount> {
        let services = self.vips.iter().flat_map(|v| &v.services).filter(|s| s.service.sessions.is_some());
        services.map(|s| s.counts.borrow().sessions()).collect()
    }

    /// Answers counted so far.
    pub fn answers(&self) -> Vec<AnswerCount> {
        self.vips.iter().flat_map(|v| &v.services).flat_map(|s| s.counts.borrow().answers()).collect()
    }
}

impl VipSlot {
    fn close(&mut self) -> Option<Listener> {
        let listener = self.listener.take();
        self.closing.extend(listener);
        listener
    }
}

impl ShardService {
    fn new(
        service: &Arc<Service>,
        before: &[Rc<ShardService>],
        pools: &mut Pools,
        first: u32,
    ) -> ShardService {
        let begun = || Turn { next: first % service.endpoints.len().max(1) as u32, ..Turn::default() };
        let old = before.iter().find(|s| s.service.number == service.number);
        let counted = old.map(|s| (&*s.service, s.counts.borrow()));
        let counts = Counts::new(service, counted.as_ref().map(|(service, counts)| (*service, &**counts)));
        ShardService {
            service: service.clone(),
            pools: service.endpoints.iter().map(|e| pools.of(e)).collect(),
            turn: RefCell::new(old.map_or_else(begun, |s| s.turn.borrow().clone())),
            decode_turn: RefCell::new(old.map_or_else(begun, |s| s.decode_turn.borrow().clone())),
            encode_turn: RefCell::new(old.map_or_else(begun, |s| s.encode_turn.borrow().clone())),
            counts: RefCell::new(counts),
            agreed: service.rule.exact.as_ref().map(agreed),
            told: Cell::new(None),
        }
    }
}

impl ShardService {
    /// How its prompts are named, where it routes by blocks. What depends on the engines' version is as they tell
    /// it, unless the rule says it.
    pub fn scheme(&self) -> Option<Scheme> {
        let agreed = self.agreed?;
        let service = &*self.service;
        let is_open = service.rule.exact.as_ref().is_some_and(|exact| exact.version.is_none());
        let told = service.exact.as_ref().filter(|_| is_open).and_then(|exact| exact.told_version());
        let Some(version) = told else { return Some(agreed) };
        match self.told.get() {
            Some((known, scheme)) if known == version => Some(scheme),
            _ => {
                let contract = agreed.contract().told(version);
                let scheme = Scheme::new(contract).with_tools(contract.engine().tool_form(Some(version)));
                self.told.set(Some((version, scheme)));
                Some(scheme)
            }
        }
    }
}

fn agreed(exact: &KvExact) -> Scheme {
    Scheme::new(exact.contract).with_tools(exact.contract.engine().tool_form(exact.version))
}
