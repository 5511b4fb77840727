//! Random numbers of a shard from a seed: request ids. Owns the generator (wyrand); must never be used for
//! secrets.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xA076_1D64_78BD_642F);
        let wide = u128::from(self.0) * u128::from(self.0 ^ 0xE703_7ED1_A0B4_28DB);
        (wide >> 64) as u64 ^ wide as u64
    }

    /// 128 random bits as 32 lower-case hexadecimal digits.
    pub fn hex32(&mut self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = [0; 32];
        for half in out.chunks_exact_mut(16) {
            let bits = self.next();
            for (place, digit) in half.iter_mut().enumerate() {
                *digit = DIGITS[(bits >> (60 - 4 * place) & 15) as usize];
            }
        }
        out
    }
}
