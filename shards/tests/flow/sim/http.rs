//! What both sides of the simulated network know of HTTP, on `httparse` and by hand: independent of the
//! parser under test.

/// A message taken off the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The start line and header lines.
    pub head: Head,
    /// The body without chunk framing.
    pub body: Vec<u8>,
}

/// A head.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// Method and target, or status alone.
    pub start: String,
    /// Header lines, names in lower case.
    pub lines: Vec<(String, String)>,
}

impl Head {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.lines.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// What a reader made of its buffer.
pub enum Read {
    /// A message; so many bytes of the buffer.
    Whole(Message, usize),
    /// More bytes are needed. The head, if it is known.
    Partial(Option<Head>),
}

/// Reads a request.
pub fn request(buffer: &[u8]) -> Read {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut lines);
    match parsed.parse(buffer).expect("the gateway wrote a good head") {
        httparse::Status::Partial => Read::Partial(None),
        httparse::Status::Complete(end) => {
            let start = format!("{} {}", parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
            body(head_of(start, parsed.headers), buffer, end, false)
        }
    }
}

/// Reads a response; `ended`: the connection is over.
pub fn response(buffer: &[u8], ended: bool) -> Read {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut lines);
    match parsed.parse(buffer).expect("the gateway wrote a good head") {
        httparse::Status::Partial => Read::Partial(None),
        httparse::Status::Complete(end) => {
            let start = parsed.code.unwrap_or(0).to_string();
            let head = head_of(start, parsed.headers);
            if head.start == "100" {
                return Read::Whole(Message { head, body: Vec::new() }, end);
            }
            body(head, buffer, end, ended)
        }
    }
}

/// Whether this is a long chunked answer without its end yet: reading it anew for each piece would take
/// time in the square of its length.
pub fn is_long_and_open(buffer: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&buffer[..buffer.len().min(400)]).to_ascii_lowercase();
    buffer.len() > 2_000 && head.contains("transfer-encoding") && !buffer.ends_with(b"\r\n0\r\n\r\n")
}

fn head_of(start: String, lines: &[httparse::Header<'_>]) -> Head {
    let line = |h: &httparse::Header<'_>| {
        (h.name.to_ascii_lowercase(), String::from_utf8_lossy(h.value).into_owned())
    };
    Head { start, lines: lines.iter().map(line).collect() }
}

fn body(head: Head, buffer: &[u8], end: usize, ended: bool) -> Read {
    let rest = &buffer[end..];
    if head.get("transfer-encoding").is_some() {
        assert!(head.get("content-length").is_none(), "two framings");
        return match chunks(rest) {
            Some((body, used)) => Read::Whole(Message { head, body }, end + used),
            None => Read::Partial(Some(head)),
        };
    }
    let length = head.get("content-length").map(|v| v.parse::<usize>().expect("digits"));
    match length {
        Some(length) if rest.len() >= length => {
            Read::Whole(Message { head, body: rest[..length].to_vec() }, end + length)
        }
        Some(_) => Read::Partial(Some(head)),
        None if head.start.parse::<u16>().is_err() => Read::Whole(Message { head, body: Vec::new() }, end),
        None if ended => Read::Whole(Message { head, body: rest.to_vec() }, buffer.len()),
        None => Read::Partial(Some(head)),
    }
}

fn chunks(mut rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let all = rest.len();
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let text = std::str::from_utf8(&rest[..line]).expect("a chunk size");
        let size = usize::from_str_radix(text, 16).expect("a chunk size");
        rest = &rest[line + 2..];
        if rest.len() < size + 2 {
            return None;
        }
        body.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n", "a chunk's end");
        rest = &rest[size + 2..];
        if size == 0 {
            return Some((body, all - rest.len()));
        }
    }
}

/// Bytes that only the request `id` has.
pub fn pattern(id: &str, size: usize) -> Vec<u8> {
    let seed = id.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
    let byte = |i: usize| b'a' + ((seed as usize + i * 7 + i / 251) % 26) as u8;
    (0..size).map(byte).collect()
}

/// `bytes` in chunks of `size`.
pub fn chunked(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(size.max(1)) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}
