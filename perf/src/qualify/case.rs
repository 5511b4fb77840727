//! A seeded exchange: how long both bodies are, how they are framed and cut, and which bytes they hold. Owns
//! that both ends derive the same case from one number; pure.

use crate::engine::text::mix;

/// How a body is framed (RFC 9112 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`, a chunk for each piece.
    Chunked,
}

/// One body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
    /// Bytes.
    pub length: usize,
    /// Framing.
    pub framing: Framing,
}

/// One request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The number that it derives from.
    pub seed: u64,
    /// The request's body.
    pub up: Stream,
    /// The answer's body.
    pub down: Stream,
}

impl Case {
    /// The case of a number.
    pub fn of(seed: u64) -> Case {
        Case { seed, up: Stream::of(mix(seed ^ 1)), down: Stream::of(mix(seed ^ 2)) }
    }
}

impl Stream {
    /// Lengths of 0 to 1 MiB, as many short as long ones by powers of two.
    fn of(seed: u64) -> Stream {
        let random = mix(seed.wrapping_add(1));
        let length = (mix(random) % (1 << (random % 21))) as usize;
        let framing = if random >> 32 & 1 == 0 { Framing::Length } else { Framing::Chunked };
        Stream { seed, length, framing }
    }

    /// All its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let words =
            (0..self.length.div_ceil(8) as u64).flat_map(|word| mix(self.seed ^ word << 8).to_le_bytes());
        words.take(self.length).collect()
    }

    /// The lengths of the pieces that it is written in: 1 byte to 64 KiB.
    pub fn pieces(&self) -> Vec<usize> {
        let mut left = self.length;
        let mut random = self.seed;
        let mut pieces = Vec::new();
        while left > 0 {
            random = mix(random.wrapping_add(3));
            let piece = 1 + (mix(random) % (1 << (random % 17))) as usize;
            pieces.push(piece.min(left));
            left -= piece.min(left);
        }
        pieces
    }

    /// The body as it is sent, framed, in pieces.
    pub fn framed(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes();
        let mut rest = bytes.as_slice();
        let mut sent = Vec::new();
        for length in self.pieces() {
            let (piece, after) = rest.split_at(length);
            rest = after;
            sent.push(match self.framing {
                Framing::Length => piece.to_vec(),
                Framing::Chunked => [format!("{length:x}\r\n").as_bytes(), piece, b"\r\n"].concat(),
            });
        }
        if self.framing == Framing::Chunked {
            sent.push(b"0\r\n\r\n".to_vec());
        }
        sent
    }

    /// The header line that says how it is framed.
    pub fn header(&self) -> String {
        match self.framing {
            Framing::Length => format!("Content-Length: {}\r\n", self.length),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".into(),
        }
    }

    /// Compares every byte; the error names the first that differs.
    pub fn compare(&self, got: &[u8]) -> Result<(), String> {
        let wanted = self.bytes();
        if let Some(at) = wanted.iter().zip(got).position(|(a, b)| a != b) {
            return Err(format!("byte {at} is {:#04x} instead of {:#04x}", got[at], wanted[at]));
        }
        match got.len() == wanted.len() {
            true => Ok(()),
            false => Err(format!("{} bytes came instead of {}", got.len(), wanted.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Dechunker;

    #[test]
    fn cases_cover_empty_and_long_bodies_in_both_framings() {
        let streams: Vec<Stream> = (0..400).flat_map(|s| [Case::of(s).up, Case::of(s).down]).collect();
        for framing in [Framing::Length, Framing::Chunked] {
            let of: Vec<usize> = streams.iter().filter(|s| s.framing == framing).map(|s| s.length).collect();
            assert!(of.contains(&0) && of.iter().any(|l| *l > 500_000) && of.len() > 300);
        }
    }

    #[test]
    fn what_is_framed_is_what_is_compared() {
        for seed in 0..200 {
            let stream = Case::of(seed).up;
            let sent = stream.framed().concat();
            let mut got = Vec::new();
            match stream.framing {
                Framing::Length => got = sent,
                Framing::Chunked => drop(Dechunker::default().feed(&sent, &mut got)),
            }
            assert_eq!(stream.compare(&got), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_changed_a_missing_and_a_further_byte_are_told() {
        let stream = Stream { seed: 7, length: 100, framing: Framing::Length };
        let mut bytes = stream.bytes();
        bytes[41] ^= 1;
        assert!(stream.compare(&bytes).is_err_and(|told| told.starts_with("byte 41 ")));
        bytes[41] ^= 1;
        assert!(stream.compare(&bytes[..99]).is_err());
        bytes.push(0);
        assert!(stream.compare(&bytes).is_err());
    }
}
