//! What can be wrong with a catalog, said so that whoever writes it can mend it.

use super::evidence::{Capability, Gate, Verdict};
use std::fmt;

/// Why a text is no catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogFault {
    /// No JSON, an unknown or missing member, a word that is none of those allowed.
    Form {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// Two rows of one tuple.
    DuplicateTuple {
        /// From 0.
        row: usize,
        /// The row that has it first.
        first: usize,
    },
    /// A record is missing, or is none.
    Record {
        /// Of which.
        place: Place,
        /// What is wrong.
        problem: RecordProblem,
    },
    /// The record of a promotion is none.
    Promotion {
        /// From 0.
        row: usize,
        /// What is wrong.
        problem: RecordProblem,
    },
}

/// One gate of one capability of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub row: usize,
    /// The capability.
    pub capability: Capability,
    /// The gate.
    pub gate: Gate,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordProblem {
    /// A gate that was run has none.
    Missing(Verdict),
    /// A gate that was not run has one.
    Unasked(Verdict),
    /// Its file can't be a record of this gate.
    File(String),
    /// No SHA-256.
    Digest(String),
}

impl std::error::Error for CatalogFault {}

impl From<serde_json::Error> for CatalogFault {
    fn from(fault: serde_json::Error) -> CatalogFault {
        CatalogFault::Form { line: fault.line(), column: fault.column(), problem: fault.to_string() }
    }
}

impl fmt::Display for CatalogFault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            CatalogFault::Form { problem, .. } => write!(f, "{problem}"),
            CatalogFault::DuplicateTuple { row, first } => {
                write!(f, "rows[{row}].tuple: that of rows[{first}]; make them one row")
            }
            CatalogFault::Record { place, problem } => write!(f, "{place}: {problem}"),
            CatalogFault::Promotion { row, problem } => write!(f, "rows[{row}].promotion.record: {problem}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Place { row, capability, gate } = self;
        write!(f, "rows[{row}].capabilities.{}.records.{}", capability.word(), gate.word())
    }
}

impl fmt::Display for RecordProblem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            RecordProblem::Missing(verdict) => {
                write!(f, "{} without a record; name its file and sha256, or write not_run", verdict.word())
            }
            RecordProblem::Unasked(verdict) => {
                write!(f, "a record of what is {}; remove one of the two", verdict.word())
            }
            RecordProblem::File(file) => write!(
                f,
                "{file:?} can't be its record; real_engine takes a file below perf/results/, fixture and synthetic one \
                 of tests, each by its path from the root of the repository"
            ),
            RecordProblem::Digest(digest) => {
                write!(f, "{digest:?} is no SHA-256; write 64 lower-case hexadecimal digits")
            }
        }
    }
}
