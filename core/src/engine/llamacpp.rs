//! The llama.cpp server: it publishes no cache events, so its blocks have no names. Owns that answer.

use super::Algo;
use super::text::{Looped, TextTerms};

pub(super) const ALGORITHMS: &[Algo] = &[];

/// No events.
pub(super) const EVENT_PORT: bool = false;

/// No prefill/decode.
pub(super) const BOOTSTRAP_PORT: bool = false;

/// Never asked while its blocks have no names.
pub(super) const TEXT: TextTerms = TextTerms { joiner: "\n", looped: Looped::Joined };
