//! Names of cached blocks: the 64-bit key that the index holds, the digest that the next block chains from,
//! and how many tokens a block has. Owns these values and their byte orders; must never know an engine.

use std::fmt;

/// Names one block together with everything before it. Equal keys mean equal prefixes, up to the collisions
/// of a 64-bit hash. Every value is possible; the index takes care of those that it reserves for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

impl BlockKey {
    /// From the signed form that SGLang publishes: the same 64 bits.
    pub const fn from_signed(wire: i64) -> BlockKey {
        BlockKey(wire.cast_unsigned())
    }

    /// As SGLang publishes it.
    pub const fn signed(self) -> i64 {
        self.0.cast_signed()
    }
}

/// The whole hash of a block, the parent of the next one: 32 bytes for SHA-256, 16 for XXH3-128, 8 for the
/// gateway's own chain, and none before the first block of a chain without a root.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    bytes: [u8; 32],
    len: u8,
}

impl Digest {
    /// No digest: the parent of a first block where the engine has no root.
    pub const NONE: Digest = Digest { bytes: [0; 32], len: 0 };

    /// A SHA-256 digest.
    pub const fn of_32(bytes: [u8; 32]) -> Digest {
        Digest { bytes, len: 32 }
    }

    /// An XXH3-128 digest in its canonical, big-endian form.
    pub fn of_128(hash: u128) -> Digest {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&hash.to_be_bytes());
        Digest { bytes, len: 16 }
    }

    /// A 64-bit chain value, big-endian.
    pub fn of_64(hash: u64) -> Digest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&hash.to_be_bytes());
        Digest { bytes, len: 8 }
    }

    /// A digest that came from outside, as in events of vLLM with `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    /// `None` unless it has 8, 16 or 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Digest> {
        matches!(bytes.len(), 8 | 16 | 32).then(|| Digest::padded(bytes))
    }

    /// The bytes, as they are hashed into the next block.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The first 8 bytes, big-endian: how SGLang shortens a digest. 0 for [`Digest::NONE`].
    pub fn head(&self) -> u64 {
        self.word(0)
    }

    /// The last 8 bytes, big-endian: how vLLM shortens a digest. 0 for [`Digest::NONE`].
    pub fn tail(&self) -> u64 {
        self.word(usize::from(self.len).saturating_sub(8))
    }

    /// All 32 bytes of the value, of which the first so many are the digest's.
    pub(crate) fn padded_bytes(&self) -> (&[u8; 32], usize) {
        (&self.bytes, usize::from(self.len))
    }

    #[inline]
    fn word(&self, from: usize) -> u64 {
        self.bytes[from..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
    }

    fn padded(bytes: &[u8]) -> Digest {
        let mut digest = Digest { bytes: [0; 32], len: bytes.len() as u8 };
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        digest
    }
}

/// Hexadecimal, without a prefix.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Tokens in a block (SGLang: units in a page), 1 to [`BlockSize::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize(u16);

impl BlockSize {
    /// The most tokens a block may have. Attention backends of hybrid models go beyond 1,000; nothing known
    /// comes near this.
    pub const MOST: u16 = 4096;

    /// 16 tokens: what vLLM has on GPUs unless told otherwise.
    pub const SIXTEEN: BlockSize = BlockSize(16);

    /// 32 tokens: what TensorRT-LLM has unless told otherwise.
    pub const THIRTY_TWO: BlockSize = BlockSize(32);

    /// `None` unless `tokens` is 1 to [`BlockSize::MOST`].
    pub fn new(tokens: u64) -> Option<BlockSize> {
        u16::try_from(tokens).ok().filter(|tokens| (1..=BlockSize::MOST).contains(tokens)).map(BlockSize)
    }

    /// Tokens in a block.
    pub fn tokens(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_shortened_at_either_end() {
        let mut bytes = [0; 32];
        bytes[7] = 1;
        bytes[31] = 2;
        let digest = Digest::of_32(bytes);
        assert_eq!((digest.head(), digest.tail()), (1, 2));
        assert_eq!((Digest::of_64(9).head(), Digest::of_64(9).tail()), (9, 9));
        assert_eq!(
            Digest::of_128(7 << 64 | 8),
            Digest::from_slice(&(7u128 << 64 | 8).to_be_bytes()).unwrap()
        );
        assert_eq!((Digest::of_128(7 << 64 | 8).head(), Digest::of_128(7 << 64 | 8).tail()), (7, 8));
        assert_eq!((Digest::NONE.head(), Digest::NONE.tail(), Digest::NONE.as_bytes().len()), (0, 0, 0));
    }

    #[test]
    fn only_digests_of_known_lengths_come_in() {
        for len in 0..40 {
            assert_eq!(Digest::from_slice(&vec![1; len]).is_some(), [8, 16, 32].contains(&len), "{len}");
        }
        assert_eq!(Digest::of_64(0xab).to_string(), "00000000000000ab");
    }

    #[test]
    fn signed_keys_are_the_same_bits() {
        assert_eq!(BlockKey::from_signed(-1), BlockKey(u64::MAX));
        assert_eq!(BlockKey(1 << 63).signed(), i64::MIN);
    }

    #[test]
    fn block_sizes_are_bounded() {
        assert!(BlockSize::new(0).is_none() && BlockSize::new(4097).is_none());
        assert!(BlockSize::new(1 << 32 | 16).is_none());
        assert_eq!(BlockSize::new(4096).unwrap().tokens(), 4096);
    }
}
