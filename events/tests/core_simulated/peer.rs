//! The publisher's side of ZMTP 3.1, written from its document for tests and benches.

/// What the other side of a socket sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Greeting,
    Ready,
    Subscribe,
    Ping(Vec<u8>),
    Message(Vec<Vec<u8>>),
}

/// Reads one connection's frames.
#[derive(Default)]
pub struct Ear {
    bytes: Vec<u8>,
    is_greeted: bool,
    frames: Vec<Vec<u8>>,
}

impl Ear {
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<Heard> {
        self.bytes.extend_from_slice(bytes);
        let mut heard = Vec::new();
        if !self.is_greeted && self.bytes.len() >= 64 {
            self.bytes.drain(..64);
            self.is_greeted = true;
            heard.push(Heard::Greeting);
        }
        while self.is_greeted
            && let Some((flags, body)) = self.frame()
        {
            if flags & 4 != 0 {
                let name = usize::from(body[0]);
                let (name, rest) = body[1..].split_at(name);
                match name {
                    b"READY" => heard.push(Heard::Ready),
                    b"SUBSCRIBE" => heard.push(Heard::Subscribe),
                    b"PING" => heard.push(Heard::Ping(rest[2..].to_vec())),
                    _ => {}
                }
                continue;
            }
            self.frames.push(body);
            if flags & 1 == 0 {
                heard.push(Heard::Message(std::mem::take(&mut self.frames)));
            }
        }
        heard
    }

    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let flags = *self.bytes.first()?;
        let (head, length) = match flags & 2 {
            0 => (2, usize::from(*self.bytes.get(1)?)),
            _ => (9, u64::from_be_bytes(self.bytes.get(1..9)?.try_into().ok()?) as usize),
        };
        let body = self.bytes.get(head..head + length)?.to_vec();
        self.bytes.drain(..head + length);
        Some((flags, body))
    }
}

pub fn greeting() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xff, 0x7f, 3, 1);
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

pub fn ready(socket: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend((socket.len() as u32).to_be_bytes());
    body.extend(socket.bytes());
    [vec![4, body.len() as u8], body].concat()
}

pub fn pong(context: &[u8]) -> Vec<u8> {
    let body = [b"\x04PONG", context].concat();
    [vec![4, body.len() as u8], body].concat()
}

pub fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, body) in frames.iter().enumerate() {
        bytes.push(2 | u8::from(at + 1 < frames.len()));
        bytes.extend((body.len() as u64).to_be_bytes());
        bytes.extend_from_slice(body);
    }
    bytes
}

pub fn batch(seq: u64, payload: &[u8]) -> Vec<u8> {
    message(&[b"", &seq.to_be_bytes(), payload])
}

pub fn reply(seq: u64, payload: &[u8]) -> Vec<u8> {
    message(&[b"", b"", &seq.to_be_bytes(), payload])
}
