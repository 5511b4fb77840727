//! Spare byte vectors of a shard, so that steady traffic allocates nothing. Owns what is kept for reuse;
//! must never keep more than its bounds.

/// Capacities kept, one class each.
const CLASSES: [usize; 3] = [2 * 1024, 20 * 1024, 72 * 1024];

/// Vectors kept per class.
const KEPT: [usize; 3] = [1024, 256, 64];

/// Bytes that all kept vectors of a shard may reach.
pub const SPARE_BYTES_MAX: usize = CLASSES[0] * KEPT[0] + CLASSES[1] * KEPT[1] + CLASSES[2] * KEPT[2];

/// The spare vectors.
#[derive(Default)]
pub struct Spare {
    classes: [Vec<Vec<u8>>; CLASSES.len()],
}

impl Spare {
    /// An empty vector with room for `bytes` at least.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        match CLASSES.iter().position(|class| bytes <= *class) {
            Some(class) => self.classes[class].pop().unwrap_or_else(|| Vec::with_capacity(CLASSES[class])),
            None => Vec::with_capacity(bytes),
        }
    }

    /// Keeps a vector for later, if there is a place for it.
    pub fn give(&mut self, mut bytes: Vec<u8>) {
        let fits = |class: &usize| *class <= bytes.capacity();
        let Some(class) = CLASSES.iter().rposition(fits) else { return };
        let oversized = class + 1 == CLASSES.len() && bytes.capacity() > 2 * CLASSES[class];
        if self.classes[class].len() < KEPT[class] && !oversized {
            bytes.clear();
            self.classes[class].push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_vector_is_taken_again() {
        let mut spare = Spare::default();
        let mut bytes = spare.take(10_000);
        bytes.extend_from_slice(b"old");
        let at = bytes.as_ptr();
        spare.give(bytes);
        let again = spare.take(15_000);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
    }

    #[test]
    fn keeps_neither_too_many_nor_too_large() {
        let mut spare = Spare::default();
        spare.give(Vec::with_capacity(10 << 20));
        assert!(spare.classes.iter().all(Vec::is_empty));
        for _ in 0..2 * KEPT[0] {
            spare.give(Vec::with_capacity(CLASSES[0]));
        }
        assert_eq!(spare.classes[0].len(), KEPT[0]);
    }
}
