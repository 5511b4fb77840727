//! The consistent hash ring of selectors 8 and 10 with bounded load. Owns the formula of its points; must never
//! depend on the order in which endpoints were added.
//!
//! Point j of an endpoint is XXH64, seed 0, of the text `address#j`, for example `10.0.0.1:8000#7` or
//! `[::1]:8000#7`. The loxilb AI gateway seeds each endpoint's points with its index and prints the address
//! as an integer; here the text alone decides, so that two gateways whose rules list the same endpoints in
//! another order agree on every home.
//!
//! Under selector 10 all endpoints share the points of one ring by weight, and an endpoint's bound is its share of the
//! load: without that a heavy endpoint had its points in vain. (The loxilb AI gateway has one bound for all.)

use super::{Decision, Open, Reason};
use crate::fleet::Excluded;
use crate::rule::{Chwbl, Endpoint};
use xxhash_rust::xxh64::xxh64;

/// Points of all endpoints on the ring, sorted.
#[derive(Clone, Debug, Default)]
pub struct HashRing {
    points: Vec<(u64, u16)>,
    load_factor: u16,
    by_weight: bool,
}

impl HashRing {
    /// The ring of `endpoints`, `chwbl.replication` points each.
    pub fn new(endpoints: &[Endpoint], chwbl: &Chwbl) -> HashRing {
        HashRing::with_points(endpoints, chwbl, &vec![chwbl.replication; endpoints.len()])
    }

    /// The same with `chwbl.replication` points of all endpoints together, by weight.
    pub fn by_weight(endpoints: &[Endpoint], chwbl: &Chwbl) -> HashRing {
        let counts = shares(endpoints, chwbl.replication);
        HashRing { by_weight: true, ..HashRing::with_points(endpoints, chwbl, &counts) }
    }

    fn with_points(endpoints: &[Endpoint], chwbl: &Chwbl, counts: &[u16]) -> HashRing {
        let mut points = Vec::with_capacity(counts.iter().map(|count| usize::from(*count)).sum());
        for (index, (endpoint, count)) in endpoints.iter().zip(counts).enumerate() {
            for j in 0..*count {
                let text = format!("{}#{j}", endpoint.address);
                points.push((xxh64(text.as_bytes(), 0), index as u16));
            }
        }
        // Equal hashes of two endpoints: the address decides, not the index.
        points.sort_unstable_by_key(|(hash, index)| (*hash, endpoints[usize::from(*index)].address));
        HashRing { points, load_factor: chwbl.load_factor, by_weight: false }
    }

    /// The endpoint for `key`: the first on the ring, from the first point at or after the key, that is open
    /// and under its load bound; else the least loaded open one. Each endpoint is looked at once.
    pub(super) fn choose(&self, key: u64, open: &Open) -> Option<Decision> {
        let bounds = Bounds::new(open, self.load_factor, self.by_weight);
        let mut seen = Excluded::default();
        let mut looked_at = 0;
        let mut reason = Reason::HashHome;
        let start = self.points.partition_point(|(hash, _)| *hash < key);
        for (_, index) in self.points[start..].iter().chain(&self.points[..start]) {
            let index = usize::from(*index);
            if seen.contains(index) {
                continue;
            }
            let bound = bounds.of(index);
            match open.contains(index) {
                true if open.load(index) < bound => return Some(open.decision(index, reason, bound)),
                true => reason = Reason::HashBounded,
                false if reason == Reason::HashHome => reason = Reason::HashNext,
                false => {}
            }
            seen.add(index);
            looked_at += 1;
            if looked_at == open.fleet.len() {
                break;
            }
        }
        // All are at the bound: possible only where some are excluded. Waiting would not make it better.
        let least = open.indices(0).min_by_key(|i| open.load(*i))?;
        Some(open.decision(least, Reason::HashBounded, u32::MAX))
    }
}

/// Points of each endpoint where `all` are shared by weight: at least one of each that has a weight. What is left over
/// goes by one to each, in the order of their addresses.
fn shares(endpoints: &[Endpoint], all: u16) -> Vec<u16> {
    let total: u64 = endpoints.iter().map(|e| u64::from(e.weight)).sum();
    let share = |e: &Endpoint| match e.weight {
        0 => 0,
        weight => (u64::from(all) * u64::from(weight) / total).max(1) as u16,
    };
    let mut shares: Vec<u16> = endpoints.iter().map(share).collect();
    let mut order: Vec<usize> = (0..endpoints.len()).filter(|i| endpoints[*i].weight > 0).collect();
    order.sort_by_key(|i| endpoints[*i].address);
    let given: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let left = u64::from(all).saturating_sub(given) as usize;
    order.iter().take(left).for_each(|i| shares[*i] += 1);
    shares
}

/// Requests that endpoints may carry: `factor` percent of the mean, the request to be placed included, rounded up, at
/// least 1; by weight, of its share in place of the mean. Over all available endpoints of the class chosen from, also
/// those excluded from this decision: they carry their part of the load.
struct Bounds<'a, 'f> {
    open: &'a Open<'f>,
    /// Load times factor.
    load: u64,
    /// Endpoints, or the sum of their weights.
    parts: u64,
    by_weight: bool,
}

impl<'a, 'f> Bounds<'a, 'f> {
    fn new(open: &'a Open<'f>, factor: u16, by_weight: bool) -> Bounds<'a, 'f> {
        let part = |i: usize| if by_weight { u64::from(open.fleet[i].weight) } else { 1 };
        let (parts, load) =
            open.available().fold((0u64, 0u64), |(n, sum), i| (n + part(i), sum + u64::from(open.load(i))));
        Bounds { open, load: (load + 1) * u64::from(factor), parts: parts.max(1), by_weight }
    }

    fn of(&self, index: usize) -> u32 {
        let part = if self.by_weight { u64::from(self.open.fleet[index].weight) } else { 1 };
        let bound = u128::from(self.load) * u128::from(part);
        let bound = bound.div_ceil(100 * u128::from(self.parts));
        u32::try_from(bound).unwrap_or(u32::MAX).max(1)
    }
}
