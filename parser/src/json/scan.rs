//! The grammar of RFC 8259, as a scanner that builds nothing.
//!
//! Owns where values begin and end. Nesting is counted on a fixed stack of bits, so that no input can
//! recurse. It must never interpret a value; strings must be known to be UTF-8 beforehand.

use super::peek::{JsonFault, Kind};
use crate::Span;
use crate::scan as bytes;

/// The deepest nesting that can be asked for.
pub(super) const DEEPEST: u32 = 1024;

/// A position in a text.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    bound: u32,
}

impl<'a> Scanner<'a> {
    /// A scanner at `at` that refuses more than `bound` open arrays and objects, itself at depth zero.
    pub(super) fn new(text: &'a [u8], at: usize, bound: u32) -> Self {
        Scanner { text, at, bound: bound.min(DEEPEST) }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn move_to(&mut self, at: usize) {
        self.at = at;
    }

    #[inline(always)]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline(always)]
    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    #[inline(always)]
    pub(super) fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// What is wrong here: a stray byte, or the end of the text.
    #[cold]
    pub(super) fn fault(&self) -> JsonFault {
        match self.byte() {
            Some(_) => JsonFault::Syntax { at: crate::span::narrow(self.at) },
            None => JsonFault::Truncated,
        }
    }

    #[inline(always)]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), JsonFault> {
        if self.byte() != Some(byte) {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(())
    }

    /// Past the value that begins here.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Kind, JsonFault> {
        match self.byte() {
            Some(b'{') => self.nested().map(|()| Kind::Object),
            Some(b'[') => self.nested().map(|()| Kind::Array),
            _ => self.scalar(),
        }
    }

    /// Past the array that begins here, telling the index, place and kind of each element.
    pub(super) fn array(&mut self, mut element: impl FnMut(usize, Span, Kind)) -> Result<(), JsonFault> {
        self.bound = self.bound.checked_sub(1).ok_or(JsonFault::TooDeep)?;
        self.expect(b'[')?;
        self.space();
        let mut index = 0;
        let mut ended = self.byte() == Some(b']');
        while !ended {
            let start = self.at;
            let kind = self.value()?;
            element(index, Span::new(start, self.at), kind);
            index += 1;
            self.space();
            ended = self.byte() == Some(b']');
            if !ended {
                self.expect(b',')?;
                self.space();
            }
        }
        self.skip();
        self.bound += 1;
        Ok(())
    }

    #[inline(always)]
    fn scalar(&mut self) -> Result<Kind, JsonFault> {
        match self.byte() {
            Some(b'"') => self.string().map(|escaped| Kind::String { escaped }),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            Some(b't') => self.literal(b"true").map(|()| Kind::True),
            Some(b'f') => self.literal(b"false").map(|()| Kind::False),
            Some(b'n') => self.literal(b"null").map(|()| Kind::Null),
            _ => Err(self.fault()),
        }
    }

    /// Past the string that begins here; whether it has an escape.
    #[inline]
    pub(super) fn string(&mut self) -> Result<bool, JsonFault> {
        self.expect(b'"')?;
        let mut escaped = false;
        loop {
            self.at = bytes::string_end(self.text, self.at);
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.fault()),
            }
            escaped = true;
        }
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
        self.at += 1;
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.fault());
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.fault()),
        }
        Ok(())
    }

    #[inline(always)]
    fn number(&mut self) -> Result<(), JsonFault> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        match self.byte() {
            Some(b'.' | b'e' | b'E') => self.fraction(),
            _ => Ok(()),
        }
    }

    fn fraction(&mut self) -> Result<(), JsonFault> {
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<(), JsonFault> {
        if !self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.fault());
        }
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonFault> {
        for &byte in word {
            self.expect(byte)?;
        }
        Ok(())
    }

    /// Past the array or object that begins here, and all in it.
    fn nested(&mut self) -> Result<(), JsonFault> {
        let mut open = Nesting::default();
        loop {
            // At a value.
            match self.byte() {
                Some(opening @ (b'{' | b'[')) => {
                    open.push(opening == b'{', self.bound)?;
                    self.at += 1;
                    self.space();
                    let closing = if opening == b'{' { b'}' } else { b']' };
                    if self.byte() != Some(closing) {
                        self.key(&open)?;
                        continue;
                    }
                }
                _ => {
                    self.scalar()?;
                    self.space();
                }
            }
            if self.close(&mut open)? {
                return Ok(());
            }
        }
    }

    /// After a value or at a closing bracket: to the next value (false), or past the last bracket (true).
    #[inline(always)]
    fn close(&mut self, open: &mut Nesting) -> Result<bool, JsonFault> {
        loop {
            match (self.byte(), open.in_object()) {
                (Some(b','), _) => {
                    self.at += 1;
                    self.space();
                    self.key(open)?;
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.at += 1,
                _ => return Err(self.fault()),
            }
            if open.pop() {
                return Ok(true);
            }
            self.space();
        }
    }

    /// In an object, past the key and its colon.
    #[inline(always)]
    fn key(&mut self, open: &Nesting) -> Result<(), JsonFault> {
        if open.in_object() {
            self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
        }
        Ok(())
    }
}

/// Which of the open brackets are objects: one bit each.
struct Nesting {
    bits: [u64; (DEEPEST / 64) as usize],
    depth: u32,
    in_object: bool,
}

impl Default for Nesting {
    fn default() -> Self {
        Nesting { bits: [0; (DEEPEST / 64) as usize], depth: 0, in_object: false }
    }
}

impl Nesting {
    #[inline(always)]
    fn in_object(&self) -> bool {
        self.in_object
    }

    #[inline(always)]
    fn push(&mut self, object: bool, bound: u32) -> Result<(), JsonFault> {
        if self.depth >= bound {
            return Err(JsonFault::TooDeep);
        }
        let (word, bit) = (self.depth as usize / 64, self.depth % 64);
        if let Some(word) = self.bits.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(object) << bit;
        }
        self.depth += 1;
        self.in_object = object;
        Ok(())
    }

    /// Whether that was the last one.
    #[inline(always)]
    fn pop(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        let Some(top) = self.depth.checked_sub(1) else { return true };
        self.in_object = self.bits.get(top as usize / 64).is_some_and(|word| word >> (top % 64) & 1 == 1);
        false
    }
}
