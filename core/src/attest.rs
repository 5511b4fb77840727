//! Attestation: what has to be proven of an engine before a rule that names a model profile routes by its blocks, and
//! what was. Owns the words of states and reasons; must never read a clock, a file or a socket: time and answers are
//! passed in.
//!
//! An endpoint climbs a ladder ([`Ladder`]): what it says of itself, how it tokenizes, how it names the blocks of a
//! prompt that nobody sent before. Each rank of it routes by blocks from the moment that all of it is proven, and not
//! one decision longer: whatever contradicts, changes or goes silent takes the proof away before anything is asked
//! anew. A rule ([`Binding`]) is ready when all ranks of all its endpoints are.

mod binding;
mod challenge;
mod identity;
mod ladder;
mod reason;

pub use binding::{Binding, EndpointStatus, Enforcement, RankStatus, Standing, Status, Write};
pub use challenge::{Challenge, Echo, Heard, Listening};
pub use identity::{Deployed, Told};
pub use ladder::{Answer, Ask, Ladder, Parity, Terms, Ticket, Unanswered};
pub use reason::{EnforcementFault, Reason, State};

use crate::{Nanos, SECOND};

/// When proofs are asked for, and how long they hold. The environment's `LOXILB_KV_ATTEST_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// From one look at what an engine says of itself, and how it tokenizes, to the next
    /// (`…_PROBE_CADENCE_S`).
    pub probe: Nanos,
    /// From one challenge of a rank to the next (`…_CHALLENGE_CADENCE_S`).
    pub challenge: Nanos,
    /// How long an answer may take (`…_PROBE_TIMEOUT_S`).
    pub probe_wait: Nanos,
    /// How long the events of a challenge may take (`…_CHALLENGE_TIMEOUT_S`).
    pub challenge_wait: Nanos,
    /// Whether a rule without a manifest stays short of ready (`…_REQUIRE_MANIFEST`).
    pub require_manifest: bool,
    /// Whether one is then ready as far as it works (`…_FUNCTIONAL_ONLY_OPTIN`).
    pub functional_only: bool,
}

impl Default for Cadence {
    fn default() -> Cadence {
        Cadence {
            probe: 60 * SECOND,
            challenge: 1800 * SECOND,
            probe_wait: 5 * SECOND,
            challenge_wait: 15 * SECOND,
            require_manifest: true,
            functional_only: false,
        }
    }
}

#[cfg(test)]
mod tests;
