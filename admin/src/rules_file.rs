//! A file of rule bodies: a JSON array (or one body), or TOML `[[rule]]` tables. Owns where in the text a
//! member stands, so that a refusal can name line and column; must never judge a body.

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

/// The bodies of a file, with its text to find places in.
pub struct RulesFile {
    /// The path, as messages name it.
    pub name: String,
    /// The bodies in the order of the file.
    pub bodies: Vec<Value>,
    text: String,
    form: Form,
}

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Toml,
}

impl RulesFile {
    /// Reads a file. An error is one sentence with place, cause and cure.
    pub fn read(path: &Path) -> Result<RulesFile, String> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|e| format!("{name}: can't be read: {e}; give a readable file of rules"))?;
        let text = String::from_utf8(bytes)
            .map_err(|e| format!("{name}: byte {} is no UTF-8", e.utf8_error().valid_up_to() + 1))?;
        RulesFile::parse(name, text, path.extension().is_some_and(|e| e == "toml"))
    }

    /// Takes a text for JSON if it begins like JSON, else for TOML; `toml` is what the file's name says.
    /// A TOML text may begin with `[` as well, so the name decides there.
    pub fn parse(name: String, text: String, toml: bool) -> Result<RulesFile, String> {
        let json =
            !toml && text.trim_start().starts_with(['[', '{']) && !text.trim_start().starts_with("[[rule");
        let form = if json { Form::Json } else { Form::Toml };
        let bodies = match form {
            Form::Json => json_bodies(&name, &text)?,
            Form::Toml => toml_bodies(&name, &text)?,
        };
        Ok(RulesFile { name, bodies, text, form })
    }

    /// The sentence for a refused body: `file:line:column: refusal`. `member` is a path such as
    /// `serviceArguments.port` or `endpoints[1].weight`; a member that is absent is placed at what should
    /// hold it.
    pub fn sentence(&self, index: usize, member: &str, refusal: &dyn Display) -> String {
        let steps = steps(member);
        let offset = match self.form {
            Form::Json => json_place(&self.text, index, &steps),
            Form::Toml => toml_place(&self.text, index, &steps),
        };
        let (line, column) = line_column(&self.text, offset.unwrap_or(0));
        format!("{}:{line}:{column}: {refusal}", self.name)
    }
}

fn json_bodies(name: &str, text: &str) -> Result<Vec<Value>, String> {
    let document: Value = serde_json::from_str(text)
        .map_err(|e| format!("{name}:{}:{}: not valid JSON: {e}", e.line(), e.column()))?;
    match document {
        Value::Array(bodies) => Ok(bodies),
        Value::Object(mut map) if map.contains_key("lbAttr") => match map.remove("lbAttr") {
            Some(Value::Array(bodies)) => Ok(bodies),
            _ => Err(format!("{name}:1:1: lbAttr must be an array of rule bodies")),
        },
        body @ Value::Object(_) => Ok(vec![body]),
        _ => Err(format!("{name}:1:1: a JSON array of rule bodies is expected")),
    }
}

fn toml_bodies(name: &str, text: &str) -> Result<Vec<Value>, String> {
    let place = |offset: usize| {
        let (line, column) = line_column(text, offset);
        format!("{name}:{line}:{column}")
    };
    let document: toml::Table = toml::from_str(text).map_err(|e: toml::de::Error| {
        format!("{}: not valid TOML: {}", place(e.span().map_or(0, |s| s.start)), e.message())
    })?;
    if let Some(other) = document.keys().find(|k| *k != "rule") {
        return Err(format!("{name}: unknown table {other}; rules are [[rule]] tables"));
    }
    let rules = document.get("rule").and_then(|r| r.as_array()).cloned().unwrap_or_default();
    let json = |rule| serde_json::to_value(rule).map_err(|e| format!("{name}: {e}"));
    rules.into_iter().map(json).collect()
}

/// One step into a body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Item(usize),
}

fn steps(path: &str) -> Vec<Step> {
    let parts = path.split(['.', '[', ']']).filter(|p| !p.is_empty());
    parts.map(|p| p.parse().map(Step::Item).unwrap_or_else(|_| Step::Member(p.into()))).collect()
}

/// Byte offset of the deepest existing value on the way to a member of body `index`.
fn json_place(text: &str, index: usize, steps: &[Step]) -> Option<usize> {
    let offset = |raw: &RawValue| (raw.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    let list = match child(text, &Step::Member("lbAttr".into())) {
        Some(list) => list.get(),
        None => text,
    };
    let mut here: Option<&RawValue> = child(list, &Step::Item(index));
    let mut inner = here.map_or(list, RawValue::get);
    for step in steps {
        let Some(next) = child(inner, step) else { break };
        (here, inner) = (Some(next), next.get());
    }
    here.and_then(offset)
}

fn child<'t>(text: &'t str, step: &Step) -> Option<&'t RawValue> {
    match step {
        Step::Item(i) => serde_json::from_str::<Vec<&RawValue>>(text).ok()?.get(*i).copied(),
        Step::Member(name) => {
            serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok()?.get(name).copied()
        }
    }
}

fn toml_place(text: &str, index: usize, steps: &[Step]) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let mut here = document.get_ref().get("rule")?.get_ref().as_array()?.get(index)?;
    for step in steps {
        let next = match step {
            Step::Item(i) => here.get_ref().as_array().and_then(|a| a.get(*i)),
            Step::Member(name) => here.get_ref().as_table().and_then(|t| t.get(name.as_str())),
        };
        match next {
            Some(next) => here = next,
            None => break,
        }
    }
    Some(here.span().start)
}

/// Line and column, from 1, of a byte offset; columns count characters.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, toml: bool) -> RulesFile {
        RulesFile::parse("rules".into(), text.into(), toml).unwrap()
    }

    #[test]
    fn a_member_of_a_json_body_is_found() {
        let text = "[\n  {\"serviceArguments\": {\"port\": 80}},\n  {\"serviceArguments\": {\n    \"port\": \"x\"},\n   \"endpoints\": [{\"weight\": 1}, {\"weight\": -1}]}\n]";
        let rules = file(text, false);
        assert_eq!(rules.bodies.len(), 2);
        assert_eq!(rules.sentence(1, "serviceArguments.port", &"bad"), "rules:4:13: bad");
        assert_eq!(rules.sentence(1, "endpoints[1].weight", &"bad"), "rules:5:44: bad");
        assert_eq!(rules.sentence(1, "serviceArguments.externalIP", &"missing"), "rules:3:24: missing");
        assert_eq!(rules.sentence(0, "endpoints", &"missing"), "rules:2:3: missing");
    }

    #[test]
    fn a_listing_can_be_applied_again() {
        let rules = file("{\"lbAttr\": [{\"endpoints\": 1}]}", false);
        assert_eq!(rules.bodies[0]["endpoints"], 1);
        assert_eq!(rules.sentence(0, "endpoints", &"bad"), "rules:1:27: bad");
    }

    #[test]
    fn a_member_of_a_toml_table_is_found() {
        let text = "[[rule]]\nserviceArguments = { port = 80 }\n[[rule]]\n[rule.serviceArguments]\nport = \"ä\"\n[[rule.endpoints]]\nweight = -1\n";
        let rules = file(text, true);
        assert_eq!(rules.bodies[1]["serviceArguments"]["port"], "ä");
        assert_eq!(rules.sentence(1, "serviceArguments.port", &"bad"), "rules:5:8: bad");
        assert_eq!(rules.sentence(1, "endpoints[0].weight", &"bad"), "rules:7:10: bad");
        assert_eq!(file("# by content\n[[rule]]\nendpoints = []\n", false).bodies.len(), 1);
    }

    #[test]
    fn what_is_no_rules_file_is_named_with_its_place() {
        let fault = |text: &str, toml| RulesFile::parse("rules".into(), text.into(), toml).err().unwrap();
        assert!(fault("[\n{\"a\": }\n]", false).starts_with("rules:2:7: not valid JSON"));
        assert!(fault("[[rule]]\nx = \n", true).starts_with("rules:2:5: not valid TOML"));
        assert!(fault("[[rules]]\nx = 1\n", true).contains("unknown table rules"));
    }
}
