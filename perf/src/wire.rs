//! Decoding of chunked bodies (RFC 9112 section 7.1), shared by the simulated engine (requests) and
//! the load generator (answers). Must never be lenient: a wrong byte is an error, so that a relay
//! which damages framing is caught here.

/// Longest accepted chunk-size or trailer line, in bytes.
const MAX_LINE: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

/// An incremental chunked decoder; any split of the input gives the same output.
#[derive(Debug)]
pub struct Dechunker {
    state: State,
    line: Vec<u8>,
    chunks: u64,
}

impl Default for Dechunker {
    fn default() -> Self {
        Dechunker { state: State::Size, line: Vec::new(), chunks: 0 }
    }
}

impl Dechunker {
    /// Decodes `input` onto `out` and returns how many bytes were consumed: fewer than given only
    /// once the body is complete. Errors name the fault.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, &'static str> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            at += match self.state {
                State::Data(left) => self.data(left, &input[at..], out),
                _ => self.line_byte(input[at])?,
            };
        }
        Ok(at)
    }

    /// True once the last chunk and its trailers were read.
    pub fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Chunks with data decoded so far.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    fn data(&mut self, left: u64, input: &[u8], out: &mut Vec<u8>) -> usize {
        let take = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        out.extend_from_slice(&input[..take]);
        let left = left - take as u64;
        self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
        take
    }

    fn line_byte(&mut self, byte: u8) -> Result<usize, &'static str> {
        if byte != b'\n' {
            if self.line.len() == MAX_LINE {
                return Err("chunk line too long");
            }
            self.line.push(byte);
            return Ok(1);
        }
        if self.line.pop() != Some(b'\r') {
            return Err("line feed without carriage return in chunked framing");
        }
        self.end_of_line()?;
        self.line.clear();
        Ok(1)
    }

    fn end_of_line(&mut self) -> Result<(), &'static str> {
        self.state = match self.state {
            State::Size => match chunk_size(&self.line)? {
                0 => State::Trailer,
                size => {
                    self.chunks += 1;
                    State::Data(size)
                }
            },
            State::DataEnd if self.line.is_empty() => State::Size,
            State::DataEnd => return Err("chunk data longer than its size line says"),
            State::Trailer if self.line.is_empty() => State::Done,
            _ => State::Trailer,
        };
        Ok(())
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("chunk size is not a hexadecimal number");
    }
    let text = std::str::from_utf8(digits).map_err(|_| "chunk size is not text")?;
    u64::from_str_radix(text, 16).map_err(|_| "chunk size out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8], step: usize) -> Result<(Vec<u8>, bool, usize), &'static str> {
        let (mut d, mut out, mut used) = (Dechunker::default(), Vec::new(), 0);
        for part in input.chunks(step) {
            used += d.feed(part, &mut out)?;
        }
        Ok((out, d.done(), used))
    }

    #[test]
    fn every_split_decodes_alike() {
        let body = b"4\r\nwarm\r\nA;x=1\r\n0123456789\r\n0\r\nT: v\r\n\r\nNEXT";
        for step in 1..body.len() {
            let (out, done, used) = decode(body, step).unwrap();
            assert_eq!(out, b"warm0123456789");
            assert!(done);
            assert_eq!(used, body.len() - 4, "step {step}");
        }
    }

    #[test]
    fn damaged_framing_is_refused() {
        for bad in ["zz\r\n", "4\nwarm", "4\r\nwarmer\r\n", "\r\n", "11111111111111111\r\n", "-1\r\n"] {
            assert!(decode(bad.as_bytes(), 1).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn unfinished_body_is_not_done() {
        assert!(!decode(b"4\r\nwarm\r\n0\r\n", 3).unwrap().1);
    }
}
