//! Interleaved rounds over all relays and workloads, and their medians.
//!
//! Owns the order and length of runs, and the report. Must never report a figure when any run failed.

use crate::child::Relay;
use crate::load::Load;
use crate::workload::{self, Workload};
use crate::{LOAD_CORE, Variant, pin};
use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use warmpath_ring::clock;

/// Responses for each client before a run counts; streams are warm with the first piece of each.
const WARM_RESPONSES: u64 = 10;

/// What to do, with bounds that keep it short.
pub struct Plan {
    /// Runs of each relay and workload.
    pub rounds: usize,
    /// Length of one run.
    pub length: Duration,
}

/// One run.
struct Run {
    /// CPU microseconds of the relay for each unit.
    cpu_us: f64,
    /// Units each second.
    rate: f64,
    /// Share of one core that the relay used.
    busy: f64,
}

/// The runs of one relay with one workload.
struct Series<'a> {
    workload: &'a Workload,
    variant: Variant,
    runs: Vec<Run>,
}

/// Measures, prints the table, gives all figures. Errors: the first failure of any run.
pub fn measure(plan: &Plan) -> io::Result<Value> {
    // Before pinning, after which it would be one.
    let cpus = std::thread::available_parallelism()?.get();
    pin(LOAD_CORE);
    let workloads = workload::all();
    let mut all: Vec<Series> = Vec::new();
    for workload in &workloads {
        all.extend(Variant::ALL.map(|variant| Series { workload, variant, runs: Vec::new() }));
    }
    let before = load_average();
    for round in 0..plan.rounds {
        // Each round begins elsewhere, so that none is always the first after a pause.
        let count = all.len();
        for step in 0..count {
            let series = &mut all[(step + round) % count];
            let name =
                |e| io::Error::other(format!("{}, {}: {e}", series.variant.name(), series.workload.name));
            let run = run(series.variant, series.workload, plan.length).map_err(name)?;
            series.runs.push(run);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    print(&workloads, &all);
    let series: Vec<Value> = all.iter().map(Series::json).collect();
    let (rounds, seconds) = (plan.rounds, plan.length.as_secs_f64());
    let machine = json!({ "kernel": first_line("/proc/sys/kernel/osrelease"), "cpu": cpu_model(),
        "cpus": cpus, "load_before": before, "load_after": load_average() });
    Ok(json!({ "machine": machine, "rounds": rounds, "seconds": seconds, "failures": 0, "series": series }))
}

/// One run: a fresh relay, warm-up, then the counted time.
fn run(variant: Variant, workload: &Workload, length: Duration) -> io::Result<Run> {
    let mut load = Load::new(workload)?;
    let relay = Relay::start(variant, load.upstream)?;
    load.connect(relay.address)?;
    let streams = workload.pieces.len() > 1;
    let warm = workload.clients as u64 * WARM_RESPONSES;
    load.run(|load| if streams { load.units >= warm } else { load.responses >= warm })?;
    let (cpu, units, start) = (relay.cpu_ns()?, load.units, clock::now());
    let end = start + length.as_nanos() as u64;
    load.run(|_| clock::now() >= end)?;
    let (cpu, units) = ((relay.cpu_ns()? - cpu) as f64, (load.units - units) as f64);
    let wall = (clock::now() - start) as f64;
    Ok(Run { cpu_us: cpu / units / 1e3, rate: units / wall * 1e9, busy: cpu / wall })
}

/// Median, least and most.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    [at(values.len() / 2), at(0), at(values.len().saturating_sub(1))]
}

impl Series<'_> {
    fn cpu(&self) -> [f64; 3] {
        spread(self.runs.iter().map(|run| run.cpu_us))
    }

    /// The ratio to another series, round by round, so that what disturbs a whole round cancels out.
    fn ratio(&self, other: &Series) -> [f64; 3] {
        spread(self.runs.iter().zip(&other.runs).map(|(run, other)| run.cpu_us / other.cpu_us))
    }

    fn json(&self) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(Run::json).collect();
        json!({ "relay": self.variant.name(), "workload": self.workload.name, "unit": self.workload.unit,
            "cpu_us_median_min_max": self.cpu(), "runs": runs })
    }
}

impl Run {
    fn json(&self) -> Value {
        json!({ "cpu_us": self.cpu_us, "per_second": self.rate, "core_share": self.busy })
    }
}

fn print(workloads: &[Workload], all: &[Series]) {
    for workload in workloads {
        let of: Vec<&Series> = all.iter().filter(|series| series.workload.name == workload.name).collect();
        println!(
            "\n| {}: relay | CPU µs a {unit} | ÷ uring | {unit}s/s | core |",
            workload.name,
            unit = workload.unit
        );
        println!("|---|---|---|---|---|");
        for series in &of {
            let [cpu, least, most] = series.cpu();
            let [ratio, low, high] = series.ratio(of[0]);
            let [rate, ..] = spread(series.runs.iter().map(|run| run.rate));
            let [busy, ..] = spread(series.runs.iter().map(|run| run.busy));
            println!(
                "| {} | {cpu:.1} [{least:.1}–{most:.1}] | {ratio:.2} [{low:.2}–{high:.2}] | {rate:.0} | {:.0} % |",
                series.variant.name(),
                busy * 100.0
            );
        }
    }
}

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_string()
}

fn load_average() -> String {
    first_line("/proc/loadavg")
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    line.split(": ").nth(1).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_median_least_and_most() {
        assert_eq!(spread([3.0, 1.0, 9.0, 2.0, 4.0].into_iter()), [3.0, 1.0, 9.0]);
        assert!(spread(std::iter::empty())[0].is_nan());
    }
}
