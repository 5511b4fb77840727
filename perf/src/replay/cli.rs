//! The command line of `warmpath replay`. Owns its arguments and where reports go; must never print a figure that was
//! not computed in this run.

use super::agents::Agents;
use super::trace::Trace;
use super::{Model, Plan, Policy, Report, Row, oracle, run};
use crate::Error;
use clap::Args;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Try policies and fleets on a recorded trace, in virtual time
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  What exact routing would have found, beside other policies, with 8 and 16 engines:
    warmpath replay conversation_trace.jsonl --fleet 8,16

  Which load factor, at one and a half times the load:
    warmpath replay trace.jsonl --speed 1.5 --policy exact:hard:125,exact:hard:175,exact:soft

  Made-up coding agents, and a page with plots:
    warmpath replay --agents 200 --html agents.html

Policies: exact[:MODE[:N]] (MODE off, hard, soft, adaptive, adaptive-soft; N its load factor or penalty), chwbl[:N],
round_robin, least_connections. Every choice is made by the gateway's own code; engines and time are simulated.
Traces: JSON lines as Mooncake's (timestamp, input_length, output_length, hash_ids) or Azure's CSV.")]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_name = "FILE", required_unless_present = "agents", conflicts_with = "agents")]
    pub file: Option<PathBuf>,
    /// Make up so many agent sessions in place of a trace: 43 turns, prompts of 142,000 tokens in the mean
    #[arg(long, value_name = "SESSIONS")]
    pub agents: Option<u32>,
    /// Seed of what is made up
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How endpoints are chosen; several are compared
    #[arg(
        long,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "exact,exact:hard:125,chwbl,least_connections,round_robin"
    )]
    pub policy: Vec<String>,
    /// How many endpoints; several are compared
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "8")]
    pub fleet: Vec<usize>,
    /// Send the trace so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub speed: f64,
    /// Only the first so many requests
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// Leading blocks of a prompt that chwbl hashes
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub affinity_blocks: usize,
    /// Tokens that the cache of an engine has room for
    #[arg(long, value_name = "TOKENS", default_value_t = 1_000_000)]
    pub cache_tokens: u64,
    /// Requests that an engine runs at once
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub seats: usize,
    /// Prompt tokens that an engine computes in a second
    #[arg(long, value_name = "N", default_value_t = 10_000.0)]
    pub prefill_rate: f64,
    /// Milliseconds between two tokens of an answer that is decoded alone
    #[arg(long, value_name = "MS", default_value_t = 10.0)]
    pub step_ms: f64,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Replays, telling of each run as it ends, and prints the report.
pub fn run_replay(args: &ReplayArgs) -> Result<(), Error> {
    let report = args.report(|row| {
        let ttft = row.outcome.first_token.p99_ms;
        eprintln!(
            "{} on {}: {:.1} % found, TTFT p99 {ttft:.0} ms",
            row.policy,
            row.fleet,
            100.0 * row.hits()
        );
    })?;
    if let Some(file) = &args.html {
        write(file, &report.page())?;
    }
    println!("{}", if args.json { report.json() } else { report.text() });
    Ok(())
}

fn write(file: &Path, page: &str) -> Result<(), Error> {
    let told =
        |e| Error::new(format!("{}: can't be written: {e}; choose another with --html", file.display()));
    std::fs::write(file, page).map_err(told)
}

impl ReplayArgs {
    /// The report; `ended` hears of each row.
    pub fn report(&self, ended: impl Fn(&Row)) -> Result<Report, Error> {
        let policies = self.policy.iter().map(|word| Policy::parse(word)).collect::<Result<Vec<_>, _>>()?;
        let model = self.model()?;
        for fleet in &self.fleet {
            within("--fleet", *fleet as f64, 1.0..=256.0)?;
        }
        within("--speed", self.speed, 0.001..=1000.0)?;
        let (name, trace) = self.trace()?;
        let trace = trace.cut(self.requests.unwrap_or(usize::MAX), self.speed);
        let mut rows = Vec::new();
        for fleet in self.fleet.iter().copied() {
            let (oracle_tokens, seen_tokens) = oracle::hits(&trace, fleet, &model);
            for policy in &policies {
                let plan = Plan {
                    trace: &trace,
                    fleet,
                    policy: policy.clone(),
                    model: model.clone(),
                    affinity_blocks: self.affinity_blocks,
                };
                let (policy, outcome) = (policy.to_string(), run(&plan)?);
                let row = Row { policy, fleet, oracle_tokens, seen_tokens, outcome };
                ended(&row);
                rows.push(row);
            }
        }
        let seconds = trace.arrivals.last().map_or(0.0, |last| last.at as f64 / 1e9);
        let (requests, block_tokens) = (trace.arrivals.len(), trace.block_tokens);
        Ok(Report { trace: name, requests, block_tokens, seconds, model, rows })
    }

    fn trace(&self) -> Result<(String, Trace), Error> {
        if let Some(sessions) = self.agents {
            within("--agents", f64::from(sessions), 1.0..=100_000.0)?;
            let agents = Agents { sessions, seed: self.seed, ..Agents::default() };
            return Ok((format!("{sessions} agent sessions of seed {}", self.seed), agents.trace()));
        }
        let Some(file) = &self.file else {
            return Err(Error::new("nothing to replay; give FILE or --agents"));
        };
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| Error::new(format!("{name}: {e}")))?;
        Ok((name.clone(), Trace::parse(&name, &text)?))
    }

    fn model(&self) -> Result<Model, Error> {
        within("--cache-tokens", self.cache_tokens as f64, 1.0..=1e9)?;
        within("--seats", self.seats as f64, 1.0..=65_536.0)?;
        within("--prefill-rate", self.prefill_rate, 1.0..=1e9)?;
        within("--step-ms", self.step_ms, 0.001..=10_000.0)?;
        Ok(Model {
            cache_tokens: self.cache_tokens,
            seats: self.seats,
            step: (self.step_ms * 1e6) as u64,
            prompt_token: (1e9 / self.prefill_rate) as u64,
            ..Model::default()
        })
    }
}

fn within(what: &str, is: f64, allowed: RangeInclusive<f64>) -> Result<(), Error> {
    match allowed.contains(&is) {
        true => Ok(()),
        false => Err(Error::new(format!("{what} is {is}; give {} to {}", allowed.start(), allowed.end()))),
    }
}
