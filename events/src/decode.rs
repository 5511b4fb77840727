//! Payloads to typed events: vLLM's and SGLang's array and map forms.
//!
//! Owns which member of an event is what; the form is chosen for each event by what arrives, never by a
//! version. Must never know which engine speaks: the one thing that differs, how a byte-string hash becomes a
//! name, is an argument. Members and keys that are not known are passed over; a known member of another type
//! rejects the whole payload, since what it did to the cache is then unknown.
//!
//! Arrays: vLLM 0.23, SGLang 0.5.18 and 0.5.19. Maps: vLLM ≥ 0.24, SGLang 0.5.23.

mod field;

use crate::msgpack::{Fault, Item, Reader};
use crate::wire::{Batch, Event, HashBytes, Removed, Stored};
use field::Field;

/// Why a payload is not a batch of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// It is not MessagePack.
    Format(Fault),
    /// It is no array of a time, events and perhaps a rank.
    Batch,
    /// An event is neither array nor map, or has no kind.
    Event,
    /// A member of this name has another type, or a value out of range.
    Member(&'static str),
    /// A hash that is neither an integer nor at least 8 bytes. Floats have lost bits.
    Hash,
    /// Bytes follow the batch.
    Trailing,
}

impl From<Fault> for Reject {
    fn from(fault: Fault) -> Self {
        Reject::Format(fault)
    }
}

/// Decodes one payload into `batch`, which it empties first. On a reject the batch is empty: all of a payload
/// counts or nothing.
pub fn decode(payload: &[u8], naming: HashBytes, batch: &mut Batch) -> Result<(), Reject> {
    batch.clear();
    let mut decoder = Decoder { reader: Reader::new(payload), naming, batch };
    decoder.batch().inspect_err(|_| batch.clear())
}

struct Decoder<'a, 'b> {
    reader: Reader<'a>,
    naming: HashBytes,
    batch: &'b mut Batch,
}

/// What an event's kind asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed,
    Cleared,
    Unknown,
}

impl Kind {
    fn named(name: &[u8]) -> Option<Kind> {
        match name {
            b"BlockStored" => Some(Kind::Stored),
            b"BlockRemoved" => Some(Kind::Removed),
            b"AllBlocksCleared" => Some(Kind::Cleared),
            _ => None,
        }
    }
}

/// What a key of an event's map announces.
enum Key {
    Kind,
    Field(Field),
}

impl Key {
    fn named(key: &[u8]) -> Option<Key> {
        if key == b"type" { Some(Key::Kind) } else { Field::named(key).map(Key::Field) }
    }
}

impl Decoder<'_, '_> {
    fn batch(&mut self) -> Result<(), Reject> {
        let Item::Array(members @ 2..) = self.reader.item()? else { return Err(Reject::Batch) };
        self.batch.time = match self.reader.item()? {
            Item::Float(time) => time,
            Item::Uint(time) => time as f64,
            _ => return Err(Reject::Batch),
        };
        let Item::Array(events) = self.reader.item()? else { return Err(Reject::Batch) };
        for _ in 0..events {
            self.event()?;
        }
        if members > 2 {
            self.batch.rank = match self.reader.item()? {
                Item::Nil => None,
                Item::Uint(rank) => Some(u32::try_from(rank).map_err(|_| Reject::Batch)?),
                _ => return Err(Reject::Batch),
            };
        }
        self.skip(members.saturating_sub(3))?;
        if self.reader.left() == 0 { Ok(()) } else { Err(Reject::Trailing) }
    }

    fn event(&mut self) -> Result<(), Reject> {
        let mut draft = Stored::default();
        let kind = match self.reader.item()? {
            Item::Array(members @ 1..) => self.array(members, &mut draft)?,
            Item::Map(pairs) => self.map(pairs, &mut draft)?,
            _ => return Err(Reject::Event),
        };
        match kind {
            Kind::Stored if draft.block_size == 0 => return Err(Reject::Member("block_size")),
            Kind::Stored => self.batch.events.push(Event::Stored(draft)),
            Kind::Removed => {
                self.batch.events.push(Event::Removed(Removed { hashes: draft.hashes, place: draft.place }));
            }
            Kind::Cleared => self.batch.events.push(Event::Cleared),
            Kind::Unknown => self.batch.unknown += 1,
        }
        Ok(())
    }

    /// A kind, then members in the order that all versions share; later ones are only ever added at the end.
    fn array(&mut self, members: u32, draft: &mut Stored) -> Result<Kind, Reject> {
        let kind = self.label(Kind::named)?.unwrap_or(Kind::Unknown);
        let order = match kind {
            Kind::Stored => field::STORED,
            Kind::Removed => field::REMOVED,
            Kind::Cleared | Kind::Unknown => &[],
        };
        let mut left = members - 1;
        for field in order.iter().take(left as usize) {
            self.field(*field, draft)?;
            left -= 1;
        }
        self.skip(left)?;
        Ok(kind)
    }

    fn map(&mut self, pairs: u32, draft: &mut Stored) -> Result<Kind, Reject> {
        let mut kind = None;
        for _ in 0..pairs {
            match self.label(Key::named)? {
                Some(Key::Kind) => kind = Some(self.label(Kind::named)?.unwrap_or(Kind::Unknown)),
                Some(Key::Field(field)) if kind != Some(Kind::Unknown) => self.field(field, draft)?,
                _ => self.skip(1)?,
            }
        }
        kind.ok_or(Reject::Event)
    }

    /// A text that `named` may know. One that it does is UTF-8 by that, and need not be looked at twice.
    #[inline]
    fn label<T>(&mut self, named: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>, Reject> {
        let mut ahead = self.reader;
        if let Some(known) = ahead.name().and_then(&named) {
            self.reader = ahead;
            return Ok(Some(known));
        }
        match self.reader.item()? {
            Item::Str(text) => Ok(named(text.as_bytes())),
            _ => Err(Reject::Event),
        }
    }

    fn skip(&mut self, values: u32) -> Result<(), Reject> {
        for _ in 0..values {
            self.reader.skip()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
