//! The provided-buffer ring: where the kernel puts received bytes. Owns the memory of the ring and of the
//! buffers, and which of them the kernel may fill; must never give the kernel a buffer that a shard holds.
//!
//! Returned buffers are written into the ring at once and published together, by one store of the tail a
//! turn. What happens when none is left: kernel-notes/0008-buffer-starvation.md.
#![allow(unsafe_code)] // memory shared with the kernel, and slices of it for the shard

use crate::{Errno, Sizes};
use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The one buffer group of a ring.
pub(crate) const GROUP: u16 = 0;

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
    /// Where the next returned buffer goes.
    tail: u16,
    /// Returned since the last publication.
    unpublished: u16,
    /// Published and not yet seen to be filled.
    free: u16,
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
            unpublished: 0,
            free: 0,
        };
        let address = buffers.ring.start.as_ptr() as u64;
        // SAFETY: the mapping holds `count` entries and outlives the ring (see the field order in `Uring`).
        unsafe { ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0) }?;
        (0..count).for_each(|id| buffers.give(id));
        buffers.publish();
        Ok(buffers)
    }

    /// Puts a buffer that nobody holds any more back into the ring; the kernel sees it after `publish`.
    pub(crate) fn give(&mut self, id: u16) {
        debug_assert!(id < self.count && self.unpublished + self.free < self.count);
        let index = usize::from(self.tail & (self.count - 1));
        let address = self.at(id).as_ptr() as u64;
        // SAFETY: `index` is below `count`, and an entry beyond the published tail is ours alone; the tail
        // itself lies in the first entry's last field, which none of these setters writes.
        let entry = unsafe { &mut *self.ring.start.as_ptr().cast::<BufRingEntry>().add(index) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.unpublished += 1;
    }

    /// Shows all returned buffers to the kernel.
    pub(crate) fn publish(&mut self) {
        if self.unpublished == 0 {
            return;
        }
        // SAFETY: the start of the mapping is the ring's first entry, as `tail` asks; the field is aligned,
        // lives as long as the mapping, and is written by nobody else.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring.start.as_ptr().cast()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
        self.free += self.unpublished;
        self.unpublished = 0;
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
        self.free + self.unpublished
    }

    /// The first `len` bytes of a buffer that the caller holds.
    pub(crate) fn bytes(&self, id: u16, len: u32) -> &[u8] {
        debug_assert!(len <= self.buffer_bytes);
        // SAFETY: inside the mapping, initialized (zeroed pages), and not the kernel's while it is held.
        unsafe { std::slice::from_raw_parts(self.at(id).as_ptr(), len as usize) }
    }

    /// The same, to change.
    pub(crate) fn bytes_mut(&mut self, id: u16, len: u32) -> &mut [u8] {
        debug_assert!(len <= self.buffer_bytes);
        // SAFETY: as in `bytes`; a buffer has one holder, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at(id).as_ptr(), len as usize) }
    }

    fn at(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "a buffer of another ring");
        // SAFETY: `id` is below `count`, so the offset is inside the mapping.
        unsafe { self.data.start.add(usize::from(id) * self.buffer_bytes as usize) }
    }
}
