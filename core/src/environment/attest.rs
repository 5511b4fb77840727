//! What the environment says of attestation (`LOXILB_KV_ATTEST_…`). Owns the names and ranges.

use super::Reading;
use crate::attest::Cadence;
use crate::{Nanos, SECOND};

/// Reads them; seconds, 1 to 86,400.
pub(super) fn read<F: Fn(&str) -> Option<String>>(reading: &mut Reading<F>) -> Cadence {
    let default = Cadence::default();
    let mut seconds = |name, default: Nanos| reading.number(name, 1..=86_400, default / SECOND) * SECOND;
    let (probe, challenge, probe_wait, challenge_wait) = (
        seconds("LOXILB_KV_ATTEST_PROBE_CADENCE_S", default.probe),
        seconds("LOXILB_KV_ATTEST_CHALLENGE_CADENCE_S", default.challenge),
        seconds("LOXILB_KV_ATTEST_PROBE_TIMEOUT_S", default.probe_wait),
        seconds("LOXILB_KV_ATTEST_CHALLENGE_TIMEOUT_S", default.challenge_wait),
    );
    let mut switch = |name, default| reading.switch(name).unwrap_or(default);
    Cadence {
        probe,
        challenge,
        probe_wait,
        challenge_wait,
        require_manifest: switch("LOXILB_KV_ATTEST_REQUIRE_MANIFEST", default.require_manifest),
        functional_only: switch("LOXILB_KV_ATTEST_FUNCTIONAL_ONLY_OPTIN", default.functional_only),
    }
}
