//! The table of members as a markdown document, so that what operators read is what is checked.

use super::members::{Accepts, Member, Others, Plain};
use super::table;
use std::fmt::Write as _;

const HEAD: &str = "# Rules\n\n\
<!-- Generated from core/src/rule/body/table.rs: `UPDATE=1 cargo test -p warmpath-core rules_md` -->\n\n\
A rule is a JSON object of `serviceArguments` (where requests arrive and how they are spread) and `endpoints`\n\
(the engines). Names are matched to the letter. An unknown name, a wrong value and a feature that is not\n\
served are refused as a whole, with a sentence that names the member, its value and what is allowed.\n\n\
Rules with the same `externalIP`, `port`, `host`, `path_prefix`, `path_match_mode` and `model_name` are the\n\
same rule: the later replaces the earlier.\n";

/// Titles and bodies of the examples; every body is accepted.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "Two engines in turn",
        r#"{"serviceArguments": {"externalIP": "127.0.0.1", "port": 8080, "mode": 4},
 "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9001, "weight": 1},
               {"endpointIP": "127.0.0.1", "targetPort": 9002, "weight": 1}]}"#,
    ),
    (
        "Chats with one beginning to one engine, by model, with health probes",
        r#"{"serviceArguments": {"externalIP": "10.0.0.254", "port": 8080, "mode": 4, "sel": 8,
                      "model_name": "Qwen/Qwen3-0.6B", "path_prefix": "/v1", "path_match_mode": "prefix",
                      "sse_mode": true, "monitor": true, "probetype": "http", "probereq": "/health",
                      "probeTimeout": 5, "probeRetries": 2},
 "endpoints": [{"endpointIP": "10.0.1.1", "targetPort": 8000, "weight": 1},
               {"endpointIP": "10.0.1.2", "targetPort": 8000, "weight": 1},
               {"endpointIP": "10.0.1.3", "targetPort": 8000, "weight": 1, "backup": true}]}"#,
    ),
    (
        "Three quarters to the larger engine, clients on IPv6",
        r#"{"serviceArguments": {"externalIP": "::1", "port": 8080, "mode": 4, "sel": 2, "host": "llm.example"},
 "endpoints": [{"endpointIP": "10.0.1.1", "targetPort": 8000, "weight": 3},
               {"endpointIP": "10.0.1.2", "targetPort": 8000, "weight": 1}]}"#,
    ),
    (
        "Exact routing over vLLM; the gateway has the engines' `PYTHONHASHSEED` in `LLB_KV_NONE_HASH_SEED`",
        r#"{"serviceArguments": {"externalIP": "10.0.0.254", "port": 8080, "mode": 4, "sel": 4,
                      "model_name": "Qwen/Qwen3-0.6B", "kvExactMode": 3, "kvHashAlgo": "sha256_cbor",
                      "kvBlockSize": 16, "kvZmqPort": 5557, "kvReplayPort": 5558},
 "endpoints": [{"endpointIP": "10.0.1.1", "targetPort": 8000, "weight": 1},
               {"endpointIP": "10.0.1.2", "targetPort": 8000, "weight": 1}]}"#,
    ),
    (
        "The same over SGLang with two data-parallel ranks and pages of 16 tokens",
        r#"{"serviceArguments": {"externalIP": "10.0.0.254", "port": 8080, "mode": 4, "sel": 4,
                      "model_name": "Qwen/Qwen3-0.6B", "kvExactMode": 3, "kvEngineType": "sglang",
                      "kvBlockSize": 16, "kvZmqPort": 5557, "kvReplayPort": 5657, "kvDpRankCount": 2},
 "endpoints": [{"endpointIP": "10.0.1.1", "targetPort": 30000, "weight": 1},
               {"endpointIP": "10.0.1.2", "targetPort": 30000, "weight": 1}]}"#,
    ),
    (
        "The same over TensorRT-LLM, whose events are asked for where requests go",
        r#"{"serviceArguments": {"externalIP": "10.0.0.254", "port": 8080, "mode": 4, "sel": 4,
                      "model_name": "Qwen/Qwen3-0.6B", "kvExactMode": 3, "kvEngineType": "trtllm"},
 "endpoints": [{"endpointIP": "10.0.1.1", "targetPort": 8000, "weight": 1},
               {"endpointIP": "10.0.1.2", "targetPort": 8000, "weight": 1}]}"#,
    ),
];

/// The document, as it stands in `core/RULES.md`.
pub fn document() -> String {
    let mut out = HEAD.to_string();
    out.push_str("\n## Examples\n");
    for (title, body) in EXAMPLES {
        let _ = write!(out, "\n{title}:\n\n```json\n{body}\n```\n");
    }
    for (title, members) in
        [("The body", table::BODY), ("serviceArguments", table::SERVICE), ("endpoints", table::ENDPOINT)]
    {
        let _ = write!(out, "\n## {title}\n\n| Member | Allowed | Default | Meaning |\n|---|---|---|---|\n");
        for member in members.iter().filter(|m| !only_at_default(m)) {
            let (allowed, default) = (member.allowed(), member.default.words());
            let _ = writeln!(out, "| `{}` | {allowed} | {default} | {} |", member.name, member.meaning);
        }
    }
    out.push_str("\n## Known, but served only so far\n\n");
    out.push_str("| Member | Accepted | Otherwise refused as | For |\n|---|---|---|---|\n");
    for member in table::BODY.iter().chain(table::SERVICE).chain(table::ENDPOINT) {
        if let Some(refused) = Some(member).filter(|m| only_at_default(m)).and_then(refused_as) {
            let _ = writeln!(
                out,
                "| `{}` | {} | {refused} | {} |",
                member.name,
                member.allowed(),
                member.meaning
            );
        }
    }
    out
}

/// Whether nothing but values without effect is accepted.
fn only_at_default(member: &Member) -> bool {
    match member.accepts {
        Accepts::Default(_) => true,
        Accepts::Just(values, _) => values.iter().all(|v| *v == member.default || without_effect(*v)),
        Accepts::All | Accepts::Ignored => false,
    }
}

fn without_effect(value: Plain) -> bool {
    matches!(value, Plain::Int(0) | Plain::Text("" | "inherit" | "disabled"))
}

fn refused_as(member: &Member) -> Option<&'static str> {
    match member.accepts {
        Accepts::Default(others) | Accepts::Just(_, others) => Some(match others {
            Others::Later => "not yet available",
            Others::Never => "not in this build",
        }),
        Accepts::All | Accepts::Ignored => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    /// `UPDATE=1` rewrites the file.
    #[test]
    fn rules_md_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RULES.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), document(), "run the test again with UPDATE=1");
    }

    #[test]
    fn every_example_is_accepted_and_every_member_documented() {
        let seeded = Environment { none_hash_seed: Some("0".into()), ..Environment::default() };
        for (title, body) in EXAMPLES {
            let body = serde_json::from_str(body).unwrap();
            super::super::parse(&body, &seeded, String::new)
                .unwrap_or_else(|fault| panic!("{title}: {fault}"));
        }
        let text = document();
        for member in table::BODY.iter().chain(table::SERVICE).chain(table::ENDPOINT) {
            assert!(text.contains(&format!("| `{}` |", member.name)), "{}", member.name);
        }
    }
}
