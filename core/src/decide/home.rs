//! The home of a key without a ring: the endpoint whose mix with the key is highest (rendezvous hashing), so that an
//! endpoint that goes moves its own keys only, to all others alike. Owns the mix; must never depend on the order in which
//! endpoints were added.
//!
//! The loxilb AI gateway takes the key modulo the number of endpoints, which moves nearly all keys with any change.

use super::{Decision, Open, Reason};
use crate::fleet::EndpointId;

/// The open endpoint whose mix is highest. Whether it is the key's home depends on all of its class, also those that are
/// not available.
pub(super) fn choose(key: u64, ids: &[EndpointId], open: &Open) -> Option<Decision> {
    let best = |indices: &mut dyn Iterator<Item = usize>| {
        indices.max_by_key(|i| (mix(key, ids[*i]), ids[*i].number()))
    };
    let chosen = best(&mut open.indices(0))?;
    let own = best(&mut (0..open.fleet.len()).filter(|i| open.fleet[*i].backup == open.backup))?;
    let reason = if ids[chosen] == ids[own] { Reason::HashHome } else { Reason::HashNext };
    Some(open.decision(chosen, reason, u32::MAX))
}

/// The finalizer of MurmurHash3 over both: each bit of either changes each bit of it in half of all cases.
fn mix(key: u64, id: EndpointId) -> u64 {
    let mut mixed = key ^ (u64::from(id.number()) << 32 | u64::from(id.number()));
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}
