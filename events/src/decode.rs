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
use field::{Field, List};

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
    let mut decoder = Decoder { reader: Reader::new(payload), naming, batch, pause: 0 };
    let done = decoder.batch(&mut Progress::default());
    done.map(|_| ()).inspect_err(|_| batch.clear())
}

/// The same in pieces of about `bytes`, so that a long payload holds nobody up: whether it is done. `at` is
/// where it stands, at first the default; payload and batch have to be the same each time.
pub(crate) fn decode_some(
    payload: &[u8],
    naming: HashBytes,
    batch: &mut Batch,
    at: &mut Progress,
    bytes: usize,
) -> Result<bool, Reject> {
    if at.events.is_none() {
        batch.clear();
    }
    let rest = payload.get(at.read..).unwrap_or_default();
    let mut decoder =
        Decoder { reader: Reader::new(rest), naming, batch, pause: rest.len().saturating_sub(bytes) };
    let done = decoder.batch(at);
    at.read = payload.len() - decoder.reader.left();
    done.inspect_err(|_| batch.clear())
}

/// How far a payload is decoded.
#[derive(Default)]
pub(crate) struct Progress {
    /// Bytes read.
    read: usize,
    /// Members of the batch, once its head was read.
    members: u32,
    /// Events left.
    events: Option<u32>,
    /// The event that was left in its midst.
    open: Option<Open>,
}

/// An event whose members are being read.
struct Open {
    draft: Stored,
    kind: Option<Kind>,
    /// What is left of an array's members by their places; `None`: a map.
    order: Option<&'static [Field]>,
    /// Members or pairs left.
    left: u32,
    /// The member that was left in its midst.
    list: Option<List>,
}

struct Decoder<'a, 'b> {
    reader: Reader<'a>,
    naming: HashBytes,
    batch: &'b mut Batch,
    /// Where fewer bytes than these are left, it pauses; 0: never.
    pause: usize,
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
    /// Whether the batch is whole.
    fn batch(&mut self, at: &mut Progress) -> Result<bool, Reject> {
        let mut left = match at.events {
            Some(left) => left,
            None => self.head(at)?,
        };
        loop {
            let mut open = match at.open.take() {
                Some(open) => open,
                None if left == 0 => break,
                None => {
                    left -= 1;
                    self.open()?
                }
            };
            if !self.members(&mut open)? {
                (at.open, at.events) = (Some(open), Some(left));
                return Ok(false);
            }
            self.close(&open)?;
        }
        self.tail(at.members).map(|()| true)
    }

    /// The number of events.
    fn head(&mut self, at: &mut Progress) -> Result<u32, Reject> {
        let Item::Array(members @ 2..) = self.reader.item()? else { return Err(Reject::Batch) };
        self.batch.time = match self.reader.item()? {
            Item::Float(time) => time,
            Item::Uint(time) => time as f64,
            _ => return Err(Reject::Batch),
        };
        let Item::Array(events) = self.reader.item()? else { return Err(Reject::Batch) };
        at.members = members;
        Ok(events)
    }

    fn tail(&mut self, members: u32) -> Result<(), Reject> {
        if members > 2 {
            self.batch.rank = match self.reader.item()? {
                Item::Nil => None,
                Item::Uint(rank) => Some(u32::try_from(rank).map_err(|_| Reject::Batch)?),
                _ => return Err(Reject::Batch),
            };
        }
        (3..members).try_for_each(|_| self.reader.skip())?;
        if self.reader.left() == 0 { Ok(()) } else { Err(Reject::Trailing) }
    }

    /// In an array a kind, then members in the order that all versions share; later ones are only ever added at
    /// the end.
    fn open(&mut self) -> Result<Open, Reject> {
        let mut open = Open { draft: Stored::default(), kind: None, order: None, left: 0, list: None };
        match self.reader.item()? {
            Item::Array(members @ 1..) => {
                let kind = self.label(Kind::named)?.unwrap_or(Kind::Unknown);
                open.left = members - 1;
                open.kind = Some(kind);
                open.order = Some(match kind {
                    Kind::Stored => field::STORED,
                    Kind::Removed => field::REMOVED,
                    Kind::Cleared | Kind::Unknown => &[],
                });
            }
            Item::Map(pairs) => open.left = pairs,
            _ => return Err(Reject::Event),
        }
        Ok(open)
    }

    /// Whether all members are read.
    #[inline]
    fn members(&mut self, open: &mut Open) -> Result<bool, Reject> {
        if let Some(list) = open.list.take() {
            self.go_on(list, open)?;
        }
        while open.left > 0 && open.list.is_none() {
            if self.is_due() {
                return Ok(false);
            }
            open.left -= 1;
            self.member(open)?;
        }
        Ok(open.list.is_none())
    }

    #[inline]
    fn member(&mut self, open: &mut Open) -> Result<(), Reject> {
        let field = match open.order {
            Some(order) => {
                let (first, rest) = order.split_first().unzip();
                open.order = Some(rest.unwrap_or_default());
                first.copied()
            }
            None => match self.label(Key::named)? {
                Some(Key::Kind) => {
                    open.kind = Some(self.label(Kind::named)?.unwrap_or(Kind::Unknown));
                    return Ok(());
                }
                Some(Key::Field(field)) if open.kind != Some(Kind::Unknown) => Some(field),
                _ => None,
            },
        };
        match field {
            Some(field @ (Field::Hashes | Field::Tokens)) => self.list(field, open)?,
            Some(field) => self.field(field, &mut open.draft)?,
            None => self.reader.skip()?,
        }
        Ok(())
    }

    fn close(&mut self, open: &Open) -> Result<(), Reject> {
        let draft = open.draft;
        match open.kind.ok_or(Reject::Event)? {
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

    /// Whether this piece is long enough.
    #[inline]
    fn is_due(&self) -> bool {
        self.reader.left() < self.pause
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
}

#[cfg(test)]
mod tests;
