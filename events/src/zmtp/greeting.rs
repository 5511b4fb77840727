//! The 64 bytes that open a connection. Owns their layout; must never decide what follows.

use super::Fault;

/// Bytes of a greeting.
pub(super) const LENGTH: usize = 64;
/// Where the major version stands; the minor follows.
const MAJOR: usize = 10;
/// The mechanism's name, padded with zeros.
const MECHANISM: std::ops::Range<usize> = 12..32;

/// Ours: signature, 3.1, NULL, not a server.
pub(super) fn ours() -> [u8; LENGTH] {
    let mut greeting = [0; LENGTH];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[MAJOR] = 3;
    greeting[MAJOR + 1] = 1;
    greeting[MECHANISM.start..MECHANISM.start + 4].copy_from_slice(b"NULL");
    greeting
}

/// Judges the part of a peer's greeting that is there: its first `have` bytes.
pub(super) fn check(greeting: &[u8; LENGTH], have: usize) -> Result<(), Fault> {
    if have > 0 && greeting[0] != 0xff || have > 9 && greeting[9] != 0x7f {
        return Err(Fault::Signature);
    }
    if have > MAJOR && greeting[MAJOR] < 3 {
        return Err(Fault::Version(greeting[MAJOR]));
    }
    if have == LENGTH && greeting[MECHANISM] != ours()[MECHANISM] {
        return Err(Fault::Mechanism);
    }
    Ok(())
}

/// Whether a whole greeting announces 3.1 or later: SUBSCRIBE commands and heartbeats.
pub(super) fn is_3_1(greeting: &[u8; LENGTH]) -> bool {
    greeting[MAJOR] > 3 || greeting[MAJOR + 1] >= 1
}
