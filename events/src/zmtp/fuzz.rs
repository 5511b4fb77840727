//! What the fuzz target and the tests call: the machine on arbitrary bytes.
//!
//! Owns the properties that hold for all input: no panic, the same messages and verdict at any split, bounded
//! memory. It is not part of the API.

use super::{Connection, Fault, Limits, Role};

/// Small bounds, so that they are met.
const LIMITS: Limits =
    Limits { frame_bytes: 600, frames: 4, message_bytes: 1_000, command_bytes: 64, output_bytes: 128 };

/// Feeds `data` whole and in parts whose size the first byte chooses, as both roles; panics if they differ.
pub fn check(data: &[u8]) {
    let step = 1 + usize::from(data.first().copied().unwrap_or(0) % 19);
    for role in [Role::subscriber(b"kv"), Role::Dealer] {
        let whole = run(&role, data, data.len().max(1));
        assert_eq!(whole, run(&role, data, step), "split by {step}");
        assert_eq!(whole, run(&role, data, 1), "split by 1");
    }
}

type Outcome = (Vec<Vec<Vec<u8>>>, Result<(), Fault>, Vec<u8>);

fn run(role: &Role, data: &[u8], step: usize) -> Outcome {
    let mut connection = Connection::new(role.clone(), LIMITS, 0);
    let mut messages = Vec::new();
    let mut verdict = Ok(());
    for part in data.chunks(step) {
        verdict = connection.receive(0, part, &mut |message| {
            assert!(message.len() <= LIMITS.frames);
            messages.push(message.frames().map(<[u8]>::to_vec).collect());
        });
        if verdict.is_err() {
            break;
        }
    }
    (messages, verdict, connection.output().to_vec())
}
