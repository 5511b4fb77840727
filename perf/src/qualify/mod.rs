//! `warmpath qualify`: whether this machine can run the gateway, found out by doing it. Owns the list of
//! gates and their verdicts; must never pass a gate by a version number, nor hide one that could not run.
//!
//! [`facts`] describes the machine, [`features`] uses each feature of the ring, [`integrity`] sends seeded
//! bytes through a gateway on each driver and compares every one.

pub mod case;
pub mod cli;
mod client;
mod engine;
pub mod facts;
pub mod features;
mod gateway;
pub mod integrity;

use facts::Fact;
use serde::Serialize;
use std::fmt;

/// What became of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was tried and held.
    Pass,
    /// It was tried and did not.
    Fail,
    /// It could not be tried here.
    NotRun,
}

impl Verdict {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotRun => "not_run",
        }
    }
}

/// One gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// What was tried.
    pub name: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Whether the machine is unfit without it; otherwise it is advice.
    pub required: bool,
    /// What was found: figures of a pass, the cause of anything else.
    pub found: String,
    /// What to do about it; empty for a pass.
    pub cure: String,
}

impl Gate {
    /// A required gate that held.
    pub fn pass(name: impl Into<String>, found: impl Into<String>) -> Gate {
        let (name, found) = (name.into(), found.into());
        Gate { name, verdict: Verdict::Pass, required: true, found, cure: String::new() }
    }

    /// A required gate that did not hold, or was not tried.
    pub fn not_passed(
        name: impl Into<String>,
        verdict: Verdict,
        cause: impl Into<String>,
        cure: impl Into<String>,
    ) -> Gate {
        Gate { name: name.into(), verdict, required: true, found: cause.into(), cure: cure.into() }
    }

    /// The same as advice.
    pub fn advice(self) -> Gate {
        Gate { required: false, ..self }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = if self.required { "" } else { " (advice)" };
        write!(f, "{:8} {}{advice}", self.verdict.word(), self.name)?;
        for part in [&self.found, &self.cure] {
            if !part.is_empty() {
                write!(f, "; {part}")?;
            }
        }
        Ok(())
    }
}

/// Everything found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The machine.
    pub facts: Vec<Fact>,
    /// The gates.
    pub gates: Vec<Gate>,
}

impl Report {
    /// Required gates that did not pass.
    pub fn unfit(&self) -> usize {
        self.gates.iter().filter(|gate| gate.required && gate.verdict != Verdict::Pass).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_required_gate_that_did_not_pass_makes_unfit() {
        let fail = Gate::not_passed("a", Verdict::Fail, "cause", "cure");
        let not_run = Gate::not_passed("b", Verdict::NotRun, "why", "");
        let gates = vec![Gate::pass("c", ""), fail.clone().advice(), fail.clone(), not_run];
        assert_eq!(Report { facts: Vec::new(), gates }.unfit(), 2);
        assert_eq!(fail.to_string(), "fail     a; cause; cure");
        assert_eq!(fail.advice().to_string(), "fail     a (advice); cause; cure");
    }
}
