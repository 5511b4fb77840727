//! What a decision sees of the endpoints: plain values taken at one moment. Must never hold a reference to
//! live state.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use xxhash_rust::xxh64::xxh64;

/// Which endpoint, whatever rules name it and in whatever place: 32 bits of a hash of its address. Two of a rule's 256
/// endpoints are mixed up in one rule of 130,000; what is remembered of the one is then believed of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(NonZeroU32);

impl EndpointId {
    /// That of an address.
    pub fn of(address: SocketAddr) -> EndpointId {
        let hash = xxh64(address.to_string().as_bytes(), 0);
        EndpointId(NonZeroU32::new((hash >> 32) as u32).unwrap_or(NonZeroU32::MIN))
    }

    /// The same endpoint after it lost its cache `times`: what is remembered of its cache before is of another one.
    pub fn after(self, times: u32) -> EndpointId {
        let number = self.0.get().wrapping_add(times.wrapping_mul(0x9e37_79b9));
        EndpointId(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// As a number, never 0.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// That of a number; `None` for 0.
    pub fn of_number(number: u32) -> Option<EndpointId> {
        NonZeroU32::new(number).map(EndpointId)
    }
}

/// One endpoint at the moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Healthy, not ejected, its breaker not open, not draining.
    pub available: bool,
    /// Requests in flight, of all shards.
    pub load: u32,
    /// Requests that the engine itself said shortly ago wait in it; `None` where it tells nothing, or told too long ago.
    pub queued: Option<u32>,
    /// Blocks that the engine said shortly ago its KV cache has, where the selector weighs by it; `None` where it tells
    /// nothing.
    pub capacity: Option<u32>,
    /// The rule's weight.
    pub weight: u32,
    /// Only when no other is available.
    pub backup: bool,
}

/// Endpoint indices left out of a decision, for example because they were just tried. Up to 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded([u64; 4]);

impl Excluded {
    /// Leaves `index` out.
    pub fn add(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Both together.
    pub fn with(mut self, other: Excluded) -> Excluded {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        self
    }

    /// Whether `index` is left out.
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// How many are left out.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }
}

/// Endpoints a rule may name.
pub const ENDPOINTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_each_of_256_and_nothing_beyond() {
        let mut excluded = Excluded::default();
        assert!((0..300).all(|i| !excluded.contains(i)));
        for i in [0, 63, 64, 255, 255, 256, usize::MAX] {
            excluded.add(i);
        }
        assert_eq!(excluded.count(), 4);
        let held: Vec<usize> = (0..300).filter(|i| excluded.contains(*i)).collect();
        assert_eq!(held, [0, 63, 64, 255]);
    }
}
