//! Rebuilds of segments full of dead keys, and the places they move to. Must never reuse a place that a reader
//! may look at.

use crate::plan::{DEAD_SHARE, Plan};
use crate::publish::{BUCKET, Shared};
use crate::writer::{Fill, Writer};
use std::collections::VecDeque;

/// Places that no segment uses.
#[derive(Debug)]
pub(crate) struct Spares {
    /// Seen by no reader.
    free: Vec<usize>,
    /// Retired with a tag, oldest first: readers may still look.
    retired: VecDeque<(u64, usize)>,
    /// By bucket: what a rebuild counts.
    filled: Box<[u8]>,
}

impl Spares {
    pub fn new(plan: Plan) -> Spares {
        Spares {
            free: (plan.segments..plan.places()).collect(),
            retired: VecDeque::with_capacity(plan.spares),
            filled: vec![0; plan.slots / BUCKET].into(),
        }
    }

    /// A place to rebuild in; none while readers look at all of them.
    fn take(&mut self, shared: &Shared) -> Option<usize> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let (tag, place) = *self.retired.front()?;
        if !shared.quiet_since(tag) {
            return None;
        }
        self.retired.pop_front();
        Some(place)
    }

    /// All places here.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.free.iter().copied().chain(self.retired.iter().map(|(_, place)| *place))
    }
}

impl Writer {
    /// Rebuilds a segment beside itself if enough of it is dead, or may be, and a place is free. Without a
    /// free place the segment goes on in its remaining slots, and the next new key tries again.
    #[cold]
    pub(crate) fn rebuild_if_worth(&mut self, segment: usize) -> bool {
        if self.fills[segment].stale {
            self.sweep_segment(segment);
        }
        let fill = self.fills[segment];
        if (fill.used - fill.live) as usize * DEAD_SHARE < self.shared.plan.slots {
            return false;
        }
        let Some(place) = self.spares.take(&self.shared) else { return false };
        self.rebuild(segment, place);
        true
    }

    /// Copies the live blocks of a segment to another place, publishes it and retires the old one.
    fn rebuild(&mut self, segment: usize, place: usize) {
        let from = self.shared.place(segment);
        let filled = &mut self.spares.filled;
        let moved = match self.shared.plan.words {
            1 => self.shared.copy::<1>(from, place, filled),
            2 => self.shared.copy::<2>(from, place, filled),
            _ => self.shared.copy::<0>(from, place, filled),
        };
        let (old, tag) = self.shared.replace(segment, place);
        self.spares.retired.push_back((tag, old));
        self.fills[segment] = Fill { used: moved, live: moved, stale: false, rebuilt: true };
        self.rebuilds += 1;
    }
}
