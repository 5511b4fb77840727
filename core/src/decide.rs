//! Which endpoint serves a request: `decide` takes values and returns a value. Owns the selectors and the
//! words in which a decision explains itself; must never read a clock, a counter or a random source.

pub mod ring;

use crate::fleet::{EndpointView, Excluded};
use crate::table::Service;

/// What a decision may know of the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Hash of what decides prompt affinity ([`ring::PrefixKey`]); `None` without an inspected prompt.
    pub prefix: Option<u64>,
    /// Endpoints not to choose (already tried).
    pub excluded: Excluded,
}

/// A shard's own memory of whose turn it is, one for each service.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Requests decided so far by [`crate::rule::Selector::RoundRobin`].
    pub next: u32,
    /// Running weights of the smooth weighted round robin, by endpoint index.
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
    /// The hash ring's own endpoint for this prefix.
    HashHome,
    /// The home was not available; the next on the ring.
    HashNext,
    /// The home was at its load bound; moved to relieve it.
    HashBounded,
    /// The selector hashes prefixes, the request had none; taken in turn.
    NoPrefix,
}

impl Reason {
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
        }
    }
}

/// Chooses an endpoint of `service` among those of `fleet` (same order and length as its endpoints).
/// `None`: nobody is available. Backups count only when no other endpoint is available.
pub fn decide(service: &Service, facts: &Facts, fleet: &[EndpointView], turn: &mut Turn) -> Option<Decision> {
    let _ = service;
    let eligible = |i: usize| fleet[i].available && !facts.excluded.contains(i);
    let primary = (0..fleet.len()).any(|i| eligible(i) && !fleet[i].backup);
    let open = |i: usize| eligible(i) && (fleet[i].backup != primary);
    let candidates = (0..fleet.len()).filter(|i| open(*i)).count();
    if candidates == 0 {
        return None;
    }
    let start = turn.next as usize;
    turn.next = turn.next.wrapping_add(1);
    let endpoint = (0..fleet.len()).map(|k| (start + k) % fleet.len()).find(|i| open(*i))?;
    Some(Decision {
        endpoint,
        reason: Reason::RoundRobin,
        load_bound: u32::MAX,
        candidates: candidates as u16,
    })
}
