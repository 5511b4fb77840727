//! The chunked transfer coding, decoded in place.
//!
//! Owns chunk sizes, extensions and the trailer section of RFC 9112 7.1. It names data by range and never
//! copies it, so a relay may send on either the data or the very bytes it was given. It must never accept
//! a bare LF, whitespace after a size, or an unbounded line.

use super::field::{Field, LONGEST};
use super::head::Limits;
use crate::{Malformed, scan};
use std::ops::Range;

/// What one call made of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the input that are dealt with; the next call begins after them.
    pub consumed: usize,
    /// The body data among them, possibly none; always ends at `consumed` if not empty.
    pub data: Range<usize>,
    /// The body, its trailer section included, is complete; what follows belongs to the next message.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// At the first digit of a size.
    #[default]
    Size,
    Digits,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the first byte of a trailer line, or of the blank line.
    Line,
    Name,
    Value,
    ValueLf,
    LastLf,
    Done,
}

/// Decodes one chunked body.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkDecoder {
    stage: Stage,
    /// Digits of this size so far.
    digits: u8,
    /// The size while it is read, then the data bytes still to come.
    left: u64,
    /// Bytes of this chunk line, later of the trailer section.
    line: u32,
    /// Bytes of all extensions.
    extensions: u32,
    name: TrailerName,
}

impl ChunkDecoder {
    /// A decoder before the first chunk.
    pub fn new() -> Self {
        ChunkDecoder::default()
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether a chunk, or the first one, may be written here: nothing of the next size line has come.
    pub fn is_between_chunks(&self) -> bool {
        self.stage == Stage::Size
    }

    /// Deals with the framing at the front of `input` and at most one run of data behind it. Consumes at
    /// least one byte of a non-empty input unless the body is already complete; call again with what is
    /// left until all is consumed or `done`.
    pub fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<Piece, Malformed> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.stage {
                Stage::Data => {
                    let end = at + self.take(input.len() - at);
                    return Ok(Piece { consumed: end, data: at..end, done: false });
                }
                Stage::Done => break,
                Stage::Extension => at += self.extension(input, at, limits)?,
                Stage::Name | Stage::Value => at += self.trailer_run(input, at, limits)?,
                _ => {
                    self.step(byte, limits)?;
                    at += 1;
                }
            }
        }
        Ok(Piece { consumed: at, data: at..at, done: self.is_done() })
    }

    #[inline]
    fn take(&mut self, available: usize) -> usize {
        let run = usize::try_from(self.left).unwrap_or(usize::MAX).min(available);
        self.left -= run as u64;
        if self.left == 0 {
            self.stage = Stage::DataCr;
        }
        run
    }

    /// One byte of the framing between runs.
    #[inline]
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<(), Malformed> {
        self.stage = match (self.stage, byte) {
            (Stage::Size | Stage::Digits, _) => self.size(byte)?,
            (Stage::SizeLf, b'\n') if self.left > 0 => Stage::Data,
            (Stage::SizeLf, b'\n') => {
                self.line = 0;
                Stage::Line
            }
            (Stage::DataCr, b'\r') => Stage::DataLf,
            (Stage::DataLf, b'\n') => {
                *self = ChunkDecoder { extensions: self.extensions, ..ChunkDecoder::default() };
                Stage::Size
            }
            (Stage::DataCr | Stage::DataLf, _) => return Err(Malformed::ChunkDataEnd),
            (Stage::Line, _) => self.trailer_line(byte, limits)?,
            (Stage::ValueLf, b'\n') => {
                self.count_trailer(1, limits)?;
                Stage::Line
            }
            (Stage::LastLf, b'\n') => Stage::Done,
            _ => return Err(Malformed::BareCr),
        };
        Ok(())
    }

    #[inline]
    fn size(&mut self, byte: u8) -> Result<Stage, Malformed> {
        match (byte, (byte as char).to_digit(16)) {
            (_, Some(_)) if self.digits == 16 => Err(Malformed::ChunkSizeTooLong),
            (_, Some(digit)) => {
                self.digits += 1;
                self.left = self.left << 4 | u64::from(digit);
                Ok(Stage::Digits)
            }
            (b'\n', None) => Err(Malformed::BareLf),
            (_, None) if self.digits == 0 => Err(Malformed::ChunkSizeEmpty),
            (b'\r', None) => Ok(Stage::SizeLf),
            (b';', None) => {
                self.line = u32::from(self.digits) + 1;
                Ok(Stage::Extension)
            }
            _ => Err(Malformed::ChunkSizeByte),
        }
    }

    /// A run of extension bytes; returns how many are dealt with.
    fn extension(&mut self, input: &[u8], at: usize, limits: &Limits) -> Result<usize, Malformed> {
        let run = scan::value_end(input, at) - at;
        let line_room = limits.chunk_line_bytes.saturating_sub(self.line);
        let body_room = limits.chunk_line_bytes.saturating_mul(4).saturating_sub(self.extensions);
        if run > line_room.min(body_room) as usize {
            // The bound that was passed first, so that the verdict does not depend on the split.
            let line_first = line_room <= body_room;
            return Err(if line_first {
                Malformed::ChunkLineTooLong
            } else {
                Malformed::ChunkExtensionsTooLong
            });
        }
        self.line += crate::span::narrow(run);
        self.extensions += crate::span::narrow(run);
        match input.get(at + run) {
            None => return Ok(run),
            Some(b'\r') => self.stage = Stage::SizeLf,
            Some(b'\n') => return Err(Malformed::BareLf),
            Some(_) => return Err(Malformed::ChunkExtensionByte),
        }
        Ok(run + 1)
    }

    fn trailer_line(&mut self, byte: u8, limits: &Limits) -> Result<Stage, Malformed> {
        self.name = TrailerName::default();
        match byte {
            b'\r' => {
                self.count_trailer(2, limits)?;
                Ok(Stage::LastLf)
            }
            b'\n' => Err(Malformed::BareLf),
            b' ' | b'\t' => Err(Malformed::ObsFold),
            _ if !scan::is_token(byte) => Err(Malformed::NameNotToken),
            _ => {
                self.name.push(&[byte]);
                self.count_trailer(1, limits)?;
                Ok(Stage::Name)
            }
        }
    }

    /// The rest of a trailer name or value with the byte that ends it; returns how many are dealt with.
    fn trailer_run(&mut self, input: &[u8], at: usize, limits: &Limits) -> Result<usize, Malformed> {
        let in_name = self.stage == Stage::Name;
        let end = if in_name { scan::token_end(input, at) } else { scan::value_end(input, at) };
        if in_name {
            self.name.push(input.get(at..end).unwrap_or_default());
        }
        self.count_trailer(end - at, limits)?;
        let Some(&byte) = input.get(end) else { return Ok(end - at) };
        self.stage = if in_name { self.after_name(byte)? } else { after_value(byte)? };
        self.count_trailer(1, limits)?;
        Ok(end + 1 - at)
    }

    fn after_name(&self, byte: u8) -> Result<Stage, Malformed> {
        match byte {
            b':' if self.name.is_forbidden() => Err(Malformed::TrailerForbidden),
            b':' => Ok(Stage::Value),
            b' ' | b'\t' => Err(Malformed::SpaceBeforeColon),
            b'\n' => Err(Malformed::BareLf),
            _ => Err(Malformed::NameNotToken),
        }
    }

    fn count_trailer(&mut self, bytes: usize, limits: &Limits) -> Result<(), Malformed> {
        self.line = self.line.saturating_add(crate::span::narrow(bytes));
        if self.line > limits.trailer_bytes { Err(Malformed::TrailerTooLarge) } else { Ok(()) }
    }
}

fn after_value(byte: u8) -> Result<Stage, Malformed> {
    match byte {
        b'\r' => Ok(Stage::ValueLf),
        b'\n' => Err(Malformed::BareLf),
        _ => Err(Malformed::ValueByte),
    }
}

/// The beginning of a trailer's name, kept because the name may be split over inputs.
#[derive(Clone, Copy, Debug, Default)]
struct TrailerName {
    bytes: [u8; LONGEST + 1],
    length: u8,
}

impl TrailerName {
    fn push(&mut self, run: &[u8]) {
        for &byte in run {
            let Some(slot) = self.bytes.get_mut(usize::from(self.length)) else { return };
            *slot = byte;
            self.length += 1;
        }
    }

    /// A field that must come before the body it frames, routes or authenticates (RFC 9110 6.5.1).
    fn is_forbidden(&self) -> bool {
        let field = Field::of(self.bytes.get(..usize::from(self.length)).unwrap_or_default());
        field.is_end_to_end() || field.is_hop_by_hop()
    }
}
