//! The header lines of a head, from the first name to the blank line.
//!
//! Owns the machine that both parsers share. It is resumed at the byte where it stopped, so no byte is
//! classified twice, and its verdict is fixed by the first offending byte, so it does not depend on how the
//! input was split. It must never look past the window it is given.

use super::facts::Facts;
use super::field::Field;
use super::head::{Header, Headers, Limits};
use crate::{Malformed, Span, scan};

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// At the first byte of a line.
    #[default]
    Line,
    Name,
    Value,
    /// At the LF of the blank line.
    End,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldLines {
    stage: Stage,
    at: usize,
    line: usize,
    name_end: usize,
}

impl FieldLines {
    /// A machine whose first line begins at `at`.
    pub(super) fn starting_at(at: usize) -> Self {
        FieldLines { at, ..FieldLines::default() }
    }

    /// Goes on in `window`; the offset after the blank line once it is there.
    pub(super) fn advance(
        &mut self,
        window: &[u8],
        limits: &Limits,
        headers: &mut Headers,
        facts: &mut Facts,
    ) -> Result<Option<usize>, Malformed> {
        // A copy lives in registers; through `self` each step would wait for the last one's store.
        let mut lines = *self;
        let end = lines.run(window, limits, headers, facts);
        *self = lines;
        end
    }

    #[inline(always)]
    fn run(
        &mut self,
        window: &[u8],
        limits: &Limits,
        headers: &mut Headers,
        facts: &mut Facts,
    ) -> Result<Option<usize>, Malformed> {
        let room = headers.room(limits.headers);
        loop {
            if let Stage::Line = self.stage {
                let Some(&first) = window.get(self.at) else { return Ok(None) };
                self.begin(first, room, headers)?;
            }
            if let Stage::Name = self.stage
                && !self.name(window)?
            {
                return Ok(None);
            }
            if let Stage::End = self.stage {
                return self.end(window);
            }
            if !self.value(window)? {
                return Ok(None);
            }
            let name = Span::new(self.line, self.name_end);
            let value = trim(window, self.name_end + 1, self.at);
            let field = Field::of(name.of(window));
            self.at += 2;
            facts.note(field, name, value, window)?;
            headers.push(Header { name, value, line: Span::new(self.line, self.at), field });
        }
    }

    fn end(&self, window: &[u8]) -> Result<Option<usize>, Malformed> {
        match window.get(self.at) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(self.at + 1)),
            Some(_) => Err(Malformed::BareCr),
        }
    }

    #[inline(always)]
    fn begin(&mut self, first: u8, room: usize, headers: &Headers) -> Result<(), Malformed> {
        if first == b'\r' {
            self.at += 1;
            self.stage = Stage::End;
            return Ok(());
        }
        if first <= b' ' {
            return Err(bad_first_byte(first, headers.is_empty()));
        }
        if headers.len() >= room {
            return Err(Malformed::TooManyHeaders);
        }
        self.line = self.at;
        self.stage = Stage::Name;
        Ok(())
    }

    /// Whether the name is complete.
    #[inline(always)]
    fn name(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        self.at = scan::token_end(window, self.at);
        match window.get(self.at) {
            None => return Ok(false),
            Some(b':') if self.at > self.line => {}
            Some(&byte) => return Err(bad_name_byte(byte)),
        }
        self.name_end = self.at;
        self.at += 1;
        self.stage = Stage::Value;
        Ok(true)
    }

    /// Whether the value and its line end are complete; the position stays at the CR.
    #[inline(always)]
    fn value(&mut self, window: &[u8]) -> Result<bool, Malformed> {
        self.at = scan::value_end(window, self.at);
        match (window.get(self.at), window.get(self.at + 1)) {
            (None, _) | (Some(b'\r'), None) => return Ok(false),
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), Some(_)) => return Err(Malformed::BareCr),
            (Some(b'\n'), _) => return Err(Malformed::BareLf),
            (Some(_), _) => return Err(Malformed::ValueByte),
        }
        self.stage = Stage::Line;
        Ok(true)
    }
}

#[cold]
fn bad_first_byte(byte: u8, is_first_line: bool) -> Malformed {
    match byte {
        b'\n' => Malformed::BareLf,
        b' ' | b'\t' if is_first_line => Malformed::SpaceBeforeFirstField,
        b' ' | b'\t' => Malformed::ObsFold,
        _ => Malformed::NameNotToken,
    }
}

#[cold]
fn bad_name_byte(byte: u8) -> Malformed {
    match byte {
        b' ' | b'\t' => Malformed::SpaceBeforeColon,
        b'\n' => Malformed::BareLf,
        _ => Malformed::NameNotToken,
    }
}

/// `start..end` without the spaces and tabs around it.
#[inline(always)]
pub(super) fn trim(bytes: &[u8], mut start: usize, mut end: usize) -> Span {
    let blank = |at: usize| matches!(bytes.get(at), Some(b' ' | b'\t'));
    while start < end && blank(start) {
        start += 1;
    }
    while start < end && blank(end - 1) {
        end -= 1;
    }
    Span::new(start, end)
}
