//! Segments that move: to places of their own as they fill up, and beside themselves when full of dead keys. Owns
//! the places that no segment uses; must never reuse one that a reader may look at.

use crate::plan::{DEAD_SHARE, FIRST, Plan};
use crate::publish::{BUCKET, Shared};
use crate::writer::{Fill, Writer};
use std::collections::VecDeque;
use std::ops::Range;

/// Places that no segment uses.
#[derive(Debug)]
pub(crate) struct Spares {
    /// Seen by no reader, most of them never used; the lowest last.
    free: Vec<usize>,
    /// Retired with a tag, oldest first: readers may still look.
    retired: VecDeque<(u64, usize)>,
    /// By bucket: what a rebuild counts.
    filled: Box<[u8]>,
}

impl Spares {
    pub fn new(plan: Plan) -> Spares {
        Spares {
            free: (FIRST + 1..plan.places()).rev().collect(),
            retired: VecDeque::new(),
            filled: vec![0; plan.slots / BUCKET].into(),
        }
    }

    /// A place that no reader looks at, rather one whose memory is in use already; none while readers look at all.
    fn take(&mut self, shared: &Shared) -> Option<usize> {
        match self.retired.front() {
            Some((tag, _)) if shared.quiet_since(*tag) => self.retired.pop_front().map(|(_, place)| place),
            _ => self.free.pop(),
        }
    }

    /// All places here.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.free.iter().copied().chain(self.retired.iter().map(|(_, place)| *place))
    }
}

impl Writer {
    /// Makes room in a place: by a rebuild if half of it is dead, or it has one segment and enough is dead; else, if
    /// segments share it, half of them move out. Needs free places; without, the segments go on in their remaining
    /// slots, and the next new key tries again.
    #[cold]
    pub(crate) fn make_room(&mut self, place: usize) -> bool {
        if self.fills[place].stale {
            self.sweep_place(place);
        }
        let fill = self.fills[place];
        let dead = fill.used - fill.live;
        let moved = match fill.is_shared() {
            true if dead < fill.live => self.split(place),
            _ if dead as usize * DEAD_SHARE < self.shared.plan.slots => false,
            _ => self.rebuild(place),
        };
        if moved {
            self.spares.retired.push_back((self.shared.retire(), place));
            self.fills[place] = Fill::default();
        }
        moved
    }

    /// Copies the live blocks of a place to another.
    fn rebuild(&mut self, place: usize) -> bool {
        let Some(to) = self.spares.take(&self.shared) else { return false };
        self.move_to(place, self.fills[place].segments(), to);
        self.fills[to].rebuilt = true;
        self.rebuilds += 1;
        true
    }

    /// Copies the live blocks of each half of a place's segments to a place of its own.
    fn split(&mut self, place: usize) -> bool {
        let Some(left) = self.spares.take(&self.shared) else { return false };
        let Some(right) = self.spares.take(&self.shared) else {
            self.spares.free.push(left);
            return false;
        };
        let Range { start, end } = self.fills[place].segments();
        let middle = start + (end - start) / 2;
        self.move_to(place, start..middle, left);
        self.move_to(place, middle..end, right);
        true
    }

    fn move_to(&mut self, from: usize, segments: Range<usize>, to: usize) {
        let filled = &mut self.spares.filled;
        let moved = match self.shared.plan.words {
            1 => self.shared.copy::<1>(from, &segments, to, filled),
            2 => self.shared.copy::<2>(from, &segments, to, filled),
            _ => self.shared.copy::<0>(from, &segments, to, filled),
        };
        let (first, end) = (segments.start as u32, segments.end as u32);
        self.fills[to] = Fill { first, end, used: moved, live: moved, ..Fill::default() };
        self.shared.move_in(segments, to);
    }
}
