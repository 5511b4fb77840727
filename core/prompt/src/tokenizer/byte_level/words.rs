//! Words whose tokens are known: those of the vocabulary, shared by all threads and never changed, and those that a
//! thread met last. Owns both tables. Neither grows nor is ever cleared: a new word takes the place of an older one, so
//! that the words of a text cost the same however many came before.

use std::fmt;

/// The longest word of the vocabulary's table.
pub(super) const SHORT: usize = 15;

/// The longest word that a thread keeps, and the most tokens of one.
const LONG: usize = 31;
const TOKENS: usize = 7;

/// Sets of two words that a thread keeps: 2 MiB.
const SETS: usize = 1 << 14;

/// Words that a thread keeps beside those, of more bytes or tokens than they have room for: rules, bars, rows of a
/// table. 112 KiB.
const WIDE: usize = 1 << 9;

/// The longest of these, and the most tokens of one.
const WIDE_LONG: usize = 96;
const WIDE_TOKENS: usize = 30;

/// The words of a vocabulary that are at most three tokens.
pub(super) struct Known {
    /// By hash, open addressing: the entry's number below some more bits of the hash.
    index: Box<[u32]>,
    /// In the vocabulary's order, in which frequent words are neighbours, on few pages.
    entries: Vec<Entry>,
}

/// A word's bytes with their number above them, and its tokens.
struct Entry {
    key: u128,
    ids: [u32; 3],
    count: u32,
}

/// Bits of an entry's number.
const NUMBER: u32 = 20;

/// No entry.
const NONE: u32 = u32::MAX;

impl Known {
    /// Of words and their tokens, frequent ones first. Longer ones, and those of more tokens, are left out, and what
    /// there is no number for.
    pub(super) fn new<'w>(words: impl Iterator<Item = (&'w [u8], Vec<u32>)>) -> Known {
        let entry = |(word, tokens): (&[u8], Vec<u32>)| {
            let mut ids = [0; 3];
            ids.get_mut(..tokens.len())?.copy_from_slice(&tokens);
            Some(Entry { key: short(word, 0, word.len())?, ids, count: tokens.len() as u32 })
        };
        let entries: Vec<Entry> = words.filter_map(entry).take((1 << NUMBER) - 1).collect();
        let mut index = vec![NONE; (entries.len() * 3 / 2 + 1).next_power_of_two()].into_boxed_slice();
        let mask = index.len() - 1;
        for (entry, number) in entries.iter().zip(0..) {
            let spread = spread_of(entry.key);
            let mut at = spread as usize & mask;
            while index[at] != NONE {
                at = (at + 1) & mask;
            }
            index[at] = above(spread) | number;
        }
        Known { index, entries }
    }

    /// The tokens of the word at `at..end` of a text.
    #[inline]
    pub(super) fn get(&self, text: &[u8], at: usize, end: usize) -> Option<&[u32]> {
        let key = short(text, at, end)?;
        let spread = spread_of(key);
        let (above, mask) = (above(spread), self.index.len() - 1);
        let mut at = spread as usize & mask;
        loop {
            let found = self.index[at];
            if found == NONE {
                return None;
            }
            let entry = self.entries.get((found ^ above) as usize);
            if let Some(entry) = entry.filter(|entry| entry.key == key) {
                return entry.ids.get(..entry.count as usize);
            }
            at = (at + 1) & mask;
        }
    }
}

/// What of a hash stands above an entry's number; of another hash it leaves a number that is too large.
#[inline]
fn above(spread: u64) -> u32 {
    ((spread >> 32) as u32) & (NONE << NUMBER)
}

#[inline]
fn spread_of(key: u128) -> u64 {
    spread(key as u64, (key >> 64) as u64)
}

/// What a thread met last, of all tokenizers. A word is 31 bytes and their number, up to seven tokens, and whose and how
/// many they are: a line of the cache.
#[derive(Default)]
pub struct Recent {
    /// None until there is a word to keep, then all of them.
    lines: Vec<[u64; 8]>,
    /// The same of words that have no room there.
    wide: Vec<Wide>,
}

/// A word that is no line, whose it is, and its tokens.
#[derive(Clone)]
struct Wide {
    owner: u32,
    len: u8,
    count: u8,
    bytes: [u8; WIDE_LONG],
    ids: [u32; WIDE_TOKENS],
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB of words", (size_of_val(&*self.lines) + size_of_val(&*self.wide)) / 1024)
    }
}

impl Recent {
    /// Appends the tokens of a word, as the tokenizer of this number gave them; false where they are not kept.
    #[inline]
    pub(super) fn get(&self, owner: u32, word: &Word, out: &mut Vec<u32>) -> bool {
        let at = 2 * (word.spread as usize % SETS);
        let Some(set) = self.lines.get(at..at + 2) else { return false };
        for [a, b, c, d, ids @ ..] in set {
            let tail = ids[3] >> 32;
            if [*a, *b, *c, *d] == word.key && tail >> 8 == u64::from(owner) {
                let [a, b, c, d] = ids.map(|both| [both as u32, (both >> 32) as u32]);
                let ids = [a[0], a[1], b[0], b[1], c[0], c[1], d[0]];
                out.extend_from_slice(ids.get(..tail as usize & 0xff).unwrap_or_default());
                return true;
            }
        }
        false
    }

    /// The same of a word that may have had no room there.
    pub(super) fn get_wide(&self, owner: u32, word: &[u8], out: &mut Vec<u32>) -> bool {
        let Some(wide) = self.wide.get(wide_place(word)) else { return false };
        let is_it = wide.owner == owner && wide.bytes.get(..wide.len.into()) == Some(word);
        if is_it {
            out.extend_from_slice(wide.ids.get(..wide.count.into()).unwrap_or_default());
        }
        is_it
    }

    /// Keeps the tokens of a word that is not there: `line` where it is short enough for one.
    pub(super) fn put(&mut self, owner: u32, line: Option<&Word>, word: &[u8], ids: &[u32]) {
        match line.filter(|_| ids.len() <= TOKENS) {
            Some(line) => self.put_line(owner, line, ids),
            None => self.put_wide(owner, word, ids),
        }
    }

    fn put_wide(&mut self, owner: u32, word: &[u8], ids: &[u32]) {
        if word.len() > WIDE_LONG || ids.len() > WIDE_TOKENS {
            return;
        }
        let mut wide = Wide {
            owner,
            len: word.len() as u8,
            count: ids.len() as u8,
            bytes: [0; WIDE_LONG],
            ids: [0; WIDE_TOKENS],
        };
        wide.bytes[..word.len()].copy_from_slice(word);
        wide.ids[..ids.len()].copy_from_slice(ids);
        if self.wide.is_empty() {
            self.wide = vec![Wide { len: 0, count: 0, ..wide.clone() }; WIDE];
        }
        self.wide[wide_place(word)] = wide;
    }

    fn put_line(&mut self, owner: u32, word: &Word, ids: &[u32]) {
        if self.lines.is_empty() {
            // Zeros, which the kernel gives a page at a time.
            self.lines = vec![[0; 8]; 2 * SETS];
        }
        let at = 2 * (word.spread as usize % SETS);
        let Some([newest, older]) = self.lines.get_mut(at..at + 2) else { return };
        let id = |at: usize| u64::from(ids.get(at).copied().unwrap_or_default());
        let both = |at: usize| id(2 * at) | id(2 * at + 1) << 32;
        let tail = u64::from(owner) << 8 | ids.len() as u64;
        let [a, b, c, d] = word.key;
        *older = *newest;
        *newest = [a, b, c, d, both(0), both(1), both(2), id(6) | tail << 32];
    }
}

/// A word of up to 31 bytes, as it is looked for.
pub(super) struct Word {
    key: [u64; 4],
    spread: u64,
}

impl Word {
    /// The word at `at..end` of a text; `None` if it is longer.
    #[inline]
    pub(super) fn of(text: &[u8], at: usize, end: usize) -> Option<Word> {
        let len = end - at;
        if len > LONG {
            return None;
        }
        let (low, high) = (half(text, at, len.min(16)), half(text, at + 16, len.saturating_sub(16)));
        let key = [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64 | (len as u64) << 56];
        let spread = spread(spread(key[0], key[1]), spread(key[2], key[3]));
        Some(Word { key, spread })
    }
}

/// Where a word is kept that is no line: by its ends and its length.
fn wide_place(word: &[u8]) -> usize {
    let ends =
        half(word, 0, word.len().min(16)) ^ half(word, word.len().saturating_sub(16), 16).rotate_left(17);
    spread(ends as u64 ^ word.len() as u64, (ends >> 64) as u64) as usize % WIDE
}

/// Up to 15 bytes of a text and their number; `None` for more, or none.
#[inline]
fn short(text: &[u8], at: usize, end: usize) -> Option<u128> {
    let len = end - at;
    if len == 0 || len > SHORT {
        return None;
    }
    Some(half(text, at, len) | (len as u128) << 120)
}

/// The first `len` bytes from `at` on, up to 16.
#[inline]
fn half(text: &[u8], at: usize, len: usize) -> u128 {
    let bytes = match text.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(bytes) => *bytes,
        None => {
            let rest = text.get(at..).unwrap_or_default();
            std::array::from_fn(|at| rest.get(at).copied().unwrap_or_default())
        }
    };
    u128::from_le_bytes(bytes) & MASKS[len.min(16)]
}

/// The low bytes of a word, by their number.
const MASKS: [u128; 17] = {
    let mut masks = [u128::MAX; 17];
    let mut len = 0;
    while len < 16 {
        masks[len] = (1 << (8 * len)) - 1;
        len += 1;
    }
    masks
};

#[inline]
fn spread(low: u64, high: u64) -> u64 {
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_by_its_bytes_and_owner_alone() {
        let mut recent = Recent::default();
        let word = |text: &'static [u8]| Word::of(text, 0, text.len()).expect("a short word");
        let mut ids = Vec::new();
        recent.put(1, Some(&word(b"abc")), b"abc", &[1, 2, 3, 4, 5, 6, u32::MAX]);
        for (owner, other) in [(1, &b"abd"[..]), (1, b"abc\0"), (1, b"ab"), (2, b"abc")] {
            assert!(!recent.get(owner, &word(other), &mut ids), "{other:?}");
        }
        assert!(recent.get(1, &word(b"abc"), &mut ids));
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, u32::MAX]);
        assert!(Word::of(&[b'x'; 32], 0, 32).is_none());
        recent.put(1, Some(&word(b"much")), b"much", &[0; 8]);
        assert!(!recent.get(1, &word(b"much"), &mut ids), "more tokens than a line has room for");
        ids.clear();
        assert!(recent.get_wide(1, b"much", &mut ids) && ids == [0; 8]);
        let bar = "\u{2588}".repeat(16);
        recent.put(1, None, bar.as_bytes(), &[7; 16]);
        for (owner, other) in [(1, "\u{2588}".repeat(15)), (2, bar.clone())] {
            assert!(!recent.get_wide(owner, other.as_bytes(), &mut ids), "{other}");
        }
        ids.clear();
        assert!(recent.get_wide(1, bar.as_bytes(), &mut ids) && ids == [7; 16]);
        recent.put(1, None, &[b'-'; 97], &[1]);
        assert!(!recent.get_wide(1, &[b'-'; 97], &mut ids), "longer than any that is kept");
    }

    #[test]
    fn new_words_take_the_places_of_older_ones() {
        let mut recent = Recent::default();
        let texts: Vec<String> = (0..200_000).map(|n| format!("w{n}")).collect();
        let mut ids = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            let word = Word::of(text.as_bytes(), 0, text.len()).expect("a short word");
            recent.put(1, Some(&word), text.as_bytes(), &[n as u32]);
            assert!(recent.get(1, &word, &mut ids), "{text}");
            assert_eq!(ids.pop(), Some(n as u32));
        }
        let kept = texts.iter().filter(|text| {
            recent.get(1, &Word::of(text.as_bytes(), 0, text.len()).expect("a short word"), &mut Vec::new())
        });
        assert!((SETS..=2 * SETS).contains(&kept.count()));
    }

    #[test]
    fn the_words_of_a_vocabulary_are_found_wherever_they_stand() {
        let words: Vec<String> = (0..5_000).map(|n| format!("{n}")).collect();
        let known = Known::new(
            words.iter().enumerate().map(|(n, word)| (word.as_bytes(), vec![n as u32; 1 + n % 4])),
        );
        let text = words.join("");
        let mut at = 0;
        for (n, word) in words.iter().enumerate() {
            let end = at + word.len();
            let wanted = vec![n as u32; 1 + n % 4];
            assert_eq!(known.get(text.as_bytes(), at, end), Some(&*wanted).filter(|_| n % 4 < 3), "{word}");
            at = end;
        }
        assert_eq!(known.get(b"x0123456789abcdef", 0, 1), None);
        assert_eq!(known.get(b"0123456789abcdef", 0, 16), None);
    }
}
