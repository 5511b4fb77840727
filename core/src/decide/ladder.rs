//! The ladder of a pair: in which order tiers decide who computes a prompt (prefill), and who answers it (decode). Owns
//! the order; must never read live state: what reserves is handed in.
//!
//! Prefill: whoever is excluded (another role, tried, down, breaker open, over its own admission's bound) takes part in
//! nothing. Then its session (tier 0), the prefix trie (tier 1), blocks (tier 1.5), the least to do (tier 2). A tier whose
//! choice can't be reserved, since others were charged meanwhile, leaves the place to the next choice. Decode: its
//! session, else the least to do. Where either has nobody, the caller rescues the request with an endpoint that serves
//! whole requests ([`super::decide`] with the pair's roles excluded).

use super::{Decision, Open, Reason, Turn, stays, turns};
use crate::fleet::{EndpointView, Excluded};
use crate::rule::CacheAware;

/// What is known of a request before its prefill is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a> {
    /// The endpoints of the rule.
    pub fleet: &'a [EndpointView],
    /// Those not to choose.
    pub excluded: Excluded,
    /// Tier 0: the prefill endpoint of its session.
    pub pinned: Option<usize>,
    /// Tier 1: the longest beginning of the prompt that an endpoint was sent before.
    pub known: Option<Known>,
    /// Tier 1's terms; `None`: it does not decide.
    pub cache: Option<CacheAware>,
}

/// A beginning of a prompt that an endpoint was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The endpoint.
    pub endpoint: usize,
    /// Bytes of that beginning.
    pub bytes: usize,
    /// Bytes of the whole prompt.
    pub of: usize,
}

/// Who carries out what a ladder decides.
pub trait Hands {
    /// Charges the endpoint of a decision; false: its bound, or the trial of its breaker, refuses it.
    fn reserve(&mut self, decision: &Decision) -> bool;

    /// Tier 1.5: ranks and charges by blocks; false: nothing is held, or blocks are not asked.
    fn reserve_by_blocks(&mut self) -> bool;
}

/// Chooses and charges who computes the prompt. False: nobody can.
pub fn prefill(ladder: &Ladder<'_>, turn: &mut Turn, hands: &mut impl Hands) -> bool {
    [ladder.by_session(), ladder.by_trie()].into_iter().flatten().any(|decision| hands.reserve(&decision))
        || hands.reserve_by_blocks()
        || by_load(ladder.fleet, ladder.excluded, turn, hands)
}

/// Chooses and charges who answers. False: nobody can.
pub fn decode(
    fleet: &[EndpointView],
    excluded: Excluded,
    pinned: Option<usize>,
    turn: &mut Turn,
    hands: &mut impl Hands,
) -> bool {
    let ladder = Ladder { fleet, excluded, pinned, known: None, cache: None };
    ladder.by_session().is_some_and(|decision| hands.reserve(&decision))
        || by_load(fleet, excluded, turn, hands)
}

/// Tier 2: the one with the least to do, and where that is refused the next.
fn by_load(fleet: &[EndpointView], mut excluded: Excluded, turn: &mut Turn, hands: &mut impl Hands) -> bool {
    while let Some(decision) = Open::new(fleet, excluded).and_then(|open| turns::least_to_do(&open, turn)) {
        if hands.reserve(&decision) {
            return true;
        }
        excluded.add(decision.endpoint);
    }
    false
}

impl Ladder<'_> {
    fn by_session(&self) -> Option<Decision> {
        let endpoint = self.pinned.filter(|endpoint| stays(*endpoint, self.fleet, self.excluded))?;
        self.decision(endpoint, Reason::Session)
    }

    /// Not where loads lie too far apart, nor for too small a part of the prompt.
    fn by_trie(&self) -> Option<Decision> {
        let (known, cache) = self.known.zip(self.cache)?;
        let open = Open::new(self.fleet, self.excluded)?;
        let loads = || open.indices(0).map(|i| open.load(i));
        let apart = loads().max()? - loads().min()?;
        let enough = known.bytes as u64 * 100 >= u64::from(cache.threshold) * known.of as u64;
        let is_open = known.endpoint < self.fleet.len() && open.contains(known.endpoint);
        (apart <= cache.balance && enough && known.bytes > 0 && is_open)
            .then(|| open.decision(known.endpoint, Reason::PrefixTrie, u32::MAX))
    }

    fn decision(&self, endpoint: usize, reason: Reason) -> Option<Decision> {
        Some(Open::new(self.fleet, self.excluded)?.decision(endpoint, reason, u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands that refuse some endpoints, and hold some blocks.
    #[derive(Default)]
    struct Fake {
        refuses: Vec<usize>,
        holds: Option<usize>,
        asked: Vec<&'static str>,
        chosen: Option<(usize, &'static str)>,
    }

    impl Hands for Fake {
        fn reserve(&mut self, decision: &Decision) -> bool {
            self.asked.push(decision.reason.tier());
            let taken = !self.refuses.contains(&decision.endpoint);
            self.chosen = taken.then_some((decision.endpoint, decision.reason.tier()));
            taken
        }

        fn reserve_by_blocks(&mut self) -> bool {
            self.asked.push("tier15");
            self.chosen = self.holds.map(|endpoint| (endpoint, "tier15"));
            self.chosen.is_some()
        }
    }

    fn fleet(loads: &[(u32, Option<u32>)]) -> Vec<EndpointView> {
        let view = |(load, queued): &(u32, Option<u32>)| EndpointView {
            available: true,
            load: *load,
            queued: *queued,
            weight: 1,
            backup: false,
        };
        loads.iter().map(view).collect()
    }

    const CACHE: CacheAware = CacheAware { threshold: 20, balance: 3 };

    fn known(endpoint: usize, bytes: usize) -> Option<Known> {
        Some(Known { endpoint, bytes, of: 1000 })
    }

    /// Session, trie, blocks and load are 0, 1, 2 and 3 here: what each case takes away leaves the next.
    #[test]
    fn tiers_decide_in_their_order() {
        let even = fleet(&[(1, Some(0)), (1, Some(0)), (1, Some(0)), (0, Some(0))]);
        let mut down = even.clone();
        down[0].available = false;
        let full = Ladder {
            fleet: &even,
            excluded: Excluded::default(),
            pinned: Some(0),
            known: known(1, 200),
            cache: Some(CACHE),
        };
        let mut without = Excluded::default();
        [0, 1].into_iter().for_each(|i| without.add(i));
        let uneven = fleet(&[(1, None), (1, None), (1, None), (5, None)]);
        let unpinned = Ladder { pinned: None, ..full };
        for (case, ladder, refuses, holds, chosen, asked) in [
            ("session", full, vec![], Some(2), Some((0, "tier0")), vec!["tier0"]),
            ("refused session", full, vec![0], Some(2), Some((1, "tier1")), vec!["tier0", "tier1"]),
            (
                "session down",
                Ladder { fleet: &down, ..full },
                vec![],
                Some(2),
                Some((1, "tier1")),
                vec!["tier1"],
            ),
            ("no session", unpinned, vec![], Some(2), Some((1, "tier1")), vec!["tier1"]),
            (
                "excluded both",
                Ladder { excluded: without, ..full },
                vec![],
                Some(2),
                Some((2, "tier15")),
                vec!["tier15"],
            ),
            (
                "no trie",
                Ladder { cache: None, ..unpinned },
                vec![],
                Some(2),
                Some((2, "tier15")),
                vec!["tier15"],
            ),
            (
                "short match",
                Ladder { known: known(1, 199), ..unpinned },
                vec![],
                Some(2),
                Some((2, "tier15")),
                vec!["tier15"],
            ),
            (
                "nothing known",
                Ladder { known: known(1, 0), cache: Some(CacheAware { threshold: 0, ..CACHE }), ..unpinned },
                vec![],
                Some(2),
                Some((2, "tier15")),
                vec!["tier15"],
            ),
            (
                "uneven load",
                Ladder { fleet: &uneven, ..unpinned },
                vec![],
                Some(2),
                Some((2, "tier15")),
                vec!["tier15"],
            ),
            (
                "no blocks",
                Ladder { known: None, ..unpinned },
                vec![],
                None,
                Some((3, "tier2")),
                vec!["tier15", "tier2"],
            ),
            (
                "refused load",
                Ladder { known: None, ..unpinned },
                vec![3, 0],
                None,
                Some((1, "tier2")),
                vec!["tier15", "tier2", "tier2", "tier2"],
            ),
            ("nobody", Ladder { fleet: &[], ..full }, vec![], None, None, vec!["tier15"]),
        ] {
            let mut hands = Fake { refuses, holds, ..Fake::default() };
            let found = prefill(&ladder, &mut Turn::default(), &mut hands);
            assert_eq!((found, hands.chosen), (chosen.is_some(), chosen), "{case}");
            assert_eq!(hands.asked, asked, "{case}");
        }
    }

    /// What waits in the engines counts; where an engine's figure is old or missing, the mean of the fresh ones does.
    #[test]
    fn load_is_what_runs_and_what_waits() {
        for (loads, least) in [
            (vec![(3, Some(0)), (1, Some(5)), (2, Some(2))], 0),
            (vec![(3, Some(4)), (0, None), (2, Some(8))], 1),
            (vec![(3, Some(0)), (3, None), (0, Some(9))], 0),
            (vec![(2, None), (1, None), (3, None)], 1),
        ] {
            let fleet = fleet(&loads);
            let mut hands = Fake::default();
            assert!(decode(&fleet, Excluded::default(), None, &mut Turn::default(), &mut hands));
            assert_eq!(hands.chosen, Some((least, "tier2")), "{loads:?}");
        }
    }

    #[test]
    fn decode_stays_with_its_session_and_takes_turns_among_equals() {
        let (fleet, mut turn) = (fleet(&[(0, None); 4]), Turn::default());
        let mut prefills = Excluded::default();
        prefills.add(0);
        let mut ask = |pinned, refuses: &[usize]| {
            let mut hands = Fake { refuses: refuses.to_vec(), ..Fake::default() };
            decode(&fleet, prefills, pinned, &mut turn, &mut hands);
            hands.chosen
        };
        assert_eq!([0; 4].map(|_| ask(None, &[])), [1, 2, 3, 1].map(|i| Some((i, "tier2"))));
        assert_eq!(ask(Some(3), &[]), Some((3, "tier0")));
        assert_eq!(ask(Some(3), &[3]), Some((2, "tier2")));
        assert_eq!(ask(Some(0), &[]), Some((3, "tier2")), "it is of another role now");
        assert_eq!(ask(None, &[1, 2, 3]), None);
    }
}
