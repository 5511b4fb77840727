//! What a decision sees of the endpoints: plain values taken at one moment. Must never hold a reference to
//! live state.

/// One endpoint at the moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Healthy, not ejected, not draining.
    pub available: bool,
    /// Requests in flight, of all shards.
    pub load: u32,
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
