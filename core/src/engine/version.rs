//! Versions of engines, as far as contracts depend on them. Owns reading and ordering; what changed in which
//! version stays in each engine's file.

use std::fmt;

/// `major.minor.patch`; what follows (`+cpu`, `rc29`, `.post1`) never changed a contract and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number, 0 when absent.
    pub patch: u32,
}

impl Version {
    /// `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// Reads `0.28.0`, `v0.28`, `0.32.0+cpu`, `1.3.0rc29`. `None` without two leading numbers, as in a
    /// build's hash or llama.cpp's `b11434`.
    pub fn read(text: &str) -> Option<Version> {
        let mut parts = text.trim().trim_start_matches('v').splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let (minor, whole) = leading_number(parts.next()?)?;
        let patch = match parts.next() {
            Some(rest) if whole => leading_number(rest).map_or(0, |(number, _)| number),
            _ => 0,
        };
        Some(Version { major, minor, patch })
    }
}

/// The number that a part begins with, and whether the part is nothing but that number.
fn leading_number(part: &str) -> Option<(u32, bool)> {
    let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
    Some((part[..end].parse().ok()?, end == part.len()))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        for (text, major, minor, patch) in [
            ("0.28.0", 0, 28, 0),
            ("v0.28", 0, 28, 0),
            ("0.32.0+cpu", 0, 32, 0),
            ("1.3.0rc29", 1, 3, 0),
            ("0.5.10.post1", 0, 5, 10),
            ("0.29rc1", 0, 29, 0),
            ("0.31.1.dev3+g1234", 0, 31, 1),
        ] {
            assert_eq!(Version::read(text), Some(Version::new(major, minor, patch)), "{text}");
        }
        for text in ["", "b11434", "0", "main", "0.x.1", "-1.2.3", "99999999999.1"] {
            assert_eq!(Version::read(text), None, "{text}");
        }
        assert!(Version::new(0, 5, 9) < Version::new(0, 5, 23));
        assert!(Version::new(0, 29, 0) < Version::new(1, 0, 0));
    }
}
