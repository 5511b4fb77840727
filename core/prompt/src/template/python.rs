//! Values as Python writes them: `str`, `repr`, blanks, and the methods of strings whose edges differ from
//! Rust's. Owns these forms; must refuse, never guess, where Python's Unicode tables would decide.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::fmt::Write;

/// What `str.isspace` holds true. Rust's white space has all of it but the four separators.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// `str(value)`, as Jinja2 prints a value.
pub(super) fn str(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => repr(value, out)?,
    }
    Ok(())
}

/// `repr(value)`.
pub(super) fn repr(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out)?,
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out)?,
        ValueKind::Seq => listed(value, ('[', ']'), out, |item, out| match item.kind() {
            // Pairs of `items` and such are tuples in Python, and lists here.
            ValueKind::Seq if item.len() == Some(2) => Err(unknown("whether a pair is a tuple".into())),
            _ => repr(&item, out),
        })?,
        ValueKind::Map => listed(value, ('{', '}'), out, |key, out| {
            repr(&key, out)?;
            out.push_str(": ");
            repr(&value.get_item(&key)?, out)
        })?,
        kind => return Err(unknown(format!("how Python writes a value of type {kind}"))),
    }
    Ok(())
}

/// The items between brackets, a comma and a blank between two.
fn listed(
    value: &Value,
    (open, close): (char, char),
    out: &mut String,
    mut each: impl FnMut(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    for (at, item) in value.try_iter()?.enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        each(item, out)?;
    }
    out.push(close);
    Ok(())
}

/// An integer of any size, or a float as `repr` has it.
pub(super) fn number(value: &Value, out: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return Ok(());
    }
    float(f64::try_from(value.clone())?, out);
    Ok(())
}

/// The shortest digits that read back the same; an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(value: f64, out: &mut String) {
    if !value.is_finite() {
        out.push_str(if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        });
        return;
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..16).contains(&power) {
        let _ = write!(out, "{value:?}");
    } else {
        let sign = if power < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", power.unsigned_abs());
    }
}

/// A string's `repr`: single quotes unless it has some and no double ones.
fn quoted(text: &str, out: &mut String) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            '\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_ascii() || c.is_alphanumeric() => out.push(c),
            c => return Err(unknown(format!("whether Python holds {c:?} printable"))),
        }
    }
    out.push(quote);
    Ok(())
}

fn unknown(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what} is not known"))
}

/// Methods of Python's values: those of strings that have edges of their own here, the rest elsewhere.
pub(super) fn method(
    state: &State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    };
    match (name, args) {
        ("strip" | "lstrip" | "rstrip", []) => Ok(strip(text, name, is_blank)),
        ("strip" | "lstrip" | "rstrip", [chars]) if chars.is_none() => Ok(strip(text, name, is_blank)),
        ("strip" | "lstrip" | "rstrip", [chars]) => {
            let chars = chars.as_str().ok_or_else(|| unknown(format!("{name} with that argument")))?;
            Ok(strip(text, name, |c| chars.contains(c)))
        }
        ("split", []) => Ok(words(text)),
        ("split", [separator]) if separator.is_none() => Ok(words(text)),
        ("removeprefix" | "removesuffix", [affix]) => {
            let affix = affix.as_str().ok_or_else(|| unknown(format!("{name} with that argument")))?;
            let rest = match name {
                "removeprefix" => text.strip_prefix(affix),
                _ => text.strip_suffix(affix),
            };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn strip(text: &str, name: &str, inside: impl Fn(char) -> bool) -> Value {
    let text = if name == "rstrip" { text } else { text.trim_start_matches(&inside) };
    Value::from(if name == "lstrip" { text } else { text.trim_end_matches(&inside) })
}

fn words(text: &str) -> Value {
    text.split(is_blank).filter(|word| !word.is_empty()).map(Value::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(value: Value) -> String {
        let mut out = String::new();
        repr(&value, &mut out).expect("a known form");
        out
    }

    /// From CPython 3.11.
    #[test]
    fn floats_have_python_s_form() {
        let cases = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e16, "1.5e+16"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.234e-7, "1.234e-07"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ];
        for (value, wanted) in cases {
            assert_eq!(printed(Value::from(value)), wanted);
        }
    }

    /// From CPython 3.11.
    #[test]
    fn containers_are_written_as_python_writes_them() {
        let value = Value::from_iter([
            ("a", Value::from(vec![Value::from(1), Value::from(()), Value::from(true)])),
            ("b'\"", Value::from("it's\n\u{7f}é")),
        ]);
        assert_eq!(printed(value), "{'a': [1, None, True], 'b\\'\"': \"it's\\n\\x7fé\"}");
        let mut out = String::new();
        assert!(repr(&Value::from("\u{200b}"), &mut out).is_err());
    }

    #[test]
    fn blanks_are_python_s() {
        assert_eq!(strip("\x1c\u{a0} a\u{3000}\x1f", "strip", is_blank).as_str(), Some("a"));
        assert_eq!(strip("  a ", "lstrip", is_blank).as_str(), Some("a "));
        assert_eq!(strip("xxaxx", "rstrip", |c| c == 'x').as_str(), Some("xxa"));
        assert_eq!(words(" a\x1d b ").len(), Some(2));
    }
}
