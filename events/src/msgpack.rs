//! A strict MessagePack reader for what engines publish.
//!
//! Owns the formats of the MessagePack specification (2017), every width of them; must never copy, allocate,
//! recurse or panic. Values are pulled one at a time: an array or map hands over its head and its items follow.

/// How deep [`Reader::skip`] follows arrays and maps. Engines nest five deep.
pub const DEPTH: usize = 32;

/// Why bytes are not the MessagePack that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes end inside a value, or an array claims more items than bytes are left.
    Short,
    /// The byte 0xc1, which no value starts with.
    Format,
    /// A string that is not UTF-8.
    Text,
    /// Nested deeper than [`DEPTH`].
    Deep,
}

/// One value, or the head of one that holds others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Item<'a> {
    /// No value.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer of 0 or more, whatever its form.
    Uint(u64),
    /// An integer below 0.
    Negative(i64),
    /// A float of either width.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// Bytes.
    Bin(&'a [u8]),
    /// So many items follow.
    Array(u32),
    /// So many pairs follow.
    Map(u32),
    /// An extension's type and data.
    Ext(i8, &'a [u8]),
}

/// Reads values from the front of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next value, or the head of an array or map.
    #[inline]
    pub fn item(&mut self) -> Result<Item<'a>, Fault> {
        let tag = self.take::<1>()?[0];
        match tag {
            0x00..=0x7f => Ok(Item::Uint(u64::from(tag))),
            0x80..=0x8f => self.map(u32::from(tag & 0x0f)),
            0x90..=0x9f => self.array(u32::from(tag & 0x0f)),
            0xa0..=0xbf => self.text(u32::from(tag & 0x1f)),
            0xcc => Ok(Item::Uint(u64::from(self.take::<1>()?[0]))),
            0xcd => Ok(Item::Uint(u64::from(self.u16()?))),
            0xce => Ok(Item::Uint(u64::from(self.u32()?))),
            0xcf => Ok(Item::Uint(u64::from_be_bytes(self.take()?))),
            0xe0..=0xff => Ok(Item::Negative(i64::from(tag.cast_signed()))),
            _ => self.rare(tag),
        }
    }

    /// A text of up to 31 bytes, as bytes that nobody has yet found to be UTF-8; nothing, and nothing read, if
    /// something else comes. For names that are compared with known ones, which are.
    #[inline]
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let [tag @ 0xa0..=0xbf, rest @ ..] = self.rest else { return None };
        let (name, rest) = rest.split_at_checked(usize::from(tag & 0x1f))?;
        self.rest = rest;
        Some(name)
    }

    /// The forms that a block event seldom has.
    fn rare(&mut self, tag: u8) -> Result<Item<'a>, Fault> {
        match tag {
            0xc0 => Ok(Item::Nil),
            0xc2 | 0xc3 => Ok(Item::Bool(tag == 0xc3)),
            0xc4..=0xc6 => {
                let length = self.length(tag - 0xc4)?;
                Ok(Item::Bin(self.bytes(length)?))
            }
            0xc7..=0xc9 => {
                let length = self.length(tag - 0xc7)?;
                self.ext(length)
            }
            0xca => Ok(Item::Float(f64::from(f32::from_be_bytes(self.take()?)))),
            0xcb => Ok(Item::Float(f64::from_be_bytes(self.take()?))),
            0xd0..=0xd3 => self.signed(tag),
            0xd4..=0xd8 => self.ext(1 << (tag - 0xd4)),
            0xd9..=0xdb => {
                let length = self.length(tag - 0xd9)?;
                self.text(length)
            }
            0xdc => {
                let count = self.length(1)?;
                self.array(count)
            }
            0xdd => {
                let count = self.length(2)?;
                self.array(count)
            }
            0xde => {
                let count = self.length(1)?;
                self.map(count)
            }
            0xdf => {
                let count = self.length(2)?;
                self.map(count)
            }
            _ => Err(Fault::Format),
        }
    }

    /// Reads up to `count` unsigned integers of at most 32 bits, as wide as they come, and stops before the
    /// first value that is something else: how many it read. Token ids are most of what engines send.
    #[inline]
    pub fn u32s(&mut self, count: u32, out: &mut Vec<u32>) -> u32 {
        let from = out.len();
        // Each has a byte at least, so a false count makes nobody reserve for it.
        let most = (count as usize).min(self.rest.len());
        out.resize(from + most, 0);
        let (mut rest, mut read) = (self.rest, 0);
        for place in &mut out[from..] {
            (*place, rest) = match *rest {
                [id @ 0..=0x7f, ref tail @ ..] => (u32::from(id), tail),
                [0xcd, a, b, ref tail @ ..] => (u32::from(u16::from_be_bytes([a, b])), tail),
                [0xce, a, b, c, d, ref tail @ ..] => (u32::from_be_bytes([a, b, c, d]), tail),
                [0xcc, id, ref tail @ ..] => (u32::from(id), tail),
                _ => break,
            };
            read += 1;
        }
        self.rest = rest;
        out.truncate(from + read);
        read as u32
    }

    /// Passes over one whole value.
    pub fn skip(&mut self) -> Result<(), Fault> {
        let mut open = [0_u64; DEPTH];
        let mut depth = 0;
        loop {
            let items = match self.item()? {
                Item::Array(count) => u64::from(count),
                Item::Map(pairs) => 2 * u64::from(pairs),
                _ => 0,
            };
            if items > 0 {
                *open.get_mut(depth).ok_or(Fault::Deep)? = items;
                depth += 1;
                continue;
            }
            while depth > 0 {
                open[depth - 1] -= 1;
                if open[depth - 1] > 0 {
                    break;
                }
                depth -= 1;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn signed(&mut self, tag: u8) -> Result<Item<'a>, Fault> {
        let value = match tag {
            0xd0 => i64::from(i8::from_be_bytes(self.take()?)),
            0xd1 => i64::from(i16::from_be_bytes(self.take()?)),
            0xd2 => i64::from(i32::from_be_bytes(self.take()?)),
            _ => i64::from_be_bytes(self.take()?),
        };
        Ok(u64::try_from(value).map_or(Item::Negative(value), Item::Uint))
    }

    /// Each item has a byte at least: a count over what is left is refused before anyone reserves for it.
    fn array(&self, count: u32) -> Result<Item<'a>, Fault> {
        if count as usize > self.rest.len() { Err(Fault::Short) } else { Ok(Item::Array(count)) }
    }

    fn map(&self, pairs: u32) -> Result<Item<'a>, Fault> {
        if 2 * u64::from(pairs) > self.rest.len() as u64 { Err(Fault::Short) } else { Ok(Item::Map(pairs)) }
    }

    fn text(&mut self, length: u32) -> Result<Item<'a>, Fault> {
        std::str::from_utf8(self.bytes(length)?).map(Item::Str).map_err(|_| Fault::Text)
    }

    fn ext(&mut self, length: u32) -> Result<Item<'a>, Fault> {
        let kind = i8::from_be_bytes(self.take()?);
        Ok(Item::Ext(kind, self.bytes(length)?))
    }

    /// A length in 1, 2 or 4 bytes, for width 0, 1 or 2.
    fn length(&mut self, width: u8) -> Result<u32, Fault> {
        match width {
            0 => Ok(u32::from(self.take::<1>()?[0])),
            1 => Ok(u32::from(self.u16()?)),
            _ => self.u32(),
        }
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Fault> {
        let (head, rest) = self.rest.split_at_checked(length as usize).ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests;
