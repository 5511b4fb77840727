//! The table of members as a JSON schema (draft 2020-12), so that programs are told what is checked. Must never allow
//! what [`super::parse`] refuses of a single member; contradictions between members are not told.

use super::members::{Accepts, Kind, Member, Plain};
use super::table;
use crate::fleet::ENDPOINTS_MAX;
use serde_json::{Map, Value, json};

/// The schema of a rule body.
pub fn schema() -> Value {
    let mut body = object(table::BODY);
    body["properties"]["serviceArguments"] = object(table::SERVICE);
    body["properties"]["endpoints"]["items"] = object(table::ENDPOINT);
    body["properties"]["endpoints"]["minItems"] = json!(1);
    body["properties"]["endpoints"]["maxItems"] = json!(ENDPOINTS_MAX);
    body
}

fn object(table: &[Member]) -> Value {
    let properties: Map<String, Value> =
        table.iter().map(|member| (member.name.to_string(), property(member))).collect();
    let required: Vec<&str> = table.iter().filter(|m| m.default == Plain::Required).map(|m| m.name).collect();
    json!({
        "type": "object", "additionalProperties": false, "required": required, "properties": properties,
    })
}

fn property(member: &Member) -> Value {
    let mut property = kind(member.kind);
    property["description"] = json!(member.meaning);
    if let Some(default) = value(member.default) {
        property["default"] = default;
    }
    match member.accepts {
        Accepts::All => {}
        Accepts::Ignored => property["readOnly"] = json!(true),
        Accepts::Default(_) => property["enum"] = only(member),
        Accepts::Just(values, _) => {
            property["enum"] = values.iter().filter_map(|v| value(*v)).collect();
        }
    }
    property
}

/// What a member that is served at its default may hold.
fn only(member: &Member) -> Value {
    match (member.kind, value(member.default)) {
        (_, Some(default)) => json!([default]),
        (Kind::List, None) => json!([[]]),
        (_, None) => json!([{}]),
    }
}

fn kind(kind: Kind) -> Value {
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Int(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Text(bytes) => {
            json!({"type": "string", "maxLength": bytes, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"})
        }
        Kind::Address => json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}),
        Kind::Strings => json!({
            "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 256},
        }),
        Kind::Object => json!({"type": "object"}),
        Kind::List => json!({"type": "array"}),
        Kind::Any => json!({}),
    }
}

fn value(plain: Plain) -> Option<Value> {
    match plain {
        Plain::Flag(value) => Some(json!(value)),
        Plain::Int(value) => Some(json!(value)),
        Plain::Text(value) => Some(json!(value)),
        Plain::Required | Plain::Absent | Plain::Empty => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_there_with_what_is_served_of_it() {
        let schema = schema();
        let service = &schema["properties"]["serviceArguments"];
        assert_eq!(service["properties"].as_object().unwrap().len(), table::SERVICE.len());
        assert_eq!(service["required"], json!(["externalIP", "port"]));
        let of = |name: &str| &service["properties"][name];
        assert_eq!(of("mode")["enum"], json!([4]));
        assert_eq!(of("connectionLimit")["enum"], json!([0]));
        assert_eq!(of("kvZmqPort")["maximum"], 65_535);
        assert_eq!(of("tls_versions")["enum"], json!([[]]));
        assert_eq!(of("mtls_backend")["enum"], json!([{}]));
        assert_eq!(of("fc_effective")["readOnly"], true);
    }
}
