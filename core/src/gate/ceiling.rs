//! How many requests may be at the engines. Owns the arithmetic of ceilings, warm-up and a tenant's share.

use crate::Nanos;
use crate::rule::{GateTerms, Role};

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

/// The endpoints that a service may use at one moment, by what they do of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    roles: [Open; Role::ALL.len()],
}

/// Those of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Open {
    endpoints: u32,
    /// Sum of their [`warmth`].
    warmth: u64,
}

/// Requests that one endpoint may have by what the rule says; 0: unbounded.
pub fn endpoint_most(terms: &GateTerms, role: Role) -> u32 {
    let own = match role {
        Role::Normal | Role::Encode => 0,
        Role::Prefill => terms.per_prefill.value,
        Role::Decode => terms.per_decode.value,
    };
    let bounds = [own, terms.per_endpoint.value];
    bounds.into_iter().filter(|bound| *bound > 0).min().unwrap_or(0)
}

impl Ceiling {
    /// Adds an endpoint.
    pub fn add(&mut self, role: Role, warmth: u64) {
        let open = &mut self.roles[role as usize];
        open.endpoints += 1;
        open.warmth += warmth;
    }

    /// Requests that the service may have at its engines while all is well: what the rule says of the service, and of
    /// the endpoints of each role together, as far as they are warm. A request of a pair is at an endpoint of either
    /// role. `None`: nothing bounds it.
    pub fn full(&self, terms: &GateTerms) -> Option<u32> {
        let roles = || Role::ALL.into_iter().zip(&self.roles).filter(|(_, open)| open.endpoints > 0);
        let (endpoints, warmth) =
            roles().fold((0, 0), |(n, sum), (_, open)| (n + u64::from(open.endpoints), sum + open.warmth));
        let share = |most: u64| most * warmth / (WARM * endpoints.max(1));
        let service = Some(u64::from(terms.outstanding.value)).filter(|most| *most > 0).map(share);
        let together = |(role, open): (Role, &Open)| {
            let each = u64::from(endpoint_most(terms, role));
            (each > 0).then_some(each * open.warmth / WARM)
        };
        let least = service.into_iter().chain(roles().filter_map(together)).min()?;
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
    use crate::rule::{Role, Said};

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
        let warm = |endpoints| {
            let mut open = Ceiling::default();
            (0..endpoints).for_each(|_| open.add(Role::Normal, 1000));
            open
        };
        assert_eq!(warm(4).full(&terms(0, 0)), None);
        assert_eq!(warm(4).full(&terms(100, 0)), Some(100));
        assert_eq!(warm(4).full(&terms(100, 8)), Some(32));
        assert_eq!(warm(4).full(&terms(10, 8)), Some(10));
        let mut half = Ceiling::default();
        half.add(Role::Normal, 1000);
        half.add(Role::Normal, 250);
        assert_eq!(half.full(&terms(100, 0)), Some(62));
        assert_eq!(half.full(&terms(0, 8)), Some(10));
        assert_eq!(Ceiling::default().full(&terms(100, 0)), Some(1), "nobody is there: one may find out");
    }

    #[test]
    fn of_pairs_the_role_that_can_do_less_is_the_ceiling() {
        let mut open = Ceiling::default();
        open.add(Role::Prefill, 1000);
        (0..3).for_each(|_| open.add(Role::Decode, 1000));
        let pairs = |prefill, decode, each| GateTerms {
            per_prefill: Said::of(Some(prefill), None, 0),
            per_decode: Said::of(Some(decode), None, 0),
            ..terms(0, each)
        };
        assert_eq!(open.full(&pairs(4, 2, 0)), Some(4));
        assert_eq!(open.full(&pairs(9, 2, 0)), Some(6));
        assert_eq!(open.full(&pairs(0, 2, 5)), Some(5));
        assert_eq!(
            (endpoint_most(&pairs(0, 2, 5), Role::Decode), endpoint_most(&terms(0, 0), Role::Decode)),
            (2, 0)
        );
    }

    #[test]
    fn a_tenant_has_its_share_rounded_up_and_one_at_least() {
        assert_eq!(
            [tenant_most(10, 25), tenant_most(100, 1), tenant_most(0, 50), tenant_most(u32::MAX, 100)],
            [3, 1, 1, u32::MAX]
        );
    }
}
