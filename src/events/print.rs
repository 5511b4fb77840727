//! Lines to standard output until enough are printed. Owns when that is; must never choose what is printed.

use super::Extent;
use super::line::Line;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Why it ends.
#[derive(Debug)]
pub enum Stop {
    /// All that was asked for is printed, or nobody reads it any more.
    Enough,
    /// It can't go on.
    Failed(String),
}

impl Stop {
    /// What the verb answers.
    pub fn verdict(self) -> Result<(), String> {
        match self {
            Stop::Enough => Ok(()),
            Stop::Failed(sentence) => Err(sentence),
        }
    }
}

/// Prints lines.
pub struct Printer {
    json: bool,
    events_left: Option<u64>,
    until: Option<Instant>,
}

impl Printer {
    /// The time runs from now on.
    pub fn new(extent: Extent) -> Printer {
        let until = extent.time.and_then(|time| Instant::now().checked_add(time));
        Printer { json: extent.json, events_left: extent.count, until }
    }

    /// Prints one line.
    pub fn print(&mut self, line: &Line) -> Result<(), Stop> {
        if let (Line::Event(_), Some(left)) = (line, &mut self.events_left) {
            *left = left.saturating_sub(1);
        }
        put(&if self.json { line.json().to_string() } else { line.text() })
    }

    /// Whether as many events are printed as are wanted. What belongs to the last one may still be.
    pub fn is_enough(&self) -> bool {
        self.events_left == Some(0)
    }

    /// How long a wait of at most `most` may be; an end if no time is left or nothing more is wanted.
    pub fn wait(&self, most: Duration) -> Result<Duration, Stop> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.is_enough() || left.is_some_and(|left| left.is_zero()) {
            return Err(Stop::Enough);
        }
        Ok(left.map_or(most, |left| left.min(most)))
    }
}

/// Prints text as a line.
pub fn put(text: &str) -> Result<(), Stop> {
    writeln!(io::stdout(), "{text}").map_err(|fault| match fault.kind() {
        io::ErrorKind::BrokenPipe => Stop::Enough,
        _ => Stop::Failed(format!("standard output: {fault}")),
    })
}
