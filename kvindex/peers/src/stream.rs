//! The stream that every index is fed: requests with their blocks, what the engine stored and removed. Owns its
//! form in memory and in a file; one flat list of words, so that reading it leaves nothing else in memory.

/// Words before a request's blocks.
const HEAD: usize = 4;

/// What the engines had, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Most different blocks at any time, new ones counted before old ones are removed.
    pub distinct_max: usize,
    /// Different blocks at the end.
    pub distinct_end: usize,
    /// Blocks at the end, counted once for each engine that has it.
    pub held_end: usize,
}

/// Requests in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// About all of it.
    pub header: Header,
    words: Vec<u64>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The engine that served it.
    pub engine: usize,
    /// The first block that the engine stored for it, with all after it; their number if none.
    pub from: usize,
    /// Blocks by their own hash.
    pub contents: &'a [u64],
    /// Blocks by the hash of everything up to them.
    pub keys: &'a [u64],
    /// What the engine removed for it.
    pub removed: &'a [u64],
}

impl Stream {
    /// Adds a request.
    pub fn push(&mut self, engine: usize, from: usize, contents: &[u64], keys: &[u64], removed: &[u64]) {
        let head = [engine, from, keys.len(), removed.len()];
        self.words.extend(head.map(|word| word as u64));
        self.words.extend(contents.iter().chain(keys).chain(removed));
    }

    /// All requests.
    pub fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        let mut rest = &self.words[..];
        std::iter::from_fn(move || {
            let (head, after) = rest.split_at_checked(HEAD)?;
            let [engine, from, blocks, removed] = [0, 1, 2, 3].map(|at| head[at] as usize);
            let (contents, after) = after.split_at_checked(blocks)?;
            let (keys, after) = after.split_at_checked(blocks)?;
            let (removed, after) = after.split_at_checked(removed)?;
            rest = after;
            Some(Request { engine, from, contents, keys, removed })
        })
    }

    /// Writes it to a file.
    pub fn write(&self, path: &std::path::Path) -> std::io::Result<()> {
        let Header { distinct_max, distinct_end, held_end } = self.header;
        let header = [distinct_max, distinct_end, held_end].map(|word| word as u64);
        let words = header.iter().chain(&self.words);
        std::fs::write(path, words.flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Reads what [`Stream::write`] wrote.
    pub fn read(path: &str) -> std::io::Result<Stream> {
        let bytes = std::fs::read(path)?;
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0) as usize;
        let header = Header { distinct_max: next(), distinct_end: next(), held_end: next() };
        Ok(Stream { header, words: words.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_comes_back_from_its_file() {
        let mut stream =
            Stream { header: Header { distinct_max: 9, distinct_end: 8, held_end: 7 }, words: vec![] };
        stream.push(3, 1, &[10, 11], &[20, 21], &[5]);
        stream.push(4, 0, &[], &[], &[]);
        let path = std::env::temp_dir().join(format!("warmpath-peers-test-{}", std::process::id()));
        stream.write(&path).expect("a file");
        let back = Stream::read(path.to_str().expect("a path")).expect("the file");
        std::fs::remove_file(&path).expect("the file");
        assert_eq!(back, stream);
        let first = back.requests().next().expect("a request");
        assert_eq!((first.engine, first.from, first.removed), (3, 1, &[5][..]));
        assert_eq!((first.contents, first.keys, back.requests().count()), (&[10, 11][..], &[20, 21][..], 2));
    }
}
