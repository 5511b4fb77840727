//! A seeded generator and the mutations that the differential tests share.

/// xorshift64*: small, and the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    #[allow(dead_code)] // Each test binary has its own copy of this module.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Changes one to three places of `bytes`, preferring bytes that mean something.
pub fn mutate(bytes: &mut Vec<u8>, special: &[u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        let byte = match random.below(3) {
            0 => random.next() as u8,
            _ => special[random.below(special.len())],
        };
        match random.below(5) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if at < bytes.len() => {
                let end = (at + 1 + random.below(12)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => bytes.truncate(at.max(1)),
            _ if at < bytes.len() => bytes[at] = byte,
            _ => bytes.push(byte),
        }
    }
}
