//! What an answer proves: of what was predicted, to the trust in its endpoint; of blocks that no event told of, to the
//! event core. Owns what is remembered of a request until then, and which answers count; must never judge one
//! ([`trust::judge`] does), wait, or hold more keys than [`KEYS_KEPT`].
//!
//! An answer counts if it came whole with status 200, and tells how many tokens were found in the cache. Where the engine
//! chose the rank it is compared with what any of its ranks holds. Blocks are proven only by a rank that is known, and
//! only if as many tokens of the prompt are told as were counted here: another number means that the keys are not those
//! of the engine's prompt. What an answer does not tell is asked of the events, and counted for the engine's counters.

use crate::exchange::Exchange;
use crate::flow::Flow;
use crate::prompt::{self, Keys, Terms};
use crate::services::ShardService;
use crate::usage::Usage;
use warmpath_core::decide::exact::{ANY_RANK, Candidate};
use warmpath_core::shared::{KEYS_MAX, Observation, Shown, Source, TrustState};
use warmpath_core::trust::{self, Answer, Apart, Class, Given};
use warmpath_parser::json::{Kind, Member, Members};
use warmpath_prompt::Api;
use warmpath_ring::Ring;

/// Keys of a prompt that are remembered, from the first on: of a longer one no more is learned at once.
pub const KEYS_KEPT: usize = 4096;

/// What was known of the endpoint's cache when the request was sent there.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The rank that it was sent to, or [`ANY_RANK`].
    rank: u8,
    /// Keys of the prompt that it was known to hold on the GPU.
    held: u32,
    /// The last two of those that no last token keeps from being found, and the first beyond.
    edge: [u64; 3],
    edges: u8,
    /// The first key beyond, if a prefill of the prompt brings its block.
    fresh: Option<u64>,
    /// The last two of those that are on their way, if any are.
    brought: Option<[u64; 2]>,
    /// In tokens, without what the answer tells.
    predicted: Answer,
}

impl Claim {
    /// Of a candidate; `None` if nothing is claimed of it.
    fn of(candidate: &Candidate, keys: &Keys, source: &Source) -> Option<Claim> {
        if source.fence().is_some() {
            return None;
        }
        let [gpu, .., anywhere] = candidate.runs;
        let least = keys.predicted(gpu.saturating_sub(candidate.spread));
        let predicted = Answer {
            predicted: keys.predicted(gpu),
            spread: keys.predicted(gpu) - least,
            reach: keys.predicted(anywhere),
            promised: keys.predicted(candidate.promised.max(anywhere)),
            unit: keys.unit as u32,
            is_all_known: is_complete(source, candidate.rank),
            ..Answer::default()
        };
        let units = |tokens: u32| tokens as usize / keys.unit.max(1);
        let (edge, edges) = match candidate.rank {
            // Whose events would be asked?
            ANY_RANK => ([0; 3], 0),
            _ => edge(keys, gpu as usize, units(predicted.predicted)),
        };
        let coming = (predicted.promised > predicted.reach && candidate.rank != ANY_RANK)
            .then(|| units(predicted.promised).checked_sub(2))
            .flatten();
        let brought = coming.and_then(|from| keys.keys.get(from..from + 2)?.try_into().ok());
        let whole = keys.tokens.saturating_sub(1) / keys.unit.max(1);
        let fresh = keys.keys[..whole.min(keys.keys.len())].get(gpu as usize).copied();
        Some(Claim { rank: candidate.rank, held: gpu, edge, edges, fresh, brought, predicted })
    }
}

/// Whether all is known that a rank holds, or all ranks.
fn is_complete(source: &Source, rank: u8) -> bool {
    match rank {
        ANY_RANK => (0..source.spec().ranks).all(|rank| source.is_complete(rank)),
        rank => source.is_complete(rank),
    }
}

/// The last two of the first `found` keys, and that behind the first `held`; none unless there are two.
fn edge(keys: &Keys, held: usize, found: usize) -> ([u64; 3], u8) {
    let mut edge = [0; 3];
    let Some(last) = found.checked_sub(2).and_then(|from| keys.keys.get(from..found)) else {
        return (edge, 0);
    };
    edge[..2].copy_from_slice(last);
    match keys.keys.get(held) {
        Some(next) => {
            edge[2] = *next;
            (edge, 3)
        }
        None => (edge, 2),
    }
}

/// What a request has that could be what is wrong, where its members are at hand.
pub fn class(body: &[u8], members: &Members, terms: &Terms) -> Class {
    let given = match terms.api {
        Api::Chat => Given::Chat,
        Api::Completions if prompt::gives_ids(body, members) => Given::Ids,
        Api::Completions => Given::Text,
    };
    let is_salted = members.get(Member::CacheSalt).is_some_and(|salt| salt.kind != Kind::Null);
    let apart = match (&terms.adapter, is_salted) {
        (Some(_), _) => Apart::Adapter,
        (None, true) => Apart::Salt,
        (None, false) => Apart::Plain,
    };
    Class { given, apart }
}

impl<R: Ring> Flow<R> {
    /// The request goes to this candidate: remembers what is known of it, and keys that its answer may prove held.
    pub(crate) fn claim(&self, exchange: &mut Exchange, candidate: &Candidate, source: &Source) {
        let keys = &self.exact.reader.keys;
        exchange.route.claim = Claim::of(candidate, keys, source);
        exchange.keys.clear();
        let learns = self.settings.features.learn && exchange.route.claim.is_some();
        // Where all is known there is nothing to learn, nor where nobody knows whose it is.
        if learns && candidate.rank != ANY_RANK && !source.is_complete(candidate.rank) {
            exchange.keys.extend_from_slice(&keys.keys[..keys.keys.len().min(KEYS_KEPT)]);
        }
    }

    /// The selector chose an endpoint; what is known of it, if the prompt was looked up.
    pub(crate) fn claim_selected(&self, exchange: &mut Exchange, service: &ShardService) {
        exchange.route.claim = None;
        exchange.keys.clear();
        let Some(exact) = &service.service.exact else { return };
        let Some(source) = exact.sources.get(exchange.route.endpoint) else { return };
        let rank = match source.spec().ranks {
            1 => Some(0),
            _ => exchange.route.rank_asked,
        };
        let endpoint = exchange.route.endpoint;
        let chosen = self.exact.candidate(endpoint, rank).or_else(|| self.exact.any_rank(endpoint));
        if let Some(candidate) = chosen {
            self.claim(exchange, &candidate, source);
        }
    }

    /// A whole answer of an endpoint is there: takes what it proves.
    pub(crate) fn prove(&self, exchange: &mut Exchange, endpoint: usize, status: u16, usage: Option<Usage>) {
        let Some(claim) = exchange.route.claim.take() else { return };
        let service = exchange.route.service.as_ref();
        let exact = service.and_then(|service| service.service.exact.as_ref());
        let Some((source, trust)) = exact.and_then(|e| e.sources.get(endpoint).zip(e.trust.get(endpoint)))
        else {
            return;
        };
        if status != 200 {
            return;
        }
        self.vouch(exchange, &claim, source, endpoint);
        let Some(cached) = usage.and_then(|usage| usage.cached_tokens()) else {
            return self.untold(exchange, &claim, source, trust);
        };
        let there = usage.and_then(|usage| usage.prompt_tokens());
        let counted = there.map(|there| (exchange.route.prompt_tokens, there));
        let knew_all = claim.predicted.is_all_known && is_complete(source, claim.rank);
        let is_all_known = knew_all || source.is_misnamed();
        let answer = Answer { cached, counted, is_all_known, ..claim.predicted };
        let finding = trust::judge(&answer);
        exchange.route.finding = finding;
        if let Some(finding) = finding {
            trust.judged(exchange.route.class, finding);
        } else if let Some(brought) = claim.brought.as_ref().filter(|_| trust::is_brought(&answer)) {
            let of = |service| Shown::Brought { service, class: exchange.route.class };
            self.ask_events(exchange, &claim, source, brought, of);
        }
        if claim.rank != ANY_RANK && counted.is_some_and(|(here, there)| here == there) {
            self.teach(exchange, &claim, &answer, source);
        }
    }

    /// Where the rule's model profile asks for proof of names: asks the event core, now and again, whether a block that
    /// this request brings came under its name.
    fn vouch(&self, exchange: &Exchange, claim: &Claim, source: &Source, endpoint: usize) {
        let service = exchange.route.service.as_ref();
        let attested = service.and_then(|service| service.service.exact.as_ref()?.attested.as_ref());
        let Some(state) = attested.and_then(|own| own.endpoints.get(endpoint)) else { return };
        if let Some(fresh) = claim.fresh.filter(|_| claim.rank != ANY_RANK)
            && state.take_ask(claim.rank, self.now)
        {
            self.ask_events(exchange, claim, source, &[fresh], |service| Shown::Routed { service });
        }
    }

    /// The answer tells nothing: asks the event core what the request computed, and leaves it to the engine's counters.
    fn untold(&self, exchange: &Exchange, claim: &Claim, source: &Source, trust: &TrustState) {
        let class = exchange.route.class;
        trust.was_untold(class, exchange.route.prompt_tokens, &claim.predicted);
        if claim.edges > 0 {
            let keys = &claim.edge[..usize::from(claim.edges)];
            self.ask_events(exchange, claim, source, keys, |service| Shown::Untold { service, class });
        }
    }

    /// Asks the event core what the engine's events say of these blocks.
    fn ask_events(
        &self,
        exchange: &Exchange,
        claim: &Claim,
        source: &Source,
        keys: &[u64],
        shown: impl FnOnce(u32) -> Shown,
    ) {
        let Some(service) = exchange.route.service.as_ref() else { return };
        self.exact.observations.put(&Observation {
            source: source.number(),
            rank: claim.rank,
            sent: exchange.times.sent,
            shown: shown(service.service.number),
            keys,
        });
    }

    /// Tells the event core of the blocks that were found although nobody knew, or had to be computed although they
    /// counted as held.
    fn teach(&self, exchange: &Exchange, claim: &Claim, answer: &Answer, source: &Source) {
        let keys = &exchange.keys[..];
        let found = (answer.cached / answer.unit.max(1)) as usize;
        let (found, known) = (found.min(keys.len()), (claim.held as usize).min(keys.len()));
        let (held, news) = (found > known, known.min(found)..known.max(found));
        let blocks = answer.unit / source.spec().contract.block_size().tokens().max(1) as u32;
        for (part, at) in keys[news.clone()].chunks(KEYS_MAX).zip(news.step_by(KEYS_MAX)) {
            // What finds no room is counted there.
            self.exact.observations.put(&Observation {
                source: source.number(),
                rank: claim.rank,
                sent: exchange.times.sent,
                shown: if held { Shown::Held(at as u32 * blocks) } else { Shown::Computed },
                keys: part,
            });
        }
    }
}
