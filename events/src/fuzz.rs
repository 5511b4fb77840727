//! What the fuzz targets and the tests call: each machine on arbitrary bytes.
//!
//! Owns the properties that hold for all input: no panic, the same verdict at any split, all of a payload or
//! nothing, a cache that never holds more than it was told. It is not part of the API.

use crate::decode::decode;
use crate::drain::Drain;
use crate::residency::{Change, Removal, Residency};
use crate::trtllm_json;
use crate::wire::{Batch, Event, HashBytes};
use crate::zmtp::{Connection, Fault, Limits, Role};

/// Small bounds, so that they are met.
const LIMITS: Limits =
    Limits { frame_bytes: 600, frames: 4, message_bytes: 1_000, command_bytes: 64, output_bytes: 128 };

/// A peer's bytes, whole and in parts whose size the first byte chooses, for both roles.
pub fn zmtp(data: &[u8]) {
    let step = 1 + usize::from(data.first().copied().unwrap_or(0) % 19);
    for role in [Role::Sub(b"kv".to_vec()), Role::Dealer] {
        let whole = talk(&role, data, data.len().max(1));
        assert_eq!(whole, talk(&role, data, step), "split by {step}");
        assert_eq!(whole, talk(&role, data, 1), "split by 1");
    }
}

type Outcome = (Vec<Vec<Vec<u8>>>, Result<(), Fault>, Vec<u8>);

fn talk(role: &Role, data: &[u8], step: usize) -> Outcome {
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

/// An event payload, and what it does to a cache.
pub fn payload(data: &[u8]) {
    let mut batch = Batch::default();
    for naming in [HashBytes::Last, HashBytes::First] {
        if decode(data, naming, &mut batch).is_err() {
            assert!(batch.events.is_empty() && batch.hashes.is_empty() && batch.tokens.is_empty());
            continue;
        }
        let stored = |event: &Event| if let Event::Stored(stored) = event { stored.hashes.len() } else { 0 };
        let told: usize = batch.events.iter().map(stored).sum();
        let mut residency = Residency::new(Removal::One, 1_000);
        residency.apply(&batch, &mut |change| {
            if let Change::Held { event, content: Some(content), .. } = change {
                assert_eq!(content.tokens.len(), event.block_size as usize * content.width);
            }
        });
        assert!(residency.len() <= told && residency.blocks().count() == residency.len());
    }
}

/// A drain's body, and what it does to a cache.
pub fn drained(data: &[u8]) {
    let Ok(events) = trtllm_json::parse(data) else { return };
    let (mut drain, mut residency) = (Drain::default(), Residency::new(Removal::All, 1_000));
    for event in &events {
        drain.apply(event, &mut residency, &mut |_| ());
        assert!(drain.fault().is_none() || residency.is_empty());
    }
}
