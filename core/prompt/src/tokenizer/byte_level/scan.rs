//! Text into the words that byte-level tokenizers merge within: the patterns of GPT-2, and of cl100k with the two
//! changes that Qwen made, as one pass over the bytes. Owns what a letter is; must end every word where the
//! pattern's regular expression does.

use regex_syntax::hir::{Class as Set, HirKind};

/// A pattern that is known, under the name of whoever used it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The one that `ByteLevel` has built in.
    Gpt2,
    /// cl100k and what was made of it.
    Cl100k {
        /// The most digits of a word.
        digits: usize,
        /// Whether combining marks are letters.
        marks: bool,
    },
}

/// cl100k (Llama 3, Phi-4), Qwen2 and Qwen3, Qwen3.5.
const CL100K: [(&str, Pattern); 3] = [
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Pattern::Cl100k { digits: 3, marks: false },
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Pattern::Cl100k { digits: 1, marks: false },
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Pattern::Cl100k { digits: 1, marks: true },
    ),
];

impl Pattern {
    /// The one of a `Split`, to the letter.
    pub(super) fn of(regex: &str) -> Option<Pattern> {
        CL100K.iter().find(|(own, _)| *own == regex).map(|(_, pattern)| *pattern)
    }
}

/// What a character is to the patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Other,
    Letter,
    Number,
    /// White space that ends no line.
    Blank,
    /// A carriage return or a line feed.
    Line,
}

/// Characters of one page of the table.
const PAGE: usize = 256;

/// Finds words.
pub(super) struct Scanner {
    pattern: Pattern,
    ascii: [Class; 128],
    /// By page of 256 characters: which of `pages` it is like.
    index: Vec<u16>,
    pages: Vec<[Class; PAGE]>,
}

impl Scanner {
    /// `None` if there is no such class of characters.
    pub(super) fn new(pattern: Pattern) -> Option<Scanner> {
        let mut flat = vec![Class::Other; char::MAX as usize + 1];
        let letters =
            if pattern == (Pattern::Cl100k { digits: 1, marks: true }) { r"[\pL\pM]" } else { r"\pL" };
        for (set, class) in [(letters, Class::Letter), (r"\pN", Class::Number), (r"\s", Class::Blank)] {
            for range in ranges(set)? {
                flat[range].fill(class);
            }
        }
        for line in [b'\r', b'\n'] {
            flat[usize::from(line)] = Class::Line;
        }
        let (mut pages, mut index): (Vec<[Class; PAGE]>, _) = (Vec::new(), Vec::new());
        for page in flat.as_chunks::<PAGE>().0 {
            let known = pages.iter().position(|own| own == page).unwrap_or(pages.len());
            if known == pages.len() {
                pages.push(*page);
            }
            index.push(known as u16);
        }
        let ascii = std::array::from_fn(|at| flat[at]);
        Some(Scanner { pattern, ascii, index, pages })
    }

    /// The end of the word that begins at `at`, which is before the end of the text.
    #[inline]
    pub(super) fn end(&self, text: &str, at: usize) -> usize {
        match self.pattern {
            Pattern::Gpt2 => self.gpt2(text, at),
            Pattern::Cl100k { digits, .. } => self.cl100k(text, at, digits),
        }
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    fn gpt2(&self, text: &str, at: usize) -> usize {
        let Some((first, behind)) = self.class(text, at) else { return text.len() };
        if let Some(end) = contraction(text, at).filter(|end| is_lower(text, at, *end)) {
            return end;
        }
        let blank = text.as_bytes()[at] == b' ';
        match self.class(text, behind) {
            Some((next, behind)) if blank && !next.is_space() => self.run(text, behind, next),
            _ if first.is_space() => self.spaces(text, at, false),
            _ => self.run(text, behind, first),
        }
    }

    /// See [`CL100K`]: a contraction; letters behind anything but a digit or the end of a line; digits; other
    /// characters behind a blank, with the ends of lines behind them; white space up to the last end of a line in it,
    /// or else up to the last of it where something follows.
    #[inline]
    fn cl100k(&self, text: &str, at: usize, digits: usize) -> usize {
        let Some((first, behind)) = self.class(text, at) else { return text.len() };
        match first {
            Class::Letter => return self.letters(text, behind),
            Class::Number => return self.digits(text, behind, digits - 1),
            Class::Line => return self.spaces(text, at, true),
            Class::Other | Class::Blank => {}
        }
        if let Some(end) = contraction(text, at) {
            return end;
        }
        let next = self.class(text, behind);
        match next {
            Some((Class::Letter, behind)) => self.letters(text, behind),
            Some((Class::Other, behind)) if text.as_bytes()[at] == b' ' => self.marks(text, behind),
            _ if first == Class::Other => self.marks(text, behind),
            _ => self.spaces(text, at, true),
        }
    }

    /// Other characters, and the ends of lines behind them.
    fn marks(&self, text: &str, at: usize) -> usize {
        let end = self.run(text, at, Class::Other);
        let lines = text.as_bytes()[end..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        end + lines.count()
    }

    fn digits(&self, text: &str, mut at: usize, most: usize) -> usize {
        for _ in 0..most {
            match self.class(text, at) {
                Some((Class::Number, behind)) => at = behind,
                _ => break,
            }
        }
        at
    }

    /// White space from `at` on: up to the last end of a line, if that counts; all at the end of the text; all but the
    /// last before anything else, if there is more than one.
    fn spaces(&self, text: &str, at: usize, lines: bool) -> usize {
        let (mut end, mut last, mut line) = (at, at, None);
        while let Some((class, behind)) = self.class(text, end).filter(|(class, _)| class.is_space()) {
            (last, end) = (end, behind);
            if class == Class::Line {
                line = Some(end);
            }
        }
        match line.filter(|_| lines) {
            Some(line) => line,
            None if end == text.len() || last == at => end,
            None => last,
        }
    }

    /// The end of a run of letters.
    #[inline]
    fn letters(&self, text: &str, mut at: usize) -> usize {
        loop {
            at += ascii_letters(text.as_bytes(), at);
            match self.class(text, at) {
                Some((Class::Letter, behind)) => at = behind,
                _ => return at,
            }
        }
    }

    /// The end of the run of a class.
    #[inline]
    fn run(&self, text: &str, mut at: usize, wanted: Class) -> usize {
        while let Some((class, behind)) = self.class(text, at) {
            if class != wanted {
                break;
            }
            at = behind;
        }
        at
    }

    /// The class of the character at `at`, and where the next one begins; `None` at the end.
    #[inline]
    fn class(&self, text: &str, at: usize) -> Option<(Class, usize)> {
        let byte = *text.as_bytes().get(at)?;
        match self.ascii.get(usize::from(byte)) {
            Some(class) => Some((*class, at + 1)),
            None => self.wide(text, at),
        }
    }

    fn wide(&self, text: &str, at: usize) -> Option<(Class, usize)> {
        let char = text.get(at..)?.chars().next()?;
        let page = &self.pages[usize::from(self.index[char as usize / PAGE])];
        Some((page[char as usize % PAGE], at + char.len_utf8()))
    }
}

impl Class {
    fn is_space(self) -> bool {
        matches!(self, Class::Blank | Class::Line)
    }
}

/// How many letters of ASCII begin there, eight bytes at a time.
#[inline]
fn ascii_letters(text: &[u8], at: usize) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let mut end = at;
    while let Some(bytes) = text.get(end..).and_then(|rest| rest.first_chunk::<8>()) {
        let bytes = u64::from_le_bytes(*bytes);
        let lower = (bytes | (0x20 * EACH)) & !TOP;
        let letters =
            (lower + (0x80 - b'a' as u64) * EACH) & !(lower + (0x7f - b'z' as u64) * EACH) & !bytes & TOP;
        let others = letters ^ TOP;
        end += others.trailing_zeros() as usize / 8;
        if others != 0 {
            break;
        }
    }
    end - at
}

/// The end of an English contraction at `at`, in any case; U+017F folds to an s.
#[inline]
fn contraction(text: &str, at: usize) -> Option<usize> {
    let [b'\'', rest @ ..] = text.as_bytes().get(at..)? else { return None };
    match rest {
        [b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', ..] => Some(at + 2),
        [0xc5, 0xbf, ..] => Some(at + 3),
        [b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] | [b'l' | b'L', b'l' | b'L', ..] => Some(at + 3),
        _ => None,
    }
}

fn is_lower(text: &str, at: usize, end: usize) -> bool {
    text.as_bytes()[at + 1..end].iter().all(u8::is_ascii_lowercase)
}

/// The characters of a class as the reference's regular expressions have it.
fn ranges(set: &str) -> Option<Vec<std::ops::RangeInclusive<usize>>> {
    match regex_syntax::parse(set).ok()?.kind() {
        HirKind::Class(Set::Unicode(class)) => {
            Some(class.iter().map(|range| range.start() as usize..=range.end() as usize).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(scanner: &Scanner, text: &'t str) -> Vec<&'t str> {
        let (mut at, mut words) = (0, Vec::new());
        while at < text.len() {
            let end = scanner.end(text, at);
            words.push(&text[at..end]);
            at = end;
        }
        words
    }

    #[test]
    fn words_end_where_the_patterns_say() {
        let three = Pattern::Cl100k { digits: 3, marks: false };
        let marks = Pattern::Cl100k { digits: 1, marks: true };
        let cases: [(Pattern, &str, &[&str]); 10] = [
            (three, "it's 12345 (a) b", &["it", "'s", " ", "123", "45", " (", "a", ")", " b"]),
            (three, "IT'LL 'Re '\u{17f}x", &["IT", "'LL", " '", "Re", " '", "\u{17f}x"]),
            (three, "x'\u{17f}x", &["x", "'\u{17f}", "x"]),
            (three, "a  b\n\n  c \n", &["a", " ", " b", "\n\n", " ", " c", " \n"]),
            (three, "?!\r\n\r\n \t x  ", &["?!\r\n\r\n", " \t", " x", "  "]),
            (three, "\u{a0}a e\u{301}a", &["\u{a0}a", " e", "\u{301}a"]),
            (marks, "\u{301}12 e\u{301}a", &["\u{301}", "1", "2", " e\u{301}a"]),
            (
                Pattern::Gpt2,
                "it's IT'S 123a\n\n b",
                &["it", "'s", " IT", "'", "S", " 123", "a", "\n\n", " b"],
            ),
            (Pattern::Gpt2, " ?!  ", &[" ?!", "  "]),
            (Pattern::Gpt2, "\ta \u{3000}b", &["\t", "a", " ", "\u{3000}", "b"]),
        ];
        for (pattern, text, wanted) in cases {
            let scanner = Scanner::new(pattern).expect("a scanner");
            assert_eq!(words(&scanner, text), wanted, "{pattern:?} {text:?}");
        }
    }

    /// Over texts made of whatever the alternatives look at, against the regular expressions themselves.
    #[test]
    fn words_are_those_of_the_regular_expressions() {
        const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        const PIECES: [&str; 30] = [
            "a", "B", "é", "日", "1", "²", "23", " ", "  ", "\n", "\r", "\r\n", "\t", "\u{a0}", "\u{3000}",
            "\u{85}", "\u{301}", "\u{20dd}", "'", "'s", "'LL", "'re", "'\u{17f}", ".", "_", "😀", "\u{0}",
            "\u{200b}", "\u{2028}", "(",
        ];
        let patterns = CL100K.iter().copied().chain([(GPT2, Pattern::Gpt2)]);
        for (regex, pattern) in patterns {
            let regex = tokenizers::utils::SysRegex::new(regex).expect("a pattern");
            let scanner = Scanner::new(pattern).expect("a scanner");
            let mut state = 1u64;
            for _ in 0..4_000 {
                let mut draw = || {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    PIECES[(state >> 33) as usize % PIECES.len()]
                };
                let text: String = (0..8).map(|_| draw()).collect();
                let wanted: Vec<&str> = regex.find_iter(&text).map(|(from, to)| &text[from..to]).collect();
                assert_eq!(words(&scanner, &text), wanted, "{pattern:?} {text:?}");
            }
        }
    }
}
