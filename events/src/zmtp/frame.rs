//! Frame heads. Owns their bytes in both directions; must never hold a body.

use super::Fault;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What a frame's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub more: bool,
    pub command: bool,
    pub length: u64,
}

/// A frame's head while its bytes come: flags, then a length of 1 or 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadReader {
    bytes: [u8; 9],
    have: usize,
}

impl HeadReader {
    /// Takes bytes up to the head's end: how many, and the head once it is whole. The reader then starts
    /// anew.
    pub fn take(&mut self, input: &[u8]) -> Result<(usize, Option<Head>), Fault> {
        let mut taken = 0;
        for &byte in input {
            self.bytes[self.have] = byte;
            self.have += 1;
            taken += 1;
            check_flags(self.bytes[0])?;
            let long = self.bytes[0] & LONG != 0;
            if self.have == if long { 9 } else { 2 } {
                let head = self.head(long);
                *self = HeadReader::default();
                return Ok((taken, Some(head)));
            }
        }
        Ok((taken, None))
    }

    fn head(&self, long: bool) -> Head {
        let [flags, short, ..] = self.bytes;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[1..]);
        let length = if long { u64::from_be_bytes(word) } else { u64::from(short) };
        Head { more: flags & MORE != 0, command: flags & COMMAND != 0, length }
    }
}

fn check_flags(flags: u8) -> Result<(), Fault> {
    let is_reserved = flags & !(MORE | LONG | COMMAND) != 0;
    let is_split_command = flags & COMMAND != 0 && flags & MORE != 0;
    if is_reserved || is_split_command { Err(Fault::Flags) } else { Ok(()) }
}

/// Appends one frame of a message.
pub(super) fn push(out: &mut Vec<u8>, more: bool, body: &[u8]) {
    push_flagged(out, if more { MORE } else { 0 }, body);
}

/// Appends a command frame: the name's length, the name, its data.
pub(super) fn push_command(out: &mut Vec<u8>, name: &[u8], data: &[u8]) {
    let mut body = Vec::with_capacity(1 + name.len() + data.len());
    body.push(name.len() as u8);
    body.extend_from_slice(name);
    body.extend_from_slice(data);
    push_flagged(out, COMMAND, &body);
}

fn push_flagged(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => out.extend([flags, length]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}
