//! A MessagePack writer for what events need, each value in its shortest form as msgspec writes it
//! (read from captured frames). Must never buffer more than it wrote.

/// Bytes under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Values that another writer made.
    pub fn raw(&mut self, other: &Writer) -> &mut Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    /// nil.
    pub fn nil(&mut self) -> &mut Self {
        self.0.push(0xc0);
        self
    }

    /// A number without sign.
    pub fn uint(&mut self, value: u64) -> &mut Self {
        match value {
            0..=0x7f => self.0.push(value as u8),
            0x80..=0xff => self.0.extend([0xcc, value as u8]),
            0x100..=0xffff => self.tagged(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, &(value as u32).to_be_bytes()),
            _ => self.tagged(0xcf, &value.to_be_bytes()),
        }
        self
    }

    /// A number with a sign.
    pub fn int(&mut self, value: i64) -> &mut Self {
        match value {
            0.. => return self.uint(value.unsigned_abs()),
            -32..0 => self.0.push(value as u8),
            -128..-32 => self.0.extend([0xd0, value as u8]),
            -32_768..-128 => self.tagged(0xd1, &(value as i16).to_be_bytes()),
            -2_147_483_648..-32_768 => self.tagged(0xd2, &(value as i32).to_be_bytes()),
            _ => self.tagged(0xd3, &value.to_be_bytes()),
        }
        self
    }

    /// A number with 64 bits of floating point.
    pub fn float(&mut self, value: f64) -> &mut Self {
        self.tagged(0xcb, &value.to_be_bytes());
        self
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        match text.len() {
            length @ 0..=31 => self.0.push(0xa0 | length as u8),
            length @ 32..=0xff => self.0.extend([0xd9, length as u8]),
            length @ 0x100..=0xffff => self.tagged(0xda, &(length as u16).to_be_bytes()),
            length => self.tagged(0xdb, &(length as u32).to_be_bytes()),
        }
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Bytes, at most 255.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend([0xc4, bytes.len() as u8]);
        self.0.extend_from_slice(bytes);
        self
    }

    /// The head of an array of `length` values.
    pub fn array(&mut self, length: usize) -> &mut Self {
        match length {
            0..=15 => self.0.push(0x90 | length as u8),
            16..=0xffff => self.tagged(0xdc, &(length as u16).to_be_bytes()),
            _ => self.tagged(0xdd, &(length as u32).to_be_bytes()),
        }
        self
    }

    /// The head of a map of `length` members. `wide` writes two bytes of length even where none is
    /// needed, as msgspec does for a type that has more than 15 members, however many it sends.
    pub fn map(&mut self, length: usize, wide: bool) -> &mut Self {
        match length {
            0..=15 if !wide => self.0.push(0x80 | length as u8),
            _ => self.tagged(0xde, &(length as u16).to_be_bytes()),
        }
        self
    }

    /// A text, or nil.
    pub fn maybe_text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.nil(),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }
}

/// One value by itself.
pub fn value(write: impl FnOnce(&mut Writer)) -> Writer {
    let mut writer = Writer::default();
    write(&mut writer);
    writer
}

/// A member of an event: its name, and its value unless it is left out.
pub type Member = (&'static str, Option<Writer>);

/// An event: an array of its name and every member (absent ones nil), or a map of "type" and the members
/// that are not left out.
pub fn event(writer: &mut Writer, name: &str, members: &[Member], as_map: bool) {
    if !as_map {
        writer.array(1 + members.len()).text(name);
        for (_, value) in members {
            match value {
                Some(value) => writer.raw(value),
                None => writer.nil(),
            };
        }
        return;
    }
    let sent = members.iter().filter(|(_, value)| value.is_some()).count();
    writer.map(1 + sent, members.len() >= 15).text("type").text(name);
    for (name, value) in members.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        writer.text(name).raw(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_their_shortest_form() {
        let bytes = |value: i64| self::value(|w| _ = w.int(value)).finish();
        for (value, first, length) in [
            (0, 0x00, 1),
            (127, 0x7f, 1),
            (128, 0xcc, 2),
            (256, 0xcd, 3),
            (65_536, 0xce, 5),
            (1 << 32, 0xcf, 9),
            (-1, 0xff, 1),
            (-32, 0xe0, 1),
            (-33, 0xd0, 2),
            (-129, 0xd1, 3),
            (-32_769, 0xd2, 5),
            (-2_147_483_649, 0xd3, 9),
            (i64::MIN, 0xd3, 9),
        ] {
            assert_eq!((bytes(value)[0], bytes(value).len()), (first, length), "{value}");
        }
    }

    #[test]
    fn an_event_is_an_array_with_nils_or_a_map_without() {
        let members = [("a", Some(value(|w| _ = w.uint(1)))), ("b", None)];
        let written = |as_map| value(|w| event(w, "E", &members, as_map)).finish();
        assert_eq!(written(false), [0x93, 0xa1, b'E', 1, 0xc0]);
        assert_eq!(written(true), [0x82, 0xa4, b't', b'y', b'p', b'e', 0xa1, b'E', 0xa1, b'a', 1]);
    }
}
