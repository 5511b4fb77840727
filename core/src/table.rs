//! The rules in force, as shards read them: an immutable table, replaced as a whole. Owns which pool serves
//! a request; must never be changed once published.

mod moment;

use crate::Nanos;
use crate::decide::ladder::Known;
use crate::decide::ring::HashRing;
use crate::decide::stays;
use crate::engine::Version;
use crate::fleet::{EndpointId, EndpointView, Excluded};
use crate::prefix_path::{PrefixPath, length_of};
use crate::rule::{PathMatch, Role, Roles, Rule, RuleKey, Selector};
use crate::shared::{
    Admission, EndpointState, ExactState, Fence, Pin, PrefixTrie, SESSION_BYTES, Sessions, Source,
    SourceSpec, TRIE_BYTES, Trial, TrustState,
};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
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
    /// Whether any rule that is switched on looks at the model, so that bodies must be peeked at for routing.
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
    /// Which endpoints they are, by index.
    pub ids: Vec<EndpointId>,
    /// The sessions of all rules, if this one keeps any.
    pub sessions: Option<Arc<Sessions>>,
    /// The prefix trie of all rules, if this one goes by it.
    pub trie: Option<Arc<PrefixTrie>>,
    /// The hash ring, if the selector uses one.
    pub hash_ring: Option<HashRing>,
    /// What exact routing needs, if the rule asks for it.
    pub exact: Option<ExactService>,
    /// The live half of its capacity gate; kept when the rule is replaced.
    pub admission: Arc<Admission>,
    /// Its endpoints by what they do of a request, where not each does all.
    pub roles: Option<Roles>,
}

/// What a service with exact routing has beside its rule.
#[derive(Debug)]
pub struct ExactService {
    /// Where the blocks of each endpoint are known from, by endpoint index.
    pub sources: Vec<Arc<Source>>,
    /// What it remembers from request to request; kept when the rule is replaced.
    pub state: Arc<ExactState>,
    /// How far each endpoint is trusted, by its index; kept with its source.
    pub trust: Vec<Arc<TrustState>>,
    /// What is proven of each endpoint, where the rule has a model profile.
    pub attested: Option<Attested>,
}

impl ExactService {
    /// The version that all endpoints have which told theirs; `None` where they differ, or none did yet.
    pub fn told_version(&self) -> Option<Version> {
        let mut told = self.sources.iter().filter_map(|source| source.version());
        let first = told.next()?;
        told.all(|other| other == first).then_some(first)
    }

    /// Why each endpoint is left out of exact routing, by endpoint index: for what its source says of itself, or
    /// since its version names blocks otherwise than the first of this rule's endpoints that told one. What other
    /// rules make of the same source is theirs.
    pub fn fences(&self) -> impl Iterator<Item = Option<Fence>> + '_ {
        // A rule that fixes a version is compared with that by the event core; keys of our own fit all versions.
        let compared =
            |source: &Source| source.spec().version.is_none() && !source.spec().contract.is_by_tokens();
        let first = self.sources.iter().filter(|source| compared(source)).find_map(|source| source.family());
        self.sources.iter().map(move |source| {
            let differs = compared(source) && source.family().is_some_and(|own| Some(own) != first);
            source.fence().or(differs.then_some(Fence::Version))
        })
    }
}

/// How a request was charged to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// As all are.
    Plainly,
    /// As the trial of its breaker.
    OnTrial(Trial),
}

/// Why no pool serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The VIP has no rule any more, or only rules that are switched off.
    NoRules,
    /// No rule fits host and path, or the request names no model and no pool serves every model.
    NoRoute,
    /// Rules fit host and path, none serves the model.
    ModelUnavailable,
}

impl Table {
    /// The table of `rules`, whose keys differ. A rule that did not change keeps its very service; one that
    /// did keeps its number, and endpoints keep their state by address, whichever rules name them. Endpoints
    /// stand in the operator's order: what must outlive a change is kept by address, never by index.
    /// `next_number` counts services and sources alike; `now` begins the warm-up of new services.
    pub fn next(before: &Table, rules: Vec<Rule>, next_number: &mut u32, now: Nanos) -> Table {
        let mut known: HashMap<&RuleKey, &Arc<Service>> = HashMap::new();
        let mut kept = Kept {
            endpoints: HashMap::new(),
            sources: Vec::new(),
            sessions: None,
            trie: None,
            next_number,
            now,
        };
        for service in before.services() {
            known.insert(&service.rule.key, service);
            kept.keep(service);
        }
        let mut table = Table { generation: before.generation + 1, vips: Vec::new() };
        for rule in rules {
            let service = match known.get(&rule.key) {
                Some(same) if same.rule == rule => (*same).clone(),
                Some(older) => Arc::new(Service::new(older.number, rule, Some(older), &mut kept)),
                None => Arc::new(Service::new(kept.fresh_number(), rule, None, &mut kept)),
            };
            table.add(service);
        }
        for vip in &mut table.vips {
            vip.order();
        }
        table
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.vips.iter().flat_map(|v| &v.services)
    }

    /// The sources of all services, each once, in the order of their numbers.
    pub fn sources(&self) -> Vec<Arc<Source>> {
        let mut sources: Vec<_> = self.services().flat_map(|service| service.followed()).cloned().collect();
        sources.sort_by_key(|source| source.number());
        sources.dedup_by_key(|source| source.number());
        sources
    }

    /// The sessions of all rules, if one keeps any.
    pub fn sessions(&self) -> Option<&Sessions> {
        self.services().find_map(|service| service.sessions.as_deref())
    }

    /// The prefix trie of all rules, if one goes by it.
    pub fn trie(&self) -> Option<&PrefixTrie> {
        self.services().find_map(|service| service.trie.as_deref())
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
    /// Most specific first, so that the first rule that fits is the one meant: rules of a host before those
    /// of any, then rules of a model before those of every model, then the longest path, exact before prefix.
    fn order(&mut self) {
        self.services.sort_by(|a, b| a.rule.key.rank().cmp(&b.rule.key.rank()));
        let by_model = self.enabled().any(|s| !s.rule.key.model.is_empty());
        self.by_model = by_model;
    }

    /// The pool that serves a request: for the request's own host, then for any host, the longest path among
    /// the pools of its model, then among the pools of every model. `host` is compared without port, final
    /// dot and case, `path` (without query) by octets, `model` to the letter; an empty model fits only pools
    /// of every model.
    pub fn route(&self, host: &[u8], path: &[u8], model: &[u8]) -> Result<&Arc<Service>, NoRoute> {
        let host = HostText::new(host);
        let mut fitting = self.enabled().filter(|s| s.rule.key.fits(&host, path)).peekable();
        let no_rule_fits = fitting.peek().is_none();
        let serves = |own: &str| own.is_empty() || own.as_bytes() == model;
        match fitting.find(|s| serves(&s.rule.key.model)) {
            Some(service) => Ok(service),
            None if self.enabled().next().is_none() => Err(NoRoute::NoRules),
            None if no_rule_fits || model.is_empty() => Err(NoRoute::NoRoute),
            None => Err(NoRoute::ModelUnavailable),
        }
    }

    fn enabled(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.iter().filter(|s| s.rule.enabled)
    }

    /// The models that its pools name, for `GET /v1/models`; a model with several pools comes several times.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.enabled().map(|s| s.rule.key.model.as_str()).filter(|m| !m.is_empty())
    }
}

impl RuleKey {
    /// Sorts before what is less specific; total, so that the order of rules never matters.
    fn rank(&self) -> impl Ord + '_ {
        (
            self.host.is_empty(),
            self.model.is_empty(),
            Reverse(self.path.len()),
            self.path_match != PathMatch::Exact,
            self,
        )
    }

    fn fits(&self, host: &HostText, path: &[u8]) -> bool {
        (self.host.is_empty() || host.is(&self.host)) && self.fits_path(path)
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

/// State that a new table takes over from the one before.
struct Kept<'a> {
    endpoints: HashMap<SocketAddr, Arc<EndpointState>>,
    sources: Vec<Arc<Source>>,
    sessions: Option<Arc<Sessions>>,
    trie: Option<Arc<PrefixTrie>>,
    next_number: &'a mut u32,
    now: Nanos,
}

impl Kept<'_> {
    fn keep(&mut self, service: &Service) {
        self.endpoints.extend(service.endpoints.iter().map(|e| (e.address(), e.clone())));
        self.sessions = self.sessions.take().or_else(|| service.sessions.clone());
        self.trie = self.trie.take().or_else(|| service.trie.clone());
        self.sources.extend(service.exact.iter().flat_map(|exact| exact.sources.iter().cloned()));
    }

    fn fresh_number(&mut self) -> u32 {
        *self.next_number += 1;
        *self.next_number
    }

    fn endpoint(&mut self, at: SocketAddr) -> Arc<EndpointState> {
        let made = || {
            let state = EndpointState::new(at);
            state.came_up(self.now);
            Arc::new(state)
        };
        self.endpoints.entry(at).or_insert_with(made).clone()
    }

    fn sessions(&mut self) -> Arc<Sessions> {
        self.sessions.get_or_insert_with(|| Arc::new(Sessions::new(SESSION_BYTES))).clone()
    }

    fn trie(&mut self) -> Arc<PrefixTrie> {
        self.trie.get_or_insert_with(|| Arc::new(PrefixTrie::new(TRIE_BYTES))).clone()
    }

    fn source(&mut self, spec: SourceSpec) -> Arc<Source> {
        if let Some(same) = self.sources.iter().find(|source| *source.spec() == spec) {
            return same.clone();
        }
        let source = Arc::new(Source::new(self.fresh_number(), spec));
        self.sources.push(source.clone());
        source
    }
}

impl Service {
    fn new(number: u32, rule: Rule, before: Option<&Arc<Service>>, kept: &mut Kept<'_>) -> Service {
        let older = before.and_then(|before| before.exact.as_ref());
        let admission = before.map(|before| before.admission.clone()).unwrap_or_default();
        let endpoints = rule.endpoints.iter().map(|e| kept.endpoint(e.address)).collect();
        let hash_ring = match &rule.selector {
            Selector::Chwbl(chwbl) => Some(HashRing::new(&rule.endpoints, chwbl)),
            Selector::WeightedHash(chwbl) => Some(HashRing::by_weight(&rule.endpoints, chwbl)),
            _ => None,
        };
        let ids = rule.endpoints.iter().map(|e| EndpointId::of(e.address)).collect();
        let sessions = rule.keeps_sessions().map(|_| kept.sessions());
        let trie = rule.cache_aware.map(|_| kept.trie());
        let exact = rule.exact.is_some().then(|| {
            let sources: Vec<_> = source_specs(&rule).map(|spec| kept.source(spec)).collect();
            let state = older.map(|exact| exact.state.clone());
            ExactService {
                trust: sources.iter().map(|source| trust(source, older)).collect(),
                attested: Attested::of(&rule, &sources, older),
                state: state.unwrap_or_else(|| Arc::new(ExactState::new(kept.now))),
                sources,
            }
        });
        let roles = rule.disaggregation.map(|_| Roles::new(rule.endpoints.iter().map(|e| e.role)));
        Service { number, rule, endpoints, ids, sessions, trie, hash_ring, exact, admission, roles }
    }

    /// Endpoints whose blocks decide nothing: of pairs all but those of prefill.
    pub fn not_by_blocks(&self) -> Excluded {
        self.roles.map(|roles| roles.all_but(Role::Prefill)).unwrap_or_default()
    }

    /// The sources whose blocks decide: of pairs those of prefill alone, since what decode holds came from there.
    pub fn followed(&self) -> impl Iterator<Item = &Arc<Source>> {
        let sources = self.exact.iter().flat_map(|exact| &exact.sources);
        let decides = |role: Role| self.roles.is_none() || role == Role::Prefill;
        sources
            .zip(&self.rule.endpoints)
            .filter(move |(_, spec)| decides(spec.role))
            .map(|(source, _)| source)
    }

    /// The index of an endpoint, if the rule names it.
    pub fn index_of(&self, id: EndpointId) -> Option<usize> {
        self.ids.iter().position(|own| *own == id)
    }

    /// The endpoint that serves the session `key`, if it may serve this request: health goes first, and what it keeps out
    /// the session is forgotten on. `None` too where the rule keeps no sessions.
    pub fn pinned(
        &self,
        key: Option<u64>,
        fleet: &[EndpointView],
        excluded: Excluded,
        now: Nanos,
    ) -> Option<usize> {
        let (sessions, ttl, key) = (self.sessions.as_ref()?, self.rule.keeps_sessions()?, key?);
        let pin = sessions.find(key, ttl, now)?;
        let pinned = self.index_of(pin.decode).filter(|index| stays(*index, fleet, excluded));
        if pinned.is_none() {
            sessions.forget(key, pin);
        }
        pinned
    }

    /// The pair that serves the session `key`: its prefill endpoint, if that may serve this request, else the session is
    /// forgotten; and its decode endpoint, if that may.
    pub fn pinned_pair(
        &self,
        key: Option<u64>,
        fleet: &[EndpointView],
        excluded: Excluded,
        now: Nanos,
    ) -> Option<(usize, Option<usize>)> {
        let (sessions, ttl, key) = (self.sessions.as_ref()?, self.rule.keeps_sessions()?, key?);
        let (pin, roles) = (sessions.find(key, ttl, now)?, self.roles.as_ref()?);
        let healthy = |id, role| {
            self.index_of(id).filter(|index| stays(*index, fleet, excluded.with(roles.all_but(role))))
        };
        match pin.prefill.and_then(|id| healthy(id, Role::Prefill)) {
            Some(prefill) => Some((prefill, healthy(pin.decode, Role::Decode))),
            None => {
                sessions.forget(key, pin);
                None
            }
        }
    }

    /// From now on the session `key` is served by this pair, where the rule keeps sessions.
    pub fn pin_pair(&self, key: Option<u64>, prefill: usize, decode: usize, now: Nanos) {
        if let (Some(sessions), Some(ttl), Some(key)) = (&self.sessions, self.rule.keeps_sessions(), key)
            && let (Some(prefill), Some(decode)) = (self.ids.get(prefill), self.ids.get(decode))
        {
            sessions.pin(key, Pin { prefill: Some(*prefill), decode: *decode }, ttl, now);
        }
    }

    /// The longest beginning of the prompt that an endpoint which is not excluded was sent before, if the rule goes by
    /// that.
    pub fn known(
        &self,
        path: &PrefixPath,
        fleet: &[EndpointView],
        excluded: Excluded,
        now: Nanos,
    ) -> Option<Known> {
        let index = |id| (0..self.ids.len()).find(|index| self.cache_id(*index) == Some(id));
        let may = |id| index(id).is_some_and(|index| stays(index, fleet, excluded));
        let longest = self.trie.as_ref()?.longest(path, may, now)?;
        Some(Known { endpoint: index(longest.endpoint)?, bytes: length_of(longest.depth), of: path.length() })
    }

    /// The prompt goes to this endpoint, if the rule goes by such.
    pub fn sent(&self, path: &PrefixPath, endpoint: usize, now: Nanos) {
        if let Some((trie, id)) = self.trie.as_ref().zip(self.cache_id(endpoint)) {
            trie.sent(path, id, now);
        }
    }

    /// What an endpoint's cache is known by: once its breaker opened it is another one.
    fn cache_id(&self, endpoint: usize) -> Option<EndpointId> {
        let (openings, _) = self.endpoints.get(endpoint)?.breaker().flips();
        Some(self.ids.get(endpoint)?.after(openings))
    }

    /// From now on the session `key` is served by this endpoint, where the rule keeps sessions.
    pub fn pin(&self, key: Option<u64>, endpoint: usize, now: Nanos) {
        if let (Some(sessions), Some(ttl), Some(key)) = (&self.sessions, self.rule.keeps_sessions(), key)
            && let Some(id) = self.ids.get(endpoint)
        {
            sessions.pin(key, Pin::on(*id), ttl, now);
        }
    }

    /// Whether one of its endpoints may get a request at `now`, as far as health goes.
    pub fn is_healthy(&self, endpoint: &EndpointState, now: Nanos) -> bool {
        !endpoint.probed_down() && self.admits(endpoint, now)
    }

    /// The same, as far as requests tell: by the breaker where the rule has one, else by failed connections.
    fn admits(&self, endpoint: &EndpointState, now: Nanos) -> bool {
        match &self.rule.breaker {
            Some(_) => endpoint.breaker().now().admits(now),
            None => !endpoint.ejected(now),
        }
    }

    /// Charges a request to an endpoint, unless it has `bound` already, or as many as the gate allows it. Where its
    /// breaker is not closed, the request is the trial: `None` if another one is. Each charge is to be settled, each
    /// trial to be ended.
    pub fn reserve(&self, endpoint: usize, bound: u32, now: Nanos) -> Option<Reserved> {
        let state = self.endpoints.get(endpoint)?;
        if !state.reserve(bound.min(self.endpoint_most(endpoint))) {
            return None;
        }
        if self.rule.breaker.is_none() || state.breaker().now().is_closed() {
            return Some(Reserved::Plainly);
        }
        match state.breaker().take_trial(now) {
            Some(trial) => Some(Reserved::OnTrial(trial)),
            // It may have closed since.
            None if state.breaker().now().is_closed() => Some(Reserved::Plainly),
            None => {
                state.settle();
                None
            }
        }
    }
}

/// What each endpoint's stream of events has to be, by endpoint index.
fn source_specs(rule: &Rule) -> impl Iterator<Item = SourceSpec> + '_ {
    rule.exact.iter().flat_map(|exact| {
        rule.endpoints.iter().map(|endpoint| SourceSpec {
            endpoint: endpoint.address,
            contract: exact.contract,
            version: exact.version,
            ports: exact.ports,
            ranks: exact.ranks,
            model: rule.key.model.clone(),
        })
    })
}

/// The host of a request, without port and final dot.
struct HostText<'a> {
    text: &'a [u8],
}

impl<'a> HostText<'a> {
    /// `[::1]:80` is `[::1]`, `a.example.:80` is `a.example`.
    fn new(host: &'a [u8]) -> HostText<'a> {
        let text = match host.iter().rposition(|b| *b == b':') {
            Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
            _ => host,
        };
        HostText { text: text.strip_suffix(b".").unwrap_or(text) }
    }

    /// Whether it is the host of a rule. IPv6 addresses have many spellings and are compared as addresses.
    fn is(&self, own: &str) -> bool {
        self.text.eq_ignore_ascii_case(own.as_bytes())
            || ipv6(own.as_bytes()).is_some_and(|own| ipv6(self.text) == Some(own))
    }
}

fn ipv6(bracketed: &[u8]) -> Option<Ipv6Addr> {
    let text = bracketed.strip_prefix(b"[")?.strip_suffix(b"]")?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

mod attested;
#[cfg(test)]
mod tests;

pub use attested::Attested;
use attested::trust;
