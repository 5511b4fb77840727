//! The llama.cpp server (b11434): it publishes no cache events, so its blocks have no names, and does prefill and decode
//! in one process. Owns that answer, and what it tells of its slots.

use super::answers::Answers;
use super::telemetry::{Capacity, Gauges, Telemetry};

/// What it answers: no events, no prefill/decode, no ranks.
pub(super) const ANSWERS: Answers = Answers {
    name: "llamacpp",
    telemetry: Some(Telemetry { path: "/metrics", read: |page| GAUGES.read(page), lookups: None }),
    ..Answers::SILENT
};

/// As a server with `--metrics` says them; it does not tell how full its caches are.
const GAUGES: Gauges = Gauges {
    running: "llamacpp:requests_processing",
    waiting: "llamacpp:requests_deferred",
    kv_use: "",
    capacity: Capacity::Untold,
};
