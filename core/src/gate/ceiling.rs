//! How many requests may be at the engines. Owns the arithmetic of ceilings, warm-up and a tenant's share.

use crate::Nanos;
use crate::rule::GateTerms;

/// What an endpoint that is warm counts, and what one that has just come up counts at least.
const WARM: u64 = 1_000;
const COLD: u64 = WARM / 4;

/// How far an endpoint has warmed up, of 1,000: from a quarter on, in a straight line over `warmup`.
pub fn warmth(up_for: Nanos, warmup: Nanos) -> u64 {
    if up_for >= warmup {
        return WARM;
    }
    // Under 2^64: a fraction below 1 of 750.
    COLD + ((WARM - COLD) as u128 * u128::from(up_for) / u128::from(warmup)) as u64
}

/// The endpoints that a service may use at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// How many there are.
    pub endpoints: u32,
    /// Sum of their [`warmth`].
    pub warmth: u64,
}

impl Ceiling {
    /// Adds an endpoint.
    pub fn add(&mut self, warmth: u64) {
        self.endpoints += 1;
        self.warmth += warmth;
    }

    /// Requests that the service may have at its engines while all is well: what the rule says of the service, and of
    /// each endpoint together, as far as they are warm. `None`: nothing bounds it.
    pub fn full(&self, terms: &GateTerms) -> Option<u32> {
        let share = |most: u64| most * self.warmth / (WARM * u64::from(self.endpoints.max(1)));
        let service = Some(u64::from(terms.outstanding.value)).filter(|most| *most > 0).map(share);
        let each = u64::from(terms.per_endpoint.value);
        let together = (each > 0).then(|| each * self.warmth / WARM);
        let least = [service, together].into_iter().flatten().min()?;
        // Somebody has to be let in for anything to become warm.
        Some(u32::try_from(least).unwrap_or(u32::MAX).max(1))
    }
}

/// Requests that one tenant may have at the engines or waiting, where `limit` may be there in all.
pub fn tenant_most(limit: u32, share: u8) -> u32 {
    (u64::from(limit) * u64::from(share)).div_ceil(100).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;
    use crate::rule::Said;

    fn terms(outstanding: u32, per_endpoint: u32) -> GateTerms {
        GateTerms {
            outstanding: Said::of(Some(outstanding), None, 0),
            per_endpoint: Said::of(Some(per_endpoint), None, 0),
            ..GateTerms::default()
        }
    }

    #[test]
    fn an_endpoint_warms_from_a_quarter_to_all() {
        let at = |seconds| warmth(seconds * SECOND, 30 * SECOND);
        assert_eq!([at(0), at(10), at(20), at(30), at(99)], [250, 500, 750, 1000, 1000]);
        assert_eq!((warmth(0, 0), warmth(u64::MAX - 1, u64::MAX)), (1000, 999));
    }

    #[test]
    fn the_least_of_what_is_said_is_the_ceiling() {
        let warm = |endpoints| Ceiling { endpoints, warmth: 1000 * u64::from(endpoints) };
        assert_eq!(warm(4).full(&terms(0, 0)), None);
        assert_eq!(warm(4).full(&terms(100, 0)), Some(100));
        assert_eq!(warm(4).full(&terms(100, 8)), Some(32));
        assert_eq!(warm(4).full(&terms(10, 8)), Some(10));
        let mut half = Ceiling::default();
        half.add(1000);
        half.add(250);
        assert_eq!(half.full(&terms(100, 0)), Some(62));
        assert_eq!(half.full(&terms(0, 8)), Some(10));
        assert_eq!(Ceiling::default().full(&terms(100, 0)), Some(1), "nobody is there: one may find out");
    }

    #[test]
    fn a_tenant_has_its_share_rounded_up_and_one_at_least() {
        assert_eq!(
            [tenant_most(10, 25), tenant_most(100, 1), tenant_most(0, 50), tenant_most(u32::MAX, 100)],
            [3, 1, 1, u32::MAX]
        );
    }
}
