//! Which endpoint serves a request: `decide` takes values and returns a value. Owns the selectors and the
//! words in which a decision explains itself; must never read a clock, a counter or a random source.

pub mod exact;
mod home;
pub mod ladder;
pub mod prefix;
pub mod ring;
pub mod tuning;
mod turns;

use crate::fleet::{EndpointView, Excluded};
use crate::rule::Selector;
use crate::table::Service;

/// What a decision may know of the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Hash of what decides prompt affinity ([`prefix::PrefixKey`]); `None` without an inspected prompt.
    pub prefix: Option<u64>,
    /// The key of its session ([`crate::session::key`]), if it has one.
    pub session: Option<u64>,
    /// Hash of the client's address and port, where the selector asks for it.
    pub client: u64,
    /// Endpoints not to choose (already tried).
    pub excluded: Excluded,
}

/// A shard's own memory of whose turn it is, one for each service.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Index of the endpoint whose turn it is. Shards that start at different ones don't all begin at the
    /// first endpoint.
    pub next: u32,
    /// Running weights of the smooth weighted round robin, by endpoint index; sized by the first decision
    /// and again when the number of endpoints changes.
    pub running: Vec<i64>,
}

/// The endpoint chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the endpoint.
    pub endpoint: usize,
    /// What decided.
    pub reason: Reason,
    /// Requests in flight beyond which the reservation must be refused and the next best asked for.
    pub load_bound: u32,
    /// How many endpoints could be chosen from.
    pub candidates: u16,
}

/// What decided, as a closed list: logs, receipts, metrics and tests print the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It was its turn.
    RoundRobin,
    /// It was its turn by weight.
    Weighted,
    /// It had the fewest requests in flight.
    LeastLoad,
    /// The hash's own endpoint for this prefix or, where there is none, this session.
    HashHome,
    /// The home was not available; the next by the hash.
    HashNext,
    /// The home was at its load bound; moved to relieve it.
    HashBounded,
    /// The selector hashes prefixes, the request had none; taken in turn.
    NoPrefix,
    /// The hash of the client's address and port.
    ClientHash,
    /// Where the earlier requests of its session went.
    Session,
    /// It was sent the longest beginning of the prompt before.
    PrefixTrie,
    /// It holds the most of the prompt's leading blocks.
    Exact,
    /// The same, and more of them are on their way to it than are there.
    ExactPromised,
    /// Who holds more has as much load as it may, or costs more.
    ExactSpill,
    /// Who holds the most carries its share of the whole pool's load; moved to relieve it.
    ExactRelief,
    /// It is cold, and every so many hits are for such ones.
    ExactSeed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 15] = [
        Reason::RoundRobin,
        Reason::Weighted,
        Reason::LeastLoad,
        Reason::HashHome,
        Reason::HashNext,
        Reason::HashBounded,
        Reason::NoPrefix,
        Reason::ClientHash,
        Reason::Session,
        Reason::PrefixTrie,
        Reason::Exact,
        Reason::ExactPromised,
        Reason::ExactSpill,
        Reason::ExactRelief,
        Reason::ExactSeed,
    ];

    /// The tier that decided, as in `loxilb_ai_pd_tier_selected_total`: by session, by the prefix trie, by blocks, or
    /// by the rule's selector or load.
    pub const fn tier(self) -> &'static str {
        match self {
            Reason::Session => "tier0",
            Reason::PrefixTrie => "tier1",
            Reason::Exact
            | Reason::ExactPromised
            | Reason::ExactSpill
            | Reason::ExactRelief
            | Reason::ExactSeed => "tier15",
            Reason::RoundRobin
            | Reason::Weighted
            | Reason::LeastLoad
            | Reason::HashHome
            | Reason::HashNext
            | Reason::HashBounded
            | Reason::ClientHash
            | Reason::NoPrefix => "tier2",
        }
    }

    /// The word that receipts, metrics and logs use.
    pub fn word(self) -> &'static str {
        match self {
            Reason::RoundRobin => "round_robin",
            Reason::Weighted => "weighted",
            Reason::LeastLoad => "least_load",
            Reason::HashHome => "hash_home",
            Reason::HashNext => "hash_next",
            Reason::HashBounded => "hash_bounded",
            Reason::NoPrefix => "no_prefix",
            Reason::ClientHash => "client_hash",
            Reason::Session => "session",
            Reason::PrefixTrie => "prefix_trie",
            Reason::Exact => "exact",
            Reason::ExactPromised => "exact_promised",
            Reason::ExactSpill => "exact_spill",
            Reason::ExactRelief => "exact_relief",
            Reason::ExactSeed => "exact_seed",
        }
    }
}

/// Chooses an endpoint of `service` among those of `fleet` (same order and length as its endpoints).
/// `None`: nobody is available. Backups count only when no other endpoint is available.
///
/// The caller reserves with [`Decision::load_bound`]; where that is refused, because others were charged
/// meanwhile, it excludes the endpoint and asks again. Allocates nothing but the first time for a service.
pub fn decide(service: &Service, facts: &Facts, fleet: &[EndpointView], turn: &mut Turn) -> Option<Decision> {
    let open = Open::new(fleet, facts.excluded)?;
    let key = facts.prefix.or(facts.session);
    match (&service.rule.selector, &service.hash_ring, key) {
        (Selector::RoundRobin | Selector::Persist, ..) => turns::round_robin(&open, turn, Reason::RoundRobin),
        (Selector::ClientHash, ..) => {
            let chosen = home::choose(facts.client, &service.ids, &open)?;
            Some(Decision { reason: Reason::ClientHash, ..chosen })
        }
        (Selector::Weighted, ..) => turns::weighted(&open, turn),
        (Selector::LeastConnections, ..) => turns::least_connections(&open, turn),
        (Selector::Chwbl(_) | Selector::WeightedHash(_), Some(ring), Some(key)) => ring.choose(key, &open),
        (Selector::Chwbl(_) | Selector::WeightedHash(_), ..) => {
            turns::round_robin(&open, turn, Reason::NoPrefix)
        }
        (Selector::GpuAware, _, Some(key)) => home::choose(key, &service.ids, &open),
        (Selector::GpuAware, _, None) => turns::least_to_do(&open, turn),
    }
}

/// Whether the endpoint that a session is pinned to may serve its next request: as healthy as any, and no backup while a
/// primary one is there.
pub fn stays(pinned: usize, fleet: &[EndpointView], excluded: Excluded) -> bool {
    Open::new(fleet, excluded).is_some_and(|open| pinned < fleet.len() && open.contains(pinned))
}

/// The endpoints that one decision may choose from: available, not excluded, and of one class.
struct Open<'a> {
    fleet: &'a [EndpointView],
    excluded: Excluded,
    backup: bool,
    count: u16,
}

impl<'a> Open<'a> {
    /// The primary endpoints, or the backups where no primary one is left; `None` if nobody is.
    fn new(fleet: &'a [EndpointView], excluded: Excluded) -> Option<Open<'a>> {
        let mut counts = [0u16; 2];
        for (index, endpoint) in fleet.iter().enumerate() {
            if endpoint.available && !excluded.contains(index) {
                counts[usize::from(endpoint.backup)] += 1;
            }
        }
        let [primary, backups] = counts;
        match (primary, backups) {
            (0, 0) => None,
            (0, count) => Some(Open { fleet, excluded, backup: true, count }),
            (count, _) => Some(Open { fleet, excluded, backup: false, count }),
        }
    }

    fn contains(&self, index: usize) -> bool {
        self.fleet[index].available
            && self.fleet[index].backup == self.backup
            && !self.excluded.contains(index)
    }

    /// The open ones once round, from index `start`.
    fn indices(&self, start: usize) -> impl Iterator<Item = usize> {
        let count = self.fleet.len();
        let start = if start < count { start } else { 0 };
        (start..count).chain(0..start).filter(|i| self.contains(*i))
    }

    /// The available ones of the class, excluded or not.
    fn available(&self) -> impl Iterator<Item = usize> {
        let fits = |i: &usize| self.fleet[*i].available && self.fleet[*i].backup == self.backup;
        (0..self.fleet.len()).filter(fits)
    }

    fn load(&self, index: usize) -> u32 {
        self.fleet[index].load
    }

    fn decision(&self, endpoint: usize, reason: Reason, load_bound: u32) -> Decision {
        Decision { endpoint, reason, load_bound, candidates: self.count }
    }
}

#[cfg(test)]
mod tests;
