//! Where a whole request goes: its facts, its pool, its endpoint, its charge. Owns asking in that order;
//! must never compare endpoints (the decision does).

use crate::affinity;
use crate::conn::{Client, Stage};
use crate::exchange::{Exchange, RequestFacts, Upload, Word};
use crate::flow::Flow;
use crate::services::ShardService;
use crate::session;
use std::net::SocketAddr;
use warmpath_core::control::RequestStage;
use warmpath_core::decide::{Facts, Reason, decide};
use warmpath_core::fault::Fault;
use warmpath_core::fleet::Excluded;
use warmpath_core::prefix_path;
use warmpath_core::rule::Selector;
use warmpath_core::session::client_hash;
use warmpath_core::table::{NoRoute, Service};
use warmpath_parser::http1::{Field, Framing, Method};
use warmpath_parser::json::{self, JsonLimits, Kind, Member, Members};
use warmpath_ring::Ring;

/// What serves a request.
enum Serves {
    /// A pool, now in the exchange.
    Pool,
    /// The gateway, by the list of models of its pools.
    ModelList,
}

impl<R: Ring> Flow<R> {
    /// Routes the request of `client` and sends it on its way, or refuses it.
    pub(crate) fn route(&mut self, client: &mut Client) {
        client.stage = Stage::Dialing;
        let Some(mut exchange) = client.exchange.take() else { return };
        let found = self.find_pool(client.vip, client.peer, &mut exchange);
        client.exchange = Some(exchange);
        match found {
            Ok(Serves::Pool) => self.enter_gate(client),
            Ok(Serves::ModelList) => self.answer_models(client),
            Err(fault) => self.refuse(client, fault),
        }
    }

    fn find_pool(&mut self, vip: usize, peer: SocketAddr, exchange: &mut Exchange) -> Result<Serves, Fault> {
        self.learn_facts(vip, exchange);
        let bytes = &exchange.request[..];
        let path = exchange.head.path.of(bytes);
        if exchange.head.method == Method::Get && path == b"/v1/models" && self.lists_models(vip) {
            return Ok(Serves::ModelList);
        }
        let host = exchange.head.authority.of(bytes);
        let service = self.rules.route(vip, host, path, exchange.facts.model.bytes());
        let service = service.map_err(|why| match why {
            NoRoute::NoRules => Fault::NoRules,
            // A model may be named in what is no JSON after all: that is the cause to tell.
            NoRoute::NoRoute if exchange.unreadable => Fault::BadJson,
            NoRoute::NoRoute => Fault::NoRoute,
            NoRoute::ModelUnavailable => Fault::ModelUnavailable,
        })?;
        self.learn_keys(&service.service, vip, peer, exchange);
        exchange.route.service = Some(service.clone());
        if service.service.roles.is_some() {
            self.pair_up(exchange, &service)?;
        }
        Ok(Serves::Pool)
    }

    /// What the rule's selector and its sessions go by.
    fn learn_keys(&mut self, service: &Service, vip: usize, peer: SocketAddr, exchange: &mut Exchange) {
        if let (Some(terms), true) = (service.rule.selector.prefix_terms(), exchange.peeked) {
            let body = &exchange.request[exchange.body.clone()];
            let model = exchange.facts.model.bytes();
            exchange.facts.prefix = affinity::key(body, &self.members, model, terms, &mut self.scratch);
        }
        let body = &exchange.request[exchange.body.clone()];
        if service.trie.is_some()
            && exchange.peeked
            && let Some(text) = prefix_path::text(body, &self.members)
        {
            let model = exchange.facts.model.bytes();
            let space = prefix_path::space(service.number, model, body, &self.members);
            exchange.path.fill(space, text);
        }
        exchange.facts.session = session::key(service, exchange, &self.members, peer, &mut self.scratch);
        if service.rule.selector == Selector::ClientHash {
            exchange.facts.client = client_hash(peer, self.rules.vips[vip].address);
        }
    }

    fn lists_models(&self, vip: usize) -> bool {
        let address = self.rules.vips[vip].address;
        self.rules.table.vip(address).is_some_and(|vip| vip.models().next().is_some())
    }

    /// Reads what routing may know: ids from the head; members from the body where a rule asks for them.
    fn learn_facts(&mut self, vip: usize, exchange: &mut Exchange) {
        let bytes = &exchange.request[..];
        let value =
            |field| exchange.headers.first(field).map(|h| h.value.of(bytes)).filter(|v| !v.is_empty());
        let mut facts = RequestFacts::default();
        if let Some(id) = value(Field::XRequestId) {
            facts.id = Word::of(id);
        } else if self.settings.features.request_id {
            facts.id = Word::of(&self.random.hex32());
        }
        let body = &bytes[exchange.body.clone()];
        let is_json = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
        let asked = self.rules.vips[vip].inspects && self.settings.features.peek;
        let wanted = asked && is_json && !exchange.uninspected;
        let peeked = wanted && json::peek(body, &mut self.members, JsonLimits::default()).is_ok();
        if peeked {
            facts.model = model_of(body, &self.members, &mut self.scratch);
        }
        if let Some(model) = value(Field::XModel) {
            facts.model = Word::of(model);
        }
        exchange.facts = facts;
        exchange.peeked = peeked;
        exchange.unreadable = wanted && !peeked;
    }

    /// Chooses an endpoint not tried yet, charges it, and dials it; first waits for the keys of a long prompt.
    pub(crate) fn choose_and_dial(&mut self, client: &mut Client) {
        if self.waits_for_keys(client) {
            return;
        }
        let Some(exchange) = &mut client.exchange else { return };
        if exchange.pair.is_some() {
            return self.begin_pair(client);
        }
        let begun = self.stages.begin(RequestStage::Decide, || self.ring.now());
        let chosen = self.choose(exchange);
        self.stages.end(RequestStage::Decide, begun, || self.ring.now());
        match chosen {
            Ok(()) => self.dial(client),
            Err(fault) => self.refuse(client, fault),
        }
    }

    /// Decides and reserves in one: when a reservation meets its bound, the next best is asked for. By the
    /// blocks that endpoints hold where the rule asks for that, else, or where nothing is held, by its selector.
    fn choose(&mut self, exchange: &mut Exchange) -> Result<(), Fault> {
        let Some(service) = exchange.route.service.clone() else { return Err(Fault::NoRoute) };
        service.service.view(self.now, &mut self.view);
        if service.service.roles.is_some() {
            return self.choose_undivided(exchange, &service);
        }
        if self.choose_by_session(exchange, &service) {
            return Ok(());
        }
        if !self.choose_by_blocks(exchange, &service) {
            self.choose_by_selector(exchange, &service, Excluded::default())?;
        }
        if let Some(reason) = exchange.route.reason
            && service.service.sessions.is_some()
        {
            service.counts.borrow_mut().decided(reason);
        }
        service.service.pin(exchange.facts.session, exchange.route.endpoint, self.now);
        Ok(())
    }

    /// Where the earlier requests of its session went, if the rule keeps sessions and that endpoint may serve.
    fn choose_by_session(&mut self, exchange: &mut Exchange, service: &ShardService) -> bool {
        let (session, tried) = (exchange.facts.session, exchange.route.tried);
        let Some(endpoint) = service.service.pinned(session, &self.view, tried, self.now) else {
            return false;
        };
        let Some(reserved) = service.service.reserve(endpoint, u32::MAX, self.now) else { return false };
        exchange.route.endpoint = endpoint;
        exchange.route.reason = Some(Reason::Session);
        exchange.route.charge = Some(self.charge(&service.service.endpoints[endpoint], reserved));
        // Nothing was looked up, so nothing is predicted; what it brings, others may know of.
        (exchange.route.predicted_tokens, exchange.route.rank) = (0, None);
        (exchange.route.explained, exchange.route.claim) = (None, None);
        self.promise_all(exchange, service);
        service.counts.borrow_mut().decided(Reason::Session);
        true
    }

    /// By the rule's selector among all endpoints but `others`.
    pub(crate) fn choose_by_selector(
        &mut self,
        exchange: &mut Exchange,
        service: &ShardService,
        others: Excluded,
    ) -> Result<(), Fault> {
        let RequestFacts { prefix, session, client, .. } = exchange.facts;
        let mut facts = Facts { prefix, session, client, excluded: exchange.route.tried.with(others) };
        loop {
            let decision = decide(&service.service, &facts, &self.view, &mut service.turn.borrow_mut());
            let Some(decision) = decision else {
                return Err(self.nobody(exchange, &service.service));
            };
            let reserved = service.service.reserve(decision.endpoint, decision.load_bound, self.now);
            if let Some(reserved) = reserved {
                exchange.route.endpoint = decision.endpoint;
                exchange.route.reason = Some(decision.reason);
                let state = &service.service.endpoints[decision.endpoint];
                exchange.route.charge = Some(self.charge(state, reserved));
                self.claim_selected(exchange, service);
                self.promise_all(exchange, service);
                return Ok(());
            }
            facts.excluded.add(decision.endpoint);
        }
    }

    /// Why nobody is left to choose.
    fn nobody(&self, exchange: &Exchange, service: &Service) -> Fault {
        if service.is_full() {
            return Fault::AdmissionNoCapacity;
        }
        match exchange.route.tried == Excluded::default() {
            true => Fault::NoHealthyBackend,
            false => Fault::BackendUnreachable,
        }
    }

    fn answer_models(&mut self, client: &mut Client) {
        let address = self.rules.vips[client.vip].address;
        let mut names: Vec<&str> =
            self.rules.table.vip(address).map(|v| v.models().collect()).unwrap_or_default();
        names.sort_unstable();
        names.dedup();
        let body = model_list(&names);
        self.answer(client, 200, body);
    }
}

/// The model that a body names, if it is a string.
fn model_of(body: &[u8], members: &Members, scratch: &mut Vec<u8>) -> Word<128> {
    let Some(value) = members.get(Member::Model) else { return Word::default() };
    if let (Kind::String { escaped: false }, raw) = (value.kind, value.inner().of(body)) {
        return Word::of(raw);
    }
    scratch.clear();
    json::text(body, value, scratch);
    Word::of(scratch)
}

/// The body of `GET /v1/models`.
fn model_list(names: &[&str]) -> Vec<u8> {
    let model = |name: &&str| serde_json::json!({"id": name, "object": "model", "created": 0, "owned_by": "warmpath"});
    let data: Vec<_> = names.iter().map(model).collect();
    serde_json::json!({"object": "list", "data": data}).to_string().into_bytes()
}

/// How the request's body goes out.
pub(crate) fn outgoing_framing(exchange: &Exchange) -> Framing {
    match (&exchange.upload, exchange.head.body) {
        (Upload::Rechunking { .. }, _) => Framing::Chunked,
        (Upload::Whole, Framing::Chunked) => Framing::Length(exchange.body.len() as u64),
        (_, framing) => framing,
    }
}
