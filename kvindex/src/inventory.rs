//! All keys of one holder, page by page, for an inventory. Owns the order of the pages; must never change
//! anything, nor look at more than a bounded part of the table in one call.
//!
//! The order is that of the keys' home buckets. A rebuild moves keys to other slots but not to other homes, so a
//! cursor means the same after it.

use crate::holders::Holder;
use crate::publish::{BUCKET, Home, told_key};
use crate::writer::Writer;

/// Slots that one call looks at before it ends its page, full or not.
const LOOKS: usize = 1 << 15;

/// Where the next page of [`Writer::keys_of`] begins. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    segment: usize,
    slot: usize,
}

impl From<Cursor> for u64 {
    fn from(cursor: Cursor) -> u64 {
        (cursor.segment as u64) << 32 | cursor.slot as u64
    }
}

/// Any number is one: beyond the end there are no keys.
impl From<u64> for Cursor {
    fn from(number: u64) -> Cursor {
        Cursor { segment: (number >> 32) as usize, slot: number as u32 as usize }
    }
}

impl Writer {
    /// A page of the keys that a holder has, in no order that means anything, and where the next page begins;
    /// no cursor after the last. A page ends at `limit` keys (a few more, since the keys of one home bucket stay
    /// together) or after some tens of thousands of slots, so it may be short, or empty, with more to come.
    ///
    /// Over all pages each key comes once; one that was stored or removed between two pages comes or does not.
    /// A key equal to one of the two that stand in for 0 and `u64::MAX` is told as that.
    pub fn keys_of(&self, holder: Holder, from: Cursor, limit: usize) -> (Vec<u64>, Option<Cursor>) {
        let mut keys = Vec::new();
        if !self.bits.knows(holder) {
            return (keys, None);
        }
        let (mut at, mut looks) = (from, 0);
        while at.segment < self.shared.plan.segments {
            if looks >= LOOKS || keys.len() >= limit.max(1) {
                return (keys, Some(at));
            }
            looks += self.keys_at(self.shared.home_at(at.segment, at.slot), holder.bit(), &mut keys);
            at = self.after(at);
        }
        (keys, None)
    }

    /// Adds the keys of one home bucket that a bit has; how many slots it looked at.
    fn keys_at(&self, home: Home, bit: usize, keys: &mut Vec<u64>) -> usize {
        let mut looks = 1;
        for (at, key) in self.shared.run(home) {
            looks += 1;
            let held = || self.shared.holders::<0>(at, bit / 64) >> (bit % 64) & 1 == 1;
            if self.shared.home(key) == home && held() {
                keys.push(told_key(key));
            }
        }
        looks
    }

    fn after(&self, at: Cursor) -> Cursor {
        let slot = at.slot - at.slot % BUCKET + BUCKET;
        if slot < self.shared.plan.slots {
            Cursor { slot, ..at }
        } else {
            Cursor { segment: at.segment + 1, slot: 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Random, key_of};
    use crate::{Plan, index};
    use std::collections::BTreeSet;

    /// All pages; `between` runs after each.
    fn all(
        writer: &mut Writer,
        holder: Holder,
        limit: usize,
        mut between: impl FnMut(&mut Writer),
    ) -> Vec<u64> {
        let (mut told, mut from) = (Vec::new(), Some(Cursor::default()));
        while let Some(at) = from {
            let page;
            (page, from) = writer.keys_of(holder, at, limit);
            assert!(page.len() < limit + 30, "{} of {limit}", page.len());
            told.extend(page);
            between(writer);
        }
        told
    }

    #[test]
    fn pages_have_each_key_once_and_nothing_of_others_or_of_before_a_clear() {
        let (mut writer, _readers) = index(Plan::for_blocks(9_000, 100, 1).unwrap(), 3);
        let holders: Vec<Holder> = (0..100).map(|name| writer.register(name).unwrap()).collect();
        let keys: Vec<u64> = (0..4_000).map(key_of).collect();
        writer.store(holders[99], &keys, 0);
        writer.clear(holders[99]);
        writer.store(holders[99], &keys[..3_000], 0);
        writer.remove(holders[99], &keys[1_000..1_100]);
        writer.store(holders[4], &keys[2_000..], 0);
        let expected: BTreeSet<u64> = keys[..1_000].iter().chain(&keys[1_100..3_000]).copied().collect();
        for limit in [1, 7, 500, 100_000] {
            let told = all(&mut writer, holders[99], limit, |_| ());
            assert_eq!(told.len(), expected.len(), "limit {limit}");
            assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), expected);
        }
        assert!(expected.contains(&0) && expected.contains(&u64::MAX));
        assert_eq!(all(&mut writer, holders[5], 10, |_| ()), []);
        for number in [u64::from(u32::MAX), u64::MAX] {
            assert!(writer.keys_of(holders[99], Cursor::from(number), 10).0.len() < 10 + 30, "{number}");
        }
        writer.release(holders[99]);
        assert_eq!(writer.keys_of(holders[99], Cursor::default(), 10), (vec![], None));
    }

    #[test]
    fn what_stays_is_told_once_though_all_else_changes_and_segments_are_rebuilt() {
        let (mut writer, _readers) = index(Plan::for_blocks(3_000, 2, 1).unwrap(), 3);
        let (holder, other) = (writer.register(0).unwrap(), writer.register(1).unwrap());
        let stay: Vec<u64> = (2..800).map(key_of).collect();
        writer.store(holder, &stay, 0);
        let (mut random, mut last) = (Random(1 << 40), Vec::new());
        let told = all(&mut writer, holder, 10, |writer| {
            for owner in [holder, other] {
                writer.remove(owner, &last);
            }
            last = (0..200).map(|_| random.word()).collect();
            writer.store(if random.below(2) == 0 { holder } else { other }, &last, 0);
        });
        assert!(writer.stats().rebuilds > 10, "{:?}", writer.stats());
        let of_stay: Vec<u64> = told.iter().copied().filter(|key| stay.contains(key)).collect();
        assert_eq!(of_stay.len(), stay.len());
        assert_eq!(of_stay.into_iter().collect::<BTreeSet<_>>(), stay.into_iter().collect());
        assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len(), "none twice");
    }
}
