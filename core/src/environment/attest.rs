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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn read(values: &[(&str, &str)]) -> (Cadence, usize) {
        let get =
            |name: &str| values.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        let (environment, warnings) = Environment::read(get, 0);
        (environment.attest, warnings.len())
    }

    #[test]
    fn each_variable_is_read_and_a_wrong_one_told() {
        let all = [
            ("LOXILB_KV_ATTEST_PROBE_CADENCE_S", "1"),
            ("LOXILB_KV_ATTEST_CHALLENGE_CADENCE_S", "2"),
            ("LOXILB_KV_ATTEST_PROBE_TIMEOUT_S", "3"),
            ("LOXILB_KV_ATTEST_CHALLENGE_TIMEOUT_S", "86400"),
            ("LOXILB_KV_ATTEST_REQUIRE_MANIFEST", "false"),
            ("LOXILB_KV_ATTEST_FUNCTIONAL_ONLY_OPTIN", "true"),
        ];
        let wanted = Cadence {
            probe: SECOND,
            challenge: 2 * SECOND,
            probe_wait: 3 * SECOND,
            challenge_wait: 86_400 * SECOND,
            require_manifest: false,
            functional_only: true,
        };
        assert_eq!(read(&all), (wanted, 0));
        let wrong = all.map(|(name, _)| (name, "0.5"));
        assert_eq!(read(&wrong), (Cadence::default(), all.len()));
    }
}
