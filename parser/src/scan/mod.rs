//! Where a run of bytes of one class ends.
//!
//! Owns the byte classes and their two implementations: `plain`, one byte at a time, which is the
//! definition, and `wide`, 16 bytes at a time, which must give the same answer (differential test in
//! `wide`). It must never read past the slice or know what the bytes mean.

mod plain;
mod wide;

pub(crate) use plain::is_token;
pub(crate) use wide::{string_end, target_end, token_end, value_end};
