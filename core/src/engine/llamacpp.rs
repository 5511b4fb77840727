//! The llama.cpp server: it publishes no cache events, so its blocks have no names. Owns that answer.

use super::Algo;

pub(super) const ALGORITHMS: &[Algo] = &[];

/// No events.
pub(super) const EVENT_PORT: bool = false;

/// No prefill/decode.
pub(super) const BOOTSTRAP_PORT: bool = false;
