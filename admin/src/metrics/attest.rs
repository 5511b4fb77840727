//! The families of attestation. Owns their table; a rule without a model profile has a state too, and no samples of
//! challenges.

use super::{Family, family};
use warmpath_core::attest::State;

/// In the terms of the loxilb AI gateway: `rule` is the rule's id.
pub const FAMILIES: &[Family] = &[
    family(
        "loxilb_ai_kv_attest_state",
        "gauge",
        "1 for the state that is enforced of a rule with a model profile, 0 for the others.",
        |f, p| {
            for (rule, status) in &f.attest.rules {
                for state in State::ALL {
                    let is_it = u64::from(status.enforced == state);
                    p.sample("", &[("rule", rule), ("state", state.word())], is_it);
                }
            }
        },
    ),
    family("loxilb_ai_kv_attest_echo_total", "counter", "Challenges, by what came of them.", |f, p| {
        for (result, count) in &f.attest.echoes {
            p.sample("", &[("result", result)], *count);
        }
    }),
    family(
        "loxilb_ai_kv_attest_probe_fail_total",
        "counter",
        "Answers of engines that ended a proof or kept one from being made, by reason.",
        |f, p| {
            for (reason, count) in &f.attest.failures {
                p.sample("", &[("reason", reason.word())], *count);
            }
        },
    ),
    family(
        "loxilb_ai_kv_enforcement_fault",
        "gauge",
        "1 while the shards have not what they were told of a rule.",
        |f, p| {
            for (rule, status) in &f.attest.rules {
                p.sample("", &[("rule", rule)], u64::from(status.enforcement.fault.is_some()));
            }
        },
    ),
];
