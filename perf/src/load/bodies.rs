//! Request bodies: seeded conversations that grow turn by turn, or the lines of a file.
//! Pure but for reading the file. Must never give two different bodies for one (slot, turn).

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::Error;

/// Words of generated messages; some need JSON escapes, some are not ASCII.
const WORDS: [&str; 24] = [
    "route",
    "the",
    "prompt",
    "to",
    "a",
    "warm",
    "engine",
    "please",
    "explain",
    "how",
    "blocks",
    "chain",
    "naïve",
    "\"quoted\"",
    "line\nbreak",
    "日本語",
    "fn main() {}",
    "path\\to",
    "why",
    "does",
    "it",
    "cost",
    "less",
    "now",
];

/// What generated bodies look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Chat bodies, else completion bodies with the conversation as one prompt.
    pub chat: bool,
    /// Model name.
    pub model: String,
    /// Bytes of text in a conversation's last turn, about.
    pub size: usize,
    /// Turns of a conversation, at least 1; each sends all earlier ones again.
    pub turns: u64,
    /// `max_tokens`, left out if `None`.
    pub max_tokens: Option<u64>,
    /// Ask for a stream (with usage).
    pub stream: bool,
    /// Seed of the words.
    pub seed: u64,
}

/// A source of bodies.
#[derive(Debug, Clone)]
pub enum Bodies {
    /// Generated.
    Generated(Shape),
    /// Taken in turn.
    Given(Arc<[Body]>),
}

/// One body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// JSON text.
    pub text: String,
    /// Whether it asks for a stream.
    pub stream: bool,
}

impl Bodies {
    /// Reads a file with a JSON object on each line; empty lines are skipped. Errors name the line.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let name = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|e| Error::new(format!("cannot read the bodies in {name} ({e}); check --bodies")))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let bodies: Vec<Body> = lines
            .map(|(at, line)| {
                parse_line(line).map_err(|(words, column)| {
                    Error::new(format!(
                        "{name} line {} column {column}: {words}; each line must be a request body",
                        at + 1
                    ))
                })
            })
            .collect::<Result<_, _>>()?;
        if bodies.is_empty() {
            return Err(Error::new(format!("{name} holds no body; put a JSON object on each line")));
        }
        Ok(Bodies::Given(bodies.into()))
    }

    /// The body of a slot's n-th request. A slot (a connection, or one of the open loop's
    /// conversations) walks through conversations of its own, turn by turn.
    pub fn body(&self, slot: u64, turn: u64) -> Body {
        match self {
            Bodies::Generated(shape) => shape.body(slot, turn),
            Bodies::Given(bodies) => {
                let at = slot.wrapping_mul(7919).wrapping_add(turn) % bodies.len() as u64;
                bodies[at as usize].clone()
            }
        }
    }
}

fn parse_line(line: &str) -> Result<Body, (String, usize)> {
    let value: Value = serde_json::from_str(line).map_err(|e| (format!("not JSON ({e})"), e.column()))?;
    if !value.is_object() {
        return Err(("not a JSON object".into(), 1));
    }
    Ok(Body { text: line.to_owned(), stream: value["stream"].as_bool().unwrap_or(false) })
}

impl Shape {
    fn body(&self, slot: u64, turn: u64) -> Body {
        let turns = self.turns.max(1);
        let conversation = Random(self.seed ^ slot.rotate_left(32) ^ (turn / turns)).next();
        let messages = 2 * (turn % turns) + 1;
        let each = self.size / (2 * turns - 1) as usize;
        let text = |index| message(conversation ^ index, each);
        let mut body = json!({"model": self.model});
        if self.chat {
            let role = |index| if index % 2 == 0 { "user" } else { "assistant" };
            let message = |index| json!({"role": role(index), "content": text(index)});
            body["messages"] = (0..messages).map(message).collect();
        } else {
            body["prompt"] = json!((0..messages).map(text).collect::<Vec<_>>().join("\n"));
        }
        if let Some(bound) = self.max_tokens {
            body["max_tokens"] = json!(bound);
        }
        if self.stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        Body { text: body.to_string(), stream: self.stream }
    }
}

/// A message of about `size` bytes, the same for the same seed.
fn message(seed: u64, size: usize) -> String {
    let mut random = Random(seed);
    let mut text = format!("{:08x}", random.next() >> 32);
    while text.len() < size {
        text.push(' ');
        text.push_str(WORDS[(random.next() % WORDS.len() as u64) as usize]);
    }
    text
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let v = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        v ^ (v >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        let model = "m".to_owned();
        Shape { chat: true, model, size: 3000, turns: 3, max_tokens: Some(8), stream: false, seed: 1 }
    }

    fn messages(body: &Body) -> Vec<Value> {
        let value: Value = serde_json::from_str(&body.text).unwrap();
        value["messages"].as_array().cloned().unwrap()
    }

    #[test]
    fn turns_grow_and_keep_what_was_said() {
        let bodies = Bodies::Generated(shape());
        let turn: Vec<_> = (0..4).map(|turn| messages(&bodies.body(5, turn))).collect();
        assert_eq!(turn.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 5, 1]);
        assert!(turn[2].starts_with(&turn[1]) && turn[1].starts_with(&turn[0]));
        assert_ne!(turn[3][0], turn[0][0], "a new conversation");
        assert_ne!(messages(&bodies.body(6, 0)), turn[0], "another slot");
        assert_eq!(messages(&bodies.body(5, 2)), turn[2], "the same again");
    }

    #[test]
    fn the_last_turn_has_about_the_size_asked_for() {
        for size in [1024, 32 * 1024] {
            let bodies = Bodies::Generated(Shape { size, turns: 1, ..shape() });
            let text = messages(&bodies.body(0, 0))[0]["content"].as_str().unwrap().len();
            assert!((size..size + 32).contains(&text), "{text}");
        }
    }
}
