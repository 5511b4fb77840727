//! Where the demo is shown: redrawn in place on a terminal, line by line elsewhere. Owns standard output; must leave a
//! terminal as it found it, however the demo ends, and never print a line twice.

use std::io::{self, IsTerminal, Write};

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Headings.
    Bold,
    /// What is there to be read once.
    Dim,
    /// The side in turn.
    Left,
    /// The side by blocks.
    Right,
}

/// A line in parts.
pub type Line = Vec<(Style, String)>;

/// What a terminal is assumed to have that does not tell its size: columns and rows.
const SIZE: (usize, usize) = (80, 24);

/// Standard output.
pub struct Screen {
    live: bool,
    colours: bool,
    size: (usize, usize),
    /// The lines on the terminal now, as they were sent.
    drawn: Vec<String>,
}

impl Screen {
    /// Redrawn in place where standard output is a terminal, unless `plain`.
    pub fn new(plain: bool) -> Screen {
        let live = !plain && io::stdout().is_terminal();
        let colours = live && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Screen { live, colours, size: (0, 0), drawn: Vec::new() }
    }

    /// Whether it is redrawn in place.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Columns and rows that may be drawn on.
    pub fn size(&self) -> (usize, usize) {
        let told = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let told = told.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        told.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or(SIZE)
    }

    /// Draws a whole screen: only lines that differ are sent, all at once.
    pub fn draw(&mut self, lines: &[Line]) -> Result<(), String> {
        let size = self.size();
        // The terminal may hold an update back until it is whole.
        let mut out = String::from("\x1b[?2026h");
        if self.size != size {
            // The other screen, without cursor, empty.
            out += "\x1b[?1049h\x1b[?25l\x1b[2J";
            (self.size, self.drawn) = (size, Vec::new());
        }
        let lines: Vec<String> = lines.iter().take(size.1).map(|line| self.styled(line, size.0)).collect();
        for row in 0..self.drawn.len().max(lines.len()) {
            let (old, new) = (self.drawn.get(row), lines.get(row));
            if old != new {
                out += &format!("\x1b[{};1H\x1b[2K{}", row + 1, new.map_or("", String::as_str));
            }
        }
        self.drawn = lines;
        print(&(out + "\x1b[?2026l"))
    }

    /// Gives the terminal back.
    pub fn leave(&mut self) -> Result<(), String> {
        if self.size == (0, 0) {
            return Ok(());
        }
        self.size = (0, 0);
        print("\x1b[?25h\x1b[?1049l")
    }

    /// Prints a line below what was printed before.
    pub fn print(&mut self, line: &str) -> Result<(), String> {
        print(&format!("{line}\n"))
    }

    fn styled(&self, line: &Line, columns: usize) -> String {
        let mut room = columns;
        let part = |(style, text): &(Style, String)| {
            let text: String = text.chars().take(room).collect();
            room -= text.chars().count();
            let code = match style {
                _ if !self.colours => return text,
                Style::Plain => return text,
                Style::Bold => "1",
                Style::Dim => "2",
                Style::Left => "33",
                Style::Right => "32",
            };
            format!("\x1b[{code}m{text}\x1b[0m")
        };
        line.iter().map(part).collect()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.leave();
    }
}

/// The lines of a text, `width` columns wide or less, broken between words; all but the first begin with `indent`. The
/// text's own indent is kept.
pub fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let mut line = text[..text.len() - words.len()].to_string();
    let mut lines = Vec::new();
    let mut is_begun = false;
    for word in words.split(' ') {
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        if is_begun && !fits {
            lines.push(std::mem::replace(&mut line, indent.into()));
        } else if is_begun {
            line.push(' ');
        }
        line += word;
        is_begun = true;
    }
    lines.push(line);
    lines
}

/// A reader that went away is no fault.
fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_cut() {
        for (text, width, lines) in [
            ("one two three", 13, &["one two three"][..]),
            ("one two three", 12, &["one two", "  three"]),
            ("one two three", 7, &["one two", "  three"]),
            ("a verylongword b", 6, &["a", "  verylongword", "  b"]),
            ("   one two", 7, &["   one", "  two"]),
            ("", 6, &[""]),
        ] {
            assert_eq!(wrapped(text, width, "  "), lines, "{text:?} in {width}");
        }
    }

    #[test]
    fn a_line_is_cut_at_the_last_column_whatever_its_style() {
        let mut screen = Screen { live: true, colours: true, size: (0, 0), drawn: Vec::new() };
        let line = vec![(Style::Bold, "abc".to_string()), (Style::Plain, "défg".to_string())];
        assert_eq!(screen.styled(&line, 5), "\x1b[1mabc\x1b[0mdé");
        screen.colours = false;
        assert_eq!(screen.styled(&line, 9), "abcdéfg");
    }
}
