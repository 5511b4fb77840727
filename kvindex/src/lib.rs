//! Who holds which KV block: a flat table from block key to set of holders, with one [`Writer`] and wait-free
//! [`Reader`]s that never allocate.
//!
//! It holds sets: a holder has a block or has it not. Whoever feeds it counts how often an engine stored one.
//!
//! Reading order: `plan` (how many bytes make how many slots), `publish` (the shared memory and its protocol),
//! `writer` (stored, removed), `clear` (a holder's whole content, swept in slices), `overlap` (what a decision
//! asks), `inventory` (all keys of a holder, paged). `check` walks every invariant; the tests compare with a naive map.
//!
//! Must never: decide, hash tokens, know an engine, read a clock or open a socket.

mod check;
mod clear;
mod holders;
mod inventory;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod model;
mod overlap;
mod plan;
mod publish;
mod rebuild;
mod writer;

pub use check::Broken;
pub use holders::{Holder, HolderSet};
pub use inventory::Cursor;
pub use overlap::{Reader, View};
pub use plan::{HOLDERS_MAX, Plan, PlanFault};
pub use publish::Readers;
pub use writer::{Removed, Stats, Stored, Write, Writer};

/// Makes an empty index of `plan`: the one that writes it, and the handle that registers readers.
///
/// `seed` makes slot positions unpredictable to clients, who choose tokens and so, in part, keys.
pub fn index(plan: Plan, seed: u64) -> (Writer, Readers) {
    let readers = Readers::new(plan, seed);
    (Writer::new(readers.shared()), readers)
}
