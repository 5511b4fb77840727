//! How a byte budget becomes a table: words a holder set, slots a segment, segments, spares, and how full a
//! segment may get. Pure arithmetic; must never allocate.
//!
//! A slot is a key and one word for each 64 holders. The rated size is one more word a block than a slot has:
//! 24 bytes a block up to 64 holders, 32 up to 128, 8 more for each further 64, spares included.

use std::fmt;

/// The most holders of one index.
pub const HOLDERS_MAX: usize = 64 * WORDS_MAX;

/// The most words of a holder set.
pub(crate) const WORDS_MAX: usize = 16;

/// The most slots of a segment: one is rebuilt in a fraction of a millisecond.
const SLOTS_MAX: usize = 1 << 15;

/// The fewest slots of a segment.
const SLOTS_MIN: usize = 256;

/// A budget of at least this many segments before segments grow, so that spares are a small part.
const SEGMENTS_WANTED: usize = 32;

/// The place of all segments at first.
pub(crate) const FIRST: usize = 0;

/// One spare for this many segments: where rebuilds go while a reader still looks at the old ones.
const SEGMENTS_PER_SPARE: usize = 32;

/// Fewest spares.
const SPARES_MIN: usize = 2;

/// Bytes of a place's fill, on the writer's side.
const FILL_BYTES: usize = 20;

/// Bytes of a holder: its name and last clear for readers, its lease and count for the writer.
const HOLDER_BYTES: usize = 32;

/// Bytes of a reader's pin.
const READER_BYTES: usize = 128;

/// A rebuild is worth it if it frees at least one slot in this many.
pub(crate) const DEAD_SHARE: usize = 32;

/// The most the depth ladder admits at its lowest step; each further step halves it.
const DEPTH_STEPS: u32 = 17;

/// Sizes of an index, fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(crate) words: usize,
    pub(crate) slots: usize,
    pub(crate) segments: usize,
    pub(crate) spares: usize,
    pub(crate) readers: usize,
    pub(crate) limits: Limits,
}

/// How full a segment may get, in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Live blocks up to which every depth is admitted.
    pub rated: usize,
    /// Used slots (live and dead) at which dead ones are worth a rebuild.
    pub rebuild: usize,
    /// Used slots that are never passed: a probe always meets an empty slot.
    pub hard: usize,
}

/// Why a plan is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFault {
    /// The bytes do not make the smallest table; so many are needed.
    TooSmall {
        /// Bytes of the smallest table for that many holders.
        needed: usize,
    },
    /// More than [`HOLDERS_MAX`] holders, or none.
    Holders,
}

impl Plan {
    /// A table of at most `bytes` (both sides) for up to `holders` holders and `readers` reading threads.
    pub fn for_bytes(bytes: usize, holders: usize, readers: usize) -> Result<Plan, PlanFault> {
        if holders == 0 || holders > HOLDERS_MAX {
            return Err(PlanFault::Holders);
        }
        let words = holders.div_ceil(64);
        let readers = readers.max(1);
        let rest = bytes.saturating_sub(fixed_bytes(words, readers));
        let slots = slots_for(rest, words);
        let places = rest / place_bytes(slots, words);
        let spares = (places / SEGMENTS_PER_SPARE).max(SPARES_MIN);
        if places <= spares {
            return Err(PlanFault::TooSmall { needed: smallest(words, readers) });
        }
        let segments = places - spares;
        Ok(Plan {
            words,
            slots,
            segments,
            spares,
            readers,
            limits: Limits::of(slots, words, places, segments),
        })
    }

    /// A table that takes `blocks` distinct blocks of every depth (less a segment, by rounding), for so many
    /// holders and readers.
    pub fn for_blocks(blocks: usize, holders: usize, readers: usize) -> Result<Plan, PlanFault> {
        let words = holders.div_ceil(64);
        let readers = readers.max(1);
        let bytes = blocks.saturating_mul(rated_bytes(words)).saturating_add(fixed_bytes(words, readers));
        Plan::for_bytes(bytes.max(smallest(words, readers)), holders, readers)
    }

    /// Exactly these sizes, to make small tables small.
    #[cfg(test)]
    pub(crate) fn exactly(slots: usize, segments: usize, spares: usize, holders: usize) -> Plan {
        let words = holders.div_ceil(64);
        let limits = Limits::of(slots, words, segments + spares, segments);
        Plan { words, slots, segments, spares, readers: 2, limits }
    }

    /// Distinct blocks that it takes whatever their depth.
    pub fn capacity(&self) -> usize {
        self.segments * self.limits.rated
    }

    /// Bytes that readers see: slots, spares and their directory.
    pub fn reader_bytes(&self) -> usize {
        self.places() * (place_bytes(self.slots, self.words) - FILL_BYTES)
    }

    /// Holders that fit.
    pub fn bits(&self) -> usize {
        self.words * 64
    }

    /// Whether it is a segment's turn to be rebuilt for the first time. All of them fill up alike, and were rebuilt all
    /// at once if each waited until it is full: 30 ms in which no event is seen. So the first times are spread over what
    /// room there is for dead keys; later ones are as far apart as these.
    pub(crate) fn is_early(&self, segment: usize, used: u32, live: u32) -> bool {
        let least = self.slots / DEAD_SHARE;
        let room = self.limits.rebuild.saturating_sub(live as usize + least);
        (used - live) as usize >= least + room * (segment + 1) / self.segments
    }

    /// Used slots at which segments no longer share a place, by the first of them. Places fill up alike too: those of low
    /// segments are divided at an eighth, of high ones at half, where few keys are in another bucket than their first.
    pub(crate) fn shared_most(&self, segment: usize) -> usize {
        let (least, most) = (self.slots / 8, (self.slots / 2).min(self.limits.rated));
        least + most.saturating_sub(least) * segment / self.segments
    }

    pub(crate) fn places(&self) -> usize {
        self.segments + self.spares
    }
}

impl Limits {
    /// Rated: what the rated bytes a block allow, if the segments then keep some empty slots; the rest of a
    /// segment is shared between dead keys (first half of it) and blocks admitted by depth.
    fn of(slots: usize, words: usize, places: usize, segments: usize) -> Limits {
        let by_bytes = slots * (words + 1) * places / ((words + 2) * segments);
        let rated = by_bytes.min(slots * 9 / 10).max(1);
        let free = slots - rated;
        Limits { rated, rebuild: rated + free / 2, hard: (rated + free * 3 / 4).min(slots - 1) }
    }

    /// Whether a new block of `depth` (its place in the prompt, 0 first) enters a segment with so many live
    /// ones: above the rated fill the admitted depth halves with each step, the first blocks last of all.
    pub fn admits(&self, live: usize, depth: u32) -> bool {
        if live < self.rated {
            return true;
        }
        if live >= self.hard {
            return false;
        }
        let step = (live - self.rated) as u64 * u64::from(DEPTH_STEPS) / (self.hard - self.rated) as u64;
        depth < 1 << (DEPTH_STEPS - 1 - step as u32)
    }
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanFault::TooSmall { needed } => write!(f, "the index needs at least {needed} bytes"),
            PlanFault::Holders => write!(f, "an index has 1 to {HOLDERS_MAX} holders"),
        }
    }
}

impl std::error::Error for PlanFault {}

/// The largest power of two that still makes enough segments.
fn slots_for(bytes: usize, words: usize) -> usize {
    let mut slots = SLOTS_MAX;
    while slots > SLOTS_MIN && bytes / place_bytes(slots, words) < SEGMENTS_WANTED {
        slots /= 2;
    }
    slots
}

/// A segment with its directory entry, its words of valid holders and its fill.
fn place_bytes(slots: usize, words: usize) -> usize {
    slots * slot_bytes(words) + 8 * words + 4 + FILL_BYTES
}

fn slot_bytes(words: usize) -> usize {
    8 + 8 * words
}

fn rated_bytes(words: usize) -> usize {
    16 + 8 * words
}

/// What does not grow with the blocks.
fn fixed_bytes(words: usize, readers: usize) -> usize {
    64 * words * HOLDER_BYTES + readers * READER_BYTES
}

fn smallest(words: usize, readers: usize) -> usize {
    (SPARES_MIN + 1) * place_bytes(SLOTS_MIN, words) + fixed_bytes(words, readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_million_blocks_keep_the_rated_bytes() {
        for (holders, rated) in [(1, 24), (64, 24), (65, 32), (128, 32), (129, 40), (256, 48)] {
            let plan = Plan::for_blocks(8_000_000, holders, 4).unwrap();
            assert!(plan.capacity() >= 7_960_000, "{holders}: {}", plan.capacity());
            assert!(plan.reader_bytes() <= rated * 8_000_000, "{holders}: {}", plan.reader_bytes());
        }
    }

    #[test]
    fn the_budget_is_kept() {
        for bytes in [200_000, 1 << 20, 256 << 20] {
            for holders in [3, 64, 200, HOLDERS_MAX] {
                let plan = Plan::for_bytes(bytes, holders, 2).unwrap();
                assert!(plan.reader_bytes() + fixed_bytes(plan.words, 2) <= bytes);
                assert!(plan.limits.rated < plan.limits.rebuild && plan.limits.rebuild <= plan.limits.hard);
                assert!(plan.limits.hard < plan.slots);
            }
        }
    }

    #[test]
    fn impossible_plans_say_what_is_needed() {
        let Err(PlanFault::TooSmall { needed }) = Plan::for_bytes(100, 64, 1) else { panic!("100 bytes") };
        assert!(Plan::for_bytes(needed, 64, 1).is_ok() && Plan::for_bytes(needed - 1, 64, 1).is_err());
        assert_eq!(Plan::for_bytes(1 << 30, HOLDERS_MAX + 1, 1), Err(PlanFault::Holders));
        assert_eq!(Plan::for_bytes(1 << 30, 0, 1), Err(PlanFault::Holders));
        assert!(Plan::for_blocks(1, 64, 1).is_ok());
    }

    #[test]
    fn depth_is_admitted_in_falling_steps_above_the_rated_fill() {
        let limits = Limits { rated: 100, rebuild: 120, hard: 134 };
        assert!(limits.admits(99, u32::MAX));
        assert!(limits.admits(100, 65_535) && !limits.admits(100, 65_536));
        assert!(limits.admits(133, 0) && !limits.admits(133, 1));
        assert!(!limits.admits(134, 0));
    }
}
