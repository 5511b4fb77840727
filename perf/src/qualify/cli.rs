//! The command line of `warmpath qualify`. Owns the order of the gates and what is printed; must never report
//! fit where a required gate did not pass.

use super::{Report, facts, features, integrity};
use crate::Error;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Find out whether this machine can run the gateway.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  warmpath qualify --quick                       facts, ring features, 60 s of byte integrity
  warmpath qualify --quick --seconds 10 --json report.json

Each line is pass, fail or not_run, with cause and cure. Exit code 0 only if every required gate passed;
lines marked (advice) don't count.")]
pub struct QualifyArgs {
    /// The quick gates; the only ones of this release
    #[arg(long, required = true)]
    pub quick: bool,
    /// Seconds of byte integrity, half for each driver
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,
    /// Write the report as JSON too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs the gates and prints a line for each as it ends.
pub fn run_qualify(args: &QualifyArgs) -> Result<(), Error> {
    if !(1.0..=86_400.0).contains(&args.seconds) {
        return Err(Error::new(format!("--seconds is {}; give 1 to 86400", args.seconds)));
    }
    let each = Duration::from_secs_f64(args.seconds / 2.0);
    let mut report = Report { facts: facts::facts(), gates: Vec::new() };
    for fact in &report.facts {
        println!("fact     {}: {}", fact.name, fact.value);
    }
    let advice = facts::advice(&report.facts);
    let drivers = [integrity::uring, integrity::epoll].into_iter().map(|driver| driver(each));
    for gate in advice.into_iter().chain(features::gates()).chain(drivers) {
        println!("{gate}");
        report.gates.push(gate);
    }
    if let Some(file) = &args.json {
        write(file, &report)?;
    }
    match report.unfit() {
        0 => Ok(()),
        unfit => {
            Err(Error::new(format!("{unfit} required gate(s) did not pass; cause and cure stand above")))
        }
    }
}

fn write(file: &Path, report: &Report) -> Result<(), Error> {
    let told = |e: &dyn std::fmt::Display| {
        Error::new(format!("{}: can't be written: {e}; choose another with --json", file.display()))
    };
    let text = serde_json::to_string_pretty(report).map_err(|e| told(&e))?;
    std::fs::write(file, text + "\n").map_err(|e| told(&e))
}
