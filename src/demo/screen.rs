//! Where the demo's table is printed: redrawn in place on a terminal, line by line elsewhere, once at the end
//! with `--once`. Owns standard output; must never print a row twice.

use super::board::{Board, row_head};
use std::io::{self, IsTerminal, Write};

/// Rows of the redrawn table.
const ROWS: usize = 16;

/// How the table is shown.
enum Mode {
    /// Redrawn in place.
    Live,
    /// Row by row; so many were printed.
    Lines(u64),
    /// All rows at the end.
    Once,
}

/// Standard output.
pub struct Screen {
    intro: String,
    mode: Mode,
    begun: bool,
}

impl Screen {
    /// A screen that opens with `intro`.
    pub fn new(intro: String, once: bool) -> Screen {
        let mode = match (once, io::stdout().is_terminal()) {
            (true, _) => Mode::Once,
            (false, true) => Mode::Live,
            (false, false) => Mode::Lines(0),
        };
        Screen { intro, mode, begun: false }
    }

    /// Shows what is new.
    pub fn show(&mut self, board: &Board) -> Result<(), String> {
        let text = match &mut self.mode {
            Mode::Once => return Ok(()),
            Mode::Live => redrawn(&format!(
                "{}\n{}{}\n{}{}\nCtrl-C ends it.\n",
                self.intro,
                board.endpoints(),
                board.summary(),
                row_head(),
                board.rows(ROWS)
            )),
            Mode::Lines(printed) => {
                let new = board.requests() - *printed;
                *printed = board.requests();
                let head = if self.begun { String::new() } else { format!("{}\n{}", self.intro, row_head()) };
                head + &board.rows(usize::try_from(new).unwrap_or(usize::MAX))
            }
        };
        let text = if self.begun || matches!(self.mode, Mode::Lines(_)) { text } else { cleared(&text) };
        self.begun = true;
        print(&text)
    }

    /// Shows how it ended.
    pub fn end(&mut self, board: &Board) -> Result<(), String> {
        match self.mode {
            Mode::Live => Ok(()),
            Mode::Lines(_) => print(&format!("\n{}{}", board.endpoints(), board.summary())),
            Mode::Once => {
                let rows = board.rows(usize::MAX);
                let (bars, summary) = (board.endpoints(), board.summary());
                print(&format!("{}\n{bars}{summary}\n{}{rows}", self.intro, row_head()))
            }
        }
    }
}

/// Each line wiped to its end, everything below wiped.
fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

fn cleared(text: &str) -> String {
    format!("\x1b[2J{text}")
}

/// A reader that went away is no fault.
fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}
