//! The full walk over everything that must hold between two calls of the writer. Slow; for tests and for the
//! simulator. Must never change anything.

use crate::publish::Probe;
use crate::writer::{Fill, Writer};
use std::collections::HashSet;

/// An invariant that does not hold, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl Writer {
    /// Walks every invariant of the index.
    pub fn check(&self) -> Result<(), Broken> {
        self.check_places()?;
        let mut held = vec![0; self.shared.plan.bits()];
        for (place, fill) in self.fills.iter().enumerate().filter(|(_, fill)| fill.end > fill.first) {
            self.check_place(place, *fill, &mut held)?;
        }
        for (bit, held) in held.iter().enumerate() {
            let counted = self.bits.held(bit);
            ensure(*held == counted, || format!("bit {bit}: {held} blocks, counted {counted}"))?;
        }
        Ok(())
    }

    /// Every segment is where the fill of a place says, and every other place is one spare.
    fn check_places(&self) -> Result<(), Broken> {
        let used = || self.fills.iter().enumerate().filter(|(_, fill)| fill.end > fill.first);
        let places: Vec<usize> = used().map(|(place, _)| place).chain(self.spares.places()).collect();
        let distinct: HashSet<usize> = places.iter().copied().collect();
        ensure(distinct.len() == places.len() && places.len() == self.shared.plan.places(), || {
            format!("places {places:?} of {}", self.shared.plan.places())
        })?;
        let homes = used().flat_map(|(place, fill)| fill.segments().map(move |segment| (segment, place)));
        let wrong = homes.clone().find(|(segment, place)| self.shared.place(*segment) != *place);
        ensure(wrong.is_none() && homes.count() == self.shared.plan.segments, || {
            format!("segments of {:?}: {wrong:?}", self.fills)
        })
    }

    /// Each key is where a probe finds it; the fill is what the slots say; only stale places have stale bits.
    fn check_place(&self, place: usize, fill: Fill, held: &mut [usize]) -> Result<(), Broken> {
        let (mut used, mut live) = (0, 0);
        for (at, key) in self.shared.used(place) {
            let home = self.shared.home(key);
            let found = matches!(self.shared.probe::<0>(home, key), Some(Probe::Found(met)) if met == at);
            ensure(fill.segments().contains(&home.segment) && found, || {
                format!("key {key:#x} is not where it belongs")
            })?;
            used += 1;
            live += u32::from(!self.is_dead::<0>(at));
            for word in 0..self.shared.plan.words {
                let bits = self.shared.raw::<0>(at, word);
                let valid = self.shared.valid(place, word);
                ensure(fill.stale || bits & !valid == 0, || format!("place {place} has stale bits"))?;
                crate::holders::bits_of(bits & valid).for_each(|bit| held[word * 64 + bit] += 1);
            }
        }
        ensure((used, live) == (fill.used, fill.live), || {
            format!("place {place}: {used} used, {live} live, counted {fill:?}")
        })?;
        ensure(used as usize <= self.shared.plan.limits.hard, || format!("place {place} is over its limit"))
    }
}

fn ensure(holds: bool, else_what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(else_what())) }
}
