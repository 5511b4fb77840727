//! The llama.cpp server: it publishes no cache events, so its blocks have no names. Owns that answer.

use super::answers::Answers;

/// What it answers: no events, no prefill/decode, no ranks.
pub(super) const ANSWERS: Answers = Answers { name: "llamacpp", ..Answers::SILENT };
