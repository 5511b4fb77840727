//! Templates against what Jinja2 made of them, as committed: expressions one by one, and the templates of two
//! vendors over conversations. Where Jinja2 fails or the outcome is not known, a fault is right; other text
//! never is.

use crate::jinja;
use sha2::{Digest, Sha256};
use warmpath_prompt::template::{VERIFIED, Verified};

/// What renders in Python and is refused here. Declined, such a request goes on by the next tier.
const REFUSED: &[&str] = &[
    "{{ [1, 2] + [3] }}",
    "{{ list[1:] }}",
    "{{ list[:-1] }}",
    "{{ list[::-1] }}",
    "{{ list[::2] }}",
    "{{ \"x\" | int }}",
    "{{ m | items | list }}",
    "{{ m.items() | list }}",
    "{{ nested | dictsort }}",
    "{{ range(3) }}",
    "{{ \"%s and %d\" % (\"a\", 1) }}",
    "{{ \"a b c\" | wordcount }}",
    "{{ words | groupby(0) }}",
    "{{ list | batch(2) | list }}",
    "{{ nothing | length }}",
];

/// Templates over conversations with tools.
const TOOLS: [(&str, &str); 3] = [
    (include_str!("../templates/qwen3_later.jinja"), include_str!("../golden/qwen3_later.tools.jsonl")),
    (
        include_str!("../templates/tool_deepseekv31.jinja"),
        include_str!("../golden/tool_deepseekv31.tools.jsonl"),
    ),
    (
        include_str!("../templates/tool_llama3_1_json.jinja"),
        include_str!("../golden/tool_llama3_1_json.tools.jsonl"),
    ),
];

/// What renders here and fails in Python, and the engine with it.
const LENIENT: &[&str] = &["{% for x in none %}x{% endfor %}"];

#[test]
fn expressions_have_jinja2_s_outcome() {
    let rows: Vec<_> = jinja::rows(include_str!("../golden/expressions.jsonl")).collect();
    let members: serde_json::Value =
        serde_json::from_str(include_str!("../oracle/expressions.txt.json")).expect("JSON");
    assert!(rows.len() > 250, "{}", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let source = row["source"].as_str().expect("a source");
        let (ours, theirs) = (jinja::render(source, &members), row["text"].as_str());
        let right = match (theirs, &ours) {
            (Some(theirs), Ok(ours)) => theirs == ours && !REFUSED.contains(&source),
            (Some(_), Err(_)) => REFUSED.contains(&source),
            (None, Ok(_)) => LENIENT.contains(&source),
            (None, Err(_)) => true,
        };
        if !right {
            wrong.push(format!(
                "{source}\n  jinja2: {:?}\n  here:   {ours:?}",
                theirs.or(row["error"].as_str())
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn conversations_have_jinja2_s_text() {
    let cases = [
        (include_str!("../templates/qwen3.jinja"), include_str!("../golden/qwen3.jsonl")),
        (include_str!("../templates/deepseek_v3.jinja"), include_str!("../golden/deepseek_v3.jsonl")),
    ];
    for (source, golden) in cases {
        let mut rows = jinja::rows(golden);
        let hash: String = Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(rows.next().expect("a first row")["template_sha256"].as_str(), Some(hash.as_str()));
        let wrong = jinja::differences(source, rows);
        assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn tools_have_jinja2_s_text() {
    for (source, golden) in TOOLS {
        let verified = Verified::of(source).expect("a verified template");
        assert!(verified.tools, "{}", verified.name);
        let wrong = jinja::differences(source, jinja::rows(golden));
        assert!(wrong.is_empty(), "{}: {}:\n{}", verified.name, wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn each_verified_template_is_here_to_the_byte() {
    for verified in VERIFIED {
        let path = format!("{}/tests/templates/{}.jinja", env!("CARGO_MANIFEST_DIR"), verified.name);
        let source = std::fs::read_to_string(&path).expect("a template of the list");
        assert_eq!(Verified::of(&source), Some(verified), "{path}");
        assert_eq!(Verified::of(&format!("{source} ")), None, "one blank more is another template");
    }
}
