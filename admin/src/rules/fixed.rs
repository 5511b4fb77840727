//! What of a rule can't be changed while it exists. Owns the table of it and its phrases, which scripts search; must
//! never refuse a replacement that leaves it as it is.

use super::Entry;
use crate::refusal::Refusal;
use serde_json::Value;
use warmpath_core::rule::Rule;

/// A member that stays.
#[derive(Debug)]
pub struct Fixed {
    /// Its name in `serviceArguments`.
    pub member: &'static str,
    /// How refusals call it.
    pub phrase: &'static str,
    /// The refusal's word for programs.
    pub code: &'static str,
    /// Whether it may be given once to a rule that does not say it.
    attached: bool,
    /// What a rule and its body say of it; `None` where that may become anything.
    told: fn(&Rule, &Value) -> Option<String>,
}

const FIXED: &[Fixed] = &[
    // Blocks of one kind of engine mean nothing to another, so what a rule learned can't be carried over.
    Fixed {
        member: "kvEngineType",
        phrase: "kv engine type",
        code: "engine_type_fixed",
        attached: false,
        told: |rule, _| Some(rule.engine.name().to_string()),
    },
    Fixed {
        member: "kvExactApiMode",
        phrase: "kv exact api mode",
        code: "api_mode_fixed",
        attached: false,
        told: |_, body| asks_exact(body).then(|| word(body, "kvExactApiMode")),
    },
    // Attached once: what was proven of a rule was proven of its profile.
    Fixed {
        member: "kvModelProfile",
        phrase: "kv model profile",
        code: "model_profile_fixed",
        attached: true,
        told: |_, body| asks_exact(body).then(|| word(body, "kvModelProfile")),
    },
];

/// Refuses `rule`, described by `body`, where it changes what is fixed of the rule that it replaces.
pub fn check(rule: &Rule, body: &Value, before: &Entry) -> Result<(), Refusal> {
    for fixed in FIXED {
        let was = (fixed.told)(&before.rule, &before.body);
        let asked = (fixed.told)(rule, body);
        if let (Some(was), Some(asked)) = (was, asked)
            && was != asked
            && !(fixed.attached && was.is_empty())
        {
            let (id, vip) = (before.rule.id.clone(), before.rule.key.vip);
            return Err(Refusal::Fixed { fixed, id, vip, was, asked });
        }
    }
    Ok(())
}

fn asks_exact(body: &Value) -> bool {
    matches!(body["serviceArguments"]["kvExactMode"].as_i64(), Some(1 | 3))
}

fn word(body: &Value, name: &str) -> String {
    body["serviceArguments"][name].as_str().unwrap_or("").to_string()
}
