//! Rows of the Jinja2 oracle, and what differs from them. Owns the comparison.

use minijinja::value::Value;
use warmpath_prompt::Date;
use warmpath_prompt::template::{RenderFault, Template};

/// The oracle's day, 2026-12-31.
const TODAY: i64 = 1_798_675_200;

/// One row a line.
pub fn rows(text: &str) -> impl Iterator<Item = serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a row of JSON"))
}

/// The text of a template's source, or why there is none.
pub fn render(source: &str, members: &serde_json::Value) -> Result<String, String> {
    let template = Template::compile(source).map_err(|fault| fault.to_string())?;
    rendered(&template, members)
}

fn rendered(template: &Template, members: &serde_json::Value) -> Result<String, String> {
    let members = members.as_object().expect("an object");
    let members: Vec<(String, Value)> =
        members.iter().map(|(name, value)| (name.clone(), Value::from_serialize(value))).collect();
    let words = |fault: RenderFault| match fault {
        RenderFault::Raised(words) => format!("TemplateError: {words}"),
        other => other.to_string(),
    };
    template.render([], &members, Some(Date::of_unix(TODAY))).map_err(words)
}

/// Differences over conversations: the text must be the same, and a fault where Jinja2 has one.
pub fn differences(source: &str, rows: impl Iterator<Item = serde_json::Value>) -> Vec<String> {
    let template = Template::compile(source).expect("a template of a vendor");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for row in rows {
        compared += 1;
        let ours = rendered(&template, &row["members"]);
        if row["text"].as_str() != ours.as_deref().ok() {
            wrong.push(format!("{}\n  jinja2: {:?}\n  here:   {ours:?}", row["members"], row));
        }
    }
    assert!(compared > 20, "only {compared} conversations");
    wrong
}
