//! JSON: find a few top-level members, read their text, splice them.
//!
//! Owns a validating scanner of RFC 8259 without a tree. It must never change a byte that the gateway does
//! not own. Reading order: `scan` (the grammar), `peek` (top-level members).

mod peek;
mod scan;

pub use peek::{JsonFault, JsonLimits, Kind, Member, Members, Value, peek};
