//! The bytes that are hashed for one block, and the two hash functions over them. Owns the buffer, which
//! grows at the first block of its life and is reused from then on, and SHA-256's padding in place.

use crate::block::Digest;
use sha2::block_api::compress256;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Memory that a chain works in. One for each thread that hashes; a chain borrows it, so that neither a block
/// nor a request allocates once the longest block was seen.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) preimage: Preimage,
    pub(super) pending: Vec<u32>,
}

/// A reused byte buffer.
#[derive(Debug, Default)]
pub(super) struct Preimage {
    /// Longer than what is written, so that a write is a copy at an offset.
    bytes: Vec<u8>,
    len: usize,
}

/// FIPS 180-4, 5.3.3.
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

impl Preimage {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.room(1)[0] = byte;
        self.advance(1);
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// A digest's bytes; a copy of a fixed size costs less than one whose size is found out.
    #[inline(always)]
    pub(super) fn digest(&mut self, digest: &Digest) {
        let (bytes, len) = digest.padded_bytes();
        self.room(bytes.len()).copy_from_slice(bytes);
        self.advance(len);
    }

    /// Overwrites 8 written bytes at `at`.
    pub(super) fn patch(&mut self, at: usize, word: u64) {
        if let Some(place) = self.bytes[..self.len].get_mut(at..at + 8) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// `size` bytes to write into; what of them counts is told to [`Preimage::advance`].
    #[inline]
    pub(super) fn room(&mut self, size: usize) -> &mut [u8] {
        let end = self.len + size;
        if self.bytes.len() < end {
            self.grow(end);
        }
        &mut self.bytes[self.len..end]
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.bytes.resize(end.next_power_of_two(), 0);
    }

    /// Counts `written` bytes of the last [`Preimage::room`].
    #[inline]
    pub(super) fn advance(&mut self, written: usize) {
        self.len += written;
        debug_assert!(self.len <= self.bytes.len());
    }

    /// SHA-256. Pads behind the written bytes and compresses in place, a fifth cheaper on a block of 16
    /// tokens than a hasher that copies into its own buffer.
    pub(super) fn sha256(&mut self) -> Digest {
        let len = self.len;
        let padding = 64 - (len + 8) % 64;
        let tail = self.room(64 + 8);
        tail[..64].fill(0);
        tail[0] = 0x80;
        tail[padding..padding + 8].copy_from_slice(&(8 * len as u64).to_be_bytes());
        let (blocks, _) = self.bytes[..len + padding + 8].as_chunks::<64>();
        let mut state = INITIAL;
        compress256(&mut state, blocks);
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
        Digest::of_32(digest)
    }

    /// XXH3-128 without a seed, canonical byte order.
    #[inline]
    pub(super) fn xxh3_128(&self) -> Digest {
        Digest::of_128(xxh3_128(self.written()))
    }

    /// XXH3-64 under a secret.
    pub(super) fn xxh3_64(&self, secret: u64) -> u64 {
        xxh3_64_with_seed(self.written(), secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest as _;

    #[test]
    fn sha256_pads_every_length_right() {
        let mut preimage = Preimage::default();
        for len in 0..300usize {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
            preimage.clear();
            preimage.put(&bytes);
            assert_eq!(preimage.sha256().as_bytes(), sha2::Sha256::digest(&bytes).as_slice(), "{len} bytes");
            assert_eq!(preimage.written(), bytes, "hashing leaves what was written");
        }
    }

    #[test]
    fn a_patch_stays_within_what_is_written() {
        let mut preimage = Preimage::default();
        preimage.put(&[0xff; 12]);
        preimage.patch(2, 1);
        preimage.patch(8, 0);
        assert_eq!(preimage.written(), [255, 255, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255]);
    }
}
