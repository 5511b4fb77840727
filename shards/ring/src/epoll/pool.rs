//! The epoll driver's receive buffers. Owns their memory and which are free; must never lend one twice.

use crate::Sizes;

/// Equal buffers in one piece of memory; the last one returned is lent first, while the cache knows it.
pub(crate) struct Pool {
    data: Vec<u8>,
    free: Vec<u16>,
    buffer_bytes: usize,
}

impl Pool {
    pub(crate) fn new(sizes: &Sizes) -> Pool {
        let buffer_bytes = sizes.buffer_bytes as usize;
        Pool {
            // Zeroed by the kernel page by page, at first use.
            data: vec![0; buffer_bytes * usize::from(sizes.buffers)],
            free: (0..sizes.buffers).rev().collect(),
            buffer_bytes,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(crate) fn give(&mut self, id: u16) {
        debug_assert!(!self.free.contains(&id), "a buffer is given back once");
        self.free.push(id);
    }

    pub(crate) fn bytes(&self, id: u16, len: u32) -> &[u8] {
        let start = usize::from(id) * self.buffer_bytes;
        &self.data[start..start + len as usize]
    }

    pub(crate) fn bytes_mut(&mut self, id: u16, len: u32) -> &mut [u8] {
        let start = usize::from(id) * self.buffer_bytes;
        &mut self.data[start..start + len as usize]
    }

    /// A lent buffer in full, to receive into.
    pub(crate) fn whole_mut(&mut self, id: u16) -> &mut [u8] {
        self.bytes_mut(id, self.buffer_bytes as u32)
    }
}
