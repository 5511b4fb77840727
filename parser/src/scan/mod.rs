//! Where a run of bytes of one class ends.
//!
//! Owns the byte classes and their two implementations: `plain`, one byte at a time, which is the
//! definition, and `simd`, 16 bytes at a time, which must give the same answer (differential test in
//! `simd`). It must never read past the slice or know what the bytes mean.

mod plain;
mod simd;

pub(crate) use plain::is_token;
pub(crate) use simd::{find, string_end, target_end, token_end, value_end};
