//! The consistent hash ring of selector 8 and the key it is asked with. Owns the published formulas;
//! must never depend on the order in which endpoints were added.

use crate::rule::{Chwbl, Endpoint};

/// Points of all endpoints on the ring, sorted.
#[derive(Clone, Debug, Default)]
pub struct HashRing {
    points: Vec<(u64, u16)>,
}

impl HashRing {
    /// The ring of `endpoints`.
    pub fn new(endpoints: &[Endpoint], chwbl: &Chwbl) -> HashRing {
        let _ = (endpoints, chwbl);
        HashRing { points: Vec::new() }
    }
}
