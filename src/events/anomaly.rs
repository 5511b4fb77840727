//! What was not in order in a stream of events. Owns the names and the words; must never judge what is in
//! order.

use super::line::{hex, medium_name};
use serde_json::{Value, json};
use warmpath_events::continuity::Reason;
use warmpath_events::decode::Reject;
use warmpath_events::drain::DrainFault;
use warmpath_events::residency::Shelf;

/// One thing that was not in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// A word for scripts.
    pub kind: &'static str,
    /// A sentence without its full stop.
    pub text: String,
    /// The blocks that it is about.
    pub keys: Vec<u64>,
}

impl Anomaly {
    fn new(kind: &'static str, text: String) -> Anomaly {
        Anomaly { kind, text, keys: Vec::new() }
    }

    /// Why all was forgotten, where the last applied batch was `last`.
    pub fn cleared(reason: Reason, last: Option<u64>) -> Anomaly {
        let after = last.map_or(String::new(), |last| format!(" after {last}"));
        let (kind, cause) = match reason {
            Reason::Gap => ("gap", format!("batches{after} are missing")),
            Reason::ReplayHole => {
                ("replay_hole", format!("the replay does not reach back to the batch{after}"))
            }
            Reason::ReplayFailed => ("replay_failed", "replays failed".into()),
            Reason::Restarted => ("restarted", "another engine process answers".into()),
            Reason::Reconnected => (
                "reconnected",
                "the connection was lost and nothing proves that the engine is the same".into(),
            ),
            Reason::Regressed => ("regression", format!("the sequence went back{after}")),
            Reason::Undecodable => ("undecodable", "a batch can't be decoded".into()),
        };
        Anomaly::new(kind, format!("{cause}; what was known is cleared"))
    }

    /// Batches `from` to `to` never came.
    pub fn gap(from: u64, to: u64) -> Anomaly {
        let missing =
            if from == to { format!("batch {from} is") } else { format!("batches {from} to {to} are") };
        Anomaly::new("gap", format!("{missing} missing; what was known is cleared"))
    }

    /// The same batch again.
    pub fn repeated() -> Anomaly {
        Anomaly::new("repeated", "the same batch again, passed over".into())
    }

    /// A payload that is no batch.
    pub fn undecodable(reject: Reject) -> Anomaly {
        let cause = match reject {
            Reject::Format(fault) => format!("it is no MessagePack ({fault:?})"),
            Reject::Batch => "it is no array of a time, events and perhaps a rank".into(),
            Reject::Event => "an event in it is neither array nor map, or has no kind".into(),
            Reject::Member(name) => format!("its member {name} has another type or a value out of range"),
            Reject::Hash => "a hash in it is neither an integer nor at least 8 bytes".into(),
            Reject::Trailing => "bytes follow the batch".into(),
        };
        Anomaly::new("undecodable", format!("the batch can't be decoded: {cause}; what was known is cleared"))
    }

    /// Events of kinds that are not known here.
    pub fn unknown(count: u32) -> Anomaly {
        Anomaly::new("unknown_event", format!("{count} of a kind that is not known here, passed over"))
    }

    /// Blocks of one event that were held already; none if there are none.
    pub fn stored_twice(shelf: Shelf, keys: Vec<u64>) -> Option<Anomaly> {
        Anomaly::blocks("stored_twice", "stored, and held there already", shelf, keys)
    }

    /// Blocks of one event that were not held where they are said to leave; none if there are none.
    pub fn not_held(shelf: Shelf, keys: Vec<u64>) -> Option<Anomaly> {
        Anomaly::blocks("removed_not_held", "removed, and not held there", shelf, keys)
    }

    /// Blocks of one drained event, said to move or leave, that are held on no level; none if there are none.
    pub fn held_nowhere(keys: Vec<u64>) -> Option<Anomaly> {
        let first = hex(*keys.first()?);
        let text = format!("{} removed or moved, and not held: {first}{}", count(&keys), more(&keys));
        Some(Anomaly { kind: "removed_not_held", text, keys })
    }

    fn blocks(kind: &'static str, what: &str, shelf: Shelf, keys: Vec<u64>) -> Option<Anomaly> {
        let Shelf { group, medium } = shelf;
        let first = hex(*keys.first()?);
        let place = format!("{}, group {group}", medium_name(medium));
        let text = format!("{} {what} ({place}): {first}{}", count(&keys), more(&keys));
        Some(Anomaly { kind, text, keys })
    }

    /// An answer that was asked for and did not come whole.
    pub fn lost() -> Anomaly {
        Anomaly::drain(DrainFault::Lost, None)
    }

    /// What a drained stream was fenced for.
    pub fn drain(fault: DrainFault, last: Option<u64>) -> Anomaly {
        let after = last.map_or(String::new(), |last| format!(" after {last}"));
        let (kind, cause) = match fault {
            DrainFault::Gap => ("gap", format!("events{after} are missing")),
            DrainFault::OwnershipLost => ("regression", format!("the event id went back{after}")),
            DrainFault::Lost => ("lost", "an answer was lost after the engine had given it away".into()),
        };
        Anomaly::new(kind, format!("{cause}; nothing counts until the cache is created anew"))
    }

    /// Its members, for an object of JSON.
    pub fn members(&self) -> [(&'static str, Value); 3] {
        let keys: Vec<String> = self.keys.iter().map(|key| hex(*key)).collect();
        [("kind", json!(self.kind)), ("text", json!(self.text)), ("keys", json!(keys))]
    }
}

fn count(keys: &[u64]) -> String {
    if keys.len() == 1 { "1 block".into() } else { format!("{} blocks", keys.len()) }
}

fn more(keys: &[u64]) -> &'static str {
    if keys.len() == 1 { "" } else { " …" }
}
