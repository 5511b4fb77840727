//! The catalog of endpoints: what was shown of which engine, at which version, behind which gateway. Owns its form, its
//! checks and the search by tuple; the rows stand in `core/catalog/endpoints.json`, which is built in. Must never let
//! evidence for one tuple count for another, nor hold a verdict without the record that shows it. That records exist and
//! have not changed since is a test's to hold (`tests/catalog.rs`): they are not built in.

pub mod compat;
mod evidence;
mod fault;
mod tuple;

pub use evidence::{
    Capability, Evidence, Gate, Promotion, PromotionWord, Record, Reported, ReportedGates, Verdict,
};
pub use fault::{CatalogFault, Place, RecordProblem};
pub use tuple::{Component, Topology, Tuple};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rows of this build, as text.
pub const EMBEDDED: &str = include_str!("../catalog/endpoints.json");

/// Rows, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// One for each tuple.
    pub rows: Vec<Row>,
}

/// What is known of one tuple.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What it is about.
    pub tuple: Tuple,
    /// What was shown here; one that is not written was not run.
    #[serde(deserialize_with = "evidence::unique")]
    pub capabilities: BTreeMap<Capability, Evidence>,
    /// How far it is supported here, which no gate says by itself; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Promotion>,
    /// What others say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_elsewhere: Option<Reported>,
}

/// Whether a tuple is in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// It is, to the letter.
    Found(&'a Row),
    /// It is not.
    Absent {
        /// Rows that differ from it in one component, which is named. They prove nothing of it.
        nearest: Vec<(&'a Row, Component)>,
    },
}

impl Catalog {
    /// Reads and checks a catalog.
    pub fn parse(text: &str) -> Result<Catalog, CatalogFault> {
        let mut catalog: Catalog = serde_json::from_str(text)?;
        catalog.check_tuples()?;
        for (at, row) in catalog.rows.iter_mut().enumerate() {
            for (capability, evidence) in &row.capabilities {
                check_records(at, *capability, evidence)?;
            }
            check_promotion(at, row.promotion.as_ref())?;
            for capability in Capability::ALL {
                row.capabilities.entry(capability).or_default();
            }
        }
        Ok(catalog)
    }

    /// That of this build.
    pub fn embedded() -> Result<Catalog, CatalogFault> {
        Catalog::parse(EMBEDDED)
    }

    /// The row of this very tuple.
    pub fn find(&self, tuple: &Tuple) -> Lookup<'_> {
        let mut nearest = Vec::new();
        for row in &self.rows {
            let mut differences = row.tuple.differences(tuple);
            match (differences.next(), differences.next()) {
                (None, _) => return Lookup::Found(row),
                (Some(component), None) => nearest.push((row, component)),
                (Some(_), Some(_)) => {}
            }
        }
        Lookup::Absent { nearest }
    }

    fn check_tuples(&self) -> Result<(), CatalogFault> {
        for (row, own) in self.rows.iter().enumerate() {
            if let Some(first) = self.rows[..row].iter().position(|earlier| earlier.tuple == own.tuple) {
                return Err(CatalogFault::DuplicateTuple { row, first });
            }
        }
        Ok(())
    }
}

/// Each gate that was run has a record, and no other has one.
fn check_records(row: usize, capability: Capability, evidence: &Evidence) -> Result<(), CatalogFault> {
    for gate in Gate::ALL {
        let verdict = evidence.verdict(gate);
        let problem = match (verdict.was_run(), evidence.records.get(&gate)) {
            (true, Some(record)) => record_problem(gate, record),
            (true, None) => Some(RecordProblem::Missing(verdict)),
            (false, Some(_)) => Some(RecordProblem::Unasked(verdict)),
            (false, None) => None,
        };
        if let Some(problem) = problem {
            return Err(CatalogFault::Record { place: Place { row, capability, gate }, problem });
        }
    }
    Ok(())
}

/// A promotion is decided in a record of its own, beside those of the runs.
fn check_promotion(row: usize, promotion: Option<&Promotion>) -> Result<(), CatalogFault> {
    let problem = promotion.and_then(|own| record_problem(Gate::RealEngine, &own.record));
    problem.map_or(Ok(()), |problem| Err(CatalogFault::Promotion { row, problem }))
}

/// What makes a file impossible as a record, whether or not it exists.
fn record_problem(gate: Gate, record: &Record) -> Option<RecordProblem> {
    let Record { file, sha256 } = record;
    let inside = !file.starts_with('/') && file.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let fits = match gate {
        Gate::Source => true,
        Gate::Fixture | Gate::Synthetic => file.split('/').any(|part| matches!(part, "tests" | "tests.rs")),
        Gate::RealEngine => file.starts_with("perf/results/"),
    };
    let is_digest = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match (inside && fits, is_digest) {
        (false, _) => Some(RecordProblem::File(file.clone())),
        (true, false) => Some(RecordProblem::Digest(sha256.clone())),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests;
