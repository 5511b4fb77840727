//! Refusals generated from the table: no member of it goes untested.

use super::members::{Accepts, Kind, Member, Others, Plain};
use super::*;
use serde_json::json;

/// A body in which `value` stands at `name` of one of the three objects.
fn body_with(place: &str, name: &str, value: Value) -> (Value, String) {
    let mut body = json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 8080},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 9001, "weight": 1}]
    });
    if name == "kvExactMode" && value == 1 {
        body["serviceArguments"]["pd_disagg_mode"] = json!(true);
        let end =
            |port: u16, role: u8| json!({"endpointIP": "127.0.0.1", "targetPort": port, "ep_role": role});
        body["endpoints"] = json!([end(9001, 1), end(9002, 2)]);
    }
    let path = match place {
        "" => {
            body[name] = value;
            name.to_string()
        }
        "serviceArguments" => {
            body["serviceArguments"][name] = value;
            format!("serviceArguments.{name}")
        }
        _ => {
            body["endpoints"][0][name] = value;
            format!("endpoints[0].{name}")
        }
    };
    if name.starts_with("chwbl_") {
        body["serviceArguments"]["sel"] = json!(8);
    }
    if name == "kvExactApiMode" {
        body["serviceArguments"]["kvExactMode"] = json!(3);
    }
    (body, path)
}

/// In an environment where every engine can be routed to by blocks.
fn take(body: &Value) -> Result<Rule, BodyFault> {
    let environment = Environment { none_hash_seed: Some("0".into()), ..Environment::default() };
    parse(body, &environment, || "fresh".into())
}

fn rows() -> impl Iterator<Item = (&'static str, &'static Member)> {
    let tables = [("", table::BODY), ("serviceArguments", table::SERVICE), ("endpoints", table::ENDPOINT)];
    tables.into_iter().flat_map(|(place, table)| table.iter().map(move |m| (place, m)))
}

fn refuse(place: &str, name: &str, value: Value) -> BodyFault {
    let (body, path) = body_with(place, name, value);
    match take(&body) {
        Ok(_) => panic!("accepted {body}"),
        Err(fault) => {
            assert_eq!(fault.member, path, "{fault}");
            assert!(fault.message.contains(&path) && fault.message.contains(&fault.value), "{fault}");
            assert!(!fault.allowed.is_empty() && fault.message.ends_with(&fault.allowed), "{fault}");
            fault
        }
    }
}

/// Values of kinds that `kind` is not.
fn wrong_kinds(kind: Kind) -> Vec<Value> {
    let mut wrong = vec![Value::Null, json!(1.5)];
    let all = [json!(true), json!(1), json!("x"), json!([1]), json!({"x": "y"})];
    let own = match kind {
        Kind::Flag => 0,
        Kind::Int(..) => 1,
        Kind::Word(_) | Kind::Text(_) | Kind::Address => 2,
        Kind::List => 3,
        Kind::Strings | Kind::Object => 4,
        Kind::Any => return Vec::new(),
    };
    wrong.extend(all.into_iter().enumerate().filter(|(i, _)| *i != own).map(|(_, v)| v));
    wrong
}

/// Values of the right kind that the schema does not know.
fn outside(kind: Kind) -> Vec<Value> {
    match kind {
        Kind::Int(min, max) => vec![json!(min - 1), json!(max + 1), json!(i64::MIN), json!(u64::MAX)],
        Kind::Word(words) => [format!("{}_", words[0]), other_case(words[words.len() - 1])]
            .into_iter()
            .filter(|w| !words.contains(&w.as_str()))
            .map(Value::from)
            .collect(),
        Kind::Text(max) => vec![json!("x".repeat(max + 1)), json!("a\nb"), json!("a\u{0}")],
        Kind::Address => {
            vec![json!(""), json!("localhost"), json!("1.2.3"), json!("10.0.0.1/32"), json!("::1%lo")]
        }
        _ => Vec::new(),
    }
}

fn other_case(word: &str) -> String {
    let flip = |c: char| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    word.chars().map(flip).collect()
}

/// Some values that the schema knows, its bounds among them.
fn inside(kind: Kind) -> Vec<Value> {
    match kind {
        Kind::Flag => vec![json!(true), json!(false)],
        Kind::Int(min, max) => (min..=max.min(min + 12)).chain([max]).map(|n| json!(n)).collect(),
        Kind::Word(words) => words.iter().map(|w| json!(w)).collect(),
        Kind::Text(_) => vec![json!(""), json!("x")],
        Kind::Object => vec![json!({}), json!({"x": "y"})],
        Kind::List => vec![json!([]), json!([1])],
        _ => Vec::new(),
    }
}

#[test]
fn every_wrong_kind_is_refused() {
    let mut sent = 0;
    for (place, member) in rows() {
        for value in wrong_kinds(member.kind) {
            let fault = refuse(place, member.name, value);
            let null = fault.value == "null" && member.name.starts_with("fc_");
            let expected = if null && member.name != "fc_effective" {
                (400, "null_member")
            } else {
                (422, "wrong_kind")
            };
            assert_eq!((fault.status, fault.code), expected, "{fault}");
            sent += 1;
        }
    }
    assert!(sent > 500, "{sent}");
}

#[test]
fn every_value_outside_of_its_range_is_refused() {
    for (place, member) in rows() {
        for value in outside(member.kind) {
            let fault = refuse(place, member.name, value);
            assert_eq!((fault.status, fault.code), (422, "out_of_range"), "{fault}");
        }
    }
}

/// The words with which unserved values are refused. Where a contradiction is told first, its own words stand.
#[test]
fn every_unserved_value_is_refused_and_every_default_accepted() {
    for (place, member) in rows() {
        let (served, others): (Vec<Plain>, Others) = match member.accepts {
            Accepts::Default(others) => (vec![member.default], others),
            Accepts::Just(values, others) => (values.to_vec(), others),
            Accepts::All | Accepts::Ignored => continue,
        };
        for value in inside(member.kind) {
            if served.iter().any(|s| s.is(&value)) {
                let (body, _) = body_with(place, member.name, value);
                take(&body).unwrap_or_else(|fault| panic!("{fault}"));
                continue;
            }
            let fault = refuse(place, member.name, value);
            let expected = match others {
                Others::Later => ("not_yet_available", "not yet available"),
                Others::Never => ("not_in_this_build", "not in this build"),
            };
            let told = fault.code == expected.0 && fault.message.contains(expected.1);
            assert!(told || fault.code == "conflicting_members", "{fault}");
            assert_eq!(fault.status, 400);
        }
    }
}

#[test]
fn every_served_row_has_a_default_that_is_accepted() {
    for (place, member) in rows() {
        let value = match member.default {
            Plain::Flag(value) => json!(value),
            Plain::Int(value) => json!(value),
            Plain::Text(value) => json!(value),
            Plain::Empty if matches!(member.kind, Kind::List) => json!([]),
            Plain::Empty => json!({}),
            Plain::Required | Plain::Absent => continue,
        };
        let (body, _) = body_with(place, member.name, value);
        take(&body).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

#[test]
fn every_required_member_is_missed_by_name() {
    let required: Vec<_> = rows().filter(|(_, m)| m.default == Plain::Required).collect();
    assert_eq!(required.len(), 6);
    for (place, member) in required {
        let (mut body, path) = body_with(place, member.name, Value::Null);
        let object = match place {
            "" => &mut body,
            "serviceArguments" => &mut body["serviceArguments"],
            _ => &mut body["endpoints"][0],
        };
        object.as_object_mut().unwrap().remove(member.name);
        let fault = take(&body).unwrap_err();
        assert_eq!((fault.member, fault.code, fault.value.as_str()), (path, "missing_member", ""));
    }
}

#[test]
fn every_neighbour_of_a_name_is_refused_with_that_name() {
    for (place, member) in rows() {
        let name = member.name;
        let upper = name.to_uppercase();
        let swapped = if name.len() > 4 { format!("{}_", &name[..name.len() - 1]) } else { upper.clone() };
        for wrong in [upper, swapped] {
            let fault = refuse(place, &wrong, json!(0));
            assert_eq!(fault.code, "unknown_member", "{fault}");
            let meant = fault.allowed.trim_start_matches("did you mean ").trim_end_matches('?').to_string();
            assert!(rows().any(|(p, m)| p == place && m.name == meant), "{fault}");
        }
        let fault = refuse(place, &format!("_{}", name.to_uppercase()), json!(0));
        assert_eq!(fault.allowed, format!("did you mean {name}?"));
    }
}

#[test]
fn names_are_unique_within_their_object() {
    for table in [table::BODY, table::SERVICE, table::ENDPOINT] {
        let mut names: Vec<_> = table.iter().map(|m| m.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), table.len());
    }
}

/// First and last value of a schema.
fn edges(kind: Kind) -> Vec<Value> {
    let values = inside(kind);
    let ends = [values.first().cloned(), values.last().cloned()];
    ends.into_iter().flatten().collect()
}

/// Any two members together, with values at the edges of their schemas: a body is refused by the name of a
/// member, or accepted, and then its readback is the same rule.
#[test]
fn any_pair_of_members_is_refused_by_name_or_reads_back_the_same() {
    let single: Vec<(&str, Value)> =
        table::SERVICE.iter().flat_map(|m| edges(m.kind).into_iter().map(|v| (m.name, v))).collect();
    let (mut accepted, mut refused) = (0, 0);
    for (i, (first, value)) in single.iter().enumerate() {
        for (second, other) in &single[i + 1..] {
            let (mut body, _) = body_with("serviceArguments", first, value.clone());
            body["serviceArguments"][*second] = other.clone();
            match take(&body) {
                Ok(rule) => {
                    accepted += 1;
                    assert_eq!(take(&readback(&rule, &body)), Ok(rule), "{body}");
                }
                Err(fault) => {
                    refused += 1;
                    assert!(fault.member.starts_with("serviceArguments."), "{fault}");
                    assert!(fault.message.starts_with(&fault.member) && fault.message.len() < 400, "{fault}");
                }
            }
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} accepted, {refused} refused");
}

/// The same for exact rules of each engine, with any two members of exact routing.
#[test]
fn any_pair_of_exact_members_is_refused_by_name_or_reads_back_the_same() {
    let exact = table::SERVICE.iter().filter(|m| m.name.starts_with("kv") && m.name != "kvEngineType");
    let values = |kind| if matches!(kind, Kind::Word(_)) { inside(kind) } else { edges(kind) };
    let single: Vec<(&str, Value)> =
        exact.flat_map(|m| values(m.kind).into_iter().map(|v| (m.name, v))).collect();
    let (mut accepted, mut refused) = (0, 0);
    for engine in ["vllm", "sglang", "trtllm", "llamacpp"] {
        for (i, (first, value)) in single.iter().enumerate() {
            for (second, other) in &single[i..] {
                let (mut body, _) = body_with("serviceArguments", "kvExactMode", json!(3));
                body["serviceArguments"]["kvEngineType"] = json!(engine);
                body["serviceArguments"][*first] = value.clone();
                body["serviceArguments"][*second] = other.clone();
                match take(&body) {
                    Ok(rule) => {
                        accepted += 1;
                        assert_eq!(rule.engine.name(), engine);
                        assert_eq!(rule.exact.is_some(), body["serviceArguments"]["kvExactMode"] == 3);
                        assert_eq!(take(&readback(&rule, &body)), Ok(rule), "{body}");
                    }
                    Err(fault) => {
                        refused += 1;
                        assert!(fault.member.starts_with("serviceArguments."), "{fault}");
                    }
                }
            }
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
}
