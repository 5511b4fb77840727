//! The consistent hash ring of selector 8 with bounded load. Owns the formula of its points; must never
//! depend on the order in which endpoints were added.
//!
//! Point j of an endpoint is XXH64, seed 0, of the text `address#j`, for example `10.0.0.1:8000#7` or
//! `[::1]:8000#7`. The loxilb AI gateway seeds each endpoint's points with its index and prints the address
//! as an integer; here the text alone decides, so that two gateways whose rules list the same endpoints in
//! another order agree on every home.

use super::{Decision, Open, Reason};
use crate::fleet::Excluded;
use crate::rule::{Chwbl, Endpoint};
use xxhash_rust::xxh64::xxh64;

/// Points of all endpoints on the ring, sorted.
#[derive(Clone, Debug, Default)]
pub struct HashRing {
    points: Vec<(u64, u16)>,
    load_factor: u16,
}

impl HashRing {
    /// The ring of `endpoints`, `chwbl.replication` points each.
    pub fn new(endpoints: &[Endpoint], chwbl: &Chwbl) -> HashRing {
        let mut points = Vec::with_capacity(endpoints.len() * usize::from(chwbl.replication));
        for (index, endpoint) in endpoints.iter().enumerate() {
            for j in 0..chwbl.replication {
                let text = format!("{}#{j}", endpoint.address);
                points.push((xxh64(text.as_bytes(), 0), index as u16));
            }
        }
        // Equal hashes of two endpoints: the address decides, not the index.
        points.sort_unstable_by_key(|(hash, index)| (*hash, endpoints[usize::from(*index)].address));
        HashRing { points, load_factor: chwbl.load_factor }
    }

    /// The endpoint for `key`: the first on the ring, from the first point at or after the key, that is open
    /// and under its load bound; else the least loaded open one. Each endpoint is looked at once.
    pub(super) fn choose(&self, key: u64, open: &Open) -> Option<Decision> {
        let bound = load_bound(open, self.load_factor);
        let mut seen = Excluded::default();
        let mut looked_at = 0;
        let mut reason = Reason::HashHome;
        let start = self.points.partition_point(|(hash, _)| *hash < key);
        for (_, index) in self.points[start..].iter().chain(&self.points[..start]) {
            let index = usize::from(*index);
            if seen.contains(index) {
                continue;
            }
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

/// Requests an endpoint may carry: `factor` percent of the mean, the request to be placed included, rounded
/// up, at least 1. The mean is over all available endpoints of the class chosen from, also those excluded
/// from this decision: they carry their share of the load.
fn load_bound(open: &Open, factor: u16) -> u32 {
    let (count, load) =
        open.available().fold((0u64, 0u64), |(n, sum), i| (n + 1, sum + u64::from(open.load(i))));
    let bound = ((load + 1) * u64::from(factor)).div_ceil(100 * count.max(1));
    u32::try_from(bound).unwrap_or(u32::MAX).max(1)
}
