//! What travels in `user_data`: slot, generation and kind of operation in 64 bits. Owns the layout; must
//! never be used as a pointer. Why a generation: kernel-notes/0002-user-data-generation.md.

use crate::Sock;

/// Kinds of operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    Receive = 1,
    Send = 2,
    Connect = 3,
    /// A cancel aimed at a socket.
    Cancel = 4,
    Accept = 5,
    /// A cancel aimed at a listener.
    CancelAccept = 6,
    /// The read of the bell.
    Bell = 7,
}

impl Op {
    fn from_bits(bits: u8) -> Option<Op> {
        const ALL: [Op; 7] =
            [Op::Receive, Op::Send, Op::Connect, Op::Cancel, Op::Accept, Op::CancelAccept, Op::Bell];
        ALL.get(usize::from(bits).checked_sub(1)?).copied()
    }
}

/// Bits: generation 63..32, slot 31..8, kind 7..0.
pub(crate) fn pack(op: Op, sock: Sock) -> u64 {
    debug_assert!(sock.slot < crate::slots::SLOTS_MAX);
    u64::from(sock.generation) << 32 | u64::from(sock.slot) << 8 | op as u64
}

/// The inverse of [`pack`]; `None` for bits that it never makes.
pub(crate) fn unpack(user_data: u64) -> Option<(Op, Sock)> {
    let op = Op::from_bits(user_data as u8)?;
    Some((op, Sock { slot: (user_data >> 8) as u32 & 0xff_ffff, generation: (user_data >> 32) as u32 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_at_the_edges() {
        for op in [Op::Receive, Op::Send, Op::Connect, Op::Cancel, Op::Accept, Op::CancelAccept, Op::Bell] {
            for slot in [0, 1, 0xff, 0xff_ffff] {
                for generation in [0, 1, u32::MAX] {
                    let sock = Sock { slot, generation };
                    assert_eq!(unpack(pack(op, sock)), Some((op, sock)));
                }
            }
        }
        assert_eq!(unpack(0), None);
        assert_eq!(unpack(8), None);
    }
}
