//! The bytes of ZMTP 3.0 and 3.1 (RFC 23, RFC 37) on one connection, NULL mechanism, from the side of a
//! PUB or ROUTER socket. Must never keep more of a peer than one frame.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest frame taken from a peer in bytes: subscriptions and replay requests are short.
const MAX_FRAME: usize = 64 * 1024;
/// Most frames of a message taken from a peer.
const MAX_FRAMES: usize = 16;
const GREETING: usize = 64;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A command's name and body.
    Command(Vec<u8>, Vec<u8>),
    /// A part of a message, and whether more parts follow.
    Part(Vec<u8>, bool),
}

/// A connection past its handshake.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Peer {
    /// Greets a peer as a socket of this type and version 3.`minor`.
    pub async fn greet(mut stream: TcpStream, socket: &str, minor: u8) -> io::Result<Peer> {
        stream.set_nodelay(true)?;
        let mut greeting = [0; GREETING];
        (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, minor);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).await?;
        let mut theirs = [0; GREETING];
        stream.read_exact(&mut theirs).await?;
        if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || &theirs[12..17] != b"NULL\0" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut peer = Peer { stream, ahead: Vec::new() };
        peer.command(b"READY", &[property("Socket-Type", socket), property("Identity", "")].concat()).await?;
        match peer.frame().await? {
            Frame::Command(name, _) if name == b"READY" => Ok(peer),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The next frame. May be dropped and called again without losing a byte.
    pub async fn frame(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((frame, used)) = parse(&self.ahead)? {
                self.ahead.drain(..used);
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a message of several parts.
    pub async fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
        for (at, part) in parts.iter().enumerate() {
            put_frame(&mut bytes, if at + 1 < parts.len() { MORE } else { 0 }, part);
        }
        self.stream.write_all(&bytes).await
    }

    /// Sends a command.
    pub async fn command(&mut self, name: &[u8], body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, COMMAND, &[&[name.len() as u8], name, body].concat());
        self.stream.write_all(&bytes).await
    }
}

/// Parts of a message, gathered from frames.
#[derive(Debug, Default)]
pub struct Parts(Vec<Vec<u8>>);

impl Parts {
    /// Takes a part; the whole message after its last one. One of too many parts is an error.
    pub fn take(&mut self, part: Vec<u8>, more: bool) -> io::Result<Option<Vec<Vec<u8>>>> {
        self.0.push(part);
        match more {
            true if self.0.len() >= MAX_FRAMES => Err(io::ErrorKind::InvalidData.into()),
            true => Ok(None),
            false => Ok(Some(std::mem::take(&mut self.0))),
        }
    }
}

fn property(name: &str, value: &str) -> Vec<u8> {
    let length = (value.len() as u32).to_be_bytes();
    [&[name.len() as u8], name.as_bytes(), &length, value.as_bytes()].concat()
}

fn put_frame(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => bytes.extend([flags, length]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend((body.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(body);
}

/// The frame at the front and its length, once it is whole.
fn parse(bytes: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let [flags, rest @ ..] = bytes else { return Ok(None) };
    let (length, head) = match (flags & LONG, rest) {
        (0, [length, ..]) => (u64::from(*length), 2),
        (0, []) => return Ok(None),
        _ => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 9),
            None => return Ok(None),
        },
    };
    let length = usize::try_from(length).ok().filter(|&length| length <= MAX_FRAME);
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    let Some(body) = bytes.get(head..head + length) else { return Ok(None) };
    let frame = match (flags & COMMAND, body) {
        (0, _) => Frame::Part(body.to_vec(), flags & MORE != 0),
        (_, [name, rest @ ..]) if usize::from(*name) <= rest.len() => {
            let (name, body) = rest.split_at(usize::from(*name));
            Frame::Command(name.to_vec(), body.to_vec())
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(Some((frame, head + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_once_it_is_whole() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, MORE, b"ab");
        put_frame(&mut bytes, 0, &[7; 300]);
        put_frame(&mut bytes, COMMAND, b"\x04PING\0\x01");
        for end in 0..4 {
            assert_eq!(parse(&bytes[..end]).unwrap(), None);
        }
        assert_eq!(parse(&bytes).unwrap(), Some((Frame::Part(b"ab".to_vec(), true), 4)));
        for end in 4..4 + 309 {
            assert_eq!(parse(&bytes[4..end]).unwrap(), None);
        }
        assert_eq!(parse(&bytes[4..]).unwrap(), Some((Frame::Part(vec![7; 300], false), 309)));
        let ping = Frame::Command(b"PING".to_vec(), vec![0, 1]);
        assert_eq!(parse(&bytes[313..]).unwrap(), Some((ping, 9)));
    }

    #[test]
    fn too_long_and_broken_frames_are_errors() {
        assert!(parse(&[2, 0xff, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(parse(&[4, 1, 9]).is_err());
        let mut parts = Parts::default();
        assert!((0..MAX_FRAMES).any(|_| parts.take(vec![], true).is_err()));
    }
}
