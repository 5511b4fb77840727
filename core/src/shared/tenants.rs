//! How many requests each tenant of a service has, for the few that are busy at once. Owns a table of words; must never
//! know who a tenant is.
//!
//! A word is a tenant's tag and its count, changed by compare and swap and read alone. A tenant without requests has
//! no word. Two shards that give one tenant its first two words at once count it apart until one is empty again: it may
//! then have a little more than its share, never less. Where all words are taken a tenant is not counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tenants that are counted at once.
pub const TENANTS_MAX: usize = 64;

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The table of one service.
#[derive(Debug)]
pub struct Tenants([AtomicU64; TENANTS_MAX]);

/// What became of one more request of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It counts until [`Tenants::leave`] with this tag.
    Taken(u64),
    /// The tenant has as many as it may.
    Refused,
    /// All words are other tenants': it counts nowhere.
    Uncounted,
}

impl Default for Tenants {
    fn default() -> Self {
        Tenants([const { AtomicU64::new(0) }; TENANTS_MAX])
    }
}

impl Tenants {
    /// The hash of what names a tenant.
    pub fn hash(name: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(name)
    }

    /// One more of the tenant with this hash, if it has fewer than `most` (1 at least).
    pub fn enter(&self, hash: u64, most: u32) -> Seat {
        let tag = hash >> COUNT_BITS;
        loop {
            let Some((place, word)) = self.find(tag) else { return Seat::Uncounted };
            let count = word & COUNT;
            if count >= u64::from(most.max(1)).min(COUNT) {
                return Seat::Refused;
            }
            let more = tag << COUNT_BITS | (count + 1);
            if place.compare_exchange(word, more, Relaxed, Relaxed).is_ok() {
                return Seat::Taken(tag);
            }
        }
    }

    /// One less of a tag that was taken.
    pub fn leave(&self, tag: u64) {
        while let Some((place, word)) = self.find(tag).filter(|(_, word)| word & COUNT > 0) {
            let less = if word & COUNT == 1 { 0 } else { word - 1 };
            if place.compare_exchange(word, less, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Tenants with requests.
    pub fn active(&self) -> usize {
        self.0.iter().filter(|word| word.load(Relaxed) & COUNT > 0).count()
    }

    /// The tag's word, else an empty one.
    fn find(&self, tag: u64) -> Option<(&AtomicU64, u64)> {
        let mut empty = None;
        for place in &self.0 {
            let word = place.load(Relaxed);
            match word & COUNT {
                0 if empty.is_none() => empty = Some((place, word)),
                1.. if word >> COUNT_BITS == tag => return Some((place, word)),
                _ => {}
            }
        }
        empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_others_theirs() {
        let tenants = Tenants::default();
        let (one, other) = (7 << 32, 9 << 32);
        let Seat::Taken(tag) = tenants.enter(one, 2) else { panic!("refused") };
        assert_eq!((tenants.enter(one, 2), tenants.enter(one, 2)), (Seat::Taken(tag), Seat::Refused));
        assert!(matches!(tenants.enter(other, 2), Seat::Taken(_)));
        assert_eq!(tenants.active(), 2);
        tenants.leave(tag);
        assert_eq!(tenants.enter(one, 2), Seat::Taken(tag));
        tenants.leave(tag);
        tenants.leave(tag);
        assert_eq!(tenants.active(), 1);
        tenants.leave(tag);
        assert_eq!(tenants.active(), 1, "one too many changes nothing");
    }

    #[test]
    fn beyond_the_table_tenants_are_not_counted() {
        let tenants = Tenants::default();
        let seats: Vec<Seat> = (1..=65).map(|n| tenants.enter(n << 40, 1)).collect();
        assert!(seats[..64].iter().all(|seat| matches!(seat, Seat::Taken(_))));
        assert_eq!((seats[64], tenants.enter(1 << 40, 1)), (Seat::Uncounted, Seat::Refused));
    }

    #[test]
    fn four_threads_leave_nothing_behind() {
        let tenants = Tenants::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let tenants = &tenants;
                scope.spawn(move || {
                    for n in 0..20_000u64 {
                        if let Seat::Taken(tag) = tenants.enter(((thread + n) % 5) << 33, 3) {
                            tenants.leave(tag);
                        }
                    }
                });
            }
        });
        assert_eq!(tenants.active(), 0);
    }
}
