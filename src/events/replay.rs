//! `events replay`: a capture to the blocks that it leaves. Owns the report; must never order batches itself,
//! which is continuity's work.

use super::ReplayArgs;
use super::anomaly::Anomaly;
use super::capture::{self, Capture, Item, Recorded};
use super::drained::Drained;
use super::inventory::Row;
use super::line::{Line, object, standing_text, standing_word};
use super::print::put;
use super::watcher::Watcher;
use serde_json::{Value, json};
use warmpath_events::continuity::{Action, Effect, Policy, Stream};
use warmpath_events::decode::decode;
use warmpath_events::wire::{Batch, HashBytes};

/// Prints what the capture leaves.
pub fn run(args: &ReplayArgs) -> Result<(), String> {
    let capture = capture::read(&args.file)?;
    let report = Report::of(&capture, args.kind.naming());
    let most = args.keys.unwrap_or(usize::MAX);
    let text = if args.json { report.json(most).to_string() } else { report.text(most) };
    put(&text).or_else(super::print::Stop::verdict)?;
    match report.anomalies.len() {
        0 => Ok(()),
        count if args.strict => Err(format!(
            "{}: {count} not in order; without --strict that is told and no failure",
            args.file.display()
        )),
        _ => Ok(()),
    }
}

/// What a capture leaves and what was not in order.
#[derive(Default)]
struct Report {
    sources: Vec<Source>,
    anomalies: Vec<Found>,
    /// Batches and drained answers.
    items: usize,
    events: u64,
    passed_over: usize,
}

/// Where events came from.
enum Source {
    Publisher(Box<Publisher>),
    Drained(Drained),
}

/// One publish socket.
struct Publisher {
    endpoint: Option<String>,
    topic: String,
    stream: Stream,
    watcher: Watcher,
}

/// An anomaly and where it was found.
struct Found {
    line: usize,
    /// In [`Report::sources`].
    source: usize,
    seq: u64,
    anomaly: Anomaly,
}

impl Report {
    fn of(capture: &Capture, naming: HashBytes) -> Report {
        let (items, passed_over) = (capture.items.len(), capture.passed_over);
        let mut report = Report { items, passed_over, ..Report::default() };
        let mut batch = Batch::default();
        for (line, item) in &capture.items {
            match item {
                Item::Batch(recorded) => report.batch(*line, recorded, naming, &mut batch),
                Item::Answer(events) => {
                    for event in events {
                        let source = report.rank(event.rank);
                        let Report { sources, anomalies, events, .. } = &mut report;
                        let Source::Drained(drained) = &mut sources[source] else { continue };
                        drained.apply(event, &mut |told| {
                            note(anomalies, events, (*line, source, event.id), told)
                        });
                    }
                }
            }
        }
        report
    }

    fn batch(&mut self, line: usize, recorded: &Recorded, naming: HashBytes, batch: &mut Batch) {
        let source = self.publisher(recorded);
        let Report { sources, anomalies, events, .. } = self;
        let Source::Publisher(publisher) = &mut sources[source] else { return };
        let at = (line, source, recorded.seq);
        publisher.take(recorded, naming, batch, &mut |told| note(anomalies, events, at, told));
    }

    fn publisher(&mut self, recorded: &Recorded) -> usize {
        let is_it = |source: &Source| match source {
            Source::Publisher(known) => known.endpoint == recorded.endpoint && known.topic == recorded.topic,
            Source::Drained(_) => false,
        };
        self.sources.iter().position(is_it).unwrap_or_else(|| {
            self.sources.push(Source::Publisher(Box::new(Publisher::new(recorded))));
            self.sources.len() - 1
        })
    }

    fn rank(&mut self, rank: u32) -> usize {
        let is_it = |source: &Source| matches!(source, Source::Drained(known) if known.rank == rank);
        self.sources.iter().position(is_it).unwrap_or_else(|| {
            self.sources.push(Source::Drained(Drained::new(rank)));
            self.sources.len() - 1
        })
    }

    fn text(&self, most: usize) -> String {
        let Report { items, events, passed_over, .. } = self;
        let mut text = format!("batches {items}, events {events}, other lines {passed_over}\n");
        for source in &self.sources {
            text += &format!(
                "\n{}, last {}\n",
                source.name(),
                source.last().map_or("-".into(), |l| l.to_string())
            );
            text += &format!("  standing {}\n", source.standing().2);
            let rows = source.rows();
            text += if rows.is_empty() { "  no blocks\n" } else { "" };
            rows.iter().for_each(|row| text += &(row.text(most) + "\n"));
        }
        text += &format!("\n{} not in order", self.anomalies.len());
        for Found { line, source, seq, anomaly: Anomaly { kind, text: told, .. } } in &self.anomalies {
            let name = self.sources[*source].name();
            text += &format!("\n  line {line}  {name}  seq {seq}  {kind}: {told}");
        }
        text
    }

    fn json(&self, most: usize) -> Value {
        let anomaly = |Found { line, source, seq, anomaly }: &Found| {
            let at = [("line", json!(line)), ("publisher", json!(source)), ("seq", json!(seq))];
            object(at.into_iter().chain(anomaly.members()))
        };
        json!({
            "batches": self.items, "events": self.events, "passed_over": self.passed_over,
            "publishers": self.sources.iter().map(|source| source.json(most)).collect::<Vec<_>>(),
            "anomalies": self.anomalies.iter().map(anomaly).collect::<Vec<_>>(),
        })
    }
}

/// Line, source and sequence: where it was found.
type At = (usize, usize, u64);

fn note(anomalies: &mut Vec<Found>, events: &mut u64, (line, source, seq): At, told: Line) {
    match told {
        Line::Event(_) => *events += 1,
        Line::Anomaly(_, anomaly) => anomalies.push(Found { line, source, seq, anomaly }),
        Line::Standing(..) | Line::Note(_) => {}
    }
}

impl Publisher {
    fn new(recorded: &Recorded) -> Publisher {
        let mut stream = Stream::new(Policy { replay: false, ..Policy::default() });
        stream.connected(0, None, &mut |_| Effect::Changed);
        let Recorded { endpoint, topic, .. } = recorded;
        Publisher { endpoint: endpoint.clone(), topic: topic.clone(), stream, watcher: Watcher::default() }
    }

    fn take(&mut self, recorded: &Recorded, naming: HashBytes, batch: &mut Batch, out: &mut dyn FnMut(Line)) {
        let (watcher, mut is_new) = (&mut self.watcher, false);
        self.stream.live(0, recorded.seq, &recorded.payload, &mut |action| {
            is_new = true;
            match action {
                Action::Apply { seq, payload } => match decode(payload, naming, batch) {
                    Ok(()) => return watcher.applied(seq, batch, out),
                    Err(reject) => {
                        watcher.undecodable(seq, reject, out);
                        return Effect::Undecodable;
                    }
                },
                Action::Clear(reason) => watcher.cleared(reason, out),
                // A stream without replay asks for neither.
                Action::AskReplay { .. } | Action::Reconnect => {}
            }
            Effect::Changed
        });
        if !is_new {
            out(Line::Anomaly(Some(recorded.seq), Anomaly::repeated()));
        }
    }
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::Publisher(publisher) => {
                let endpoint = publisher.endpoint.as_ref().map_or(String::new(), |at| format!("{at:?} "));
                format!("publisher {endpoint}topic {:?}", publisher.topic)
            }
            Source::Drained(drained) => format!("drained rank {}", drained.rank),
        }
    }

    fn last(&self) -> Option<u64> {
        match self {
            Source::Publisher(publisher) => publisher.stream.last_applied(),
            Source::Drained(drained) => drained.last(),
        }
    }

    /// A word for scripts, from which sequence on, and for people.
    fn standing(&self) -> (&'static str, Option<u64>, String) {
        match self {
            Source::Publisher(publisher) => {
                let standing = publisher.stream.standing();
                let (word, since) = standing_word(standing);
                (word, since, standing_text(standing))
            }
            Source::Drained(drained) => {
                let (word, text) = drained.standing();
                (word, None, text)
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        match self {
            Source::Publisher(publisher) => publisher.watcher.inventory().rows(),
            Source::Drained(drained) => drained.rows(),
        }
    }

    fn json(&self, most: usize) -> Value {
        let (endpoint, topic) = match self {
            Source::Publisher(publisher) => (publisher.endpoint.as_deref(), Some(publisher.topic.as_str())),
            Source::Drained(_) => (None, None),
        };
        let (standing, since, _) = self.standing();
        json!({
            "endpoint": endpoint, "topic": topic, "last": self.last(), "standing": standing, "since": since,
            "inventory": self.rows().iter().map(|row| row.json(most)).collect::<Vec<_>>(),
        })
    }
}
