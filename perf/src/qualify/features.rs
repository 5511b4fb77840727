//! The gates of the ring's features: what its own probes found. Owns only their translation.

use super::{Gate, Verdict};

/// A gate for each feature that the io_uring driver stands on.
pub fn gates() -> Vec<Gate> {
    warmpath_ring::probe().into_iter().map(gate).collect()
}

fn gate(probe: warmpath_ring::Probe) -> Gate {
    let name = format!("io_uring: {}", probe.name);
    match probe.verdict {
        warmpath_ring::Verdict::Pass => Gate::pass(name, ""),
        warmpath_ring::Verdict::Fail(cause) => Gate::not_passed(name, Verdict::Fail, cause, probe.cure),
        // The cure of what kept it from being tried stands with the setup of the ring.
        warmpath_ring::Verdict::NotRun(why) => Gate::not_passed(name, Verdict::NotRun, why, ""),
    }
}
