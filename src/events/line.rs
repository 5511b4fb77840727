//! One line of output for each thing that happened. Owns both forms, for people and as JSON; must never decide
//! what happened. Text that an engine chose is escaped, so that it moves no cursor.

use super::anomaly::Anomaly;
use serde_json::{Map, Value, json};
use warmpath_events::continuity::{Reason, Standing};
use warmpath_events::wire::{Batch, Event, Medium, Place, Stored};

/// A block's name as it is printed: the digits that end (vLLM) or begin (SGLang) its digest. JSON has it as
/// text too, since many readers lose bits of numbers over 2^53.
pub fn hex(key: u64) -> String {
    format!("{key:016x}")
}

/// A medium's name, vLLM's where engines differ.
pub fn medium_name(medium: Medium) -> &'static str {
    match medium {
        Medium::Gpu => "GPU",
        Medium::Cpu => "CPU",
        Medium::Disk => "STORAGE",
        Medium::External => "EXTERNAL",
        Medium::Other => "OTHER",
    }
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventLine {
    /// Seconds of the engine's wall clock.
    pub time: Option<f64>,
    pub seq: u64,
    pub rank: Option<u32>,
    pub kind: &'static str,
    pub keys: Vec<u64>,
    pub parent: Option<u64>,
    pub medium: Option<Medium>,
    /// Where a moved block is now.
    pub to: Option<Medium>,
    pub group: Option<u32>,
    pub tokens: Option<usize>,
    pub block_size: Option<u32>,
    pub lora: Option<String>,
    pub salt: Option<String>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Event(EventLine),
    Anomaly(Option<u64>, Anomaly),
    Standing(Standing, Option<Reason>),
    Note(String),
}

impl EventLine {
    /// The events of a batch.
    pub fn of_batch(seq: u64, batch: &Batch) -> impl Iterator<Item = EventLine> {
        batch.events.iter().map(move |event| {
            let line = EventLine { time: Some(batch.time), seq, rank: batch.rank, ..EventLine::default() };
            match event {
                Event::Stored(stored) => line.stored(batch, stored),
                Event::Removed(removed) => EventLine {
                    kind: "removed",
                    keys: batch.hashes(removed.hashes).to_vec(),
                    ..line.at(removed.place)
                },
                Event::Cleared => EventLine { kind: "cleared", ..line },
            }
        })
    }

    fn stored(self, batch: &Batch, stored: &Stored) -> EventLine {
        let name = stored.lora_name.map(|name| batch.text(name).to_owned());
        EventLine {
            kind: "stored",
            keys: batch.hashes(stored.hashes).to_vec(),
            parent: stored.parent,
            tokens: stored.tokens.run().map(|(run, width)| run.len() / width),
            block_size: Some(stored.block_size),
            lora: name.or_else(|| stored.lora_id.map(|id| id.to_string())),
            salt: stored.salt.map(|salt| batch.text(salt).to_owned()),
            ..self.at(stored.place)
        }
    }

    fn at(self, place: Place) -> EventLine {
        EventLine { medium: place.medium, group: place.group, ..self }
    }

    fn text(&self) -> String {
        let mut words = vec![self.time.map_or("-".into(), time_of_day), format!("seq {}", self.seq)];
        words.push(format!("rank {}", self.rank.map_or("-".into(), |rank| rank.to_string())));
        words.push(self.kind.into());
        if let Some(first) = self.keys.first() {
            let more = if self.keys.len() > 1 { " …" } else { "" };
            words.push(format!("blocks {}: {}{more}", self.keys.len(), hex(*first)));
        }
        let mut add = |name: &str, value: Option<String>| words.extend(value.map(|v| format!("{name} {v}")));
        add("parent", self.parent.map(hex));
        add("on", self.medium.map(|medium| medium_name(medium).into()));
        add("to", self.to.map(|medium| medium_name(medium).into()));
        add("group", self.group.map(|group| group.to_string()));
        add("tokens", self.tokens.map(|tokens| tokens.to_string()));
        add("block size", self.block_size.map(|tokens| tokens.to_string()));
        add("lora", self.lora.as_ref().map(|name| format!("{name:?}")));
        add("salt", self.salt.as_ref().map(|salt| format!("{salt:?}")));
        words.join("  ")
    }

    fn json(&self) -> Value {
        let keys: Vec<String> = self.keys.iter().map(|key| hex(*key)).collect();
        json!({
            "what": "event", "time": self.time, "seq": self.seq, "rank": self.rank, "kind": self.kind,
            "blocks": self.keys.len(), "keys": keys, "parent": self.parent.map(hex),
            "medium": self.medium.map(medium_name), "to": self.to.map(medium_name), "group": self.group,
            "tokens": self.tokens, "block_size": self.block_size, "lora": self.lora, "salt": self.salt,
        })
    }
}

impl Line {
    /// For people.
    pub fn text(&self) -> String {
        match self {
            Line::Event(event) => event.text(),
            Line::Anomaly(Some(seq), anomaly) => {
                format!("anomaly  seq {seq}  {}: {}", anomaly.kind, anomaly.text)
            }
            Line::Anomaly(None, anomaly) => format!("anomaly  {}: {}", anomaly.kind, anomaly.text),
            Line::Standing(standing, _) => format!("standing  {}", standing_text(*standing)),
            Line::Note(note) => format!("note  {note}"),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        match self {
            Line::Event(event) => event.json(),
            Line::Anomaly(seq, anomaly) => {
                let about = [("what", json!("anomaly")), ("seq", json!(seq))];
                object(about.into_iter().chain(anomaly.members()))
            }
            Line::Standing(standing, reason) => {
                let (word, since) = standing_word(*standing);
                let reason = reason.map(|reason| Anomaly::cleared(reason, None).kind);
                json!({"what": "standing", "standing": word, "since": since, "reason": reason})
            }
            Line::Note(note) => json!({"what": "note", "text": note}),
        }
    }
}

/// An object of these members, in this order.
pub fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.collect::<Map<_, _>>())
}

/// A word for scripts, and from which sequence on.
pub fn standing_word(standing: Standing) -> (&'static str, Option<u64>) {
    match standing {
        Standing::Empty => ("empty", None),
        Standing::Unproven => ("unproven", None),
        Standing::Complete => ("complete", None),
        Standing::Since(seq) => ("since", Some(seq)),
    }
}

/// What a state is worth, for people.
pub fn standing_text(standing: Standing) -> String {
    match standing {
        Standing::Empty => "empty: nothing is known".into(),
        Standing::Unproven => "unproven: the connection is lost".into(),
        Standing::Complete => "complete: all that the cache holds is known".into(),
        Standing::Since(seq) => format!("a part: what happened from batch {seq} on"),
    }
}

/// UTC. Engines send seconds since 1970; anything else is printed as it is.
fn time_of_day(time: f64) -> String {
    if !(0.0..1e11).contains(&time) {
        return format!("{time}");
    }
    let millis = (time * 1e3).round() as u64;
    let s = millis / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", s / 3_600, s / 60 % 60, s % 60, millis % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_the_event_has_and_moves_no_cursor() {
        let line = Line::Event(EventLine {
            time: Some(1_700_000_000.25),
            seq: 7,
            rank: Some(2),
            kind: "stored",
            keys: vec![1, 2],
            parent: Some(u64::MAX),
            medium: Some(Medium::Cpu),
            lora: Some("sql\x1b[2J".into()),
            ..EventLine::default()
        });
        let text = "22:13:20.250  seq 7  rank 2  stored  blocks 2: 0000000000000001 …  \
                    parent ffffffffffffffff  \
                    on CPU  lora \"sql\\u{1b}[2J\"";
        assert_eq!(line.text(), text);
        let json = line.json();
        assert_eq!((&json["parent"], &json["salt"]), (&json!("ffffffffffffffff"), &Value::Null));
        assert_eq!(json["keys"], json!(["0000000000000001", "0000000000000002"]));
    }

    #[test]
    fn times_that_are_none_are_printed_as_they_are() {
        assert_eq!(time_of_day(f64::NAN), "NaN");
        assert_eq!(time_of_day(-1.0), "-1");
    }
}
