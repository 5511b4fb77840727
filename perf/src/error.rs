//! The crate's error: one sentence for a person, with cause and cure.
//! Must never carry a partial result.

use std::fmt;

/// A failure told in one sentence: what went wrong and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// An error from its sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Error(sentence.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
