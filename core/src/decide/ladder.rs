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

/// What to try next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To reserve with this endpoint; where that is refused, [`Ladder::refused`].
    Reserve(Decision),
    /// Tier 1.5: to rank and reserve by blocks, if the rule asks for that.
    Blocks,
}

/// One way down the ladder: asked again and again for the next step, until one is taken.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    excluded: Excluded,
    pinned: Option<usize>,
    known: Option<(Known, CacheAware)>,
    by_blocks: bool,
}

impl Ladder {
    /// For prefill: without those excluded; `pinned` serves its session; `known` is what of it was sent before, with the
    /// rule's terms of that.
    pub fn prefill(excluded: Excluded, pinned: Option<usize>, known: Option<(Known, CacheAware)>) -> Ladder {
        Ladder { excluded, pinned, known, by_blocks: true }
    }

    /// For decode, and for encoders.
    pub fn decode(excluded: Excluded, pinned: Option<usize>) -> Ladder {
        Ladder { excluded, pinned, known: None, by_blocks: false }
    }

    /// The endpoint takes no more, or its breaker is on trial.
    pub fn refused(&mut self, endpoint: usize) {
        self.excluded.add(endpoint);
    }

    /// The next step; `None`: nobody is left. `fleet` is the same for all steps.
    pub fn next(&mut self, fleet: &[EndpointView], turn: &mut Turn) -> Option<Step> {
        let open = Open::new(fleet, self.excluded);
        let pinned = self.pinned.take().filter(|endpoint| stays(*endpoint, fleet, self.excluded));
        if let (Some(endpoint), Some(open)) = (pinned, &open) {
            return Some(Step::Reserve(open.decision(endpoint, Reason::Session, u32::MAX)));
        }
        let known = self.known.take();
        if let (Some((known, terms)), Some(open)) = (known, &open)
            && may_decide(known, terms, open)
        {
            return Some(Step::Reserve(open.decision(known.endpoint, Reason::PrefixTrie, u32::MAX)));
        }
        if std::mem::take(&mut self.by_blocks) {
            return Some(Step::Blocks);
        }
        turns::least_to_do(&open?, turn).map(Step::Reserve)
    }
}

/// Not where loads lie too far apart, nor for too small a part of the prompt.
fn may_decide(known: Known, terms: CacheAware, open: &Open) -> bool {
    let loads = || open.indices(0).map(|i| open.load(i));
    let apart = loads().max().unwrap_or(0) - loads().min().unwrap_or(0);
    let enough = known.bytes as u64 * 100 >= u64::from(terms.threshold) * known.of as u64;
    let is_open = known.endpoint < open.fleet.len() && open.contains(known.endpoint);
    apart <= terms.balance && enough && known.bytes > 0 && is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes down a ladder: who was chosen by which tier, and which tiers were asked. Some endpoints refuse; `holds` has
    /// the prompt's blocks.
    fn go(
        mut ladder: Ladder,
        fleet: &[EndpointView],
        turn: &mut Turn,
        refuse: &[usize],
        holds: Option<usize>,
    ) -> (Option<(usize, &'static str)>, Vec<&'static str>) {
        let mut asked = Vec::new();
        while let Some(step) = ladder.next(fleet, turn) {
            match (step, holds) {
                (Step::Reserve(decision), _) => {
                    let tier = decision.reason.tier();
                    asked.push(tier);
                    if !refuse.contains(&decision.endpoint) {
                        return (Some((decision.endpoint, tier)), asked);
                    }
                    ladder.refused(decision.endpoint);
                }
                (Step::Blocks, holds) => {
                    asked.push("tier15");
                    if let Some(holds) = holds {
                        return (Some((holds, "tier15")), asked);
                    }
                }
            }
        }
        (None, asked)
    }

    fn fleet(loads: &[(u32, Option<u32>)]) -> Vec<EndpointView> {
        let view = |(load, queued): &(u32, Option<u32>)| EndpointView {
            available: true,
            load: *load,
            queued: *queued,
            capacity: None,
            weight: 1,
            backup: false,
        };
        loads.iter().map(view).collect()
    }

    fn without(excluded: &[usize]) -> Excluded {
        let mut out = Excluded::default();
        excluded.iter().for_each(|endpoint| out.add(*endpoint));
        out
    }

    const TERMS: CacheAware = CacheAware { threshold: 20, balance: 3 };

    fn known(bytes: usize) -> Option<(Known, CacheAware)> {
        Some((Known { endpoint: 1, bytes, of: 1000 }, TERMS))
    }

    /// Session, trie, blocks and load choose 0, 1, 2 and 3 here; what a case takes away leaves the place to the next.
    #[test]
    fn tiers_decide_in_their_order() {
        let even = fleet(&[(1, Some(0)), (1, Some(0)), (1, Some(0)), (0, Some(0))]);
        let (mut down, mut uneven) = (even.clone(), even.clone());
        (down[0].available, uneven[2].load) = (false, 4);
        let unbound = known(0).map(|(known, _)| (known, CacheAware { threshold: 0, ..TERMS }));
        let all = without(&[]);
        let cases = [
            ("session", Ladder::prefill(all, Some(0), known(200)), &even, &[][..], Some(2), 0, "0"),
            ("it refuses", Ladder::prefill(all, Some(0), known(200)), &even, &[0], Some(2), 1, "0 1"),
            ("it is down", Ladder::prefill(all, Some(0), known(200)), &down, &[], Some(2), 1, "1"),
            ("it is no more", Ladder::prefill(all, Some(9), known(200)), &even, &[], Some(2), 1, "1"),
            ("trie", Ladder::prefill(all, None, known(200)), &even, &[], Some(2), 1, "1"),
            (
                "both excluded",
                Ladder::prefill(without(&[0, 1]), Some(0), known(200)),
                &even,
                &[],
                Some(2),
                2,
                "15",
            ),
            ("too little", Ladder::prefill(all, None, known(199)), &even, &[], Some(2), 2, "15"),
            ("nothing", Ladder::prefill(all, None, unbound), &even, &[], Some(2), 2, "15"),
            ("uneven load", Ladder::prefill(all, None, known(200)), &uneven, &[], Some(2), 2, "15"),
            ("no blocks", Ladder::prefill(all, None, None), &even, &[], None, 3, "15 2"),
            ("load refuses", Ladder::prefill(all, None, None), &even, &[3, 0], None, 1, "15 2 2 2"),
            (
                "all refuse",
                Ladder::prefill(all, Some(0), known(200)),
                &even,
                &[0, 1, 2, 3],
                None,
                9,
                "0 1 15 2 2",
            ),
        ];
        for (case, ladder, fleet, refuse, holds, chosen, tiers) in cases {
            let (found, asked) = go(ladder, fleet, &mut Turn::default(), refuse, holds);
            let expected: Vec<String> = tiers.split(' ').map(|tier| format!("tier{tier}")).collect();
            assert_eq!(asked, expected, "{case}");
            assert_eq!(found.map_or(9, |(endpoint, _)| endpoint), chosen, "{case}");
        }
        let (found, asked) = go(Ladder::prefill(all, None, None), &[], &mut Turn::default(), &[], None);
        assert_eq!((found, asked), (None, vec!["tier15"]), "nobody");
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
            let ladder = Ladder::decode(Excluded::default(), None);
            let (found, _) = go(ladder, &fleet(&loads), &mut Turn::default(), &[], None);
            assert_eq!(found, Some((least, "tier2")), "{loads:?}");
        }
    }

    #[test]
    fn decode_stays_with_its_session_and_takes_turns_among_equals() {
        let (fleet, mut turn) = (fleet(&[(0, None); 4]), Turn::default());
        let mut ask = |pinned, refuse: &[usize]| {
            go(Ladder::decode(without(&[0]), pinned), &fleet, &mut turn, refuse, Some(0)).0
        };
        assert_eq!([0; 4].map(|_| ask(None, &[])), [1, 2, 3, 1].map(|i| Some((i, "tier2"))));
        assert_eq!(ask(Some(3), &[]), Some((3, "tier0")));
        assert_eq!(ask(Some(3), &[3]), Some((2, "tier2")));
        assert_eq!(ask(Some(0), &[]), Some((3, "tier2")), "it is of another role now");
        assert_eq!(ask(None, &[1, 2, 3]), None);
    }
}
