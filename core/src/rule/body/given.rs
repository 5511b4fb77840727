//! One object of a body with its table: every value was checked, defaults stand in for what is absent.

use super::body_fault::{BodyFault, Class, kind_of};
use super::members::{Accepts, Kind, Member, Others, Plain};
use super::nearest::nearest;
use super::shapes;
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Keys that `annotations` may have, and characters of each key and value.
const ANNOTATIONS_MAX: (usize, usize) = (32, 256);

/// A checked object. The names asked for are names of its table.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    map: &'a Map<String, Value>,
    table: &'static [Member],
    path: &'a str,
}

impl<'a> Given<'a> {
    /// Checks that `value` is an object whose members are all known and of their kind, and that the required
    /// ones are there. `path` is where it stands (empty for the body itself), `elsewhere` the names known in
    /// the other objects. Whether the values are served is [`Given::served`]'s business.
    pub fn new(
        value: &'a Value,
        table: &'static [Member],
        path: &'a str,
        elsewhere: &[(&str, &'static [Member])],
    ) -> Result<Given<'a>, BodyFault> {
        let Some(map) = value.as_object() else {
            let name = if path.is_empty() { "the body" } else { path };
            return Err(BodyFault::new(Class::WrongKind, name, Some(value), "not an object", "use {…}"));
        };
        let given = Given { map, table, path };
        for (name, value) in map {
            match given.row(name) {
                Some(member) => check_kind(member, &given.at(name), value)?,
                None => return Err(given.unknown(name, elsewhere)),
            }
        }
        match table.iter().find(|m| m.default == Plain::Required && !map.contains_key(m.name)) {
            Some(m) => Err(BodyFault::new(
                Class::Missing,
                given.at(m.name),
                None,
                "missing",
                format!("add {}", m.allowed()),
            )),
            None => Ok(given),
        }
    }

    /// Checks that every value is one that this gateway serves.
    pub fn served(&self) -> Result<(), BodyFault> {
        for (name, value) in self.map {
            if let Some(member) = self.row(name) {
                check_served(member, &self.at(name), value)?;
            }
        }
        Ok(())
    }

    /// The path of a member.
    pub fn at(&self, name: &str) -> String {
        match self.path {
            "" => bounded(name),
            path => format!("{path}.{}", bounded(name)),
        }
    }

    /// The value as given.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        debug_assert!(self.row(name).is_some(), "{name} is no row of the table");
        self.map.get(name)
    }

    /// Whether the member was given at all.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// A whole number, its default when absent.
    pub fn int(&self, name: &str) -> i64 {
        let default = match self.row(name).map(|m| m.default) {
            Some(Plain::Int(value)) => value,
            _ => 0,
        };
        self.value(name).and_then(Value::as_i64).unwrap_or(default)
    }

    /// A boolean, its default when absent.
    pub fn flag(&self, name: &str) -> bool {
        let default = self.row(name).is_some_and(|m| m.default == Plain::Flag(true));
        self.value(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// A string, its default (or "") when absent.
    pub fn text(&self, name: &str) -> &'a str {
        let default = match self.row(name).map(|m| m.default) {
            Some(Plain::Text(value)) => value,
            _ => "",
        };
        self.value(name).and_then(Value::as_str).unwrap_or(default)
    }

    /// An address; the kind was checked. IPv4 written as IPv6 is IPv4, so that equal addresses are equal.
    pub fn address(&self, name: &str) -> Result<IpAddr, BodyFault> {
        self.text(name).parse::<IpAddr>().map(|a| a.to_canonical()).map_err(|_| {
            let allowed = format!("use {}", Kind::Address.words());
            self.fault(Class::OutOfRange, name, "not an address", allowed)
        })
    }

    /// A list, empty when absent.
    pub fn list(&self, name: &str) -> &'a [Value] {
        self.value(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A fault of one of its members.
    pub fn fault(&self, class: Class, name: &str, problem: &str, allowed: impl Into<String>) -> BodyFault {
        BodyFault::new(class, self.at(name), self.map.get(name), problem, allowed)
    }

    fn row(&self, name: &str) -> Option<&'static Member> {
        self.table.iter().find(|m| m.name == name)
    }

    /// The value is not repeated: nobody knows what it is, it may be a secret.
    fn unknown(&self, name: &str, elsewhere: &[(&str, &'static [Member])]) -> BodyFault {
        let place = elsewhere.iter().find(|(_, table)| table.iter().any(|m| m.name == name));
        let cure = match (place, nearest(name, self.table.iter().map(|m| m.name))) {
            (Some((place, _)), _) => format!("it belongs into {place}"),
            (None, Some(meant)) => format!("did you mean {meant}?"),
            (None, None) => "remove it".to_string(),
        };
        BodyFault::new(Class::Unknown, self.at(name), None, "no member of this name is known", cure)
    }
}

/// A name as it is quoted back, at most 64 characters.
fn bounded(name: &str) -> String {
    name.chars().take(64).collect()
}

/// `value`, unless it may hold a key or certificate, which no answer and no log may repeat.
fn quotable<'a>(member: &Member, value: &'a Value) -> Option<&'a Value> {
    (!member.name.starts_with("mtls_")).then_some(value)
}

fn check_kind(member: &Member, path: &str, value: &Value) -> Result<(), BodyFault> {
    let allowed = || format!("use {}", member.allowed());
    let wrong_kind = || {
        let problem = format!("{} is the wrong kind", kind_of(value));
        let cure = if value.is_null() { format!("{}, or leave it out", allowed()) } else { allowed() };
        let class = match value.is_null() && member.name.starts_with("fc_") {
            true => Class::Null,
            false => Class::WrongKind,
        };
        BodyFault::new(class, path, quotable(member, value), &problem, cure)
    };
    let out_of_range = |problem: &str| {
        let problem = shapes::range_phrase(member.name).unwrap_or(problem);
        BodyFault::new(Class::OutOfRange, path, Some(value), problem, format!("use {}", member.kind.words()))
    };
    match member.kind {
        Kind::Flag => value.as_bool().map(|_| ()).ok_or_else(wrong_kind),
        Kind::Int(min, max) => match value {
            Value::Number(n) if n.is_f64() => Err(wrong_kind()),
            Value::Number(n) if n.as_i64().is_some_and(|n| (min..=max).contains(&n)) => Ok(()),
            Value::Number(_) => Err(out_of_range("out of range")),
            _ => Err(wrong_kind()),
        },
        Kind::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(()),
            Some(_) => Err(out_of_range("not one of its words")),
            None => Err(wrong_kind()),
        },
        Kind::Text(max) => match value.as_str() {
            Some(text) if text.len() > max => Err(out_of_range("too long")),
            Some(text) if text.chars().any(char::is_control) => {
                Err(out_of_range("holds a control character"))
            }
            Some(_) => Ok(()),
            None => Err(wrong_kind()),
        },
        Kind::Address => match value.as_str() {
            Some(text) if text.parse::<IpAddr>().is_ok() => Ok(()),
            Some(_) => Err(out_of_range("not an address")),
            None => Err(wrong_kind()),
        },
        Kind::Strings => check_strings(value).map_err(|known| match known {
            Some(problem) => out_of_range(problem),
            None => wrong_kind(),
        }),
        Kind::Object => value.as_object().map(|_| ()).ok_or_else(wrong_kind),
        Kind::List => value.as_array().map(|_| ()).ok_or_else(wrong_kind),
        Kind::Any => Ok(()),
    }
}

/// `Err(None)`: not an object of strings; `Err(Some(problem))`: over a bound.
fn check_strings(value: &Value) -> Result<(), Option<&'static str>> {
    let map = value.as_object().ok_or(None)?;
    let (keys, characters) = ANNOTATIONS_MAX;
    if map.len() > keys {
        return Err(Some("too many keys"));
    }
    for (key, value) in map {
        let text = value.as_str().ok_or(None)?;
        if key.chars().count() > characters || text.chars().count() > characters {
            return Err(Some("a key or value is too long"));
        }
    }
    Ok(())
}

fn check_served(member: &Member, path: &str, value: &Value) -> Result<(), BodyFault> {
    let (served, others) = match member.accepts {
        Accepts::All | Accepts::Ignored => return Ok(()),
        Accepts::Default(others) => (member.default.is(value), others),
        Accepts::Just(values, others) => (values.iter().any(|v| v.is(value)), others),
    };
    let (class, problem) = match others {
        _ if served => return Ok(()),
        Others::Later => (Class::NotYetAvailable, "not yet available in this build"),
        Others::Never => (Class::NotInThisBuild, "not in this build"),
    };
    Err(BodyFault::new(class, path, quotable(member, value), problem, format!("use {}", member.allowed())))
}
