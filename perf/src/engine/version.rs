//! The release that a simulated engine behaves as. Must never know what a release changed; the kinds do.

/// A release: its text, and the numbers at its front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// As given, `0.32.0`.
    pub text: String,
    numbers: [u32; 3],
}

impl Version {
    /// Reads up to three numbers parted by points; what is missing or no number counts as 0.
    pub fn new(text: &str) -> Self {
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(text.split('.')) {
            let digits = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            *number = digits.parse().unwrap_or(0);
        }
        Version { text: text.to_owned(), numbers }
    }

    /// Whether it is this release or a later one.
    pub fn at_least(&self, major: u32, minor: u32, patch: u32) -> bool {
        self.numbers >= [major, minor, patch]
    }

    /// The first three numbers.
    pub fn numbers(&self) -> [u32; 3] {
        self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert!(Version::new("0.31").at_least(0, 31, 0));
        assert!(!Version::new("0.5.9").at_least(0, 5, 23));
        assert!(Version::new("1.3.0rc24").at_least(1, 3, 0));
        assert_eq!(Version::new("b11434").numbers(), [0, 0, 0]);
    }
}
