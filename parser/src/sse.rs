//! Server-sent events: where one ends and what its data is.
//!
//! Owns the line and field rules of the HTML standard, section 9.2.6, over any split of the stream: CR, LF
//! and CRLF ends, comments, several data lines, a byte order mark. It is for accounting: bytes are relayed
//! as they come, whatever is found here. It must never hold more of an event than the bound, or hold back a
//! byte.

use std::ops::Range;

/// Frames one stream.
#[derive(Clone, Debug)]
pub struct Framer {
    line: Line,
    /// The last byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    /// The event so far has a line that is not empty.
    open: bool,
    data_lines: u32,
    /// Data bytes of the event so far, kept or not.
    length: u64,
    bound: usize,
    oversized: u64,
}

/// What one call made of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// The event that ends at `consumed`; `None` if the input ended first.
    pub event: Option<Data>,
}

/// The data of one event: its data lines joined by LF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// No data line: only comments or other fields.
    None,
    /// A range of this call's input.
    Input(Range<usize>),
    /// All of the caller's `kept` buffer.
    Kept,
    /// More bytes than the bound; not held.
    Oversized(u64),
}

impl Data {
    /// The bytes, given the input and the buffer of the call that returned this; `None` if not held.
    pub fn bytes<'a>(&self, input: &'a [u8], kept: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Data::Input(range) => input.get(range.clone()),
            Data::Kept => Some(kept),
            Data::None | Data::Oversized(_) => None,
        }
    }
}

/// Where in a line the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// So many bytes of the byte order mark have been seen, at the very beginning.
    Mark(u8),
    /// So many bytes of `data` have been seen.
    Name(u8),
    /// After `data:`; one space may follow.
    Space,
    /// In the value of a data line.
    Data,
    /// In a line that does not matter.
    Other,
}

const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
const NAME: [u8; 4] = *b"data";

impl Framer {
    /// A framer before the first byte that holds at most `bound` data bytes of an event.
    pub fn new(bound: usize) -> Self {
        Framer {
            line: Line::Mark(0),
            after_cr: false,
            open: false,
            data_lines: 0,
            length: 0,
            bound,
            oversized: 0,
        }
    }

    /// How many events had more data than the bound.
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Goes to the end of the event in progress, or of the input. `kept` must be the same buffer in all
    /// calls; this framer clears it, and never makes it longer than the bound.
    pub fn advance(&mut self, input: &[u8], kept: &mut Vec<u8>) -> Step {
        let mut held = Held { input, kept, range: None };
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    at += 1;
                }
                b'\r' | b'\n' => {
                    at += self.line_end(byte, input.get(at + 1).copied());
                    if self.end_line(&mut held) {
                        return Step { consumed: at, event: Some(self.finish(held)) };
                    }
                }
                _ => {
                    self.after_cr = false;
                    at += self.in_line(byte, at, &mut held);
                }
            }
        }
        held.keep_range();
        Step { consumed: at, event: None }
    }

    /// Bytes of this line end: two for CRLF.
    fn line_end(&mut self, byte: u8, next: Option<u8>) -> usize {
        let pair = byte == b'\r' && next == Some(b'\n');
        self.after_cr = byte == b'\r' && !pair;
        1 + usize::from(pair)
    }

    /// Whether the line that ends here ends an event.
    fn end_line(&mut self, held: &mut Held<'_>) -> bool {
        let line = std::mem::replace(&mut self.line, Line::Name(0));
        match line {
            Line::Name(0) | Line::Mark(0 | 3) => return std::mem::take(&mut self.open),
            Line::Name(4) => self.begin_data(held),
            // Half a mark is the name of an unknown field.
            Line::Mark(_) => self.open = true,
            _ => {}
        }
        false
    }

    /// Bytes dealt with, from `byte` at `at` on, none of them beyond the end of the line.
    fn in_line(&mut self, byte: u8, at: usize, held: &mut Held<'_>) -> usize {
        match (self.line, byte) {
            (Line::Mark(seen), _) if MARK.get(usize::from(seen)) == Some(&byte) => {
                self.line = Line::Mark(seen + 1);
                return 1;
            }
            (Line::Mark(0 | 3), _) => {
                self.line = Line::Name(0);
                return 0;
            }
            _ => {}
        }
        if !std::mem::replace(&mut self.open, true) {
            held.kept.clear();
            (self.length, self.data_lines) = (0, 0);
        }
        match (self.line, byte) {
            // What the steps below come to for the line that every engine sends.
            (Line::Name(0), b'd') if held.starts(at, b"data: ") => {
                self.begin_data(held);
                self.line = Line::Data;
                b"data: ".len()
            }
            (Line::Name(4), b':') => {
                self.begin_data(held);
                self.line = Line::Space;
                1
            }
            (Line::Name(seen), _) if NAME.get(usize::from(seen)) == Some(&byte) => {
                self.line = Line::Name(seen + 1);
                1
            }
            (Line::Space, _) => {
                self.line = Line::Data;
                usize::from(byte == b' ')
            }
            (Line::Data, _) => self.data(at, held),
            _ => {
                self.line = Line::Other;
                held.rest_of_line(at).len()
            }
        }
    }

    /// Joins the data lines of an event.
    fn begin_data(&mut self, held: &mut Held<'_>) {
        self.data_lines += 1;
        if self.data_lines == 1 {
            return;
        }
        self.length += 1;
        if self.length <= self.bound as u64 {
            held.keep_range();
            held.kept.push(b'\n');
        }
    }

    fn data(&mut self, at: usize, held: &mut Held<'_>) -> usize {
        let run = held.rest_of_line(at);
        self.length += run.len() as u64;
        if self.length <= self.bound as u64 {
            held.hold(run.clone(), self.data_lines == 1);
        }
        run.len()
    }

    fn finish(&mut self, held: Held<'_>) -> Data {
        if self.data_lines == 0 {
            return Data::None;
        }
        if self.length > self.bound as u64 {
            self.oversized += 1;
            return Data::Oversized(self.length);
        }
        held.range.map_or(Data::Kept, Data::Input)
    }
}

/// Where the data of the event in progress is: a range of the input as long as that is enough, else `kept`.
struct Held<'a> {
    input: &'a [u8],
    kept: &'a mut Vec<u8>,
    range: Option<Range<usize>>,
}

impl Held<'_> {
    fn starts(&self, at: usize, with: &[u8]) -> bool {
        self.input.get(at..).is_some_and(|rest| rest.starts_with(with))
    }

    fn rest_of_line(&self, at: usize) -> Range<usize> {
        let rest = self.input.get(at..).unwrap_or_default();
        at..at + memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())
    }

    fn hold(&mut self, run: Range<usize>, is_first_line: bool) {
        if is_first_line && self.range.is_none() && self.kept.is_empty() {
            self.range = Some(run);
            return;
        }
        self.keep_range();
        self.kept.extend_from_slice(self.input.get(run).unwrap_or_default());
    }

    fn keep_range(&mut self) {
        if let Some(range) = self.range.take() {
            self.kept.extend_from_slice(self.input.get(range).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
