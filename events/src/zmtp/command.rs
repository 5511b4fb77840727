//! Commands of the NULL mechanism and of heartbeats. Owns their grammar; must never act on them.

use super::Fault;

/// A command of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// The peer's socket type, as READY gives it.
    Ready(&'a [u8]),
    /// The handshake is refused.
    Error,
    /// A heartbeat; its context is to be sent back.
    Ping(&'a [u8]),
    /// An answer to ours.
    Pong,
    /// Any other name: not for our roles.
    Other,
}

/// Reads a command frame's body.
pub(super) fn parse(body: &[u8]) -> Result<Command<'_>, Fault> {
    let (name, data) = short_string(body).ok_or(Fault::Command)?;
    match name {
        b"READY" => Ok(Command::Ready(socket_type(data)?)),
        b"ERROR" => Ok(Command::Error),
        b"PING" => ping(data),
        b"PONG" => Ok(Command::Pong),
        b"" => Err(Fault::Command),
        _ => Ok(Command::Other),
    }
}

/// A TTL of two bytes and a context of at most 16 (RFC 37, "connection heartbeating").
fn ping(data: &[u8]) -> Result<Command<'_>, Fault> {
    match data {
        [_, _, context @ ..] if context.len() <= 16 => Ok(Command::Ping(context)),
        _ => Err(Fault::Command),
    }
}

/// READY's metadata: names of 1 to 255 bytes, values with a 4-byte length. Names are compared without case.
fn socket_type(mut metadata: &[u8]) -> Result<&[u8], Fault> {
    let mut found = None;
    while !metadata.is_empty() {
        let (name, rest) = short_string(metadata).ok_or(Fault::Command)?;
        let (value, rest) = long_string(rest).ok_or(Fault::Command)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(value);
        }
        metadata = rest;
    }
    found.ok_or(Fault::SocketType)
}

fn short_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

fn long_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// READY's data for a socket of ours.
pub(super) fn ready(socket_type: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(32);
    data.push(11);
    data.extend_from_slice(b"Socket-Type");
    data.extend((socket_type.len() as u32).to_be_bytes());
    data.extend_from_slice(socket_type);
    data
}
