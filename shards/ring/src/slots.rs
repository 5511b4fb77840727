//! A dense table of tenants by slot and generation. Owns which handle is valid; must never hand out a slot
//! whose tenant has not been removed. The generation is what makes a late completion harmless:
//! kernel-notes/0002-user-data-generation.md.

use crate::Sock;

/// Slots of `T`, reused last-in first-out so that warm entries serve again.
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

struct Entry<T> {
    generation: u32,
    tenant: Option<T>,
}

/// Slots are named in 24 bits of `user_data`, see `uring/token.rs`.
pub(crate) const SLOTS_MAX: u32 = 1 << 24;

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new() }
    }

    /// Moves a tenant in. `None` when every slot is taken.
    pub(crate) fn insert(&mut self, tenant: T) -> Option<Sock> {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.generation = entry.generation.wrapping_add(1);
            entry.tenant = Some(tenant);
            return Some(Sock { slot, generation: entry.generation });
        }
        let slot = u32::try_from(self.entries.len()).ok().filter(|slot| *slot < SLOTS_MAX)?;
        self.entries.push(Entry { generation: 0, tenant: Some(tenant) });
        Some(Sock { slot, generation: 0 })
    }

    /// The tenant that `sock` names, if it still lives there.
    pub(crate) fn get_mut(&mut self, sock: Sock) -> Option<&mut T> {
        let entry = self.entries.get_mut(sock.slot as usize)?;
        if entry.generation != sock.generation {
            return None;
        }
        entry.tenant.as_mut()
    }

    /// Moves the tenant out; the slot may be taken again.
    pub(crate) fn remove(&mut self, sock: Sock) -> Option<T> {
        let entry = self.entries.get_mut(sock.slot as usize)?;
        if entry.generation != sock.generation {
            return None;
        }
        let tenant = entry.tenant.take()?;
        self.free.push(sock.slot);
        Some(tenant)
    }

    /// Tenants now.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_does_not_answer_to_its_old_name() {
        let mut slots = Slots::new();
        let first = slots.insert("first").unwrap();
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second").unwrap();
        assert_eq!(second.slot, first.slot);
        assert_ne!(second.generation, first.generation);
        assert!(slots.get_mut(first).is_none());
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut "second"));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_generation_may_wrap() {
        let mut slots = Slots::new();
        let mut sock = slots.insert(()).unwrap();
        slots.remove(sock);
        slots.entries[0].generation = u32::MAX;
        sock = slots.insert(()).unwrap();
        assert_eq!(sock.generation, 0);
    }
}
