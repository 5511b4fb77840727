//! Captures of event streams. Owns their file format; must never decode a payload.

use serde_json::Value;
use std::path::Path;
use warmpath_events::framing::END;
use warmpath_events::trtllm_json::{self, DrainEvent};

/// A capture's content.
#[derive(Debug, Default)]
pub struct Capture {
    /// What counts, in the order of the file, with the number of the line, from 1.
    pub items: Vec<(usize, Item)>,
    /// Lines that are neither.
    pub passed_over: usize,
}

/// Something that counts.
#[derive(Debug)]
pub enum Item {
    /// A message of a publisher.
    Batch(Recorded),
    /// An answer of a drained engine.
    Answer(Vec<DrainEvent>),
}

/// A message of a publisher.
#[derive(Debug)]
pub struct Recorded {
    /// Where it came from, if told.
    pub endpoint: Option<String>,
    /// Its topic; empty if not told.
    pub topic: String,
    /// Its sequence.
    pub seq: u64,
    /// Its MessagePack.
    pub payload: Vec<u8>,
}

/// Reads a capture whole, or says which line is no part of one.
pub fn read(file: &Path) -> Result<Capture, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|fault| {
        format!("{name}: {fault}; give a capture, as warmpath events replay --help shows it")
    })?;
    let capture = parse(&text).map_err(|(line, fault)| format!("{name}, line {line}: {fault}"))?;
    if capture.items.is_empty() {
        return Err(format!(
            "{name} has no batch; a batch is an object on a line of its own, with seq and payload_hex"
        ));
    }
    Ok(capture)
}

type BadLine = (usize, String);

/// By line, or as one value where the file is one.
fn parse(text: &str) -> Result<Capture, BadLine> {
    let mut capture = Capture::default();
    if let Ok(value) = serde_json::from_str(text) {
        capture.add(1, value).map_err(|fault| (1, fault))?;
        return Ok(capture);
    }
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let value = serde_json::from_str(line).map_err(|fault| {
            let column = fault.column();
            (index + 1, format!("no JSON at column {column}; write one object a line"))
        });
        capture.add(index + 1, value?).map_err(|fault| (index + 1, fault))?;
    }
    Ok(capture)
}

impl Capture {
    fn add(&mut self, line: usize, value: Value) -> Result<(), String> {
        let item = match &value {
            Value::Array(_) => answer(&value)?,
            Value::Object(members) => match members.get("kv_cache_events") {
                Some(events) => answer(events)?,
                None if ["payload_hex", "seq"].iter().any(|name| members.contains_key(*name)) => {
                    batch(&value)?
                }
                None => {
                    self.passed_over += 1;
                    return Ok(());
                }
            },
            _ => return Err("neither an object nor a list; write one object a line".into()),
        };
        self.items.push((line, item));
        Ok(())
    }
}

fn answer(events: &Value) -> Result<Item, String> {
    let events = trtllm_json::parse(events.to_string().as_bytes());
    events.map(Item::Answer).map_err(|fault| format!("no answer of /kv_cache_events: {}", fault.0))
}

fn batch(value: &Value) -> Result<Item, String> {
    let text = |name: &str| match &value[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(format!("{name} is {other}; write it as text")),
    };
    let seq = value["seq"].as_u64().filter(|seq| *seq != END);
    let seq =
        seq.ok_or_else(|| format!("seq is {}; write an integer from 0 to {}", value["seq"], END - 1))?;
    let digits =
        text("payload_hex")?.ok_or("payload_hex is missing; write the payload's bytes as hexadecimal")?;
    Ok(Item::Batch(Recorded {
        endpoint: text("endpoint")?,
        topic: text("topic")?.unwrap_or_default(),
        seq,
        payload: unhex(&digits)?,
    }))
}

fn unhex(digits: &str) -> Result<Vec<u8>, String> {
    let digit = |(at, byte): (usize, u8)| match (byte as char).to_digit(16) {
        Some(digit) => Ok(digit as u8),
        None => Err(format!("payload_hex has no hexadecimal digit at {}", at + 1)),
    };
    let digits: Vec<u8> = digits.bytes().enumerate().map(digit).collect::<Result<_, _>>()?;
    if digits.len() % 2 == 1 {
        return Err(format!("payload_hex has {} digits; a byte has two", digits.len()));
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named_with_its_cause() {
        for (text, line, part) in [
            ("{}\n\n{\"seq\": 1, \"payload_hex\": \"9\"}", 3, "1 digits"),
            ("{}\n{\"seq\": 1, \"payload_hex\": \"9é\"}", 2, "no hexadecimal digit at 2"),
            ("{\"seq\": 1}", 1, "payload_hex is missing"),
            ("{\"seq\": 1, \"payload_hex\": 7}", 1, "payload_hex is 7"),
            ("{\"payload_hex\": \"90\"}", 1, "seq is null"),
            ("{\"seq\": -1, \"payload_hex\": \"90\"}", 1, "seq is -1"),
            ("{\"seq\": 18446744073709551615, \"payload_hex\": \"\"}", 1, "seq is 18446744073709551615"),
            ("{\"seq\": 0, \"topic\": 1, \"payload_hex\": \"\"}", 1, "topic is 1"),
            ("{}\n{\"seq\"\n", 2, "no JSON at column"),
            ("7", 1, "neither an object nor a list"),
            ("{}\n[{\"event_id\": 1}]", 2, "no answer of /kv_cache_events: missing field `data`"),
        ] {
            let (at, fault) = parse(text).unwrap_err();
            assert!(at == line && fault.contains(part), "{text}: {at} {fault}");
        }
    }

    #[test]
    fn a_whole_file_may_be_one_answer_over_many_lines() {
        let text = "{\"kv_cache_events\": [\n{\"event_id\": 1,\n\"data\": {\"type\": \"created\"}}]}";
        let capture = parse(text).unwrap();
        assert!(matches!(&capture.items[..], [(1, Item::Answer(events))] if events.len() == 1));
        assert!(parse("{}\n{\"note\": 1}").unwrap().items.is_empty());
        assert_eq!(parse("{}\n{\"note\": 1}").unwrap().passed_over, 2);
    }
}
