//! The llama.cpp server: it publishes no cache events, so its blocks have no names. Owns that answer.

use super::Algo;

pub(super) const ALGORITHMS: &[Algo] = &[];
