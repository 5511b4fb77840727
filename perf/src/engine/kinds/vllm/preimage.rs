//! The two byte forms of what vLLM hashes: Python's pickle protocol 5 as CPython writes it, and
//! canonical CBOR. Both hold a block's parent, its tokens and its extra keys, or a seed's text.
//! Must never hash.

/// An extra key: its words, in a tuple of their own from vLLM 0.31 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extra<'a> {
    /// A bare string (to 0.30).
    Plain(&'a str),
    /// A tuple of strings, the tag first.
    Tagged(Vec<&'a str>),
}

/// Pickles `text`.
pub fn pickled_text(text: &str) -> Vec<u8> {
    let mut body = opened(text.len());
    pickle_str(&mut body, text);
    framed(body)
}

/// Pickles `(parent, tokens, extras or None)`.
pub fn pickled_block(parent: &[u8], tokens: &[u32], extras: &[Extra]) -> Vec<u8> {
    let mut body = opened(64 + tokens.len() * 5);
    body.push(b'C'); // SHORT_BINBYTES
    body.push(parent.len() as u8);
    body.extend_from_slice(parent);
    body.push(MEMOIZE);
    pickle_tuple(&mut body, tokens, |body, &token| pickle_int(body, token));
    match extras {
        [] => body.push(b'N'),
        _ => pickle_tuple(&mut body, extras, |body, extra| match extra {
            Extra::Plain(text) => pickle_str(body, text),
            Extra::Tagged(words) => pickle_tuple(body, words, |body, word| pickle_str(body, word)),
        }),
    }
    body.extend([TUPLE3, MEMOIZE]);
    framed(body)
}

const MEMOIZE: u8 = 0x94;
const TUPLE3: u8 = 0x87;

/// PROTO, FRAME and the frame's length.
const HEAD: usize = 11;

/// PROTO 5 and one FRAME whose length is not known yet.
fn opened(room: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEAD + room + 8);
    body.extend([0x80, 5, 0x95, 0, 0, 0, 0, 0, 0, 0, 0]);
    body
}

/// STOP, and the length. CPython begins a second frame past 64 KiB, which no block fills.
fn framed(mut body: Vec<u8>) -> Vec<u8> {
    body.push(b'.');
    let length = (body.len() - HEAD) as u64;
    body[3..HEAD].copy_from_slice(&length.to_le_bytes());
    body
}

/// TUPLE1 to TUPLE3 need no MARK; longer ones are MARK … TUPLE.
fn pickle_tuple<T>(body: &mut Vec<u8>, items: &[T], each: impl Fn(&mut Vec<u8>, &T)) {
    if items.len() > 3 {
        body.push(b'(');
    }
    items.iter().for_each(|item| each(body, item));
    body.push(if items.len() > 3 { b't' } else { 0x84 + items.len() as u8 });
    body.push(MEMOIZE);
}

fn pickle_int(body: &mut Vec<u8>, value: u32) {
    match value {
        0..=0xff => body.extend([b'K', value as u8]),
        0x100..=0xffff => {
            body.push(b'M');
            body.extend((value as u16).to_le_bytes());
        }
        0x1_0000..=0x7fff_ffff => {
            body.push(b'J');
            body.extend(value.to_le_bytes());
        }
        // LONG1: five bytes, since the fourth's top bit would mean a negative number.
        _ => {
            body.extend([0x8a, 5]);
            body.extend(value.to_le_bytes());
            body.push(0);
        }
    }
}

fn pickle_str(body: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length) => body.extend([0x8c, length]),
        Err(_) => {
            body.push(b'X');
            body.extend((text.len() as u32).to_le_bytes());
        }
    }
    body.extend_from_slice(text.as_bytes());
    body.push(MEMOIZE);
}

/// `text` in CBOR.
pub fn cbor_text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    cbor_str(&mut bytes, text);
    bytes
}

/// `[parent, tokens, extras or null]` in CBOR.
pub fn cbor_block(parent: &[u8], tokens: &[u32], extras: &[Extra]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + tokens.len() * 5);
    cbor_head(&mut bytes, ARRAY, 3);
    cbor_head(&mut bytes, BYTES, parent.len() as u64);
    bytes.extend_from_slice(parent);
    cbor_head(&mut bytes, ARRAY, tokens.len() as u64);
    tokens.iter().for_each(|&token| cbor_head(&mut bytes, UNSIGNED, u64::from(token)));
    if extras.is_empty() {
        bytes.push(0xf6);
        return bytes;
    }
    cbor_head(&mut bytes, ARRAY, extras.len() as u64);
    for extra in extras {
        match extra {
            Extra::Plain(text) => cbor_str(&mut bytes, text),
            Extra::Tagged(words) => {
                cbor_head(&mut bytes, ARRAY, words.len() as u64);
                words.iter().for_each(|word| cbor_str(&mut bytes, word));
            }
        }
    }
    bytes
}

const UNSIGNED: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;

fn cbor_str(bytes: &mut Vec<u8>, text: &str) {
    cbor_head(bytes, TEXT, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// A major type and its number in the shortest form.
fn cbor_head(bytes: &mut Vec<u8>, major: u8, value: u64) {
    let major = major << 5;
    match value {
        0..=23 => bytes.push(major | value as u8),
        24..=0xff => bytes.extend([major | 24, value as u8]),
        0x100..=0xffff => {
            bytes.push(major | 25);
            bytes.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            bytes.push(major | 26);
            bytes.extend((value as u32).to_be_bytes());
        }
        _ => {
            bytes.push(major | 27);
            bytes.extend(value.to_be_bytes());
        }
    }
}
