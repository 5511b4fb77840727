//! The provided-buffer ring: where the kernel puts received bytes. Owns the memory of the ring and of the
//! buffers, and which of them the kernel may fill; must never give the kernel a buffer that a shard holds.
//!
//! The kernel fills buffers in the order they were published, so a wide ring walks through all its memory
//! and finds none of it in the cache. So only a window is published, from those returned last, by one store
//! of the tail a turn; the window widens when the kernel ran out of it. What happens when no buffer is left
//! at all: kernel-notes/0008-buffer-starvation.md.
#![allow(unsafe_code)] // memory shared with the kernel, and slices of it for the shard

use crate::{Errno, Sizes};
use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The one buffer group of a ring.
pub(crate) const GROUP: u16 = 0;

/// Buffers published at first. At 64 connections echoing 1 KiB, 128 of them cost 2 to 4 % less CPU than
/// 1,024, and what is never published never becomes resident.
const WINDOW_MIN: u16 = 128;

/// Anonymous memory, zeroed and page-aligned, given back on drop.
struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Result<Pages, Errno> {
        // SAFETY: a null hint lets the kernel choose an address, so no existing mapping is replaced.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno(rustix::io::Errno::NOMEM.raw_os_error()))?;
        Ok(Pages { start, len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; every slice of it borrowed from the owner of `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The ring and its buffers.
pub(crate) struct Buffers {
    ring: Pages,
    data: Pages,
    buffer_bytes: u32,
    count: u16,
    /// Where the next published buffer goes.
    tail: u16,
    /// Published and not yet seen to be filled.
    free: u16,
    /// How many should be.
    window: u16,
    /// Neither published nor held; the last one returned is published first.
    reserve: Vec<u16>,
}

impl Buffers {
    /// Maps and registers `sizes.buffers` buffers, all published. Must be dropped after `ring`.
    pub(crate) fn new(ring: &IoUring, sizes: &Sizes) -> Result<Buffers, Errno> {
        let count = sizes.buffers;
        let mut buffers = Buffers {
            ring: Pages::new(usize::from(count) * size_of::<BufRingEntry>())?,
            data: Pages::new(usize::from(count) * sizes.buffer_bytes as usize)?,
            buffer_bytes: sizes.buffer_bytes,
            count,
            tail: 0,
            free: 0,
            window: WINDOW_MIN.min(count),
            reserve: (0..count).rev().collect(),
        };
        let address = buffers.ring.start.as_ptr() as u64;
        // SAFETY: the mapping holds `count` entries and outlives the ring (see the field order in `Uring`).
        unsafe { ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0) }?;
        buffers.publish();
        Ok(buffers)
    }

    /// Takes back a buffer that nobody holds any more; the kernel sees it after `publish` at the earliest.
    pub(crate) fn give(&mut self, id: u16) {
        debug_assert!(id < self.count && !self.reserve.contains(&id), "a buffer is given back once");
        self.reserve.push(id);
    }

    /// Fills the window, and shows it to the kernel.
    pub(crate) fn publish(&mut self) {
        let before = self.tail;
        while self.free < self.window {
            let Some(id) = self.reserve.pop() else { break };
            self.offer(id);
            self.free += 1;
        }
        if self.tail == before {
            return;
        }
        let entries = self.ring.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the start of the mapping is the ring's first entry, as `tail` asks; the field is aligned,
        // lives as long as the mapping, and is written by nobody else.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Writes one buffer into the ring, not yet visible.
    fn offer(&mut self, id: u16) {
        let index = usize::from(self.tail & (self.count - 1));
        let address = self.at(id).as_ptr() as u64;
        // SAFETY: `index` is below `count`, and an entry beyond the published tail is ours alone; the tail
        // itself lies in the first entry's last field, which none of these setters writes.
        let entry = unsafe { &mut *self.ring.start.as_ptr().cast::<BufRingEntry>().add(index) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Notes that the kernel found the window empty: more is published from now on.
    pub(crate) fn ran_out(&mut self) {
        if !self.reserve.is_empty() {
            self.window = self.window.saturating_mul(2).min(self.count);
        }
    }

    /// Notes that the kernel filled a buffer.
    pub(crate) fn taken(&mut self) {
        debug_assert!(self.free > 0);
        self.free -= 1;
    }

    /// Buffers that the kernel may fill, as far as completions have told.
    pub(crate) fn free(&self) -> u16 {
        self.free
    }

    /// Buffers that neither a shard nor a send holds.
    pub(crate) fn idle(&self) -> u16 {
        self.free + self.reserve.len() as u16
    }

    /// The first `len` bytes of a buffer that the caller holds.
    pub(crate) fn bytes(&self, id: u16, len: u32) -> &[u8] {
        assert!(len <= self.buffer_bytes, "a buffer of another ring");
        // SAFETY: inside the mapping, initialized (zeroed pages), and not the kernel's while it is held.
        unsafe { std::slice::from_raw_parts(self.at(id).as_ptr(), len as usize) }
    }

    /// The same, to change.
    pub(crate) fn bytes_mut(&mut self, id: u16, len: u32) -> &mut [u8] {
        assert!(len <= self.buffer_bytes, "a buffer of another ring");
        // SAFETY: as in `bytes`; a buffer has one holder, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at(id).as_ptr(), len as usize) }
    }

    fn at(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "a buffer of another ring");
        // SAFETY: `id` is below `count`, so the offset is inside the mapping.
        unsafe { self.data.start.add(usize::from(id) * self.buffer_bytes as usize) }
    }
}
