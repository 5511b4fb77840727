//! The families of attestation. Owns their table; a rule without a model profile has a state too, and no samples of
//! challenges.

use super::family::{Family, Listed, family};
use warmpath_core::attest::State;

/// In the terms of the loxilb AI gateway: `rule` is the rule's id.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_kv_attest_state",
        "1 for the state that is enforced of a rule with a model profile, 0 for the others.",
        &Listed(&["rule", "state"], |f, p| {
            for (rule, status) in &f.attest.rules {
                for state in State::ALL {
                    p.sample(&[rule, &state.word()], u8::from(status.enforced == state));
                }
            }
        }),
    ),
    family(
        "loxilb_ai_kv_attest_echo_total",
        "Challenges, by what came of them.",
        &Listed(&["result"], |f, p| {
            f.attest.echoes.iter().for_each(|(result, count)| p.sample(&[result], count));
        }),
    ),
    family(
        "loxilb_ai_kv_attest_probe_fail_total",
        "Answers of engines that ended a proof or kept one from being made, by reason.",
        &Listed(&["reason"], |f, p| {
            f.attest.failures.iter().for_each(|(reason, count)| p.sample(&[&reason.word()], count));
        }),
    ),
    family(
        "loxilb_ai_kv_enforcement_fault",
        "1 while the shards have not what they were told of a rule.",
        &Listed(&["rule"], |f, p| {
            for (rule, status) in &f.attest.rules {
                p.sample(&[rule], u8::from(status.enforcement.fault.is_some()));
            }
        }),
    ),
];
