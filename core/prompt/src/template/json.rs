//! The filter `tojson` as transformers defines it: `json.dumps(x, ensure_ascii=False, …)`. Owns these bytes;
//! key order is the value's own, unless `sort_keys` is set.

use super::python;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// How a document is laid out.
struct Layout {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    between: String,
    colon: String,
}

/// The filter.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let layout = layout(&kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write(value, &layout, 0, &mut out)?;
    Ok(Value::from(out))
}

fn layout(kwargs: &Kwargs) -> Result<Layout, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(i64::try_from(indent)?).unwrap_or(0)),
        }),
    };
    let separators = kwargs.get::<Option<Value>>("separators")?.filter(|given| !given.is_none());
    let (between, colon) = match separators {
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(pair) => (text_at(&pair, 0)?, text_at(&pair, 1)?),
    };
    let flag = |name| kwargs.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    Ok(Layout { ensure_ascii: flag("ensure_ascii")?, sort_keys: flag("sort_keys")?, indent, between, colon })
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    let text = item.as_str().map(str::to_string);
    text.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings"))
}

fn write(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(value, out)?,
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), layout, out),
        ValueKind::Seq => array(value, layout, depth, out)?,
        ValueKind::Map => object(value, layout, depth, out)?,
        kind => {
            let text = format!("tojson: a value of type {kind} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, text));
        }
    }
    Ok(())
}

fn array(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    out.push('[');
    let mut any = false;
    for item in value.try_iter()? {
        separate(layout, depth, &mut any, out);
        write(&item, layout, depth + 1, out)?;
    }
    close(']', layout, depth, any, out);
    Ok(())
}

fn object(value: &Value, layout: &Layout, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if layout.sort_keys {
        keys.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    out.push('{');
    let mut any = false;
    for key in keys {
        separate(layout, depth, &mut any, out);
        let Some(name) = key.as_str() else {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: a key is no string"));
        };
        quoted(name, layout, out);
        out.push_str(&layout.colon);
        write(&value.get_item(&key)?, layout, depth + 1, out)?;
    }
    close('}', layout, depth, any, out);
    Ok(())
}

/// What stands before an item.
fn separate(layout: &Layout, depth: usize, any: &mut bool, out: &mut String) {
    if std::mem::replace(any, true) {
        out.push_str(&layout.between);
    }
    line(layout, depth + 1, out);
}

fn close(bracket: char, layout: &Layout, depth: usize, any: bool, out: &mut String) {
    if any {
        line(layout, depth, out);
    }
    out.push(bracket);
}

fn line(layout: &Layout, depth: usize, out: &mut String) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    }
}

fn number(value: &Value, out: &mut String) -> Result<(), Error> {
    let begin = out.len();
    python::number(value, out)?;
    let javascript = match &out[begin..] {
        "nan" => "NaN",
        "inf" => "Infinity",
        "-inf" => "-Infinity",
        _ => return Ok(()),
    };
    out.replace_range(begin.., javascript);
    Ok(())
}

fn quoted(text: &str, layout: &Layout, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\x1f' => escaped(u16::try_from(u32::from(c)).unwrap_or_default(), out),
            c if layout.ensure_ascii && (c == '\x7f' || !c.is_ascii()) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped(*unit, out));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escaped(unit: u16, out: &mut String) {
    let _ = write!(out, "\\u{unit:04x}");
}
