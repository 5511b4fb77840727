//! The rules in force, as shards read them: an immutable table, replaced as a whole. Owns which pool serves
//! a request; must never be changed once published.

use crate::Nanos;
use crate::decide::ring::HashRing;
use crate::fleet::EndpointView;
use crate::rule::{PathMatch, Rule, Selector};
use crate::shared::EndpointState;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// All rules in force.
#[derive(Debug, Default)]
pub struct Table {
    /// Grows with each change.
    pub generation: u64,
    /// One entry for each VIP:port, in the order of their first rule.
    pub vips: Vec<Vip>,
}

/// The rules of one VIP:port.
#[derive(Debug)]
pub struct Vip {
    /// The address.
    pub address: SocketAddr,
    /// Its rules, most specific first (see [`Vip::route`]).
    pub services: Vec<Arc<Service>>,
    /// Whether any rule looks at the model, so that bodies must be peeked at for routing.
    pub by_model: bool,
}

/// A rule with the live state of its endpoints.
#[derive(Debug)]
pub struct Service {
    /// Its number: never reused while the process lives, kept when a rule is replaced.
    pub number: u32,
    /// What the operator asked for.
    pub rule: Rule,
    /// State by endpoint index.
    pub endpoints: Vec<Arc<EndpointState>>,
    /// The hash ring, if the selector uses one.
    pub hash_ring: Option<HashRing>,
}

/// Why no pool serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The VIP has no rule any more.
    NoRules,
    /// No rule fits host and path.
    NoRoute,
    /// Rules fit host and path, none serves the model.
    ModelUnavailable,
}

impl Table {
    /// The table of `rules`, numbering and endpoint states carried over from `before`.
    pub fn next(before: &Table, rules: Vec<Rule>, next_number: &mut u32) -> Table {
        let mut numbers = HashMap::new();
        let mut states: HashMap<SocketAddr, Arc<EndpointState>> = HashMap::new();
        for service in before.vips.iter().flat_map(|v| &v.services) {
            numbers.insert(service.rule.key.clone(), service.number);
            for e in &service.endpoints {
                states.insert(e.address(), e.clone());
            }
        }
        let mut table = Table { generation: before.generation + 1, vips: Vec::new() };
        for rule in rules {
            let number = numbers.get(&rule.key).copied().unwrap_or_else(|| {
                *next_number += 1;
                *next_number
            });
            let service = Service::new(number, rule, |at| {
                states.entry(at).or_insert_with(|| Arc::new(EndpointState::new(at))).clone()
            });
            table.add(Arc::new(service));
        }
        for vip in &mut table.vips {
            vip.order();
        }
        table
    }

    /// The rules of an address.
    pub fn vip(&self, address: SocketAddr) -> Option<&Vip> {
        self.vips.iter().find(|v| v.address == address)
    }

    fn add(&mut self, service: Arc<Service>) {
        let address = service.rule.key.vip;
        match self.vips.iter_mut().find(|v| v.address == address) {
            Some(vip) => vip.services.push(service),
            None => self.vips.push(Vip { address, services: vec![service], by_model: false }),
        }
    }
}

impl Vip {
    /// Longest path first, then rules that name a host, then rules that name a model: the first rule that
    /// fits is the one meant.
    fn order(&mut self) {
        self.services.sort_by(|a, b| {
            let rank = |s: &Service| {
                let k = &s.rule.key;
                (
                    k.host.is_empty(),
                    usize::MAX - k.path.len(),
                    k.path_match != PathMatch::Exact,
                    k.model.is_empty(),
                )
            };
            rank(a).cmp(&rank(b)).then_with(|| a.rule.key.cmp(&b.rule.key))
        });
        self.by_model = self.services.iter().any(|s| !s.rule.key.model.is_empty());
    }

    /// The pool that serves a request. `host` is compared without port and case, `path` without query,
    /// `model` to the letter. A host's own rules come before those for any host; with a model, pools of
    /// that model come before pools of every model, whatever the path.
    pub fn route(&self, host: &[u8], path: &[u8], model: &[u8]) -> Result<&Arc<Service>, NoRoute> {
        let host = without_port(host);
        let fits = |s: &&Arc<Service>| s.rule.enabled && s.rule.key.fits(host, path);
        if !model.is_empty() {
            let named = |s: &&Arc<Service>| s.rule.key.model.as_bytes() == model;
            if let Some(service) = self.services.iter().filter(fits).find(named) {
                return Ok(service);
            }
        }
        let wildcard = |s: &&Arc<Service>| s.rule.key.model.is_empty();
        if let Some(service) = self.services.iter().filter(fits).find(wildcard) {
            return Ok(service);
        }
        Err(match (self.services.is_empty(), self.services.iter().any(|s| fits(&s)), model.is_empty()) {
            (true, ..) => NoRoute::NoRules,
            (_, true, false) => NoRoute::ModelUnavailable,
            _ => NoRoute::NoRoute,
        })
    }

    /// The models that its pools name, for `GET /v1/models`.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.services
            .iter()
            .filter(|s| s.rule.enabled)
            .map(|s| s.rule.key.model.as_str())
            .filter(|m| !m.is_empty())
    }
}

impl crate::rule::RuleKey {
    fn fits(&self, host: &[u8], path: &[u8]) -> bool {
        (self.host.is_empty() || self.host.as_bytes().eq_ignore_ascii_case(host)) && self.fits_path(path)
    }

    fn fits_path(&self, path: &[u8]) -> bool {
        let own = self.path.as_bytes();
        match self.path_match {
            PathMatch::Disabled => true,
            PathMatch::Exact => path == own,
            PathMatch::Prefix => {
                let own = own.strip_suffix(b"/").unwrap_or(own);
                path.starts_with(own) && (path.len() == own.len() || path[own.len()] == b'/')
            }
        }
    }
}

impl Service {
    fn new(number: u32, rule: Rule, mut state: impl FnMut(SocketAddr) -> Arc<EndpointState>) -> Service {
        let endpoints = rule.endpoints.iter().map(|e| state(e.address)).collect();
        let hash_ring = match &rule.selector {
            Selector::Chwbl(chwbl) => Some(HashRing::new(&rule.endpoints, chwbl)),
            _ => None,
        };
        Service { number, rule, endpoints, hash_ring }
    }

    /// What a decision sees of its endpoints at `now`. When probes alone would leave none, they are not
    /// believed: a probe may be wrong, refusing everybody is certainly so.
    pub fn view(&self, now: Nanos, out: &mut Vec<EndpointView>) {
        out.clear();
        for (spec, state) in self.rule.endpoints.iter().zip(&self.endpoints) {
            out.push(EndpointView {
                available: spec.weight > 0 && state.available(now),
                load: state.reserved(),
                weight: spec.weight,
                backup: spec.backup,
            });
        }
        if out.iter().all(|e| !e.available) {
            for (view, state) in out.iter_mut().zip(&self.endpoints) {
                view.available = view.weight > 0 && state.probed_down();
            }
        }
    }
}

/// A host without its port: `[::1]:80` is `[::1]`, `a:80` is `a`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|b| *b == b':') {
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}
